use std::ffi::{c_char, c_void};
use std::ptr;

/// The version of this ABI, first in every context and table.
pub const HURRAY_C_ABI_VERSION: u32 = 3;

/// Flag of a buffer: nobody writes to its bytes.
pub const HURRAY_READ_ONLY: u32 = 1;
/// Flag of a buffer: its row names another place or mode than the bytes have. It is relayed, and its bytes are given to nobody.
pub const HURRAY_DECLARED: u32 = 2;

/// For `list_release` and `list_release_after`: nothing is queued that uses the bytes.
pub const HURRAY_NO_STREAM: usize = usize::MAX;

/// The buffers of one tensor or composite, in the order of the descriptor's buffer table. Opaque but for its first member, which is a
/// `const HurrayApi *`.
pub struct HurrayBufferList(());

/// One buffer. Opaque but for its first member, which is a `const HurrayApi *`.
pub struct HurrayBuffer(());

/// What a capsule's context points to. It belongs to the list and dies with it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HurrayCapsuleContext {
    /// `HURRAY_C_ABI_VERSION`; first in every version, and checked before anything else is touched.
    pub abi_version: u32,
    /// Bytes of this struct as its producer knows it.
    pub struct_size: u32,
    /// The encoded TensorDescriptor; of a composite the head's and then each member's, in stream order.
    pub descriptor: *const u8,
    /// Bytes of `descriptor`.
    pub descriptor_len: u64,
    /// The producer's functions for the producer's handles.
    pub api: *const HurrayApi,
}

/// What `buffer_info` tells. The caller sets `struct_size` to `sizeof(HurrayBufferInfo)`; the function writes no further and sets it to what it wrote.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HurrayBufferInfo {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// `HURRAY_READ_ONLY`, `HURRAY_DECLARED`. Ignore bits you do not know.
    pub flags: u32,
    /// The first byte; meaningless when there are none, and a host pointer only where the device's addresses are.
    pub data: *mut c_void,
    /// Bytes.
    pub byte_size: u64,
    /// The alignment that the address has, as measured.
    pub alignment: u32,
    /// Which device of the tagged kind.
    pub device_id: u32,
    /// The device tag of `buffers.md` § 3.
    pub device_tag: u8,
    /// The memory class of `buffers.md` § 4.
    pub memory_class: u8,
    /// The sync mode of `buffers.md` § 6: 0 producer-synced, 1 event, 2 consumer-stream.
    pub sync_mode: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

impl HurrayBufferInfo {
    /// One to be filled.
    pub(crate) const fn empty() -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            flags: 0,
            data: ptr::null_mut(),
            byte_size: 0,
            alignment: 0,
            device_id: 0,
            device_tag: 0,
            memory_class: 0,
            sync_mode: 0,
            reserved: [0; 5],
        }
    }
}

/// What `buffer_sync` tells. The caller sets `struct_size` to `sizeof(HurrayBufferSync)`; the function writes no further and sets it to what it wrote.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HurrayBufferSync {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// As in `HurrayBufferInfo`.
    pub sync_mode: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Mode event: the event that readers wait for, borrowed until `event_release`. Otherwise NULL.
    pub event: *mut c_void,
    /// Mode consumer-stream: the stream that is ordered after the writes, valid until the buffer is let go. Otherwise 0.
    pub stream: usize,
}

impl HurrayBufferSync {
    /// One to be filled.
    pub(crate) const fn empty() -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            sync_mode: 0,
            reserved: [0; 3],
            event: ptr::null_mut(),
            stream: 0,
        }
    }
}

