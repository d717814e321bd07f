//! `hurray.empty`.

use hurray_core::memory::{AlignedBytes, AllocationError};
use hurray_core::{
    DYNAMIC, DeviceTag, ElementType, Layout, MIN_BUFFER_ALIGNMENT, PAGE_ALIGNMENT, element_count,
};
use hurray_ffi::{Buffer, Place};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;

use super::Tensor;
use crate::cuda::{StreamArgument, current_stream};
use crate::device;
use crate::element_type::DtypeArgument;
use crate::errors::{InvalidDescriptorError, OrRaise, UnsupportedError};
use crate::ingest::dense;
use crate::owner::detached;
use crate::shape::ShapeArgument;

/// Memory of a device is aligned to so many bytes, whatever was asked (CUDA Programming Guide, device memory accesses).
const DEVICE_ALIGNMENT: usize = 256;

/// A new row-major tensor whose values are unspecified: zeros in host memory, anything on a device.
///
/// `dtype` is float64 by default. `device` is where the memory is wanted: "cpu" by default, "cuda:0"
/// from a pool of our own, whose bytes are first used on `stream` (by default the device's current
/// stream; the tensor is `consumer_stream` of it), "cuda:0/host_pinned" and "cuda:0/unified", which the
/// host reaches too and which are ready. `alignment` is in bytes, a power of two from 64 to 4096.
/// `shareable=True` takes the memory outside the pool and begins it on a page, so that other processes
/// and network cards can reach it.
///
/// Raises ValueError for an alignment that can't be, UnsupportedError for a device whose memory is not
/// allocated here, DeviceError where the device can't be used, MemoryError where the host has no such
/// block.
#[pyfunction]
#[pyo3(
    signature = (shape, *, dtype=None, device=None, alignment=MIN_BUFFER_ALIGNMENT as i128, stream=None, shareable=false),
    text_signature = "(shape, *, dtype=None, device=None, alignment=64, stream=None, shareable=False)"
)]
pub(super) fn empty(
    py: Python<'_>,
    shape: ShapeArgument,
    dtype: Option<DtypeArgument>,
    device: Option<&Bound<'_, PyAny>>,
    alignment: i128,
    stream: Option<&Bound<'_, PyAny>>,
    shareable: bool,
) -> PyResult<Tensor> {
    let element_type = dtype.map_or(ElementType::Float64, |dtype| dtype.0);
    let shape = shape.0;
    let place = match device {
        Some(device) => device::argument(device)?.get().0,
        None => Place::HOST,
    };
    let alignment = usize::try_from(alignment)
        .ok()
        .filter(|asked| asked.is_power_of_two())
        .filter(|asked| (MIN_BUFFER_ALIGNMENT..=PAGE_ALIGNMENT).contains(asked))
        .ok_or_else(|| {
            PyValueError::new_err(format!(
                "alignment is a power of two from {MIN_BUFFER_ALIGNMENT} to {PAGE_ALIGNMENT} bytes, not {alignment}"
            ))
        })?;
    if let Some(axis) = shape.iter().position(|&n| n == DYNAMIC) {
        return Err(InvalidDescriptorError::new_err(format!(
            "dimension {axis} is dynamic: memory is allocated for sizes that are known"
        )));
    }
    let alignment = if shareable { PAGE_ALIGNMENT } else { alignment };
    let width = element_type.storage_width().ok_or_else(|| {
        UnsupportedError::new_err(format!("elements of {element_type} have no known size"))
    })?;
    let len = element_count(&shape)
        .and_then(|count| usize::try_from(width.byte_size(count)?).ok())
        .ok_or_else(|| PyMemoryError::new_err("the elements exceed the address space"))?;
    let buffer = match place.device {
        DeviceTag::Cpu if place == Place::HOST => {
            if let Some(stream) = stream {
                return Err(PyValueError::new_err(format!(
                    "stream {stream} was given for memory of the cpu, which has no streams"
                )));
            }
            AlignedBytes::zeroed_with_alignment(len, alignment)
                .map(Buffer::from)
                .map_err(|error: AllocationError| PyMemoryError::new_err(error.to_string()))?
        }
        DeviceTag::Cuda => {
            let stream = match stream {
                Some(stream) => StreamArgument::new(stream)?.of_device(py, place.device_id)?,
                None => current_stream(py, place.device_id)?,
            };
            // What the device aligns less is begun later in a block that is so much longer.
            let slack = alignment.saturating_sub(DEVICE_ALIGNMENT);
            let block = len.checked_add(if len == 0 { 0 } else { slack });
            let block = block
                .ok_or_else(|| PyMemoryError::new_err("the elements exceed the address space"))?;
            let allocate = || Buffer::allocate(place, block, shareable, &stream);
            let buffer = detached(py, allocate).or_raise()?;
            let address = buffer.as_ptr().addr();
            let begin = address.next_multiple_of(alignment) - address;
            buffer
                .slice(if len == 0 { 0 } else { begin }, len)
                .or_raise()?
        }
        _ => {
            return Err(UnsupportedError::new_err(format!(
                "memory on {place} is not allocated here: on cpu and cuda it is"
            )));
        }
    };
    Tensor::new(py, dense(element_type, shape, Layout::RowMajor, 0, buffer)?)
}
