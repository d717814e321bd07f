//! Events that are recorded, waited for and used again.

use std::collections::VecDeque;
use std::sync::Arc;

use hurray_core::Stream;

use crate::driver::CallError;
use crate::probe;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// An event of the driver's: its handle and its context's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    pub(crate) handle: usize,
    pub(crate) context: usize,
}

/// The few driver calls that the event pool, the readers of an owner and the reclaimer make.
pub(crate) trait EventCalls: Send + Sync + 'static {
    /// A new event of `context`, without timing, on which a thread can sleep.
    fn create(&self, context: usize) -> Result<RawEvent, CallError>;

    /// Ends an event; waits on it that are queued stay queued.
    fn destroy(&self, event: RawEvent);

    /// Records the event after what is queued on `stream` by now.
    fn record(&self, event: RawEvent, stream: &Stream) -> Result<(), CallError>;

    /// Whether what the event was recorded after is done.
    fn is_complete(&self, event: RawEvent) -> Result<bool, CallError>;

    /// Sleeps until it is.
    fn wait(&self, event: RawEvent) -> Result<(), CallError>;

    /// Whether a capture keeps the stream from being recorded on or waited for.
    fn is_capturing(&self, stream: &Stream) -> Result<bool, CallError>;

    /// Blocks until what is queued on `stream` is done.
    fn wait_for_stream(&self, stream: &Stream) -> Result<(), CallError>;
}

/// Events that nobody holds, by context: an event is recorded on streams of its own context only.
pub(crate) struct EventPool<C: EventCalls> {
    pub(crate) calls: C,
    /// In the order they came back, and go out: one that is recorded anew was not just waited for.
    free: Mutex<VecDeque<RawEvent>>,
    recorded: AtomicUsize,
}

impl<C: EventCalls> EventPool<C> {
    pub(crate) fn new(calls: C) -> Self {
        Self {
            calls,
            free: Mutex::new(VecDeque::new()),
            recorded: AtomicUsize::new(0),
        }
    }

    /// An event recorded after what is queued on `stream` by now; `capture` is the number of the capture that the stream is in.
    pub(crate) fn record(
        self: &Arc<Self>,
        stream: &Stream,
        capture: Option<u64>,
    ) -> Result<PooledEvent<C>, CallError> {
        let raw = match self.take(stream.context()) {
            Some(raw) => raw,
            None => self.calls.create(stream.context())?,
        };
        if let Err(failed) = self.calls.record(raw, stream) {
            // Perhaps it is the event that is of no use any more.
            self.calls.destroy(raw);
            return Err(failed);
        }
        Ok(PooledEvent {
            raw,
            capture,
            order: self.recorded.fetch_add(1, Ordering::Relaxed),
            pool: Arc::clone(self),
        })
    }

    fn take(&self, context: usize) -> Option<RawEvent> {
        let mut free = self.free.lock();
        let first = free.iter().position(|event| event.context == context)?;
        free.remove(first)
    }

    /// Events that nobody holds.
    pub(crate) fn unused(&self) -> usize {
        self.free.lock().len()
    }

    /// Ends the events that nobody holds.
    pub(crate) fn clear(&self) {
        let free = std::mem::take(&mut *self.free.lock());
        for event in free {
            self.calls.destroy(event);
        }
    }
}

/// A recorded event, back in its pool when it is dropped.
pub(crate) struct PooledEvent<C: EventCalls> {
    raw: RawEvent,
    capture: Option<u64>,
    order: usize,
    pool: Arc<EventPool<C>>,
}

impl<C: EventCalls> PooledEvent<C> {
    pub(crate) fn raw(&self) -> RawEvent {
        self.raw
    }

    /// Grows from record to record; for two that are recorded at the same moment, as it falls.
    pub(crate) fn order(&self) -> usize {
        self.order
    }

    /// The capture it was recorded in.
    pub(crate) fn capture(&self) -> Option<u64> {
        self.capture
    }
}

impl<C: EventCalls> Drop for PooledEvent<C> {
    fn drop(&mut self) {
        if probe::is_this_process() {
            self.pool.free.lock().push_back(self.raw);
        }
    }
}