/// The bytes that `hurray_buffer_from_ptr` makes a buffer of. Set `struct_size` to `sizeof(HurrayBufferDesc)` and zero what you do not use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HurrayBufferDesc {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// `HURRAY_READ_ONLY`, `HURRAY_DECLARED`; no other bit.
    pub flags: u32,
    /// The first byte; may be NULL when there are none.
    pub data: *mut c_void,
    /// Bytes.
    pub byte_size: u64,
    /// Which device of the tagged kind; 0 for the host.
    pub device_id: u32,
    /// The device tag of `buffers.md` § 3.
    pub device_tag: u8,
    /// The memory class of `buffers.md` § 4.
    pub memory_class: u8,
    /// The sync mode of `buffers.md` § 6; 0 for the host.
    pub sync_mode: u8,
    /// Zero.
    pub reserved: u8,
    /// Mode event: the event, recorded already. Otherwise NULL.
    pub event: *mut c_void,
    /// Mode consumer-stream: the stream, which lives until the bytes are let go. Otherwise 0 or `HURRAY_NO_STREAM`.
    pub stream: usize,
    /// Lets go of the bytes: called once, on any thread, with `data` and `release_context`. May be NULL.
    pub release: Option<unsafe extern "C" fn(data: *mut c_void, context: *mut c_void)>,
    /// The second argument of `release` and of `release_after`.
    pub release_context: *mut c_void,
    /// Mode event: lets go of the event: called once, on any thread, with `event` and `event_context`, before `release`. Otherwise NULL.
    pub event_release: Option<unsafe extern "C" fn(event: *mut c_void, context: *mut c_void)>,
    /// The second argument of `event_release`.
    pub event_context: *mut c_void,
    /// Called instead of `release` where streams may still use the bytes, for memory of a stream-ordered allocator: they may be reused once `event` is
    /// complete, which is borrowed for the call. May be NULL. Without a device layer it is never called.
    pub release_after:
        Option<unsafe extern "C" fn(data: *mut c_void, context: *mut c_void, event: *mut c_void)>,
}

/// A producer's functions for the handles it made. Table and functions live as long as any handle. Every function answers 0 or a
/// `HURRAY_ERR_…`, and one that fails has changed nothing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HurrayApi {
    /// Bytes of this struct as its producer knows it.
    pub struct_size: u32,
    /// `HURRAY_C_ABI_VERSION`.
    pub abi_version: u32,
    /// Number of buffers. `list` is borrowed.
    pub list_len: Option<unsafe extern "C" fn(list: *const HurrayBufferList, out: *mut u64) -> i32>,
    /// Buffer `index`, borrowed from the list: the caller never destroys it. `HURRAY_ERR_INDEX_OUT_OF_BOUNDS` past the end, `HURRAY_ERR_RELEASED`
    /// where the buffer has been let go. `*out` is written on success only.
    pub list_get: Option<
        unsafe extern "C" fn(
            list: *const HurrayBufferList,
            index: u64,
            out: *mut *const HurrayBuffer,
        ) -> i32,
    >,
    /// Lets go of all buffers and events that are left, each exactly once, and frees list and context; `*list` becomes NULL. A NULL `*list` is a no-op.
    pub list_destroy: Option<unsafe extern "C" fn(list: *mut *mut HurrayBufferList) -> i32>,
    /// Lets go of buffer `index`, and of its event, when the work queued on `stream` by now is done; `HURRAY_NO_STREAM`: all work is done. Handles
    /// borrowed for it are dead.
    pub list_release:
        Option<unsafe extern "C" fn(list: *mut HurrayBufferList, index: u64, stream: usize) -> i32>,
    /// `list_release` of what is left, then frees list and context; `*list` becomes NULL. A NULL `*list` is a no-op. Never blocks.
    pub list_release_after:
        Option<unsafe extern "C" fn(list: *mut *mut HurrayBufferList, stream: usize) -> i32>,
    /// Writes `*out`, whose `struct_size` the caller has set. `buffer` is borrowed.
    pub buffer_info: Option<
        unsafe extern "C" fn(buffer: *const HurrayBuffer, out: *mut HurrayBufferInfo) -> i32,
    >,
    /// Writes `*out`, whose `struct_size` the caller has set: event and stream stay the producer's. `HURRAY_ERR_RELEASED` once the event has been let go.
    pub buffer_sync: Option<
        unsafe extern "C" fn(buffer: *const HurrayBuffer, out: *mut HurrayBufferSync) -> i32,
    >,
    /// Makes later work on `stream` wait for the buffer's writes, on the device. `HURRAY_NO_STREAM` is `HURRAY_ERR_INVALID_STREAM`.
    pub buffer_wait:
        Option<unsafe extern "C" fn(buffer: *const HurrayBuffer, stream: usize) -> i32>,
    /// Blocks until the bytes may be read.
    pub buffer_wait_host: Option<unsafe extern "C" fn(buffer: *const HurrayBuffer) -> i32>,
    /// All waits on the event of buffer `index` are queued: its producer may reuse it. Once per buffer; success where the buffer has no event.
    pub event_release: Option<unsafe extern "C" fn(list: *mut HurrayBufferList, index: u64) -> i32>,
    /// Text of the calling thread's last failure in this library, valid until its next; empty before the first.
    pub last_error: Option<unsafe extern "C" fn() -> *const c_char>,
}
