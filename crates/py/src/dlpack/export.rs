//! `__dlpack__` and `__dlpack_device__`.

use dlpark::Managed;
use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use hurray_core::{DeviceError, DeviceLayer, DeviceTag, StorageWidth, Stream};
use hurray_cuda::LAYER;
use hurray_ffi::dlpack::{self, Abi, ExportError, Options};
use hurray_ffi::gather::GatherError;
use hurray_ffi::{Buffer, OrderError, Tensor, TransferError};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use super::argument;
use crate::cuda::{StreamArgument, current_stream};
use crate::errors::Raise;
use crate::ingest::copying;
use crate::owner::detached;
use crate::{copies, device, errors, handoff};

/// The arguments of `__dlpack__`, as they came.
#[derive(Default)]
pub(crate) struct Arguments<'a, 'py> {
    /// `stream`.
    pub(crate) stream: Option<&'a Bound<'py, PyAny>>,
    /// `max_version`.
    pub(crate) max_version: Option<&'a Bound<'py, PyAny>>,
    /// `dl_device`.
    pub(crate) dl_device: Option<&'a Bound<'py, PyAny>>,
    /// `copy`.
    pub(crate) copy: Option<&'a Bound<'py, PyAny>>,
}

/// The capsule that `__dlpack__` returns: versioned where `max_version` allows it, else legacy. Everything is checked before anything is made.
///
/// # Errors
/// `ValueError` for a bad argument; what is an `UnsupportedError` and a built-in `BufferError` for a tensor that does not leave this way; `DeviceError`.
pub(crate) fn dlpack<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    arguments: &Arguments<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let wanted = Options {
        copy: argument::copy(arguments.copy)?,
        device: argument::device(arguments.dl_device)?,
        ..Options::default()
    };
    let is_versioned = argument::is_versioned(arguments.max_version)?;
    let stream = stream(py, tensor, wanted.device, arguments.stream)?;
    let options = Options {
        stream: stream.as_ref(),
        ..wanted
    };
    if is_versioned {
        managed::<DLManagedTensorVersioned>(py, tensor, options, "__dlpack__")?.into_pyobject(py)
    } else {
        managed::<DLManagedTensor>(py, tensor, options, "__dlpack__")?.into_pyobject(py)
    }
}

/// The stream on which a consumer that asks for `wanted` gets the bytes: the one it names, the legacy default stream where it names none, and none where
/// it asks for no order or where there are no streams. Bytes that are copied to the host are copied on the device's current one.
fn stream<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    wanted: Option<DLDevice>,
    named: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Stream>> {
    let place = handoff::place_of(tensor);
    if named.is_none() && place.device == DeviceTag::Cpu {
        return Ok(None);
    }
    let capsule = dlpack::capsule_device(tensor, wanted).map_err(|error| refusal(py, &error))?;
    argument::check_stream(named, capsule)?;
    let stream = match (named, capsule.device_type) {
        (_, DLDeviceType::CPU) if place.is_host_accessible() => None,
        (_, DLDeviceType::CPU) => return current_stream_if_any(py, place.device_id),
        (None, DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED) => {
            Some(StreamArgument::Number(Stream::LEGACY))
        }
        (None, _) => None,
        (Some(named), _) => StreamArgument::or_none(named)?,
    };
    let place = match (capsule.device_type, u32::try_from(capsule.device_id)) {
        // Managed memory that was asked for there, too, is for that device's streams.
        (DLDeviceType::CUDA, Ok(device_id)) => device::standard(DeviceTag::Cuda, device_id),
        _ => place,
    };
    match stream {
        Some(stream) => handoff::stream_for(py, place, stream),
        None => Ok(None),
    }
}

/// The current stream of device `device_id`; `None` where there is no driver.
///
/// # Errors
/// `DeviceError` where there is no such device; what torch or CuPy raise.
pub(super) fn current_stream_if_any(py: Python<'_>, device_id: u32) -> PyResult<Option<Stream>> {
    match detached(py, || LAYER.device_count()) {
        Err(DeviceError::Unavailable { .. }) => Ok(None),
        _ => current_stream(py, device_id).map(Some),
    }
}

/// What `__dlpack_device__` returns.
///
/// # Errors
/// As [`dlpack`].
pub(crate) fn announced_device(py: Python<'_>, tensor: &Tensor) -> PyResult<(u32, i32)> {
    let device = dlpack::announced_device(tensor).map_err(|error| refusal(py, &error))?;
    Ok(device.into())
}

/// `tensor` as a managed tensor, a copy reported as made by `call`.
pub(crate) fn managed<M: Abi>(
    py: Python<'_>,
    tensor: &Tensor,
    options: Options<'_>,
    call: &'static str,
) -> PyResult<Managed<M>> {
    let waits =
        options.stream.is_some() || !tensor.buffers().iter().all(|b| b.readiness().is_ready());
    // Elements of less than a byte are always copied.
    let width = tensor.descriptor().element_type.storage_width();
    let copies = options.copy == Some(true) || width.is_some_and(StorageWidth::is_packed);
    let bytes = if copies { bytes(tensor) } else { 0 };
    let export = || dlpack::export::<M>(tensor, options);
    let exported = if waits {
        detached(py, export)
    } else {
        copying(py, bytes, export)
    };
    let exported = exported.map_err(|error| refusal(py, &error))?;
    for copy in exported.copies {
        copies::report(py, copy.bytes, copy.from, copy.to, copy.reason.into(), call)?;
    }
    Ok(exported.tensor)
}

fn bytes(tensor: &Tensor) -> usize {
    tensor.buffers().iter().map(Buffer::len).sum()
}

fn refusal(py: Python<'_>, error: &ExportError) -> PyErr {
    match error {
        ExportError::Copy(GatherError::Allocation(_)) | ExportError::Allocation { .. } => {
            PyMemoryError::new_err(error.to_string())
        }
        ExportError::Order(OrderError::Device(error))
        | ExportError::Transfer(TransferError::Device(error)) => error.clone().raise(),
        ExportError::Transfer(TransferError::Allocation(error)) => {
            PyMemoryError::new_err(error.to_string())
        }
        _ => errors::dlpack_refusal(py, error.to_string()),
    }
}
