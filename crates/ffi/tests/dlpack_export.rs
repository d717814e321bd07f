//! Tensors out through DLPack. Case numbers are those of the collected public reports, named beside each.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use dlpark::ffi::{DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use hurray_core::memory::AlignedBytes;
use hurray_core::{
    DeviceTag, ElementType, Layout, MemoryClass, QuantizationScheme, Strides, SyncMode,
    TensorAffine, TensorDescriptor,
};
use hurray_ffi::dlpack::{Copied, CopyReason, ExportError, Options, announced_device, export};
use hurray_ffi::{Buffer, BufferFlags, Owner, Place, Readiness, Tensor, TransferError};
use smallvec::smallvec;

type Versioned = DLManagedTensorVersioned;

fn descriptor(
    element_type: ElementType,
    shape: &[u64],
    layout: Layout,
    byte_offset: u64,
    buffer: &Buffer,
) -> TensorDescriptor {
    TensorDescriptor {
        byte_offset,
        ..TensorDescriptor::new(element_type, shape, layout, [buffer.handle()])
    }
}

fn tensor(
    element_type: ElementType,
    shape: &[u64],
    layout: Layout,
    byte_offset: u64,
    buffer: Buffer,
) -> Tensor {
    let descriptor = descriptor(element_type, shape, layout, byte_offset, &buffer);
    Tensor::new(descriptor, smallvec![buffer]).unwrap()
}

fn bytes(values: &[u8]) -> Buffer {
    Buffer::from(AlignedBytes::copy_of(values).unwrap())
}

fn strided(strides: &[i64]) -> Layout {
    Layout::Strided(Strides::from_slice(strides))
}

fn floats(count: u8) -> Buffer {
    let values: Vec<u8> = (0..count)
        .flat_map(|i| f32::from(i).to_le_bytes())
        .collect();
    bytes(&values)
}

const COPY: Options<'static> = Options {
    copy: Some(true),
    device: None,
    in_pairs: false,
    stream: None,
};

const fn copied(bytes: usize, reason: CopyReason) -> Copied {
    Copied {
        bytes,
        from: Place::HOST,
        to: Place::HOST,
        reason,
    }
}

/// Shape and strides as a consumer reads them.
fn metadata<M: ManagedTensorBase>(managed: &Managed<M>) -> (Vec<i64>, Vec<i64>) {
    let view = managed.validate_export().unwrap();
    (
        view.shape().to_vec(),
        view.strides().unwrap_or(&[]).to_vec(),
    )
}

fn raw<M: ManagedTensorBase>(managed: &Managed<M>) -> DLTensor {
    // SAFETY: the handle's descriptor is live and nobody writes to it.
    *unsafe { managed.tensor() }
}

fn element(managed: &Managed<Versioned>, byte: usize) -> u8 {
    let data = raw(managed).data.cast::<u8>();
    // SAFETY: the tests ask for bytes inside the array.
    let at = unsafe { data.add(byte) };
    // SAFETY: as above.
    unsafe { at.read() }
}

#[test]
fn the_offset_is_part_of_the_address() {
    // pytorch/pytorch#168177, numpy/numpy#20338: consumers ignore byte_offset.
    let buffer = floats(8);
    let address = buffer.as_ptr();
    let tensor = tensor(ElementType::Float32, &[4], Layout::RowMajor, 16, buffer);
    let out = export::<Versioned>(&tensor, Options::default()).unwrap();
    let raw = raw(&out.tensor);
    assert_eq!(raw.data.cast::<u8>(), address.wrapping_add(16));
    assert_eq!(raw.byte_offset, 0);
    assert!(out.copies.is_empty());
    assert_eq!(out.tensor.flags(), DlpackFlags::empty());
    assert_eq!(metadata(&out.tensor), (vec![4], vec![1]));
}

#[test]
fn negative_strides_are_packed_or_refused() {
    // pytorch/pytorch#188023, scikit-learn/scikit-learn#34307: torch aborted the process. Decision 21.
    let tensor = tensor(ElementType::Float32, &[4], strided(&[-1]), 12, floats(4));
    for copy in [None, Some(false)] {
        let options = Options {
            copy,
            ..Options::default()
        };
        let error = export::<Versioned>(&tensor, options).err().unwrap();
        assert_eq!(error, ExportError::NegativeStrides { strides: vec![-1] });
    }
    let out = export::<Versioned>(&tensor, COPY).unwrap();
    assert_eq!(metadata(&out.tensor), (vec![4], vec![1]));
    assert_eq!(out.tensor.flags(), DlpackFlags::IS_COPIED);
    assert_eq!(out.copies[..], [copied(16, CopyReason::Request)]);
    // SAFETY: the handle's descriptor is live.
    let view = unsafe { out.tensor.tensor() };
    // SAFETY: nobody writes to the copy.
    let values = unsafe { view.cpu_slice::<f32>() }.unwrap();
    assert_eq!(values, [3.0, 2.0, 1.0, 0.0]);
}

