//! Streams of every kind.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUdevice, CUevent, CUresult, CUstream};

use crate::capture::CaptureId;
use crate::clock::{Actor, Clock, FIRST_STREAM};
use crate::driver::{self, Driver};
use crate::entry::{Call, Out, Outcome, entry};
use crate::queue::Operation;

/// A stream's place in the list of all streams.
pub(crate) type StreamId = usize;

const NON_BLOCKING: c_uint = 1;
/// The numbers of the default streams (`CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`).
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// How a stream is ordered with the legacy default stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// It is the legacy default stream.
    Legacy,
    /// A per-thread default stream, which is blocking.
    PerThread,
    /// Created without `CU_STREAM_NON_BLOCKING`.
    Blocking,
    NonBlocking,
}

impl StreamKind {
    /// Whether the legacy stream and this one wait for each other.
    pub(crate) fn blocking(self) -> bool {
        matches!(self, Self::PerThread | Self::Blocking)
    }
}

/// A stream: what it knows, and its work that hasn't run.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: CUcontext,
    pub(crate) device: usize,
    pub(crate) kind: StreamKind,
    /// How reports name it.
    pub(crate) name: Arc<str>,
    /// What has happened before its next operation.
    pub(crate) clock: Clock,
    pub(crate) queue: VecDeque<Operation>,
    /// The number of the last operation queued.
    pub(crate) queued: u64,
    /// The number of the last operation that has run.
    pub(crate) done: u64,
    /// Its first operation is a host function that runs now.
    pub(crate) busy: bool,
    pub(crate) capture: Option<CaptureId>,
    priority: c_int,
    alive: bool,
}

/// The actor that a stream is in clocks.
pub(crate) fn actor(stream: StreamId) -> Actor {
    FIRST_STREAM + stream
}

impl Driver {
    pub(crate) fn create_stream(
        &mut self,
        context: CUcontext,
        device: usize,
        kind: StreamKind,
    ) -> StreamId {
        let id = self.streams.len();
        let name = match kind {
            StreamKind::Legacy => format!("the legacy stream of device {device}"),
            StreamKind::PerThread => format!("the per-thread stream {id} of device {device}"),
            StreamKind::Blocking => format!("blocking stream {id} of device {device}"),
            StreamKind::NonBlocking => format!("stream {id} of device {device}"),
        };
        self.streams.push(Stream {
            context,
            device,
            kind,
            name: name.into(),
            clock: Clock::default(),
            queue: VecDeque::new(),
            queued: 0,
            done: 0,
            busy: false,
            capture: None,
            priority: 0,
            alive: true,
        });
        id
    }

    /// A stream by its id.
    #[expect(
        clippy::indexing_slicing,
        reason = "ids come from `create_stream` and streams are never taken out of the list"
    )]
    pub(crate) fn stream(&self, id: StreamId) -> &Stream {
        &self.streams[id]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids come from `create_stream` and streams are never taken out of the list"
    )]
    pub(crate) fn stream_mut(&mut self, id: StreamId) -> &mut Stream {
        &mut self.streams[id]
    }

    /// The living blocking streams of a context.
    pub(crate) fn blocking_streams(&self, context: CUcontext) -> Vec<StreamId> {
        let streams = self.streams.iter().enumerate();
        streams
            .filter(|(_, stream)| {
                stream.context == context && stream.kind.blocking() && stream.alive
            })
            .map(|(id, _)| id)
            .collect()
    }
}

impl Call<'_> {
    /// The stream behind a handle: 0 and 1 are the current context's legacy stream, 2 the calling thread's own.
    pub(crate) fn resolve(&mut self, handle: CUstream) -> Result<StreamId, CUresult> {
        match handle.addr() {
            0 | LEGACY => Ok(self.current()?.1.legacy),
            PER_THREAD => {
                let thread = driver::thread();
                let (handle, context) = self.current()?;
                if let Some(&stream) = context.per_thread.get(&thread) {
                    return Ok(stream);
                }
                let device = context.device;
                let stream = self.create_stream(handle, device, StreamKind::PerThread);
                self.contexts
                    .get_mut(handle)?
                    .per_thread
                    .insert(thread, stream);
                Ok(stream)
            }
            _ => match self.stream_handles.get(handle) {
                Ok(&stream) => self.stream_error(stream).map(|()| stream),
                Err(misuse) => Err(self.misused("stream", handle, misuse)),
            },
        }
    }

    fn create(&mut self, flags: c_uint, priority: c_int) -> Result<CUstream, CUresult> {
        let kind = match flags {
            0 => StreamKind::Blocking,
            NON_BLOCKING => StreamKind::NonBlocking,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let (context, device) = self
            .current()
            .map(|(handle, context)| (handle, context.device))?;
        let stream = self.create_stream(context, device, kind);
        self.stream_mut(stream).priority = priority.clamp(-5, 0);
        Ok(self.stream_handles.insert(stream))
    }
}

