//! The verdicts: is this access inside living memory, and ordered after the last conflicting one?

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CUresult;

use crate::clock::{Clock, Epoch, FIRST_STREAM, PROGRAM};
use crate::driver::Driver;
use crate::entry::{Call, Outcome};
use crate::memory::{Mapping, MappingKind};
use crate::report::{Kind, Site};
use crate::shadow::Access;
use crate::stream::StreamId;

/// Who reads or writes: copies go wherever the driver reaches, kernels only where their device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Copy,
    Kernel,
}

/// A range that an operation reads or writes.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) range: Range<u64>,
    pub(crate) write: bool,
    pub(crate) engine: Engine,
}

fn verb(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

impl Driver {
    /// Looks at what an operation touches, before it is queued: is it memory, and alive, inside and within reach?
    ///
    /// Returns whether a kernel will fault.
    ///
    /// # Errors
    /// What the driver would answer to a copy of such a range.
    pub(crate) fn examine(
        &mut self,
        site: &Arc<Site>,
        stream: StreamId,
        touches: &[Touch],
    ) -> Result<bool, CUresult> {
        let mut faults = false;
        for touch in touches {
            let found = self.examine_range(site, stream, touch);
            if let Err(error) = found {
                if touch.engine == Engine::Copy {
                    return Err(error);
                }
                faults = true;
            }
        }
        Ok(faults)
    }

    fn examine_range(&mut self, site: &Arc<Site>, stream: StreamId, touch: &Touch) -> Outcome {
        let device = self.stream(stream).device;
        let context = self.stream(stream).context;
        let mut at = touch.range.start;
        while at < touch.range.end {
            let Some(mapping) = self.memory.find(at) else {
                return self.examine_unmapped(site, touch, at);
            };
            let end = mapping.range().end;
            let outside = touch.engine == Engine::Kernel && !self.reaches(context, device, mapping);
            let home = mapping.device;
            if let Some(freed) = mapping.freed.clone() {
                self.report_freed(site, touch, &freed);
            }
            if outside {
                let text = format!(
                    "{site} {} {:#x?} on device {home}, which device {device} has no access to",
                    verb(touch.write),
                    touch.range
                );
                self.reports.push(Kind::Peer, text);
                return Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            }
            at = end;
        }
        Ok(())
    }

    /// Whether a device's kernels can use a mapping.
    fn reaches(
        &self,
        context: cudarc::driver::sys::CUcontext,
        device: usize,
        mapping: &Mapping,
    ) -> bool {
        match &mapping.kind {
            MappingKind::Pinned | MappingKind::Registered | MappingKind::Managed => true,
            MappingKind::Virtual { access } => access.contains(&device),
            MappingKind::Device => {
                let pool = mapping.pool.and_then(|pool| self.pools.get(pool).ok());
                mapping.device == device
                    || pool.is_some_and(|pool| pool.access.contains(&device))
                    || (pool.is_none()
                        && self
                            .contexts
                            .get(context)
                            .is_ok_and(|context| context.peers.contains(&mapping.device)))
            }
        }
    }

    fn examine_unmapped(&mut self, site: &Arc<Site>, touch: &Touch, at: u64) -> Outcome {
        let Touch { range, write, .. } = touch;
        if let Some(freed) = self.memory.tombstone(at) {
            self.report_freed(site, touch, &freed);
            return Ok(());
        }
        let text = match self.memory.before(at) {
            Some(mapping) if at != range.start || at - mapping.end < crate::memory::GUARD => {
                let (start, end) = (mapping.start, mapping.end);
                self.reports.push(
                    Kind::OutOfBounds,
                    format_args!("{site} {} {range:#x?}, {} bytes past the end of the allocation {start:#x}..{end:#x}", verb(*write), range.end - end),
                );
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            _ => format!(
                "{site} {} {range:#x?}, which no allocation holds",
                verb(*write)
            ),
        };
        self.reports.push(Kind::UnknownAddress, text);
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn report_freed(&mut self, site: &Arc<Site>, touch: &Touch, freed: &Arc<Site>) {
        let text = format!(
            "{site} {} {:#x?}, which was freed by {freed}",
            verb(touch.write),
            touch.range
        );
        self.reports.pair(Kind::UseAfterFree, freed, site, text);
    }

    /// Decides whether accesses are ordered, and remembers them.
    pub(crate) fn check(
        &mut self,
        site: &Arc<Site>,
        epoch: Epoch,
        clock: &Clock,
        touches: &[Touch],
    ) {
        for touch in touches {
            let access = Access {
                epoch,
                write: touch.write,
                site: Arc::clone(site),
            };
            self.check_one(&access, clock, &touch.range, Kind::Race);
            self.protect(touch, epoch);
        }
    }

    /// Checks one access, a free among them (`kind` is then use after free).
    pub(crate) fn check_one(
        &mut self,
        access: &Access,
        clock: &Clock,
        range: &Range<u64>,
        kind: Kind,
    ) {
        let conflicts = self.shadow.access(range.clone(), access, clock);
        for (shared, earlier) in conflicts {
            let (first, second) = (&earlier.site, &access.site);
            let edge = self.missing_edge(&earlier, access);
            let text = format!(
                "{second} {} {shared:#x?} without being ordered after {first}, which {} it; missing: {edge}",
                if kind == Kind::UseAfterFree {
                    "frees"
                } else {
                    verb(access.write)
                },
                verb(earlier.write),
            );
            self.reports.pair(kind, first, second, text);
        }
    }

    /// What would have ordered two accesses.
    fn missing_edge(&self, earlier: &Access, later: &Access) -> String {
        let call = earlier.site.call;
        let name = |actor: usize| {
            actor
                .checked_sub(FIRST_STREAM)
                .and_then(|id| self.streams.get(id))
                .map(|stream| &stream.name)
        };
        match (name(earlier.epoch.actor), name(later.epoch.actor)) {
            (Some(from), Some(to)) => {
                format!("{to} must wait for an event recorded on {from} after call #{call}")
            }
            (Some(from), None) => format!("the host must wait for {from} after call #{call}"),
            (None, _) if earlier.epoch.actor == PROGRAM => {
                format!("the call must come after call #{call} of the program")
            }
            (None, _) => format!("the reclaimer's call #{call} must be ordered by an event"),
        }
    }
}

impl Call<'_> {
    /// Reports something that the simulator does not do, and gives the error for it.
    pub(crate) fn not_modelled(&mut self, what: &str) -> CUresult {
        let site = self.host_site();
        self.reports.push(
            Kind::NotModelled,
            format_args!("{site}: {what} is not modelled"),
        );
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    }
}
