//! Memory of other libraries becomes buffers and tensors, one file for each way in.

pub(crate) mod buffer_protocol;
pub(crate) mod cuda_array_interface;
pub(crate) mod cupy;
pub(crate) mod exposed;
pub(crate) mod jax;
pub(crate) mod numpy;
pub(crate) mod torch;

use std::sync::Arc;

use hurray_core::memory::AlignedBytes;
use hurray_core::{ElementType, Layout, MIN_BUFFER_ALIGNMENT, Shape, TensorDescriptor};
use hurray_ffi::{Buffer, Place};
use pyo3::exceptions::{PyImportError, PyMemoryError, PyModuleNotFoundError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use smallvec::smallvec;

use crate::copies::{self, Reason};
use crate::errors::OrRaise;
use crate::owner::{calling, detached};

/// The `copy=` argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyArgument {
    /// `None`: only where the bytes cannot be shared.
    IfNeeded,
    /// `False`: never.
    Never,
    /// `True`: always.
    Always,
}

impl CopyArgument {
    /// As Python has it.
    pub(crate) const fn as_option(self) -> Option<bool> {
        match self {
            Self::IfNeeded => None,
            Self::Never => Some(false),
            Self::Always => Some(true),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for CopyArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Self::IfNeeded);
        }
        match object.cast::<PyBool>() {
            Ok(copy) if copy.is_true() => Ok(Self::Always),
            Ok(_) => Ok(Self::Never),
            Err(_) => Err(PyTypeError::new_err(format!(
                "copy is None, False or True, not {}",
                object.get_type().name()?
            ))),
        }
    }
}

/// The module `name` of a library that is not needed by others; `install` is what `pip install` takes.
///
/// # Errors
/// `ImportError` where the library is not installed, which says what helps; what its import raises.
pub(crate) fn library<'py>(
    py: Python<'py>,
    name: &str,
    install: &str,
) -> PyResult<Bound<'py, PyModule>> {
    calling(py, || py.import(name)).map_err(|error| {
        if !error.is_instance_of::<PyModuleNotFoundError>(py) {
            return error;
        }
        let library = name.split('.').next().unwrap_or(name);
        let missing = PyImportError::new_err(format!(
            "{library} is not installed; install it with: pip install {install}"
        ));
        missing.set_cause(py, Some(error));
        missing
    })
}

/// The least alignment as an address' unit.
pub(crate) const BOUNDARY: usize = MIN_BUFFER_ALIGNMENT;

/// Bytes from which a copy is made without the interpreter.
const DETACH_FROM: usize = 1 << 16;

/// Runs a copy of `bytes` bytes, without the interpreter if it takes a while.
pub(crate) fn copying<T: Send>(py: Python<'_>, bytes: usize, copy: impl Send + FnOnce() -> T) -> T {
    if bytes < DETACH_FROM {
        copy()
    } else {
        detached(py, copy)
    }
}

/// A buffer with a copy of `source`, bytes of the host.
pub(crate) fn copy_of(
    py: Python<'_>,
    source: &[u8],
    reason: Reason,
    call: &'static str,
) -> PyResult<Buffer> {
    let copy = copying(py, source.len(), || AlignedBytes::copy_of(source))
        .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    copies::report(py, copy.len(), Place::HOST, Place::HOST, reason, call)?;
    Ok(copy.into())
}

/// A tensor of one buffer.
#[inline]
pub(crate) fn dense(
    element_type: ElementType,
    shape: Shape,
    layout: Layout,
    byte_offset: u64,
    buffer: Buffer,
) -> PyResult<hurray_ffi::Tensor> {
    // Made where it stays: it is large, and this is the way of every array.
    let descriptor = Arc::new(TensorDescriptor {
        byte_offset,
        ..TensorDescriptor::new(element_type, shape, layout, [buffer.handle()])
    });
    hurray_ffi::Tensor::new(descriptor, smallvec![buffer]).or_raise()
}
