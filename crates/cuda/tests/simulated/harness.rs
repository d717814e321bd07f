//! Scenarios, how they are run, and what is made of what the stand-in driver reports.

use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};

use hurray_cuda_programs::{Outcome, Report, Run};
use libtest_mimic::Trial;

/// The environment variable that names the scenario of a child.
pub(crate) const SCENARIO: &str = "HURRAY_SCENARIO";

/// How a scenario ends.
pub(crate) type Done = Result<(), Box<dyn Error>>;

/// A program and its name.
pub(crate) type Scenario = (&'static str, fn() -> Done);

/// The status of a scenario that ended in an error value, as opposed to a panic.
const ERROR_VALUE: u8 = 3;

/// Runs one of them: the child's main.
pub(crate) fn run(name: &str, mut scenarios: impl Iterator<Item = Scenario>) -> ExitCode {
    let Some((_, scenario)) = scenarios.find(|(known, _)| *known == name) else {
        panic!("no scenario {name}");
    };
    match scenario() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(ERROR_VALUE)
        }
    }
}

/// A scenario about to run.
pub(crate) fn child(name: &str) -> Run {
    let mut command = Command::new(env::current_exe().expect("this executable"));
    command.env(SCENARIO, name);
    Run::new(command)
}

/// The pool of a device lives as long as the process, as its context does.
fn is_expected(report: &Report) -> bool {
    report.kind == "leak-handle" && report.text.ends_with("of kind pool")
}

/// What was reported beyond that.
pub(crate) fn reports(outcome: &Outcome) -> Vec<&Report> {
    outcome
        .reports
        .iter()
        .filter(|report| !is_expected(report))
        .collect()
}

/// The defects among them: what outlives a process is none.
pub(crate) fn defects(outcome: &Outcome) -> Vec<&Report> {
    let mut reports = reports(outcome);
    reports.retain(|report| !report.kind.starts_with("leak"));
    reports
}

/// That a run ended well, and nothing was reported.
pub(crate) fn assert_clean(outcome: &Outcome) {
    assert!(
        outcome.succeeded() && reports(outcome).is_empty(),
        "{:?}\n{}{}\n{:#?}",
        outcome.status,
        outcome.stdout,
        outcome.stderr,
        reports(outcome)
    );
}

/// That a run ended in success or an error value, and no defect was reported.
pub(crate) fn assert_handled(outcome: &Outcome, what: &str) {
    let code = outcome.status.and_then(|status| status.code());
    assert!(
        matches!(code, Some(0 | 3)) && defects(outcome).is_empty(),
        "{what}: {:?}\n{}{}\n{:#?}",
        outcome.status,
        outcome.stdout,
        outcome.stderr,
        outcome.reports
    );
}

/// A test that runs the scenario of its name and wants no report.
pub(crate) fn clean(name: &'static str) -> Trial {
    clean_on(name, |run| run)
}

/// The same, on a driver that is set up.
pub(crate) fn clean_on(name: &'static str, set_up: fn(Run) -> Run) -> Trial {
    Trial::test(name, move || {
        for seed in 0..2 {
            assert_clean(&set_up(child(name)).seed(seed).run());
        }
        Ok(())
    })
}

/// Calls of `function`, by whomever.
pub(crate) fn calls(outcome: &Outcome, function: &str) -> u64 {
    let count = outcome.count(function);
    count.program + count.reclaimer
}

/// A test that plants a defect at every call that orders: each wait and each record that does nothing, each free that runs early. Every run must be
/// reported, save those in `needless`, as (function, n). For scenarios in which ordering is all that keeps the bytes whole: where the host waits in
/// between, or threads take part in no fixed order, most calls are needless.
pub(crate) fn sweep(name: &'static str, needless: &'static [(&'static str, u64)]) -> Trial {
    sweep_on(name, needless, |run| run)
}

/// Neither the stand-in driver nor the program itself found anything wrong.
fn is_unnoticed(outcome: &Outcome) -> bool {
    defects(outcome).is_empty() && outcome.succeeded()
}

/// The same, on a driver that is set up.
pub(crate) fn sweep_on(
    name: &'static str,
    needless: &'static [(&'static str, u64)],
    set_up: fn(Run) -> Run,
) -> Trial {
    Trial::test(format!("every_call_is_needed_in::{name}"), move || {
        let sound = set_up(child(name)).run();
        assert_clean(&sound);
        let mut unreported = Vec::new();
        let mut planted = 0;
        for function in ["cuStreamWaitEvent", "cuEventRecord"] {
            for n in 1..=calls(&sound, function) {
                planted += 1;
                let outcome = set_up(child(name)).swallow(function, n).run();
                if is_unnoticed(&outcome) {
                    unreported.push((function, n));
                }
            }
        }
        let frees = ["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost"];
        for n in 1..=frees.into_iter().map(|free| calls(&sound, free)).sum() {
            planted += 1;
            let outcome = set_up(child(name)).free_early(n).run();
            if is_unnoticed(&outcome) {
                unreported.push(("free", n));
            }
        }
        assert!(planted > 0, "there is nothing to plant");
        assert_eq!(unreported, needless, "of {planted} planted");
        Ok(())
    })
}
