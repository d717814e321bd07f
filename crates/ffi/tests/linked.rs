//! The exported symbols that make buffers and lists, and those on handles of any library.
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "every handle here is made here, and destroyed or given away once"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod producer;
mod tensors;

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;

use hurray_core::memory::AlignedBytes;
use hurray_core::{SyncMode, TensorDescriptor};
use hurray_ffi::abi::*;
use hurray_ffi::access::Reach;
use hurray_ffi::{ConsumeError, Item, Tensor, TensorError, consume};
use producer::List;
use tensors::{SIZES, cuda_row, host_row, quantized};

/// What the callbacks of one buffer were called for, in order.
#[derive(Default)]
struct Calls(Mutex<Vec<&'static str>>);

impl Calls {
    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }

    fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }
}

unsafe extern "C" fn release(_: *mut c_void, context: *mut c_void) {
    unsafe { &*context.cast::<Calls>() }
        .0
        .lock()
        .unwrap()
        .push("bytes");
}

unsafe extern "C" fn release_event(_: *mut c_void, context: *mut c_void) {
    unsafe { &*context.cast::<Calls>() }
        .0
        .lock()
        .unwrap()
        .push("event");
}

unsafe extern "C" fn release_after(_: *mut c_void, _: *mut c_void, _: *mut c_void) {
    panic!("without a device layer there is no event to pass");
}

fn desc(bytes: &AlignedBytes, calls: &Calls) -> HurrayBufferDesc {
    HurrayBufferDesc {
        struct_size: size_of::<HurrayBufferDesc>() as u32,
        flags: 0,
        data: bytes.as_ptr().cast_mut().cast(),
        byte_size: bytes.len() as u64,
        device_id: 0,
        device_tag: 0,
        memory_class: 0,
        sync_mode: 0,
        reserved: 0,
        event: ptr::null_mut(),
        stream: 0,
        release: Some(release),
        release_context: calls.context(),
        event_release: None,
        event_context: ptr::null_mut(),
        release_after: Some(release_after),
    }
}

fn with_event(bytes: &AlignedBytes, calls: &Calls) -> HurrayBufferDesc {
    HurrayBufferDesc {
        device_tag: 1,
        sync_mode: 1,
        event: ptr::without_provenance_mut(0x5000),
        event_release: Some(release_event),
        event_context: calls.context(),
        ..desc(bytes, calls)
    }
}

fn made(desc: &HurrayBufferDesc) -> *mut HurrayBuffer {
    let mut buffer = ptr::null_mut();
    assert_eq!(
        unsafe { hurray_buffer_from_ptr(desc, &raw mut buffer) },
        HURRAY_OK
    );
    buffer
}

fn destroy_buffer(buffer: &mut *mut HurrayBuffer) -> i32 {
    unsafe { hurray_buffer_destroy(buffer) }
}

fn destroy_list(list: &mut *mut HurrayBufferList) -> i32 {
    unsafe { hurray_buffer_list_destroy(list) }
}

fn new_list(
    buffers: &mut [*mut HurrayBuffer],
    descriptor: &TensorDescriptor,
) -> Result<*mut HurrayBufferList, i32> {
    let bytes = descriptor.encode().unwrap();
    let mut list = ptr::null_mut();
    let (count, len) = (buffers.len() as u64, bytes.len() as u64);
    let status = unsafe {
        hurray_buffer_list_new(
            buffers.as_mut_ptr(),
            count,
            bytes.as_ptr(),
            len,
            &raw mut list,
        )
    };
    if status == HURRAY_OK {
        Ok(list)
    } else {
        Err(status)
    }
}

fn consumed(list: *mut HurrayBufferList) -> Result<Tensor, ConsumeError> {
    let mut context = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_context(list, &raw mut context) },
        HURRAY_OK
    );
    match unsafe { consume(list, context) }? {
        Item::Tensor(tensor) => Ok(tensor),
        Item::Composite(_) => panic!("a composite"),
    }
}

fn last_error() -> String {
    let text = unsafe { CStr::from_ptr(hurray_last_error()) };
    text.to_str().unwrap().to_owned()
}

