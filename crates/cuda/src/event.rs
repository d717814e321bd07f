//! Events that a user holds: of our own, and of other libraries.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
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

/// An event that is recorded when its user says so, and again. One of our own is destroyed when nothing names it any more, closed or not.
pub struct CudaEvent(Arc<Held>);

struct Held {
    calls: DriverCalls,
    device_id: u32,
    raw: RawEvent,
    state: AtomicU64,
    /// What keeps another library's event alive; `None` for one of our own.
    object: Option<Box<dyn Any + Send + Sync>>,
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
        Ok(Self::hold(device, raw, NOT_RECORDED, None))
    }

    /// Another library's event, of the primary context of device `device_id`, which `object` keeps alive. It counts as recorded: nobody can ask.
    ///
    /// # Safety
    /// `handle` is an event's, which lives as long as `object`.
    ///
    /// # Errors
    /// No such device.
    pub unsafe fn foreign(
        device_id: u32,
        handle: NonZeroUsize,
        object: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, DeviceError> {
        let device = Device::get(device_id)?;
        let raw = RawEvent {
            handle: handle.get(),
            context: device.context(),
        };
        Ok(Self::hold(device, raw, RECORDED, Some(object)))
    }

    fn hold(
        device: &'static Device,
        raw: RawEvent,
        state: u64,
        object: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Held {
            calls: DriverCalls {
                driver: device.driver(),
            },
            device_id: device.id(),
            raw,
            state: AtomicU64::new(state),
            object,
        }))
    }

    /// Which device it is of.
    #[must_use]
    pub fn device_id(&self) -> u32 {
        self.0.device_id
    }

    /// Whether it is of our own.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.0.object.is_none()
    }

    /// Records it after the work queued on `stream` by now.
    ///
    /// # Errors
    /// A closed event or stream, a stream of another device or context, a capture that it would break, or what the driver says.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        let held = &*self.0;
        if held.state() == EventState::Closed {
            return Err(DeviceError::Closed { object: "event" });
        }
        require_open(stream)?;
        if stream.context() != held.raw.context {
            return Err(DeviceError::OtherDevice {
                bytes: held.device_id,
                stream: stream.device_id(),
            });
        }
        // A fork leaves the driver behind.
        let driver = probe::driver()?;
        let call = |failed| driver.error(failed);
        let capture = Capture::of(driver, stream)
            .map_err(call)?
            .number("recording an event")?;
        held.calls.record(held.raw, stream).map_err(call)?;
        let recorded = capture.unwrap_or(RECORDED);
        let unless_closed = |state| (state != CLOSED).then_some(recorded);
        // Closed meanwhile, it stays so.
        let _: Result<u64, u64> =
            held.state
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_closed);
        Ok(())
    }

    /// Whether the work that it was recorded after is done. Never blocks, breaks no capture.
    ///
    /// # Errors
    /// An event that is closed or was never recorded, one that is part of a capture, or what the driver says.
    pub fn is_complete(&self) -> Result<bool, DeviceError> {
        let held = &*self.0;
        match held.state() {
            EventState::Recorded => {}
            EventState::NotRecorded => return Err(DeviceError::NotRecorded),
            EventState::Closed => return Err(DeviceError::Closed { object: "event" }),
            EventState::Captured(_) => {
                return Err(DeviceError::Capturing {
                    operation: "asking for an event",
                });
            }
        }
        let driver = probe::driver()?;
        held.calls
            .is_complete(held.raw)
            .map_err(|failed| driver.error(failed))
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

// SAFETY: the handle is destroyed when this value is dropped, not before; another library's lives as long as the object in it.
unsafe impl EventObject for Held {
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

impl Drop for Held {
    fn drop(&mut self) {
        if self.object.is_none() && probe::is_this_process() {
            self.calls.destroy(self.raw);
        }
    }
}
