//! The buffer protocol: a tensor's elements as a `memoryview` has them.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use hurray_core::{ElementType, element_count, is_column_major, is_row_major};
use hurray_ffi::access::Reach;
use pyo3::ffi::{self, Py_buffer, Py_ssize_t};
use pyo3::prelude::*;

use super::array::Plain;
use crate::errors::dlpack_refusal;

/// The struct code of a type that has one and stores what the format does.
const fn code(element_type: ElementType) -> Option<&'static CStr> {
    use ElementType as T;
    Some(match element_type {
        T::Int8 => c"b",
        T::Uint8 => c"B",
        T::Int16 => c"h",
        T::Uint16 => c"H",
        T::Int32 => c"i",
        T::Uint32 => c"I",
        T::Int64 => c"q",
        T::Uint64 => c"Q",
        T::Float16 => c"e",
        T::Float32 => c"f",
        T::Float64 => c"d",
        T::Complex64 => c"Zf",
        T::Complex128 => c"Zd",
        _ => return None,
    })
}

/// What a view points to besides the elements.
struct Numbers {
    shape: Vec<Py_ssize_t>,
    strides: Vec<Py_ssize_t>,
}

/// Answers a request for a view.
///
/// # Safety
/// `view` is valid for writes.
pub(super) unsafe fn fill(
    this: Bound<'_, super::Tensor>,
    view: *mut Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let filled = answer(&this, flags);
    let (value, result) = match filled {
        Ok(mut value) => {
            value.obj = this.into_ptr();
            (value, Ok(()))
        }
        Err(error) => (Py_buffer::new(), Err(error)),
    };
    // SAFETY: the caller's word.
    unsafe { view.write(value) };
    result
}

/// The view, without the reference to its tensor.
fn answer(this: &Bound<'_, super::Tensor>, flags: c_int) -> PyResult<Py_buffer> {
    let py = this.py();
    // The protocol's error is the built-in BufferError.
    let refuse = |text: String| dlpack_refusal(py, text);
    let tensor = this.get().inner();
    let plain = Plain::of(tensor).map_err(|error| refuse(error.value(py).to_string()))?;
    tensor
        .check_access(Reach::Host)
        .map_err(|error| refuse(error.to_string()))?;
    let descriptor = plain.descriptor;
    let Some(format) = code(descriptor.element_type) else {
        return Err(refuse(format!(
            "the buffer protocol has no code for {}; buffer(0) gives the bytes",
            descriptor.element_type
        )));
    };
    let asks = |request: c_int| flags & request == request;
    if asks(ffi::PyBUF_WRITABLE) && plain.is_read_only {
        return Err(refuse("the tensor is read-only".to_owned()));
    }
    let is_c = is_row_major(&descriptor.shape, &plain.strides);
    let is_f = is_column_major(&descriptor.shape, &plain.strides);
    let needs_c = asks(ffi::PyBUF_C_CONTIGUOUS) || !asks(ffi::PyBUF_STRIDES);
    if needs_c && !is_c
        || asks(ffi::PyBUF_F_CONTIGUOUS) && !is_f
        || asks(ffi::PyBUF_ANY_CONTIGUOUS) && !is_c && !is_f
    {
        return Err(refuse(format!(
            "elements of shape {:?} at strides {:?} are not contiguous as asked",
            descriptor.shape.as_slice(),
            plain.strides.as_slice()
        )));
    }
    let size = (plain.width.bits() / 8) as Py_ssize_t;
    let too_large = || refuse("the elements exceed the address space".to_owned());
    let count = element_count(&descriptor.shape).ok_or_else(too_large)?;
    let len = Py_ssize_t::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(size))
        .ok_or_else(too_large)?;
    let mut shape = Vec::with_capacity(descriptor.shape.len());
    for &n in &descriptor.shape {
        shape.push(Py_ssize_t::try_from(n).map_err(|_| too_large())?);
    }
    let rank = c_int::try_from(shape.len()).unwrap_or(c_int::MAX);
    let strides = plain.byte_strides().into_iter().collect();
    let numbers = Box::into_raw(Box::new(Numbers { shape, strides }));
    let mut view = Py_buffer::new();
    view.buf = if len == 0 {
        // An address that nothing is read from, but that no consumer takes for a failure.
        ptr::without_provenance_mut::<c_void>(hurray_core::MIN_BUFFER_ALIGNMENT)
    } else {
        plain.address.cast()
    };
    view.len = len;
    view.itemsize = size;
    view.readonly = c_int::from(plain.is_read_only);
    // Who asks for no shape gets bytes, as from a memoryview.
    view.ndim = if asks(ffi::PyBUF_ND) { rank } else { 1 };
    view.internal = numbers.cast();
    if asks(ffi::PyBUF_FORMAT) {
        view.format = format.as_ptr().cast_mut();
    }
    if asks(ffi::PyBUF_ND) {
        // SAFETY: just made, and `release` alone frees it.
        view.shape = unsafe { (*numbers).shape.as_mut_ptr() };
    }
    if asks(ffi::PyBUF_STRIDES) {
        // SAFETY: as above.
        view.strides = unsafe { (*numbers).strides.as_mut_ptr() };
    }
    Ok(view)
}

/// Takes back a view.
///
/// # Safety
/// [`fill`] wrote `view`, and this is its one release.
pub(super) unsafe fn release(view: *mut Py_buffer) {
    // SAFETY: the caller's word.
    let numbers = unsafe { (*view).internal }.cast::<Numbers>();
    if !numbers.is_null() {
        // SAFETY: `answer` made it, and each view is released once.
        drop(unsafe { Box::from_raw(numbers) });
    }
}
