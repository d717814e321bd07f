//! Where a tensor's bytes are, as numbers.

use hurray_core::SyncMode;
use hurray_ffi::access::{self, AccessError, Reach};
use hurray_ffi::{Buffer, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::device;
use crate::errors::{OrRaise, UnsupportedError};

/// Address, bytes and device of each buffer.
///
/// # Errors
/// `UnsupportedError` for bytes that no work of the caller's could be ordered after: an address carries no event.
pub(super) fn extents<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyTuple>> {
    let buffers = tensor.buffers();
    for (index, (row, buffer)) in tensor.descriptor().buffers.iter().zip(buffers).enumerate() {
        // The stream that a caller brought the bytes onto needs nothing more.
        let reach = match buffer.mode() {
            SyncMode::ConsumerStream => Reach::Ordered,
            _ => Reach::Device,
        };
        match access::check(index, row, buffer, reach) {
            Err(error @ AccessError::NotReady { .. }) => {
                return Err(UnsupportedError::new_err(format!(
                    "{error}; `order(stream).extents()` gives the addresses for work on a stream"
                )));
            }
            checked => checked.or_raise()?,
        }
    }
    let extent = |buffer: &Buffer| {
        let device = device::object(py, buffer.place())?;
        (buffer.as_ptr().addr(), buffer.len(), device).into_pyobject(py)
    };
    let extents: PyResult<Vec<_>> = buffers.iter().map(extent).collect();
    PyTuple::new(py, extents?)
}
