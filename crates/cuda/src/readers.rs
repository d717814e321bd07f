//! The streams that may still use an owner's bytes.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use hurray_core::Stream;
use smallvec::{SmallVec, smallvec};

use crate::driver::{CallError, Code};
use crate::event_pool::{EventCalls, EventPool, PooledEvent};
use crate::reclaimer::{Wait, Waits};
use crate::stream;
use crate::sync::Mutex;

/// One stream, and how far its use of the bytes is known.
struct Reader<C: EventCalls> {
    stream: Stream,
    /// The thread that was handed the bytes, where the stream is its per-thread default.
    thread: Option<ThreadId>,
    /// Whether the bytes were allocated on it.
    is_birth: bool,
    /// Uses that have not come back.
    out: usize,
    /// Whether one of them began outside captures; what began in one is the graph's to keep alive.
    is_eager: bool,
    /// Whether a use came back and no event could be recorded.
    owed: bool,
    /// Counts changes of `events`.
    version: usize,
    /// Recorded when uses came back: one, unless several came back at the same moment.
    events: SmallVec<[Arc<PooledEvent<C>>; 1]>,
    /// The last graph that keeps the owner alive for this stream.
    graph: Option<u64>,
}

/// A use that comes back.
pub(crate) struct Returning {
    /// The stream to record on.
    pub(crate) target: Stream,
    thread: Option<ThreadId>,
    version: Option<usize>,
}

/// A set of streams. No lock is held while the driver is called.
pub(crate) struct Readers<C: EventCalls> {
    entries: Mutex<SmallVec<[Reader<C>; 2]>>,
}

