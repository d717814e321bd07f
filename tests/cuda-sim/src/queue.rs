//! Work in streams: queued by a call, run when something waits for it, in a seeded order.

use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use crate::checker::Touch;
use crate::clock::{Clock, Epoch};
use crate::copy::CopyPlan;
use crate::driver::{Driver, PROGRESS};
use crate::entry::{Call, Outcome};
use crate::event::Generation;
use crate::graph::Launch;
use crate::host::HostWork;
use crate::kernel::KernelPlan;
use crate::log::Who;
use crate::set::SetPlan;
use crate::stream::{StreamId, StreamKind, actor};

/// In how many of 256 steps a stream runs that nobody waits for.
const EAGERNESS: u8 = 64;

/// Operations of other streams that come before one.
pub(crate) type Order = SmallVec<[(StreamId, u64); 2]>;

/// What an operation does when it runs.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Nothing: records and waits are all order.
    Nothing,
    Copy(CopyPlan),
    Set(SetPlan),
    Kernel(KernelPlan),
    /// A host function, and what has happened before it.
    Host(HostWork, Rc<Clock>),
    /// Gives back the allocation at this address.
    Free(u64),
    /// Lets go of the graph that was launched.
    Launched(Rc<Launch>),
}

/// An operation in a stream's queue.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Operations of other streams that come first.
    after: Order,
    pub(crate) work: Work,
}

/// What can be done next for a stream.
enum Next {
    /// This stream's first operation can run.
    Run(StreamId),
    /// A host function runs, and must end first.
    Busy,
}

impl Driver {
    /// Whether an operation has run.
    fn has_run(&self, (stream, operation): (StreamId, u64)) -> bool {
        self.stream(stream).done >= operation
    }

    /// The operation that a stream's first one waits for.
    fn blocker(&self, stream: StreamId) -> Option<(StreamId, u64)> {
        let first = self.stream(stream).queue.front()?;
        first
            .after
            .iter()
            .copied()
            .find(|&operation| !self.has_run(operation))
    }

    /// Streams whose first operation can run now.
    fn runnable(&self) -> Vec<StreamId> {
        let ready = |&id: &StreamId| {
            !self.stream(id).queue.is_empty() && !self.stream(id).busy && self.blocker(id).is_none()
        };
        (0..self.streams.len()).filter(ready).collect()
    }

    /// Chooses a step that brings `stream` on, or now and then any step at all.
    fn next(&mut self, stream: StreamId) -> Next {
        if self.rng.u8(..) < EAGERNESS {
            let runnable = self.runnable();
            if let Some(&any) = self.rng.choice(&runnable) {
                return Next::Run(any);
            }
        }
        let mut stream = stream;
        // Ends: an operation waits for operations that were queued before it.
        loop {
            if self.stream(stream).busy {
                return Next::Busy;
            }
            match self.blocker(stream) {
                Some((other, _)) => stream = other,
                None => return Next::Run(stream),
            }
        }
    }

    /// Runs the first operation of a stream. A host function is handed to its thread and ends later.
    fn step(&mut self, stream: StreamId) {
        let Some(operation) = self.stream_mut(stream).queue.pop_front() else {
            return;
        };
        if let Work::Host(work, clock) = operation.work {
            self.stream_mut(stream).busy = true;
            // The function may touch what earlier work of its stream has used.
            self.host_functions.join(&clock);
            self.unprotect_finished();
            crate::host::start(stream, work);
            return;
        }
        let context = self.stream(stream).context;
        let broken = self
            .contexts
            .get(context)
            .is_ok_and(|context| context.error.is_some());
        match operation.work {
            Work::Free(address) => self.release(address),
            Work::Launched(launch) => self.end_launch(&launch),
            _ if broken => {}
            Work::Copy(plan) => self.run_copy(&plan),
            Work::Set(plan) => self.run_set(&plan),
            Work::Kernel(plan) => self.run_kernel(&plan, context),
            Work::Nothing | Work::Host(..) => {}
        }
        self.stream_mut(stream).done += 1;
        PROGRESS.notify_all();
    }

    /// A host function has returned.
    pub(crate) fn host_function_ended(&mut self, stream: StreamId) {
        let stream = self.stream_mut(stream);
        stream.busy = false;
        stream.done += 1;
        PROGRESS.notify_all();
    }

    /// Runs everything that can run without a host function.
    pub(crate) fn run_all(&mut self) {
        loop {
            let runnable: Vec<_> = self
                .runnable()
                .into_iter()
                .filter(|&id| {
                    !matches!(
                        self.stream(id).queue.front(),
                        Some(Operation {
                            work: Work::Host(..),
                            ..
                        })
                    )
                })
                .collect();
            let Some(&stream) = self.rng.choice(&runnable) else {
                return;
            };
            self.step(stream);
        }
    }

    /// Work that comes to its end by itself: the first host function or launched graph in a queue.
    pub(crate) fn pending_background(&self) -> Option<(StreamId, u64)> {
        self.streams.iter().enumerate().find_map(|(id, stream)| {
            let place = stream.queue.iter().position(|operation| {
                matches!(operation.work, Work::Host(..) | Work::Launched(_))
            })?;
            Some((id, stream.done + u64::from(stream.busy) + place as u64 + 1))
        })
    }
}

