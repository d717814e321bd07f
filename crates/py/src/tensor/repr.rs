//! How a tensor shows itself: values of small host tensors, what it declares of all others. No byte is read that may not be.

use std::fmt::Write;

use hurray_core::{Layout, element_count};
use hurray_ffi::access::Reach;
use pyo3::prelude::*;

use super::array::{self, Plain};
use crate::owner::calling;
use crate::{quantization, shape};

/// Elements up to which values are shown, as NumPy's own limit is.
const SHOWN: u64 = 1000;

pub(super) fn repr(this: &Bound<'_, super::Tensor>) -> PyResult<String> {
    match values(this)? {
        Some(text) => Ok(text),
        None => declared(this),
    }
}

fn values(this: &Bound<'_, super::Tensor>) -> PyResult<Option<String>> {
    let (py, tensor) = (this.py(), this.get().inner());
    let descriptor = tensor.descriptor();
    let is_small = element_count(&descriptor.shape).is_some_and(|count| count <= SHOWN);
    if !is_small || Plain::of(tensor).is_err() || tensor.check_access(Reach::Host).is_err() {
        return Ok(None);
    }
    // Fails for a type that no NumPy array holds, or that an installation lacks.
    let Ok(array) = array::array(this, None, None, "__repr__") else {
        return Ok(None);
    };
    let numpy = py.import("numpy")?;
    let text = calling(py, || numpy.call_method1("array2string", (array,)))?;
    Ok(Some(format!(
        "hurray.Tensor({text}, dtype={})",
        descriptor.element_type
    )))
}

fn declared(this: &Bound<'_, super::Tensor>) -> PyResult<String> {
    let (py, face) = (this.py(), this.get());
    let descriptor = face.inner().descriptor();
    let mut text = String::from("hurray.Tensor(");
    // A `String` takes everything.
    if descriptor.layout != Layout::RowMajor {
        let _ = write!(text, "layout='{}', ", descriptor.layout.name());
    }
    let _ = write!(text, "shape={}", shape::tuple(py, &descriptor.shape)?);
    if let Ok(nnz) = super::view::nnz(descriptor, "nnz") {
        let _ = write!(text, ", nnz={nnz}");
    }
    let _ = write!(text, ", dtype={}", descriptor.element_type);
    if let Some(section) = &descriptor.quantization {
        match quantization::section_object(py, section) {
            Ok(scheme) => {
                let _ = write!(text, ", quantization={}", scheme.bind(py).repr()?);
            }
            Err(_) => text.push_str(", quantization=unreadable"),
        }
    }
    if !face
        .inner()
        .buffers()
        .iter()
        .all(|buffer| buffer.place() == hurray_ffi::Place::HOST)
    {
        let _ = write!(text, ", device={}", face.device.get());
    }
    let modes = descriptor.buffers.iter().map(|row| row.sync_mode);
    if let Some(mode) = modes
        .max_by_key(|mode| mode.to_byte())
        .filter(|mode| mode.to_byte() != 0)
    {
        let _ = write!(text, ", sync_mode='{mode}'");
    }
    text.push(')');
    Ok(text)
}
