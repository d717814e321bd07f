//! What files and streams are written to.

use std::fs::File;
use std::io::{self, IoSlice, Write};

use hurray_ffi::{Buffer, Item};
use pyo3::exceptions::{PyBlockingIOError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::descriptor;
use super::error::of_io;
use super::loan::lend;
use super::path::FilePath;
use super::progress::{Progress, STEP};
use crate::owner::{calling, detached, reattached};

/// A sink.
pub(super) struct Sink {
    kind: Kind,
    progress: Progress,
    pub(super) path: Option<FilePath>,
}

enum Kind {
    Memory(Vec<u8>),
    File(File),
    Object(Object),
    Closed,
}

impl Sink {
    /// Memory.
    ///
    /// # Errors
    /// As [`Progress::new`].
    pub(super) fn memory(progress: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self {
            kind: Kind::Memory(Vec::new()),
            progress: Progress::new(progress, None, "")?,
            path: None,
        })
    }

    /// The file at a path, made or emptied, or the sink that an object is.
    ///
    /// # Errors
    /// A file that cannot be made; as [`of_object`](Self::of_object).
    pub(super) fn new(
        argument: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = argument.py();
        let Some(path) = FilePath::of_target(argument)? else {
            return Self::of_object(argument, progress);
        };
        let progress = Progress::new(progress, None, &path.title())?;
        let made = detached(py, || File::create(&path));
        let file = made.map_err(|error| of_io(py, error, Some(path.name(py))))?;
        Ok(Self {
            kind: Kind::File(file),
            progress,
            path: Some(path),
        })
    }

    /// The sink that an object is: one with `sendall`, `write` or `fileno`.
    ///
    /// # Errors
    /// `TypeError` for anything else; as [`Progress::new`].
    pub(super) fn of_object(
        object: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            kind: Kind::of_object(object)?,
            progress: Progress::new(progress, None, "")?,
            path: None,
        })
    }

    /// Says which items are written next; `keep` keeps them alive.
    pub(super) fn announce<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a Item>,
        keep: &Bound<'_, PyAny>,
    ) {
        if let Kind::Object(object) = &mut self.kind {
            object.spans.clear();
            for item in items {
                push_spans(item, &mut object.spans);
            }
            merge(&mut object.spans);
            object.keep = Some(keep.clone().unbind());
        }
    }

    /// Says that nothing of the items will be written any more.
    pub(super) fn forget(&mut self) {
        if let Kind::Object(object) = &mut self.kind {
            object.keep = None;
            object.spans.clear();
        }
    }

    /// Closes a file that is our own, and lets go of an object. Memory stays.
    pub(super) fn close(&mut self) {
        if !matches!(self.kind, Kind::Memory(_)) {
            self.kind = Kind::Closed;
        }
    }

    /// What was written, to a sink that is memory.
    pub(super) fn written(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Memory(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    /// Does `write`, again where it was interrupted and no handler objects.
    fn writing(&mut self, write: impl Fn(&mut Kind) -> io::Result<usize>) -> io::Result<usize> {
        self.progress.look_in_time()?;
        loop {
            match write(&mut self.kind) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.progress.look()?,
                written => return written.inspect(|&count| self.progress.count(count)),
            }
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let step = bytes.get(..STEP).unwrap_or(bytes);
        self.writing(|kind| kind.write(step))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut room = STEP;
        let fitting = parts.iter().take_while(|part| {
            let fits = part.len() <= room;
            room = room.saturating_sub(part.len());
            fits
        });
        let fitting = fitting.count();
        match (fitting, parts.first()) {
            (0, Some(first)) => self.write(first),
            _ => self.writing(|kind| kind.write_vectored(parts.get(..fitting).unwrap_or(parts))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.kind.flush()
    }
}

impl Kind {
    fn of_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(file) = descriptor::plain(object)? {
            return Ok(Self::File(file));
        }
        if let Some(object) = Object::of(object)? {
            return Ok(Self::Object(object));
        }
        if object.hasattr("fileno")? {
            return Ok(Self::File(descriptor::duplicate(object)?));
        }
        Err(PyTypeError::new_err(format!(
            "a sink is a path (str, bytes or os.PathLike) or an object with sendall, write or fileno, not {}",
            object.get_type().name()?
        )))
    }
}

impl Write for Kind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Memory(memory) => memory.write(bytes),
            Self::File(file) => file.write(bytes),
            Self::Object(object) => object.write(bytes),
            Self::Closed => Ok(0),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Memory(memory) => memory.write_vectored(parts),
            Self::File(file) => file.write_vectored(parts),
            Self::Object(object) => object.write_vectored(parts),
            Self::Closed => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(_) | Self::Closed => Ok(()),
            Self::File(file) => file.flush(),
            Self::Object(object) => object.flush(),
        }
    }
}

