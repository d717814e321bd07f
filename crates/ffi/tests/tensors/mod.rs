//! Tensors for tests.
#![allow(dead_code, reason = "each test crate uses its part")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use hurray_core::memory::AlignedBytes;
use hurray_core::{
    BlockAffine, BufferHandle, DeviceTag, ElementType, Layout, MemoryClass, QuantizationScheme,
    ScaleType, SyncMode, TensorDescriptor,
};
use hurray_ffi::{Buffer, Tensor};

/// Bytes of codes, scales and zero points of [`quantized`].
pub(crate) const SIZES: [usize; 3] = [128, 32, 32];

/// A `[4, 64]` int4 tensor, quantized per block of 32 along dimension 1: three buffers.
pub(crate) fn quantized(rows: [BufferHandle; 3]) -> TensorDescriptor {
    let scheme = QuantizationScheme::BlockAffine(BlockAffine {
        axis: 1,
        block_size: 32,
        scale_buffer: 1,
        zero_point_buffer: Some(2),
        scale_type: ScaleType::Float32,
    });
    TensorDescriptor {
        quantization: Some(scheme.encode()),
        buffers: rows.as_slice().into(),
        ..plain(ElementType::Int4, &[4, 64], rows[0])
    }
}

/// A row-major tensor of one buffer.
pub(crate) fn plain(
    element_type: ElementType,
    shape: &[u64],
    row: BufferHandle,
) -> TensorDescriptor {
    TensorDescriptor::new(element_type, shape, Layout::RowMajor, [row])
}

/// A row on the host, aligned to 64.
pub(crate) fn host_row(byte_size: usize) -> BufferHandle {
    BufferHandle {
        byte_size: byte_size as u64,
        alignment: 64,
        device: DeviceTag::Cpu,
        sync_mode: SyncMode::ProducerSynced,
        memory_class: MemoryClass::Standard,
    }
}

/// A row on a CUDA device, aligned to 64.
pub(crate) fn cuda_row(byte_size: usize, sync_mode: SyncMode) -> BufferHandle {
    BufferHandle {
        device: DeviceTag::Cuda,
        sync_mode,
        ..host_row(byte_size)
    }
}

/// Host memory of the sizes of [`quantized`].
pub(crate) fn host_buffers() -> [Buffer; 3] {
    SIZES.map(|size| Buffer::from(AlignedBytes::zeroed(size).unwrap()))
}

/// [`quantized`] over host memory.
pub(crate) fn host_tensor() -> Tensor {
    let buffers = host_buffers();
    let descriptor = quantized(SIZES.map(host_row));
    Tensor::new(descriptor, buffers.as_slice()).unwrap()
}
