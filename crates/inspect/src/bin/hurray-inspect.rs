//! `hurray-inspect`: the same as `hurray inspect`.

fn main() -> std::process::ExitCode {
    hurray_inspect::run_inspect(std::env::args_os()).into()
}
