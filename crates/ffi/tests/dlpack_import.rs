//! DLPack arrays in. Case numbers are those of the collected public reports, named beside each.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlpark::DlpackFlags;
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLManagedTensorVersioned, DLTensor};
use hurray_core::memory::AlignedBytes;
use hurray_core::{DeviceTag, ElementType, Layout, MemoryClass, Strides};
use hurray_ffi::dlpack::{Array, ArrayError, CopyReason, Options, allocate, export};
use hurray_ffi::{BufferFlags, Owner, Place, Readiness, Tensor};

const FLOAT: DLDataType = DLDataType::F32;
const FP4: DLDataType = DLDataType::scalar(DLDataTypeCode::FLOAT4_E2M1FN, 4);

/// A descriptor over `data`; strides are NULL where there are none.
fn described(
    data: *const u8,
    dtype: DLDataType,
    shape: &mut [i64],
    strides: Option<&mut [i64]>,
    byte_offset: u64,
) -> DLTensor {
    DLTensor {
        data: data.cast_mut().cast::<c_void>(),
        device: DLDevice::CPU,
        ndim: i32::try_from(shape.len()).unwrap(),
        dtype,
        shape: shape.as_mut_ptr(),
        strides: strides.map_or(std::ptr::null_mut(), <[i64]>::as_mut_ptr),
        byte_offset,
    }
}

fn read(tensor: &DLTensor) -> Result<Array, ArrayError> {
    read_with(tensor, DlpackFlags::empty())
}

fn read_with(tensor: &DLTensor, flags: DlpackFlags) -> Result<Array, ArrayError> {
    // SAFETY: the tests' shapes and strides have `ndim` numbers.
    unsafe { Array::read(tensor, flags) }
}

/// 0, 1, 2, … as float32, page-aligned.
fn floats(count: u16) -> AlignedBytes {
    let values: Vec<u8> = (0..count)
        .flat_map(|i| f32::from(i).to_le_bytes())
        .collect();
    let mut bytes = AlignedBytes::zeroed_with_alignment(values.len(), 4096).unwrap();
    bytes.copy_from_slice(&values);
    bytes
}

struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn borrow(array: &Array) -> Tensor {
    let owner = Owner::Rust(Box::new(()));
    // SAFETY: the tests keep the memory until the tensor is gone.
    unsafe { array.borrow(Place::HOST, Readiness::Ready, owner) }.unwrap()
}

fn copy(array: &Array) -> (Tensor, usize) {
    // SAFETY: the tests keep the memory and leave it alone.
    unsafe { array.copy() }.unwrap()
}

/// The tensor's bytes from element [0, …, 0] on.
fn tail(tensor: &Tensor) -> &[u8] {
    let buffer = &tensor.buffers()[0];
    // SAFETY: the buffer has its bytes, on the host, and nobody writes.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
    &bytes[usize::try_from(tensor.descriptor().byte_offset).unwrap()..]
}

fn layout(tensor: &Tensor) -> &Layout {
    &tensor.descriptor().layout
}

fn strided(strides: &[i64]) -> Layout {
    Layout::Strided(Strides::from_slice(strides))
}

#[test]
fn the_offset_counts() {
    // pytorch/pytorch#168177, iree-org/iree#21153, NVIDIA/cuda-python#2592.
    let bytes = floats(32);
    for offset in [16, 64] {
        let mut shape = [4];
        let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, None, offset);
        let array = read(&tensor).unwrap();
        let (copied, _) = copy(&array);
        assert_eq!(tail(&copied)[..4], (offset as f32 / 4.0).to_le_bytes());
        if offset == 64 {
            assert_eq!(tail(&borrow(&array))[..4], 16_f32.to_le_bytes());
        }
    }
}

