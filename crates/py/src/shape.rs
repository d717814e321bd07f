//! Shapes at the boundary: a sequence of ints in, a tuple out, `None` for a dimension that is not known yet.

use hurray_core::{DYNAMIC, MAX_RANK, Shape};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::InvalidDescriptorError;

/// A shape argument: an iterable of ints, in which `None` is a dynamic dimension.
pub(crate) struct ShapeArgument(pub(crate) Shape);

impl<'py> FromPyObject<'_, 'py> for ShapeArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut shape = Shape::new();
        let Ok(dimensions) = object.try_iter() else {
            return Err(PyTypeError::new_err(format!(
                "a shape is an iterable of ints, such as (2, 3), not {}",
                object.repr()?
            )));
        };
        for dimension in dimensions {
            if shape.len() == MAX_RANK {
                return Err(InvalidDescriptorError::new_err(format!(
                    "a shape has at most {MAX_RANK} dimensions"
                )));
            }
            shape.push(dimension_of(&dimension?)?);
        }
        Ok(Self(shape))
    }
}

fn dimension_of(dimension: &Bound<'_, PyAny>) -> PyResult<u64> {
    if dimension.is_none() {
        return Ok(DYNAMIC);
    }
    match dimension.extract::<u64>() {
        Ok(dimension) if dimension != DYNAMIC => Ok(dimension),
        // A negative number or one past 64 bits is a bad shape; anything else is a bad argument.
        Err(error)
            if !error.is_instance_of::<pyo3::exceptions::PyOverflowError>(dimension.py()) =>
        {
            Err(error)
        }
        _ => Err(InvalidDescriptorError::new_err(format!(
            "a dimension is an int from 0 to 2**64 - 2, or None while it is not known; got {dimension}"
        ))),
    }
}

/// The tuple that stands for `shape`.
pub(crate) fn tuple<'py>(py: Python<'py>, shape: &[u64]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(
        py,
        shape
            .iter()
            .map(|&dimension| (dimension != DYNAMIC).then_some(dimension)),
    )
}
