//! The exceptions, and the one map from the Rust crates' errors to them.

use hurray_core::{
    BufferTableError, CompositeError, DescriptorError, Error, LayoutError, PointerError,
    QuantizationError,
};
use hurray_ffi::access::AccessError;
use hurray_ffi::{ConsumeError, ListError, OrderError, TensorError, TransferError};
use pyo3::exceptions::{
    PyBufferError, PyMemoryError, PyNotImplementedError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

pyo3::create_exception!(
    hurray,
    UnsupportedError,
    PyNotImplementedError,
    "What was asked cannot be done with this element type, layout, device or synchronisation mode. \
     The text names what would work."
);
pyo3::create_exception!(
    hurray,
    InvalidDescriptorError,
    PyValueError,
    "A descriptor, or a part of one, breaks a rule of the format. The text names the rule's numbers."
);
pyo3::create_exception!(
    hurray,
    BufferError,
    PyValueError,
    "A buffer is too small, less aligned than declared, or not where it is said to be. \
     Not the built-in BufferError, which is what `__dlpack__` raises."
);
pyo3::create_exception!(
    hurray,
    CopyRequiredError,
    PyValueError,
    "`copy=False` was given and the bytes cannot be shared. The text says why, with the measured alignment in bytes."
);
pyo3::create_exception!(
    hurray,
    DeviceError,
    PyRuntimeError,
    "A device that cannot be used, a call of its driver that failed, or a stream or event that cannot be waited for. \
     The text names the operation and the driver's word for the error."
);
pyo3::create_exception!(
    hurray,
    InternalError,
    PyRuntimeError,
    "A defect of this library. Please report it."
);

/// Puts the exceptions on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("UnsupportedError", py.get_type::<UnsupportedError>())?;
    module.add(
        "InvalidDescriptorError",
        py.get_type::<InvalidDescriptorError>(),
    )?;
    module.add("BufferError", py.get_type::<BufferError>())?;
    module.add("CopyRequiredError", py.get_type::<CopyRequiredError>())?;
    module.add("DeviceError", py.get_type::<DeviceError>())?;
    module.add("InternalError", py.get_type::<InternalError>())
}

/// What `__dlpack__` refuses: an [`UnsupportedError`] that is the built-in `BufferError` too, since that is what DLPack consumers catch.
pub(crate) fn dlpack_refusal(py: Python<'_>, message: String) -> PyErr {
    // PyO3's `create_exception!` takes one base; a class with two is made by calling `type`.
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let namespace = PyDict::new(py);
        namespace.set_item("__module__", "hurray")?;
        namespace.set_item(
            "__doc__",
            "What `__dlpack__` refuses: an UnsupportedError and a built-in BufferError.",
        )?;
        let bases = (
            py.get_type::<UnsupportedError>(),
            py.get_type::<PyBufferError>(),
        );
        let class = py
            .get_type::<PyType>()
            .call1(("_DlpackUnsupportedError", bases, namespace))?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    });
    match class {
        Ok(class) => PyErr::from_type(class.bind(py).clone(), message),
        Err(error) => error,
    }
}

/// An error of the Rust crates that has a fixed place among the exceptions.
pub(crate) trait Raise {
    /// The exception that stands for this error.
    fn raise(self) -> PyErr;
}

/// `result.or_raise()?` in functions that give a [`PyResult`].
pub(crate) trait OrRaise<T> {
    /// The value, or the error's exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: Raise> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(Raise::raise)
    }
}

impl Raise for Error {
    fn raise(self) -> PyErr {
        raise_as(&self, self.to_string())
    }
}

impl Raise for DescriptorError {
    fn raise(self) -> PyErr {
        Error::from(self).raise()
    }
}

impl Raise for LayoutError {
    fn raise(self) -> PyErr {
        Error::from(self).raise()
    }
}

impl Raise for QuantizationError {
    fn raise(self) -> PyErr {
        Error::from(self).raise()
    }
}

