//! `__dlpack__` and `__dlpack_device__`.

use dlpark::Managed;
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use hurray_ffi::dlpack::{self, Abi, ExportError, Options};
use hurray_ffi::gather::GatherError;
use hurray_ffi::{Place, Tensor};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use super::argument;
use crate::{copies, errors};

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
/// `ValueError` for a bad argument; what is an `UnsupportedError` and a built-in `BufferError` for a tensor that does not leave this way.
pub(crate) fn dlpack<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    arguments: &Arguments<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = Options {
        copy: argument::copy(arguments.copy)?,
        device: argument::device(arguments.dl_device)?,
        in_pairs: false,
    };
    let is_versioned = argument::is_versioned(arguments.max_version)?;
    if arguments.stream.is_some() {
        let device = dlpack::capsule_device(tensor, options.device);
        argument::check_stream(
            arguments.stream,
            device.map_err(|error| refusal(py, &error))?,
        )?;
    }
    if is_versioned {
        managed::<DLManagedTensorVersioned>(py, tensor, options, "__dlpack__")?.into_pyobject(py)
    } else {
        managed::<DLManagedTensor>(py, tensor, options, "__dlpack__")?.into_pyobject(py)
    }
}

/// What `__dlpack_device__` returns.
///
/// # Errors
/// As [`dlpack`].
pub(crate) fn device(py: Python<'_>, tensor: &Tensor) -> PyResult<(u32, i32)> {
    let device = dlpack::announced_device(tensor).map_err(|error| refusal(py, &error))?;
    Ok(device.into())
}

/// `tensor` as a managed tensor, a copy reported as made by `call`.
pub(crate) fn managed<M: Abi>(
    py: Python<'_>,
    tensor: &Tensor,
    options: Options,
    call: &'static str,
) -> PyResult<Managed<M>> {
    let exported = dlpack::export::<M>(tensor, options).map_err(|error| refusal(py, &error))?;
    if let Some((bytes, reason)) = exported.copied {
        let from = tensor.buffers().first().map_or(Place::HOST, |b| b.place());
        copies::report(py, bytes, from, Place::HOST, reason.into(), call)?;
    }
    Ok(exported.tensor)
}

fn refusal(py: Python<'_>, error: &ExportError) -> PyErr {
    match error {
        ExportError::Copy(GatherError::Allocation(_)) | ExportError::Allocation { .. } => {
            PyMemoryError::new_err(error.to_string())
        }
        _ => errors::dlpack_refusal(py, error.to_string()),
    }
}
