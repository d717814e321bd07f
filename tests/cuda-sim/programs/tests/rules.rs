//! The driver's rules on the stand-in driver: each program ends well and nothing is reported, whatever the seed. `make gpu-test` runs the same programs
//! on a real driver.

use std::process::{Command, ExitCode};

use hurray_cuda_programs::{Run, simulator};
use libtest_mimic::{Arguments, Failed, Trial};

const RULES: &str = env!("CARGO_BIN_EXE_rules");
const SEEDS: u64 = 20;

/// The one program that does what must be reported, since the rule is about what happens then.
const REPORTED: (&str, &str) = ("an_illegal_address_breaks_the_context", "unknown-address");

fn main() -> ExitCode {
    let list = Command::new(RULES)
        .arg("list")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let names: Vec<String> = list
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 70, "the programs are listed: {names:?}");
    let trials = names
        .into_iter()
        .map(|name| Trial::test(name.clone(), move || holds(&name)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn holds(name: &str) -> Result<(), Failed> {
    for seed in 0..SEEDS {
        let mut command = Command::new(RULES);
        command.arg(simulator()).arg(name);
        let mut outcome = Run::new(command)
            .seed(seed)
            .devices(2)
            .queue(if seed % 2 == 0 { 4 } else { 1024 })
            .run();
        if name == REPORTED.0 {
            let before = outcome.reports.len();
            outcome.reports.retain(|report| report.kind != REPORTED.1);
            assert_ne!(before, outcome.reports.len());
        }
        if !outcome.succeeded() || !outcome.reports.is_empty() {
            return Err(format!("seed {seed}: {outcome:#?}").into());
        }
    }
    Ok(())
}
