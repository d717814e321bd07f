//! Python objects that own bytes, and the door that closes when the interpreter ends.
//!
//! A reference may be given up on any thread and long after the interpreter's end. Under the limited API of 3.11 nothing tells that the interpreter is
//! finalizing, and a thread that then asks for it is ended where it stands, Rust frames included, which aborts the process. So every thread of ours that
//! goes into the interpreter from outside, and every call of code that may ask for it, goes through one door. Our `atexit` handler closes it and waits
//! for those that are inside, and for a while for the calls that are out. Whoever comes later leaves the reference be, or sleeps until the process has
//! ended.

use std::ffi::c_void;
use std::mem;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use hurray_ffi::{Owner, PythonObject};
use pyo3::ffi;
use pyo3::prelude::*;

/// Threads that are on their way into the interpreter, each 1; calls that are out, each [`CALL`]; [`CLOSED`]; [`LEFT`].
static DOOR: AtomicUsize = AtomicUsize::new(0);
const CALL: usize = 1 << 31;
/// The handler has begun to wait.
const CLOSED: usize = 1 << 63;
/// The handler no longer waits for calls.
const LEFT: usize = 1 << 62;

/// How long the handler waits for calls that are out: what others do may take for ever.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a thread sleeps that came too late. By then the process has ended, unless another `atexit` handler waits for that very thread.
const SLEEP: Duration = Duration::from_secs(10);

/// The thread on which the interpreter ends: it may do anything until the end.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// A thread that the handler waits for.
struct Visit;

impl Visit {
    fn begin() -> Option<Self> {
        enter(1).then(|| Self)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        DOOR.fetch_sub(1, Ordering::Release);
    }
}

/// A call of code that is not ours, which the handler waits for with [`PATIENCE`].
struct Call;

impl Call {
    fn begin() -> Option<Self> {
        enter(CALL).then(|| Self)
    }

    /// The way back into the interpreter; `None` where the handler has lost its patience, and the interpreter may be gone.
    fn come_back(self) -> Option<Visit> {
        let back = |door: usize| (door & LEFT == 0).then(|| door - CALL + 1);
        let door = DOOR.fetch_update(Ordering::AcqRel, Ordering::Relaxed, back);
        door.ok().map(|_| {
            mem::forget(self);
            Visit
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        DOOR.fetch_sub(CALL, Ordering::Release);
    }
}

/// Goes through the door, unless it is closed.
fn enter(unit: usize) -> bool {
    if DOOR.load(Ordering::Relaxed) & CLOSED != 0 {
        return false;
    }
    if DOOR.fetch_add(unit, Ordering::Acquire) & CLOSED == 0 {
        return true;
    }
    DOOR.fetch_sub(unit, Ordering::Release);
    false
}

/// Keeps a thread that came after the door was closed from running into the interpreter's end.
fn wait_for_end(py: Python<'_>) {
    if ENDING.get() != Some(&thread::current().id()) {
        py.detach(|| thread::sleep(SLEEP));
    }
}

/// An owner that holds a reference to `object`.
pub(crate) fn keep(object: &Bound<'_, PyAny>) -> Owner {
    // A reference is never NULL.
    let Some(reference) = NonNull::new(object.clone().into_ptr().cast::<c_void>()) else {
        return Owner::Rust(Box::new(()));
    };
    // SAFETY: `release` gives up the reference that was just taken, on any thread and at any time.
    Owner::Python(unsafe { PythonObject::new(reference, release) })
}

/// Gives up a reference: attached, and not at all once the interpreter ends.
///
/// # Safety
/// `reference` is one that [`keep`] took, and this is its one release.
unsafe fn release(reference: NonNull<c_void>) {
    attached(|py| {
        // SAFETY: the reference is the caller's to give, and this thread is attached.
        let object = unsafe { Bound::from_owned_ptr(py, reference.as_ptr().cast()) };
        drop(object);
    });
}

/// Runs `work` attached to the interpreter, on any thread; `None`, without running it, once the interpreter ends.
///
/// Not by PyO3's `attach`, which goes by a count of its own: torch drops storages, and with them what they hold of ours, on a thread that was attached
/// when it entered and has let go of the interpreter since. CPython knows.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _visit = Visit::begin()?;
    let _attachment = Attachment::new();
    // SAFETY: the attachment lasts until this function returns.
    let py = unsafe { Python::assume_attached() };
    Some(keeping_exception(py, || work(py)))
}

/// Runs `work`, a part of what this thread does in [`detached`], attached; `None`, without running it, once the interpreter ends, unless it ends on this
/// thread.
pub(crate) fn reattached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    if ENDING.get() == Some(&thread::current().id()) {
        return Python::try_attach(work);
    }
    attached(work)
}

