//! What a consumer accepts and refuses, in the order of `docs/c-abi.md`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every capsule here is made here, and consumed or destroyed once"
)]

mod producer;
mod tensors;

use std::ptr;
use std::sync::Arc;

use hurray_core::{DeviceTag, ElementType, MemoryClass, SyncMode, TensorDescriptor};
use hurray_ffi::abi::{HURRAY_DECLARED, HurrayApi, HurrayBufferInfo, HurrayCapsuleContext};
use hurray_ffi::access::{AccessError, Reach};
use hurray_ffi::{BufferList, ConsumeError, Item, Readiness, Tensor, TensorError, consume};
use producer::{List, Log, destroy};
use tensors::{SIZES, cuda_row, host_row, host_tensor, plain, quantized};

fn tensor(item: Item) -> Tensor {
    match item {
        Item::Tensor(tensor) => tensor,
        Item::Composite(_) => panic!("a composite"),
    }
}

/// A foreign quantized tensor on the host, spoiled by `spoil`, is refused, and nothing of it is let go before its capsule is.
fn refuse(spoil: impl FnOnce(&mut List)) -> ConsumeError {
    let mut list = List::new(&[&quantized(SIZES.map(host_row))]);
    spoil(&mut list);
    let log = Arc::clone(&list.log);
    let (list, context) = list.into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    assert_eq!(log.counts(), [0, 0, 0]);
    assert_eq!(log.destroyed(), 0);
    destroy(list);
    assert_eq!(log.counts(), [1, 1, 1]);
    assert_eq!(log.destroyed(), 1);
    error
}

fn accept(list: Box<List>) -> (Tensor, Arc<Log>) {
    let log = Arc::clone(&list.log);
    let (list, context) = list.into_capsule();
    (tensor(unsafe { consume(list, context) }.unwrap()), log)
}

#[test]
fn our_own_list_comes_back_as_it_went() {
    let sent = host_tensor();
    let list = sent.export().unwrap();
    let context = list.context().as_ptr();
    let got = tensor(unsafe { consume(list.into_raw().as_ptr(), context) }.unwrap());
    assert_eq!(got.descriptor(), sent.descriptor());
    for (got, sent) in got.buffers().iter().zip(sent.buffers()) {
        assert_eq!(got.as_ptr(), sent.as_ptr());
        assert_eq!(got.handle(), sent.handle());
    }
}

/// What a context says is judged, also where it stands before a list of ours and is not its own.
#[test]
fn a_planted_context_of_our_own_list_is_judged_for_itself() {
    let sent = host_tensor();
    let planted = |descriptor: &TensorDescriptor, check: fn(Result<Item, ConsumeError>)| {
        let list = sent.export().unwrap();
        let bytes = descriptor.encode().unwrap();
        let context = HurrayCapsuleContext {
            descriptor: bytes.as_ptr(),
            descriptor_len: bytes.len() as u64,
            ..unsafe { *list.context().as_ptr() }
        };
        let list = list.into_raw();
        let result = unsafe { consume(list.as_ptr(), &raw const context) };
        if result.is_err() {
            drop(unsafe { BufferList::from_raw(list) });
        }
        check(result);
    };
    let mut wider = TensorDescriptor::clone(sent.descriptor());
    wider.buffers[0].byte_size += 1;
    planted(&wider, |result| {
        let error = result.unwrap_err();
        assert!(
            matches!(
                error,
                ConsumeError::Tensor(TensorError::TooSmall { buffer: 0, .. })
            ),
            "{error}"
        );
    });
    let mut other = TensorDescriptor::clone(sent.descriptor());
    other.shape = [2, 128].as_slice().into();
    planted(&other, |result| {
        assert_eq!(tensor(result.unwrap()).descriptor().shape[..], [2, 128]);
    });
}

