//! The command `hurray`.

fn main() -> std::process::ExitCode {
    hurray_inspect::run(std::env::args_os()).into()
}