/// Runs work until an operation has run. Lets go of the lock while a host function runs.
pub(crate) fn advance(driver: &mut MutexGuard<'static, Driver>, stream: StreamId, operation: u64) {
    while !driver.has_run((stream, operation)) {
        match driver.next(stream) {
            Next::Run(stream) => driver.step(stream),
            Next::Busy => PROGRESS.wait(driver),
        }
    }
}

impl Call<'_> {
    pub(crate) fn advance(&mut self, stream: StreamId, operation: u64) {
        advance(self.driver, stream, operation);
    }

    /// Runs a few steps, as a device would meanwhile, and says whether an operation has run.
    pub(crate) fn poll(&mut self, stream: StreamId, operation: u64) -> bool {
        for _ in 0..self.rng.u8(0..4) {
            if self.has_run((stream, operation)) {
                break;
            }
            match self.driver.next(stream) {
                Next::Run(stream) => self.step(stream),
                Next::Busy => break,
            }
        }
        self.has_run((stream, operation))
    }

    /// Blocks until a stream's queue has room.
    fn make_room(&mut self, stream: StreamId) {
        while self.stream(stream).queue.len() >= self.config.queue {
            let next = self.stream(stream).done + 1;
            self.advance(stream, next);
        }
    }

    /// Orders the next operation of a stream after the call and, for the default stream's sake, after other streams.
    fn order(&mut self, stream: StreamId) -> (Epoch, Order) {
        let mut after = SmallVec::new();
        let (context, kind) = (self.stream(stream).context, self.stream(stream).kind);
        let others = match kind {
            // "The legacy stream first waits on all blocking streams", and they wait for it.
            StreamKind::Legacy => self.blocking_streams(context),
            StreamKind::PerThread | StreamKind::Blocking => self
                .contexts
                .get(context)
                .map(|context| vec![context.legacy])
                .unwrap_or_default(),
            StreamKind::NonBlocking => Vec::new(),
        };
        let driver = &mut **self.driver;
        for other in others {
            let (clock, queued) = (
                driver.stream(other).clock.clone(),
                driver.stream(other).queued,
            );
            driver.stream_mut(stream).clock.join(&clock);
            if driver.stream(other).done < queued {
                after.push((other, queued));
            }
        }
        if self.who == Who::Program {
            let program = driver.program.clone();
            driver.stream_mut(stream).clock.join(&program);
        }
        (driver.stream_mut(stream).clock.tick(actor(stream)), after)
    }

    /// Queues an operation on a stream, or adds it to the graph that the stream captures. What it touches is checked now.
    ///
    /// Returns the operation's number, 0 in a capture.
    pub(crate) fn enqueue(
        &mut self,
        stream: StreamId,
        touches: Vec<Touch>,
        work: Work,
    ) -> Result<u64, CUresult> {
        self.refuse_implicit(stream)?;
        let place = Arc::clone(&self.stream(stream).name);
        let site = self.site(&place);
        if let Some(capture) = self.stream(stream).capture {
            self.examine(&site, stream, &touches)?;
            return self
                .capture_node(stream, capture, site, touches, work)
                .map(|()| 0);
        }
        self.make_room(stream);
        let faults = self.examine(&site, stream, &touches)?;
        let (epoch, after) = self.order(stream);
        let mut clock = self.stream(stream).clock.clone();
        if self.who == Who::Reclaimer {
            // The reclaimer's own work is ordered after what it knows; the stream does not learn it.
            clock.join(&self.reclaimer);
        }
        self.check(&site, epoch, &clock, &touches);
        let work = match (faults, work) {
            (true, Work::Kernel(plan)) => Work::Kernel(plan.faulting()),
            (_, Work::Host(work, _)) => Work::Host(work, Rc::new(clock)),
            (_, work) => work,
        };
        Ok(self.push(stream, after, work))
    }

    /// Queues a wait for an event's record.
    pub(crate) fn enqueue_wait(&mut self, stream: StreamId, generation: &Generation) -> Outcome {
        self.refuse_implicit(stream)?;
        self.make_room(stream);
        self.stream_mut(stream).clock.join(&generation.clock);
        let (_, mut after) = self.order(stream);
        after.push((generation.stream, generation.operation));
        self.push(stream, after, Work::Nothing);
        Ok(())
    }

    fn push(&mut self, stream: StreamId, after: Order, work: Work) -> u64 {
        let stream = self.stream_mut(stream);
        stream.queue.push_back(Operation { after, work });
        stream.queued += 1;
        stream.queued
    }

    /// Orders a free on a stream: its step, and what has happened before it.
    pub(crate) fn begin_free(&mut self, stream: StreamId) -> (Epoch, Clock, Order) {
        self.make_room(stream);
        let (epoch, after) = self.order(stream);
        let mut clock = self.stream(stream).clock.clone();
        if self.who == Who::Reclaimer {
            clock.join(&self.reclaimer);
        }
        (epoch, clock, after)
    }

    /// Queues what `begin_free` ordered.
    pub(crate) fn end_free(&mut self, stream: StreamId, after: Order, work: Work) {
        self.push(stream, after, work);
    }

    /// The last step of a stream.
    pub(crate) fn stream_epoch(&self, stream: StreamId) -> Epoch {
        self.stream(stream).clock.epoch(actor(stream))
    }

    /// Queues work on a stream that takes no part in ordering: the end of a launch.
    pub(crate) fn enqueue_quietly(&mut self, stream: StreamId, work: Work) {
        self.push(stream, SmallVec::new(), work);
    }
}
