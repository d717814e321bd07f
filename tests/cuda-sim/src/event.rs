//! Events: each record is a generation of its own, and a wait is for the generation of its moment.

use std::ffi::c_uint;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUevent, CUresult, CUstream};

use crate::capture::CaptureId;
use crate::clock::Clock;
use crate::entry::{Call, Out, Outcome, entry};
use crate::queue::Work;
use crate::stream::StreamId;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: c_uint = 1;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: CUcontext,
    device: usize,
    flags: c_uint,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Never recorded: a wait on it is no wait.
    Unrecorded,
    Recorded(Generation),
    /// Last recorded on a stream that was capturing.
    Captured {
        capture: CaptureId,
        clock: Clock,
    },
}

/// One record of an event.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    pub(crate) stream: StreamId,
    /// The operation after which it is complete.
    pub(crate) operation: u64,
    /// What has happened before it.
    pub(crate) clock: Arc<Clock>,
}

impl Call<'_> {
    fn event(&mut self, handle: CUevent) -> Result<&mut Event, CUresult> {
        if let Err(misuse) = self.events.get(handle) {
            return Err(self.misused("event", handle, misuse));
        }
        self.events.get_mut(handle).map_err(CUresult::from)
    }

    fn record(&mut self, handle: CUevent, stream: CUstream, flags: c_uint) -> Outcome {
        let stream = self.resolve(stream)?;
        let device = self.stream(stream).device;
        let event = self.event(handle)?;
        // "The event and the stream must be from the same CUDA context."
        if event.device != device {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let function = self.function;
        if self.config.injections.swallowed(function) {
            return Ok(());
        }
        let state = match self.stream(stream).capture {
            Some(capture) => {
                if flags == EXTERNAL {
                    return Err(self.not_modelled("an external event record in a capture"));
                }
                State::Captured {
                    capture,
                    clock: self.capture_record(stream, capture)?,
                }
            }
            None => {
                let operation = self.enqueue(stream, Vec::new(), Work::Nothing)?;
                State::Recorded(Generation {
                    stream,
                    operation,
                    clock: Arc::new(self.stream(stream).clock.clone()),
                })
            }
        };
        self.event(handle)?.state = state;
        Ok(())
    }

    /// Makes a stream wait for an event's last record.
    pub(crate) fn wait_event(
        &mut self,
        stream: StreamId,
        handle: CUevent,
        flags: c_uint,
    ) -> Outcome {
        let state = self.event(handle)?.state.clone();
        let function = self.function;
        if self.config.injections.swallowed(function) {
            return Ok(());
        }
        match (state, self.stream(stream).capture) {
            (State::Captured { capture, clock }, _) => self.capture_join(stream, capture, &clock),
            (_, Some(_)) if flags == EXTERNAL => {
                Err(self.not_modelled("an external event wait in a capture"))
            }
            (_, Some(capture)) => self.capture_isolated(capture),
            (State::Unrecorded, None) => Ok(()),
            (State::Recorded(generation), None) => self.enqueue_wait(stream, &generation),
        }
    }

    /// The generation to ask or wait for, `None` if there is nothing to wait for.
    fn generation(&mut self, handle: CUevent) -> Result<Option<Generation>, CUresult> {
        match self.event(handle)?.state.clone() {
            State::Unrecorded => self.refuse_unsafe_call().map(|()| None),
            State::Captured { capture, .. } => {
                self.invalidate(capture);
                Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
            }
            State::Recorded(generation) => {
                self.refuse_unsafe_call()?;
                self.stream_error(generation.stream)?;
                Ok(Some(generation))
            }
        }
    }
}

entry! {
    fn cuEventCreate(phEvent: Out<CUevent>, Flags: c_uint) |call| {
        if Flags > 7 || (Flags & INTERPROCESS != 0 && Flags & DISABLE_TIMING == 0) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (context, device) = call.current().map(|(handle, context)| (handle, context.device))?;
        let event = Event { context, device, flags: Flags, state: State::Unrecorded };
        let handle = call.events.insert(event);
        phEvent.set(handle)
    }
    fn cuEventDestroy_v2(hEvent: CUevent) |call| {
        // Waits that are queued stay queued: they are for the record, not for the handle.
        match call.events.remove(hEvent) {
            Ok(_) => Ok(()),
            Err(misuse) => Err(call.misused("event", hEvent, misuse)),
        }
    }
    fn cuEventRecord(hEvent: CUevent, hStream: CUstream) |call| {
        call.record(hEvent, hStream, 0)
    }
    fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: c_uint) |call| {
        call.record(hEvent, hStream, flags)
    }
    fn cuEventQuery(hEvent: CUevent) |call| {
        let Some(generation) = call.generation(hEvent)? else { return Ok(()) };
        if call.poll(generation.stream, generation.operation) {
            call.host_learns(&generation.clock);
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_NOT_READY)
        }
    }
    fn cuEventSynchronize(hEvent: CUevent) |call| {
        let Some(generation) = call.generation(hEvent)? else { return Ok(()) };
        call.advance(generation.stream, generation.operation);
        call.host_learns(&generation.clock);
        call.trim_pools();
        call.stream_error(generation.stream)
    }
    fn cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: CUevent, hEnd: CUevent) |call| {
        if call.event(hStart)?.flags & DISABLE_TIMING != 0 || call.event(hEnd)?.flags & DISABLE_TIMING != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        for event in [hStart, hEnd] {
            let Some(generation) = call.generation(event)? else { return Err(CUresult::CUDA_ERROR_INVALID_HANDLE) };
            if call.stream(generation.stream).done < generation.operation {
                return Err(CUresult::CUDA_ERROR_NOT_READY);
            }
        }
        // No clock runs on the device.
        pMilliseconds.set(0.0)
    }
}
