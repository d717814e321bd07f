//! Readiness and release through the transport, on the stand-in driver. Each scenario is a small program, run as a process of its own: this executable
//! again, told which by an environment variable.
#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "every handle here is made here, and destroyed or given away once"
)]

mod c_program;
#[path = "../../../cuda/tests/simulated/scene.rs"]
#[allow(dead_code, reason = "the layer's own tests use the rest")]
mod device;
#[path = "../../../cuda/tests/simulated/harness.rs"]
#[allow(dead_code, reason = "the layer's own tests use the rest")]
mod harness;
mod lists;
mod ordering;
#[path = "../producer/mod.rs"]
mod producer;
mod returning;
mod scene;
#[path = "../tensors/mod.rs"]
mod tensors;

use std::process::ExitCode;

use harness::{SCENARIO, Scenario};
use libtest_mimic::{Arguments, Trial};

fn scenarios() -> impl Iterator<Item = Scenario> {
    [lists::SCENARIOS, ordering::SCENARIOS, returning::SCENARIOS]
        .into_iter()
        .flatten()
        .copied()
}

fn tests() -> Vec<Trial> {
    [lists::tests(), ordering::tests(), returning::tests()]
        .into_iter()
        .flatten()
        .collect()
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(SCENARIO) {
        hurray_ffi::device::register(&hurray_cuda::LAYER);
        return harness::run(&name, scenarios());
    }
    c_program::compile();
    libtest_mimic::run(&Arguments::from_args(), tests()).exit_code()
}
