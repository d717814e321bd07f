//! Anything that exposes memory, as a buffer.

use hurray_core::{Layout, element_count, is_column_major, is_row_major};
use hurray_ffi::access::Reach;
use hurray_ffi::{Buffer, Item};
use pyo3::intern;
use pyo3::prelude::*;

use super::{BOUNDARY, CopyArgument, buffer_protocol, copy_of, cuda_array_interface, numpy};
use crate::capsule;
use crate::copies::Reason;
use crate::dlpack::import::{Wanted, from_dlpack};
use crate::errors::{BufferError, OrRaise, UnsupportedError};
use crate::owner::calling;
use crate::tensor::Tensor;

/// The elements' bytes of an object that exposes memory, and the bytes of the buffer before them, which are more than none only if it
/// `may_be_offset` (decision 19).
pub(crate) fn buffer(
    object: &Bound<'_, PyAny>,
    may_be_offset: bool,
    call: &'static str,
) -> PyResult<(Buffer, u64)> {
    let tensor = match object.cast::<Tensor>() {
        Ok(tensor) => tensor.get().inner().clone(),
        Err(_) => import(object, call)?,
    };
    bytes_of(object.py(), &tensor, may_be_offset, call)
}

/// A tensor over the memory of an object of another library, by the first protocol that it speaks of those that
/// `docs/python.md` lists.
fn import(object: &Bound<'_, PyAny>, call: &'static str) -> PyResult<hurray_ffi::Tensor> {
    let py = object.py();
    if numpy::is_array(object) {
        return numpy::import(object, CopyArgument::IfNeeded, call);
    }
    match capsule::import(object, None)? {
        Some(Item::Tensor(tensor)) => return Ok(tensor),
        Some(Item::Composite(_)) => {
            return Err(UnsupportedError::new_err(
                "a composite has no memory of its own; its members have",
            ));
        }
        None => {}
    }
    if object.hasattr(intern!(py, "__dlpack__"))? {
        let wanted = Wanted {
            place: None,
            copy: CopyArgument::IfNeeded,
            call,
        };
        return from_dlpack(object, None, wanted);
    }
    if let Some(tensor) = cuda_array_interface::import(object)? {
        return Ok(tensor);
    }
    if let Some(tensor) = buffer_protocol::import(object, call)? {
        return Ok(tensor);
    }
    for protocol in [
        intern!(py, "__array_interface__"),
        intern!(py, "__array_struct__"),
        intern!(py, "__array__"),
    ] {
        if object.hasattr(protocol)? {
            let numpy = py.import("numpy")?;
            let array = calling(py, || numpy.call_method1("asarray", (object,)))?;
            return numpy::import(&array, CopyArgument::IfNeeded, call);
        }
    }
    Err(BufferError::new_err(format!(
        "{} exposes no memory: bytes-like objects, NumPy arrays, DLPack producers, CUDA arrays and tensors do",
        object.get_type().name()?
    )))
}

fn bytes_of(
    py: Python<'_>,
    tensor: &hurray_ffi::Tensor,
    may_be_offset: bool,
    call: &'static str,
) -> PyResult<(Buffer, u64)> {
    let descriptor = tensor.descriptor();
    if descriptor.quantization.is_some() {
        return Err(UnsupportedError::new_err(
            "a quantized tensor has several buffers: pass its codes or buffer(i)",
        ));
    }
    let is_contiguous = match &descriptor.layout {
        Layout::RowMajor | Layout::ColumnMajor => true,
        Layout::Strided(strides) => {
            is_row_major(&descriptor.shape, strides) || is_column_major(&descriptor.shape, strides)
        }
        other => {
            return Err(UnsupportedError::new_err(format!(
                "a {} tensor's elements are not in order of their indices: pass buffer(i)",
                other.name()
            )));
        }
    };
    if !is_contiguous {
        return Err(BufferError::new_err(format!(
            "elements of shape {:?} in layout {:?} are not contiguous",
            descriptor.shape.as_slice(),
            descriptor.layout
        )));
    }
    let width = descriptor.element_width().or_raise()?;
    let (Some(len), Some(buffer)) = (
        element_count(&descriptor.shape).and_then(|count| width.byte_size(count)),
        tensor.buffers().first(),
    ) else {
        return Err(BufferError::new_err(
            "a tensor whose size is not known exposes no memory: pass buffer(i)",
        ));
    };
    // Both lie in the buffer, whose length is one.
    let (start, len) = (descriptor.byte_offset as usize, len as usize);
    let slack = start % BOUNDARY;
    if slack == 0 || len == 0 || may_be_offset {
        let slice = buffer.slice(start - slack, slack + len).or_raise()?;
        return Ok((slice, slack as u64));
    }
    tensor.check_access(Reach::Host).or_raise()?;
    let slice = buffer.slice(start, len).or_raise()?;
    // SAFETY: access was checked: these are readable host bytes, which the slice keeps alive. Whoever writes to them meanwhile, from another
    // thread, races with any reader.
    let bytes = unsafe { std::slice::from_raw_parts(slice.as_ptr(), slice.len()) };
    Ok((copy_of(py, bytes, Reason::Alignment, call)?, 0))
}

/// `error` with the buffer's index before its text, in the same class.
pub(crate) fn name_buffer(py: Python<'_>, error: PyErr, index: usize) -> PyErr {
    let is_ours =
        error.is_instance_of::<BufferError>(py) || error.is_instance_of::<UnsupportedError>(py);
    if !is_ours {
        return error;
    }
    PyErr::from_type(
        error.get_type(py),
        format!("buffer {index}: {}", error.value(py)),
    )
}