#[test]
fn a_buffer_tells_what_it_was_made_of_and_its_measured_alignment() {
    let (bytes, calls) = (AlignedBytes::zeroed(300).unwrap(), Calls::default());
    let shifted = HurrayBufferDesc {
        data: bytes.as_ptr().wrapping_add(16).cast_mut().cast(),
        byte_size: 200,
        device_id: 0,
        flags: HURRAY_READ_ONLY,
        ..desc(&bytes, &calls)
    };
    let mut buffer = made(&shifted);
    let mut info = HurrayBufferInfo {
        struct_size: size_of::<HurrayBufferInfo>() as u32 + 8,
        flags: 9,
        data: ptr::null_mut(),
        byte_size: 0,
        alignment: 0,
        device_id: 9,
        device_tag: 9,
        memory_class: 9,
        sync_mode: 9,
        reserved: [9; 5],
    };
    assert_eq!(
        unsafe { hurray_buffer_info(buffer, &raw mut info) },
        HURRAY_OK
    );
    assert_eq!(
        info.struct_size as usize,
        size_of::<HurrayBufferInfo>(),
        "what was written"
    );
    assert_eq!(
        (info.data, info.byte_size, info.alignment),
        (shifted.data, 200, 16)
    );
    assert_eq!(
        (info.device_tag, info.memory_class, info.sync_mode),
        (0, 0, 0)
    );
    assert_eq!(
        (info.device_id, info.flags, info.reserved),
        (0, HURRAY_READ_ONLY, [0; 5])
    );
    assert_eq!(destroy_buffer(&mut buffer), HURRAY_OK);
    assert!(buffer.is_null());
    assert_eq!(calls.all(), ["bytes"]);
    assert_eq!(destroy_buffer(&mut buffer), HURRAY_OK, "NULL is a no-op");
    assert_eq!(calls.all(), ["bytes"]);
}

#[test]
fn a_struct_that_is_too_short_is_not_written() {
    let (bytes, calls) = (AlignedBytes::zeroed(64).unwrap(), Calls::default());
    let mut buffer = made(&desc(&bytes, &calls));
    let mut short = [24_u32, 77, 77, 77, 77, 77];
    let status = unsafe { hurray_buffer_info(buffer, short.as_mut_ptr().cast()) };
    assert_eq!(status, HURRAY_ERR_SHORT_STRUCT);
    assert_eq!(short, [24, 77, 77, 77, 77, 77]);
    assert!(last_error().contains("24 bytes"), "{}", last_error());
    assert_eq!(destroy_buffer(&mut buffer), HURRAY_OK);

    let mut desc = desc(&bytes, &calls);
    desc.struct_size = 80;
    let status = unsafe { hurray_buffer_from_ptr(&raw const desc, &raw mut buffer) };
    assert_eq!(status, HURRAY_ERR_SHORT_STRUCT);
}

#[test]
fn an_event_goes_before_the_bytes() {
    let (bytes, calls) = (AlignedBytes::zeroed(64).unwrap(), Calls::default());
    let mut buffer = made(&with_event(&bytes, &calls));
    assert_eq!(
        unsafe { hurray_buffer_wait(buffer, 1) },
        HURRAY_ERR_UNSUPPORTED
    );
    assert!(last_error().contains("buffer_sync"), "{}", last_error());
    assert_eq!(
        unsafe { hurray_buffer_wait_host(buffer) },
        HURRAY_ERR_UNSUPPORTED
    );
    assert!(calls.all().is_empty());
    assert_eq!(destroy_buffer(&mut buffer), HURRAY_OK);
    assert_eq!(calls.all(), ["event", "bytes"]);
}

#[test]
fn a_description_that_cannot_be_is_refused_and_calls_nothing() {
    type Spoil = fn(&mut HurrayBufferDesc);
    let (bytes, calls) = (AlignedBytes::zeroed(64).unwrap(), Calls::default());
    let host: [Spoil; 13] = [
        |desc| desc.device_tag = 0x09,
        |desc| desc.device_tag = 0xFF,
        |desc| desc.memory_class = 0x04,
        |desc| desc.memory_class = 0x03,
        |desc| desc.sync_mode = 3,
        |desc| desc.sync_mode = 1,
        |desc| desc.reserved = 1,
        |desc| desc.flags = 4,
        |desc| desc.data = ptr::null_mut(),
        |desc| desc.byte_size = u64::MAX,
        |desc| desc.event = ptr::dangling_mut(),
        |desc| desc.event_release = Some(release_event),
        |desc| desc.stream = 1,
    ];
    let event: [Spoil; 3] = [
        |desc| desc.event = ptr::null_mut(),
        |desc| desc.event_release = None,
        |desc| desc.stream = 7,
    ];
    let stream: [Spoil; 2] = [
        |desc| (desc.sync_mode, desc.stream) = (2, HURRAY_NO_STREAM),
        |desc| (desc.sync_mode, desc.event) = (2, ptr::null_mut()),
    ];
    let cases = (host.map(|spoil| (desc(&bytes, &calls), spoil)).into_iter())
        .chain(event.map(|spoil| (with_event(&bytes, &calls), spoil)))
        .chain(stream.map(|spoil| (with_event(&bytes, &calls), spoil)));
    for (number, (mut desc, spoil)) in cases.enumerate() {
        spoil(&mut desc);
        let mut buffer = ptr::dangling_mut();
        let status = unsafe { hurray_buffer_from_ptr(&raw const desc, &raw mut buffer) };
        assert_eq!(status, HURRAY_ERR_INVALID_ARGUMENT, "case {number}");
        assert_eq!(buffer, ptr::dangling_mut(), "nothing is written");
        assert!(!last_error().is_empty());
    }
    let mut zero = with_event(&bytes, &calls);
    (zero.sync_mode, zero.event, zero.event_release) = (2, ptr::null_mut(), None);
    let mut buffer = ptr::null_mut();
    let status = unsafe { hurray_buffer_from_ptr(&raw const zero, &raw mut buffer) };
    assert_eq!(status, HURRAY_ERR_INVALID_STREAM);
    assert!(calls.all().is_empty());
}

