//! `sync.md` sentence by sentence, on the stand-in driver. Each scenario is a small program, run as a process of its own: this executable again, told
//! which by an environment variable.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod bad_input;
mod capture;
mod copies;
mod faults;
mod harness;
mod pipeline;
mod probe;
mod release;
mod scene;
mod streams;

use std::process::ExitCode;

use harness::{SCENARIO, Scenario};
use libtest_mimic::{Arguments, Trial};

fn scenarios() -> impl Iterator<Item = Scenario> {
    [
        bad_input::SCENARIOS,
        capture::SCENARIOS,
        copies::SCENARIOS,
        faults::SCENARIOS,
        pipeline::SCENARIOS,
        probe::SCENARIOS,
        release::SCENARIOS,
        streams::SCENARIOS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

fn tests() -> Vec<Trial> {
    [
        bad_input::tests(),
        capture::tests(),
        copies::tests(),
        faults::tests(),
        pipeline::tests(),
        probe::tests(),
        release::tests(),
        streams::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(SCENARIO) {
        return harness::run(&name, scenarios());
    }
    libtest_mimic::run(&Arguments::from_args(), tests()).exit_code()
}
