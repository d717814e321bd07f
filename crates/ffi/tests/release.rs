//! Every owner is let go exactly once, on every path and from any thread.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every handle here is made here, and destroyed or given away once"
)]

mod producer;
mod tensors;

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use hurray_core::memory::AlignedBytes;
use hurray_core::{
    CompositeHead, CompositionRule, DeviceTag, ElementType, Layout, SyncMode, TensorDescriptor,
};
use hurray_ffi::abi::*;
use hurray_ffi::{
    Buffer, BufferError, BufferFlags, Callback, Composite, Item, Owner, Place, PythonObject,
    Readiness, Tensor, consume,
};
use producer::List;
use tensors::{SIZES, cuda_row, host_row, host_tensor, quantized};

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A buffer of `size` bytes, and how often its owner was let go.
fn counted(size: usize) -> (Buffer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let mut bytes = AlignedBytes::zeroed(size).unwrap();
    let address = bytes.as_mut_ptr();
    let owner = Owner::Rust(Box::new((bytes, Counted(Arc::clone(&count)))));
    let (ready, flags) = (Readiness::Ready, BufferFlags::empty());
    let buffer = unsafe { Buffer::from_owner(address, size, Place::HOST, ready, flags, owner) };
    (buffer.unwrap(), count)
}

/// A tensor whose three owners count.
fn counted_tensor() -> (Tensor, [Arc<AtomicUsize>; 3]) {
    let [a, b, c] = SIZES.map(counted);
    let descriptor = quantized(SIZES.map(host_row));
    let tensor = Tensor::new(descriptor, [a.0, b.0, c.0].as_slice()).unwrap();
    (tensor, [a.1, b.1, c.1])
}

fn values(counts: &[Arc<AtomicUsize>; 3]) -> [usize; 3] {
    counts.each_ref().map(|count| count.load(Ordering::SeqCst))
}

fn tensor(item: Item) -> Tensor {
    match item {
        Item::Tensor(tensor) => tensor,
        Item::Composite(_) => panic!("a composite"),
    }
}

fn exported(tensor: &Tensor) -> (*mut HurrayBufferList, *const HurrayCapsuleContext) {
    let list = tensor.export().unwrap();
    let context = list.context().as_ptr().cast_const();
    (list.into_raw().as_ptr(), context)
}

fn last_error() -> String {
    let text = unsafe { CStr::from_ptr(hurray_last_error()) };
    text.to_str().unwrap().to_owned()
}

#[test]
fn dropping_the_last_reference_lets_go() {
    let (tensor, counts) = counted_tensor();
    let clone = tensor.clone();
    let view = tensor.buffers()[2].slice(4, 8).unwrap();
    drop(tensor);
    assert_eq!(values(&counts), [0, 0, 0]);
    drop(clone);
    assert_eq!(values(&counts), [1, 1, 0]);
    drop(view);
    assert_eq!(values(&counts), [1, 1, 1]);
}

#[test]
fn an_export_that_nobody_consumes_lets_go_with_its_list() {
    let (tensor, counts) = counted_tensor();
    let list = tensor.export().unwrap();
    drop(tensor);
    assert_eq!(values(&counts), [0, 0, 0]);
    drop(list);
    assert_eq!(values(&counts), [1, 1, 1]);
}

#[test]
fn a_list_is_let_go_slot_by_slot() {
    let (tensor, counts) = counted_tensor();
    let (mut list, _) = exported(&tensor);
    drop(tensor);
    let release = |index| unsafe { hurray_buffer_list_release(list, index, HURRAY_NO_STREAM) };
    assert_eq!(release(1), HURRAY_OK);
    assert_eq!(values(&counts), [0, 1, 0]);
    assert_eq!(release(1), HURRAY_ERR_RELEASED);
    assert_eq!(release(3), HURRAY_ERR_INDEX_OUT_OF_BOUNDS);
    let mut buffer = ptr::null();
    let status = unsafe { hurray_buffer_list_get(list, 1, &raw mut buffer) };
    assert_eq!(status, HURRAY_ERR_RELEASED);
    assert!(buffer.is_null());
    assert!(last_error().contains("buffer 1"), "{}", last_error());
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    assert!(list.is_null());
    assert_eq!(values(&counts), [1, 1, 1]);
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
}