#[test]
fn negative_strides_are_kept() {
    // pytorch/pytorch#188023. What comes in reversed stays reversed; going out is another matter.
    let bytes = floats(16);
    let (mut shape, mut strides) = ([16], [-1]);
    let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, Some(&mut strides), 60);
    let array = read(&tensor).unwrap();
    let borrowed = borrow(&array);
    assert_eq!(borrowed.buffers()[0].as_ptr().cast_const(), bytes.as_ptr());
    assert_eq!(layout(&borrowed), &strided(&[-1]));
    assert_eq!(borrowed.descriptor().byte_offset, 60);
    assert_eq!(tail(&borrowed), 15_f32.to_le_bytes());
    let (copied, len) = copy(&array);
    assert_eq!((layout(&copied), len), (&strided(&[-1]), 64));
    assert_eq!(tail(&copied), 15_f32.to_le_bytes());
}

#[test]
fn dimensions_of_one_element_have_any_stride() {
    // pytorch/pytorch#99803, tensorflow/tensorflow#61184, tile-ai/tilelang#1968.
    let bytes = floats(128);
    let cases: [([i64; 2], [i64; 2], Layout); 5] = [
        ([1, 77], [77, 1], Layout::RowMajor),
        ([1, 77], [-9, 1], Layout::RowMajor),
        ([77, 1], [1, 1024], Layout::RowMajor),
        ([7, 11], [1, 7], Layout::ColumnMajor),
        ([7, 11], [16, 1], strided(&[16, 1])),
    ];
    for (mut shape, mut strides, expected) in cases {
        let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, Some(&mut strides), 0);
        let array = read(&tensor).unwrap();
        let borrowed = borrow(&array);
        assert_eq!(layout(&borrowed), &expected, "{shape:?} {strides:?}");
    }
}

#[test]
fn nothing_is_asked_of_empty_arrays() {
    // pytorch/pytorch#41182, dmlc/dlpack#133.
    let (mut shape, mut strides) = ([0, 4], [7, 13]);
    let tensor = described(
        std::ptr::null(),
        FLOAT,
        &mut shape,
        Some(&mut strides),
        u64::MAX,
    );
    let array = read(&tensor).unwrap();
    assert!(array.is_empty());
    for wanted in [None, Some(true), Some(false)] {
        assert_eq!(array.copy_reason(wanted), None);
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let owner = Owner::Rust(Box::new(Held(Arc::clone(&drops))));
    // SAFETY: there is no memory.
    let empty = unsafe { array.borrow(Place::HOST, Readiness::Ready, owner) };
    let empty = empty.unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 1, "nothing is left to keep");
    assert_eq!(empty.descriptor().shape[..], [0, 4]);
    assert_eq!(layout(&empty), &Layout::RowMajor);
    assert_eq!(empty.descriptor().buffers[0].alignment, 1);

    let place = Place {
        device: DeviceTag::Cuda,
        device_id: 1,
        memory_class: MemoryClass::Standard,
    };
    // SAFETY: there is no memory.
    let elsewhere = unsafe { array.borrow(place, Readiness::Ready, Owner::Rust(Box::new(()))) };
    assert_eq!(elsewhere.unwrap().buffers()[0].place(), place);
}

#[test]
fn the_extent_has_both_ends() {
    // PaddlePaddle/Paddle#68559, IntelPython/dpctl#1071: shape (5, 6), strides (24, -2), offset 11.
    let bytes = floats(128);
    let (mut shape, mut strides) = ([5, 6], [24, -2]);
    let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, Some(&mut strides), 44);
    let array = read(&tensor).unwrap();
    // From element 1 to element 107.
    assert_eq!(array.alignment(), 4);
    let (copied, _) = copy(&array);
    let expected: Vec<u8> = (0..5_u16)
        .flat_map(|row| (0..6_u16).map(move |column| f32::from(11 + 24 * row - 2 * column)))
        .flat_map(f32::to_le_bytes)
        .collect();
    assert_eq!(tail(&copied), expected);
    assert_eq!(array.byte_len(), 107 * 4);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    // safetensors' ValidationOverflow; tvm-ffi takes (2^62, 2^62) and (-4,).
    let bytes = floats(1);
    let refused = |shape: &mut [i64], strides: Option<&mut [i64]>, offset| {
        read(&described(bytes.as_ptr(), FLOAT, shape, strides, offset)).unwrap_err()
    };
    assert!(matches!(
        refused(&mut [1 << 62, 1 << 62], None, 0),
        ArrayError::Strides(_) | ArrayError::Extent { .. }
    ));
    assert!(matches!(
        refused(&mut [1 << 62, 1 << 62], Some(&mut [1, 1]), 0),
        ArrayError::Extent { .. }
    ));
    assert_eq!(
        refused(&mut [3, -4], None, 0),
        ArrayError::NegativeDimension { axis: 1, value: -4 }
    );
    assert!(matches!(
        refused(&mut [2], Some(&mut [i64::MIN]), 0),
        ArrayError::Extent { .. }
    ));
    assert!(matches!(
        refused(&mut [2], Some(&mut [i64::MAX]), 0),
        ArrayError::Extent { .. }
    ));
    assert!(matches!(
        refused(&mut [3, 3], Some(&mut [i64::MAX, i64::MAX]), 0),
        ArrayError::Strides(_)
    ));
    assert!(matches!(
        refused(&mut [1], None, u64::MAX),
        ArrayError::Extent { .. }
    ));
    // A buffer that would begin below address 0.
    assert!(matches!(
        refused(&mut [1 << 50], Some(&mut [-1]), 0),
        ArrayError::Extent { .. }
    ));
}

