//! Capsules of another library, whose list was made through the C ABI: descriptors that say anything, and true buffers.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use hurray_core::memory::AlignedBytes;
use hurray_core::{BufferHandle, DeviceTag, SyncMode, TensorDescriptor};
use hurray_ffi::abi::{
    HURRAY_OK, HurrayBuffer, HurrayBufferDesc, HurrayBufferList, HurrayCapsuleContext,
    hurray_buffer_from_ptr, hurray_buffer_list_context, hurray_buffer_list_destroy,
    hurray_buffer_list_new,
};
use hurray_ffi::{ConsumeError, Item, Place, TensorError, consume};

use crate::tensors::{check, each_tensor};
use crate::{Reached, allowance, within};

pub(crate) fn read(input: &[u8]) -> Reached {
    let (descriptors, rows) = split(input);
    let memory: Vec<AlignedBytes> = rows
        .iter()
        .map(|(_, bytes)| AlignedBytes::copy_of(bytes).expect("memory for an input"))
        .collect();
    let released = AtomicUsize::new(0);
    let reached = within(allowance(input), || {
        follow(&descriptors, &rows, &memory, &released)
    });
    assert_eq!(released.into_inner(), rows.len(), "buffers let go");
    reached
}

type Row<'a> = (BufferHandle, &'a [u8]);

/// The descriptors of a stream without its buffers, and each row that can be with the bytes that are there. What does not decode goes with the
/// descriptors.
fn split(input: &[u8]) -> (Vec<u8>, Vec<Row<'_>>) {
    let (mut descriptors, mut rows) = (Vec::new(), Vec::new());
    let mut rest = input;
    while let Ok((descriptor, len)) = TensorDescriptor::decode(rest) {
        descriptors.extend(rest.split_off(..len).unwrap_or_default());
        for row in descriptor.buffers {
            let len = usize::try_from(row.byte_size).unwrap_or(usize::MAX);
            let bytes = rest.split_off(..len.min(rest.len())).unwrap_or_default();
            rows.push((row, bytes));
        }
    }
    descriptors.extend(rest);
    // A list cannot hold what no buffer can be.
    rows.retain(|(row, _)| {
        row.memory_class.is_valid_on(row.device)
            && (row.device != DeviceTag::Cpu || row.sync_mode == SyncMode::ProducerSynced)
    });
    (descriptors, rows)
}

