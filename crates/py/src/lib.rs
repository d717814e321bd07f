//! The `hurray` Python module: a thin face over `hurray-core` and `hurray-ffi`, and the only crate that knows Python.
//!
//! Each file is one thing and registers it on the native module `hurray._hurray`; `hurray/__init__.py` gives out what is registered.

mod aligned_allocator;
mod buffer_handle;
mod bytes_like;
mod capsule;
mod command_line;
mod composite;
mod copies;
mod cuda;
mod descriptor;
mod device;
mod dlpack;
mod element_type;
mod errors;
mod extension_type;
mod handoff;
mod ingest;
mod io;
mod layout;
mod numpy_c_api;
mod numpy_dtype;
mod open_blocks;
mod owner;
mod quantization;
mod shape;
mod shard;
mod statistics;
mod tensor;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The native part of `hurray`.
#[pymodule]
#[pyo3(name = "_hurray")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter()?;
    hurray_ffi::device::register(&hurray_cuda::LAYER);
    aligned_allocator::register(module)?;
    buffer_handle::register(module)?;
    capsule::register(module)?;
    command_line::register(module)?;
    composite::register(module)?;
    copies::register(module)?;
    cuda::register(module)?;
    descriptor::register(module)?;
    device::register(module)?;
    element_type::register(module)?;
    errors::register(module)?;
    extension_type::register(module)?;
    ingest::cupy::register(module)?;
    ingest::jax::register(module)?;
    ingest::numpy::register(module)?;
    ingest::torch::register(module)?;
    io::register(module)?;
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

/// Refuses every interpreter but the first. Owners are let go on any thread through CPython's `PyGILState`, which knows no other, and objects that are
/// made once a process are the first one's. CPython itself refuses from 3.12 on, and only where the other has a lock of its own.
fn check_interpreter() -> PyResult<()> {
    const MAIN: i64 = 0;
    // SAFETY: this thread is attached, as a module's initialisation is.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter of an attached thread lives.
    match unsafe { ffi::PyInterpreterState_GetID(interpreter) } {
        MAIN => Ok(()),
        id => Err(PyImportError::new_err(format!(
            "hurray does not work in subinterpreters: this is interpreter {id}, and a process has hurray in its first one"
        ))),
    }
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