#[test]
fn descriptors_without_their_pointers_are_refused() {
    let mut shape = [4];
    let mut tensor = described(std::ptr::null(), FLOAT, &mut shape, None, 0);
    assert_eq!(read(&tensor), Err(ArrayError::NullData { shape: vec![4] }));
    tensor.shape = std::ptr::null_mut();
    assert_eq!(read(&tensor), Err(ArrayError::NullShape { ndim: 1 }));
    tensor.ndim = -1;
    assert_eq!(read(&tensor), Err(ArrayError::NegativeRank { ndim: -1 }));
    tensor.ndim = 65;
    assert_eq!(read(&tensor), Err(ArrayError::Rank { ndim: 65 }));
}

#[test]
fn sixty_four_dimensions_are_taken() {
    let bytes = floats(1);
    let tensor = described(bytes.as_ptr(), FLOAT, &mut [1; 64], None, 0);
    let mut shape = [1; 64];
    let tensor = DLTensor {
        shape: shape.as_mut_ptr(),
        ..tensor
    };
    let array = read(&tensor).unwrap();
    let borrowed = borrow(&array);
    assert_eq!(borrowed.descriptor().shape.len(), 64);
}

#[test]
fn only_a_64_byte_boundary_is_borrowed() {
    // jax-ml/jax#29810, apache/arrow-rs#2882: every offset from 0 to 127.
    let bytes = floats(64);
    for offset in 0..128_u64 {
        let mut shape = [8];
        let tensor = described(bytes.as_ptr(), DLDataType::U8, &mut shape, None, offset);
        let array = read(&tensor).unwrap();
        for wanted in [None, Some(false)] {
            assert_eq!(
                array.copy_reason(wanted),
                (offset % 64 != 0).then_some(CopyReason::Alignment),
                "{offset}"
            );
        }
        let measured = 1 << (offset | 4096).trailing_zeros();
        assert_eq!(array.alignment(), measured);
        // Whoever borrows all the same gets no tensor.
        let owner = Owner::Rust(Box::new(()));
        // SAFETY: the memory outlives the tensor.
        let borrowed = unsafe { array.borrow(Place::HOST, Readiness::Ready, owner) };
        assert_eq!(borrowed.is_ok(), offset % 64 == 0);
    }
}

#[test]
fn a_wanted_copy_is_made_unless_the_producer_made_it() {
    // dmlc/dlpack#134.
    let bytes = floats(16);
    let mut shape = [16];
    let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, None, 0);
    let array = read(&tensor).unwrap();
    assert_eq!(array.copy_reason(Some(true)), Some(CopyReason::Request));
    assert_eq!(array.copy_reason(Some(false)), None);
    let (copied, len) = copy(&array);
    assert_eq!(len, 64);
    assert_eq!(tail(&copied), &bytes[..]);
    let array = read_with(&tensor, DlpackFlags::IS_COPIED).unwrap();
    assert_eq!(array.copy_reason(Some(true)), None);
}

