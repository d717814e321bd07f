//! `hurray.Shard`.

use hurray_core::{DYNAMIC, Shape, Shard as Section};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::InvalidDescriptorError;
use crate::shape::{self, ShapeArgument};

/// A tensor's place in a larger one: it starts at `shard_offset` in a parent of `parent_shape`.
///
/// Both are sequences of ints, in elements, one per dimension of the tensor. Raises
/// InvalidDescriptorError if they differ in length or a dimension is not known. That the tensor
/// lies inside its parent is checked when the tensor is made.
///
/// >>> hurray.Shard([1024, 512], [512, 0]).shard_offset
/// (512, 0)
#[pyclass(frozen, eq, hash, module = "hurray")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shard(pub(crate) Section);

#[pymethods]
impl Shard {
    #[new]
    #[pyo3(signature = (parent_shape, shard_offset))]
    fn new(parent_shape: ShapeArgument, shard_offset: ShapeArgument) -> PyResult<Self> {
        let (parent_shape, offset) = (parent_shape.0, shard_offset.0);
        if parent_shape.len() != offset.len() {
            return Err(InvalidDescriptorError::new_err(format!(
                "parent_shape has {} dimensions, shard_offset has {}",
                parent_shape.len(),
                offset.len()
            )));
        }
        let is_dynamic = |shape: &Shape| shape.contains(&DYNAMIC);
        if is_dynamic(&parent_shape) || is_dynamic(&offset) {
            return Err(InvalidDescriptorError::new_err(
                "every dimension of a shard's parent_shape and shard_offset is known (rule S12), got None",
            ));
        }
        Ok(Self(Section {
            parent_shape,
            offset,
        }))
    }

    /// The parent's dimensions, in elements.
    #[getter]
    fn parent_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shape::tuple(py, &self.0.parent_shape)
    }

    /// Where the tensor's first element is in the parent, per dimension.
    #[getter]
    fn shard_offset<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shape::tuple(py, &self.0.offset)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "Shard(parent_shape={}, shard_offset={})",
            self.parent_shape(py)?,
            self.shard_offset(py)?
        ))
    }
}

/// Puts `Shard` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Shard>()
}