#[test]
fn a_foreign_list_comes_with_its_addresses_and_is_let_go_slot_by_slot() {
    let descriptor = quantized(SIZES.map(host_row));
    let list = List::new(&[&descriptor]);
    let addresses: Vec<_> = list.buffers.iter().map(|buffer| buffer.info.data).collect();
    let (tensor, log) = accept(list);
    assert_eq!(**tensor.descriptor(), descriptor);
    for (buffer, address) in tensor.buffers().iter().zip(addresses) {
        assert_eq!(buffer.as_ptr().cast(), address);
    }
    let scales = tensor.buffers()[1].slice(0, 16).unwrap();
    drop(tensor);
    assert_eq!(log.counts(), [1, 0, 1], "a view keeps its own buffer only");
    assert_eq!(log.destroyed(), 0);
    drop(scales);
    assert_eq!(log.counts(), [1, 1, 1]);
    assert_eq!(log.destroyed(), 1);
}

#[test]
fn null_pointers_are_refused() {
    let list = host_tensor().export().unwrap();
    let context = list.context().as_ptr().cast_const();
    let raw = list.into_raw();
    let null_list = unsafe { consume(ptr::null_mut(), context) };
    assert_eq!(null_list.unwrap_err(), ConsumeError::NullList);
    let null_context = unsafe { consume(raw.as_ptr(), ptr::null()) };
    assert_eq!(null_context.unwrap_err(), ConsumeError::NullContext);
    assert!(unsafe { consume(raw.as_ptr(), context) }.is_ok());
}

#[test]
fn a_context_or_table_that_is_short_is_refused() {
    let needed = size_of::<HurrayCapsuleContext>();
    for found in [0, 8, needed as u32 - 1] {
        let error = refuse(|list| list.context.struct_size = found);
        assert_eq!(error, ConsumeError::ShortContext { found, needed });
    }
    let error = refuse(|list| list.context.api = ptr::null());
    assert!(matches!(error, ConsumeError::Table { .. }), "{error}");
    for size in [0, 8, size_of::<HurrayApi>() as u32 - 1] {
        let error = refuse(|list| list.table.struct_size = size);
        assert!(
            error.to_string().contains(&format!("{size} bytes")),
            "{error}"
        );
    }
}

/// Fields are only ever appended, so a longer struct is one of a later release.
#[test]
fn a_context_or_table_that_is_longer_is_read_as_far_as_it_is_known() {
    let mut list = List::new(&[&quantized(SIZES.map(host_row))]);
    list.context.struct_size += 8;
    list.table.struct_size += 16;
    let (tensor, _) = accept(list);
    assert_eq!(tensor.buffers().len(), 3);
}

#[test]
fn a_table_without_a_function_is_refused_by_its_name() {
    type Forget = fn(&mut HurrayApi);
    let functions: [(&str, Forget); 11] = [
        ("list_len", |api| api.list_len = None),
        ("list_get", |api| api.list_get = None),
        ("list_destroy", |api| api.list_destroy = None),
        ("list_release", |api| api.list_release = None),
        ("list_release_after", |api| api.list_release_after = None),
        ("buffer_info", |api| api.buffer_info = None),
        ("buffer_sync", |api| api.buffer_sync = None),
        ("buffer_wait", |api| api.buffer_wait = None),
        ("buffer_wait_host", |api| api.buffer_wait_host = None),
        ("event_release", |api| api.event_release = None),
        ("last_error", |api| api.last_error = None),
    ];
    for (name, forget) in functions {
        let error = refuse(|list| forget(&mut list.table));
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
    }
}

#[test]
fn a_list_of_another_table_than_its_context_names_is_refused() {
    let other = producer::table();
    let error = refuse(|list| list.context.api = &raw const other);
    assert_eq!(error, ConsumeError::OtherTable);
}

#[test]
fn a_descriptor_that_does_not_decode_is_refused() {
    let error = refuse(|list| list.context.descriptor_len -= 1);
    assert!(matches!(error, ConsumeError::Descriptor(_)), "{error}");
    let error = refuse(|list| list.context.descriptor_len = 0);
    assert!(matches!(error, ConsumeError::Descriptor(_)), "{error}");
    let error = refuse(|list| list.context.descriptor = ptr::null());
    assert!(
        matches!(error, ConsumeError::NoDescriptor { .. }),
        "{error}"
    );
    let error = refuse(|list| list.context.descriptor_len = u64::MAX);
    assert_eq!(error, ConsumeError::NoDescriptor { len: u64::MAX });
    let error = refuse(|list| {
        list.descriptor.push(0);
        list.context.descriptor = list.descriptor.as_ptr();
        list.context.descriptor_len += 1;
    });
    assert!(
        matches!(error, ConsumeError::TrailingBytes { .. }),
        "{error}"
    );
}