#[test]
fn a_list_with_a_buffer_let_go_cannot_be_consumed_and_loses_nothing_more() {
    let (tensor, counts) = counted_tensor();
    let (mut list, context) = exported(&tensor);
    drop(tensor);
    let status = unsafe { hurray_buffer_list_release(list, 2, HURRAY_NO_STREAM) };
    assert_eq!(status, HURRAY_OK);
    let error = unsafe { consume(list, context) }.unwrap_err();
    assert!(error.to_string().contains("buffer 2"), "{error}");
    assert_eq!(values(&counts), [0, 0, 1]);
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    assert_eq!(values(&counts), [1, 1, 1]);
}

#[test]
fn one_tensor_can_be_exported_and_consumed_many_times() {
    let (tensor_0, counts) = counted_tensor();
    let mut held = Vec::new();
    for _ in 0..1000 {
        let (list, context) = exported(&tensor_0);
        held.push(tensor(unsafe { consume(list, context) }.unwrap()));
    }
    drop(tensor_0);
    held.truncate(1);
    assert_eq!(values(&counts), [0, 0, 0]);
    drop(held);
    assert_eq!(values(&counts), [1, 1, 1]);
}

#[test]
fn eight_threads_let_go_of_one_list() {
    for _ in 0..200 {
        let (tensor, counts) = counted_tensor();
        let (list, _) = exported(&tensor);
        drop(tensor);
        let address = list.expose_provenance();
        let released = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let list: *mut HurrayBufferList = ptr::with_exposed_provenance_mut(address);
                    for index in 0..3 {
                        let status =
                            unsafe { hurray_buffer_list_release(list, index, HURRAY_NO_STREAM) };
                        if status == HURRAY_OK {
                            released.fetch_add(1, Ordering::SeqCst);
                        } else {
                            assert_eq!(status, HURRAY_ERR_RELEASED);
                        }
                    }
                });
            }
        });
        assert_eq!(released.into_inner(), 3);
        assert_eq!(values(&counts), [1, 1, 1]);
        let mut list = list;
        assert_eq!(
            unsafe { hurray_buffer_list_destroy(&raw mut list) },
            HURRAY_OK
        );
        assert_eq!(values(&counts), [1, 1, 1]);
    }
}

#[test]
fn eight_threads_share_a_tensor() {
    let (tensor_0, counts) = counted_tensor();
    thread::scope(|scope| {
        for _ in 0..8 {
            let mine = tensor_0.clone();
            scope.spawn(move || {
                for _ in 0..500 {
                    let (list, context) = exported(&mine);
                    let got = tensor(unsafe { consume(list, context) }.unwrap());
                    let view = got.buffers()[1].slice(0, 4).unwrap();
                    drop(got);
                    drop(view);
                }
            });
        }
    });
    assert_eq!(values(&counts), [0, 0, 0]);
    drop(tensor_0);
    assert_eq!(values(&counts), [1, 1, 1]);
}

#[test]
fn eight_threads_let_go_of_a_foreign_list() {
    for _ in 0..100 {
        let rows = SIZES.map(|size| cuda_row(size, SyncMode::Event));
        let list = List::new(&[&quantized(rows)]);
        let log = Arc::clone(&list.log);
        let (list, context) = list.into_capsule();
        let got = tensor(unsafe { consume(list, context) }.unwrap());
        thread::scope(|scope| {
            for turn in 0..8 {
                let mine = got.clone();
                scope.spawn(move || {
                    let buffer = mine.buffers()[turn % 3].clone();
                    let list = mine.export().unwrap();
                    drop(mine);
                    drop(list);
                    drop(buffer);
                });
            }
            drop(got);
        });
        assert_eq!(log.counts(), [1, 1, 1]);
        assert_eq!(log.event_counts(), [1, 1, 1]);
        assert_eq!(log.destroyed(), 1);
    }
}

