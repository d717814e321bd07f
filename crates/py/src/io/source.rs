//! What a stream is read from.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBlockingIOError, PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use super::descriptor;
use super::error::of_io;
use super::loan::{Returned, lend_mut};
use super::path::FilePath;
use super::progress::{Progress, STEP};
use crate::owner::calling;

/// Bytes that are read at once from a file that nobody else reads from.
const READ_AHEAD: usize = 1 << 16;

/// A source.
pub(super) struct Source {
    kind: Kind,
    progress: Progress,
    pub(super) path: Option<FilePath>,
}

enum Kind {
    /// A file of our own.
    File(BufReader<File>),
    /// A descriptor that others read from as well, so never past what is wanted.
    Descriptor(File),
    Bytes(Bytes),
    Object(Object),
}

impl Source {
    /// The source that `argument` is: a path, bytes, or an object with `recv_into`, `readinto`, `read`, `recv` or `fileno`.
    ///
    /// # Errors
    /// `TypeError` for anything else; a file that cannot be opened.
    pub(super) fn new(
        argument: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = argument.py();
        let path = FilePath::of(argument)?;
        let kind = match &path {
            Some(path) => {
                let opened = crate::owner::detached(py, || File::open(path));
                let file = opened.map_err(|error| of_io(py, error, Some(path.name(py))))?;
                Kind::File(BufReader::with_capacity(READ_AHEAD, file))
            }
            None => Kind::of_object(argument)?,
        };
        let title = path.as_ref().map(FilePath::title).unwrap_or_default();
        let progress = Progress::new(progress, kind.size(), &title)?;
        Ok(Self {
            kind,
            progress,
            path,
        })
    }

    /// Whether reading calls Python code, so that the interpreter must be at hand.
    pub(super) fn calls_python(&self) -> bool {
        matches!(self.kind, Kind::Object(_))
    }

    /// Whether a read that failed left the position as it was, so that the next one goes on there.
    pub(super) fn can_go_on(&self) -> bool {
        match &self.kind {
            Kind::Object(object) => object.can_go_on(),
            _ => true,
        }
    }

    /// Whether somebody keeps the memory that was read into, so that it must never be freed.
    pub(super) fn memory_is_kept(&self) -> bool {
        matches!(&self.kind, Kind::Object(object) if object.memory_is_kept)
    }

    pub(super) fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }
}

impl Read for Source {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.progress.look_in_time()?;
        let room = space.len().min(STEP);
        let space = space.get_mut(..room).unwrap_or_default();
        loop {
            match self.kind.read(space) {
                // Python's handlers run only where they are asked for.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.progress.look()?,
                read => {
                    return read.inspect(|&count| self.progress.count(count));
                }
            }
        }
    }
}

impl Kind {
    fn of_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(descriptor) = descriptor::plain(object)? {
            return Ok(Self::Descriptor(descriptor));
        }
        if let Some(bytes) = Bytes::of(object)? {
            return Ok(Self::Bytes(bytes));
        }
        if let Some(object) = Object::of(object)? {
            return Ok(Self::Object(object));
        }
        if object.hasattr("fileno")? {
            return Ok(Self::Descriptor(descriptor::duplicate(object)?));
        }
        Err(PyTypeError::new_err(format!(
            "a source is a path (str or os.PathLike), bytes, or an object with recv_into, readinto, read, recv or fileno, not {}",
            object.get_type().name()?
        )))
    }

    /// Bytes that are there, where that is known.
    fn size(&self) -> Option<u64> {
        match self {
            Self::File(file) => {
                let metadata = file.get_ref().metadata().ok()?;
                metadata.is_file().then_some(metadata.len())
            }
            Self::Bytes(bytes) => Some(bytes.lent.len_bytes() as u64),
            Self::Descriptor(_) | Self::Object(_) => None,
        }
    }
}

impl Read for Kind {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(space),
            Self::Descriptor(file) => file.read(space),
            Self::Bytes(bytes) => bytes.read(space),
            Self::Object(object) => object.read(space),
        }
    }
}

