//! Page-locked chunks through which pageable memory is copied.

use crate::calls::DriverCalls;
use crate::device::Device;
use crate::driver::CallError;
use crate::event_pool::EventCalls;
use crate::memory::{self, DriverBlock};
use crate::release::{self, DriverEvent};
use crate::stream::CudaStream;
use crate::sync::Mutex;

/// Bytes of a chunk: large enough that the calls for it cost little, small enough that the first one is soon under way.
pub(crate) const CHUNK: usize = 4 << 20;
/// Chunks of a ring: while one is filled or emptied by the host, the others are under way.
pub(crate) const CHUNKS: usize = 4;

/// One copying thread's chunks.
pub(crate) struct PinnedRing {
    address: usize,
    /// The last copy from or to each chunk.
    pub(crate) last: [Option<DriverEvent>; CHUNKS],
    /// The chunk to use next.
    pub(crate) next: usize,
    /// A stream for whoever copies through the ring, once one was asked for.
    pub(crate) stream: Option<CudaStream>,
    _memory: DriverBlock,
}

impl PinnedRing {
    /// The address of a chunk.
    pub(crate) fn chunk(&self, index: usize) -> usize {
        self.address + index * CHUNK
    }
}

/// Rings that no thread uses at the moment; their last copies may still be under way.
pub(crate) struct PinnedRings(Mutex<Vec<PinnedRing>>);

impl PinnedRings {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// A ring for the calling thread, new only if all are in use.
    pub(crate) fn take(&self, device: &'static Device) -> Result<PinnedRing, CallError> {
        if let Some(ring) = self.0.lock().pop() {
            return Ok(ring);
        }
        let address = memory::pinned(device, CHUNKS * CHUNK)?;
        Ok(PinnedRing {
            address,
            last: [const { None }; CHUNKS],
            next: 0,
            stream: None,
            _memory: DriverBlock::pinned(device, address),
        })
    }

    /// Gives a ring back whose events cover everything that was queued.
    pub(crate) fn put(&self, ring: PinnedRing) {
        self.0.lock().push(ring);
    }

    /// Frees the rings that no thread uses, once their copies are done.
    pub(crate) fn clear(&self, calls: &DriverCalls) {
        let rings = std::mem::take(&mut *self.0.lock());
        for ring in rings {
            let mut last = ring.last.iter().flatten();
            let is_done = last.all(|event| calls.wait(event.raw()).is_ok());
            if let (false, Some(reclaimer)) = (is_done, release::reclaimer()) {
                reclaimer.keep(ring);
            }
        }
    }
}
