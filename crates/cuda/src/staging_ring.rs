//! A ring of page-locked chunks in the hands of one thread.

use std::mem::ManuallyDrop;
use std::{ptr, slice};

use hurray_core::{DeviceError, StagingRing, Stream};

use crate::device::Device;
use crate::driver::CallError;
use crate::event_pool::EventCalls;
use crate::pinned_ring::{CHUNK, CHUNKS, PinnedRing};
use crate::release;
use crate::stream::{CudaStream, require_open};

/// One thread's ring. It goes back when this is dropped.
pub(crate) struct LentRing {
    device: &'static Device,
    ring: ManuallyDrop<PinnedRing>,
    /// Whether there may be work on the current chunk that no event covers.
    is_open: bool,
}

impl LentRing {
    pub(crate) fn take(device: &'static Device) -> Result<Self, CallError> {
        Ok(Self {
            device,
            ring: ManuallyDrop::new(device.rings.take(device)?),
            is_open: false,
        })
    }

    pub(crate) fn device(&self) -> &'static Device {
        self.device
    }

    /// Which chunk is the current one.
    pub(crate) fn index(&self) -> usize {
        self.ring.next
    }

    /// Where the current chunk is.
    pub(crate) fn address(&self) -> usize {
        self.ring.chunk(self.ring.next)
    }

    /// Makes the current chunk free for use: blocks until the last copies from or to it are done.
    pub(crate) fn open(&mut self) -> Result<(), CallError> {
        let next = self.ring.next;
        if let Some(last) = self.ring.last.get_mut(next) {
            if let Some(event) = last {
                release::events()
                    .map_err(|_| CallError::GONE)?
                    .calls
                    .wait(event.raw())?;
            }
            *last = None;
        }
        self.is_open = true;
        Ok(())
    }

    /// Notes how far `stream` must come before the current chunk is free, and leaves it.
    pub(crate) fn seal(&mut self, stream: &Stream) -> Result<(), CallError> {
        let events = release::events().map_err(|_| CallError::GONE)?;
        let event = events.record(stream, None)?;
        let next = self.ring.next;
        if let Some(last) = self.ring.last.get_mut(next) {
            *last = Some(event);
        }
        self.pass();
        Ok(())
    }

    /// Leaves the current chunk, on which there is no work that no event covers.
    pub(crate) fn pass(&mut self) {
        self.ring.next = (self.ring.next + 1) % CHUNKS;
        self.is_open = false;
    }
}

impl Drop for LentRing {
    fn drop(&mut self) {
        // SAFETY: taken here only, and not used again.
        let ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        if !self.is_open {
            self.device.rings.put(ring);
        } else if let Some(reclaimer) = release::reclaimer() {
            reclaimer.keep(ring);
        }
    }
}

/// A ring and its stream, as the transport uses them.
pub(crate) struct Staging {
    ring: LentRing,
    stream: Stream,
}

impl Staging {
    pub(crate) fn take(device_id: u32) -> Result<Self, DeviceError> {
        let device = Device::get(device_id)?;
        let mut ring = LentRing::take(device).map_err(|failed| device.driver().error(failed))?;
        let stream = match &ring.ring.stream {
            Some(stream) => stream.stream().clone(),
            None => {
                let stream = ring.ring.stream.insert(CudaStream::new(device_id)?);
                stream.stream().clone()
            }
        };
        Ok(Self { ring, stream })
    }
}

impl StagingRing for Staging {
    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn chunk_len(&self) -> usize {
        CHUNK
    }

    fn chunks(&self) -> usize {
        CHUNKS
    }

    fn chunk(&mut self) -> Result<&mut [u8], DeviceError> {
        let driver = self.ring.device.driver();
        self.ring.open().map_err(|failed| driver.error(failed))?;
        let address = ptr::with_exposed_provenance_mut(self.ring.address());
        // SAFETY: the chunk is of that length, live as long as the ring, and nobody else's: copies from or to it were waited for just now, and
        // whoever queues one by its address says so in `advance`, after which this borrow has ended.
        Ok(unsafe { slice::from_raw_parts_mut(address, CHUNK) })
    }

    fn advance(&mut self, copying: Option<&Stream>) -> Result<(), DeviceError> {
        match copying {
            Some(stream) => {
                require_open(stream)?;
                let driver = self.ring.device.driver();
                self.ring
                    .seal(stream)
                    .map_err(|failed| driver.error(failed))
            }
            None => {
                self.ring.pass();
                Ok(())
            }
        }
    }
}
