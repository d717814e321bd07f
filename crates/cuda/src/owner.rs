//! Owners of bytes that a device may still use when they are let go.

use std::any::Any;
use std::ffi::c_void;
use std::mem::{self, ManuallyDrop};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::ThreadId;

use hurray_core::{DeviceError, DeviceOwner, Stream, StreamOrdered};
use smallvec::SmallVec;

use crate::calls::DriverCalls;
use crate::capture::{Capture, Graph};
use crate::device::Device;
use crate::driver::{CallError, Driver};
use crate::memory::{DriverBlock, PoolBlock};
use crate::readers::Readers;
use crate::reclaimer::{Job, Wait, Waits};
use crate::release::DriverEvent;
use crate::release_lane::ReleaseLane;
use crate::{order, probe, release, stream};

/// Streams of one owner that are asked whether their work is over, at every doubling of their number.
const MANY: usize = 8;

/// What is let go.
#[expect(dead_code, reason = "most are only kept, and dropped in time")]
pub(crate) enum Held {
    /// Whatever keeps foreign or host memory alive.
    Foreign(Box<dyn Send + Sync>),
    /// Foreign memory whose producer may take it back in a stream's order.
    Ordered(&'static Device, Box<dyn StreamOrdered>),
    /// Memory of our own that the driver blocks to free.
    Driver(DriverBlock),
    /// Memory of our own pool, freed in stream order.
    Pool(PoolBlock),
}

/// What holders and graphs share.
struct Shared {
    readers: ManuallyDrop<Readers<DriverCalls>>,
    held: ManuallyDrop<Held>,
}

/// The one holder outside graphs.
pub(crate) struct Owned {
    shared: Arc<Shared>,
}

impl Owned {
    pub(crate) fn new(held: Held) -> Self {
        Self {
            shared: Arc::new(Shared {
                readers: ManuallyDrop::new(Readers::new()),
                held: ManuallyDrop::new(held),
            }),
        }
    }

    /// Memory whose first use follows `stream`.
    pub(crate) fn allocated(held: Held, stream: &Stream) -> Self {
        let owned = Self::new(held);
        owned.shared.readers.allocated(stream);
        owned
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Graphs keep the bytes beyond this, and streams may be gone when the last graph is.
        if probe::is_this_process()
            && Arc::strong_count(&self.shared) > 1
            && let Ok(events) = release::events()
        {
            self.shared.readers.settle(events);
        }
    }
}

impl DeviceOwner for Owned {
    fn goes_back_on(&self, stream: &Stream) -> bool {
        if !probe::is_this_process() {
            return false;
        }
        let home = match &*self.shared.held {
            Held::Pool(block) => block.device(),
            Held::Ordered(device, _) => device,
            Held::Foreign(_) | Held::Driver(_) => return false,
        };
        stream.device_id() == home.id() && self.shared.readers.is_only(stream)
    }
}

/// Those of this layer, which are all there should be.
fn ours<'o>(owners: &'o [&dyn DeviceOwner]) -> impl Iterator<Item = &'o Arc<Shared>> {
    owners.iter().filter_map(|owner| {
        let owner: &dyn Any = *owner;
        owner.downcast_ref::<Owned>().map(|owned| &owned.shared)
    })
}

/// As [`hurray_core::DeviceLayer::enter`].
pub(crate) fn enter(owners: &[&dyn DeviceOwner], stream: &Stream) -> Result<(), DeviceError> {
    stream::require_open(stream)?;
    let driver = probe::driver()?;
    let capture = Capture::of(driver, stream).map_err(|failed| driver.error(failed))?;
    let graph = match capture {
        Capture::Active(number, graph) => Some((number, graph)),
        Capture::None | Capture::Blocked => None,
    };
    for (number, shared) in ours(owners).enumerate() {
        let number_of = graph.map(|(number, _)| number);
        let (is_known, grown) = shared.readers.enter(stream, number_of);
        if grown.is_some_and(|len| len >= MANY && len.is_power_of_two())
            && let Ok(events) = release::events()
        {
            shared.readers.forget_over(&events.calls);
        }
        if let (Some((_, graph)), false) = (graph, is_known)
            && let Err(failed) = retain(graph, Arc::clone(shared))
        {
            for (entered, _) in ours(owners).zip(0..=number) {
                entered.readers.cancel(stream);
            }
            return Err(failed);
        }
    }
    Ok(())
}

