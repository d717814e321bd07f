use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;

use hurray_core::memory::AlignedBytes;
use memmap2::MmapMut;

use crate::abi::Slot;

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
}

/// A C producer's release function and what it is called with.
pub struct Callback {
    data: *mut c_void,
    context: *mut c_void,
    release: Option<unsafe extern "C" fn(data: *mut c_void, context: *mut c_void)>,
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
        }
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
