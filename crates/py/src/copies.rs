//! `hurray.copies()`: every copy of tensor bytes that is made inside a `with` block, in its context.

use std::sync::atomic::{AtomicU8, Ordering};

use hurray_ffi::{Item, Place};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::device::{self, Device};
use crate::open_blocks::OpenBlocks;

/// Why bytes were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The source is not aligned to 64 bytes.
    Alignment,
    /// One side has a byte for each element, the other packs them.
    Packing,
    /// The bytes were asked for on another device.
    Device,
    /// A copy or another type was asked for.
    Request,
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::Alignment => "alignment",
            Self::Packing => "packing",
            Self::Device => "device",
            Self::Request => "request",
        }
    }
}

/// A copy of tensor bytes that was made.
///
/// `reason` is "alignment" (the source is not aligned to 64 bytes), "packing" (one side has a byte
/// for each element where the other packs them), "device" (asked for on another one) or "request"
/// (`copy=True`, another type).
#[pyclass(frozen, module = "hurray")]
pub(crate) struct Copy {
    bytes: u64,
    from: Py<Device>,
    to: Py<Device>,
    reason: Reason,
    call: &'static str,
}

#[pymethods]
impl Copy {
    /// Bytes that were written.
    #[getter]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device that the bytes were read from. The underscore is for Python, whose keyword
    /// `from` is.
    #[getter]
    fn from_(&self, py: Python<'_>) -> Py<Device> {
        self.from.clone_ref(py)
    }

    /// The device that they were written to.
    #[getter]
    fn to(&self, py: Python<'_>) -> Py<Device> {
        self.to.clone_ref(py)
    }

    /// The call that copied, such as "from_numpy".
    #[getter]
    fn call(&self) -> &'static str {
        self.call
    }

    /// Why the bytes were copied.
    #[getter]
    fn reason(&self) -> &'static str {
        self.reason.name()
    }

    fn __repr__(&self) -> String {
        format!(
            "Copy(bytes={}, from_={}, to={}, reason='{}', call='{}')",
            self.bytes,
            self.from.get(),
            self.to.get(),
            self.reason.name(),
            self.call
        )
    }
}

/// Where there is none, a copy is not looked at further.
static OPEN: OpenBlocks = OpenBlocks::new("hurray.copies");

/// A `with` block that lists the copies made inside it.
///
/// The list is the block's context's: it sees the calls of the same thread or task, and of tasks
/// started inside the block; a new thread has a context of its own. Blocks may be nested, and
/// then each of them sees a copy.
#[pyclass(frozen, module = "hurray")]
pub(crate) struct Copies {
    log: Py<PyList>,
    /// [`NEW`], then [`ENTERED`], then [`LEFT`].
    state: AtomicU8,
}

const NEW: u8 = 0;
const ENTERED: u8 = 1;
const LEFT: u8 = 2;

#[pymethods]
impl Copies {
    fn __enter__(this: &Bound<'_, Self>) -> PyResult<Py<PyList>> {
        let (py, block) = (this.py(), this.get());
        if block
            .state
            .compare_exchange(NEW, ENTERED, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return Err(PyRuntimeError::new_err(
                "this block was entered before; each block needs a call of hurray.copies()",
            ));
        }
        OPEN.open(this.as_any())?;
        Ok(block.log.clone_ref(py))
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(this: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let was_entered = this.get().state.swap(LEFT, Ordering::Relaxed) == ENTERED;
        if was_entered && !OPEN.close(this.as_any())? {
            return Err(PyRuntimeError::new_err(
                "the block is left in another context than the one that entered it",
            ));
        }
        Ok(())
    }
}

/// Lists every copy of tensor bytes made inside a `with` block.
///
/// Gives a list of what was copied: `bytes`, `from_` and `to` (devices), `reason` and `call`.
///
/// >>> with hurray.copies() as log:
/// ...     tensor = hurray.from_numpy(array)
/// >>> sum(copy.bytes for copy in log)
/// 0
#[pyfunction]
fn copies(py: Python<'_>) -> Copies {
    Copies {
        log: PyList::empty(py).unbind(),
        state: AtomicU8::new(NEW),
    }
}

/// Tells the open blocks of this context that `bytes` were copied. Every path that copies tensor bytes calls it, once a copy is made.
pub(crate) fn report(
    py: Python<'_>,
    bytes: usize,
    from: Place,
    to: Place,
    reason: Reason,
    call: &'static str,
) -> PyResult<()> {
    let Some(blocks) = OPEN.in_context(py)? else {
        return Ok(());
    };
    let copy = Py::new(
        py,
        Copy {
            bytes: bytes as u64,
            from: device::object(py, from)?,
            to: device::object(py, to)?,
            reason,
            call,
        },
    )?;
    for block in blocks.iter_borrowed() {
        let block = block.cast::<Copies>()?.get();
        if block.state.load(Ordering::Relaxed) == ENTERED {
            block.log.bind(py).append(copy.bind(py))?;
        }
    }
    Ok(())
}

/// The same of the bytes of `item` that a device copied to the host for a reader there.
pub(crate) fn report_device_bytes(py: Python<'_>, item: &Item, call: &'static str) -> PyResult<()> {
    match item {
        Item::Tensor(tensor) => {
            let buffers = tensor.buffers().iter();
            buffers
                .filter(|buffer| !buffer.place().is_host_accessible() && !buffer.is_empty())
                .try_for_each(|buffer| {
                    let (bytes, from) = (buffer.len(), buffer.place());
                    report(py, bytes, from, Place::HOST, Reason::Device, call)
                })
        }
        Item::Composite(composite) => {
            let mut members = composite.members().iter();
            members.try_for_each(|member| report_device_bytes(py, member, call))
        }
    }
}

/// Puts `copies` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Copy>()?;
    module.add_class::<Copies>()?;
    module.add_function(wrap_pyfunction!(copies, module)?)
}
