//! Another library: it fills in a table of its own, and notes what is asked of it.
#![allow(dead_code, reason = "each test crate uses its part")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "this is the C side, whose pointers are its own lists"
)]

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hurray_core::TensorDescriptor;
use hurray_core::memory::AlignedBytes;
use hurray_ffi::abi::{
    HURRAY_C_ABI_VERSION, HURRAY_ERR_INDEX_OUT_OF_BOUNDS, HURRAY_ERR_RELEASED,
    HURRAY_ERR_UNSUPPORTED, HURRAY_NO_STREAM, HURRAY_OK, HurrayApi, HurrayBuffer, HurrayBufferInfo,
    HurrayBufferList, HurrayBufferSync, HurrayCapsuleContext,
};

/// What was asked of a producer's list.
#[derive(Default)]
pub(crate) struct Log {
    /// Times that each buffer was let go, by its own release or with the list.
    pub(crate) released: Vec<AtomicUsize>,
    /// Times that each event was let go, by its own release or with the list.
    pub(crate) events_released: Vec<AtomicUsize>,
    /// Releases of an event that had gone already.
    pub(crate) late_events: AtomicUsize,
    /// Times that the list was destroyed.
    pub(crate) destroyed: AtomicUsize,
    /// Each `list_release`.
    pub(crate) releases: Mutex<Vec<(u64, usize)>>,
    /// Each wait: the stream, 0 for the host.
    pub(crate) waits: Mutex<Vec<usize>>,
}

impl Log {
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.released
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .collect()
    }

    pub(crate) fn event_counts(&self) -> Vec<usize> {
        self.events_released
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .collect()
    }

    pub(crate) fn destroyed(&self) -> usize {
        self.destroyed.load(Ordering::SeqCst)
    }
}

/// A list of that library, which a test may spoil before it passes it on.
#[repr(C)]
pub(crate) struct List {
    pub(crate) api: *const HurrayApi,
    pub(crate) context: HurrayCapsuleContext,
    pub(crate) table: Box<HurrayApi>,
    pub(crate) buffers: Vec<BufferHead>,
    pub(crate) descriptor: Vec<u8>,
    pub(crate) log: Arc<Log>,
    /// What `list_len` says.
    pub(crate) len: u64,
    /// The index for which `list_get` fails.
    pub(crate) fails_at: Option<u64>,
    /// Whether a release with a stream is refused.
    pub(crate) refuses_streams: bool,
    bytes: Vec<AlignedBytes>,
}

/// A buffer of that library.
#[repr(C)]
pub(crate) struct BufferHead {
    pub(crate) api: *const HurrayApi,
    pub(crate) info: HurrayBufferInfo,
    pub(crate) sync: HurrayBufferSync,
    released: AtomicUsize,
    event_released: AtomicUsize,
    log: Arc<Log>,
}

/// The functions of that library.
pub(crate) fn table() -> HurrayApi {
    HurrayApi {
        struct_size: size_of::<HurrayApi>() as u32,
        abi_version: HURRAY_C_ABI_VERSION,
        list_len: Some(list_len),
        list_get: Some(list_get),
        list_destroy: Some(list_destroy),
        list_release: Some(list_release),
        list_release_after: Some(list_release_after),
        buffer_info: Some(buffer_info),
        buffer_sync: Some(buffer_sync),
        buffer_wait: Some(buffer_wait),
        buffer_wait_host: Some(buffer_wait_host),
        event_release: Some(event_release),
        last_error: Some(last_error),
    }
}

impl List {
    /// A list over fresh host memory, of the place and mode that the descriptors' rows say.
    pub(crate) fn new(descriptors: &[&TensorDescriptor]) -> Box<Self> {
        let table = Box::new(table());
        let api = &raw const *table;
        let mut encoded = Vec::new();
        let mut buffers = Vec::new();
        let mut bytes = Vec::new();
        let rows: Vec<_> = descriptors.iter().flat_map(|d| &d.buffers).collect();
        let counters = || rows.iter().map(|_| AtomicUsize::new(0)).collect();
        let log = Arc::new(Log {
            released: counters(),
            events_released: counters(),
            ..Log::default()
        });
        for descriptor in descriptors {
            encoded.extend(descriptor.encode().unwrap());
        }
        for (index, row) in rows.iter().enumerate() {
            let mut memory = AlignedBytes::zeroed(row.byte_size as usize).unwrap();
            let mode = row.sync_mode.to_byte();
            buffers.push(BufferHead {
                api,
                info: HurrayBufferInfo {
                    struct_size: size_of::<HurrayBufferInfo>() as u32,
                    flags: 0,
                    data: memory.as_mut_ptr().cast(),
                    byte_size: row.byte_size,
                    alignment: 64,
                    device_id: 0,
                    device_tag: row.device.to_byte(),
                    memory_class: row.memory_class.to_byte(),
                    sync_mode: mode,
                    reserved: [0; 5],
                },
                sync: HurrayBufferSync {
                    struct_size: size_of::<HurrayBufferSync>() as u32,
                    sync_mode: mode,
                    reserved: [0; 3],
                    event: if mode == 1 {
                        ptr::without_provenance_mut::<c_void>(0x1000 + index)
                    } else {
                        ptr::null_mut()
                    },
                    stream: if mode == 2 { 0x2000 + index } else { 0 },
                },
                released: AtomicUsize::new(0),
                event_released: AtomicUsize::new(0),
                log: Arc::clone(&log),
            });
            bytes.push(memory);
        }
        let len = buffers.len() as u64;
        let mut list = Box::new(Self {
            api,
            context: HurrayCapsuleContext {
                abi_version: HURRAY_C_ABI_VERSION,
                struct_size: size_of::<HurrayCapsuleContext>() as u32,
                descriptor: ptr::null(),
                descriptor_len: 0,
                api,
            },
            table,
            buffers,
            descriptor: encoded,
            log,
            len,
            fails_at: None,
            refuses_streams: false,
            bytes,
        });
        list.context.descriptor = list.descriptor.as_ptr();
        list.context.descriptor_len = list.descriptor.len() as u64;
        list
    }

