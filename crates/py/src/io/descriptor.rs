//! Objects of Python that are nothing but a file descriptor.

use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::owner::calling;

/// A duplicate of the object's descriptor, if reading from and writing to that is what the object itself does: it holds back no bytes, transforms none,
/// and waits as the system does. That is so of an unbuffered file and of a blocking socket, not of what wraps them or derives from them.
///
/// # Errors
/// What the object raises, because it is closed, say; the system's.
pub(super) fn plain(object: &Bound<'_, PyAny>) -> PyResult<Option<File>> {
    let class = object.get_type();
    let name = class.fully_qualified_name()?;
    let is_plain = match &*name.to_cow()? {
        "_io.FileIO" => true,
        "socket.socket" => object.call_method0("gettimeout")?.is_none(),
        _ => false,
    };
    is_plain.then(|| duplicate(object)).transpose()
}

/// A duplicate of the descriptor of a file that stands at its beginning and that nothing transforms: what the object would read is what is in the file.
///
/// # Errors
/// As [`plain`].
pub(super) fn whole_file(object: &Bound<'_, PyAny>) -> PyResult<Option<File>> {
    let name = object.get_type().fully_qualified_name()?;
    match &*name.to_cow()? {
        "_io.FileIO" | "_io.BufferedReader" => {}
        // It may hold back what was written.
        "_io.BufferedRandom" => calling(object.py(), || object.call_method0("flush").map(drop))?,
        _ => return Ok(None),
    }
    let file = duplicate(object)?;
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file || calling(object.py(), || object.call_method0("tell"))?.extract::<u64>()? != 0 {
        return Ok(None);
    }
    Ok(Some(file))
}

/// A duplicate of the descriptor that `fileno()` gives, which shares the position.
///
/// # Errors
/// As [`plain`].
pub(super) fn duplicate(object: &Bound<'_, PyAny>) -> PyResult<File> {
    let descriptor = calling(object.py(), || object.call_method0("fileno"))?;
    let descriptor: RawFd = descriptor.extract()?;
    if descriptor < 0 {
        return Err(PyValueError::new_err(format!(
            "{object} is closed: its descriptor is {descriptor}"
        )));
    }
    // SAFETY: the object has it open, and nobody closes it before this thread lets go of the interpreter. It is only duplicated, which fails where it is
    // not open after all.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let owned = borrowed.try_clone_to_owned();
    owned
        .map(File::from)
        .map_err(|error| super::error::of_io(object.py(), error, None))
}