#[test]
fn null_arguments_are_errors() {
    let null = HURRAY_ERR_NULL_POINTER;
    let (bytes, calls) = (AlignedBytes::zeroed(64).unwrap(), Calls::default());
    let desc = desc(&bytes, &calls);
    let mut buffer = ptr::null_mut();
    let mut list = ptr::null_mut();
    let mut len = 0;
    let mut borrowed = ptr::null();
    let mut context = ptr::null();
    let (no_list, no_buffer) = (ptr::null_mut(), ptr::null());
    unsafe {
        assert_eq!(hurray_buffer_from_ptr(ptr::null(), &raw mut buffer), null);
        assert_eq!(
            hurray_buffer_from_ptr(&raw const desc, ptr::null_mut()),
            null
        );
        assert_eq!(hurray_buffer_destroy(ptr::null_mut()), null);
        assert_eq!(
            hurray_buffer_list_new(ptr::null_mut(), 1, ptr::null(), 0, &raw mut list),
            null
        );
        assert_eq!(
            hurray_buffer_list_new(ptr::null_mut(), 0, ptr::null(), 1, &raw mut list),
            null
        );
        assert_eq!(
            hurray_buffer_list_new(ptr::null_mut(), 0, ptr::null(), 0, ptr::null_mut()),
            null
        );
        assert_eq!(hurray_buffer_list_context(no_list, &raw mut context), null);
        assert_eq!(hurray_buffer_list_len(no_list, &raw mut len), null);
        assert_eq!(hurray_buffer_list_get(no_list, 0, &raw mut borrowed), null);
        assert_eq!(hurray_buffer_list_destroy(ptr::null_mut()), null);
        assert_eq!(
            hurray_buffer_list_release(no_list, 0, HURRAY_NO_STREAM),
            null
        );
        assert_eq!(hurray_buffer_list_release_after(ptr::null_mut(), 1), null);
        assert_eq!(hurray_buffer_info(no_buffer, ptr::null_mut()), null);
        assert_eq!(hurray_buffer_sync(no_buffer, ptr::null_mut()), null);
        assert_eq!(hurray_buffer_wait(no_buffer, 1), null);
        assert_eq!(hurray_buffer_wait_host(no_buffer), null);
        assert_eq!(hurray_event_release(no_list, 0), null);
        // An array of NULL handles, and NULL results of living handles.
        assert_eq!(
            hurray_buffer_list_new(&raw mut buffer, 1, ptr::null(), 0, &raw mut list),
            null
        );
        assert_eq!(
            hurray_buffer_list_new(ptr::null_mut(), 0, ptr::null(), 0, &raw mut list),
            HURRAY_OK
        );
        assert_eq!(hurray_buffer_list_len(list, ptr::null_mut()), null);
        assert_eq!(
            hurray_buffer_list_get(list, 0, ptr::null_mut()),
            HURRAY_ERR_INDEX_OUT_OF_BOUNDS
        );
        assert_eq!(hurray_buffer_list_context(list, ptr::null_mut()), null);
    }
    buffer = made(&desc);
    unsafe {
        assert_eq!(hurray_buffer_info(buffer, ptr::null_mut()), null);
        assert_eq!(hurray_buffer_sync(buffer, ptr::null_mut()), null);
    }
    assert_eq!(destroy_buffer(&mut buffer), HURRAY_OK);
    assert_eq!(destroy_list(&mut list), HURRAY_OK);
}

