use std::any::Any;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use hurray_core::Event;
use hurray_core::memory::AlignedBytes;
use memmap2::MmapMut;

use crate::abi::Slot;
use crate::device::DeviceHeld;
use crate::loan::Loan;

/// Who frees the bytes of a buffer, and how. Dropping an owner lets go of them: once, on any thread, without blocking.
#[non_exhaustive]
pub enum Owner {
    /// Host memory of our own.
    Allocation(AlignedBytes),
    /// Any Rust value that keeps the bytes alive.
    Rust(Box<dyn Any + Send + Sync>),
    /// A C producer's function.
    Callback(Callback),
    /// A mapped file; what is written to its pages stays in this process.
    Map(MmapMut),
    /// A buffer of a list that another library made.
    Slot(Slot),
    /// A Python object.
    Python(PythonObject),
    /// Any of these, let go once a device is done with the bytes; or memory of a device's own.
    Device(DeviceHeld),
    /// A use on a stream of bytes that a device holds.
    Loan(Loan),
}

impl Owner {
    /// Whether letting go may call another library's functions or a driver, and not only what is in this process' own hands.
    #[must_use]
    pub fn calls_out(&self) -> bool {
        matches!(self, Self::Slot(_) | Self::Device(_) | Self::Loan(_))
    }

    /// Whether the producer may take the bytes back in a stream's order.
    pub(crate) fn takes_stream(&self) -> bool {
        match self {
            Self::Slot(_) => true,
            Self::Callback(callback) => callback.release_after.is_some(),
            _ => false,
        }
    }
}

/// How memory of a stream-ordered allocator is let go: the bytes may be reused once `event` is complete, which is borrowed for the call.
pub(crate) type ReleaseAfter =
    unsafe extern "C" fn(data: *mut c_void, context: *mut c_void, event: *mut c_void);

/// A C producer's release function and what it is called with.
pub struct Callback {
    data: *mut c_void,
    context: *mut c_void,
    release: Option<unsafe extern "C" fn(data: *mut c_void, context: *mut c_void)>,
    release_after: Option<ReleaseAfter>,
}

impl Callback {
    /// An owner that calls `release(data, context)` when it is dropped; without a function nothing is called.
    ///
    /// # Safety
    /// `release` may be called once with these arguments, on any thread.
    #[must_use]
    pub unsafe fn new(
        data: *mut c_void,
        context: *mut c_void,
        release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    ) -> Self {
        Self {
            data,
            context,
            release,
            release_after: None,
        }
    }

    /// The same owner, which calls `release_after` instead of `release` where a stream's work is what the bytes wait for.
    ///
    /// # Safety
    /// `release_after` may be called once with the arguments of `release` and an event, on any thread.
    pub(crate) unsafe fn stream_ordered(mut self, release_after: Option<ReleaseAfter>) -> Self {
        self.release_after = release_after;
        self
    }

    /// Calls `release_after` with what `record` gives; false where either is missing, and nothing has happened.
    pub(crate) fn release_after(&mut self, record: impl FnOnce() -> Option<Event>) -> bool {
        let Some(release_after) = self.release_after else {
            return false;
        };
        let Some(event) = record() else { return false };
        self.release_after = None;
        self.release = None;
        let handle = ptr::with_exposed_provenance_mut(event.handle());
        // SAFETY: `stream_ordered`'s caller allows this call, and neither function is called again; the event lives until it has returned.
        unsafe { release_after(self.data, self.context, handle) };
        true
    }
}

// SAFETY: the pointers are only passed to `release`, which may run on any thread (L3 of `buffers.md`).
unsafe impl Send for Callback {}
// SAFETY: a shared reference does nothing.
unsafe impl Sync for Callback {}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: `new`'s caller allows this call, and a value is dropped once.
            unsafe { release(self.data, self.context) };
        }
    }
}

/// A reference to a Python object, and the function that gives it up. This crate knows no Python: whoever does supplies the function.
pub struct PythonObject {
    object: NonNull<c_void>,
    release: unsafe fn(NonNull<c_void>),
}

impl PythonObject {
    /// An owner that calls `release(object)` when it is dropped.
    ///
    /// # Safety
    /// `release` may be called once with `object`, on any thread, attached to the interpreter or not, and after the interpreter's end.
    #[must_use]
    pub unsafe fn new(object: NonNull<c_void>, release: unsafe fn(NonNull<c_void>)) -> Self {
        Self { object, release }
    }

    /// The object, borrowed.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<c_void> {
        self.object
    }
}

// SAFETY: the object is only passed to `release`, which may run on any thread by the word of `new`'s caller.
unsafe impl Send for PythonObject {}
// SAFETY: a shared reference only copies the pointer.
unsafe impl Sync for PythonObject {}

impl Drop for PythonObject {
    fn drop(&mut self) {
        // SAFETY: `new`'s caller allows this call, and a value is dropped once.
        unsafe { (self.release)(self.object) };
    }
}