/// The event goes when the last export has let it go, before and apart from the bytes.
#[test]
fn a_foreign_event_is_lent_on_and_released_once() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::Event));
    let list = List::new(&[&quantized(rows)]);
    let log = Arc::clone(&list.log);
    let events: Vec<_> = list
        .buffers
        .iter()
        .map(|buffer| buffer.sync.event)
        .collect();
    let (list, context) = list.into_capsule();
    let got = tensor(unsafe { consume(list, context) }.unwrap());
    let (first, _) = exported(&got);
    let (second, _) = exported(&got);
    drop(got);

    let mut buffer = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_get(first, 1, &raw mut buffer) },
        HURRAY_OK
    );
    let sync = || {
        let mut sync = HurrayBufferSync {
            struct_size: size_of::<HurrayBufferSync>() as u32,
            sync_mode: 9,
            reserved: [0; 3],
            event: ptr::null_mut(),
            stream: 9,
        };
        let status = unsafe { hurray_buffer_sync(buffer, &raw mut sync) };
        (status, sync)
    };
    let (status, told) = sync();
    assert_eq!(status, HURRAY_OK);
    assert_eq!((told.sync_mode, told.event, told.stream), (1, events[1], 0));

    assert_eq!(unsafe { hurray_buffer_wait(buffer, 1) }, HURRAY_OK);
    assert_eq!(unsafe { hurray_buffer_wait(buffer, 7) }, HURRAY_OK);
    assert_eq!(unsafe { hurray_buffer_wait_host(buffer) }, HURRAY_OK);
    assert_eq!(*log.waits.lock().unwrap(), [1, 7, 0], "waits are forwarded");

    assert_eq!(unsafe { hurray_event_release(first, 1) }, HURRAY_OK);
    assert_eq!(
        unsafe { hurray_event_release(first, 1) },
        HURRAY_ERR_RELEASED
    );
    assert_eq!(sync().0, HURRAY_ERR_RELEASED);
    assert_eq!(
        log.event_counts(),
        [0, 0, 0],
        "the second export still lends it"
    );
    assert_eq!(unsafe { hurray_event_release(second, 1) }, HURRAY_OK);
    assert_eq!(log.event_counts(), [0, 1, 0]);
    assert_eq!(log.counts(), [0, 0, 0], "the bytes are let go apart");
    // A buffer that has been let go took its event along.
    assert_eq!(
        unsafe { hurray_buffer_list_release(first, 0, HURRAY_NO_STREAM) },
        HURRAY_OK
    );
    assert_eq!(
        unsafe { hurray_event_release(first, 0) },
        HURRAY_ERR_RELEASED
    );

    for mut list in [first, second] {
        assert_eq!(
            unsafe { hurray_buffer_list_destroy(&raw mut list) },
            HURRAY_OK
        );
    }
    assert_eq!(log.event_counts(), [1, 1, 1]);
    assert_eq!(log.counts(), [1, 1, 1]);
}

#[test]
fn a_stream_is_lent_on() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::ConsumerStream));
    let (list, context) = List::new(&[&quantized(rows)]).into_capsule();
    let got = tensor(unsafe { consume(list, context) }.unwrap());
    let (mut list, _) = exported(&got);
    let mut buffer = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_get(list, 2, &raw mut buffer) },
        HURRAY_OK
    );
    let mut sync = HurrayBufferSync {
        struct_size: size_of::<HurrayBufferSync>() as u32,
        sync_mode: 0,
        reserved: [0; 3],
        event: ptr::dangling_mut(),
        stream: 0,
    };
    assert_eq!(
        unsafe { hurray_buffer_sync(buffer, &raw mut sync) },
        HURRAY_OK
    );
    assert_eq!(
        (sync.sync_mode, sync.event, sync.stream),
        (2, ptr::null_mut(), 0x2002)
    );
    assert_eq!(
        unsafe { hurray_event_release(list, 2) },
        HURRAY_OK,
        "nothing to release"
    );
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
}

/// The release of buffer i is the foreign one with the last consumer's stream.
#[test]
fn a_release_with_a_stream_is_forwarded_by_the_last_holder() {
    let list = List::new(&[&quantized(SIZES.map(host_row))]);
    let log = Arc::clone(&list.log);
    let (list, context) = list.into_capsule();
    let got = tensor(unsafe { consume(list, context) }.unwrap());
    let (mut list, _) = exported(&got);
    let release = |stream| unsafe { hurray_buffer_list_release(list, 0, stream) };
    assert_eq!(
        release(5),
        HURRAY_ERR_UNSUPPORTED,
        "the tensor holds it too"
    );
    assert_eq!(release(0), HURRAY_ERR_INVALID_STREAM);
    drop(got);
    assert!(log.releases.lock().unwrap().is_empty());
    assert_eq!(release(5), HURRAY_OK);
    assert_eq!(*log.releases.lock().unwrap(), [(0, 5)]);
    assert_eq!(release(5), HURRAY_ERR_RELEASED);
    assert_eq!(
        unsafe { hurray_buffer_list_release_after(&raw mut list, 6) },
        HURRAY_OK
    );
    assert!(list.is_null());
    assert_eq!(*log.releases.lock().unwrap(), [(0, 5), (2, 6), (1, 6)]);
    assert_eq!(log.counts(), [1, 1, 1]);
    assert_eq!(log.destroyed(), 1);
}

