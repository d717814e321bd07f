//! Objects that speak the buffer protocol: bytes, bytearray, memoryview, array.array, mmap and the like.

use hurray_core::memory::measure_alignment;
use hurray_core::{ElementType, Layout};
use hurray_ffi::{Buffer, BufferFlags, Place, Readiness, Tensor};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use smallvec::smallvec;

use super::{BOUNDARY, copy_of, dense};
use crate::copies::Reason;
use crate::errors::{BufferError, OrRaise};
use crate::owner::keep;

/// The object's bytes as a tensor of uint8; otherwise as [`buffer`].
pub(crate) fn import(object: &Bound<'_, PyAny>, call: &'static str) -> PyResult<Option<Tensor>> {
    let Some(buffer) = buffer(object, call)? else {
        return Ok(None);
    };
    dense(
        ElementType::Uint8,
        smallvec![buffer.len() as u64],
        Layout::RowMajor,
        0,
        buffer,
    )
    .map(Some)
}

/// The object's bytes, shared where they begin on a 64-byte boundary, else copied; `None` where it has no bytes.
pub(crate) fn buffer(object: &Bound<'_, PyAny>, call: &'static str) -> PyResult<Option<Buffer>> {
    let py = object.py();
    // A memoryview holds what the object lent until it goes.
    let Ok(lent) = PyMemoryView::from(object) else {
        return Ok(None);
    };
    let view = PyUntypedBuffer::get(lent.as_any())?;
    if !view.is_c_contiguous() && !view.is_fortran_contiguous() {
        return Err(BufferError::new_err(format!(
            "the memory of this {} is not contiguous",
            object.get_type().name()?
        )));
    }
    let (address, len) = (view.buf_ptr().cast::<u8>(), view.len_bytes());
    if len > 0 && (measure_alignment(address.addr()) as usize) < BOUNDARY {
        // SAFETY: the view lends this many readable bytes and lives through the call. Whoever writes to them meanwhile, from another thread,
        // races with any reader.
        let bytes = unsafe { std::slice::from_raw_parts(address, len) };
        copy_of(py, bytes, Reason::Alignment, call).map(Some)
    } else {
        let mut flags = BufferFlags::empty();
        flags.set(BufferFlags::READ_ONLY, view.readonly());
        // SAFETY: while the memoryview, which the owner keeps, holds the loan, the bytes stay where they are, and are writable unless flagged.
        let buffer = unsafe {
            Buffer::from_owner(
                address,
                len,
                Place::HOST,
                Readiness::Ready,
                flags,
                keep(lent.as_any()),
            )
        };
        buffer.or_raise().map(Some)
    }
}
