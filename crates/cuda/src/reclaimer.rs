//! Owners that a device may still use, held until it does not.

use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use hurray_core::Stream;
use smallvec::SmallVec;

use crate::driver::CallError;
use crate::event_pool::{EventCalls, EventPool, PooledEvent};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};

/// How long the thread sleeps when it has nothing to sleep on: only captures that end without a graph keep it waiting so.
const RETRY: Duration = Duration::from_millis(10);

/// One thing to wait for.
pub(crate) struct Wait<C: EventCalls> {
    /// The stream whose work it is.
    pub(crate) stream: Stream,
    /// Whether the stream may still be named; otherwise it may be gone.
    pub(crate) is_alive: bool,
    /// What to wait for; still to be recorded where there is none.
    pub(crate) event: Option<Arc<PooledEvent<C>>>,
}

/// What must be done before an owner may go.
pub(crate) type Waits<C> = SmallVec<[Wait<C>; 2]>;

/// An owner to drop, and when.
pub(crate) struct Job<C: EventCalls> {
    pub(crate) waits: Waits<C>,
    pub(crate) owner: Box<dyn Send>,
}

/// Streams with an event that is not complete, and which: what was recorded there later is not complete either.
type Busy = SmallVec<[(Stream, usize); 4]>;

/// What became of a wait.
enum Answer {
    Complete,
    Pending,
    /// The driver can't say. Nobody can know when the owner may go.
    Unknown,
}

struct Queue<C: EventCalls> {
    posted: Vec<Job<C>>,
    /// Owners that the thread had in hand when it last took what was posted.
    held: usize,
}

/// The reclaimer: anybody posts, one thread takes turns. No lock is held while the driver is called or an owner dropped.
pub(crate) struct Reclaimer<C: EventCalls> {
    events: Arc<EventPool<C>>,
    queue: Mutex<Queue<C>>,
    posted: Condvar,
    idle: Condvar,
    kept: AtomicUsize,
}

impl<C: EventCalls> Reclaimer<C> {
    pub(crate) fn new(events: Arc<EventPool<C>>) -> Self {
        Self {
            events,
            queue: Mutex::new(Queue {
                posted: Vec::new(),
                held: 0,
            }),
            posted: Condvar::new(),
            idle: Condvar::new(),
            kept: AtomicUsize::new(0),
        }
    }

    /// Drops the job's owner once its waits are over, on the reclaimer's thread.
    pub(crate) fn post(&self, job: Job<C>) {
        self.queue.lock().posted.push(job);
        self.posted.notify_one();
    }

