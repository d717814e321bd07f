//! Stream capture: what a stream does becomes a graph, until something invalidates it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUcontext, CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus, cuuint64_t,
};

use crate::checker::Touch;
use crate::clock::Clock;
use crate::driver::{self, Driver};
use crate::entry::{Call, Out, Outcome, entry};
use crate::graph::{Graph, Node};
use crate::queue::Work;
use crate::report::{Kind, Site};
use crate::shadow::{Access, Shadow};
use crate::stream::{StreamId, StreamKind, actor};

/// A capture's number, never used again.
pub(crate) type CaptureId = u64;

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    mode: CUstreamCaptureMode,
    thread: u64,
    origin: StreamId,
    graph: CUgraph,
    invalid: bool,
    /// Order inside the capture: it is not the order of the calls' streams.
    clocks: BTreeMap<StreamId, Clock>,
    shadow: Shadow,
}

impl Driver {
    /// Makes a capture fail: its end gives an error and no graph.
    pub(crate) fn invalidate(&mut self, capture: CaptureId) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    fn invalidate_all(&mut self, captures: &[CaptureId]) {
        for &capture in captures {
            self.invalidate(capture);
        }
    }

    /// Captures that a use of the legacy stream would depend on.
    fn implicit(&self, stream: StreamId) -> Vec<CaptureId> {
        if self.stream(stream).kind != StreamKind::Legacy {
            return Vec::new();
        }
        let streams = self.blocking_streams(self.stream(stream).context);
        streams
            .into_iter()
            .filter_map(|stream| self.stream(stream).capture)
            .collect()
    }

