//! The whole state of the simulated driver, behind one lock, and what a thread keeps to itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cudarc::driver::sys::{self, CUcontext, CUresult, CUstreamCaptureMode};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::capture::{Capture, CaptureId};
use crate::clock::Clock;
use crate::config::Config;
use crate::context::Context;
use crate::device::Device;
use crate::event::Event;
use crate::fault::InFlight;
use crate::graph::{Graph, GraphExec, UserObject};
use crate::handle::Handles;
use crate::kernel::{Function, Module};
use crate::log::{Log, Who};
use crate::mapping::{Physical, Reservation};
use crate::memory::Memory;
use crate::pool::Pool;
use crate::report::{Kind, Reports};
use crate::shadow::Shadow;
use crate::stream::{Stream, StreamId};

/// Everything the driver knows.
pub(crate) struct Driver {
    pub(crate) config: Config,
    pub(crate) rng: fastrand::Rng,
    pub(crate) initialised: bool,
    /// Deinitialised for good, by a planted error.
    pub(crate) dead: bool,
    pub(crate) log: Log,
    pub(crate) reports: Reports,

    /// What the program's threads know, together.
    pub(crate) program: Clock,
    /// What the reclaimer knows.
    pub(crate) reclaimer: Clock,
    /// What has happened before the host functions that have started.
    pub(crate) host_functions: Clock,
    pub(crate) shadow: Shadow,

    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: Handles<Context, CUcontext>,
    /// Every stream there was; a destroyed one still runs what is queued.
    pub(crate) streams: Vec<Stream>,
    pub(crate) stream_handles: Handles<StreamId, sys::CUstream>,
    pub(crate) events: Handles<Event, sys::CUevent>,
    pub(crate) memory: Memory,
    pub(crate) in_flight: Vec<InFlight>,
    pub(crate) reservations: BTreeMap<u64, Reservation>,
    pub(crate) physical: BTreeMap<u64, Physical>,
    pub(crate) pools: Handles<Pool, sys::CUmemoryPool>,
    pub(crate) modules: Handles<Module, sys::CUmodule>,
    pub(crate) functions: Handles<Function, sys::CUfunction>,
    pub(crate) captures: BTreeMap<CaptureId, Capture>,
    pub(crate) graphs: Handles<Graph, sys::CUgraph>,
    pub(crate) graph_execs: Handles<GraphExec, sys::CUgraphExec>,
    pub(crate) user_objects: Handles<UserObject, sys::CUuserObject>,
    /// Counts captures, buffers and whatever else needs a number that is never used again.
    pub(crate) next_id: u64,
}

// SAFETY: the raw pointers inside are handles, which are never read through, and memory that the driver owns or was lent for the call's work; the counted
// references (`Rc`) are all inside. All of it is used under the one lock only.
unsafe impl Send for Driver {}

static DRIVER: LazyLock<Mutex<Driver>> =
    LazyLock::new(|| Mutex::new(Driver::new(Config::from_environment())));
/// Notified whenever work has run.
pub(crate) static PROGRESS: Condvar = Condvar::new();
/// The process that initialised the driver; 0 until then.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    static WHO: Cell<Option<Who>> = const { Cell::new(None) };
    static HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static CONTEXTS: RefCell<Vec<CUcontext>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

impl Driver {
    fn new(config: Config) -> Self {
        let out = config.out.clone();
        Self {
            rng: fastrand::Rng::with_seed(config.seed),
            initialised: false,
            dead: false,
            log: Log::new(out.as_deref(), config.log),
            reports: Reports::new(out.as_deref()),
            program: Clock::default(),
            reclaimer: Clock::default(),
            host_functions: Clock::default(),
            shadow: Shadow::default(),
            devices: Vec::new(),
            contexts: Handles::new("context", 1),
            streams: Vec::new(),
            stream_handles: Handles::new("stream", 2),
            events: Handles::new("event", 3),
            memory: Memory::new(),
            in_flight: Vec::new(),
            reservations: BTreeMap::new(),
            physical: BTreeMap::new(),
            pools: Handles::new("pool", 4),
            modules: Handles::new("module", 5),
            functions: Handles::new("function", 6),
            captures: BTreeMap::new(),
            graphs: Handles::new("graph", 7),
            graph_execs: Handles::new("executable graph", 8),
            user_objects: Handles::new("user object", 9),
            next_id: 0,
            config,
        }
    }

    /// A number that was never used before.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Makes every later call on a context return `error`.
    pub(crate) fn break_context(&mut self, context: CUcontext, error: CUresult) {
        if let Ok(context) = self.contexts.get_mut(context) {
            context.error.get_or_insert(error);
        }
    }
}

pub(crate) fn lock() -> MutexGuard<'static, Driver> {
    DRIVER.lock()
}

/// The lock, unless somebody holds on to it: at exit, other threads may be stopped anywhere.
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Driver>> {
    DRIVER.try_lock_for(std::time::Duration::from_millis(500))
}

/// Remembers which process the driver belongs to.
pub(crate) fn claim_process() {
    PROCESS.store(std::process::id(), Ordering::Release);
}

/// Whether the driver was initialised by this process.
pub(crate) fn owns_process() -> bool {
    PROCESS.load(Ordering::Acquire) == std::process::id()
}

/// Whether the driver was initialised by a process that this one was forked from.
pub(crate) fn forked() -> bool {
    let owner = PROCESS.load(Ordering::Acquire);
    owner != 0 && owner != std::process::id()
}

/// Reports a call in a forked child, without the lock.
pub(crate) fn report_forked(function: &str) {
    Reports::new(
        std::env::var_os("HURRAY_SIM_OUT")
            .map(std::path::PathBuf::from)
            .as_deref(),
    )
    .push(
        Kind::ForkedCall,
        format_args!("{function} is called in a forked child; the driver can't be used there"),
    );
}

/// A number for the calling thread, never used for another.
pub(crate) fn thread() -> u64 {
    THREAD.with(|&thread| thread)
}

pub(crate) fn who(config: &Config) -> Who {
    WHO.get().unwrap_or_else(|| {
        let who = if thread_name().starts_with(&config.reclaimer) {
            Who::Reclaimer
        } else {
            Who::Program
        };
        WHO.set(Some(who));
        who
    })
}

/// Makes the calling thread the reclaimer.
pub(crate) fn become_reclaimer() {
    WHO.set(Some(Who::Reclaimer));
}

fn thread_name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, with the terminator, to the address given.
    let status = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name)
        .ok()
        .filter(|_| status == 0);
    name.map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Marks the calling thread as the one that runs host functions.
pub(crate) fn enter_host_function(inside: bool) {
    HOST_FUNCTION.set(inside);
}

pub(crate) fn in_host_function() -> bool {
    HOST_FUNCTION.get()
}

/// The calling thread's current context, null if there is none.
pub(crate) fn current_context() -> CUcontext {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied().unwrap_or(std::ptr::null_mut()))
}

/// Changes the calling thread's stack of contexts.
pub(crate) fn with_contexts<R>(change: impl FnOnce(&mut Vec<CUcontext>) -> R) -> R {
    CONTEXTS.with_borrow_mut(change)
}

/// The calling thread's capture interaction mode.
pub(crate) fn capture_mode() -> CUstreamCaptureMode {
    CAPTURE_MODE.get()
}

/// Sets the calling thread's capture interaction mode and returns the one before.
pub(crate) fn exchange_capture_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    CAPTURE_MODE.replace(mode)
}
