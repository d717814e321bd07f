//! The current stream: the one that work is queued on where nothing else is said.

use hurray_core::Stream as CoreStream;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::StreamArgument;
use super::stream::{CURRENT, Stream};
use crate::owner::calling;

/// The current stream of `device`: of the innermost `with stream:` block on that device in this thread
/// or task, else torch's if torch has initialised CUDA, else CuPy's if it is loaded, else the legacy
/// default stream. `device` is a number, "cuda:1" or a `hurray.Device`; None is device 0.
///
/// Raises DeviceError where there is no such device.
#[pyfunction]
#[pyo3(name = "current_stream", signature = (device=None))]
pub(super) fn current_stream_py<'py>(
    py: Python<'py>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, Stream>> {
    let device_id = super::device_argument(device)?;
    match current(py, device_id)? {
        StreamArgument::Ours(stream) => Ok(stream),
        named => Bound::new(py, Stream::lend(py, named, device_id)?),
    }
}

/// The current stream of the device.
///
/// # Errors
/// `DeviceError` where there is no such device; what torch or CuPy raise.
pub(crate) fn current_stream(py: Python<'_>, device_id: u32) -> PyResult<CoreStream> {
    current(py, device_id)?.of_device(py, device_id)
}

fn current(py: Python<'_>, device_id: u32) -> PyResult<StreamArgument<'_>> {
    if let Some(blocks) = CURRENT.in_context(py)? {
        for block in blocks.iter().rev() {
            let stream = block.cast_into::<Stream>()?;
            if stream.get().stream().device_id() == device_id {
                return Ok(StreamArgument::Ours(stream));
            }
        }
    }
    if let Some(stream) = of_torch(py, device_id)? {
        return Ok(stream);
    }
    if let Some(stream) = of_cupy(py, device_id)? {
        return Ok(stream);
    }
    Ok(StreamArgument::Number(CoreStream::LEGACY))
}

/// torch's current stream, if torch is loaded and has initialised CUDA.
///
/// # Errors
/// What torch raises.
fn of_torch(py: Python<'_>, device_id: u32) -> PyResult<Option<StreamArgument<'_>>> {
    let Some(torch) = loaded(py, "torch")? else {
        return Ok(None);
    };
    // Not there while torch is still being imported.
    let Some(cuda) = torch.getattr_opt(intern!(py, "cuda"))? else {
        return Ok(None);
    };
    let Some(is_initialized) = cuda.getattr_opt(intern!(py, "is_initialized"))? else {
        return Ok(None);
    };
    if !calling(py, || is_initialized.call0())?.is_truthy()? {
        return Ok(None);
    }
    let stream = calling(py, || {
        cuda.call_method1(intern!(py, "current_stream"), (device_id,))
    })?;
    StreamArgument::new(&stream).map(Some)
}

/// CuPy's current stream, if CuPy is loaded.
///
/// # Errors
/// What CuPy raises.
fn of_cupy(py: Python<'_>, device_id: u32) -> PyResult<Option<StreamArgument<'_>>> {
    let Some(cupy) = loaded(py, "cupy")? else {
        return Ok(None);
    };
    let Some(cuda) = cupy.getattr_opt(intern!(py, "cuda"))? else {
        return Ok(None);
    };
    let stream = calling(py, || {
        cuda.call_method1(intern!(py, "get_current_stream"), (device_id,))
    })?;
    StreamArgument::new(&stream).map(Some)
}

/// CuPy's current stream of the device; CuPy is loaded.
///
/// # Errors
/// What CuPy raises; `DeviceError` where there is no such device.
pub(crate) fn stream_of_cupy(py: Python<'_>, device_id: u32) -> PyResult<CoreStream> {
    of_cupy(py, device_id)?
        .unwrap_or(StreamArgument::Number(CoreStream::LEGACY))
        .of_device(py, device_id)
}

/// A module that somebody has imported.
fn loaded<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.unbind())
    })?;
    match modules.bind(py).cast::<PyDict>() {
        Ok(modules) => modules.get_item(name),
        Err(_) => Ok(None),
    }
}
