//! A tensor from what its maker declares and the memory it brings.

use hurray_core::{
    ElementType, ExtensionType, Layout, QuantizationScheme, Shape, Shard, Statistics,
    TensorDescriptor, strided_extent,
};
use hurray_ffi::{Buffer, Tensor};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

use crate::device::Device;
use crate::errors::{BufferError, OrRaise};
use crate::ingest::exposed;

/// What a maker declares.
pub(super) struct Declared {
    pub(super) element_type: ElementType,
    pub(super) shape: Shape,
    pub(super) layout: Layout,
    pub(super) quantization: Option<QuantizationScheme>,
    pub(super) statistics: Option<Statistics>,
    pub(super) shard: Option<Shard>,
    pub(super) extension_type: Option<ExtensionType>,
    pub(super) byte_offset: Option<u64>,
}

/// The tensor over these objects' memory.
pub(super) fn tensor(
    buffer: &Bound<'_, PyAny>,
    aux_buffers: Option<&Bound<'_, PyAny>>,
    declared: Declared,
    device: Option<&Py<Device>>,
) -> PyResult<Tensor> {
    const CALL: &str = "Tensor";
    let may_be_offset = declared.byte_offset.is_none() && declared.layout.is_dense();
    let (first, slack) = exposed::buffer(buffer, may_be_offset, CALL)
        .map_err(|error| exposed::name_buffer(buffer.py(), error, 0))?;
    let mut buffers: SmallVec<[Buffer; 3]> = smallvec![first];
    if let Some(others) = aux_buffers {
        for (position, other) in others.try_iter()?.enumerate() {
            let (other, _) = exposed::buffer(&other?, false, CALL)
                .map_err(|error| exposed::name_buffer(buffer.py(), error, position + 1))?;
            buffers.push(other);
        }
    }
    if let Some(device) = device {
        check_places(&buffers, device.get())?;
    }
    let mut descriptor = TensorDescriptor {
        quantization: declared.quantization.map(|scheme| scheme.encode()),
        shard: declared.shard,
        statistics: declared.statistics,
        extension_type: declared.extension_type,
        ..TensorDescriptor::new(
            declared.element_type,
            declared.shape,
            declared.layout,
            buffers.iter().map(Buffer::handle),
        )
    };
    descriptor.byte_offset = match declared.byte_offset {
        Some(offset) => offset,
        None => slack + least_offset(&descriptor)?,
    };
    Tensor::new(descriptor, buffers).or_raise()
}

/// The bytes that negative strides reach back from element `[0, …, 0]`.
fn least_offset(descriptor: &TensorDescriptor) -> PyResult<u64> {
    let Layout::Strided(strides) = &descriptor.layout else {
        return Ok(0);
    };
    if !strides.iter().any(|&stride| stride < 0) {
        return Ok(0);
    }
    let width = descriptor.element_width().or_raise()?;
    match strided_extent(&descriptor.shape, strides).or_raise()? {
        Some(extent) => Ok(extent.bytes(width).or_raise()?.before),
        None => Ok(0),
    }
}

/// Whether the bytes are on the device that is claimed.
fn check_places(buffers: &[Buffer], device: &Device) -> PyResult<()> {
    let claimed = device.0;
    for (index, buffer) in buffers.iter().enumerate() {
        if buffer.place() != claimed {
            return Err(BufferError::new_err(format!(
                "buffer {index} is at {:#x} on {}, not on {device}: device= is checked against the memory, and moves nothing",
                buffer.as_ptr().addr(),
                buffer.place(),
            )));
        }
    }
    Ok(())
}
