//! What is still there when the process ends.

use crate::driver::{self, Driver};
use crate::memory::MappingKind;
use crate::report::{self, Kind};

/// Runs after the program's own exit handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    // A forked child has nothing of its own, and a process that never initialised the driver has nothing at all.
    if !driver::owns_process() {
        return;
    }
    let Some(mut driver) = driver::try_lock() else {
        return;
    };
    report_leaks(&mut driver);
    if let Some(mut file) = driver
        .config
        .out
        .as_ref()
        .and_then(|out| report::open(&out.join("counts")))
    {
        let peaks: Vec<usize> = driver.devices.iter().map(|device| device.peak).collect();
        driver.log.write_counts(&mut file, &peaks);
    }
}

fn report_leaks(driver: &mut Driver) {
    let alive = driver
        .memory
        .mappings
        .values()
        .filter(|mapping| mapping.freed.is_none());
    let memory: Vec<String> = alive
        .map(|mapping| {
            let kind = match mapping.kind {
                MappingKind::Device => "device memory",
                MappingKind::Pinned => "page-locked memory",
                MappingKind::Registered => "registered memory",
                MappingKind::Managed => "managed memory",
                MappingKind::Virtual { .. } => "a mapping",
            };
            format!("{kind} {:#x?} of {}", mapping.range(), mapping.site)
        })
        .collect();
    for text in memory {
        driver.reports.push(Kind::LeakMemory, text);
    }
    let pools = driver.pools.len()
        - driver
            .devices
            .iter()
            .filter(|device| !device.default_pool.is_null())
            .count();
    let handles = [
        (driver.physical.len(), "physical memory"),
        (driver.reservations.len(), "reserved range"),
        (driver.stream_handles.len(), driver.stream_handles.kind()),
        (driver.events.len(), driver.events.kind()),
        (pools, driver.pools.kind()),
        (driver.graphs.len(), driver.graphs.kind()),
        (driver.graph_execs.len(), driver.graph_execs.kind()),
        (driver.user_objects.len(), driver.user_objects.kind()),
    ];
    for (count, kind) in handles.into_iter().filter(|&(count, _)| count > 0) {
        driver
            .reports
            .push(Kind::LeakHandle, format_args!("{count} of kind {kind}"));
    }
}
