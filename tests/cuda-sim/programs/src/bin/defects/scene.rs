//! What most of these programs use.

use hurray_cuda_programs::cuda::{self, CUevent, CUstream, NON_BLOCKING, Result};
use hurray_cuda_programs::device::{Device, LEN};

/// Two streams, two events and two buffers.
pub(crate) struct Scene {
    pub(crate) device: Device,
    pub(crate) first: CUstream,
    pub(crate) second: CUstream,
    pub(crate) event: CUevent,
    pub(crate) other: CUevent,
    pub(crate) a: u64,
    pub(crate) b: u64,
}

impl Scene {
    pub(crate) fn open() -> Result<Self> {
        let device = Device::open(0)?;
        let (first, second) = (cuda::stream(NON_BLOCKING)?, cuda::stream(NON_BLOCKING)?);
        let (event, other) = (cuda::event()?, cuda::event()?);
        Ok(Self {
            device,
            first,
            second,
            event,
            other,
            a: cuda::alloc(LEN)?,
            b: cuda::alloc(LEN)?,
        })
    }

    /// Waits for everything and lets go of it.
    pub(crate) fn close(self) -> Result {
        cuda::synchronize()?;
        cuda::free(self.a)?;
        cuda::free(self.b)?;
        self.leave()
    }

    /// Lets go of all but the buffers.
    pub(crate) fn leave(self) -> Result {
        cuda::destroy_event(self.event)?;
        cuda::destroy_event(self.other)?;
        cuda::destroy_stream(self.first)?;
        cuda::destroy_stream(self.second)?;
        self.device.close()
    }

    /// Makes `to` wait for everything on `from`.
    pub(crate) fn order(&self, from: CUstream, to: CUstream) -> Result {
        cuda::record(self.event, from)?;
        cuda::wait(to, self.event)
    }
}