    /// "Any attempted use of the legacy stream is invalid" while a blocking stream of the context captures.
    pub(crate) fn refuse_implicit(&mut self, stream: StreamId) -> Outcome {
        let captures = self.implicit(stream);
        if captures.is_empty() {
            return Ok(());
        }
        self.invalidate_all(&captures);
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// A stream that captures can't be asked or waited for.
    pub(crate) fn refuse_wait_on_stream(&mut self, stream: StreamId) -> Outcome {
        if let Some(capture) = self.stream(stream).capture {
            self.invalidate(capture);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_implicit(stream)?;
        self.refuse_unsafe_call()
    }

    /// Nor can a context with such a stream.
    pub(crate) fn refuse_wait_on_captures(&mut self, context: CUcontext) -> Outcome {
        let captures: Vec<_> = self
            .streams
            .iter()
            .filter(|stream| stream.context == context)
            .filter_map(|stream| stream.capture)
            .collect();
        if !captures.is_empty() {
            self.invalidate_all(&captures);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_unsafe_call()
    }

    /// Calls that are not enqueued to a stream and might be meant for the graph are prohibited as the thread's mode says.
    pub(crate) fn refuse_unsafe_call(&mut self) -> Outcome {
        use CUstreamCaptureMode as M;
        let thread = driver::thread();
        let mode = driver::capture_mode();
        let concerns = |capture: &Capture| match mode {
            M::CU_STREAM_CAPTURE_MODE_RELAXED => false,
            M::CU_STREAM_CAPTURE_MODE_GLOBAL if capture.thread != thread => {
                capture.mode == M::CU_STREAM_CAPTURE_MODE_GLOBAL
            }
            M::CU_STREAM_CAPTURE_MODE_GLOBAL | M::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => {
                capture.thread == thread && capture.mode != M::CU_STREAM_CAPTURE_MODE_RELAXED
            }
        };
        let captures: Vec<_> = self
            .captures
            .iter()
            .filter(|(_, capture)| concerns(capture))
            .map(|(&id, _)| id)
            .collect();
        if captures.is_empty() {
            return Ok(());
        }
        self.invalidate_all(&captures);
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }
}

impl Call<'_> {
    fn valid(&mut self, capture: CaptureId) -> Result<&mut Capture, CUresult> {
        let capture = self
            .captures
            .get_mut(&capture)
            .ok_or(CUresult::CUDA_ERROR_CAPTURED_EVENT)?;
        if capture.invalid {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        } else {
            Ok(capture)
        }
    }

    /// Adds an operation of a capturing stream to its graph.
    pub(crate) fn capture_node(
        &mut self,
        stream: StreamId,
        capture: CaptureId,
        site: Arc<Site>,
        touches: Vec<Touch>,
        work: Work,
    ) -> Outcome {
        let captured = self.valid(capture)?;
        let clock = captured.clocks.entry(stream).or_default();
        let epoch = clock.tick(actor(stream));
        let graph = captured.graph;
        let mut conflicts = Vec::new();
        for touch in &touches {
            let access = Access {
                epoch,
                write: touch.write,
                site: Arc::clone(&site),
            };
            conflicts.extend(captured.shadow.access(touch.range.clone(), &access, clock));
        }
        for (range, earlier) in conflicts {
            let text = format!(
                "in a capture, {site} touches {range:#x?} without being ordered after {}",
                earlier.site
            );
            self.reports.pair(Kind::Race, &earlier.site, &site, text);
        }
        self.graphs
            .get_mut(graph)?
            .nodes
            .push(Node { touches, work });
        Ok(())
    }

    /// Records an event inside a capture.
    pub(crate) fn capture_record(
        &mut self,
        stream: StreamId,
        capture: CaptureId,
    ) -> Result<Clock, CUresult> {
        let captured = self.valid(capture)?;
        Ok(captured.clocks.entry(stream).or_default().clone())
    }

    /// A stream waits for an event that was recorded inside a capture, and so takes part in it.
    pub(crate) fn capture_join(
        &mut self,
        stream: StreamId,
        capture: CaptureId,
        clock: &Clock,
    ) -> Outcome {
        self.valid(capture)?;
        if self.stream(stream).kind == StreamKind::Legacy {
            self.invalidate(capture);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        match self.stream(stream).capture {
            Some(other) if other != capture => {
                self.invalidate_all(&[capture, other]);
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            Some(_) => {}
            None => self.stream_mut(stream).capture = Some(capture),
        }
        self.valid(capture)?
            .clocks
            .entry(stream)
            .or_default()
            .join(clock);
        Ok(())
    }

    /// A capturing stream waits for an event from outside.
    pub(crate) fn capture_isolated(&mut self, capture: CaptureId) -> Outcome {
        self.valid(capture)?;
        self.invalidate(capture);
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
    }

    /// Ends a capture: every stream leaves it.
    fn leave(&mut self, capture: CaptureId) -> Option<Capture> {
        for stream in &mut self.streams {
            if stream.capture == Some(capture) {
                stream.capture = None;
            }
        }
        self.captures.remove(&capture)
    }

    fn end_capture(&mut self, stream: StreamId) -> Result<CUgraph, CUresult> {
        let Some(id) = self.stream(stream).capture else {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        };
        let Some(capture) = self.captures.get(&id) else {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        };
        if capture.origin != stream {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED
            && capture.thread != driver::thread()
        {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let Some(capture) = self.leave(id) else {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        };
        let joined = capture.clocks.get(&stream).is_none_or(|origin| {
            capture
                .clocks
                .iter()
                .all(|(&other, clock)| origin.covers(clock.epoch(actor(other))))
        });
        let error = match (capture.invalid, joined || capture.clocks.len() <= 1) {
            (true, _) => CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            (false, false) => CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            (false, true) => return Ok(capture.graph),
        };
        self.destroy_graph(capture.graph);
        Err(error)
    }

    /// A stream's capture: status, number, graph.
    fn capture_info(
        &mut self,
        stream: CUstream,
    ) -> Result<(CUstreamCaptureStatus, u64, CUgraph), CUresult> {
        let stream = self.resolve(stream)?;
        if !self.implicit(stream).is_empty() {
            // Asking is no use: the capture stays valid.
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        let capture = self
            .stream(stream)
            .capture
            .and_then(|id| self.captures.get(&id).map(|capture| (id, capture)));
        Ok(match capture {
            None => (
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
                0,
                std::ptr::null_mut(),
            ),
            Some((id, capture)) if capture.invalid => (
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
                id,
                std::ptr::null_mut(),
            ),
            Some((id, capture)) => (
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
                id,
                capture.graph,
            ),
        })
    }
}

entry! {
    fn cuStreamBeginCapture_v2(hStream: CUstream, mode: CUstreamCaptureMode) |call| {
        let stream = call.resolve(hStream)?;
        if call.stream(stream).kind == StreamKind::Legacy {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if call.stream(stream).capture.is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        let id = call.fresh_id();
        let graph = call.graphs.insert(Graph::default());
        let clocks = BTreeMap::from([(stream, Clock::default())]);
        let capture = Capture { mode, thread: driver::thread(), origin: stream, graph, invalid: false, clocks, shadow: Shadow::default() };
        call.captures.insert(id, capture);
        call.stream_mut(stream).capture = Some(id);
        Ok(())
    }
    fn cuStreamEndCapture(hStream: CUstream, phGraph: Out<CUgraph>) |call| {
        let stream = call.resolve(hStream)?;
        let ended = call.end_capture(stream);
        phGraph.offer(ended.unwrap_or(std::ptr::null_mut()));
        ended.map(drop)
    }
    fn cuStreamIsCapturing(hStream: CUstream, captureStatus: Out<CUstreamCaptureStatus>) |call| {
        let (status, _, _) = call.capture_info(hStream)?;
        captureStatus.set(status)
    }
    fn cuStreamGetCaptureInfo_v3(hStream: CUstream, captureStatus_out: Out<CUstreamCaptureStatus>, id_out: Out<cuuint64_t>, graph_out: Out<CUgraph>, dependencies_out: Out<*const CUgraphNode>, edgeData_out: Out<*const CUgraphEdgeData>, numDependencies_out: Out<usize>) |call| {
        let (status, id, graph) = call.capture_info(hStream)?;
        id_out.offer(id);
        graph_out.offer(graph);
        dependencies_out.offer(std::ptr::null());
        edgeData_out.offer(std::ptr::null());
        numDependencies_out.offer(0);
        captureStatus_out.set(status)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode>) |_call| {
        let new = mode.get()?;
        mode.set(driver::exchange_capture_mode(new))
    }
}