#[test]
fn a_list_takes_all_of_its_buffers() {
    let bytes = SIZES.map(|size| AlignedBytes::zeroed(size).unwrap());
    let calls = SIZES.map(|_| Calls::default());
    let mut buffers = [0, 1, 2].map(|i| made(&desc(&bytes[i], &calls[i])));
    let list = new_list(&mut buffers, &quantized(SIZES.map(host_row))).unwrap();
    assert_eq!(buffers, [ptr::null_mut(); 3]);
    let tensor = consumed(list).unwrap();
    assert_eq!(tensor.buffers()[1].as_ptr().cast_const(), bytes[1].as_ptr());
    let view = tensor.buffers()[0].clone();
    drop(tensor);
    let released = calls.each_ref().map(|calls| calls.all().len());
    assert_eq!(released, [0, 1, 1]);
    drop(view);
    assert_eq!(calls[0].all(), ["bytes"]);
}

#[test]
fn a_list_that_cannot_take_all_takes_none() {
    let bytes = SIZES.map(|size| AlignedBytes::zeroed(size).unwrap());
    let calls = SIZES.map(|_| Calls::default());
    let mut own = [0, 1, 2].map(|i| made(&desc(&bytes[i], &calls[i])));
    let descriptor = quantized(SIZES.map(host_row));
    let foreign = List::new(&[&descriptor]);
    let foreign_buffer = ptr::from_ref(&foreign.buffers[0])
        .cast_mut()
        .cast::<HurrayBuffer>();

    let mut borrowed = [made(&desc(&bytes[0], &calls[0]))];
    let mut other = new_list(&mut borrowed, &descriptor).unwrap();
    let mut in_list = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_get(other, 0, &raw mut in_list) },
        HURRAY_OK
    );

    let [a, b, _] = own;
    let twice = HURRAY_ERR_INVALID_ARGUMENT;
    for (third, expected) in [
        (a, twice),
        (b, twice),
        (foreign_buffer, HURRAY_ERR_INVALID_ARGUMENT),
        (in_list.cast_mut(), HURRAY_ERR_INVALID_ARGUMENT),
        (ptr::null_mut(), HURRAY_ERR_NULL_POINTER),
    ] {
        let mut entries = [a, b, third];
        assert_eq!(new_list(&mut entries, &descriptor), Err(expected));
        assert_eq!(entries, [a, b, third]);
        assert!(calls.iter().all(|calls| calls.all().is_empty()));
    }
    let mut not_ours = in_list.cast_mut();
    assert_eq!(destroy_buffer(&mut not_ours), HURRAY_ERR_INVALID_ARGUMENT);
    not_ours = foreign_buffer;
    assert_eq!(destroy_buffer(&mut not_ours), HURRAY_ERR_INVALID_ARGUMENT);
    assert!(!not_ours.is_null());

    let mut list = new_list(&mut own, &descriptor).unwrap();
    assert_eq!(destroy_list(&mut list), HURRAY_OK);
    assert_eq!(destroy_list(&mut other), HURRAY_OK);
    assert_eq!(calls.each_ref().map(|calls| calls.all().len()), [2, 1, 1]);
}

/// Our own lists are checked like any other where they were not made of a tensor.
#[test]
fn a_linked_producer_can_lie_and_is_refused() {
    let (bytes, calls) = (AlignedBytes::zeroed(128).unwrap(), Calls::default());
    let descriptor = quantized(SIZES.map(host_row));
    let mut one = [made(&desc(&bytes, &calls))];
    let mut list = new_list(&mut one, &descriptor).unwrap();
    let (found, expected) = (1, 3);
    assert_eq!(
        consumed(list).unwrap_err(),
        ConsumeError::ListLength { found, expected }
    );
    assert_eq!(destroy_list(&mut list), HURRAY_OK);

    let mut three = [(); 3].map(|()| {
        made(&HurrayBufferDesc {
            byte_size: 31,
            ..desc(&bytes, &calls)
        })
    });
    let mut list = new_list(&mut three, &descriptor).unwrap();
    let (buffer, row, found) = (0, 128, 31);
    assert_eq!(
        consumed(list).unwrap_err(),
        TensorError::TooSmall { buffer, row, found }.into()
    );
    assert_eq!(calls.all().len(), 1, "the list is still whole");
    assert_eq!(destroy_list(&mut list), HURRAY_OK);
    assert_eq!(calls.all().len(), 4);
}