#[test]
fn dimensions_of_one_element_have_canonical_strides() {
    // pytorch/pytorch#83069, #163274, mitsuba-renderer/drjit#122.
    let cases: [(&[u64], Layout, &[i64]); 4] = [
        (&[1, 8], strided(&[77, 1]), &[8, 1]),
        (&[8, 1], Layout::ColumnMajor, &[1, 1]),
        (
            &[1, 2, 1, 4, 1],
            strided(&[0, 4, 0, 1, 0]),
            &[8, 4, 4, 1, 1],
        ),
        (&[2, 4], Layout::ColumnMajor, &[1, 2]),
    ];
    for (shape, layout, strides) in cases {
        let tensor = tensor(ElementType::Float32, shape, layout, 0, floats(8));
        let out = export::<Versioned>(&tensor, Options::default()).unwrap();
        assert_eq!(metadata(&out.tensor).1, strides, "{shape:?}");
    }
}

#[test]
fn empty_arrays_have_null_data() {
    // pytorch/pytorch#41182, dmlc/dlpack#133.
    let tensor = tensor(
        ElementType::Float32,
        &[0, 4],
        strided(&[7, 13]),
        0,
        bytes(&[]),
    );
    let out = export::<Versioned>(&tensor, Options::default()).unwrap();
    assert!(raw(&out.tensor).data.is_null());
    assert_eq!(metadata(&out.tensor), (vec![0, 4], vec![4, 1]));
}

#[test]
fn a_scalar_has_no_dimensions() {
    let tensor = tensor(ElementType::Float32, &[], Layout::RowMajor, 0, floats(1));
    let out = export::<DLManagedTensor>(&tensor, Options::default()).unwrap();
    assert_eq!(raw(&out.tensor).ndim, 0);
}

#[test]
fn booleans_leave_one_byte_each() {
    // pytorch/pytorch#67081, jax-ml/jax#4719. Decision 18.
    let tensor = tensor(
        ElementType::Bool,
        &[10],
        Layout::RowMajor,
        0,
        bytes(&[0b1000_0101, 0b10]),
    );
    let out = export::<Versioned>(&tensor, Options::default()).unwrap();
    let dtype = raw(&out.tensor).dtype;
    assert_eq!((dtype.code.0, dtype.bits, dtype.lanes), (6, 8, 1));
    let values: Vec<u8> = (0..10).map(|i| element(&out.tensor, i)).collect();
    assert_eq!(values, [1, 0, 1, 0, 0, 0, 0, 1, 0, 1]);
    assert_eq!(out.tensor.flags(), DlpackFlags::IS_COPIED);
    assert_eq!(out.copies[..], [copied(10, CopyReason::Packing)]);
    let options = Options {
        copy: Some(false),
        ..Options::default()
    };
    assert!(matches!(
        export::<Versioned>(&tensor, options),
        Err(ExportError::UnpackingForbidden { .. })
    ));
}

#[test]
fn fp4_leaves_packed_or_in_pairs() {
    // dmlc/dlpack#158, pytorch/pytorch#148791. Decision 14.
    let packed = |shape: &[u64], layout| {
        tensor(
            ElementType::Float4E2m1,
            shape,
            layout,
            0,
            bytes(&[0x42, 0x75, 0x31, 0x64]),
        )
    };
    let two = Options {
        in_pairs: true,
        ..Options::default()
    };
    let whole = packed(&[2, 4], Layout::RowMajor);
    let one_lane = export::<Versioned>(&whole, Options::default()).unwrap();
    let dtype = raw(&one_lane.tensor).dtype;
    assert_eq!((dtype.code.0, dtype.bits, dtype.lanes), (17, 4, 1));
    assert_eq!(metadata(&one_lane.tensor), (vec![2, 4], vec![4, 1]));
    let pairs = export::<Versioned>(&whole, two).unwrap();
    assert_eq!(raw(&pairs.tensor).dtype.lanes, 2);
    assert_eq!(metadata(&pairs.tensor), (vec![2, 2], vec![2, 1]));
    assert_eq!(element(&pairs.tensor, 1), 0x75);
    assert!(one_lane.copies.is_empty() && pairs.copies.is_empty());

    for odd in [
        packed(&[3], Layout::RowMajor),
        packed(&[2, 2], strided(&[3, 1])),
        packed(&[2, 2], Layout::ColumnMajor),
        packed(&[], Layout::RowMajor),
    ] {
        assert!(matches!(
            export::<Versioned>(&odd, two),
            Err(ExportError::Pairs { .. })
        ));
    }
    let floats = tensor(ElementType::Float32, &[2], Layout::RowMajor, 0, floats(2));
    assert!(matches!(
        export::<Versioned>(&floats, two),
        Err(ExportError::ElementType(_))
    ));
}

#[test]
fn sub_byte_integers_keep_their_width() {
    // Decision 14: never re-labelled as 8-bit.
    for (element_type, code, bits) in [
        (ElementType::Int2, 0, 2),
        (ElementType::Uint2, 1, 2),
        (ElementType::Int4, 0, 4),
        (ElementType::Uint4, 1, 4),
        (ElementType::Float6E2m3, 15, 6),
    ] {
        let tensor = tensor(element_type, &[4], Layout::RowMajor, 0, bytes(&[1, 2, 3]));
        let out = export::<Versioned>(&tensor, Options::default()).unwrap();
        let dtype = raw(&out.tensor).dtype;
        assert_eq!((dtype.code.0, dtype.bits, dtype.lanes), (code, bits, 1));
        assert!(out.copies.is_empty());
    }
}

