//! The driver's rules, one program each: what the simulator models and a real driver must do the same.

mod captures;
mod contexts;
mod copies;
mod events;
mod faults;
mod graphs;
mod hosts;
mod mappings;
mod memory;
mod peers;
mod pools;
mod streams;

use std::process::ExitCode;

fn main() -> ExitCode {
    let programs = [
        contexts::PROGRAMS,
        streams::PROGRAMS,
        events::PROGRAMS,
        memory::PROGRAMS,
        pools::PROGRAMS,
        mappings::PROGRAMS,
        copies::PROGRAMS,
        peers::PROGRAMS,
        hosts::PROGRAMS,
        captures::PROGRAMS,
        graphs::PROGRAMS,
        faults::PROGRAMS,
    ];
    hurray_cuda_programs::main(&programs.concat())
}
