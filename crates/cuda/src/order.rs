//! Bringing bytes onto a stream.

use std::sync::Arc;

use cudarc::driver::sys::CUevent;
use hurray_core::{Dependency, DeviceError, Event, EventObject, EventState, Stream};
use smallvec::SmallVec;

use crate::capture::Capture;
use crate::context::{Current, Relaxed};
use crate::device::Device;
use crate::driver::{CallError, Code, Driver};
use crate::event_pool::EventCalls;
use crate::release::{self, DriverEvent};
use crate::stream::{handle, require_open};
use crate::{calls, probe};

/// What a tensor's buffers depend on, each once.
#[derive(Default)]
struct Distinct<'d> {
    events: SmallVec<[&'d Event; 4]>,
    streams: SmallVec<[&'d Stream; 4]>,
}

impl<'d> Distinct<'d> {
    /// Of `dependencies`, those that work on `stream` does not follow anyway.
    ///
    /// # Errors
    /// One that cannot be waited for.
    fn of(dependencies: &[&'d Dependency], stream: Option<&Stream>) -> Result<Self, DeviceError> {
        let mut distinct = Self::default();
        for dependency in dependencies {
            match dependency {
                Dependency::Event(event) => {
                    match event.state() {
                        EventState::Recorded | EventState::Captured(_) => {}
                        EventState::NotRecorded => return Err(DeviceError::NotRecorded),
                        EventState::Closed => return Err(DeviceError::Closed { object: "event" }),
                    }
                    if distinct
                        .events
                        .iter()
                        .all(|known| known.handle() != event.handle())
                    {
                        distinct.events.push(event);
                    }
                }
                Dependency::Stream(source) => {
                    require_open(source)?;
                    if stream != Some(source) && !distinct.streams.contains(&source) {
                        distinct.streams.push(source);
                    }
                }
            }
        }
        Ok(distinct)
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.streams.is_empty()
    }
}

/// As [`hurray_core::DeviceLayer::order`].
pub(crate) fn order(
    dependencies: &[&Dependency],
    stream: &Stream,
) -> Result<Option<Dependency>, DeviceError> {
    const OPERATION: &str = "waiting for bytes";
    if dependencies.is_empty() {
        return Ok(None);
    }
    require_open(stream)?;
    let mut distinct = Distinct::of(dependencies, Some(stream))?;
    if !distinct.is_empty() {
        let driver = probe::driver()?;
        let call = |failed| driver.error(failed);
        let _current = Current::enter(driver, stream.context()).map_err(call)?;
        // Everything is asked before anything is done.
        let capture = Capture::of(driver, stream)
            .map_err(call)?
            .number(OPERATION)?;
        for source in &distinct.streams {
            let other = Capture::of(driver, source)
                .map_err(call)?
                .number(OPERATION)?;
            if other != capture {
                return Err(DeviceError::Capturing {
                    operation: OPERATION,
                });
            }
        }
        let mut outside = SmallVec::<[&Event; 4]>::new();
        for event in distinct.events {
            match (event.state(), capture) {
                (EventState::Captured(number), _) if Some(number) == capture => outside.push(event),
                (EventState::Captured(_), _) => {
                    return Err(DeviceError::Capturing {
                        operation: OPERATION,
                    });
                }
                (_, None) => outside.push(event),
                (_, Some(_)) => {
                    if !is_complete(driver, stream, event).map_err(call)? {
                        return Err(DeviceError::Capturing {
                            operation: OPERATION,
                        });
                    }
                }
            }
        }
        distinct.events = outside;
        let events = release::events()?;
        for source in &distinct.streams {
            let event = events.record(source, capture).map_err(call)?;
            wait_for(driver, stream, event.raw().handle).map_err(call)?;
        }
        for event in &distinct.events {
            wait_for(driver, stream, event.handle()).map_err(call)?;
        }
    }
    after(stream).map(Some)
}

/// What bytes depend on that are written by the work queued on `stream`: the stream, or, where that is another one to everybody else, an event.
pub(crate) fn after(stream: &Stream) -> Result<Dependency, DeviceError> {
    if stream.is_per_thread() {
        record(stream).map(Dependency::Event)
    } else {
        Ok(Dependency::Stream(stream.clone()))
    }
}

/// As [`hurray_core::DeviceLayer::record`].
pub(crate) fn record(stream: &Stream) -> Result<Event, DeviceError> {
    require_open(stream)?;
    let driver = probe::driver()?;
    let call = |failed| driver.error(failed);
    let capture = Capture::of(driver, stream)
        .map_err(call)?
        .number("recording an event")?;
    let event = release::events()?.record(stream, capture).map_err(call)?;
    Ok(Event::new(Arc::new(event)))
}

/// As [`hurray_core::DeviceLayer::wait`].
pub(crate) fn wait(dependencies: &[&Dependency]) -> Result<(), DeviceError> {
    const CAPTURING: DeviceError = DeviceError::Capturing {
        operation: "waiting on the host",
    };
    let distinct = Distinct::of(dependencies, None)?;
    if distinct.is_empty() {
        return Ok(());
    }
    let driver = probe::driver()?;
    let call = |failed| driver.error(failed);
    for source in &distinct.streams {
        if Capture::of(driver, source).map_err(call)? != Capture::None {
            return Err(CAPTURING);
        }
    }
    if distinct
        .events
        .iter()
        .any(|event| matches!(event.state(), EventState::Captured(_)))
    {
        return Err(CAPTURING);
    }
    let events = release::events()?;
    // All are recorded before the first is waited for, so that nothing queued meanwhile is.
    let mut recorded = SmallVec::<[DriverEvent; 4]>::new();
    for source in &distinct.streams {
        recorded.push(events.record(source, None).map_err(call)?);
    }
    for event in &recorded {
        events.calls.wait(event.raw()).map_err(call)?;
    }
    if distinct.events.is_empty() {
        return Ok(());
    }
    // Any context will do, and none is opened for it where one is in use.
    let device = match Device::all().next() {
        Some(device) => device,
        None => Device::get(0)?,
    };
    for event in &distinct.events {
        calls::synchronize(driver, device.context(), event.handle()).map_err(call)?;
    }
    Ok(())
}

/// Makes later work on `stream` wait for events of our own, which were recorded outside captures.
pub(crate) fn after_events(
    driver: &Driver,
    events: &[Arc<DriverEvent>],
    stream: &Stream,
) -> Result<(), DeviceError> {
    let call = |failed| driver.error(failed);
    if events.is_empty() {
        return Ok(());
    }
    let capture = Capture::of(driver, stream).map_err(call)?;
    for event in events {
        if capture != Capture::None {
            // An event from outside can't become part of the graph.
            if !is_complete(driver, stream, &Event::new(Arc::clone(event) as _)).map_err(call)? {
                return Err(DeviceError::Capturing {
                    operation: "waiting for readers",
                });
            }
            continue;
        }
        wait_for(driver, stream, event.raw().handle).map_err(call)?;
    }
    Ok(())
}

/// One wait of a stream for an event.
pub(crate) fn wait_for(driver: &Driver, stream: &Stream, event: usize) -> Result<(), CallError> {
    let _current = Current::enter(driver, stream.context())?;
    // SAFETY: the stream is live (`Stream::from_parts`), the event is (`EventObject`).
    unsafe { driver.cuStreamWaitEvent(handle(stream), event as CUevent, 0) }
}

/// Whether the event is complete; asked in `stream`'s context, breaking no capture.
fn is_complete(driver: &Driver, stream: &Stream, event: &Event) -> Result<bool, CallError> {
    let _current = Current::enter(driver, stream.context())?;
    let _relaxed = Relaxed::enter(driver)?;
    // SAFETY: the event is live (`EventObject`).
    match unsafe { driver.cuEventQuery(event.handle() as CUevent) } {
        Ok(()) => Ok(true),
        Err(failed) if failed.code == Code::NOT_READY => Ok(false),
        Err(failed) => Err(failed),
    }
}

// SAFETY: the handle is the pool's, and goes back to it only when this value is dropped.
unsafe impl EventObject for DriverEvent {
    fn handle(&self) -> usize {
        self.raw().handle
    }

    fn state(&self) -> EventState {
        match self.capture() {
            None => EventState::Recorded,
            Some(number) => EventState::Captured(number),
        }
    }
}
