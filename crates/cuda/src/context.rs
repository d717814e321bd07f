//! The calling thread's current context and capture mode, changed for a few calls and put back.

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUstreamCaptureMode};

use crate::driver::{CallError, Driver};

/// Makes a context current until it is dropped, when the one before is current again.
#[must_use = "the context is current only while this lives"]
pub(crate) struct Current<'d> {
    driver: &'d Driver,
    is_pushed: bool,
}

impl<'d> Current<'d> {
    pub(crate) fn enter(driver: &'d Driver, context: usize) -> Result<Self, CallError> {
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: the out pointer is valid.
        unsafe { driver.cuCtxGetCurrent(&raw mut current) }?;
        let is_pushed = current.addr() != context;
        if is_pushed {
            // SAFETY: contexts of streams and devices live for good (`Stream::from_parts`).
            unsafe { driver.cuCtxPushCurrent_v2(context as CUcontext) }?;
        }
        Ok(Self { driver, is_pushed })
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.is_pushed {
            let mut popped: CUcontext = ptr::null_mut();
            // SAFETY: the out pointer is valid, and `enter` pushed a context.
            // A driver that fails here has ended; there is nobody to tell.
            let _: Result<(), CallError> =
                unsafe { self.driver.cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}

/// Lets the calling thread make calls that are not stream-ordered without breaking anybody's capture, until it is dropped.
#[must_use = "captures are safe only while this lives"]
pub(crate) struct Relaxed<'d> {
    driver: &'d Driver,
    before: CUstreamCaptureMode,
}

impl<'d> Relaxed<'d> {
    pub(crate) fn enter(driver: &'d Driver) -> Result<Self, CallError> {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is valid for reading and writing.
        unsafe { driver.cuThreadExchangeStreamCaptureMode(&raw mut mode) }?;
        Ok(Self {
            driver,
            before: mode,
        })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let mut mode = self.before;
        // SAFETY: the pointer is valid for reading and writing.
        // A driver that fails here has ended; there is nobody to tell.
        let _: Result<(), CallError> =
            unsafe { self.driver.cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    }
}
