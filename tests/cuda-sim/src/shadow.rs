//! Who touched which bytes last: the state from which races are decided.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::clock::{Clock, Epoch};
use crate::report::Site;

/// One access that happened.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) epoch: Epoch,
    pub(crate) write: bool,
    pub(crate) site: Arc<Site>,
}

/// The accesses that a later one must be ordered after.
#[derive(Clone, Debug, Default)]
struct Past {
    write: Option<Access>,
    /// Reads since the write, one per actor: later reads of an actor cover its earlier ones.
    reads: SmallVec<[Access; 2]>,
}

/// The past of every byte that was touched, by device address.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    ranges: BTreeMap<u64, (u64, Past)>,
}

impl Shadow {
    /// Makes `at` the border of two ranges, if it lies within one.
    fn split(&mut self, at: u64) {
        let Some((&start, (end, past))) = self.ranges.range_mut(..at).next_back() else {
            return;
        };
        if *end > at {
            let tail = (*end, past.clone());
            *end = at;
            debug_assert!(start < at);
            self.ranges.insert(at, tail);
        }
    }

    /// Records an access and returns the earlier ones that it conflicts with and that `clock` doesn't cover.
    pub(crate) fn access(
        &mut self,
        range: Range<u64>,
        access: &Access,
        clock: &Clock,
    ) -> Vec<(Range<u64>, Access)> {
        let mut conflicts = Vec::new();
        if range.is_empty() {
            return conflicts;
        }
        self.split(range.start);
        self.split(range.end);
        let mut at = range.start;
        let mut gaps: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        for (&start, (end, past)) in self.ranges.range_mut(range.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            at = *end;
            let reads = past.reads.iter().filter(|_| access.write);
            let unordered = past
                .write
                .iter()
                .chain(reads)
                .filter(|earlier| !clock.covers(earlier.epoch));
            conflicts.extend(unordered.map(|earlier| (start..*end, earlier.clone())));
            past.record(access);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            let mut past = Past::default();
            past.record(access);
            self.ranges.insert(gap.start, (gap.end, past));
        }
        conflicts
    }

    /// Forgets a range.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        self.split(range.start);
        self.split(range.end);
        let starts: Vec<u64> = self.ranges.range(range).map(|(&start, _)| start).collect();
        for start in starts {
            self.ranges.remove(&start);
        }
    }
}

impl Past {
    fn record(&mut self, access: &Access) {
        if access.write {
            self.reads.clear();
            self.write = Some(access.clone());
        } else if let Some(earlier) = self
            .reads
            .iter_mut()
            .find(|read| read.epoch.actor == access.epoch.actor)
        {
            *earlier = access.clone();
        } else {
            self.reads.push(access.clone());
        }
    }
}