/// The producer lets the event go with its buffer, and is not asked to a second time.
#[test]
fn a_forwarded_release_takes_the_event_along() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::Event));
    let list = List::new(&[&quantized(rows)]);
    let log = Arc::clone(&list.log);
    let (list, context) = list.into_capsule();
    let got = tensor(unsafe { consume(list, context) }.unwrap());
    let (mut list, _) = exported(&got);
    let (mut other, _) = exported(&got);
    drop(got);
    let release = |list, index| unsafe { hurray_buffer_list_release(list, index, 5) };
    assert_eq!(
        release(list, 0),
        HURRAY_ERR_UNSUPPORTED,
        "two lists hold it"
    );
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut other) },
        HURRAY_OK
    );
    assert_eq!(release(list, 0), HURRAY_OK, "{}", last_error());
    assert_eq!(unsafe { hurray_event_release(list, 1) }, HURRAY_OK);
    assert_eq!(release(list, 1), HURRAY_OK, "{}", last_error());
    assert_eq!(*log.releases.lock().unwrap(), [(0, 5), (1, 5)]);
    assert_eq!(log.event_counts(), [1, 1, 0]);
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    assert_eq!(log.event_counts(), [1, 1, 1]);
    assert_eq!(log.late_events.load(Ordering::SeqCst), 0);
    assert_eq!(log.counts(), [1, 1, 1]);
    assert_eq!(log.destroyed(), 1);
}

#[test]
fn a_release_that_the_producer_refuses_changes_nothing() {
    let mut list = List::new(&[&quantized(SIZES.map(host_row))]);
    list.refuses_streams = true;
    let log = Arc::clone(&list.log);
    let (list, context) = list.into_capsule();
    let got = tensor(unsafe { consume(list, context) }.unwrap());
    let (mut list, _) = exported(&got);
    drop(got);
    let status = unsafe { hurray_buffer_list_release(list, 0, 5) };
    assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
    assert!(last_error().contains("no words"), "{}", last_error());
    let status = unsafe { hurray_buffer_list_release_after(&raw mut list, 5) };
    assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
    assert!(!list.is_null());
    assert_eq!(log.counts(), [0, 0, 0]);
    assert_eq!(
        unsafe { hurray_buffer_list_release(list, 0, HURRAY_NO_STREAM) },
        HURRAY_OK
    );
    assert_eq!(log.counts(), [1, 0, 0]);
    let status = unsafe { hurray_buffer_list_release_after(&raw mut list, HURRAY_NO_STREAM) };
    assert_eq!(status, HURRAY_OK);
    assert_eq!(log.counts(), [1, 1, 1]);
}

#[test]
fn our_own_memory_is_not_let_go_after_a_stream() {
    let (tensor, counts) = counted_tensor();
    let (mut list, _) = exported(&tensor);
    drop(tensor);
    let status = unsafe { hurray_buffer_list_release(list, 0, 1) };
    assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
    let status = unsafe { hurray_buffer_list_release_after(&raw mut list, 1) };
    assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
    let status = unsafe { hurray_buffer_list_release_after(&raw mut list, 0) };
    assert_eq!(status, HURRAY_ERR_INVALID_STREAM);
    assert_eq!(values(&counts), [0, 0, 0]);
    assert!(!list.is_null());
    let status = unsafe { hurray_buffer_list_release_after(&raw mut list, HURRAY_NO_STREAM) };
    assert_eq!(status, HURRAY_OK);
    assert_eq!(values(&counts), [1, 1, 1]);
}

