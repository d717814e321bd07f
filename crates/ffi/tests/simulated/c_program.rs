//! `tests/c/device.c`, which makes lists of device memory and reads others'.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use hurray_core::{Stream, SyncMode};
use hurray_cuda::CudaStream;
use hurray_ffi::abi::*;

use crate::scene::Made;
use crate::tensors::{SIZES, cuda_row, quantized};

const LIBRARY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/libdevice.so");

/// Compiles it: once, before any scenario runs.
pub(crate) fn compile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("cc");
    command.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
    ]);
    command.args(["-shared", "-fPIC", "-o", LIBRARY]);
    command.arg("-I").arg(root.join("include"));
    command.arg(root.join("../../tests/c/device.c"));
    let status = command.status().expect("a C compiler");
    assert!(status.success(), "{command:?}");
}

/// `DeviceBuffer` of `device.h`.
#[repr(C)]
struct DeviceBuffer {
    byte_size: u64,
    stream: usize,
    sync_mode: u8,
}

/// `Linked` of `device.h`.
#[repr(C)]
struct Linked {
    buffer_from_ptr: unsafe extern "C" fn(*const HurrayBufferDesc, *mut *mut HurrayBuffer) -> i32,
    list_new: unsafe extern "C" fn(
        *mut *mut HurrayBuffer,
        u64,
        *const u8,
        u64,
        *mut *mut HurrayBufferList,
    ) -> i32,
    list_context:
        unsafe extern "C" fn(*const HurrayBufferList, *mut *const HurrayCapsuleContext) -> i32,
    list_destroy: unsafe extern "C" fn(*mut *mut HurrayBufferList) -> i32,
}

static LINKED: Linked = Linked {
    buffer_from_ptr: hurray_buffer_from_ptr,
    list_new: hurray_buffer_list_new,
    list_context: hurray_buffer_list_context,
    list_destroy: hurray_buffer_list_destroy,
};

/// Who makes a list.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Producer {
    /// The C program, with a table of its own.
    Table,
    /// The C program, with our functions and a callback that knows no stream.
    Callback,
    /// The same with `release_after`.
    Ordered,
}

/// How the C program gives back what it has read: the enumeration of `device.h`.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum How {
    Each = 0,
    After = 1,
    Own = 2,
}

/// A list and its context.
pub(crate) type List = (*mut HurrayBufferList, *const HurrayCapsuleContext);

fn symbol(name: &CStr) -> *mut c_void {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let handle = *HANDLE.get_or_init(|| {
        // The driver's functions are looked for among what is loaded globally.
        let global = libc::RTLD_NOW | libc::RTLD_GLOBAL;
        assert!(!unsafe { libc::dlopen(c"libcuda.so".as_ptr(), global) }.is_null());
        let path = std::ffi::CString::new(LIBRARY).unwrap();
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) }.expose_provenance()
    });
    let handle = std::ptr::with_exposed_provenance_mut(handle);
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!symbol.is_null(), "{name:?}");
    symbol
}

/// A `[4, 64]` int4 tensor of the C program's, whose buffers are in these modes, each written on its own stream.
pub(crate) fn make(
    producer: Producer,
    modes: [SyncMode; 3],
    streams: &[CudaStream; 3],
) -> Made<List> {
    let numbers = streams.each_ref();
    let numbers = numbers.map(|stream| stream.stream().number().get());
    make_on(producer, modes, numbers)
}

/// The same, on streams with these numbers.
pub(crate) fn make_on(producer: Producer, modes: [SyncMode; 3], streams: [usize; 3]) -> Made<List> {
    type New = unsafe extern "C" fn(
        *const u8,
        u64,
        *const DeviceBuffer,
        u64,
        *mut *mut HurrayBufferList,
        *mut *const HurrayCapsuleContext,
    ) -> i32;
    type NewLinked = unsafe extern "C" fn(
        *const Linked,
        i32,
        *const u8,
        u64,
        *const DeviceBuffer,
        u64,
        *mut *mut HurrayBufferList,
        *mut *const HurrayCapsuleContext,
    ) -> i32;
    let bytes = descriptor(modes)?;
    let (descriptor, len) = (bytes.as_ptr(), bytes.len() as u64);
    let said = [0, 1, 2].map(|index| DeviceBuffer {
        byte_size: SIZES[index] as u64,
        stream: streams[index],
        sync_mode: modes[index].to_byte(),
    });
    let said = said.as_ptr();
    let (mut list, mut context) = (std::ptr::null_mut(), std::ptr::null());
    let status = match producer {
        Producer::Table => {
            let new: New = unsafe { std::mem::transmute(symbol(c"device_list_new")) };
            unsafe { new(descriptor, len, said, 3, &raw mut list, &raw mut context) }
        }
        Producer::Callback | Producer::Ordered => {
            let new: NewLinked = unsafe { std::mem::transmute(symbol(c"linked_list_new")) };
            let ordered = i32::from(producer == Producer::Ordered);
            let (list, context) = (&raw mut list, &raw mut context);
            unsafe {
                new(
                    &raw const LINKED,
                    ordered,
                    descriptor,
                    len,
                    said,
                    3,
                    list,
                    context,
                )
            }
        }
    };
    match status {
        HURRAY_OK => Ok((list, context)),
        status => Err(format!("the C program answers {status}: {}", last_error()).into()),
    }
}

fn descriptor(modes: [SyncMode; 3]) -> Made<Vec<u8>> {
    let rows = [0, 1, 2].map(|index| cuda_row(SIZES[index], modes[index]));
    Ok(quantized(rows).encode()?)
}

/// Has the C program read a list on a stream, and give it back.
pub(crate) fn consume((list, context): List, stream: &Stream, how: How) -> Made<()> {
    type Consume =
        unsafe extern "C" fn(*mut HurrayBufferList, *const HurrayCapsuleContext, usize, i32) -> i32;
    let consume: Consume = unsafe { std::mem::transmute(symbol(c"device_consume")) };
    match unsafe { consume(list, context, stream.number().get(), how as i32) } {
        HURRAY_OK => Ok(()),
        status => Err(format!("the C program answers {status}: {}", last_error()).into()),
    }
}

/// What our functions said last.
pub(crate) fn last_error() -> String {
    let text = unsafe { CStr::from_ptr(hurray_last_error()) };
    text.to_string_lossy().into_owned()
}

fn number(name: &CStr) -> u64 {
    let number: extern "C" fn() -> u64 = unsafe { std::mem::transmute(symbol(name)) };
    number()
}

/// Lists, buffers and events of the C program that have not been let go; wrong releases, of which there is none.
pub(crate) fn live() -> [u64; 3] {
    assert_eq!(number(c"device_wrong_releases"), 0);
    [
        c"device_live_lists",
        c"device_live_buffers",
        c"device_live_events",
    ]
    .map(number)
}

/// Buffers of the C program that were let go in a stream's order, and the stream of the last list of its own.
pub(crate) fn ordered_releases() -> (u64, usize) {
    (
        number(c"device_ordered_releases"),
        number(c"device_last_stream") as usize,
    )
}