#[test]
fn a_list_of_the_wrong_length_is_refused() {
    for found in [0, 2, 4, u64::MAX] {
        let error = refuse(|list| list.len = found);
        assert_eq!(error, ConsumeError::ListLength { found, expected: 3 });
    }
}

#[test]
fn a_producer_that_fails_midway_loses_nothing() {
    for index in 0..3 {
        let error = refuse(|list| list.fails_at = Some(index as u64));
        let text = error.to_string();
        assert!(matches!(error, ConsumeError::Buffer { buffer, .. } if buffer == index));
        assert!(
            text.contains("`list_get`") && text.contains("no words"),
            "{text}"
        );
    }
    let error = refuse(|list| list.buffers[1].info.struct_size = 16);
    assert!(error.to_string().contains("16 bytes"), "{error}");
}

#[test]
fn bytes_that_do_not_exist_are_refused() {
    type Spoil = fn(&mut HurrayBufferInfo);
    let cases: [(&str, u8, Spoil); 4] = [
        ("device tag", 0x09, |info| info.device_tag = 0x09),
        ("device tag", 0xFF, |info| info.device_tag = 0xFF),
        ("memory class", 0x04, |info| info.memory_class = 0x04),
        ("sync mode", 0x03, |info| info.sync_mode = 0x03),
    ];
    for (field, value, spoil) in cases {
        let error = refuse(|list| spoil(&mut list.buffers[2].info));
        let buffer = 2;
        assert_eq!(
            error,
            ConsumeError::Byte {
                buffer,
                field,
                value
            }
        );
    }
}

#[test]
fn a_buffer_unlike_its_row_is_refused() {
    let found = DeviceTag::Cuda;
    let error = refuse(|list| list.buffers[1].info.device_tag = found.to_byte());
    let (buffer, row) = (1, DeviceTag::Cpu);
    assert_eq!(error, TensorError::Device { buffer, row, found }.into());

    let found = MemoryClass::HostPinned;
    let error = refuse(|list| list.buffers[2].info.memory_class = found.to_byte());
    let (buffer, row) = (2, MemoryClass::Standard);
    assert_eq!(
        error,
        TensorError::MemoryClass { buffer, row, found }.into()
    );

    let mut list = List::new(&[&quantized(
        SIZES.map(|size| cuda_row(size, SyncMode::ProducerSynced)),
    )]);
    list.buffers[0].info.sync_mode = 1;
    let (list, context) = list.into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    let (row, found) = (SyncMode::ProducerSynced, SyncMode::Event);
    let buffer = 0;
    assert_eq!(error, TensorError::SyncMode { buffer, row, found }.into());
    destroy(list);
}

#[test]
fn buffers_on_several_devices_are_refused() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::ProducerSynced));
    let mut list = List::new(&[&quantized(rows)]);
    list.buffers[2].info.device_id = 1;
    let (list, context) = list.into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    let (buffer, first, found) = (2, 0, 1);
    assert_eq!(
        error,
        TensorError::DeviceId {
            buffer,
            first,
            found
        }
        .into()
    );
    destroy(list);

    let mut rows = rows;
    rows[1].memory_class = MemoryClass::Unified;
    let (list, context) = List::new(&[&quantized(rows)]).into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    assert!(
        matches!(error, ConsumeError::Tensor(TensorError::Descriptor(_))),
        "{error}"
    );
    destroy(list);
}

/// A handoff between two devices does not collapse to device 0.
#[test]
fn a_device_id_travels() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::ProducerSynced));
    let mut list = List::new(&[&quantized(rows)]);
    for buffer in &mut list.buffers {
        buffer.info.device_id = 3;
    }
    let (received, _) = accept(list);
    let list = received.export().unwrap();
    let context = list.context().as_ptr();
    let again = tensor(unsafe { consume(list.into_raw().as_ptr(), context) }.unwrap());
    assert!(
        again
            .buffers()
            .iter()
            .all(|buffer| buffer.place().device_id == 3)
    );
}