/// The bytes of a bytes-like object, lent by it.
pub(super) struct Bytes {
    lent: PyUntypedBuffer,
    position: usize,
}

impl Bytes {
    /// The object's bytes; `None` where it exposes none.
    ///
    /// # Errors
    /// `BufferError` for memory that is not contiguous.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Ok(view) = PyMemoryView::from(object) else {
            return Ok(None);
        };
        let lent = PyUntypedBuffer::get(view.as_any())?;
        if !lent.is_c_contiguous() && !lent.is_fortran_contiguous() {
            return Err(crate::errors::BufferError::new_err(format!(
                "the memory of this {} is not contiguous",
                object.get_type().name()?
            )));
        }
        Ok(Some(Self { lent, position: 0 }))
    }

    fn rest(&self) -> &[u8] {
        if self.lent.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the loan has this many readable bytes for as long as `lent` lives. Whoever writes to them meanwhile, from another thread, races
        // with any reader.
        let bytes = unsafe {
            slice::from_raw_parts(self.lent.buf_ptr().cast::<u8>(), self.lent.len_bytes())
        };
        bytes.get(self.position..).unwrap_or_default()
    }
}

impl Read for Bytes {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let count = self.rest().read(space)?;
        self.position = self.position.saturating_add(count);
        Ok(count)
    }
}

/// An object that Python code reads from.
struct Object {
    method: Py<PyAny>,
    name: &'static str,
    memory_is_kept: bool,
}

impl Object {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let io = object.py().import("io")?;
        if object.is_instance(&io.getattr("TextIOBase")?)? {
            return Err(PyTypeError::new_err(
                "the file is open as text; open it with mode \"rb\"",
            ));
        }
        for name in ["recv_into", "readinto", "read", "recv"] {
            if let Some(method) = object.getattr_opt(name)? {
                return Ok(Some(Self {
                    method: method.unbind(),
                    name,
                    memory_is_kept: false,
                }));
            }
        }
        Ok(None)
    }

    /// A socket gives all bytes or an error. What is buffered may have lost some when it raises.
    fn can_go_on(&self) -> bool {
        !self.memory_is_kept && matches!(self.name, "recv_into" | "recv")
    }

    fn read_into(&mut self, py: Python<'_>, space: &mut [u8]) -> PyResult<usize> {
        let room = space.len();
        let method = self.method.bind(py);
        let count = match self.name {
            "recv_into" | "readinto" => {
                let Returned { result, is_kept } = lend_mut(space, method);
                self.memory_is_kept |= is_kept;
                let count = self.count(&result?)?;
                if is_kept {
                    return Err(PyBufferError::new_err(format!(
                        "{} keeps the memory that it was given to read into",
                        self.name
                    )));
                }
                count
            }
            _ => {
                let read = calling(py, || method.call1((room,)))?;
                if read.is_none() {
                    return Err(would_block());
                }
                let bytes = read.cast::<PyBytes>().map_err(|_| {
                    let class = read.get_type();
                    PyTypeError::new_err(format!("{} gives bytes, not {class}", self.name))
                })?;
                let bytes = bytes.as_bytes();
                if let Some(front) = space.get_mut(..bytes.len()) {
                    front.copy_from_slice(bytes);
                }
                bytes.len()
            }
        };
        if count > room {
            return Err(PyValueError::new_err(format!(
                "{} gives {count} bytes, and it was asked for {room}",
                self.name
            )));
        }
        Ok(count)
    }

    fn count(&self, answer: &Bound<'_, PyAny>) -> PyResult<usize> {
        if answer.is_none() {
            return Err(would_block());
        }
        answer.extract().map_err(|_| {
            PyValueError::new_err(format!(
                "{} gives how many bytes it read, not {answer}",
                self.name
            ))
        })
    }
}

fn would_block() -> PyErr {
    PyBlockingIOError::new_err("the source does not block, and has no bytes yet")
}

impl Read for Object {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| self.read_into(py, space)).map_err(io::Error::other)
    }
}