impl<C: EventCalls> Readers<C> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Mutex::new(SmallVec::new()),
        }
    }

    /// Notes that the bytes were allocated on `stream`. Every use is ordered after the allocation, and so is a release that follows a use; only where
    /// there was none must it follow the stream itself.
    pub(crate) fn allocated(&self, stream: &Stream) {
        entry(&mut self.entries.lock(), stream, own_thread(stream)).is_birth = true;
    }

    /// Notes a use on `stream`, which may be in capture `graph`. Whether that graph already keeps the owner alive, and how many streams there are if this
    /// one is new.
    pub(crate) fn enter(&self, stream: &Stream, graph: Option<u64>) -> (bool, Option<usize>) {
        let thread = own_thread(stream);
        let mut entries = self.entries.lock();
        let before = entries.len();
        let entry = entry(&mut entries, stream, thread);
        entry.out = entry.out.saturating_add(1);
        entry.is_eager |= graph.is_none();
        let is_known = graph.is_some() && std::mem::replace(&mut entry.graph, graph) == graph;
        (is_known, Some(entries.len()).filter(|len| *len > before))
    }

    /// Forgets the streams whose work is over: a weight may be lent on one stream after the other, and each keeps an event and its object.
    pub(crate) fn forget_over(&self, calls: &C) {
        let mut idle = Vec::new();
        for entry in self.entries.lock().iter().filter(|entry| entry.is_idle()) {
            let events = entry.events.clone();
            idle.push((entry.stream.clone(), entry.thread, entry.version, events));
        }
        for (stream, thread, version, events) in idle {
            if !events
                .iter()
                .all(|event| matches!(calls.is_complete(event.raw()), Ok(true)))
            {
                continue;
            }
            let mut entries = self.entries.lock();
            let position = entries.iter().position(|entry| {
                let is_it = entry.stream == stream && entry.thread == thread;
                is_it && entry.version == version && entry.is_idle()
            });
            let over = position.map(|position| entries.swap_remove(position));
            drop(entries);
            drop(over);
        }
    }

    /// Whether one use on `stream` is all that has not come back, and nothing else must be waited for.
    pub(crate) fn is_only(&self, stream: &Stream) -> bool {
        let entries = self.entries.lock();
        let mut used = entries
            .iter()
            .filter(|entry| entry.out > 0 || entry.owed || !entry.events.is_empty());
        let is_it = |entry: &Reader<C>| entry.stream == *stream && entry.out == 1;
        used.next().is_some_and(is_it) && used.next().is_none()
    }

    /// Takes a use back that was noted and then did not happen.
    pub(crate) fn cancel(&self, stream: &Stream) {
        let thread = own_thread(stream);
        let mut entries = self.entries.lock();
        let entry = entry(&mut entries, stream, thread);
        entry.out = entry.out.saturating_sub(1);
        entry.graph = None;
    }

    /// The use on `stream` that now comes back, which thread `to` was handed.
    pub(crate) fn returning(&self, stream: &Stream, to: ThreadId) -> Returning {
        let thread = stream.is_per_thread().then_some(to);
        let entries = self.entries.lock();
        let noted = entries
            .iter()
            .find(|entry| entry.stream == *stream && entry.thread == thread && entry.out > 0);
        Returning {
            target: target(stream, thread),
            thread,
            version: noted.map(|entry| entry.version),
        }
    }

    /// Notes that a use on `stream`, in capture `graph`, came back: the graph keeps the owner alive, and there is nothing to record. Whether it already
    /// did.
    pub(crate) fn leave_in_capture(
        &self,
        stream: &Stream,
        returning: &Returning,
        graph: u64,
    ) -> bool {
        let mut entries = self.entries.lock();
        let entry = entry(&mut entries, stream, returning.thread);
        entry.out = entry.out.saturating_sub(1);
        // What was queued before the capture began is not in the graph.
        entry.owed |= entry.is_eager;
        entry.graph.replace(graph) == Some(graph)
    }

    /// Notes that a use on `stream` came back, and that how far the stream is must be recorded later.
    pub(crate) fn owe(&self, stream: &Stream, returning: &Returning) {
        let mut entries = self.entries.lock();
        let entry = entry(&mut entries, stream, returning.thread);
        entry.out = entry.out.saturating_sub(1);
        entry.owed = true;
    }

    /// Notes that a use on `stream` came back; `event` was recorded on its target since [`returning`](Self::returning) was asked.
    pub(crate) fn leave(&self, stream: &Stream, returning: &Returning, event: Arc<PooledEvent<C>>) {
        let mut stale = SmallVec::<[_; 1]>::new();
        let mut entries = self.entries.lock();
        let entry = entry(&mut entries, stream, returning.thread);
        entry.out = entry.out.saturating_sub(1);
        // The new event covers what was recorded before it was; what came in meanwhile it may not.
        if returning
            .version
            .is_none_or(|version| version == entry.version)
        {
            stale = std::mem::take(&mut entry.events);
            entry.owed = false;
            entry.is_eager &= entry.out > 0;
        }
        entry.events.push(event);
        entry.version = entry.version.wrapping_add(1);
        drop(entries);
        drop(stale);
    }

    /// Events after everything that has come back on other streams than `stream`, recorded now where they could not be before.
    pub(crate) fn returned(
        &self,
        pool: &Arc<EventPool<C>>,
        stream: &Stream,
    ) -> Result<SmallVec<[Arc<PooledEvent<C>>; 2]>, CallError> {
        let mut owed = SmallVec::<[(Stream, Stream, Option<ThreadId>); 2]>::new();
        let mut events = SmallVec::new();
        let own = own_thread(stream);
        for entry in self.entries.lock().iter() {
            if entry.stream == *stream && entry.thread == own {
                continue;
            }
            if entry.owed {
                owed.push((
                    target(&entry.stream, entry.thread),
                    entry.stream.clone(),
                    entry.thread,
                ));
            }
            events.extend(entry.events.iter().cloned());
        }
        for (target, stream, thread) in owed {
            if pool.calls.is_capturing(&target)? {
                return Err(CallError {
                    operation: "cuEventRecord",
                    code: Code::CAPTURE_UNSUPPORTED,
                });
            }
            let event = Arc::new(pool.record(&target, None)?);
            events.push(Arc::clone(&event));
            let mut entries = self.entries.lock();
            let entry = entry(&mut entries, &stream, thread);
            entry.owed = false;
            entry.events.push(event);
            entry.version = entry.version.wrapping_add(1);
        }
        Ok(events)
    }

    /// Records how far every stream is that [`into_waits`](Self::into_waits) would have recorded on, unless a capture is in the way: whoever could give a
    /// use back is gone, and the bytes are not.
    pub(crate) fn settle(&self, pool: &Arc<EventPool<C>>) {
        let mut open = SmallVec::<[(Stream, Stream, Option<ThreadId>); 2]>::new();
        for entry in self.entries.lock().iter() {
            if entry.is_unknown() || entry.is_birth && entry.events.is_empty() {
                open.push((
                    target(&entry.stream, entry.thread),
                    entry.stream.clone(),
                    entry.thread,
                ));
            }
        }
        for (target, stream, thread) in open {
            let Ok(false) = pool.calls.is_capturing(&target) else {
                continue;
            };
            let Ok(event) = pool.record(&target, None) else {
                continue;
            };
            let mut entries = self.entries.lock();
            let entry = entry(&mut entries, &stream, thread);
            entry.out = 0;
            entry.owed = false;
            let stale = std::mem::replace(&mut entry.events, smallvec![Arc::new(event)]);
            drop(entries);
            drop(stale);
        }
    }

    /// Everything that must be done before the bytes may go. Streams whose uses have not all come back, or of which no event is known, are to be
    /// recorded on; the others may be gone by now, and are not touched.
    pub(crate) fn into_waits(self) -> Waits<C> {
        let entries = std::mem::take(&mut *self.entries.lock());
        let mut waits = Waits::new();
        let mut birth = None;
        for entry in entries {
            if entry.is_unknown() {
                waits.push(entry.to_record());
            } else if entry.is_birth && entry.events.is_empty() {
                birth = Some(entry.to_record());
            } else {
                waits.extend(entry.events.into_iter().map(|event| Wait {
                    stream: entry.stream.clone(),
                    is_alive: false,
                    event: Some(event),
                }));
            }
        }
        if waits.is_empty() {
            waits.extend(birth);
        }
        waits
    }
}

