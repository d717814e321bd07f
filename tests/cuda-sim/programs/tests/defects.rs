//! Each defect that the stand-in driver exists to find is reported on every seed, and its mended twin on none.

use std::process::{Command, ExitCode};

use hurray_cuda_programs::{Outcome, Run, simulator};
use libtest_mimic::{Arguments, Failed, Trial};

const DEFECTS: &str = env!("CARGO_BIN_EXE_defects");
const SEEDS: u64 = 50;

fn main() -> ExitCode {
    let list = Command::new(DEFECTS)
        .arg("list")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let list = list.unwrap_or_default();
    let programs: Vec<(String, String)> = list
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    assert!(programs.len() > 60, "the programs are listed: {programs:?}");
    let trials = programs
        .into_iter()
        .map(|(name, kind)| Trial::test(name.clone(), move || reported(&name, &kind)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn run(name: &str, twin: &str, seed: u64) -> Outcome {
    let mut command = Command::new(DEFECTS);
    command.arg(simulator()).arg(name).arg(twin);
    Run::new(command).seed(seed).devices(2).run()
}

fn reported(name: &str, kind: &str) -> Result<(), Failed> {
    for seed in 0..SEEDS {
        let broken = run(name, "broken", seed);
        // What follows from a defect may be reported too; a defect of another kind may not.
        let other = broken
            .reports
            .iter()
            .any(|report| report.kind != kind && !report.kind.starts_with("leak"));
        // It ends as it means to, or by the fault that a device would end it by.
        let ended = broken
            .status
            .is_some_and(|status| status.code().is_none_or(|code| code == 0));
        if !broken.reported(kind) || other || !ended {
            return Err(format!("seed {seed}, broken: {broken:#?}").into());
        }
        let mended = run(name, "mended", seed);
        if !mended.succeeded() || !mended.reports.is_empty() {
            return Err(format!("seed {seed}, mended: {mended:#?}").into());
        }
    }
    Ok(())
}
