//! The five quantization classes and `hurray.decode_quantization`.

use std::hash::{Hash, Hasher};

use hurray_core::{
    BlockAffine, ChannelAffine, ElementType, Mxfp, Nf4, QuantizationScheme, QuantizationSection,
    ScaleType, TensorAffine,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::element_type::{Dtype, dtype};
use crate::errors::{InvalidDescriptorError, OrRaise};

fn section(py: Python<'_>, scheme: QuantizationScheme) -> Bound<'_, PyBytes> {
    PyBytes::new(py, scheme.encode().as_bytes())
}

/// One scale and zero point for the whole tensor: value = scale * (code - zero_point).
///
/// `scale` is rounded to float32; `zero_point` is an int32 inside the range of the storage type.
/// Both are in the descriptor, so the scheme needs no buffer of its own. Raises
/// InvalidDescriptorError for a scale that is zero, infinite or NaN.
#[pyclass(frozen, eq, hash, module = "hurray")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct PerTensorAffine(TensorAffine);

// A scale is neither NaN nor zero, so equal scales have equal bits.
impl Hash for PerTensorAffine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.scale.to_bits(), self.0.zero_point).hash(state);
    }
}

#[pymethods]
impl PerTensorAffine {
    #[new]
    #[pyo3(signature = (scale, zero_point))]
    fn new(scale: f32, zero_point: i32) -> PyResult<Self> {
        let scheme = TensorAffine { scale, zero_point };
        QuantizationScheme::TensorAffine(scheme)
            .validate_parameters()
            .or_raise()?;
        Ok(Self(scheme))
    }

    /// The scale, a float32.
    #[getter]
    fn scale(&self) -> f32 {
        self.0.scale
    }

    /// The code that stands for zero.
    #[getter]
    fn zero_point(&self) -> i32 {
        self.0.zero_point
    }

    /// The scheme as a descriptor's quantization section: 16 bytes.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        section(py, QuantizationScheme::TensorAffine(self.0))
    }

    fn __repr__(&self) -> String {
        QuantizationScheme::TensorAffine(self.0).to_string()
    }
}

/// A scale, and maybe a zero point, per index of an axis: value = scale * (code - zero_point).
///
/// Scales are float32 and zero points int32, `shape[axis]` of each, in buffers of their own that
/// the buffer indices name. `symmetric` and `asymmetric` construct it.
#[pyclass(frozen, eq, hash, module = "hurray")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PerChannelAffine(ChannelAffine);

impl PerChannelAffine {
    fn checked(scheme: ChannelAffine) -> PyResult<Self> {
        QuantizationScheme::ChannelAffine(scheme)
            .validate_parameters()
            .or_raise()?;
        Ok(Self(scheme))
    }
}

#[pymethods]
impl PerChannelAffine {
    /// Scales only: a code of zero stands for zero.
    ///
    /// Raises InvalidDescriptorError for the index 0xFFFFFFFF, which means no buffer.
    #[staticmethod]
    #[pyo3(signature = (axis, scale_buffer_index))]
    fn symmetric(axis: u32, scale_buffer_index: u32) -> PyResult<Self> {
        Self::checked(ChannelAffine {
            axis,
            scale_buffer: scale_buffer_index,
            zero_point_buffer: None,
        })
    }

    /// Scales and zero points. Equal indices mean one buffer that holds all scales, then all zero
    /// points.
    ///
    /// Raises InvalidDescriptorError for the index 0xFFFFFFFF, which means no buffer.
    #[staticmethod]
    #[pyo3(signature = (axis, scale_buffer_index, zero_point_buffer_index))]
    fn asymmetric(
        axis: u32,
        scale_buffer_index: u32,
        zero_point_buffer_index: u32,
    ) -> PyResult<Self> {
        Self::checked(ChannelAffine {
            axis,
            scale_buffer: scale_buffer_index,
            zero_point_buffer: Some(zero_point_buffer_index),
        })
    }

    /// The dimension whose indices each have a scale.
    #[getter]
    fn axis(&self) -> u32 {
        self.0.axis
    }

    /// The index of the buffer that holds the scales.
    #[getter]
    fn scale_buffer_index(&self) -> u32 {
        self.0.scale_buffer
    }

    /// The index of the buffer that holds the zero points; None when symmetric.
    #[getter]
    fn zero_point_buffer_index(&self) -> Option<u32> {
        self.0.zero_point_buffer
    }

    /// The scheme as a descriptor's quantization section: 20 bytes.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        section(py, QuantizationScheme::ChannelAffine(self.0))
    }

    fn __repr__(&self) -> String {
        QuantizationScheme::ChannelAffine(self.0).to_string()
    }
}

/// A scale, and maybe a zero point, per block along an axis: value = scale * (code - zero_point).
///
/// A block is `block_size` elements, a power of two from 2 to 2**31. There are
/// `ceil(shape[axis] / block_size)` scales, of type float16, bfloat16 or float32, per index of the
/// other dimensions, and as many int32 zero points. `symmetric` and `asymmetric` construct it.
#[pyclass(frozen, eq, hash, module = "hurray")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PerBlockAffine(BlockAffine);