/// An object that Python code writes to.
struct Object {
    object: Py<PyAny>,
    method: Py<PyAny>,
    name: &'static str,
    /// Whether `write` may take fewer bytes than it is given, and none by giving None.
    is_raw: bool,
    /// Where the bytes of what is written are: first addresses and those after the last, ascending and disjoint.
    spans: Vec<(usize, usize)>,
    /// What keeps them alive.
    keep: Option<Py<PyAny>>,
}

impl Object {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let io = object.py().import("io")?;
        if object.is_instance(&io.getattr("TextIOBase")?)? {
            return Err(PyTypeError::new_err(
                "the file is open as text; open it with mode \"wb\"",
            ));
        }
        for name in ["sendall", "write"] {
            if let Some(method) = object.getattr_opt(name)? {
                return Ok(Some(Self {
                    object: object.clone().unbind(),
                    method: method.unbind(),
                    name,
                    is_raw: object.is_instance(&io.getattr("RawIOBase")?)?,
                    spans: Vec::new(),
                    keep: None,
                }));
            }
        }
        Ok(None)
    }

    fn write_from(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<usize> {
        let method = self.method.bind(py);
        let answer = match &self.keep {
            Some(keep) if lies_in(&self.spans, bytes) => lend(bytes, keep.clone_ref(py), method)?,
            // Descriptors, gaps and the index, which nobody else keeps alive.
            _ => {
                let copy = PyBytes::new(py, bytes);
                calling(py, || method.call1((copy,)))?
            }
        };
        if answer.is_none() && self.is_raw {
            return Err(PyBlockingIOError::new_err(
                "the sink does not block, and takes no bytes yet",
            ));
        }
        // `sendall` gives nothing, and so do sinks that take everything.
        if answer.is_none() || self.name == "sendall" {
            return Ok(bytes.len());
        }
        let count: Option<usize> = answer.extract().ok();
        count.filter(|&count| count <= bytes.len()).ok_or_else(|| {
            PyValueError::new_err(format!(
                "write gives how many of {} bytes it wrote, not {answer}",
                bytes.len()
            ))
        })
    }
}

impl Write for Object {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        attached(|py| self.write_from(py, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        attached(|py| match self.object.bind(py).getattr_opt("flush")? {
            Some(flush) => calling(py, || flush.call0().map(drop)),
            None => Ok(()),
        })
    }
}

/// Does `work` with the interpreter, which writing is without: bytes of a device are waited for between two writes.
fn attached<T>(work: impl FnOnce(Python<'_>) -> PyResult<T>) -> io::Result<T> {
    match reattached(work) {
        Some(done) => done.map_err(io::Error::other),
        None => Err(io::Error::other("the interpreter has ended")),
    }
}

fn push_spans(item: &Item, spans: &mut Vec<(usize, usize)>) {
    match item {
        Item::Tensor(tensor) => {
            let filled = tensor.buffers().iter().filter(|buffer| !buffer.is_empty());
            spans.extend(filled.map(span));
        }
        Item::Composite(composite) => {
            for member in composite.members() {
                push_spans(member, spans);
            }
        }
    }
}

fn span(buffer: &Buffer) -> (usize, usize) {
    let start = buffer.as_ptr().addr();
    (start, start.saturating_add(buffer.len()))
}

/// Sorts spans, and makes one of those that touch.
fn merge(spans: &mut Vec<(usize, usize)>) {
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let touch = next.0 <= last.1;
        if touch {
            last.1 = last.1.max(next.1);
        }
        touch
    });
}

fn lies_in(spans: &[(usize, usize)], bytes: &[u8]) -> bool {
    let start = bytes.as_ptr().addr();
    let at = spans.partition_point(|&(first, _)| first <= start);
    let span = at.checked_sub(1).and_then(|at| spans.get(at));
    span.is_some_and(|&(_, end)| start.saturating_add(bytes.len()) <= end)
}
