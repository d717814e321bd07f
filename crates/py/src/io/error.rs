//! The exceptions of files and streams, and the map from their errors.

use std::io;

use hurray_ffi::OrderError;
use hurray_io::{FileError as CoreFileError, OutgoingError, StreamError as CoreStreamError};
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::errors::{InvalidDescriptorError, Raise, UnsupportedError};

pyo3::create_exception!(
    hurray,
    FileError,
    PyOSError,
    "A file, a source or a sink cannot be read or written, or a file breaks a rule of the container \
     format, which the text names. What the system says has `errno` and `filename`, and is the \
     built-in error of that number as well: a missing file is a FileNotFoundError too."
);
pyo3::create_exception!(
    hurray,
    StreamError,
    PyOSError,
    "A stream ends where it must not, or goes beyond a limit of its reader; or a writer is used that \
     is finished. The text names the rule of the stream format."
);

/// The built-in errors that the system's numbers stand for, those with a class of their own.
const BUILT_IN: [&str; 13] = [
    "BlockingIOError",
    "BrokenPipeError",
    "ChildProcessError",
    "ConnectionAbortedError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "FileExistsError",
    "FileNotFoundError",
    "InterruptedError",
    "IsADirectoryError",
    "NotADirectoryError",
    "PermissionError",
    "TimeoutError",
];

/// For each built-in error, the class that is both a [`FileError`] and that one.
static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Puts the exceptions on the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("FileError", py.get_type::<FileError>())?;
    module.add("StreamError", py.get_type::<StreamError>())?;
    let classes = PyDict::new(py);
    for name in BUILT_IN {
        let built_in = py.import("builtins")?.getattr(name)?;
        let namespace = PyDict::new(py);
        // Where pickle finds the class; not a name that `from hurray import *` gives.
        namespace.set_item("__module__", "hurray._hurray")?;
        namespace.set_item(
            "__doc__",
            format!("A hurray.FileError and a built-in {name}."),
        )?;
        let bases = (py.get_type::<FileError>(), &built_in);
        let class = py.get_type::<PyType>().call1((name, bases, namespace))?;
        module.setattr(name, &class)?;
        classes.set_item(built_in, class)?;
    }
    // The module is made once.
    let _ = CLASSES.set(py, classes.unbind());
    Ok(())
}

/// The exception for an error of the system, a source or a sink. What Python code raised, or a signal's handler, is raised as it was.
pub(super) fn of_io(py: Python<'_>, error: io::Error, path: Option<&Bound<'_, PyAny>>) -> PyErr {
    let Some(code) = error.raw_os_error() else {
        return match error.downcast::<PyErr>() {
            Ok(raised) => raised,
            Err(error) => FileError::new_err(with_path(error.to_string(), path)),
        };
    };
    of_system(py, code, path).unwrap_or_else(|error| error)
}

fn of_system(py: Python<'_>, code: i32, path: Option<&Bound<'_, PyAny>>) -> PyResult<PyErr> {
    let text = py.import("os")?.call_method1("strerror", (code,))?;
    // `OSError` itself chooses the class.
    let built_in = py.get_type::<PyOSError>().call1((code, &text))?.get_type();
    let class = match CLASSES.get(py) {
        Some(classes) => classes.bind(py).get_item(built_in)?,
        None => None,
    };
    let class = match class {
        Some(class) => class.cast_into::<PyType>()?,
        None => py.get_type::<FileError>(),
    };
    let path = path.map(|path| path.clone().unbind());
    Ok(PyErr::from_type(class, (code, text.unbind(), path)))
}

fn with_path(text: String, path: Option<&Bound<'_, PyAny>>) -> String {
    match path {
        Some(path) => format!("{path}: {text}"),
        None => text,
    }
}

fn with_rule(text: String, rule: &str) -> String {
    match rule {
        "" => text,
        rule => format!("{text} ({rule})"),
    }
}

/// The exception for an error of a file.
pub(super) fn of_file(
    py: Python<'_>,
    error: CoreFileError,
    path: Option<&Bound<'_, PyAny>>,
) -> PyErr {
    let text = with_path(with_rule(error.to_string(), error.rule()), path);
    match error {
        CoreFileError::Io(error) => of_io(py, error, path),
        CoreFileError::Unwritable { source, .. } => of_outgoing(source, text),
        CoreFileError::Device(error) => of_order(error, text),
        CoreFileError::Memory(error) => PyMemoryError::new_err(error.to_string()),
        CoreFileError::Slice { .. } => UnsupportedError::new_err(text),
        CoreFileError::Descriptor { .. }
        | CoreFileError::DescriptorLength { .. }
        | CoreFileError::Tensor { .. } => InvalidDescriptorError::new_err(text),
        CoreFileError::Composite { .. } if error.rule() == "FC26" => {
            InvalidDescriptorError::new_err(text)
        }
        _ => FileError::new_err(text),
    }
}

/// The exception for an error of a stream.
pub(super) fn of_stream(
    py: Python<'_>,
    error: CoreStreamError,
    path: Option<&Bound<'_, PyAny>>,
) -> PyErr {
    let text = with_path(with_rule(error.to_string(), error.rule()), path);
    match error {
        CoreStreamError::Io(error) => of_io(py, error, path),
        CoreStreamError::Descriptor(_) | CoreStreamError::Tensor(_) if error.rule() != "ST9" => {
            InvalidDescriptorError::new_err(text)
        }
        CoreStreamError::Device(error) => of_order(error, text),
        CoreStreamError::Allocation(error) => PyMemoryError::new_err(error.to_string()),
        CoreStreamError::Unwritable(error) => of_outgoing(error, text),
        _ => StreamError::new_err(text),
    }
}

/// The exception for a tensor that cannot leave: which of them it is says what to do.
fn of_outgoing(error: OutgoingError, text: String) -> PyErr {
    match error {
        OutgoingError::Access(_) => UnsupportedError::new_err(text),
        OutgoingError::Descriptor(_) => InvalidDescriptorError::new_err(text),
        _ => StreamError::new_err(text),
    }
}

/// The exception for bytes that a device holds.
fn of_order(error: OrderError, text: String) -> PyErr {
    match error {
        OrderError::Device(error) => error.raise(),
        _ => UnsupportedError::new_err(text),
    }
}
