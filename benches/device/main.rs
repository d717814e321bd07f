//! Device copies and ordering.
//!
//! On a GPU: seconds and bytes per second, beside a plain `cuMemcpyAsync` between pinned and device memory. Without one: the driver's stand-in, on
//! which every case runs once and its driver calls are counted, a figure that holds anywhere. `HURRAY_BENCH=sim` asks for the latter.

#![expect(
    clippy::expect_used,
    reason = "a bench that can't run says so by a panic"
)]

mod copies;
mod count;
mod memory;
mod order;

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use hurray_cuda_programs::{cuda, simulator};

/// Something to time, and what its driver calls may be.
struct Case {
    name: &'static str,
    /// Bytes that it copies, if it copies.
    bytes: Option<u64>,
    /// Queues its work once.
    run: Box<dyn FnMut()>,
    /// What it waits on when it is timed: the work itself is to be measured, not its queueing.
    finish: Box<dyn FnMut()>,
    /// The most records and waits of one run, once warmed up.
    limit: Option<count::Calls>,
}

fn main() {
    let is_simulated =
        std::env::var("HURRAY_BENCH").is_ok_and(|driver| driver == "sim") || !has_driver();
    if is_simulated {
        cuda::load(simulator()).expect("the stand-in driver");
    }
    let len = if is_simulated { 24 << 20 } else { 256 << 20 };
    let cases = copies::cases(len).into_iter().chain(order::cases());
    if is_simulated {
        println!("no CUDA driver: each case once on its stand-in, and the driver calls counted");
        count::report(cases);
    } else {
        time(cases);
    }
}

/// Whether the loader finds a driver.
fn has_driver() -> bool {
    [c"libcuda.so.1", c"libcuda.so"].iter().any(|name| {
        // SAFETY: a C string; the library is a driver, which is meant to be loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        !library.is_null()
    })
}

fn time(cases: impl Iterator<Item = Case>) {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("device");
    for Case {
        name,
        bytes,
        mut run,
        mut finish,
        ..
    } in cases
    {
        if let Some(bytes) = bytes {
            group.throughput(Throughput::Bytes(bytes));
        }
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                finish();
                let start = Instant::now();
                for _ in 0..rounds {
                    run();
                }
                finish();
                start.elapsed()
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
