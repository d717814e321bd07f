//! Every interleaving of small programs over the event pool, the readers of an owner and the reclaimer, against a model of the driver's event calls.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Untracked;
use std::sync::atomic::Ordering::Relaxed as Plain;

use hurray_core::Stream;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::driver::{CallError, Code};
use crate::event_pool::{EventCalls, EventPool, RawEvent};
use crate::readers::Readers;
use crate::reclaimer::{Job, Reclaimer, Wait, Waits};

const EVENTS: usize = 4;

/// One stream. The program queues work by counting `queued` up; `done` follows when an event is waited for. An event's value is the count it was
/// recorded at.
struct Model {
    created: AtomicUsize,
    queued: AtomicUsize,
    done: AtomicUsize,
    /// Whether somebody holds the event and others must leave it alone.
    recorded: [AtomicUsize; EVENTS],
    /// Fails the record calls that are left to fail.
    failures: Untracked,
}

impl Model {
    fn new() -> Self {
        Self {
            created: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            recorded: Default::default(),
            failures: Untracked::new(0),
        }
    }
}

const FAILED: CallError = CallError {
    operation: "cuEventRecord",
    code: Code(999),
};

impl EventCalls for Model {
    fn create(&self, context: usize) -> Result<RawEvent, CallError> {
        Ok(RawEvent {
            handle: self.created.fetch_add(1, Ordering::SeqCst),
            context,
        })
    }

    fn destroy(&self, _: RawEvent) {}

    fn record(&self, event: RawEvent, _: &Stream) -> Result<(), CallError> {
        if self.failures.load(Plain) > 0 {
            self.failures.fetch_sub(1, Plain);
            return Err(FAILED);
        }
        self.recorded[event.handle].store(self.queued.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    fn is_complete(&self, event: RawEvent) -> Result<bool, CallError> {
        let at = self.recorded[event.handle].load(Ordering::SeqCst);
        Ok(at <= self.done.load(Ordering::SeqCst))
    }

    fn wait(&self, event: RawEvent) -> Result<(), CallError> {
        let at = self.recorded[event.handle].load(Ordering::SeqCst);
        self.done.fetch_max(at, Ordering::SeqCst);
        Ok(())
    }

    fn is_capturing(&self, _: &Stream) -> Result<bool, CallError> {
        Ok(false)
    }

    fn wait_for_stream(&self, _: &Stream) -> Result<(), CallError> {
        let at = self.queued.load(Ordering::SeqCst);
        self.done.fetch_max(at, Ordering::SeqCst);
        Ok(())
    }
}

fn stream() -> Stream {
    let number = NonZeroUsize::new(64).expect("not 0");
    // SAFETY: no driver ever sees it.
    unsafe { Stream::from_parts(0, 1, number, 1, None) }
}

/// An owner that may only go when the model has done what was queued for it.
struct Owner {
    events: Arc<EventPool<Model>>,
    used_until: usize,
    released: Arc<AtomicBool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let done = self.events.calls.done.load(Ordering::SeqCst);
        assert!(
            done >= self.used_until,
            "released at {done}, used until {}",
            self.used_until
        );
        assert!(
            !self.released.swap(true, Ordering::SeqCst),
            "released twice"
        );
    }
}

fn owner(
    events: &Arc<EventPool<Model>>,
    used_until: usize,
    released: &Arc<AtomicBool>,
) -> Box<Owner> {
    Box::new(Owner {
        events: Arc::clone(events),
        used_until,
        released: Arc::clone(released),
    })
}

/// Two threads record at the same time: they never get the same event.
#[test]
fn loom_events_are_held_by_one() {
    loom::model(|| {
        let pool = Arc::new(EventPool::new(Model::new()));
        drop(pool.record(&stream(), None).expect("recorded"));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.record(&stream(), None).expect("recorded"))
            })
            .collect();
        let held: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("joined"))
            .collect();
        assert_ne!(held[0].raw(), held[1].raw());
    });
}