    /// As a capsule has it; whoever gets it owns the list.
    pub(crate) fn into_capsule(
        self: Box<Self>,
    ) -> (*mut HurrayBufferList, *const HurrayCapsuleContext) {
        let list = Box::into_raw(self);
        (list.cast(), unsafe { &raw const (*list).context })
    }
}

/// Destroys a list, as a capsule that nobody consumed does.
pub(crate) fn destroy(mut list: *mut HurrayBufferList) {
    assert_eq!(unsafe { list_destroy(&raw mut list) }, HURRAY_OK);
}

fn list<'a>(list: *const HurrayBufferList) -> &'a List {
    unsafe { &*list.cast::<List>() }
}

fn buffer<'a>(buffer: *const HurrayBuffer) -> &'a BufferHead {
    unsafe { &*buffer.cast::<BufferHead>() }
}

unsafe extern "C" fn list_len(handle: *const HurrayBufferList, out: *mut u64) -> i32 {
    unsafe { *out = list(handle).len };
    HURRAY_OK
}

unsafe extern "C" fn list_get(
    handle: *const HurrayBufferList,
    index: u64,
    out: *mut *const HurrayBuffer,
) -> i32 {
    let list = list(handle);
    if list.fails_at == Some(index) {
        return HURRAY_ERR_RELEASED;
    }
    let Some(buffer) = list.buffers.get(index as usize) else {
        return HURRAY_ERR_INDEX_OUT_OF_BOUNDS;
    };
    unsafe { *out = ptr::from_ref(buffer).cast() };
    HURRAY_OK
}

fn let_go(list: &List, index: usize) -> i32 {
    if list.buffers[index].released.swap(1, Ordering::SeqCst) == 0 {
        let _ = let_event_go(list, index);
        list.log.released[index].fetch_add(1, Ordering::SeqCst);
        HURRAY_OK
    } else {
        HURRAY_ERR_RELEASED
    }
}

fn let_event_go(list: &List, index: usize) -> i32 {
    let buffer = &list.buffers[index];
    if buffer.sync.event.is_null() {
        return HURRAY_OK;
    }
    if buffer.event_released.swap(1, Ordering::SeqCst) == 0 {
        list.log.events_released[index].fetch_add(1, Ordering::SeqCst);
        HURRAY_OK
    } else {
        HURRAY_ERR_RELEASED
    }
}

unsafe extern "C" fn list_destroy(handle: *mut *mut HurrayBufferList) -> i32 {
    let taken = unsafe { Box::from_raw((*handle).cast::<List>()) };
    for index in 0..taken.buffers.len() {
        let _ = let_go(&taken, index);
    }
    taken.log.destroyed.fetch_add(1, Ordering::SeqCst);
    unsafe { *handle = ptr::null_mut() };
    HURRAY_OK
}

unsafe extern "C" fn list_release(handle: *mut HurrayBufferList, index: u64, stream: usize) -> i32 {
    let list = list(handle);
    list.log.releases.lock().unwrap().push((index, stream));
    if list.refuses_streams && stream != HURRAY_NO_STREAM {
        return HURRAY_ERR_UNSUPPORTED;
    }
    let_go(list, index as usize)
}

unsafe extern "C" fn list_release_after(handle: *mut *mut HurrayBufferList, _: usize) -> i32 {
    unsafe { list_destroy(handle) }
}

unsafe extern "C" fn buffer_info(handle: *const HurrayBuffer, out: *mut HurrayBufferInfo) -> i32 {
    unsafe { *out = buffer(handle).info };
    HURRAY_OK
}

unsafe extern "C" fn buffer_sync(handle: *const HurrayBuffer, out: *mut HurrayBufferSync) -> i32 {
    unsafe { *out = buffer(handle).sync };
    HURRAY_OK
}

unsafe extern "C" fn buffer_wait(handle: *const HurrayBuffer, stream: usize) -> i32 {
    buffer(handle).log.waits.lock().unwrap().push(stream);
    HURRAY_OK
}

unsafe extern "C" fn buffer_wait_host(handle: *const HurrayBuffer) -> i32 {
    unsafe { buffer_wait(handle, 0) }
}

unsafe extern "C" fn event_release(handle: *mut HurrayBufferList, index: u64) -> i32 {
    let list = list(handle);
    let status = let_event_go(list, index as usize);
    if status == HURRAY_ERR_RELEASED {
        list.log.late_events.fetch_add(1, Ordering::SeqCst);
    }
    status
}

unsafe extern "C" fn last_error() -> *const c_char {
    c"the other library has no words".as_ptr()
}
