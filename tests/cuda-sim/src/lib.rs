//! A stand-in CUDA driver for machines without a GPU.
//!
//! It exports the driver's symbols under the SONAME `libcuda.so`, runs their work on the CPU, and decides for every access whether it is ordered after the
//! last conflicting one. `docs/cuda-sim.md` says what it models, how a test uses it, and what it can't show.
//!
//! A call is checked when it is made: the order of two operations follows from the calls alone, so a verdict does not depend on when the work runs. The work
//! itself waits in its stream's queue and runs as late as a wait allows, in a seeded order.

#![expect(
    unsafe_code,
    reason = "a driver is called through the C ABI and owns raw memory"
)]
#![expect(
    non_snake_case,
    reason = "entry points and their parameters bear the driver's names"
)]

mod capture;
mod checker;
mod clock;
mod config;
mod context;
mod control;
mod copy;
mod device;
mod driver;
mod entry;
mod error;
mod event;
mod fault;
mod graph;
mod handle;
mod host;
mod inject;
mod kernel;
mod leak;
mod log;
mod mapping;
mod memory;
mod pinned;
mod pointer;
mod pool;
mod proc_address;
mod queue;
mod report;
mod set;
mod shadow;
mod stream;
