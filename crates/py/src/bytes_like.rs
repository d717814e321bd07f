//! Bytes that a Python object shows, for parsers that want the front of them.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};

/// At most the first `length` bytes of a bytes-like object: borrowed from `bytes`, which cannot change, and copied from everything else.
///
/// # Errors
/// `TypeError` for an object that exposes no bytes, or whose memory is not contiguous.
pub(crate) fn prefix<'a>(object: &'a Bound<'_, PyAny>, length: usize) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return Ok(Cow::Borrowed(bytes.get(..length).unwrap_or(bytes)));
    }
    let view = PyMemoryView::from(object)?.call_method1("cast", ("B",))?;
    let end = isize::try_from(length).unwrap_or(isize::MAX);
    let front = view.get_item(PySlice::new(object.py(), 0, end, 1))?;
    Ok(Cow::Owned(front.call_method0("tobytes")?.extract()?))
}
