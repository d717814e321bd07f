//! The ordered log of calls, and how often each was made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::report;

/// Who makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Program,
    Reclaimer,
}

/// Functions in which the host waits for the device, by their documentation.
const WAITS: [&str; 15] = [
    "cuCtxSynchronize",
    "cuCtxSynchronize_v2",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemcpy",
    "cuMemcpyPeer",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpy2D_v2",
    "cuMemsetD8_v2",
    "cuMemsetD16_v2",
    "cuMemsetD32_v2",
];

/// Calls of one function.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) program: u64,
    pub(crate) reclaimer: u64,
}

impl Count {
    pub(crate) fn of(&self, who: Who) -> u64 {
        match who {
            Who::Program => self.program,
            Who::Reclaimer => self.reclaimer,
        }
    }

    fn add(&mut self, who: Who) {
        match who {
            Who::Program => self.program += 1,
            Who::Reclaimer => self.reclaimer += 1,
        }
    }
}

/// The log and the counts.
pub(crate) struct Log {
    file: Option<File>,
    line: String,
    calls: u64,
    counts: BTreeMap<&'static str, Count>,
    /// Asynchronous copies that may have waited, since they touch pageable memory.
    pageable: Count,
}

impl Log {
    pub(crate) fn new(out: Option<&Path>, enabled: bool) -> Self {
        let file = out
            .filter(|_| enabled)
            .and_then(|out| report::open(&out.join("log")));
        Self {
            file,
            line: String::new(),
            calls: 0,
            counts: BTreeMap::new(),
            pageable: Count::default(),
        }
    }

    pub(crate) fn enabled(&self) -> bool {
        self.file.is_some()
    }

    /// Counts a call and gives it its number.
    pub(crate) fn begin(&mut self, function: &'static str, who: Who) -> u64 {
        self.calls += 1;
        self.counts.entry(function).or_default().add(who);
        self.calls
    }

    /// Counts an asynchronous copy of pageable memory.
    pub(crate) fn pageable(&mut self, who: Who) {
        self.pageable.add(who);
    }

    /// Writes a call's line. Unbuffered: what a crash leaves is what is wanted.
    pub(crate) fn end(
        &mut self,
        call: u64,
        function: &str,
        who: Who,
        arguments: &str,
        result: &str,
    ) {
        let Some(file) = &mut self.file else { return };
        self.line.clear();
        let thread = crate::driver::thread();
        let who = if who == Who::Program {
            "program"
        } else {
            "reclaimer"
        };
        // Writing to a String cannot fail, and a log that cannot be written must not change the program.
        let _ = writeln!(
            self.line,
            "{call}\t{thread}\t{who}\t{function}\t{arguments}\t{result}"
        );
        let _ = file.write_all(self.line.as_bytes());
    }

    pub(crate) fn count(&self, function: &str) -> Count {
        self.counts.get(function).copied().unwrap_or_default()
    }

    pub(crate) fn waits(&self, who: Who) -> u64 {
        WAITS
            .iter()
            .map(|function| self.count(function).of(who))
            .sum::<u64>()
            + self.pageable.of(who)
    }

    /// All counts, a line each: function, program, reclaimer.
    pub(crate) fn write_counts(&self, file: &mut File, peaks: &[usize]) {
        let mut text = String::new();
        for (function, count) in &self.counts {
            let _ = writeln!(text, "{function}\t{}\t{}", count.program, count.reclaimer);
        }
        let _ = writeln!(
            text,
            "host-waits\t{}\t{}",
            self.waits(Who::Program),
            self.waits(Who::Reclaimer)
        );
        for (device, peak) in peaks.iter().enumerate() {
            let _ = writeln!(text, "peak-bytes-{device}\t{peak}\t0");
        }
        let _ = file.write_all(text.as_bytes());
    }
}