#[test]
fn a_buffer_that_is_too_small_or_too_loose_is_refused() {
    let error = refuse(|list| list.buffers[1].info.byte_size = 31);
    let (buffer, row, found) = (1, 32, 31);
    assert_eq!(error, TensorError::TooSmall { buffer, row, found }.into());

    for offset in 1..64_usize {
        let error = refuse(|list| {
            let info = &mut list.buffers[0].info;
            info.data = info.data.wrapping_byte_add(offset);
        });
        let (buffer, declared, measured) = (0, 64, 1 << offset.trailing_zeros());
        let under_aligned = TensorError::UnderAligned {
            buffer,
            declared,
            measured,
        };
        assert_eq!(error, under_aligned.into());
    }

    let error = refuse(|list| list.buffers[2].info.data = ptr::null_mut());
    assert!(error.to_string().contains("NULL"), "{error}");
    let error = refuse(|list| list.buffers[2].info.byte_size = u64::MAX);
    assert!(error.to_string().contains(&u64::MAX.to_string()), "{error}");
}

/// The row's alignment is what the producer declared, and the memory's what it has.
#[test]
fn a_row_that_declares_more_than_the_memory_has_is_refused() {
    let mut rows = SIZES.map(host_row);
    rows[0].alignment = 1 << 31;
    let (list, context) = List::new(&[&quantized(rows)]).into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    assert!(
        error.to_string().contains("2147483648 are declared"),
        "{error}"
    );
    destroy(list);
}

/// An empty buffer has no address to use.
#[test]
fn an_empty_buffer_may_be_anywhere() {
    for address in [0, 1, 0x7fff_0001] {
        let mut row = host_row(0);
        row.alignment = 1;
        let mut list = List::new(&[&plain(ElementType::Float32, &[0, 4], row)]);
        list.buffers[0].info.data = ptr::without_provenance_mut(address);
        let (tensor, _) = accept(list);
        assert_eq!(tensor.buffers()[0].alignment(), 1);
    }
}

#[test]
fn a_declared_buffer_is_relayed_and_refused() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::Event));
    let mut list = List::new(&[&quantized(rows)]);
    for buffer in &mut list.buffers {
        buffer.info.flags = HURRAY_DECLARED;
        buffer.info.device_tag = 0;
        buffer.info.sync_mode = 0;
    }
    let (received, _) = accept(list);
    let error = received.check_access(Reach::Device).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, AccessError::Declared { buffer: 0, .. }));
    assert!(
        text.contains("`event`") && text.contains("cuda:0") && text.contains(".to("),
        "{text}"
    );

    let list = received.export().unwrap();
    let context = list.context().as_ptr();
    let again = tensor(unsafe { consume(list.into_raw().as_ptr(), context) }.unwrap());
    assert_eq!(again.descriptor(), received.descriptor());
}

#[test]
fn a_mode_is_relayed_and_its_bytes_are_refused() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::ConsumerStream));
    let (received, _) = accept(List::new(&[&quantized(rows)]));
    let readiness = received.buffers()[0].readiness();
    assert!(matches!(
        readiness,
        Readiness::Declared(SyncMode::ConsumerStream)
    ));
    for reach in [Reach::Host, Reach::Device] {
        let error = received.check_access(reach).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, AccessError::NotReady { buffer: 0, .. }));
        assert!(
            text.contains("`consumer_stream`") && text.contains(".synchronize()"),
            "{text}"
        );
    }
}

#[test]
fn the_host_does_not_read_device_memory() {
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::ProducerSynced));
    let (received, _) = accept(List::new(&[&quantized(rows)]));
    assert!(received.check_access(Reach::Device).is_ok());
    let error = received.check_access(Reach::Host).unwrap_err();
    assert!(error.to_string().contains("`.to(\"cpu\")`"), "{error}");
}
