//! `hurray.StreamReader`.

use hurray_io::{StreamError, StreamLimits, StreamReader as CoreStreamReader};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::error::of_stream;
use super::path::FilePath;
use super::source::Source;
use super::turns::Turns;
use crate::capsule;
use crate::owner::detached;

/// Reads tensors and composites from a stream, one after the other.
///
/// `source` is a path, bytes or anything like them, a file object, a socket, a pipe, or any object
/// with `recv_into`, `readinto`, `read`, `recv` or `fileno`. An unbuffered file and a blocking
/// socket are read through their descriptor, from where that stands, and no byte past the last
/// item; everything else through its own methods. It stays open.
///
/// Iterating gives a Tensor or a Composite for each item and ends where the stream does. Nothing is
/// read ahead: an item is there as soon as its bytes are, and memory follows the bytes that came,
/// never those that were announced. Threads may share a reader; each item goes to one of them.
///
/// The limits are in bytes, but for the depth: at most `max_descriptor_bytes` (16 MiB) for a
/// descriptor, `max_buffer_bytes` (no limit) for a buffer, `max_composite_depth` (64) heads that are
/// open at once. With `cross_machine`, only buffers that are `producer_synced` are let through.
/// `progress` is called with the bytes read and the bytes there are, None where that is not known;
/// True shows a bar of tqdm.
///
/// Raises StreamError for a stream that is cut or goes beyond a limit, InvalidDescriptorError for
/// descriptors and composites that cannot be, FileError where the system cannot read, and what the
/// source raises as it is. A reader ends there; only where a descriptor or a socket was interrupted
/// or had no bytes yet, it goes on where it was.
///
/// >>> [tensor.shape for tensor in hurray.StreamReader(b"")]
/// []
#[pyclass(frozen, weakref, module = "hurray")]
pub(crate) struct StreamReader {
    /// `None` once it is closed, at its end or failed.
    reader: Turns<Option<CoreStreamReader<Source>>>,
}

#[pymethods]
impl StreamReader {
    #[new]
    #[pyo3(signature = (source, *, max_descriptor_bytes=None, max_buffer_bytes=None, max_composite_depth=None, cross_machine=false, progress=None))]
    fn py_new(
        source: &Bound<'_, PyAny>,
        max_descriptor_bytes: Option<u32>,
        max_buffer_bytes: Option<u64>,
        max_composite_depth: Option<usize>,
        cross_machine: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut limits = StreamLimits::default();
        limits.cross_machine = cross_machine;
        limits.max_descriptor_bytes = max_descriptor_bytes.unwrap_or(limits.max_descriptor_bytes);
        limits.max_buffer_bytes = max_buffer_bytes.unwrap_or(limits.max_buffer_bytes);
        limits.max_composite_depth = max_composite_depth.unwrap_or(limits.max_composite_depth);
        let source = Source::new(source, progress)?;
        let reader = CoreStreamReader::new(source, limits);
        Ok(Self {
            reader: Turns::new(Some(reader)),
        })
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.reader.with(py, |slot| {
            let Some(reader) = slot else {
                return Ok(None);
            };
            let next = if reader.get_ref().calls_python() {
                reader.next_item()
            } else {
                detached(py, || reader.next_item())
            };
            let error = match next {
                Ok(Some(item)) => {
                    reader.get_mut().progress().tell(py)?;
                    return capsule::object(py, item).map(Some);
                }
                Ok(None) => {
                    let closed = reader.get_mut().progress().close(py);
                    *slot = None;
                    return closed.map(|()| None);
                }
                Err(error) => error,
            };
            let source = reader.get_ref();
            let goes_on = matches!(error, StreamError::Io(_)) && source.can_go_on();
            let path = source.path.as_ref().map(|path| FilePath::name(path, py));
            let raised = of_stream(py, error, path);
            if goes_on {
                return Err(raised);
            }
            match slot.take() {
                Some(reader) if reader.get_ref().memory_is_kept() => std::mem::forget(reader),
                failed => drop(failed),
            }
            Err(raised)
        })
    }

    /// Lets go of the source. The reader gives no more items; those that it gave stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.reader.with(py, |slot| match slot.take() {
            Some(mut reader) => reader.get_mut().progress().close(py),
            None => Ok(()),
        })
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

/// Puts `StreamReader` on the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamReader>()
}