#[test]
fn a_ready_buffer_needs_no_wait() {
    let (mut list, _) = exported(&host_tensor());
    let mut buffer = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_get(list, 0, &raw mut buffer) },
        HURRAY_OK
    );
    assert_eq!(unsafe { hurray_buffer_wait(buffer, 1) }, HURRAY_OK);
    assert_eq!(unsafe { hurray_buffer_wait_host(buffer) }, HURRAY_OK);
    assert_eq!(
        unsafe { hurray_buffer_wait(buffer, 0) },
        HURRAY_ERR_INVALID_STREAM
    );
    let status = unsafe { hurray_buffer_wait(buffer, HURRAY_NO_STREAM) };
    assert_eq!(status, HURRAY_ERR_INVALID_STREAM);
    assert_eq!(unsafe { hurray_event_release(list, 0) }, HURRAY_OK);
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
}

fn group(members: Vec<Item>) -> Composite {
    let head = TensorDescriptor {
        layout: Layout::Composite(CompositeHead {
            rule: CompositionRule::Group,
            member_count: members.len() as u32,
        }),
        buffers: [].as_slice().into(),
        ..tensors::plain(ElementType::Uint8, &[], host_row(0))
    };
    Composite::new(head, members).unwrap()
}

/// A function that fails changes nothing: a list that can let go of one buffer only lets go of none, wherever that one stands.
#[test]
fn a_list_that_is_ours_in_part_is_not_let_go_in_part() {
    for own_first in [true, false] {
        let list = List::new(&[&quantized(SIZES.map(host_row))]);
        let log = Arc::clone(&list.log);
        let (list, context) = list.into_capsule();
        let foreign = unsafe { consume(list, context) }.unwrap();
        let (own, counts) = counted_tensor();
        let mut members = vec![foreign, Item::Tensor(own)];
        if own_first {
            members.reverse();
        }
        let both = group(members);
        let mut list = both.export().unwrap().into_raw().as_ptr();
        drop(both);
        let status = unsafe { hurray_buffer_list_release_after(&raw mut list, 5) };
        assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
        assert!(log.releases.lock().unwrap().is_empty());
        assert_eq!(values(&counts), [0, 0, 0]);
        let status = unsafe { hurray_buffer_list_destroy(&raw mut list) };
        assert_eq!(status, HURRAY_OK);
        assert_eq!(log.counts(), [1, 1, 1]);
        assert_eq!(values(&counts), [1, 1, 1]);
    }
}

