//! Layouts that nobody here can read: private ones and unknown ones.

use hurray_core::{Layout as Core, PrivateLayout, PrivateTag};
use pyo3::PyClassInitializer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Form, Layout, initializer, layout_tag_kind};
use crate::errors::InvalidDescriptorError;

/// A layout that producer and consumer agreed on. Tags 0xF0 to 0xFE.
///
/// Nothing says how many buffers it has or how large they are, so neither is checked.
/// `extension_layout_id` is the agreed identity, 64 bits; `extension_data` opaque bytes. Raises
/// InvalidDescriptorError for another tag.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct PrivateExtensionLayout(pub(super) PrivateLayout);

#[pymethods]
impl PrivateExtensionLayout {
    #[new]
    #[pyo3(signature = (tag, extension_layout_id, extension_data=None))]
    fn new(
        tag: u8,
        extension_layout_id: u64,
        extension_data: Option<Vec<u8>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let Some(tag) = PrivateTag::new(tag) else {
            return Err(InvalidDescriptorError::new_err(format!(
                "the tag of a private layout is from 0xf0 to 0xfe, got {tag:#04x}"
            )));
        };
        let layout = PrivateLayout {
            tag,
            id: extension_layout_id,
            data: extension_data.unwrap_or_default(),
        };
        Ok(initializer(Core::Private(layout.clone()), Self(layout)))
    }

    /// The agreed identity.
    #[getter]
    fn extension_layout_id(&self) -> u64 {
        self.0.id
    }

    /// The opaque bytes.
    #[getter]
    fn extension_data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.data)
    }

    fn __repr__(&self) -> String {
        format!(
            "PrivateExtensionLayout(tag={:#04X}, extension_layout_id={}, extension_data={} bytes)",
            self.0.tag.get(),
            self.0.id,
            self.0.data.len()
        )
    }
}

/// A layout tag that this version of the format does not define, with its bytes.
///
/// No tensor can have it: nothing says how large its buffers are. Raises ValueError for a tag that
/// another class stands for, InvalidDescriptorError for 0x00 and 0xFF.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct UnknownLayout {
    tag: u8,
    bytes: Vec<u8>,
}

#[pymethods]
impl UnknownLayout {
    #[new]
    #[pyo3(signature = (tag, raw_bytes=None))]
    fn new(tag: u8, raw_bytes: Option<Vec<u8>>) -> PyResult<PyClassInitializer<Self>> {
        match layout_tag_kind(tag) {
            "reserved" => {}
            "invalid" => {
                return Err(InvalidDescriptorError::new_err(format!(
                    "layout tag {tag:#04x} is never valid"
                )));
            }
            kind => {
                return Err(PyValueError::new_err(format!(
                    "layout tag {tag:#04x} is a {kind} one, which another class stands for"
                )));
            }
        }
        let bytes = raw_bytes.unwrap_or_default();
        let base = Layout(Form::Unknown {
            tag,
            bytes: bytes.clone(),
        });
        Ok(PyClassInitializer::from(base).add_subclass(Self { tag, bytes }))
    }

    /// The bytes that came with the tag.
    #[getter]
    fn raw_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    fn __repr__(&self) -> String {
        format!(
            "UnknownLayout(tag={:#04X}, raw_bytes={} bytes)",
            self.tag,
            self.bytes.len()
        )
    }
}
