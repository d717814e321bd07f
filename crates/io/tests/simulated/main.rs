//! Files to a device and back, on the stand-in driver. Each scenario is a small program, run as a process of its own: this executable again, told
//! which by an environment variable.
#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

#[path = "../counting/mod.rs"]
mod counting;
#[path = "../../../cuda/tests/simulated/scene.rs"]
#[allow(dead_code, reason = "the layer's own tests use the rest")]
mod device;
#[path = "../../../cuda/tests/simulated/harness.rs"]
#[allow(dead_code, reason = "the layer's own tests use the rest")]
mod harness;
mod loading;
mod saving;
#[path = "../tensors/mod.rs"]
mod tensors;

use std::process::ExitCode;

use harness::{SCENARIO, Scenario};
use hurray_core::{DeviceTag, MemoryClass};
use hurray_ffi::Place;
use libtest_mimic::{Arguments, Trial};

/// Memory of device 0.
const CUDA: Place = Place {
    device: DeviceTag::Cuda,
    device_id: 0,
    memory_class: MemoryClass::Standard,
};

fn scenarios() -> impl Iterator<Item = Scenario> {
    [loading::SCENARIOS, saving::SCENARIOS]
        .into_iter()
        .flatten()
        .copied()
}

fn tests() -> Vec<Trial> {
    let tests = [loading::tests(), saving::tests()];
    tests.into_iter().flatten().collect()
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(SCENARIO) {
        hurray_ffi::device::register(&hurray_cuda::LAYER);
        return harness::run(&name, scenarios());
    }
    libtest_mimic::run(&Arguments::from_args(), tests()).exit_code()
}