#[test]
fn read_only_stays() {
    // numpy/numpy#20742.
    let bytes = floats(16);
    let mut shape = [16];
    let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, None, 0);
    let array = read_with(&tensor, DlpackFlags::READ_ONLY).unwrap();
    let borrowed = borrow(&array);
    assert_eq!(borrowed.buffers()[0].flags(), BufferFlags::READ_ONLY);
    let (copied, _) = copy(&array);
    assert_eq!(copied.buffers()[0].flags(), BufferFlags::empty());
    // Bits that a later version may define say nothing (dlpack.h).
    let flags = DlpackFlags::from_bits_retain(1 << 40);
    let array = read_with(&tensor, flags).unwrap();
    let borrowed = borrow(&array);
    assert_eq!(borrowed.buffers()[0].flags(), BufferFlags::empty());
}

#[test]
fn booleans_are_packed() {
    // pytorch/pytorch#94463, NVIDIA/warp#1619. Decision 18.
    let mut bytes = AlignedBytes::zeroed(64).unwrap();
    bytes[..10].copy_from_slice(&[1, 0, 1, 0, 0, 0, 0, 1, 0, 1]);
    let mut shape = [10];
    let tensor = described(bytes.as_ptr(), DLDataType::BOOL, &mut shape, None, 0);
    let array = read(&tensor).unwrap();
    assert_eq!(array.element_type(), ElementType::Bool);
    for wanted in [None, Some(true), Some(false)] {
        assert_eq!(array.copy_reason(wanted), Some(CopyReason::Packing));
    }
    let (packed, len) = copy(&array);
    assert_eq!((tail(&packed), len), (&[0b1000_0101, 0b10][..], 2));
}

#[test]
fn fp4_comes_in_one_lane_two_lanes_or_padded() {
    // dmlc/dlpack#158: 1, 2, 3, 6 are the bytes 0x42 0x75.
    let mut bytes = AlignedBytes::zeroed(64).unwrap();
    bytes[..2].copy_from_slice(&[0x42, 0x75]);
    let mut one = [4];
    let mut two = [2];
    let pairs = DLDataType { lanes: 2, ..FP4 };
    for tensor in [
        described(bytes.as_ptr(), FP4, &mut one, None, 0),
        described(bytes.as_ptr(), pairs, &mut two, None, 0),
    ] {
        let array = read(&tensor).unwrap();
        let borrowed = borrow(&array);
        assert_eq!(borrowed.descriptor().shape[..], [4]);
        assert_eq!(tail(&borrowed), [0x42, 0x75]);
    }
    bytes[..4].copy_from_slice(&[2, 4, 5, 7]);
    let tensor = described(bytes.as_ptr(), FP4, &mut one, None, 0);
    let array = read_with(&tensor, DlpackFlags::IS_SUBBYTE_TYPE_PADDED).unwrap();
    assert_eq!(array.copy_reason(None), Some(CopyReason::Packing));
    assert_eq!(tail(&copy(&array).0), [0x42, 0x75]);

    let (mut shape, mut strides) = ([2, 2], [1, 2]);
    let tensor = described(bytes.as_ptr(), pairs, &mut shape, Some(&mut strides), 0);
    assert_eq!(
        read(&tensor),
        Err(ArrayError::StridedPairs {
            strides: vec![1, 2]
        })
    );
    let tensor = described(bytes.as_ptr(), pairs, &mut [], None, 0);
    assert!(matches!(
        read(&tensor),
        Err(ArrayError::StridedPairs { .. })
    ));
    let (mut shape, mut strides) = ([2, 3], [5, 1]);
    let tensor = described(bytes.as_ptr(), pairs, &mut shape, Some(&mut strides), 0);
    let array = read(&tensor).unwrap();
    let borrowed = borrow(&array);
    assert_eq!(borrowed.descriptor().shape[..], [2, 6]);
    assert_eq!(layout(&borrowed), &strided(&[10, 1]));
}

