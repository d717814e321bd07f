//! The `hurray` Python module: a thin face over `hurray-core` and `hurray-ffi`, and the only crate that knows Python.
//!
//! Each file is one thing and registers it on the native module `hurray._hurray`; `hurray/__init__.py` gives out what is registered.

mod aligned_allocator;
mod errors;
mod numpy_c_api;

use pyo3::prelude::*;

/// The native part of `hurray`.
#[pymodule]
#[pyo3(name = "_hurray")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    aligned_allocator::register(module)?;
    errors::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MIN_BUFFER_ALIGNMENT", hurray_core::MIN_BUFFER_ALIGNMENT)?;
    module.add("PAGE_ALIGNMENT", hurray_core::PAGE_ALIGNMENT)?;
    Ok(())
}
