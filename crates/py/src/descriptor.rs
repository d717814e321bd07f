//! `hurray.Descriptor`.

use std::sync::Arc;

use hurray_core::{MemberRole, TensorDescriptor, element_count};
use hurray_ffi::Place;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString, PyTuple, PyType};

use crate::buffer_handle::BufferHandle;
use crate::device::{self, Device};
use crate::element_type::{Dtype, dtype};
use crate::errors::OrRaise;
use crate::extension_type::ExtensionType;
use crate::layout::Layout;
use crate::shard::Shard;
use crate::statistics::Statistics;
use crate::{bytes_like, layout, quantization, shape};

/// Everything that a tensor declares about itself, without its bytes.
///
/// `Tensor.descriptor`, `Composite.descriptor` and `Descriptor.decode` give it; it cannot be
/// constructed. A descriptor that was decoded may be one that no tensor could have, so that a
/// reader can say what is wrong with it; a tensor's own is not.
#[pyclass(frozen, eq, module = "hurray")]
pub(crate) struct Descriptor {
    descriptor: Arc<TensorDescriptor>,
    /// The device of buffer 0, made when it is asked for, so that every handle shows the same object.
    device: PyOnceLock<Py<Device>>,
}

impl PartialEq for Descriptor {
    fn eq(&self, other: &Self) -> bool {
        self.descriptor == other.descriptor
    }
}

impl Descriptor {
    /// Shows `descriptor`, which says nothing of which device of its kind holds the bytes.
    pub(crate) fn new(descriptor: impl Into<Arc<TensorDescriptor>>) -> Self {
        Self {
            descriptor: descriptor.into(),
            device: PyOnceLock::new(),
        }
    }

    fn device_of_buffer_0(&self, py: Python<'_>) -> PyResult<&Py<Device>> {
        self.device.get_or_try_init(py, || {
            let row = self.descriptor.buffers.first();
            device::object(py, row.map_or(Place::HOST, device::of_row))
        })
    }
}

#[pymethods]
impl Descriptor {
    /// Reads one descriptor from the front of `data`, which is bytes-like and may go on.
    ///
    /// Raises InvalidDescriptorError, with the numbers, for bytes that are no descriptor.
    #[classmethod]
    #[pyo3(signature = (data))]
    fn decode(_cls: &Bound<'_, PyType>, data: &Bound<'_, PyAny>) -> PyResult<Self> {
        // The first ten bytes tell the length, so that a mapped file is not copied for its first descriptor.
        let head = bytes_like::prefix(data, 10)?;
        let length = match head.get(6..10) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        };
        let bytes =
            bytes_like::prefix(data, usize::try_from(length).unwrap_or(usize::MAX).max(10))?;
        let (descriptor, _) = TensorDescriptor::decode(&bytes).or_raise()?;
        Ok(Self::new(descriptor))
    }

    /// The descriptor's bytes. They tell their own length, so they can be followed by anything.
    ///
    /// Raises InvalidDescriptorError for what must not be written.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.descriptor.encode().or_raise()?))
    }

    /// How many bytes `encode` gives.
    #[getter]
    fn encoded_len(&self) -> PyResult<usize> {
        self.descriptor.encoded_len().or_raise()
    }

    /// The format version, (major, minor).
    #[getter]
    fn version(&self) -> (u8, u8) {
        (self.descriptor.version.major, self.descriptor.version.minor)
    }

    /// The type of the stored elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<Dtype>> {
        dtype(py, self.descriptor.element_type)
    }

    /// The dimensions in elements, None for one that is not known.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shape::tuple(py, &self.descriptor.shape)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.descriptor.shape.len()
    }

    /// The number of elements; None while a dimension is not known, or past 64 bits.
    #[getter]
    fn size(&self) -> Option<u64> {
        element_count(&self.descriptor.shape)
    }

    /// Bytes from the start of buffer 0 to element [0, ..., 0].
    #[getter]
    fn byte_offset(&self) -> u64 {
        self.descriptor.byte_offset
    }

    /// How the elements lie in the buffers.
    #[getter]
    fn layout(&self, py: Python<'_>) -> PyResult<Py<Layout>> {
        layout::object(py, &self.descriptor.layout)
    }

    /// How many buffers the descriptor declares; a composite head has none.
    #[getter]
    fn buffer_count(&self) -> usize {
        self.descriptor.buffers.len()
    }

    /// One handle per buffer, in order.
    #[getter]
    fn buffer_handles<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let first = self.device_of_buffer_0(py)?;
        let handles = self
            .descriptor
            .buffers
            .iter()
            .map(|row| {
                let device = match device::of_row(row) {
                    own if own == first.get().0 => first.clone_ref(py),
                    other => device::object(py, other)?,
                };
                Ok(BufferHandle::new(*row, device))
            })
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, handles)
    }

    /// The device of buffer 0, `cpu` for a composite head. A descriptor does not say which device
    /// of its kind, so its number is 0.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<Device>> {
        Ok(self.device_of_buffer_0(py)?.clone_ref(py))
    }

    /// How codes stand for values, or None.
    ///
    /// Raises InvalidDescriptorError for a scheme that cannot be read; `encode` repeats its bytes
    /// all the same.
    #[getter]
    fn quantization(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.descriptor
            .quantization
            .as_ref()
            .map(|section| quantization::section_object(py, section))
            .transpose()
    }

    /// Which part of a parent the tensor is, or None.
    #[getter]
    fn shard(&self) -> Option<Shard> {
        self.descriptor.shard.clone().map(Shard)
    }

    /// Hints about the values, or None.
    #[getter]
    fn statistics(&self) -> Option<Statistics> {
        self.descriptor.statistics.map(Statistics)
    }

    /// What a private dtype is made of, or None.
    #[getter]
    fn extension_type(&self) -> Option<ExtensionType> {
        self.descriptor.extension_type.map(ExtensionType)
    }

    /// "base" or "correction" for a member of an overlay, otherwise None.
    #[getter]
    fn member_role<'py>(&self, py: Python<'py>) -> Option<&'py Bound<'py, PyString>> {
        self.descriptor.member.map(|role| match role {
            MemberRole::Base => intern!(py, "base"),
            MemberRole::Correction => intern!(py, "correction"),
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "hurray.Descriptor(dtype={}, shape={}, layout='{}', buffers={})",
            self.descriptor.element_type,
            self.shape(py)?,
            self.descriptor.layout.name(),
            self.buffer_count()
        ))
    }
}

/// Puts `Descriptor` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Descriptor>()
}
