//! Lists that another library made.

use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::status::Failure;
use super::{
    HURRAY_C_ABI_VERSION, HURRAY_NO_STREAM, HURRAY_OK, HurrayApi, HurrayBuffer, HurrayBufferInfo,
    HurrayBufferList, HurrayBufferSync, last_error,
};

/// A table in which every function is there.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub(super) list_len: unsafe extern "C" fn(*const HurrayBufferList, *mut u64) -> i32,
    pub(super) list_get:
        unsafe extern "C" fn(*const HurrayBufferList, u64, *mut *const HurrayBuffer) -> i32,
    pub(super) list_destroy: unsafe extern "C" fn(*mut *mut HurrayBufferList) -> i32,
    pub(super) list_release: unsafe extern "C" fn(*mut HurrayBufferList, u64, usize) -> i32,
    pub(super) list_release_after: unsafe extern "C" fn(*mut *mut HurrayBufferList, usize) -> i32,
    pub(super) buffer_info: unsafe extern "C" fn(*const HurrayBuffer, *mut HurrayBufferInfo) -> i32,
    pub(super) buffer_sync: unsafe extern "C" fn(*const HurrayBuffer, *mut HurrayBufferSync) -> i32,
    pub(super) buffer_wait: unsafe extern "C" fn(*const HurrayBuffer, usize) -> i32,
    pub(super) buffer_wait_host: unsafe extern "C" fn(*const HurrayBuffer) -> i32,
    pub(super) event_release: unsafe extern "C" fn(*mut HurrayBufferList, u64) -> i32,
    pub(super) last_error: unsafe extern "C" fn() -> *const c_char,
}

impl Functions {
    /// Reads a table, its size before anything else of it.
    ///
    /// # Safety
    /// `api` is NULL, or points to a table that is as long as it says.
    pub(super) unsafe fn read(api: *const HurrayApi) -> Result<Self, Failure> {
        if api.is_null() {
            return Err(Failure::Null("api"));
        }
        // SAFETY: a table begins with its size.
        let found = unsafe { api.cast::<u32>().read_unaligned() };
        let needed = size_of::<HurrayApi>();
        if (found as usize) < needed {
            return Err(Failure::ShortStruct {
                name: "HurrayApi",
                found,
                needed,
            });
        }
        // SAFETY: the table has at least this many bytes.
        let api = unsafe { api.read_unaligned() };
        if api.abi_version != HURRAY_C_ABI_VERSION {
            return Err(Failure::Version(api.abi_version));
        }
        let missing = Failure::NoFunction;
        Ok(Self {
            list_len: api.list_len.ok_or(missing("list_len"))?,
            list_get: api.list_get.ok_or(missing("list_get"))?,
            list_destroy: api.list_destroy.ok_or(missing("list_destroy"))?,
            list_release: api.list_release.ok_or(missing("list_release"))?,
            list_release_after: api
                .list_release_after
                .ok_or(missing("list_release_after"))?,
            buffer_info: api.buffer_info.ok_or(missing("buffer_info"))?,
            buffer_sync: api.buffer_sync.ok_or(missing("buffer_sync"))?,
            buffer_wait: api.buffer_wait.ok_or(missing("buffer_wait"))?,
            buffer_wait_host: api.buffer_wait_host.ok_or(missing("buffer_wait_host"))?,
            event_release: api.event_release.ok_or(missing("event_release"))?,
            last_error: api.last_error.ok_or(missing("last_error"))?,
        })
    }

    /// The functions of the handle at `handle`, a list or a buffer.
    ///
    /// # Safety
    /// `handle` is NULL or a live handle of any library.
    pub(super) unsafe fn of_handle<T>(handle: *const T) -> Result<Self, Failure> {
        if handle.is_null() {
            return Err(Failure::Null("handle"));
        }
        // SAFETY: every handle begins with its table.
        let api = unsafe { handle.cast::<*const HurrayApi>().read_unaligned() };
        // SAFETY: the table of a live handle is live.
        unsafe { Self::read(api) }
    }