entry! {
    fn cuStreamCreate(phStream: Out<CUstream>, Flags: c_uint) |call| {
        let stream = call.create(Flags, 0)?;
        phStream.set(stream)
    }
    fn cuStreamCreateWithPriority(phStream: Out<CUstream>, flags: c_uint, priority: c_int) |call| {
        let stream = call.create(flags, priority)?;
        phStream.set(stream)
    }
    fn cuStreamDestroy_v2(hStream: CUstream) |call| {
        if hStream.addr() <= PER_THREAD {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let removed = call.stream_handles.remove(hStream);
        let stream = removed.map_err(|misuse| call.misused("stream", hStream, misuse))?;
        if let Some(capture) = call.stream(stream).capture {
            call.invalidate(capture);
        }
        // What is queued still runs.
        call.stream_mut(stream).alive = false;
        Ok(())
    }
    fn cuStreamSynchronize(hStream: CUstream) |call| {
        let stream = call.resolve(hStream)?;
        call.refuse_wait_on_stream(stream)?;
        call.finish(stream);
        call.trim_pools();
        call.stream_error(stream)
    }
    fn cuStreamQuery(hStream: CUstream) |call| {
        let stream = call.resolve(hStream)?;
        call.refuse_wait_on_stream(stream)?;
        let queued = call.stream(stream).queued;
        if call.poll(stream, queued) {
            let clock = call.stream(stream).clock.clone();
            call.host_learns(&clock);
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_NOT_READY)
        }
    }
    fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: c_uint) |call| {
        let stream = call.resolve(hStream)?;
        call.wait_event(stream, hEvent, Flags)
    }
    fn cuStreamGetCtx(hStream: CUstream, pctx: Out<CUcontext>) |call| {
        let stream = call.resolve(hStream)?;
        let context = call.stream(stream).context;
        pctx.set(context)
    }
    fn cuStreamGetDevice(hStream: CUstream, device: Out<CUdevice>) |call| {
        let stream = call.resolve(hStream)?;
        device.set(call.stream(stream).device as CUdevice)
    }
    fn cuStreamGetFlags(hStream: CUstream, flags: Out<c_uint>) |call| {
        let stream = call.resolve(hStream)?;
        flags.set(if call.stream(stream).kind == StreamKind::NonBlocking { NON_BLOCKING } else { 0 })
    }
    fn cuStreamGetPriority(hStream: CUstream, priority: Out<c_int>) |call| {
        let stream = call.resolve(hStream)?;
        priority.set(call.stream(stream).priority)
    }
    fn cuStreamGetId(hStream: CUstream, streamId: Out<c_ulonglong>) |call| {
        let stream = call.resolve(hStream)?;
        streamId.set(stream as c_ulonglong + 3)
    }
}

impl Call<'_> {
    /// Waits on the host for everything that is queued on a stream now, and learns what that stream knows.
    pub(crate) fn finish(&mut self, stream: StreamId) {
        let queued = self.stream(stream).queued;
        // Taken before the wait, which lets other threads queue more.
        let clock = self.stream(stream).clock.clone();
        self.advance(stream, queued);
        self.host_learns(&clock);
    }

    /// The sticky error of the context that a stream lives in.
    pub(crate) fn stream_error(&self, stream: StreamId) -> Outcome {
        let context = self.contexts.get(self.stream(stream).context);
        context
            .ok()
            .and_then(|context| context.error)
            .map_or(Ok(()), Err)
    }
}