impl PerBlockAffine {
    fn checked(scheme: BlockAffine) -> PyResult<Self> {
        QuantizationScheme::BlockAffine(scheme)
            .validate_parameters()
            .or_raise()?;
        Ok(Self(scheme))
    }
}

fn scale_type_argument(scale_type: &Bound<'_, Dtype>) -> PyResult<ScaleType> {
    match scale_type.get().element_type() {
        ElementType::Float16 => Ok(ScaleType::Float16),
        ElementType::Bfloat16 => Ok(ScaleType::Bfloat16),
        ElementType::Float32 => Ok(ScaleType::Float32),
        other => Err(InvalidDescriptorError::new_err(format!(
            "scale_type is float16, bfloat16 or float32, got {other}"
        ))),
    }
}

#[pymethods]
impl PerBlockAffine {
    /// Scales only: a code of zero stands for zero.
    ///
    /// Raises InvalidDescriptorError for a block_size that is no power of two from 2 to 2**31, or
    /// for another scale_type than hurray.float16, bfloat16 or float32.
    #[staticmethod]
    #[pyo3(signature = (axis, block_size, scale_buffer_index, scale_type))]
    fn symmetric(
        axis: u32,
        block_size: u32,
        scale_buffer_index: u32,
        scale_type: &Bound<'_, Dtype>,
    ) -> PyResult<Self> {
        Self::checked(BlockAffine {
            axis,
            block_size,
            scale_buffer: scale_buffer_index,
            zero_point_buffer: None,
            scale_type: scale_type_argument(scale_type)?,
        })
    }

    /// Scales and zero points. Equal indices mean one buffer that holds all scales, then all zero
    /// points.
    ///
    /// Raises InvalidDescriptorError for a block_size that is no power of two from 2 to 2**31, for
    /// another scale_type than hurray.float16, bfloat16 or float32, or for the index 0xFFFFFFFF.
    #[staticmethod]
    #[pyo3(signature = (axis, block_size, scale_buffer_index, zero_point_buffer_index, scale_type))]
    fn asymmetric(
        axis: u32,
        block_size: u32,
        scale_buffer_index: u32,
        zero_point_buffer_index: u32,
        scale_type: &Bound<'_, Dtype>,
    ) -> PyResult<Self> {
        Self::checked(BlockAffine {
            axis,
            block_size,
            scale_buffer: scale_buffer_index,
            zero_point_buffer: Some(zero_point_buffer_index),
            scale_type: scale_type_argument(scale_type)?,
        })
    }

    /// The dimension that is cut into blocks.
    #[getter]
    fn axis(&self) -> u32 {
        self.0.axis
    }

    /// Elements of a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.0.block_size
    }

    /// The index of the buffer that holds the scales.
    #[getter]
    fn scale_buffer_index(&self) -> u32 {
        self.0.scale_buffer
    }

    /// The index of the buffer that holds the zero points; None when symmetric.
    #[getter]
    fn zero_point_buffer_index(&self) -> Option<u32> {
        self.0.zero_point_buffer
    }

    /// The type of the scales.
    #[getter]
    fn scale_type(&self, py: Python<'_>) -> PyResult<Py<Dtype>> {
        dtype(py, QuantizationScheme::BlockAffine(self.0).scale_type())
    }

    /// The scheme as a descriptor's quantization section: 24 bytes.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        section(py, QuantizationScheme::BlockAffine(self.0))
    }

    fn __repr__(&self) -> String {
        QuantizationScheme::BlockAffine(self.0).to_string()
    }
}

/// NormalFloat4: uint4 codes name 16 fixed levels, times a float32 scale per block along an axis.
///
/// `block_size` is a power of two from 8 to 2**31, in elements. Raises InvalidDescriptorError for
/// another one, or for the buffer index 0xFFFFFFFF.
#[pyclass(frozen, eq, hash, module = "hurray", name = "NF4")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyNf4(Nf4);

#[pymethods]
impl PyNf4 {
    #[new]
    #[pyo3(signature = (axis, block_size, scale_buffer_index))]
    fn new(axis: u32, block_size: u32, scale_buffer_index: u32) -> PyResult<Self> {
        let scheme = Nf4 {
            axis,
            block_size,
            scale_buffer: scale_buffer_index,
        };
        QuantizationScheme::Nf4(scheme)
            .validate_parameters()
            .or_raise()?;
        Ok(Self(scheme))
    }

    /// The dimension that is cut into blocks.
    #[getter]
    fn axis(&self) -> u32 {
        self.0.axis
    }

    /// Elements of a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.0.block_size
    }

    /// The index of the buffer that holds the scales.
    #[getter]
    fn scale_buffer_index(&self) -> u32 {
        self.0.scale_buffer
    }

    /// The scheme as a descriptor's quantization section: 16 bytes.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        section(py, QuantizationScheme::Nf4(self.0))
    }

    fn __repr__(&self) -> String {
        QuantizationScheme::Nf4(self.0).to_string()
    }
}