    /// Counts an owner that is never dropped, and never drops it.
    pub(crate) fn keep<T>(&self, owner: T) {
        mem::forget(owner);
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// Owners that are kept for good, since nobody can know when they may go.
    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Owners that wait for a device, or to be dropped.
    pub(crate) fn pending(&self) -> usize {
        let queue = self.queue.lock();
        queue.held + queue.posted.len()
    }

    /// Blocks until every owner posted by now is dropped or kept. Not to be called from an owner's drop.
    pub(crate) fn flush(&self) {
        let mut queue = self.queue.lock();
        while queue.held > 0 || !queue.posted.is_empty() {
            self.idle.wait(&mut queue);
        }
    }

    /// The thread's life.
    pub(crate) fn run(&self) -> ! {
        let mut held = Vec::new();
        loop {
            self.turn(&mut held);
        }
    }

    /// Takes what was posted, sleeping while there is nothing at all; waits for one thing, asks for the others, and drops the owners whose time has
    /// come. `held` are those whose time has not.
    pub(crate) fn turn(&self, held: &mut Vec<Job<C>>) {
        {
            let mut queue = self.queue.lock();
            while queue.posted.is_empty() && held.is_empty() {
                queue.held = 0;
                self.idle.notify_all();
                self.posted.wait(&mut queue);
            }
            held.append(&mut queue.posted);
            queue.held = held.len();
        }
        let slept = held.iter_mut().any(|job| self.sleep_on(job));
        let mut busy = Busy::new();
        let mut kept = Vec::new();
        let mut index = 0;
        while let Some(job) = held.get_mut(index) {
            match self.ask(job, &mut busy) {
                Answer::Pending => index += 1,
                Answer::Complete => {
                    let Job { owner, .. } = held.remove(index);
                    // A panic of a foreign owner's must not end this thread.
                    let _: Result<(), _> = panic::catch_unwind(AssertUnwindSafe(|| drop(owner)));
                }
                Answer::Unknown => kept.push(held.remove(index)),
            }
        }
        for job in kept {
            self.keep(job);
        }
        if !slept && !held.is_empty() {
            let mut queue = self.queue.lock();
            if queue.posted.is_empty() {
                self.posted.wait_for(&mut queue, RETRY);
            }
        }
    }

    /// Sleeps until one thing that `job` waits for is done. Whether there was anything to sleep on.
    fn sleep_on(&self, job: &mut Job<C>) -> bool {
        let Some(wait) = job.waits.last_mut() else {
            return true;
        };
        if self.record(wait).is_err() {
            // For `ask` to find again.
            return true;
        }
        let is_done = |event: &Arc<PooledEvent<C>>| self.events.calls.wait(event.raw()).is_ok();
        let slept = wait.event.as_ref().is_some_and(is_done);
        if slept {
            job.waits.pop();
        }
        slept
    }

    /// How `job` stands, without sleeping unless the driver fails. What was recorded after an event in `busy` is not asked for.
    fn ask(&self, job: &mut Job<C>, busy: &mut Busy) -> Answer {
        while let Some(wait) = job.waits.last_mut() {
            let order = wait.event.as_ref().map(|event| event.order());
            let is_later = |(stream, earlier): &(Stream, usize)| {
                *stream == wait.stream && order.is_some_and(|order| order > *earlier)
            };
            if busy.iter().any(is_later) {
                return Answer::Pending;
            }
            match self.answer(wait) {
                Answer::Complete => {
                    job.waits.pop();
                }
                Answer::Pending => {
                    if let Some(event) = &wait.event {
                        busy.push((wait.stream.clone(), event.order()));
                    }
                    return Answer::Pending;
                }
                Answer::Unknown => return Answer::Unknown,
            }
        }
        Answer::Complete
    }

    fn answer(&self, wait: &mut Wait<C>) -> Answer {
        let calls = &self.events.calls;
        let asked = self.record(wait).and_then(|()| match &wait.event {
            Some(event) => calls.is_complete(event.raw()),
            None => Ok(false),
        });
        let failed = match asked {
            Ok(true) => return Answer::Complete,
            Ok(false) => return Answer::Pending,
            Err(failed) => failed,
        };
        if failed.code.is_lost() {
            return Answer::Complete;
        }
        let waited = match &wait.event {
            // Captures must not be touched, and the stream is as good as the event.
            _ if wait.is_alive => match calls.is_capturing(&wait.stream) {
                Ok(true) => return Answer::Pending,
                Ok(false) => calls.wait_for_stream(&wait.stream),
                Err(failed) => Err(failed),
            },
            Some(event) => calls.wait(event.raw()),
            None => Err(failed),
        };
        match waited {
            Ok(()) => Answer::Complete,
            Err(failed) if failed.code.is_lost() => Answer::Complete,
            Err(_) => Answer::Unknown,
        }
    }

    /// Records the event of a wait that has none, unless a capture is in the way.
    fn record(&self, wait: &mut Wait<C>) -> Result<(), CallError> {
        if wait.event.is_none() && !self.events.calls.is_capturing(&wait.stream)? {
            wait.event = Some(Arc::new(self.events.record(&wait.stream, None)?));
        }
        Ok(())
    }
}