impl Raise for BufferTableError {
    fn raise(self) -> PyErr {
        Error::from(self).raise()
    }
}

impl Raise for CompositeError {
    fn raise(self) -> PyErr {
        Error::from(self).raise()
    }
}

/// A buffer of the wrong size is the buffer's fault; everything else, a table that fits no buffers at all included, is the descriptor's.
fn raise_as(error: &Error, text: String) -> PyErr {
    match error {
        Error::Quantization(QuantizationError::ParameterSize { .. })
        | Error::BufferTable(
            BufferTableError::TooSmall { .. }
            | BufferTableError::ByteOffsetPastEnd { .. }
            | BufferTableError::BeforeStart { .. }
            | BufferTableError::PaddedBlocks { .. },
        ) => BufferError::new_err(text),
        _ => InvalidDescriptorError::new_err(text),
    }
}

impl Raise for hurray_core::DeviceError {
    fn raise(self) -> PyErr {
        let text = self.to_string();
        match self {
            Self::NoSuchMemory { .. } => UnsupportedError::new_err(text),
            _ => DeviceError::new_err(text),
        }
    }
}

impl Raise for PointerError {
    fn raise(self) -> PyErr {
        match self {
            Self::Device(error) => error.raise(),
            other => BufferError::new_err(other.to_string()),
        }
    }
}

impl Raise for OrderError {
    fn raise(self) -> PyErr {
        match self {
            Self::Access(error) => error.raise(),
            Self::Device(error) => error.raise(),
            // A cause of later versions.
            other => UnsupportedError::new_err(other.to_string()),
        }
    }
}

impl Raise for TransferError {
    fn raise(self) -> PyErr {
        match self {
            Self::Access(error) => error.raise(),
            Self::Device(error) => error.raise(),
            Self::Tensor(error) => error.raise(),
            Self::Allocation(error) => PyMemoryError::new_err(error.to_string()),
            error => UnsupportedError::new_err(error.to_string()),
        }
    }
}

impl Raise for hurray_ffi::BufferError {
    fn raise(self) -> PyErr {
        match self {
            Self::Pointer(error) => error.raise(),
            other => BufferError::new_err(other.to_string()),
        }
    }
}

impl Raise for TensorError {
    fn raise(self) -> PyErr {
        let text = self.to_string();
        match innermost(&self) {
            Self::Descriptor(error) => raise_as(error, text),
            // The driver could not be asked.
            Self::Buffer {
                source: hurray_ffi::BufferError::Pointer(PointerError::Device(_)),
                ..
            } => DeviceError::new_err(text),
            Self::Head => UnsupportedError::new_err(format!("{text}: hurray.Composite makes one")),
            // Every other one is about a buffer.
            _ => BufferError::new_err(text),
        }
    }
}

/// What is wrong with a member, or with the tensor itself.
fn innermost(error: &TensorError) -> &TensorError {
    match error {
        TensorError::Member { source, .. } => innermost(source),
        own => own,
    }
}

impl Raise for AccessError {
    fn raise(self) -> PyErr {
        UnsupportedError::new_err(self.to_string())
    }
}

impl Raise for ListError {
    fn raise(self) -> PyErr {
        match self {
            Self::Descriptor(error) => error.raise(),
            other => PyMemoryError::new_err(other.to_string()),
        }
    }
}

impl Raise for ConsumeError {
    fn raise(self) -> PyErr {
        match self {
            Self::Version { .. } | Self::ShortContext { .. } | Self::Table { .. } => {
                UnsupportedError::new_err(self.to_string())
            }
            Self::Descriptor(error) => error.raise(),
            // Where a capsule's buffers and its descriptor disagree, the protocol has one word for all.
            Self::Tensor(error)
                if matches!(
                    innermost(&error),
                    TensorError::Descriptor(Error::BufferTable(_))
                ) =>
            {
                BufferError::new_err(error.to_string())
            }
            Self::Tensor(error) => error.raise(),
            other => BufferError::new_err(other.to_string()),
        }
    }
}
