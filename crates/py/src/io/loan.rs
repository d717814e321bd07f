//! Memory that Python code may use while it reads into it or writes from it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{self, Py_buffer, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::owner::calling;

/// Bytes behind a `memoryview`.
///
/// Whoever is given the view may keep it, or a part of it, for as long as they like. So a loan either keeps the bytes alive itself, or it counts the
/// views that are about when it ends.
#[pyclass(frozen, module = "hurray._hurray")]
pub(super) struct Loan {
    address: AtomicPtr<u8>,
    len: usize,
    is_read_only: bool,
    /// Views, and [`OVER`].
    views: AtomicUsize,
    /// What keeps the bytes alive.
    _keep: Option<Py<PyAny>>,
}

/// The bytes are no longer lent.
const OVER: usize = 1 << 63;

#[pymethods]
impl Loan {
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let loan = this.get();
        if loan.views.load(Ordering::Relaxed) & OVER != 0 {
            return Err(PyBufferError::new_err("the memory is no longer lent"));
        }
        // SAFETY: Python passes a `Py_buffer` to fill in; the bytes are there until the last view goes, by the rule above.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                this.as_ptr(),
                loan.address.load(Ordering::Relaxed).cast(),
                // No slice is longer.
                loan.len as Py_ssize_t,
                c_int::from(loan.is_read_only),
                flags,
            )
        };
        if filled != 0 {
            return Err(PyErr::fetch(this.py()));
        }
        loan.views.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut Py_buffer) {
        self.views.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls `write` with a read-only view of `bytes`, which live as long as `keep`.
pub(super) fn lend<'py>(
    bytes: &[u8],
    keep: Py<PyAny>,
    write: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = write.py();
    let loan = Loan {
        address: AtomicPtr::new(bytes.as_ptr().cast_mut()),
        len: bytes.len(),
        is_read_only: true,
        views: AtomicUsize::new(0),
        _keep: Some(keep),
    };
    let view = PyMemoryView::from(Bound::new(py, loan)?.as_any())?;
    calling(py, || write.call1((view,)))
}

/// What a call did with memory that was lent to it.
pub(super) struct Returned<'py> {
    pub(super) result: PyResult<Bound<'py, PyAny>>,
    /// Somebody still has a view of the memory: it must never be used again, nor freed.
    pub(super) is_kept: bool,
}

/// Calls `read` with a writable view of `space`.
pub(super) fn lend_mut<'py>(space: &mut [u8], read: &Bound<'py, PyAny>) -> Returned<'py> {
    let py = read.py();
    let loan = Loan {
        address: AtomicPtr::new(space.as_mut_ptr()),
        len: space.len(),
        is_read_only: false,
        views: AtomicUsize::new(0),
        _keep: None,
    };
    let lent = Bound::new(py, loan).and_then(|loan| Ok((PyMemoryView::from(loan.as_any())?, loan)));
    let (view, loan) = match lent {
        Ok(lent) => lent,
        Err(error) => {
            return Returned {
                result: Err(error),
                is_kept: false,
            };
        }
    };
    let result = calling(py, || read.call1((&view,)));
    // Whoever keeps the view itself is left with one that is released. An error says that views of the view are about, and so does the count.
    let _ = view.call_method0("release");
    let views = loan.get().views.fetch_or(OVER, Ordering::Relaxed);
    Returned {
        result,
        is_kept: views > 0,
    }
}
