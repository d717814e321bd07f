//! The process's one event pool and reclaimer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use hurray_core::DeviceError;

use crate::calls::DriverCalls;
use crate::context::Relaxed;
use crate::device::Device;
use crate::event_pool::{EventPool, PooledEvent};
use crate::probe;
use crate::reclaimer::{Job, Reclaimer};

/// The name of the reclaimer's thread; Linux shows 15 bytes of it.
const THREAD: &str = "hurray-reclaim";

/// A recorded event of the driver's.
pub(crate) type DriverEvent = PooledEvent<DriverCalls>;

struct Release {
    events: Arc<EventPool<DriverCalls>>,
    reclaimer: Reclaimer<DriverCalls>,
    is_started: AtomicBool,
}

static RELEASE: OnceLock<Release> = OnceLock::new();

/// Starts the reclaimer, if none runs: before the first device is used, so that everything that a device may use can be let go later.
pub(crate) fn start() -> Result<(), DeviceError> {
    get().map(|_| ())
}

/// The event pool.
pub(crate) fn events() -> Result<&'static Arc<EventPool<DriverCalls>>, DeviceError> {
    get().map(|release| &release.events)
}

/// The reclaimer, once it was started.
pub(crate) fn reclaimer() -> Option<&'static Reclaimer<DriverCalls>> {
    RELEASE.get().map(|release| &release.reclaimer)
}

/// Hands an owner to the reclaimer; keeps it where there is none, which cannot be once there are devices.
pub(crate) fn post(job: Job<DriverCalls>) {
    match reclaimer() {
        Some(reclaimer) => reclaimer.post(job),
        None => std::mem::forget(job),
    }
}

fn get() -> Result<&'static Release, DeviceError> {
    let driver = probe::driver()?;
    let release = RELEASE.get_or_init(|| {
        let events = Arc::new(EventPool::new(DriverCalls { driver }));
        Release {
            reclaimer: Reclaimer::new(Arc::clone(&events)),
            events,
            is_started: AtomicBool::new(false),
        }
    });
    if release.is_started.load(Ordering::Acquire) || release.is_started.swap(true, Ordering::AcqRel)
    {
        return Ok(release);
    }
    let thread = thread::Builder::new().name(THREAD.to_owned());
    let started = thread.spawn(move || {
        // For the life of the thread, so that nothing it asks breaks a capture; without it every call does so itself.
        let _relaxed = Relaxed::enter(driver);
        release.reclaimer.run()
    });
    if let Err(error) = started {
        release.is_started.store(false, Ordering::Release);
        return Err(DeviceError::Unavailable {
            reason: format!("the thread that releases device memory does not start: {error}"),
        });
    }
    Ok(release)
}

/// Blocks until everything that was let go by now is released or kept for good. Not to be called from an owner's drop.
pub fn flush() {
    if !probe::is_this_process() {
        return;
    }
    if let Some(reclaimer) = reclaimer() {
        reclaimer.flush();
    }
}

/// How many owners are kept for good, since the driver could not say when they may go.
#[must_use]
pub fn kept() -> usize {
    reclaimer().map_or(0, Reclaimer::kept)
}

/// What the process holds for devices; nothing before the first one is used, and in a forked child.
#[must_use]
pub fn statistics() -> Statistics {
    let mut statistics = Statistics {
        kept: kept(),
        ..Statistics::default()
    };
    if !probe::is_this_process() {
        return statistics;
    }
    let Some(release) = RELEASE.get() else {
        return statistics;
    };
    statistics.pending = release.reclaimer.pending();
    statistics.unused_events = release.events.unused();
    for device in Device::all() {
        if let Some(pool) = &device.pool {
            // Failing, the pool is left out: there is nothing to count in a context that is gone.
            statistics.pools.extend(pool.statistics(device).ok());
        }
    }
    statistics
}

/// Numbers for whoever looks for a leak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Owners that were let go and wait for a device.
    pub pending: usize,
    /// Owners that are kept for good, since the driver could not say when they may go.
    pub kept: usize,
    /// Events that are held to be used again.
    pub unused_events: usize,
    /// The pool of each device in use that has one.
    pub pools: Vec<PoolStatistics>,
}

/// A device's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Which device.
    pub device_id: u32,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that the pool has from the device, in use or not.
    pub reserved: u64,
}

/// Gives back what is held for later use: events, pinned memory, streams of our own and the pool's unused memory. What is in use stays.
pub fn empty_cache() {
    if !probe::is_this_process() {
        return;
    }
    let Some(release) = RELEASE.get() else { return };
    flush();
    for device in Device::all() {
        device.rings.clear(&release.events.calls);
        device.lanes.clear();
        if let Some(pool) = &device.pool {
            pool.trim(device.driver());
        }
    }
    release.events.clear();
}