/// As [`hurray_core::DeviceLayer::leave`]. One event serves all owners.
pub(crate) fn leave(owners: &[&dyn DeviceOwner], stream: &Stream, to: ThreadId) {
    let Ok(driver) = probe::driver() else { return };
    let returning: SmallVec<[_; 4]> = ours(owners)
        .map(|shared| (shared, shared.readers.returning(stream, to)))
        .collect();
    // The stream, and for a per-thread default that another thread was handed the legacy one.
    let mut recorded = SmallVec::<[(&Stream, Recorded); 2]>::new();
    for (shared, returning) in &returning {
        let known = recorded
            .iter()
            .find(|(target, _)| **target == returning.target)
            .map(|(_, recorded)| recorded.clone());
        let now = known.unwrap_or_else(|| {
            let now = Recorded::now(driver, &returning.target);
            recorded.push((&returning.target, now.clone()));
            now
        });
        match now {
            Recorded::Event(event) => shared.readers.leave(stream, returning, event),
            Recorded::Captured(number, graph) => {
                let is_known = shared.readers.leave_in_capture(stream, returning, number);
                if !is_known && retain(graph, Arc::clone(shared)).is_err() {
                    // The graph may read the bytes as long as it lives, and nobody would tell.
                    keep(Arc::clone(shared));
                }
            }
            Recorded::Failed => shared.readers.owe(stream, returning),
        }
    }
}

/// How far a stream is known to be.
#[derive(Clone)]
enum Recorded {
    Event(Arc<DriverEvent>),
    Captured(u64, Graph),
    Failed,
}

impl Recorded {
    fn now(driver: &Driver, stream: &Stream) -> Self {
        match (Capture::of(driver, stream), release::events()) {
            (Ok(Capture::Active(number, graph)), _) => Self::Captured(number, graph),
            (Ok(Capture::None), Ok(events)) => match events.record(stream, None) {
                Ok(event) => Self::Event(Arc::new(event)),
                Err(_) => Self::Failed,
            },
            _ => Self::Failed,
        }
    }
}

/// As [`hurray_core::DeviceLayer::order_after_readers`].
pub(crate) fn order_after_readers(
    owners: &[&dyn DeviceOwner],
    stream: &Stream,
) -> Result<(), DeviceError> {
    stream::require_open(stream)?;
    let driver = probe::driver()?;
    let mut events = SmallVec::<[Arc<DriverEvent>; 4]>::new();
    for shared in ours(owners) {
        let returned = shared
            .readers
            .returned(release::events()?, stream)
            .map_err(|failed| driver.error(failed))?;
        for event in returned {
            if !events.iter().any(|known| Arc::ptr_eq(known, &event)) {
                events.push(event);
            }
        }
    }
    order::after_events(driver, &events, stream)
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: taken here only, and not used again.
        let readers = unsafe { ManuallyDrop::take(&mut self.readers) };
        // SAFETY: as above.
        let held = unsafe { ManuallyDrop::take(&mut self.held) };
        if !probe::is_this_process() {
            mem::forget((readers, held));
            return;
        }
        release(held, readers.into_waits());
    }
}

/// Lets go of `held` once `waits` are over.
fn release(held: Held, mut waits: Waits<DriverCalls>) {
    if let (Held::Foreign(_) | Held::Ordered(..), true) = (&held, waits.is_empty()) {
        return drop(held);
    }
    let Ok(driver) = probe::driver() else {
        return keep((held, waits));
    };
    let mut graphs = SmallVec::<[(u64, Graph); 1]>::new();
    let (mut is_blocked, mut is_unknown) = (false, false);
    for wait in waits.iter().filter(|wait| wait.event.is_none()) {
        match Capture::of(driver, &wait.stream) {
            Ok(Capture::None) => {}
            Ok(Capture::Active(number, graph)) => {
                if graphs.iter().all(|(known, _)| *known != number) {
                    graphs.push((number, graph));
                }
            }
            Ok(Capture::Blocked) => is_blocked = true,
            Err(_) => is_unknown = true,
        }
    }
    if !is_unknown && (is_blocked || !graphs.is_empty()) {
        // The others' streams may be gone when these are free.
        record_idle(driver, &mut waits);
    }
    if !graphs.is_empty() {
        let captured = Arc::new(Captured(Some((held, waits))));
        for (_, graph) in graphs {
            if retain(graph, Arc::clone(&captured)).is_err() {
                keep(Arc::clone(&captured));
            }
        }
        return;
    }
    if is_blocked || is_unknown {
        return post(held, waits);
    }
    match held {
        Held::Pool(block) => {
            let freed = match stream_after(driver, block.device(), &mut waits) {
                Some(stream) => block.free(stream.get()),
                None => Err(block),
            };
            if let Err(block) = freed {
                post(Held::Pool(block), waits);
            }
        }
        Held::Ordered(device, mut owner) => {
            let given = stream_after(driver, device, &mut waits)
                .is_some_and(|stream| owner.release_on(stream.get()));
            if !given {
                let _: Result<(), _> = record(&mut waits);
                post(Held::Ordered(device, owner), waits);
            }
        }
        held => {
            // What can't be recorded now the reclaimer records later.
            let _: Result<(), _> = record(&mut waits);
            post(held, waits);
        }
    }
}