fn follow(
    descriptors: &[u8],
    rows: &[Row<'_>],
    memory: &[AlignedBytes],
    released: &AtomicUsize,
) -> Reached {
    let mut reached = Reached::default();
    let buffers: Vec<*mut HurrayBuffer> = rows
        .iter()
        .zip(memory)
        .map(|((row, _), bytes)| buffer(row, bytes, released))
        .collect();
    let (list, context) = list(buffers, descriptors);
    // SAFETY: both are of one list that was made just now, which nobody else has.
    match unsafe { consume(list, context) } {
        Ok(item) => {
            reached.is_open = true;
            reached.items += 1;
            check_item(&item);
        }
        Err(error) => {
            assert_eq!(
                released.load(Ordering::Relaxed),
                0,
                "the capsule keeps its list"
            );
            reached.is_open = !matches!(error, ConsumeError::Descriptor(_));
            let rule = rule(&error);
            reached.refused(rule, &error);
            let mut list = list;
            // SAFETY: a list that was refused is still the caller's.
            let status = unsafe { hurray_buffer_list_destroy(&raw mut list) };
            assert_eq!(status, HURRAY_OK);
        }
    }
    reached
}

/// A buffer over `bytes`; one that the host cannot reach over as many bytes as its row says, at an address that nobody reads.
fn buffer(row: &BufferHandle, bytes: &AlignedBytes, released: &AtomicUsize) -> *mut HurrayBuffer {
    let place = Place {
        device: row.device,
        device_id: 0,
        memory_class: row.memory_class,
    };
    let (data, byte_size) = if place.is_host_accessible() {
        (bytes.as_ptr().cast_mut().cast(), bytes.len() as u64)
    } else {
        let most = row.byte_size.min(1 << 60);
        (ptr::without_provenance_mut(1 << 20), most)
    };
    let has_event = row.sync_mode == SyncMode::Event;
    let desc = HurrayBufferDesc {
        struct_size: size_of::<HurrayBufferDesc>() as u32,
        flags: 0,
        data,
        byte_size,
        device_id: 0,
        device_tag: row.device.to_byte(),
        memory_class: row.memory_class.to_byte(),
        sync_mode: row.sync_mode.to_byte(),
        reserved: 0,
        event: if has_event {
            ptr::without_provenance_mut(1 << 12)
        } else {
            ptr::null_mut()
        },
        stream: if row.sync_mode == SyncMode::ConsumerStream {
            1 << 12
        } else {
            0
        },
        release: Some(release),
        release_context: ptr::from_ref(released).cast_mut().cast(),
        event_release: has_event.then_some(release_event),
        event_context: ptr::null_mut(),
        release_after: None,
    };
    let mut buffer = ptr::null_mut();
    // SAFETY: the struct is whole; host memory outlives the list, which `follow` destroys or drops; nothing reaches the other addresses.
    let status = unsafe { hurray_buffer_from_ptr(&raw const desc, &raw mut buffer) };
    assert_eq!(status, HURRAY_OK);
    buffer
}

unsafe extern "C" fn release(_data: *mut c_void, context: *mut c_void) {
    // SAFETY: the context is the counter that `buffer` was given, which outlives all buffers.
    let released = unsafe { &*context.cast::<AtomicUsize>() };
    released.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn release_event(_event: *mut c_void, _context: *mut c_void) {}

fn list(
    mut buffers: Vec<*mut HurrayBuffer>,
    descriptors: &[u8],
) -> (*mut HurrayBufferList, *const HurrayCapsuleContext) {
    let mut list = ptr::null_mut();
    // SAFETY: the buffers were made for this list; both arrays have the stated lengths.
    let status = unsafe {
        hurray_buffer_list_new(
            buffers.as_mut_ptr(),
            buffers.len() as u64,
            descriptors.as_ptr(),
            descriptors.len() as u64,
            &raw mut list,
        )
    };
    assert_eq!(status, HURRAY_OK);
    let mut context = ptr::null();
    // SAFETY: the list is live.
    let status = unsafe { hurray_buffer_list_context(list, &raw mut context) };
    assert_eq!(status, HURRAY_OK);
    (list, context)
}

/// What may be wrong with a capsule whose list, table and buffers are as they should be.
fn rule(error: &ConsumeError) -> &'static str {
    match error {
        ConsumeError::Descriptor(error) => error.rule(),
        ConsumeError::NoDescriptor { .. } | ConsumeError::TrailingBytes { .. } => "descriptors",
        ConsumeError::ListLength { .. } => "list length",
        ConsumeError::Tensor(error) => tensor_rule(error),
        _ => "",
    }
}

fn tensor_rule(error: &TensorError) -> &'static str {
    match error {
        TensorError::Descriptor(error) => error.rule(),
        TensorError::Member { source, .. } => tensor_rule(source),
        TensorError::Device { .. } | TensorError::MemoryClass { .. } => "place",
        TensorError::SyncMode { .. } => "sync mode",
        TensorError::TooSmall { .. } => "size",
        TensorError::UnderAligned { .. } => "alignment",
        _ => "",
    }
}

/// What was consumed leaves again, and is consumed again as it was.
fn check_item(item: &Item) {
    each_tensor(item, &mut |tensor| {
        if tensor
            .buffers()
            .iter()
            .all(|buffer| buffer.place().is_host_accessible())
        {
            check(tensor);
        } else {
            tensor.descriptor().validate().expect("a tensor is valid");
        }
    });
    let list = match item {
        Item::Tensor(tensor) => tensor.export(),
        Item::Composite(composite) => composite.export(),
    };
    let list = list.expect("what was read can be written");
    let context = list.context().as_ptr();
    let list = list.into_raw().as_ptr();
    // SAFETY: both are of one list that was made just now, which nobody else has.
    let again = unsafe { consume(list, context) }.expect("what was exported can be consumed");
    let encoded = |item: &Item| {
        let mut all = Vec::new();
        each_tensor(item, &mut |tensor| all.push(tensor.descriptor().encode()));
        all
    };
    assert_eq!(encoded(item), encoded(&again));
}
