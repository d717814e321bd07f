//! JAX's arrays, in and out, over DLPack.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::{CopyArgument, library};
use crate::dlpack::import::{Wanted, from_dlpack};
use crate::owner::calling;
use crate::tensor::{Tensor, check_plain};

/// Wraps a JAX array, sharing its memory where that begins on a 64-byte boundary. The tensor is
/// read-only, since JAX's arrays never change.
///
/// `copy=None` copies only an array whose memory does not (`hurray.copies()` tells), `False` raises
/// CopyRequiredError instead, which names the measured alignment, and `True` always copies. bool is
/// packed, which is a copy.
///
/// Raises ImportError where JAX is not installed, and what JAX raises for an array that it does not
/// export: one on several devices.
#[pyfunction]
#[pyo3(signature = (array, *, copy=CopyArgument::IfNeeded), text_signature = "(array, *, copy=None)")]
fn from_jax(array: &Bound<'_, PyAny>, copy: CopyArgument) -> PyResult<Tensor> {
    let py = array.py();
    if !array.is_instance(&library(py, "jax", "jax")?.getattr("Array")?)? {
        return Err(PyTypeError::new_err(format!(
            "from_jax takes a jax.Array, not {}",
            array.get_type().name()?
        )));
    }
    let wanted = Wanted {
        place: None,
        copy,
        call: "from_jax",
    };
    Tensor::new(py, from_dlpack(array, None, wanted)?)
}

/// `to_jax` of `this`.
pub(crate) fn to_jax<'py>(this: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    check_plain(this.get().inner())?;
    let dlpack = library(py, "jax.dlpack", "jax")?;
    // It names the stream.
    calling(py, || dlpack.call_method1("from_dlpack", (this,)))
}

/// Puts `from_jax` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(from_jax, module)?)
}
