//! The `hurray` Python module: a thin face over `hurray-core` and `hurray-ffi`, and the only crate that knows Python.
//!
//! Each file is one thing and registers it on the native module `hurray._hurray`; `hurray/__init__.py` gives out what is registered.

mod aligned_allocator;
mod buffer_handle;
mod bytes_like;
mod capsule;
mod composite;
mod copies;
mod descriptor;
mod device;
mod dlpack;
mod element_type;
mod errors;
mod extension_type;
mod ingest;
mod layout;
mod numpy_c_api;
mod numpy_dtype;
mod owner;
mod quantization;
mod shape;
mod shard;
mod statistics;
mod tensor;

use pyo3::prelude::*;

/// The native part of `hurray`.
#[pymodule]
#[pyo3(name = "_hurray")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    aligned_allocator::register(module)?;
    buffer_handle::register(module)?;
    capsule::register(module)?;
    composite::register(module)?;
    copies::register(module)?;
    descriptor::register(module)?;
    device::register(module)?;
    element_type::register(module)?;
    errors::register(module)?;
    extension_type::register(module)?;
    ingest::numpy::register(module)?;
    ingest::torch::register(module)?;
    layout::register(module)?;
    owner::register(module)?;
    quantization::register(module)?;
    shard::register(module)?;
    statistics::register(module)?;
    tensor::register(module)?;
    // After the type on which it installs the C exchange API.
    dlpack::register(module)?;
    // Not a name that `from hurray import *` gives.
    module.setattr("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MIN_BUFFER_ALIGNMENT", hurray_core::MIN_BUFFER_ALIGNMENT)?;
    module.add("PAGE_ALIGNMENT", hurray_core::PAGE_ALIGNMENT)?;
    Ok(())
}

/// Puts a module of its own on `hurray`, importable by its name.
fn add_module(
    parent: &Bound<'_, PyModule>,
    name: &str,
    module: &Bound<'_, PyModule>,
) -> PyResult<()> {
    // A submodule of an extension module is importable only if it is in `sys.modules`.
    let modules = parent.py().import("sys")?.getattr("modules")?;
    modules.set_item(module.name()?, module)?;
    parent.add(name, module)
}
