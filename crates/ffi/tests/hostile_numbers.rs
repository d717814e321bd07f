//! Whatever numbers another library states, nothing panics, wraps or is let go twice, and what is taken lies where it must.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every capsule here is made here, and consumed or destroyed once; no byte of them is read"
)]

mod producer;
mod tensors;

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use dlpark::DlpackFlags;
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};
use hurray_core::{BufferHandle, MAX_RANK, SyncMode};
use hurray_ffi::abi::{
    HURRAY_ERR_INTERNAL, HURRAY_OK, HurrayBuffer, HurrayBufferInfo, HurrayBufferList,
    HurrayBufferSync,
};
use hurray_ffi::dlpack::Array;
use hurray_ffi::{
    BufferFlags, ConsumeError, Item, Owner, Place, Readiness, Tensor, TensorError, consume,
};
use producer::{List, destroy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tensors::{SIZES, cuda_row, host_row, plain, quantized};

/// Numbers at which arithmetic breaks.
const EDGES: [u64; 18] = [
    0,
    1,
    63,
    64,
    65,
    128,
    4096,
    (1 << 31) - 1,
    1 << 32,
    1 << 61,
    (1 << 63) - 64,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 4096,
    u64::MAX - 127,
    u64::MAX - 63,
    u64::MAX - 1,
    u64::MAX,
];

fn edge() -> impl Strategy<Value = u64> {
    select(EDGES.to_vec())
}

/// One field of what a producer tells of a buffer.
#[derive(Clone, Debug)]
enum Lie {
    Data(u64),
    ByteSize(u64),
    Alignment(u32),
    DeviceId(u32),
    Place(u8, u8),
    Mode(u8),
    Flags(u32),
    InfoSize(u32),
    SyncSize(u32),
    Sync(u64, u64),
}

fn lie() -> impl Strategy<Value = Lie> {
    let small = || prop_oneof![0..9_u8, 0xEE..=0xFF_u8];
    prop_oneof![
        4 => edge().prop_map(Lie::Data),
        4 => edge().prop_map(Lie::ByteSize),
        1 => any::<u32>().prop_map(Lie::Alignment),
        1 => (0..3_u32).prop_map(Lie::DeviceId),
        1 => (small(), small()).prop_map(|(device, class)| Lie::Place(device, class)),
        1 => small().prop_map(Lie::Mode),
        1 => prop_oneof![0..4_u32, any::<u32>()].prop_map(Lie::Flags),
        1 => prop_oneof![0..64_u32, Just(u32::MAX)].prop_map(Lie::InfoSize),
        1 => prop_oneof![0..64_u32, Just(u32::MAX)].prop_map(Lie::SyncSize),
        1 => (edge(), edge()).prop_map(|(event, stream)| Lie::Sync(event, stream)),
    ]
}

fn tell(list: &mut List, buffer: usize, lie: &Lie) {
    let buffer = &mut list.buffers[buffer];
    let (info, sync) = (&mut buffer.info, &mut buffer.sync);
    let address = |at: u64| ptr::without_provenance_mut::<c_void>(at as usize);
    match *lie {
        Lie::Data(at) => info.data = address(at),
        Lie::ByteSize(bytes) => info.byte_size = bytes,
        Lie::Alignment(alignment) => info.alignment = alignment,
        Lie::DeviceId(id) => info.device_id = id,
        Lie::Place(device, class) => (info.device_tag, info.memory_class) = (device, class),
        Lie::Mode(mode) => info.sync_mode = mode,
        Lie::Flags(flags) => info.flags = flags,
        Lie::InfoSize(size) => info.struct_size = size,
        Lie::SyncSize(size) => sync.struct_size = size,
        Lie::Sync(event, stream) => (sync.event, sync.stream) = (address(event), stream as usize),
    }
}

/// What a tensor's buffers must be, whoever made them.
fn is_sound(tensor: &Tensor) -> Result<(), TestCaseError> {
    tensor.descriptor().validate().unwrap();
    let device_ids: Vec<_> = tensor
        .buffers()
        .iter()
        .filter(|buffer| !buffer.flags().contains(BufferFlags::DECLARED))
        .map(|buffer| buffer.place().device_id)
        .collect();
    prop_assert!(device_ids.windows(2).all(|pair| pair[0] == pair[1]));
    for (row, buffer) in tensor.descriptor().buffers.iter().zip(tensor.buffers()) {
        let (at, len) = (buffer.as_ptr().addr(), buffer.len());
        prop_assert!(len as u64 >= row.byte_size && isize::try_from(len).is_ok());
        prop_assert!(len == 0 || at != 0 && at.checked_add(len).is_some());
        prop_assert!(row.byte_size == 0 || at.is_multiple_of(row.alignment as usize));
        if !buffer.flags().contains(BufferFlags::DECLARED) {
            let BufferHandle {
                device,
                sync_mode,
                memory_class,
                ..
            } = buffer.handle();
            let found = (device, sync_mode, memory_class);
            prop_assert_eq!(found, (row.device, row.sync_mode, row.memory_class));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn whatever_a_producer_says_is_taken_whole_or_not_at_all(
        on_device: bool,
        mode in select(vec![SyncMode::ProducerSynced, SyncMode::Event, SyncMode::ConsumerStream]),
        lies in vec((0..3_usize, lie()), 0..4),
        len in prop_oneof![9 => Just(3), 1 => edge()],
    ) {
        let rows = SIZES.map(|size| if on_device { cuda_row(size, mode) } else { host_row(size) });
        let mut list = List::new(&[&quantized(rows)]);
        list.len = len;
        for (buffer, lie) in &lies {
            tell(&mut list, *buffer, lie);
        }
        let log = Arc::clone(&list.log);
        let (list, context) = list.into_capsule();
        match unsafe { consume(list, context) } {
            Err(_) => {
                prop_assert_eq!((log.counts(), log.destroyed()), (vec![0; 3], 0));
                prop_assert_eq!(log.event_counts(), vec![0; 3]);
                destroy(list);
            }
            Ok(Item::Tensor(tensor)) => {
                is_sound(&tensor)?;
                drop(tensor);
                prop_assert_eq!(log.releases.lock().unwrap().len(), 3);
            }
            Ok(Item::Composite(_)) => panic!("a composite"),
        }
        prop_assert_eq!((log.counts(), log.destroyed()), (vec![1; 3], 1));
        prop_assert!(log.event_counts().iter().all(|&count| count <= 1));
    }

    /// Corners are computed with wide numbers here, apart from the code under test.
    #[test]
    fn whatever_a_dlpack_tensor_says_its_elements_lie_in_its_extent(
        ndim in prop_oneof![9 => Just(None), 1 => (-2..70_i32).prop_map(Some)],
        dimensions in vec(
            (
                prop_oneof![4 => 0..5_i64, 1 => edge().prop_map(|n| n as i64)],
                prop_oneof![4 => -9..9_i64, 1 => edge().prop_map(|n| n as i64)],
            ),
            70,
        ),
        rank in 0..5_usize,
        pointers in (any::<bool>(), any::<bool>(), prop_oneof![3 => Just(1 << 40), 1 => edge()]),
        dtype in (0..20_u8, select(vec![0_u8, 1, 2, 4, 6, 8, 16, 32, 64, 128, 255]), select(vec![0_u16, 1, 2, u16::MAX])),
        device in (0..20_u32, -1..2_i32),
        byte_offset in prop_oneof![3 => 0..200_u64, 1 => edge()],
        flags: u64,
    ) {
        let (mut shape, mut strides): (Vec<i64>, Vec<i64>) = dimensions.into_iter().unzip();
        let (has_shape, has_strides, data) = pointers;
        let tensor = DLTensor {
            data: ptr::without_provenance_mut(data as usize),
            device: DLDevice { device_type: DLDeviceType(device.0), device_id: device.1 },
            ndim: ndim.unwrap_or(rank as i32),
            dtype: DLDataType { code: DLDataTypeCode(dtype.0), bits: dtype.1, lanes: dtype.2 },
            shape: if has_shape || rank > 0 { shape.as_mut_ptr() } else { ptr::null_mut() },
            strides: if has_strides { strides.as_mut_ptr() } else { ptr::null_mut() },
            byte_offset,
        };
        let read = unsafe { Array::read(&tensor, DlpackFlags::from_bits_retain(flags)) };
        let Ok(array) = read else { return Ok(()) };
        let rank = usize::try_from(tensor.ndim).unwrap();
        prop_assert!(rank <= MAX_RANK);
        prop_assert!(shape[..rank].iter().all(|&n| n >= 0));
        if shape[..rank].contains(&0) {
            prop_assert!(array.is_empty());
            return Ok(());
        }
        let bits = if tensor.dtype.bits < 8 && (dtype.0 == 6 || flags & 4 != 0) { 8 } else { i128::from(dtype.1) * i128::from(dtype.2) };
        let mut row_major = 1_i128;
        let (mut low, mut high) = (0_i128, 0_i128);
        for k in (0..rank).rev() {
            let stride = if has_strides { strides[k].into() } else { row_major };
            row_major *= i128::from(shape[k]);
            let reach = stride * i128::from(shape[k] - 1);
            *(if reach < 0 { &mut low } else { &mut high }) += reach;
        }
        let first = i128::from(data) + i128::from(byte_offset) + (low * bits).div_euclid(8);
        let end = i128::from(data) + i128::from(byte_offset) + ((high + 1) * bits + 7).div_euclid(8);
        prop_assert!(first >= 0 && end <= i128::from(i64::MAX), "{first} to {end}");
        prop_assert_eq!(array.byte_len() as i128, end - first);
        if array.copy_reason(Some(false)).is_none() {
            // No byte of it is read.
            let owner = Owner::Rust(Box::new(()));
            if let Ok(tensor) = unsafe { array.borrow(Place::HOST, Readiness::Ready, owner) } {
                is_sound(&tensor)?;
                prop_assert_eq!(tensor.buffers()[0].as_ptr().addr() as i128, first);
            }
        }
    }
}

#[test]
fn a_handle_that_is_null_is_refused() {
    unsafe extern "C" fn list_get(
        _: *const HurrayBufferList,
        _: u64,
        _: *mut *const HurrayBuffer,
    ) -> i32 {
        HURRAY_OK
    }
    let mut list = List::new(&[&quantized(SIZES.map(host_row))]);
    list.table.list_get = Some(list_get);
    let log = Arc::clone(&list.log);
    let (list, context) = list.into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    assert!(
        matches!(&error, ConsumeError::Buffer { buffer: 0, .. }),
        "{error}"
    );
    destroy(list);
    assert_eq!(log.counts(), [1; 3]);
}

/// A producer that succeeds and writes nothing has told nothing.
#[test]
fn answers_that_were_not_written_are_refused() {
    unsafe extern "C" fn list_len(_: *const HurrayBufferList, _: *mut u64) -> i32 {
        HURRAY_OK
    }
    unsafe extern "C" fn buffer_info(_: *const HurrayBuffer, _: *mut HurrayBufferInfo) -> i32 {
        HURRAY_OK
    }
    unsafe extern "C" fn buffer_sync(_: *const HurrayBuffer, _: *mut HurrayBufferSync) -> i32 {
        HURRAY_OK
    }
    let refuse = |rows: [BufferHandle; 3], spoil: fn(&mut List)| {
        let mut list = List::new(&[&quantized(rows)]);
        spoil(&mut list);
        let (list, context) = list.into_capsule();
        let result = unsafe { consume(list, context) };
        if result.is_err() {
            destroy(list);
        }
        result
    };
    let host = SIZES.map(host_row);
    let error = refuse(host, |list| list.table.list_len = Some(list_len)).unwrap_err();
    assert!(
        matches!(error, ConsumeError::ListLength { found: 0, .. }),
        "{error}"
    );
    let error = refuse(host, |list| list.table.buffer_info = Some(buffer_info)).unwrap_err();
    assert!(
        matches!(
            error,
            ConsumeError::Tensor(TensorError::TooSmall { buffer: 0, .. })
        ),
        "{error}"
    );
    // An event that was not told is none: the tensor is relayed without it, and its bytes are refused all the same.
    let waits = SIZES.map(|size| cuda_row(size, SyncMode::Event));
    let got = refuse(waits, |list| list.table.buffer_sync = Some(buffer_sync)).unwrap();
    let Item::Tensor(got) = got else {
        panic!("a composite")
    };
    for reach in [
        hurray_ffi::access::Reach::Host,
        hurray_ffi::access::Reach::Device,
    ] {
        assert!(got.check_access(reach).is_err());
    }
}

/// What a producer refuses to take back goes with its list.
#[test]
fn releases_that_fail_leave_the_rest_to_the_list() {
    unsafe extern "C" fn list_release(_: *mut HurrayBufferList, _: u64, _: usize) -> i32 {
        HURRAY_ERR_INTERNAL
    }
    unsafe extern "C" fn event_release(_: *mut HurrayBufferList, _: u64) -> i32 {
        HURRAY_ERR_INTERNAL
    }
    let rows = SIZES.map(|size| cuda_row(size, SyncMode::Event));
    let mut list = List::new(&[&quantized(rows)]);
    list.table.list_release = Some(list_release);
    list.table.event_release = Some(event_release);
    let log = Arc::clone(&list.log);
    let (list, context) = list.into_capsule();
    let Item::Tensor(tensor) = unsafe { consume(list, context) }.unwrap() else {
        panic!("a composite")
    };
    let view = tensor.buffers()[1].slice(0, 4).unwrap();
    drop(tensor.export().unwrap());
    drop(tensor);
    assert_eq!((log.counts(), log.destroyed()), (vec![0; 3], 0));
    drop(view);
    assert_eq!((log.counts(), log.destroyed()), (vec![1; 3], 1));
    assert_eq!(log.event_counts(), [1; 3]);
}

/// A status that is no error of ours is an error all the same, with a text that is not there.
#[test]
fn odd_statuses_and_missing_texts_are_errors() {
    unsafe extern "C" fn list_len(_: *const HurrayBufferList, _: *mut u64) -> i32 {
        i32::MAX
    }
    unsafe extern "C" fn last_error() -> *const std::ffi::c_char {
        ptr::null()
    }
    let mut list = List::new(&[&plain(hurray_core::ElementType::Uint8, &[64], host_row(64))]);
    list.table.list_len = Some(list_len);
    list.table.last_error = Some(last_error);
    let (list, context) = list.into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    assert!(matches!(error, ConsumeError::Producer { .. }), "{error}");
    assert!(error.to_string().contains("2147483647"), "{error}");
    destroy(list);
}
