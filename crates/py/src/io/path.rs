//! Paths, as Python gives them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::owner::calling;

/// A path, and what an error calls it.
pub(super) struct FilePath {
    path: PathBuf,
    name: Py<PyAny>,
}

impl FilePath {
    /// The path that `argument` is, a `str` or an `os.PathLike`; `bytes` are none, since they may be what is in a file.
    ///
    /// # Errors
    /// What `os.fspath` raises.
    pub(super) fn of(argument: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if argument.is_instance_of::<PyString>() || argument.hasattr("__fspath__")? {
            return Self::new(argument).map(Some);
        }
        Ok(None)
    }

    /// As [`of`](Self::of), where `bytes` can only be a path.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub(super) fn of_target(argument: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if argument.is_instance_of::<PyBytes>() {
            return Self::new(argument).map(Some);
        }
        Self::of(argument)
    }

    fn new(argument: &Bound<'_, PyAny>) -> PyResult<Self> {
        let os = argument.py().import("os")?;
        let name = calling(os.py(), || os.call_method1("fspath", (argument,)))?;
        let encoded: Vec<u8> = os.call_method1("fsencode", (&name,))?.extract()?;
        Ok(Self {
            path: OsString::from_vec(encoded).into(),
            name: name.unbind(),
        })
    }

    /// Whether it leads to what is read or written through, a pipe or a terminal, and not to a file or folder.
    pub(super) fn is_special(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| !found.is_file() && !found.is_dir())
    }

    /// The path as an error's `filename`.
    pub(super) fn name<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.name.bind(py)
    }

    /// The last part, for a progress bar.
    pub(super) fn title(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}
