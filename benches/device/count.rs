//! Driver calls of each case, on the driver's stand-in.

use std::ffi::{CStr, c_char};

use crate::Case;

/// Calls of the program's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) records: u64,
    pub(crate) waits: u64,
    /// Events, streams and pinned memory that were allocated.
    pub(crate) allocations: u64,
}

impl Calls {
    fn now() -> Self {
        let of = |names: &[&CStr]| names.iter().map(|name| calls(name)).sum();
        Self {
            records: of(&[c"cuEventRecord"]),
            waits: of(&[c"cuStreamWaitEvent"]),
            allocations: of(&[c"cuEventCreate", c"cuStreamCreate", c"cuMemHostAlloc"]),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            records: self.records - before.records,
            waits: self.waits - before.waits,
            allocations: self.allocations - before.allocations,
        }
    }

    fn is_within(self, limit: Self) -> bool {
        self.records <= limit.records
            && self.waits <= limit.waits
            && self.allocations <= limit.allocations
    }
}

/// Warms each case up, runs it once more, and prints what it called. A case beyond its limit ends the bench.
pub(crate) fn report(cases: impl Iterator<Item = Case>) {
    println!(
        "{:36} {:>8} {:>8} {:>12}",
        "case", "records", "waits", "allocations"
    );
    for mut case in cases {
        for _ in 0..2 {
            (case.run)();
            (case.finish)();
        }
        let before = Calls::now();
        (case.run)();
        let calls = Calls::now().since(before);
        (case.finish)();
        let Calls {
            records,
            waits,
            allocations,
        } = calls;
        println!("{:36} {records:>8} {waits:>8} {allocations:>12}", case.name);
        if let Some(limit) = case.limit {
            assert!(
                calls.is_within(limit),
                "{}: {calls:?}, and {limit:?} at most",
                case.name
            );
        }
    }
}

fn calls(function: &CStr) -> u64 {
    // SAFETY: a C string; the stand-in is loaded, and global.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuda_sim_calls".as_ptr()) };
    assert!(!symbol.is_null(), "the stand-in driver counts calls");
    // SAFETY: the stand-in driver's function of that name has this signature.
    let count: extern "C" fn(*const c_char, u32) -> u64 = unsafe { std::mem::transmute(symbol) };
    count(function.as_ptr(), 0)
}
