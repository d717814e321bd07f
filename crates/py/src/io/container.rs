//! A container that Python code opens, wherever its bytes are.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;

use hurray_core::memory::AlignedBytes;
use hurray_ffi::{Buffer, Item, Place};
use hurray_io::{FileError, FileReader, Target};
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::descriptor;
use super::error::{of_file, of_io};
use super::path::FilePath;
use super::progress::{Progress, STEP};
use super::source::Source;
use crate::device;
use crate::ingest::buffer_protocol;
use crate::owner::detached;

/// An open container, and what errors call it.
pub(super) struct Container {
    pub(super) reader: FileReader,
    path: Option<FilePath>,
}

impl Container {
    /// Opens what `argument` is: the file at a path, the contents in bytes, or a file object from where it stands to its end. A file is mapped, or with
    /// `mmap=False` read when bytes are asked for; what is no file is read at once.
    ///
    /// # Errors
    /// `TypeError` for what is none of these; what the source or the format refuses.
    pub(super) fn open(
        argument: &Bound<'_, PyAny>,
        mmap: bool,
        call: &'static str,
    ) -> PyResult<Self> {
        let py = argument.py();
        let path = FilePath::of(argument)?;
        let opened = match &path {
            Some(path) if path.is_special() => FileReader::new(read_all(argument)?),
            Some(path) => detached(py, || open_file(File::open(path)?, mmap)),
            None => open_object(argument, mmap, call)?,
        };
        match opened {
            Ok(reader) => Ok(Self { reader, path }),
            Err(error) => Err(of_file(py, error, path.as_ref().map(|path| path.name(py)))),
        }
    }

    /// The tensors and composites of these names.
    ///
    /// # Errors
    /// As [`FileReader::items`]; what a listener or a signal's handler raises.
    pub(super) fn items(
        &self,
        py: Python<'_>,
        names: &[&str],
        target: Target,
        progress: &mut Progress,
    ) -> PyResult<Vec<Item>> {
        let read = detached(py, || {
            watched(progress, |watch| self.reader.items(names, target, watch))
        });
        read.map_err(|error| self.raise(py, error))
    }

    /// The names of what is no composite's member.
    ///
    /// # Errors
    /// As [`FileReader::roots`].
    pub(super) fn roots(&self, py: Python<'_>) -> PyResult<Vec<&str>> {
        detached(py, || self.reader.roots()).map_err(|error| self.raise(py, error))
    }

    pub(super) fn raise(&self, py: Python<'_>, error: FileError) -> PyErr {
        of_file(py, error, self.path.as_ref().map(|path| path.name(py)))
    }

    /// The last part of the path; empty without one.
    pub(super) fn title(&self) -> String {
        self.path.as_ref().map(FilePath::title).unwrap_or_default()
    }
}

/// Does `work`, which is watched by `progress`: an exception of its listener, or of a signal's handler, ends it, and is what is raised.
pub(super) fn watched<T>(
    progress: &mut Progress,
    work: impl FnOnce(&mut hurray_io::Progress<'_>) -> Result<T, FileError>,
) -> Result<T, FileError> {
    let mut raised = None;
    let done = work(&mut |done, total| match progress.look_at(done, total) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            raised = Some(error);
            ControlFlow::Break(())
        }
    });
    match raised {
        Some(error) => Err(error.into()),
        None => done,
    }
}

/// Opens contents, or a file object.
fn open_object(
    argument: &Bound<'_, PyAny>,
    mmap: bool,
    call: &'static str,
) -> PyResult<Result<FileReader, FileError>> {
    if let Some(bytes) = buffer_protocol::buffer(argument, call)? {
        return Ok(FileReader::new(bytes));
    }
    Ok(match descriptor::whole_file(argument)? {
        Some(file) => detached(argument.py(), || open_file(file, mmap)),
        None => FileReader::new(read_all(argument)?),
    })
}

fn open_file(file: File, mmap: bool) -> Result<FileReader, FileError> {
    if mmap {
        FileReader::map(file)
    } else {
        FileReader::unmapped(file)
    }
}

/// All that a source still has.
fn read_all(argument: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let py = argument.py();
    let mut source = Source::new(argument, None)?;
    let calls_python = source.calls_python();
    let mut read = || -> io::Result<Buffer> {
        // Memory follows the bytes that come.
        let mut bytes = allocate(STEP)?;
        let mut filled = 0;
        loop {
            if filled == bytes.len() {
                let mut larger = allocate(filled.saturating_mul(2))?;
                if let Some(front) = larger.get_mut(..filled) {
                    front.copy_from_slice(&bytes);
                }
                bytes = larger;
            }
            let count = source.read(bytes.get_mut(filled..).unwrap_or_default());
            if source.memory_is_kept() {
                std::mem::forget(bytes);
                return Err(count.err().unwrap_or_else(|| io::ErrorKind::Other.into()));
            }
            match count? {
                0 => {
                    return Buffer::from(bytes)
                        .slice(0, filled)
                        .map_err(io::Error::other);
                }
                count => filled = filled.saturating_add(count),
            }
        }
    };
    let read = if calls_python {
        read()
    } else {
        detached(py, read)
    };
    read.map_err(|error| of_io(py, error, None))
}

fn allocate(len: usize) -> io::Result<AlignedBytes> {
    AlignedBytes::zeroed(len)
        .map_err(|error| io::Error::other(PyMemoryError::new_err(error.to_string())))
}

/// The `device` argument: None leaves what a file declares, a device takes all of it for its own.
#[derive(Clone, Copy)]
pub(super) struct DeviceArgument(pub(super) Target);

impl<'py> FromPyObject<'_, 'py> for DeviceArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Self(Target::Declared));
        }
        let place = device::argument(&object)?.get().0;
        Ok(Self(if place == Place::HOST {
            Target::Host
        } else {
            Target::Device(place)
        }))
    }
}

/// The names that the `names` argument lists.
///
/// # Errors
/// `TypeError` for what is no iterable of `str`.
pub(super) fn names(names: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if names.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "names is an iterable of str, not one str",
        ));
    }
    names
        .try_iter()?
        .map(|name| {
            let name = name?;
            match name.cast::<PyString>() {
                Ok(name) => Ok(name.to_str()?.to_owned()),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "a name is a str, not {}",
                    name.get_type().name()?
                ))),
            }
        })
        .collect()
}