#[test]
fn six_bits_are_borrowed_in_whole_groups_only() {
    // Decision 11: three bytes hold four elements here; DLPack ends where the bits end.
    let fp6 = DLDataType::scalar(DLDataTypeCode::FLOAT6_E2M3FN, 6);
    let mut bytes = AlignedBytes::zeroed(64).unwrap();
    bytes[..6].copy_from_slice(&[0x41, 0x20, 0x0C, 0x3F, 0xFF, 0xFF]);
    let mut shape = [4];
    let tensor = described(bytes.as_ptr(), fp6, &mut shape, None, 0);
    assert_eq!(read(&tensor).unwrap().copy_reason(None), None);
    let mut shape = [5];
    let tensor = described(bytes.as_ptr(), fp6, &mut shape, None, 0);
    let array = read(&tensor).unwrap();
    assert_eq!(array.copy_reason(None), Some(CopyReason::Packing));
    assert_eq!(tail(&copy(&array).0), [0x41, 0x20, 0x0C, 0x3F, 0, 0]);
}

#[test]
fn a_broadcast_is_not_densified() {
    let bytes = floats(16);
    let (mut shape, mut strides) = ([1000, 16], [0, 1]);
    let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, Some(&mut strides), 0);
    let array = read(&tensor).unwrap();
    let (copied, len) = copy(&array);
    assert_eq!((layout(&copied), len), (&strided(&[0, 1]), 64));
}

#[test]
fn a_sparse_slice_is_copied_without_its_gaps() {
    let bytes = floats(1024);
    let (mut shape, mut strides) = ([4], [256]);
    let tensor = described(bytes.as_ptr(), FLOAT, &mut shape, Some(&mut strides), 4);
    let (copied, len) = copy(&read(&tensor).unwrap());
    assert_eq!((layout(&copied), len), (&Layout::RowMajor, 16));
    assert_eq!(
        tail(&copied),
        [1_f32, 257.0, 513.0, 769.0].map(f32::to_le_bytes).concat()
    );
}

#[test]
fn what_leaves_comes_back() {
    let bytes = floats(64);
    let mut shape = [2, 3];
    for element_type in ElementType::named() {
        let Ok((dtype, _)) = hurray_ffi::dlpack::element_type::to_dlpack(element_type) else {
            continue;
        };
        let tensor = described(bytes.as_ptr(), dtype, &mut shape, None, 0);
        let (first, _) = copy(&read(&tensor).unwrap());
        let out = export::<DLManagedTensorVersioned>(&first, Options::default()).unwrap();
        // SAFETY: the handle's descriptor is live.
        let tensor = *unsafe { out.tensor.tensor() };
        let (second, _) = copy(&read(&tensor).unwrap());
        assert_eq!(second.descriptor().element_type, element_type);
        assert_eq!(first.descriptor().shape, second.descriptor().shape);
        assert_eq!(tail(&first), tail(&second), "{element_type}");
    }
}

#[test]
fn arrays_are_allocated_as_asked() {
    for (dtype, element_type) in [
        (FLOAT, ElementType::Float32),
        (DLDataType::BOOL, ElementType::Bool),
        (DLDataType { lanes: 2, ..FP4 }, ElementType::Float4E2m1),
    ] {
        let mut shape = [2, 3];
        let prototype = described(std::ptr::null(), dtype, &mut shape, None, 7);
        // SAFETY: the shape has its numbers.
        let made = unsafe { allocate(&prototype) }.unwrap();
        // SAFETY: the handle's descriptor is live.
        let tensor = *unsafe { made.tensor() };
        assert_eq!(tensor.dtype, dtype);
        assert_eq!(read(&tensor).unwrap().element_type(), element_type);
        assert_eq!(made.validate_export().unwrap().shape(), [2, 3]);
    }
    let mut huge = [1 << 40, 1 << 40];
    let prototype = described(std::ptr::null(), FLOAT, &mut huge, None, 0);
    // SAFETY: the shape has its numbers.
    assert!(unsafe { allocate(&prototype) }.is_err());
    let mut shape = [1];
    let mut prototype = described(std::ptr::null(), FLOAT, &mut shape, None, 0);
    prototype.device = DLDevice::cuda(0);
    // SAFETY: the shape has its numbers.
    assert!(unsafe { allocate(&prototype) }.is_err());
}
