//! Events of our own that a user holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hurray_core::{DeviceError, Event, EventObject, EventState, Stream};

use crate::calls::DriverCalls;
use crate::capture::Capture;
use crate::device::Device;
use crate::event_pool::{EventCalls, RawEvent};
use crate::probe;
use crate::stream::require_open;

// What a state is, besides the number of a capture, which the driver counts from 1.
const NOT_RECORDED: u64 = u64::MAX;
const RECORDED: u64 = u64::MAX - 1;
const CLOSED: u64 = u64::MAX - 2;

/// An event that is recorded when its user says so, and again. Destroyed when nothing names it any more, closed or not.
pub struct CudaEvent(Arc<Owned>);

struct Owned {
    calls: DriverCalls,
    device_id: u32,
    raw: RawEvent,
    state: AtomicU64,
}

impl CudaEvent {
    /// A new event of device `device_id`, not recorded.
    ///
    /// # Errors
    /// No such device, or what the driver says.
    pub fn new(device_id: u32) -> Result<Self, DeviceError> {
        let device = Device::get(device_id)?;
        let driver = device.driver();
        let calls = DriverCalls { driver };
        let raw = calls
            .create(device.context())
            .map_err(|failed| driver.error(failed))?;
        Ok(Self(Arc::new(Owned {
            calls,
            device_id,
            raw,
            state: AtomicU64::new(NOT_RECORDED),
        })))
    }

    /// Records it after the work queued on `stream` by now.
    ///
    /// # Errors
    /// A closed event or stream, a stream of another device or context, a capture that it would break, or what the driver says.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        let owned = &*self.0;
        if owned.state() == EventState::Closed {
            return Err(DeviceError::Closed { object: "event" });
        }
        require_open(stream)?;
        if stream.context() != owned.raw.context {
            return Err(DeviceError::OtherDevice {
                bytes: owned.device_id,
                stream: stream.device_id(),
            });
        }
        let driver = owned.calls.driver;
        let call = |failed| driver.error(failed);
        let capture = Capture::of(driver, stream)
            .map_err(call)?
            .number("recording an event")?;
        owned.calls.record(owned.raw, stream).map_err(call)?;
        owned
            .state
            .store(capture.unwrap_or(RECORDED), Ordering::Release);
        Ok(())
    }

    /// The event, to be waited for.
    #[must_use]
    pub fn event(&self) -> Event {
        Event::new(Arc::clone(&self.0) as _)
    }

    /// Nothing waits for it any more: naming it is an error from now on. Waits that are queued stay queued.
    pub fn close(&self) {
        self.0.state.store(CLOSED, Ordering::Release);
    }
}

impl fmt::Debug for CudaEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.event().fmt(f)
    }
}

// SAFETY: the handle is destroyed when this value is dropped, not before.
unsafe impl EventObject for Owned {
    fn handle(&self) -> usize {
        self.raw.handle
    }

    fn state(&self) -> EventState {
        match self.state.load(Ordering::Acquire) {
            NOT_RECORDED => EventState::NotRecorded,
            RECORDED => EventState::Recorded,
            CLOSED => EventState::Closed,
            number => EventState::Captured(number),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if probe::is_this_process() {
            self.calls.destroy(self.raw);
        }
    }
}