#[test]
fn an_event_of_a_linked_producer_is_relayed_and_released_once() {
    let bytes = SIZES.map(|size| AlignedBytes::zeroed(size).unwrap());
    let calls = SIZES.map(|_| Calls::default());
    let mut buffers = [0, 1, 2].map(|i| made(&with_event(&bytes[i], &calls[i])));
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::Event));
    let tensor = consumed(new_list(&mut buffers, &quantized(rows)).unwrap()).unwrap();
    assert!(tensor.check_access(Reach::Device).is_err());
    let mut list = tensor.export().unwrap().into_raw().as_ptr();
    assert_eq!(unsafe { hurray_event_release(list, 0) }, HURRAY_OK);
    assert!(calls[0].all().is_empty(), "the tensor still lends it");
    drop(tensor);
    assert_eq!(calls[0].all(), ["event"]);
    assert_eq!(
        unsafe { hurray_event_release(list, 0) },
        HURRAY_ERR_RELEASED
    );
    assert_eq!(destroy_list(&mut list), HURRAY_OK);
    assert!(calls.iter().all(|calls| calls.all() == ["event", "bytes"]));
}

#[test]
fn linked_symbols_work_on_the_handles_of_another_library() {
    let list = List::new(&[&quantized(SIZES.map(host_row))]);
    let log = std::sync::Arc::clone(&list.log);
    let (mut list, _) = list.into_capsule();
    let mut len = 0;
    assert_eq!(
        unsafe { hurray_buffer_list_len(list, &raw mut len) },
        HURRAY_OK
    );
    assert_eq!(len, 3);
    let mut buffer = ptr::null();
    let status = unsafe { hurray_buffer_list_get(list, 3, &raw mut buffer) };
    assert_eq!(status, HURRAY_ERR_INDEX_OUT_OF_BOUNDS);
    assert!(last_error().contains("no words"), "{}", last_error());
    assert_eq!(
        unsafe { hurray_buffer_list_get(list, 2, &raw mut buffer) },
        HURRAY_OK
    );
    assert_eq!(unsafe { hurray_buffer_wait(buffer, 3) }, HURRAY_OK);
    assert_eq!(*log.waits.lock().unwrap(), [3]);
    let mut context = ptr::null();
    let status = unsafe { hurray_buffer_list_context(list, &raw mut context) };
    assert_eq!(
        status, HURRAY_ERR_INVALID_ARGUMENT,
        "made by another library"
    );
    assert_eq!(
        unsafe { hurray_buffer_list_release(list, 1, HURRAY_NO_STREAM) },
        HURRAY_OK
    );
    assert_eq!(log.counts(), [0, 1, 0]);
    assert_eq!(destroy_list(&mut list), HURRAY_OK);
    assert!(list.is_null());
    assert_eq!(log.counts(), [1, 1, 1]);
}

#[test]
fn a_panic_of_an_owner_does_not_cross() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("an owner's drop");
        }
    }
    let mut memory = AlignedBytes::zeroed(64).unwrap();
    let address = memory.as_mut_ptr();
    let owner = hurray_ffi::Owner::Rust(Box::new((memory, Bomb)));
    let (place, flags) = (hurray_ffi::Place::HOST, hurray_ffi::BufferFlags::empty());
    let ready = hurray_ffi::Readiness::Ready;
    let buffer = unsafe { hurray_ffi::Buffer::from_owner(address, 64, place, ready, flags, owner) };
    let descriptor = tensors::plain(hurray_core::ElementType::Uint8, &[64], host_row(64));
    let tensor = Tensor::new(descriptor, [buffer.unwrap()].as_slice()).unwrap();
    let mut list = tensor.export().unwrap().into_raw().as_ptr();
    drop(tensor);
    let status = unsafe { hurray_buffer_list_release(list, 0, HURRAY_NO_STREAM) };
    assert_eq!(status, HURRAY_ERR_INTERNAL);
    assert!(last_error().contains("panicked"), "{}", last_error());
    assert_eq!(destroy_list(&mut list), HURRAY_OK);
}

#[test]
fn the_last_error_is_the_threads_own() {
    let mut len = 0;
    let status = unsafe { hurray_buffer_list_len(ptr::null(), &raw mut len) };
    assert_eq!(status, HURRAY_ERR_NULL_POINTER);
    let here = last_error();
    assert!(!here.is_empty());
    std::thread::spawn(|| assert_eq!(last_error(), ""))
        .join()
        .unwrap();
    assert_eq!(last_error(), here);
}
