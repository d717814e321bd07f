//! `hurray.StreamWriter`.

use hurray_ffi::Item;
use hurray_io::{StreamError as CoreStreamError, StreamLimits, StreamWriter as CoreStreamWriter};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::error::{StreamError, of_stream};
use super::sink::Sink;
use super::turns::Turns;
use crate::capsule;
use crate::composite::Composite;
use crate::copies;
use crate::owner::detached;

/// Writes tensors and composites to a stream, one after the other.
///
/// `destination` is a path, whose file is made or emptied, a file object, a socket, a pipe, or any
/// object with `sendall`, `write` or `fileno`; None keeps the stream in memory, for `getvalue()`. An
/// unbuffered file and a blocking socket are written to through their descriptor, everything else
/// through its own methods. It stays open.
///
/// Bytes are written from where they lie. Equal tensors make equal streams: rows say `cpu`,
/// `standard`, `producer_synced` and an alignment of 64; a tensor that is only declared is relayed
/// with the rows it came with. A composite is checked as a whole before its first byte.
///
/// With `cross_machine`, every buffer must be `producer_synced`. `progress` is called with the bytes
/// written and None; True shows a bar of tqdm.
///
/// Raises StreamError once it is finished or has failed, FileError where the system cannot write,
/// UnsupportedError for bytes that may not be read, and what the destination raises as it is.
///
/// >>> with hurray.StreamWriter() as writer:
/// ...     writer.write(hurray.Tensor(bytes(16), hurray.float32, [4]))
/// >>> len(writer.getvalue())
/// 69
#[pyclass(frozen, weakref, module = "hurray")]
pub(crate) struct StreamWriter {
    writer: Turns<Writer>,
}

struct Writer {
    writer: CoreStreamWriter<Sink>,
    is_finished: bool,
}

#[pymethods]
impl StreamWriter {
    #[new]
    #[pyo3(signature = (destination=None, *, cross_machine=false, progress=None))]
    fn py_new(
        destination: Option<&Bound<'_, PyAny>>,
        cross_machine: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let sink = match destination {
            Some(destination) => Sink::new(destination, progress)?,
            None => Sink::memory(progress)?,
        };
        let mut limits = StreamLimits::default();
        limits.cross_machine = cross_machine;
        Ok(Self {
            writer: Turns::new(Writer {
                writer: CoreStreamWriter::new(sink, limits),
                is_finished: false,
            }),
        })
    }

    /// Writes a Tensor, or a Composite with its members.
    fn write(&self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(inner) = capsule::item(item) else {
            return Err(PyTypeError::new_err(format!(
                "a stream has hurray.Tensor and hurray.Composite items, not {}",
                item.get_type().name()?
            )));
        };
        self.writer
            .with(item.py(), |writer| writer.write(&inner, item))
    }

    /// Writes a Composite: its head, then its members.
    fn write_composite(&self, composite: &Bound<'_, Composite>) -> PyResult<()> {
        self.write(composite.as_any())
    }

    /// Flushes the destination, and closes it if it was given as a path. A stream has no end mark.
    /// Nothing can be written after it; finishing again does nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.writer.with(py, |writer| writer.finish(py))
    }

    /// The stream so far, of a writer without a destination.
    ///
    /// Raises StreamError for a writer that has one.
    fn getvalue<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.writer
            .with(py, |writer| match writer.writer.get_ref().written() {
                Some(bytes) => Ok(PyBytes::new(py, bytes)),
                None => Err(StreamError::new_err(
                    "this writer has a destination, and its bytes are there",
                )),
            })
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    /// Finishes the stream; where the block failed, as far as that works.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let failed = exception.iter().any(|part| !part.is_none());
        match self.finish(py) {
            Err(_) if failed => Ok(()),
            finished => finished,
        }
    }
}

impl Writer {
    fn write(&mut self, item: &Item, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = object.py();
        if self.is_finished {
            return Err(StreamError::new_err(
                "the stream is finished; another StreamWriter begins another",
            ));
        }
        let writer = &mut self.writer;
        writer.get_mut().announce([item], object);
        let written = detached(py, || writer.write_item(item));
        writer.get_mut().forget();
        written.map_err(|error| self.raise(py, error))?;
        copies::report_device_bytes(py, item, "write")?;
        self.writer.get_mut().progress().tell(py)
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        self.writer.get_mut().progress().close(py)?;
        let writer = &mut self.writer;
        let flushed = detached(py, || writer.flush());
        flushed.map_err(|error| self.raise(py, error))?;
        self.writer.get_mut().close();
        Ok(())
    }

    fn raise(&self, py: Python<'_>, error: CoreStreamError) -> PyErr {
        let path = self.writer.get_ref().path.as_ref();
        of_stream(py, error, path.map(|path| path.name(py)))
    }
}

/// Puts `StreamWriter` on the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamWriter>()
}