impl<C: EventCalls> Reader<C> {
    /// Whether its events say everything.
    fn is_idle(&self) -> bool {
        self.out == 0 && !self.owed && !self.is_birth
    }

    /// Whether work may use the bytes that neither an event nor a graph tells of.
    fn is_unknown(&self) -> bool {
        self.out > 0 && self.is_eager || self.owed
    }

    /// A wait for what is queued by the time it is recorded.
    fn to_record(&self) -> Wait<C> {
        Wait {
            stream: target(&self.stream, self.thread),
            is_alive: true,
            event: None,
        }
    }
}

/// The stream to record on: from another thread than the one it belongs to, the legacy stream stands for a per-thread default, since it waits for all
/// of them.
fn target(stream: &Stream, thread: Option<ThreadId>) -> Stream {
    if thread == own_thread(stream) {
        stream.clone()
    } else {
        stream::legacy_of(stream)
    }
}

/// The calling thread, where the stream is another one in every thread.
fn own_thread(stream: &Stream) -> Option<ThreadId> {
    stream.is_per_thread().then(|| thread::current().id())
}

fn entry<'e, C: EventCalls>(
    entries: &'e mut SmallVec<[Reader<C>; 2]>,
    stream: &Stream,
    thread: Option<ThreadId>,
) -> &'e mut Reader<C> {
    let position = entries
        .iter()
        .position(|entry| entry.stream == *stream && entry.thread == thread)
        .unwrap_or_else(|| {
            entries.push(Reader {
                stream: stream.clone(),
                thread,
                out: 0,
                is_birth: false,
                is_eager: false,
                owed: false,
                version: 0,
                events: SmallVec::new(),
                graph: None,
            });
            entries.len() - 1
        });
    &mut entries[position]
}
