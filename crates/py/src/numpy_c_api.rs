//! The one function of NumPy's C API that the numpy crate does not give: `PyDataMem_SetHandler` (NEP 49).

use std::ffi::{c_uint, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use pyo3::exceptions::PyImportError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;

use crate::errors::UnsupportedError;

/// `PyArray_GetNDArrayCVersion`, the ABI's version.
const ABI_VERSION_SLOT: usize = 0;
/// `PyArray_GetNDArrayCFeatureVersion`, how many functions the table has.
const FEATURE_VERSION_SLOT: usize = 211;
/// `PyDataMem_SetHandler`.
const SET_HANDLER_SLOT: usize = 304;

/// The ABIs of NumPy 1 and NumPy 2. A later one may order the table anew.
const KNOWN_ABIS: [c_uint; 2] = [0x0100_0009, 0x0200_0000];
/// NumPy 1.22, the first with data memory handlers.
const HANDLERS_SINCE: c_uint = 0xf;

type VersionFunction = unsafe extern "C" fn() -> c_uint;
type SetHandlerFunction = unsafe extern "C" fn(*mut PyObject) -> *mut PyObject;

/// What this crate calls in NumPy's table of functions.
#[derive(Clone, Copy)]
pub(crate) struct NumpyCApi {
    set_handler: SetHandlerFunction,
}

impl NumpyCApi {
    /// Imports NumPy and looks the functions up, once per process.
    ///
    /// # Errors
    ///
    /// `ImportError` without NumPy, [`UnsupportedError`] where this NumPy has no handlers or an unknown ABI.
    pub(crate) fn get(py: Python<'_>) -> PyResult<Self> {
        static API: PyOnceLock<NumpyCApi> = PyOnceLock::new();
        API.get_or_try_init(py, || Self::load(py)).copied()
    }

    fn load(py: Python<'_>) -> PyResult<Self> {
        let module = match py.import("numpy._core._multiarray_umath") {
            Err(error) if error.is_instance_of::<PyImportError>(py) => {
                py.import("numpy.core._multiarray_umath")?
            }
            found => found?,
        };
        let capsule = module.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
        let table: NonNull<*const c_void> = capsule.pointer_checked(None)?.cast();

        // SAFETY: every NumPy has this slot.
        let abi = unsafe { slot(table, ABI_VERSION_SLOT) };
        // SAFETY: the slot holds a function of this type.
        let abi = unsafe { transmute::<*const c_void, VersionFunction>(abi) };
        // SAFETY: the function takes nothing and gives a constant.
        let abi = unsafe { abi() };
        if !KNOWN_ABIS.contains(&abi) {
            return Err(UnsupportedError::new_err(format!(
                "this NumPy's C ABI has version 0x{abi:x}; known are 0x{:x} (NumPy 1) and 0x{:x} (NumPy 2)",
                KNOWN_ABIS[0], KNOWN_ABIS[1]
            )));
        }

        // SAFETY: both known ABIs have this slot, since NumPy 1.4.
        let feature = unsafe { slot(table, FEATURE_VERSION_SLOT) };
        // SAFETY: the slot holds a function of this type.
        let feature = unsafe { transmute::<*const c_void, VersionFunction>(feature) };
        // SAFETY: the function takes nothing and gives a constant.
        let feature = unsafe { feature() };
        if feature < HANDLERS_SINCE {
            return Err(UnsupportedError::new_err(format!(
                "this NumPy's C API has version {feature}; memory handlers came with {HANDLERS_SINCE}, in NumPy 1.22"
            )));
        }

        // SAFETY: both known ABIs have this slot from feature version `HANDLERS_SINCE` on.
        let set_handler = unsafe { slot(table, SET_HANDLER_SLOT) };
        Ok(Self {
            // SAFETY: the slot holds a function of this type.
            set_handler: unsafe { transmute::<*const c_void, SetHandlerFunction>(set_handler) },
        })
    }

    /// Makes `handler`, a capsule named "mem_handler", the one that new arrays of the current context get, and gives the one before.
    ///
    /// # Errors
    ///
    /// What NumPy raises; then the handler stays the one it was.
    pub(crate) fn set_handler<'py>(
        self,
        handler: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: `handler` proves that this thread is attached, and lives through the call, which takes a reference of its own.
        let previous = unsafe { (self.set_handler)(handler.as_ptr()) };
        // SAFETY: the function gives a new reference, or NULL with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(handler.py(), previous) }
    }
}

/// The pointer in one slot of NumPy's table.
///
/// # Safety
///
/// The table has more than `index` slots.
unsafe fn slot(table: NonNull<*const c_void>, index: usize) -> *const c_void {
    // SAFETY: the caller says that the table is that long.
    let slot = unsafe { table.add(index) };
    // SAFETY: as above; NumPy's table is constant and lives as long as the process.
    unsafe { slot.read() }
}