    /// The status of one of these functions, with the text that its library keeps for it.
    pub(super) fn result(&self, function: &'static str, status: i32) -> Result<(), Failure> {
        if status == HURRAY_OK {
            return Ok(());
        }
        // SAFETY: the function of a live table, which answers from every thread.
        let text = unsafe { (self.last_error)() };
        // SAFETY: the text is the calling thread's and stays until its next failure.
        let text = unsafe { last_error::copy(text) };
        Err(Failure::Relayed {
            status,
            text: format!("`{function}` of the producer failed with {status}: {text}"),
        })
    }
}

/// A list that was taken from its capsule. It is destroyed when the last slot has been let go.
pub(crate) struct ForeignList {
    list: NonNull<HurrayBufferList>,
    functions: Functions,
}

// SAFETY: calls on a list may come from any thread and run at the same time, by the ABI.
unsafe impl Send for ForeignList {}
// SAFETY: as above.
unsafe impl Sync for ForeignList {}

impl ForeignList {
    /// Takes the list.
    ///
    /// # Safety
    /// `list` is live and its ownership comes with the call; `functions` are its producer's.
    pub(super) unsafe fn new(list: NonNull<HurrayBufferList>, functions: Functions) -> Self {
        Self { list, functions }
    }
}

impl Drop for ForeignList {
    fn drop(&mut self) {
        let mut list = self.list.as_ptr();
        // It fails on bad arguments only, and there is nobody to tell.
        // SAFETY: the list is ours, and nothing uses it after this.
        let _ = unsafe { (self.functions.list_destroy)(&raw mut list) };
    }
}

/// One buffer of a list that another library made, let go on its own.
pub struct Slot {
    list: Arc<ForeignList>,
    buffer: NonNull<HurrayBuffer>,
    index: u64,
    released: AtomicBool,
}

// SAFETY: the borrowed handle is only passed to functions that answer from any thread.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// Buffer `index` of `list`, which `list_get` gave as `buffer`.
    pub(super) fn new(list: Arc<ForeignList>, buffer: NonNull<HurrayBuffer>, index: u64) -> Self {
        Self {
            list,
            buffer,
            index,
            released: AtomicBool::new(false),
        }
    }

    /// Lets go when the work queued on `stream` by now is done. A failure leaves the buffer held.
    pub(crate) fn release_after(&self, stream: usize) -> Result<(), Failure> {
        let functions = &self.list.functions;
        // SAFETY: the list is live as long as `self.list`.
        let status =
            unsafe { (functions.list_release)(self.list.list.as_ptr(), self.index, stream) };
        functions.result("list_release", status)?;
        self.released.store(true, Ordering::Release);
        Ok(())
    }

    /// Lets the event go, unless it went with the buffer.
    pub(crate) fn release_event(&self) {
        if !self.released.load(Ordering::Acquire) {
            let functions = &self.list.functions;
            // It fails on bad arguments only, and there is nobody to tell.
            // SAFETY: the list is live as long as `self.list`, and the one holder of the event calls once.
            let _ = unsafe { (functions.event_release)(self.list.list.as_ptr(), self.index) };
        }
    }

    /// Makes `stream` wait for the writes.
    pub(crate) fn wait(&self, stream: usize) -> Result<(), Failure> {
        let functions = &self.list.functions;
        // SAFETY: the handle is live until this slot is let go.
        let status = unsafe { (functions.buffer_wait)(self.buffer.as_ptr(), stream) };
        functions.result("buffer_wait", status)
    }

    /// Waits for the writes on the host.
    pub(crate) fn wait_host(&self) -> Result<(), Failure> {
        let functions = &self.list.functions;
        // SAFETY: the handle is live until this slot is let go.
        let status = unsafe { (functions.buffer_wait_host)(self.buffer.as_ptr()) };
        functions.result("buffer_wait_host", status)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !*self.released.get_mut() {
            let functions = &self.list.functions;
            // It fails on bad arguments only; the list lets go of what is left at the latest.
            // SAFETY: the list is live as long as `self.list`, and nothing uses the handle after this.
            let _ = unsafe {
                (functions.list_release)(self.list.list.as_ptr(), self.index, HURRAY_NO_STREAM)
            };
        }
    }
}