/// OCP microscaling: small floats or ints, times a power of two per block along an axis, one byte
/// per scale.
///
/// `block_size` is a power of two from 16 to 2048, in elements, and divides `shape[axis]`. Raises
/// InvalidDescriptorError for another one, or for the buffer index 0xFFFFFFFF.
#[pyclass(frozen, eq, hash, module = "hurray", name = "MXFP")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyMxfp(Mxfp);

#[pymethods]
impl PyMxfp {
    #[new]
    #[pyo3(signature = (axis, block_size, scale_buffer_index))]
    fn new(axis: u32, block_size: u32, scale_buffer_index: u32) -> PyResult<Self> {
        let scheme = Mxfp {
            axis,
            block_size,
            scale_buffer: scale_buffer_index,
        };
        QuantizationScheme::Mxfp(scheme)
            .validate_parameters()
            .or_raise()?;
        Ok(Self(scheme))
    }

    /// The dimension that is cut into blocks.
    #[getter]
    fn axis(&self) -> u32 {
        self.0.axis
    }

    /// Elements of a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.0.block_size
    }

    /// The index of the buffer that holds the scale bytes.
    #[getter]
    fn scale_buffer_index(&self) -> u32 {
        self.0.scale_buffer
    }

    /// The scheme as a descriptor's quantization section: 16 bytes.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        section(py, QuantizationScheme::Mxfp(self.0))
    }

    fn __repr__(&self) -> String {
        QuantizationScheme::Mxfp(self.0).to_string()
    }
}

/// Reads a quantization section.
///
/// `data` is bytes-like; bytes past the scheme's own are ignored. Gives PerTensorAffine,
/// PerChannelAffine, PerBlockAffine, NF4 or MXFP, as the section's tag says. Raises
/// InvalidDescriptorError if the section is too short, of another scheme or malformed.
#[pyfunction]
#[pyo3(signature = (data))]
fn decode_quantization(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    // No scheme's own section is longer.
    let data = crate::bytes_like::prefix(data, 24)?;
    object(py, QuantizationScheme::decode(&data).or_raise()?)
}

/// The object for `scheme`.
pub(crate) fn object(py: Python<'_>, scheme: QuantizationScheme) -> PyResult<Py<PyAny>> {
    Ok(match scheme {
        QuantizationScheme::TensorAffine(s) => Py::new(py, PerTensorAffine(s))?.into_any(),
        QuantizationScheme::ChannelAffine(s) => Py::new(py, PerChannelAffine(s))?.into_any(),
        QuantizationScheme::BlockAffine(s) => Py::new(py, PerBlockAffine(s))?.into_any(),
        QuantizationScheme::Nf4(s) => Py::new(py, PyNf4(s))?.into_any(),
        QuantizationScheme::Mxfp(s) => Py::new(py, PyMxfp(s))?.into_any(),
    })
}

/// The object for a descriptor's section.
///
/// # Errors
/// `InvalidDescriptorError` for a section that cannot be read; it is relayed all the same (S18).
pub(crate) fn section_object(py: Python<'_>, section: &QuantizationSection) -> PyResult<Py<PyAny>> {
    object(py, section.scheme().or_raise()?)
}

/// A `quantization=` argument: an object of one of the five classes.
///
/// # Errors
/// `TypeError` for anything else.
pub(crate) fn argument(object: &Bound<'_, PyAny>) -> PyResult<QuantizationScheme> {
    if let Ok(scheme) = object.cast::<PerTensorAffine>() {
        Ok(QuantizationScheme::TensorAffine(scheme.get().0))
    } else if let Ok(scheme) = object.cast::<PerChannelAffine>() {
        Ok(QuantizationScheme::ChannelAffine(scheme.get().0))
    } else if let Ok(scheme) = object.cast::<PerBlockAffine>() {
        Ok(QuantizationScheme::BlockAffine(scheme.get().0))
    } else if let Ok(scheme) = object.cast::<PyNf4>() {
        Ok(QuantizationScheme::Nf4(scheme.get().0))
    } else if let Ok(scheme) = object.cast::<PyMxfp>() {
        Ok(QuantizationScheme::Mxfp(scheme.get().0))
    } else {
        Err(PyTypeError::new_err(format!(
            "quantization is a PerTensorAffine, PerChannelAffine, PerBlockAffine, NF4 or MXFP, got {}",
            object.get_type().name()?
        )))
    }
}

/// Puts the classes and `decode_quantization` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PerTensorAffine>()?;
    module.add_class::<PerChannelAffine>()?;
    module.add_class::<PerBlockAffine>()?;
    module.add_class::<PyNf4>()?;
    module.add_class::<PyMxfp>()?;
    module.add_function(wrap_pyfunction!(decode_quantization, module)?)
}
