//! What most programs begin with: a device with its context current, and a few things on it.

use std::ffi::c_int;
use std::ptr;

use crate::cuda::{self, CUcontext, CUfunction, CUmodule, Result};

/// Bytes of a program's buffers.
pub const LEN: usize = 4096;

/// A device whose primary context is current, and the test kernels.
#[derive(Debug)]
pub struct Device {
    /// The primary context.
    pub context: CUcontext,
    ordinal: c_int,
    module: CUmodule,
    /// `hurray_sim_add`.
    pub add: CUfunction,
    /// `hurray_sim_delay`.
    pub delay: CUfunction,
}

impl Device {
    /// Makes a device's primary context current.
    ///
    /// # Errors
    /// What the driver says.
    pub fn open(ordinal: c_int) -> Result<Self> {
        cuda::init()?;
        let context = cuda::retain_primary(ordinal)?;
        cuda::set_current(context)?;
        let module = cuda::load_kernels()?;
        Ok(Self {
            context,
            ordinal,
            module,
            add: cuda::function(module, c"hurray_sim_add")?,
            delay: cuda::function(module, c"hurray_sim_delay")?,
        })
    }

    /// Lets go of the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn close(self) -> Result {
        cuda::set_current(self.context)?;
        cuda::unload(self.module)?;
        cuda::set_current(ptr::null_mut())?;
        cuda::release_primary(self.ordinal)
    }

    /// Keeps a stream busy for some milliseconds, so that what should wait would be early if it didn't.
    ///
    /// # Errors
    /// What the driver says.
    pub fn busy(&self, stream: cuda::CUstream) -> Result {
        cuda::delay(self.delay, 10_000_000, stream)
    }
}
