//! A producer's capsule: looked at first, taken last (C10).

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use hurray_ffi::{Owner, PythonObject};
use pyo3::exceptions::PyValueError;
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName};
use pyo3::prelude::*;

use crate::errors::{self, BufferError};
use crate::owner;

/// The names in DLPack's Python protocol; static, as a capsule keeps the pointer.
const LEGACY: [&CStr; 2] = [c"dltensor", c"used_dltensor"];
const VERSIONED: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];

/// A capsule that holds a managed tensor which nobody has taken.
pub(super) struct Capsule<'py> {
    object: Bound<'py, PyAny>,
    managed: Pointer,
}

/// A managed tensor of major version 1, or of before there were versions.
#[derive(Clone, Copy)]
enum Pointer {
    Legacy(NonNull<DLManagedTensor>),
    Versioned(NonNull<DLManagedTensorVersioned>),
}

impl<'py> Capsule<'py> {
    /// Looks into the capsule that a producer returned.
    ///
    /// # Errors
    /// No capsule of DLPack's, a consumed or an empty one; another major version, whose tensor is released here (C9).
    pub(super) fn open(object: Bound<'py, PyAny>) -> PyResult<Self> {
        if let Some(pointer) = named(&object, VERSIONED[0]) {
            let managed = pointer.cast::<DLManagedTensorVersioned>();
            // SAFETY: a capsule of this name holds a managed tensor that begins with its version, in every version of DLPack.
            let major = unsafe { (*managed.as_ptr()).version.major };
            if major != dlpark::ffi::DLPACK_MAJOR_VERSION {
                rename(&object, VERSIONED[1])?;
                // SAFETY: the renamed capsule no longer frees the tensor; beyond version and deleter nothing of it is touched.
                unsafe { DLManagedTensorVersioned::drop_raw(managed.as_ptr()) };
                return Err(errors::dlpack_refusal(
                    object.py(),
                    format!("a DLPack capsule of major version {major}; this library reads 1"),
                ));
            }
            let managed = Pointer::Versioned(managed);
            return Ok(Self { object, managed });
        }
        if let Some(pointer) = named(&object, LEGACY[0]) {
            let managed = Pointer::Legacy(pointer.cast());
            return Ok(Self { object, managed });
        }
        let is_used = [VERSIONED[1], LEGACY[1]]
            .into_iter()
            .any(|name| named(&object, name).is_some());
        Err(if is_used {
            BufferError::new_err("this DLPack capsule was consumed before")
        } else {
            PyValueError::new_err(format!(
                "__dlpack__ must return a capsule named \"dltensor\" or \"dltensor_versioned\", not {}",
                object.get_type().name()?
            ))
        })
    }

    /// The descriptor and its flags, as long as the capsule holds them.
    pub(super) fn tensor(&self) -> (&DLTensor, DlpackFlags) {
        match self.managed {
            Pointer::Legacy(managed) => {
                // SAFETY: an unconsumed capsule of this name holds a live managed tensor, and `object` keeps the capsule.
                let managed = unsafe { managed.as_ref() };
                (&managed.dl_tensor, DlpackFlags::empty())
            }
            Pointer::Versioned(managed) => {
                // SAFETY: as above, and the major version was found to be the one whose layout this is.
                let managed = unsafe { managed.as_ref() };
                (&managed.dl_tensor, managed.flags)
            }
        }
    }

    /// Takes the managed tensor: what remains of the capsule is its name. Gives an owner that releases the tensor, attached to the interpreter.
    ///
    /// # Errors
    /// What Python says of the renaming; then the capsule is as it was.
    pub(super) fn take(self) -> PyResult<Owner> {
        match self.managed {
            Pointer::Legacy(managed) => {
                rename(&self.object, LEGACY[1])?;
                Ok(owner_of_raw(managed))
            }
            Pointer::Versioned(managed) => {
                rename(&self.object, VERSIONED[1])?;
                Ok(owner_of_raw(managed))
            }
        }
    }
}

/// An owner that releases `tensor`, attached to the interpreter.
pub(super) fn owner_of<M: ManagedTensorBase>(tensor: Managed<M>) -> Owner {
    // SAFETY: a handle's pointer is never NULL.
    let managed = unsafe { NonNull::new_unchecked(tensor.into_raw()) };
    owner_of_raw(managed)
}

/// An owner of a managed tensor that is this caller's.
fn owner_of_raw<M: ManagedTensorBase>(managed: NonNull<M>) -> Owner {
    // SAFETY: a deleter may run on any thread; `release` sees to the interpreter.
    Owner::Python(unsafe { PythonObject::new(managed.cast(), release::<M>) })
}

/// Calls the deleter, which a Python library wrote and may expect the interpreter: attached, and not at all once the interpreter ends.
///
/// # Safety
/// `managed` is a managed tensor whose deleter has not run, and this is its one release.
unsafe fn release<M: ManagedTensorBase>(managed: NonNull<c_void>) {
    let _ = owner::attached(|_| {
        // SAFETY: the caller's word.
        unsafe { M::drop_raw(managed.cast::<M>().as_ptr()) };
    });
}

/// The pointer of a capsule of that name; `None` for anything else.
fn named(object: &Bound<'_, PyAny>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: `object` proves that this thread is attached; any object may be asked.
    if unsafe { PyCapsule_IsValid(object.as_ptr(), name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the object is a capsule of this name.
    NonNull::new(unsafe { PyCapsule_GetPointer(object.as_ptr(), name.as_ptr()) })
}

fn rename(object: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: the object is a capsule and this thread is attached; the name is static.
    if unsafe { PyCapsule_SetName(object.as_ptr(), name.as_ptr()) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    Ok(())
}