#[test]
fn types_without_a_code_are_refused() {
    let tensor = tensor(
        ElementType::Float128,
        &[1],
        Layout::RowMajor,
        0,
        bytes(&[0; 16]),
    );
    let error = export::<Versioned>(&tensor, Options::default()).err();
    assert!(error.unwrap().to_string().contains("float128"));
}

#[test]
fn read_only_is_said_or_refused() {
    // numpy/numpy#20742, data-apis/array-api#191.
    let tensor = tensor(
        ElementType::Float32,
        &[4],
        Layout::RowMajor,
        0,
        floats(4).read_only(),
    );
    let out = export::<Versioned>(&tensor, Options::default()).unwrap();
    assert_eq!(out.tensor.flags(), DlpackFlags::READ_ONLY);
    assert_eq!(
        export::<DLManagedTensor>(&tensor, Options::default()).err(),
        Some(ExportError::ReadOnly)
    );
    // A copy is the consumer's to write to.
    assert!(export::<DLManagedTensor>(&tensor, COPY).is_ok());
    let out = export::<Versioned>(&tensor, COPY).unwrap();
    assert_eq!(out.tensor.flags(), DlpackFlags::IS_COPIED);
}

#[test]
fn codes_are_not_values() {
    // Decision 16.
    let buffer = bytes(&[0; 4]);
    let mut described = descriptor(ElementType::Int8, &[4], Layout::RowMajor, 0, &buffer);
    let scheme = QuantizationScheme::TensorAffine(TensorAffine {
        scale: 0.5,
        zero_point: 0,
    });
    described.quantization = Some(scheme.encode());
    let tensor = Tensor::new(described, smallvec![buffer]).unwrap();
    assert_eq!(
        export::<Versioned>(&tensor, Options::default()).err(),
        Some(ExportError::Quantized)
    );
    assert_eq!(announced_device(&tensor), Err(ExportError::Quantized));
}

/// Eight floats said to be at `device` number 1.
fn placed(device: DeviceTag, memory_class: MemoryClass, mode: SyncMode) -> Tensor {
    let mut values = AlignedBytes::zeroed(32).unwrap();
    let address = values.as_mut_ptr();
    let place = Place {
        device,
        device_id: 1,
        memory_class,
    };
    // SAFETY: the owner holds the bytes; `place` is a pretence that the tests only read back.
    let buffer = unsafe {
        Buffer::from_owner(
            address,
            32,
            place,
            Readiness::from(mode),
            BufferFlags::empty(),
            Owner::Allocation(values),
        )
    };
    tensor(
        ElementType::Float32,
        &[8],
        Layout::RowMajor,
        0,
        buffer.unwrap(),
    )
}

#[test]
fn bytes_that_may_still_be_written_are_refused() {
    for mode in [SyncMode::Event, SyncMode::ConsumerStream] {
        let tensor = placed(DeviceTag::Cuda, MemoryClass::Standard, mode);
        let error = export::<Versioned>(&tensor, Options::default()).err();
        assert!(matches!(error, Some(ExportError::Access(_))));
    }
}

#[test]
fn devices_are_those_of_the_table() {
    let wanted = |tensor: &Tensor, device| {
        let options = Options {
            device: Some(device),
            ..Options::default()
        };
        export::<Versioned>(tensor, options).map(|out| raw(&out.tensor).device)
    };
    let synced = SyncMode::ProducerSynced;

    let cuda = placed(DeviceTag::Cuda, MemoryClass::Standard, synced);
    let out = export::<Versioned>(&cuda, Options::default()).unwrap();
    assert_eq!(raw(&out.tensor).device, DLDevice::cuda(1));
    assert!(matches!(
        wanted(&cuda, DLDevice::CPU),
        Err(ExportError::OtherDevice { .. })
    ));
    // No stream to copy on.
    assert!(matches!(
        export::<Versioned>(&cuda, COPY),
        Err(ExportError::Transfer(TransferError::NoStream { .. }))
    ));

    // pytorch/pytorch#136250, jax-ml/jax#22346. Decision 12.
    let pinned = placed(DeviceTag::Cuda, MemoryClass::HostPinned, synced);
    assert_eq!(announced_device(&pinned).unwrap().device_type.0, 3);
    let out = export::<Versioned>(&pinned, Options::default()).unwrap();
    assert_eq!(raw(&out.tensor).device, DLDevice::CPU);

    // pytorch/pytorch#96318.
    let managed = placed(DeviceTag::Cuda, MemoryClass::Unified, synced);
    assert_eq!(wanted(&managed, DLDevice::CPU), Ok(DLDevice::CPU));
    assert_eq!(wanted(&managed, DLDevice::cuda(1)), Ok(DLDevice::cuda(1)));
    assert!(wanted(&managed, DLDevice::metal(0)).is_err());
}