/// A stream on which everything in `waits` is over.
enum After {
    /// Of the only reader.
    Reader(Stream),
    /// Our own.
    Lane(Arc<ReleaseLane>),
}

impl After {
    fn get(&self) -> &Stream {
        match self {
            Self::Reader(stream) => stream,
            Self::Lane(lane) => lane.stream.stream(),
        }
    }
}

/// A stream of `device` on which everything in `waits` is over: its only reader's, or one that waits for all of them.
fn stream_after(
    driver: &Driver,
    device: &'static Device,
    waits: &mut Waits<DriverCalls>,
) -> Option<After> {
    let is_only_reader =
        |wait: &Wait<DriverCalls>| wait.event.is_none() && wait.stream.device_id() == device.id();
    match waits.as_slice() {
        [only] if is_only_reader(only) => Some(After::Reader(only.stream.clone())),
        _ => lane_after(driver, device, waits).map(After::Lane),
    }
}

/// A stream of our own on which everything in `waits` is over.
fn lane_after(
    driver: &Driver,
    device: &'static Device,
    waits: &mut Waits<DriverCalls>,
) -> Option<Arc<ReleaseLane>> {
    record(waits).ok()?;
    let lane = device.lanes.get(device.id(), waits).ok()?;
    for event in waits.iter().filter_map(|wait| wait.event.as_ref()) {
        lane.wait_for(driver, event).ok()?;
    }
    Some(lane)
}

/// Records an event for every wait that has none, so that what is queued later is not waited for.
fn record(waits: &mut Waits<DriverCalls>) -> Result<(), CallError> {
    let Ok(events) = release::events() else {
        return Ok(());
    };
    for wait in waits.iter_mut().filter(|wait| wait.event.is_none()) {
        wait.event = Some(Arc::new(events.record(&wait.stream, None)?));
    }
    Ok(())
}

/// The same as far as captures allow.
fn record_idle(driver: &Driver, waits: &mut Waits<DriverCalls>) {
    let Ok(events) = release::events() else {
        return;
    };
    for wait in waits.iter_mut().filter(|wait| wait.event.is_none()) {
        if let Ok(Capture::None) = Capture::of(driver, &wait.stream) {
            wait.event = events.record(&wait.stream, None).ok().map(Arc::new);
        }
    }
}

fn post(held: Held, waits: Waits<DriverCalls>) {
    release::post(Job {
        waits,
        owner: Box::new(held),
    });
}

fn keep<T>(owner: T) {
    match release::reclaimer() {
        Some(reclaimer) => reclaimer.keep(owner),
        None => mem::forget(owner),
    }
}

/// What graphs keep alive that were being captured when the last other holder let go.
struct Captured(Option<(Held, Waits<DriverCalls>)>);

impl Drop for Captured {
    fn drop(&mut self) {
        if let Some((held, waits)) = self.0.take() {
            post(held, waits);
        }
    }
}

/// Has the graph keep `owner` alive.
fn retain<T: Send + 'static>(graph: Graph, owner: T) -> Result<(), DeviceError> {
    let driver = probe::driver()?;
    let owner: Box<dyn Send> = Box::new(owner);
    let data = Box::into_raw(Box::new(owner)).cast::<c_void>();
    // SAFETY: `let_go` may be called once with this box, and is, whatever becomes of this call.
    unsafe { graph.retain(driver, data, let_go) }.map_err(|failed| driver.error(failed))
}

/// A graph has let go: called by the driver where the driver must not be called, so it only posts.
unsafe extern "C" fn let_go(data: *mut c_void) {
    // Nothing may unwind into the driver.
    let _: Result<(), _> = panic::catch_unwind(AssertUnwindSafe(|| {
        if probe::is_this_process() {
            // SAFETY: `retain` gave the box away, to this one call.
            let owner = unsafe { Box::from_raw(data.cast::<Box<dyn Send>>()) };
            release::post(Job {
                waits: Waits::new(),
                owner: *owner,
            });
        }
    }));
}
