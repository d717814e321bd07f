//! CuPy's arrays, in and out.

use hurray_core::DeviceTag;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::{cuda_array_interface, library};
use crate::cuda;
use crate::errors::UnsupportedError;
use crate::handoff::place_of;
use crate::owner::calling;
use crate::tensor::{Tensor, check_plain};

fn cupy(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    let install = "cupy-cuda13x (or cupy-cuda12x for a driver of CUDA 12)";
    library(py, "cupy", install)
}

/// Wraps a CuPy array, sharing its memory. Strides stay as they are.
///
/// CuPy is not asked to wait: the tensor is in mode consumer_stream, on CuPy's current stream of the
/// array's device.
///
/// Raises ImportError where CuPy is not installed, and UnsupportedError for a dtype that the format
/// does not have or packs, as it does bool.
#[pyfunction]
#[pyo3(signature = (array))]
fn from_cupy(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = array.py();
    if !array.is_instance(&cupy(py)?.getattr("ndarray")?)? {
        return Err(PyTypeError::new_err(format!(
            "from_cupy takes a cupy.ndarray, not {}",
            array.get_type().name()?
        )));
    }
    let device_id = array.getattr("device")?.getattr("id")?.extract()?;
    let stream = cuda::stream_of_cupy(py, device_id)?;
    Tensor::new(py, cuda_array_interface::import_on(array, stream)?)
}

/// `to_cupy` of `this`.
pub(crate) fn to_cupy<'py>(this: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let (py, tensor) = (this.py(), this.get().inner());
    let cupy = cupy(py)?;
    check_plain(tensor)?;
    let place = place_of(tensor);
    if place.device != DeviceTag::Cuda {
        return Err(UnsupportedError::new_err(format!(
            "CuPy's arrays are on a CUDA device, and this tensor is on {place}: `.to(\"cuda\")` copies it"
        )));
    }
    // It names its current stream.
    calling(py, || cupy.call_method1("from_dlpack", (this,)))
}

/// Puts `from_cupy` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(from_cupy, module)?)
}
