//! The arguments of `__dlpack__` and `from_dlpack`. A bad one is a ValueError: consumers take a TypeError for an unknown keyword and call again (C7).

use dlpark::ffi::{DLDevice, DLDeviceType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::cuda::StreamArgument;

/// `copy`: always, never, or where it must be.
pub(super) fn copy(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<bool>> {
    let Some(value) = value else {
        return Ok(None);
    };
    value.extract().map(Some).map_err(|_| {
        PyValueError::new_err(format!("copy must be None, True or False, not {value}"))
    })
}

/// Whether `max_version` allows a versioned capsule.
pub(super) fn is_versioned(max_version: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let Some(value) = max_version else {
        return Ok(false);
    };
    let major = value
        .cast::<PyTuple>()
        .ok()
        .filter(|version| version.len() == 2)
        .and_then(|version| version.get_borrowed_item(0).ok()?.extract::<i64>().ok())
        .ok_or_else(|| {
            PyValueError::new_err(format!(
                "max_version must be None or (major, minor), not {value}"
            ))
        })?;
    Ok(major >= 1)
}

/// `dl_device`: where the consumer wants the array.
pub(super) fn device(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<DLDevice>> {
    let Some(value) = value else {
        return Ok(None);
    };
    let (device_type, device_id) = value.extract().map_err(|_| {
        PyValueError::new_err(format!(
            "dl_device must be None or (device_type, device_id), not {value}"
        ))
    })?;
    Ok(Some(DLDevice {
        device_type: DLDeviceType(device_type),
        device_id,
    }))
}

/// Checks that `stream` is one that a consumer on `device` may name: by the array API standard, 0 is ambiguous on CUDA.
pub(super) fn check_stream(stream: Option<&Bound<'_, PyAny>>, device: DLDevice) -> PyResult<()> {
    let Some(value) = stream else {
        return Ok(());
    };
    let number: Option<i128> = if value.is_instance_of::<PyBool>() {
        None
    } else {
        value.extract().ok()
    };
    let (is_allowed, allowed) = match device.device_type {
        DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED => (
            match StreamArgument::or_none(value) {
                Ok(_) => true,
                Err(error) if is_bad_argument(value.py(), &error) => false,
                Err(error) => return Err(error),
            },
            "None, -1, 1 (the legacy default stream), 2 (the per-thread default stream), a stream's handle or a stream object; 0 is ambiguous",
        ),
        DLDeviceType::ROCM => (
            matches!(number, Some(-1 | 0 | 3..)),
            "None, -1, 0 (the default stream) or a stream's handle",
        ),
        _ => (
            matches!(number, Some(-1)),
            "None or -1, since this device has no streams",
        ),
    };
    if is_allowed {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "stream must be {allowed}; not {value}"
    )))
}

/// Whether the error says that the argument is none of a stream's.
fn is_bad_argument(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py)
}