/// This thread's hold on the interpreter.
struct Attachment(ffi::PyGILState_STATE);

impl Attachment {
    fn new() -> Self {
        // SAFETY: the caller's visit keeps the interpreter from ending; any thread may ask, attached or not.
        Self(unsafe { ffi::PyGILState_Ensure() })
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: the state is that of the call in `new`, on this thread.
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

/// Runs `work` as if no exception were on its way, which there may be where something is let go: Python code that `work` runs must not meet it.
pub(crate) fn keeping_exception<T>(_py: Python<'_>, work: impl FnOnce() -> T) -> T {
    let (mut class, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // SAFETY: this thread is attached, and the three are valid for writes.
    unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut value, &raw mut traceback) };
    let result = work();
    if !class.is_null() {
        // SAFETY: this thread is attached, and the three are the references that were fetched.
        unsafe { ffi::PyErr_Restore(class, value, traceback) };
    }
    result
}

/// Whether letting go of `tensor` calls another library's table.
pub(crate) fn calls_foreign_code(tensor: &hurray_ffi::Tensor) -> bool {
    let mut buffers = tensor.buffers().iter();
    buffers.any(|buffer| buffer.owner().calls_out())
}

/// Drops what other libraries' functions take back: without the interpreter, since they may wait for a thread that waits for it.
pub(crate) fn drop_detached<T: Send>(value: T) {
    let mut value = Some(value);
    Python::try_attach(|py| keeping_exception(py, || detached(py, || drop(value.take()))));
}

/// Runs `work`, which is Python code of others, or calls it: they may let go of the interpreter and ask for it again.
pub(crate) fn calling<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    let call = Call::begin();
    if call.is_none() {
        wait_for_end(py);
    }
    work()
}

/// Runs `work` without the interpreter. A thread whose work ends after the interpreter has does not return.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl Send + FnOnce() -> T) -> T {
    let Some(call) = Call::begin() else {
        wait_for_end(py);
        return work();
    };
    let (result, _visit) = py.detach(|| {
        let result = work();
        match call.come_back() {
            Some(visit) => (result, visit),
            None => loop {
                thread::park();
            },
        }
    });
    result
}

/// The `atexit` handler.
#[pyfunction]
fn close_door(py: Python<'_>) {
    // Set once: the interpreter ends once.
    let _ = ENDING.set(thread::current().id());
    DOOR.fetch_or(CLOSED, Ordering::AcqRel);
    py.detach(|| {
        const CALLS: usize = LEFT - CALL;
        let wait_while = |busy: usize, until: Option<Instant>| {
            while DOOR.load(Ordering::Acquire) & busy != 0
                && until.is_none_or(|until| Instant::now() < until)
            {
                thread::sleep(Duration::from_micros(100));
            }
        };
        wait_while(CALLS, Some(Instant::now() + PATIENCE));
        DOOR.fetch_or(LEFT, Ordering::AcqRel);
        wait_while(CALL - 1, None);
    });
}

/// Has the door closed when the interpreter ends.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let handler = wrap_pyfunction!(close_door, module)?;
    module
        .py()
        .import("atexit")?
        .call_method1("register", (handler,))?;
    Ok(())
}
