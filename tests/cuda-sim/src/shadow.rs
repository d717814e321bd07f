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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 24;
    const ACTORS: usize = 3;

    /// What a test does: an access by an actor, which may first learn all that another knows.
    #[derive(Clone, Debug)]
    struct Step {
        actor: usize,
        learns_from: Option<usize>,
        range: Range<u64>,
        write: bool,
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0..BYTES, 0..=BYTES).prop_map(|(a, b)| a.min(b)..a.max(b));
        (
            0..ACTORS,
            proptest::option::of(0..ACTORS),
            range,
            any::<bool>(),
        )
            .prop_map(|(actor, learns_from, range, write)| Step {
                actor,
                learns_from,
                range,
                write,
            })
    }

    fn site(call: u64) -> Arc<Site> {
        Arc::new(Site {
            call,
            function: "test",
            place: "here".into(),
        })
    }

    proptest! {
        /// The ranges find what a list of all accesses of every byte finds: whether an access is unordered after some earlier conflicting one.
        #[test]
        fn ranges_agree_with_a_history_of_every_byte(steps in proptest::collection::vec(step(), 0..40)) {
            let mut shadow = Shadow::default();
            let mut history: Vec<Vec<(Epoch, bool)>> = vec![Vec::new(); BYTES as usize];
            let mut clocks = vec![Clock::default(); ACTORS];
            for (call, step) in steps.into_iter().enumerate() {
                if let Some(other) = step.learns_from {
                    let known = clocks[other].clone();
                    clocks[step.actor].join(&known);
                }
                let epoch = clocks[step.actor].tick(step.actor);
                let clock = clocks[step.actor].clone();
                let access = Access { epoch, write: step.write, site: site(call as u64) };
                let found = !shadow.access(step.range.clone(), &access, &clock).is_empty();
                let mut expected = false;
                for byte in step.range {
                    let past = &mut history[byte as usize];
                    // Only accesses that no reported race hides: a race is reported once, at the first access that it meets.
                    let last_write = past.iter().rposition(|&(_, write)| write).unwrap_or(0);
                    expected |= past[last_write..].iter().any(|&(earlier, write)| (write || step.write) && !clock.covers(earlier));
                    past.push((epoch, step.write));
                }
                prop_assert_eq!(found, expected);
            }
        }

        /// The ranges never overlap, and forgetting one leaves the rest.
        #[test]
        fn ranges_stay_apart(steps in proptest::collection::vec(step(), 0..40), forgotten in (0..BYTES, 0..=BYTES)) {
            let mut shadow = Shadow::default();
            let mut touched = BTreeSet::new();
            let mut clock = Clock::default();
            for step in steps {
                let epoch = clock.tick(0);
                shadow.access(step.range.clone(), &Access { epoch, write: step.write, site: site(0) }, &clock);
                touched.extend(step.range);
            }
            let forgotten = forgotten.0.min(forgotten.1)..forgotten.0.max(forgotten.1);
            shadow.forget(forgotten.clone());
            touched.retain(|byte| !forgotten.contains(byte));
            let held: Vec<u64> = shadow.ranges.iter().flat_map(|(&start, &(end, _))| start..end).collect();
            prop_assert!(held.iter().copied().eq(touched));
        }
    }
}