/// Another holder's work may run on another stream.
#[test]
fn a_list_of_which_a_view_is_held_is_not_let_go_after_a_stream() {
    for held in 0..3 {
        let list = List::new(&[&quantized(SIZES.map(host_row))]);
        let log = Arc::clone(&list.log);
        let (list, context) = list.into_capsule();
        let got = tensor(unsafe { consume(list, context) }.unwrap());
        let view = got.buffers()[held].slice(0, 8).unwrap();
        let (mut list, _) = exported(&got);
        drop(got);
        let status = unsafe { hurray_buffer_list_release_after(&raw mut list, 5) };
        assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
        assert!(log.releases.lock().unwrap().is_empty());
        drop(view);
        let status = unsafe { hurray_buffer_list_release_after(&raw mut list, 5) };
        assert_eq!((status, list), (HURRAY_OK, ptr::null_mut()));
        assert_eq!(log.counts(), [1, 1, 1]);
        assert!(
            log.releases
                .lock()
                .unwrap()
                .iter()
                .all(|release| release.1 == 5)
        );
    }
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_call(data: *mut c_void, context: *mut c_void) {
    assert_eq!((data.addr(), context.addr()), (0x40, 0x77));
    CALLED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_callback_and_a_python_object_are_let_go_once() {
    let at = ptr::without_provenance_mut::<c_void>;
    let callback = unsafe { Callback::new(at(0x40), at(0x77), Some(count_call)) };
    let (ready, flags) = (Readiness::Ready, BufferFlags::READ_ONLY);
    let owner = Owner::Callback(callback);
    let buffer = unsafe {
        Buffer::from_owner(
            at(0x40).cast(),
            64,
            Place::HOST,
            ready.clone(),
            flags,
            owner,
        )
    };
    let buffer = buffer.unwrap();
    let clone = buffer.clone();
    drop(buffer);
    assert_eq!(CALLED.load(Ordering::SeqCst), 0);
    drop(clone);
    assert_eq!(CALLED.load(Ordering::SeqCst), 1);

    unsafe fn drop_count(object: NonNull<c_void>) {
        drop(unsafe { Arc::from_raw(object.as_ptr().cast::<AtomicUsize>()) });
    }
    let object = Arc::new(AtomicUsize::new(0));
    let raw = NonNull::new(Arc::into_raw(Arc::clone(&object)).cast_mut().cast()).unwrap();
    let owner = Owner::Python(unsafe { PythonObject::new(raw, drop_count) });
    let buffer =
        unsafe { Buffer::from_owner(at(0x40).cast(), 64, Place::HOST, ready, flags, owner) };
    assert_eq!(Arc::strong_count(&object), 2);
    drop(buffer);
    assert_eq!(Arc::strong_count(&object), 1);
}

/// What a release function finds when it comes back to the library that called it.
struct Returns {
    list: AtomicPtr<HurrayBufferList>,
    statuses: Mutex<Vec<i32>>,
}

unsafe extern "C" fn come_back(_: *mut c_void, context: *mut c_void) {
    let returns = unsafe { &*context.cast::<Returns>() };
    let list = returns.list.load(Ordering::SeqCst);
    let mut len = 0;
    let mut desc: HurrayBufferDesc = unsafe { std::mem::zeroed() };
    desc.struct_size = size_of::<HurrayBufferDesc>() as u32;
    let mut buffer = ptr::null_mut();
    let statuses = [
        unsafe { hurray_buffer_list_len(list, &raw mut len) },
        unsafe { hurray_buffer_list_release(list, 0, HURRAY_NO_STREAM) },
        unsafe { hurray_buffer_list_release(list, 1, HURRAY_NO_STREAM) },
        unsafe { hurray_buffer_from_ptr(&raw const desc, &raw mut buffer) },
        unsafe { hurray_buffer_destroy(&raw mut buffer) },
    ];
    returns.statuses.lock().unwrap().extend(statuses);
}

/// Nothing is locked and nothing half done while another library's function runs.
#[test]
fn a_release_function_may_come_back() {
    let returns = Box::new(Returns {
        list: AtomicPtr::new(ptr::null_mut()),
        statuses: Mutex::default(),
    });
    let context = ptr::from_ref(&*returns).cast_mut().cast();
    let (second, count) = counted(64);
    let mut bytes = AlignedBytes::zeroed(64).unwrap();
    let callback = unsafe { Callback::new(ptr::null_mut(), context, Some(come_back)) };
    let (ready, flags) = (Readiness::Ready, BufferFlags::empty());
    let first = unsafe {
        let owner = Owner::Callback(callback);
        Buffer::from_owner(bytes.as_mut_ptr(), 64, Place::HOST, ready, flags, owner)
    };
    let descriptor = TensorDescriptor {
        layout: Layout::Private(hurray_core::PrivateLayout {
            tag: hurray_core::PrivateTag::new(0xF0).unwrap(),
            id: 7,
            data: Vec::new(),
        }),
        buffers: [host_row(64); 2].as_slice().into(),
        ..tensors::plain(ElementType::Uint8, &[64], host_row(64))
    };
    let tensor = Tensor::new(descriptor, [first.unwrap(), second].as_slice()).unwrap();
    let (mut list, _) = exported(&tensor);
    drop(tensor);
    returns.list.store(list, Ordering::SeqCst);
    assert_eq!(
        unsafe { hurray_buffer_list_release(list, 0, HURRAY_NO_STREAM) },
        HURRAY_OK
    );
    assert_eq!(
        *returns.statuses.lock().unwrap(),
        [
            HURRAY_OK,
            HURRAY_ERR_RELEASED,
            HURRAY_OK,
            HURRAY_OK,
            HURRAY_OK
        ]
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// An owner that panics keeps no other one from being let go.
#[test]
fn a_panic_among_owners_loses_none() {
    struct Bomb(#[expect(dead_code, reason = "held")] AlignedBytes);
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("an owner's drop");
        }
    }
    let [(first, before), _, (third, after)] = SIZES.map(counted);
    let mut bytes = AlignedBytes::zeroed(SIZES[1]).unwrap();
    let address = bytes.as_mut_ptr();
    let (ready, flags) = (Readiness::Ready, BufferFlags::empty());
    let owner = Owner::Rust(Box::new(Bomb(bytes)));
    let second = unsafe { Buffer::from_owner(address, SIZES[1], Place::HOST, ready, flags, owner) };
    let descriptor = quantized(SIZES.map(host_row));
    let buffers = [first, second.unwrap(), third];
    let (mut list, _) = exported(&Tensor::new(descriptor, buffers.as_slice()).unwrap());
    drop(buffers);
    let status = unsafe { hurray_buffer_list_destroy(&raw mut list) };
    assert_eq!((status, list), (HURRAY_ERR_INTERNAL, ptr::null_mut()));
    assert_eq!(before.load(Ordering::SeqCst), 1);
    assert_eq!(after.load(Ordering::SeqCst), 1);
}

#[test]
fn numbers_that_cannot_be_let_the_owner_go() {
    let make = |address, len, place, readiness| {
        let count = Arc::new(AtomicUsize::new(0));
        let owner = Owner::Rust(Box::new(Counted(Arc::clone(&count))));
        let address = ptr::without_provenance_mut(address);
        let flags = BufferFlags::empty();
        let made = unsafe { Buffer::from_owner(address, len, place, readiness, flags, owner) };
        let error = made.unwrap_err();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        error
    };
    let ready = Readiness::Ready;
    assert_eq!(
        make(0, 1, Place::HOST, ready.clone()),
        BufferError::Null { len: 1 }
    );
    for (address, len) in [
        (usize::MAX, 1),
        (64, usize::MAX),
        (64, isize::MAX as usize + 1),
    ] {
        let error = make(address, len, Place::HOST, ready.clone());
        assert_eq!(
            error,
            BufferError::Wraps {
                address,
                len: len as u64
            }
        );
    }
    let place = Place {
        device: DeviceTag::WebGpu,
        memory_class: hurray_core::MemoryClass::Unified,
        device_id: 0,
    };
    assert_eq!(
        make(64, 1, place, ready.clone()),
        BufferError::Place { place }
    );
    let mode = SyncMode::Event;
    let declared = Readiness::Declared(mode);
    assert_eq!(
        make(64, 1, Place::HOST, declared),
        BufferError::CpuMode { mode }
    );
}

/// An owner's memory may begin anywhere: the alignment is what the address has.
#[test]
fn odd_addresses_are_measured() {
    let (buffer, count) = counted(4096 + 128);
    for offset in 0..128_usize {
        let slice = buffer.slice(offset, 64).unwrap();
        let expected = if offset == 0 {
            4096
        } else {
            1 << offset.trailing_zeros()
        };
        assert_eq!(slice.alignment(), expected);
        assert_eq!(slice.handle().alignment, expected);
        let made = Tensor::new(
            tensors::plain(hurray_core::ElementType::Uint8, &[64], host_row(64)),
            [slice].as_slice(),
        );
        assert_eq!(made.is_ok(), offset % 64 == 0, "{offset}");
    }
    assert_eq!(buffer.slice(10, 0).unwrap().alignment(), 1);
    let (offset, len, bytes) = (4096 + 100, 29, 4096 + 128);
    assert_eq!(
        buffer.slice(offset, len).unwrap_err(),
        BufferError::Slice { offset, len, bytes }
    );
    assert!(buffer.slice(usize::MAX, 2).is_err());
    drop(buffer);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_mapped_file_is_an_owner() {
    let path = std::env::temp_dir().join(format!("hurray-map-{}", std::process::id()));
    std::fs::write(&path, [7_u8; 5000]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let mut map = unsafe { memmap2::MmapOptions::new().map_copy(&file) }.unwrap();
    std::fs::remove_file(&path).unwrap();
    let (address, len) = (map.as_mut_ptr(), map.len());
    let (ready, flags) = (Readiness::Ready, BufferFlags::READ_ONLY);
    let owner = Owner::Map(map);
    let buffer = unsafe { Buffer::from_owner(address, len, Place::HOST, ready, flags, owner) };
    let view = buffer.unwrap().slice(4096, 904).unwrap();
    assert_eq!(view.alignment(), 4096);
    assert_eq!(unsafe { view.as_ptr().wrapping_add(903).read() }, 7);
    assert!(view.flags().contains(BufferFlags::READ_ONLY));
}
