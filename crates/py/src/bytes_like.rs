//! Bytes that a Python object shows, for parsers that want the front of them.

use std::borrow::Cow;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// At most the first `length` bytes of a bytes-like object: borrowed from `bytes`, which cannot change, and copied from everything else.
///
/// # Errors
/// `TypeError` for an object that exposes no bytes, `BufferError` for one whose memory is not contiguous.
pub(crate) fn prefix<'a>(object: &'a Bound<'_, PyAny>, length: usize) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return Ok(Cow::Borrowed(bytes.get(..length).unwrap_or(bytes)));
    }
    let buffer = PyBuffer::<u8>::get(object)?;
    let cells = buffer.as_slice(object.py()).ok_or_else(|| {
        pyo3::exceptions::PyBufferError::new_err("the object's memory is not contiguous")
    })?;
    Ok(cells.iter().take(length).map(|cell| cell.get()).collect())
}
