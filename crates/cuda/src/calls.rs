//! The driver's own event calls.

use std::ptr;

use cudarc::driver::sys::CUevent;
use hurray_core::Stream;

use crate::capture::Capture;
use crate::context::{Current, Relaxed};
use crate::driver::{CallError, Code, Driver};
use crate::event_pool::{EventCalls, RawEvent};
use crate::stream::handle;

/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`.
const EVENT_FLAGS: u32 = 1 | 2;

/// The driver. An event's handle is live from `create` to `destroy`.
pub(crate) struct DriverCalls {
    pub(crate) driver: &'static Driver,
}

impl EventCalls for DriverCalls {
    fn create(&self, context: usize) -> Result<RawEvent, CallError> {
        let _current = Current::enter(self.driver, context)?;
        let _relaxed = Relaxed::enter(self.driver)?;
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: the out pointer is valid.
        unsafe { self.driver.cuEventCreate(&raw mut event, EVENT_FLAGS) }?;
        Ok(RawEvent {
            handle: event.addr(),
            context,
        })
    }

    fn destroy(&self, event: RawEvent) {
        // SAFETY: the pool destroys events that nobody holds. Failing, there is nobody to tell.
        let _: Result<(), CallError> =
            unsafe { self.driver.cuEventDestroy_v2(event.handle as CUevent) };
    }

    fn record(&self, event: RawEvent, stream: &Stream) -> Result<(), CallError> {
        let _current = Current::enter(self.driver, event.context)?;
        // SAFETY: both are live and of one context.
        unsafe {
            self.driver
                .cuEventRecord(event.handle as CUevent, handle(stream))
        }
    }

    fn is_complete(&self, event: RawEvent) -> Result<bool, CallError> {
        let _current = Current::enter(self.driver, event.context)?;
        let _relaxed = Relaxed::enter(self.driver)?;
        // SAFETY: the event is live.
        match unsafe { self.driver.cuEventQuery(event.handle as CUevent) } {
            Ok(()) => Ok(true),
            Err(failed) if failed.code == Code::NOT_READY => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    fn wait(&self, event: RawEvent) -> Result<(), CallError> {
        synchronize(self.driver, event.context, event.handle)
    }

    fn is_capturing(&self, stream: &Stream) -> Result<bool, CallError> {
        Capture::of(self.driver, stream).map(|capture| capture != Capture::None)
    }

    fn wait_for_stream(&self, stream: &Stream) -> Result<(), CallError> {
        let _current = Current::enter(self.driver, stream.context())?;
        let _relaxed = Relaxed::enter(self.driver)?;
        // SAFETY: the stream is live (`Stream::from_parts`).
        unsafe { self.driver.cuStreamSynchronize(handle(stream)) }
    }
}

/// Sleeps until an event is complete, breaking no capture. `context` is any live one: an event of another may be waited for.
pub(crate) fn synchronize(driver: &Driver, context: usize, event: usize) -> Result<(), CallError> {
    let _current = Current::enter(driver, context)?;
    let _relaxed = Relaxed::enter(driver)?;
    // SAFETY: the event is live (`EventObject`).
    unsafe { driver.cuEventSynchronize(event as CUevent) }
}