/// Two threads hand an owner each to the reclaimer, which sleeps, wakes, and releases both, neither early.
#[test]
fn loom_owners_are_released_once_and_never_early() {
    // Three threads: all interleavings with at most three preemptions, which is where such defects show.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pool = Arc::new(EventPool::new(Model::new()));
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&pool)));
        let released: Vec<_> = (0..2).map(|_| Arc::new(AtomicBool::new(false))).collect();
        let posts: Vec<_> = released
            .iter()
            .map(|released| {
                let (pool, reclaimer) = (Arc::clone(&pool), Arc::clone(&reclaimer));
                let released = Arc::clone(released);
                thread::spawn(move || {
                    let used_until = pool.calls.queued.fetch_add(1, Ordering::SeqCst) + 1;
                    let owner = owner(&pool, used_until, &released);
                    let event = pool.record(&stream(), None).expect("recorded");
                    let mut waits = Waits::new();
                    waits.push(Wait {
                        stream: stream(),
                        is_alive: true,
                        event: Some(Arc::new(event)),
                    });
                    reclaimer.post(Job { waits, owner });
                })
            })
            .collect();
        let mut held = Vec::new();
        while !released
            .iter()
            .all(|released| released.load(Ordering::SeqCst))
        {
            reclaimer.turn(&mut held);
        }
        for post in posts {
            post.join().expect("joined");
        }
        assert_eq!(reclaimer.kept(), 0);
    });
}

/// The reclaimer sleeps on its condition while nothing is posted; a post wakes it, and `flush` waits for it.
#[test]
fn loom_a_post_wakes_the_reclaimer_and_flush_waits_for_it() {
    loom::model(|| {
        let pool = Arc::new(EventPool::new(Model::new()));
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&pool)));
        let released = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let thread = {
            let (reclaimer, ended) = (Arc::clone(&reclaimer), Arc::clone(&ended));
            thread::spawn(move || {
                let mut held = Vec::new();
                while !ended.load(Ordering::SeqCst) {
                    reclaimer.turn(&mut held);
                }
            })
        };
        let used_until = pool.calls.queued.fetch_add(1, Ordering::SeqCst) + 1;
        // Not recorded yet: the reclaimer does it.
        let mut waits = Waits::new();
        waits.push(Wait {
            stream: stream(),
            is_alive: true,
            event: None,
        });
        reclaimer.post(Job {
            waits,
            owner: owner(&pool, used_until, &released),
        });
        reclaimer.flush();
        assert!(released.load(Ordering::SeqCst));
        reclaimer.post(Job {
            waits: Waits::new(),
            owner: owner(&pool, 0, &ended),
        });
        thread.join().expect("joined");
    });
}

/// Two uses of one stream come back at the same time, and the owner goes: whatever event is kept covers both.
#[test]
fn loom_uses_that_come_back_together_are_both_covered() {
    loom::model(|| {
        let pool = Arc::new(EventPool::new(Model::new()));
        let readers = Arc::new(Readers::new());
        readers.enter(&stream(), None);
        readers.enter(&stream(), None);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (pool, readers) = (Arc::clone(&pool), Arc::clone(&readers));
                thread::spawn(move || {
                    let used_until = pool.calls.queued.fetch_add(1, Ordering::SeqCst) + 1;
                    let returning = readers.returning(&stream(), std::thread::current().id());
                    let event = pool.record(&stream(), None).expect("recorded");
                    readers.leave(&stream(), &returning, Arc::new(event));
                    used_until
                })
            })
            .collect();
        let used_until = threads
            .into_iter()
            .map(|thread| thread.join().expect("joined"))
            .max()
            .expect("two");
        let readers = Arc::into_inner(readers).expect("the last");
        let waits = readers.into_waits();
        let covered = waits
            .iter()
            .map(|wait| {
                let event = wait.event.as_ref().expect("recorded");
                pool.calls.recorded[event.raw().handle].load(Ordering::SeqCst)
            })
            .max();
        assert_eq!(covered, Some(used_until));
    });
}

/// A record fails when a use comes back: the stream is recorded on when the owner goes, later and not earlier.
#[test]
fn loom_a_failed_record_makes_the_release_later() {
    loom::model(|| {
        let pool = Arc::new(EventPool::new(Model::new()));
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&pool)));
        let readers = Readers::new();
        readers.enter(&stream(), None);
        let used_until = pool.calls.queued.fetch_add(1, Ordering::SeqCst) + 1;
        pool.calls.failures.store(1, Plain);
        assert_eq!(pool.record(&stream(), None).err(), Some(FAILED));
        readers.owe(
            &stream(),
            &readers.returning(&stream(), std::thread::current().id()),
        );
        let released = Arc::new(AtomicBool::new(false));
        let owner = owner(&pool, used_until, &released);
        let thread = {
            let reclaimer = Arc::clone(&reclaimer);
            thread::spawn(move || {
                let mut held = Vec::new();
                reclaimer.turn(&mut held);
                while !held.is_empty() {
                    reclaimer.turn(&mut held);
                }
            })
        };
        reclaimer.post(Job {
            waits: readers.into_waits(),
            owner,
        });
        thread.join().expect("joined");
        assert!(released.load(Ordering::SeqCst));
    });
}
