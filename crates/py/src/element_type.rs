//! `hurray.Dtype` and the module `hurray.dtype`.

use hurray_core::ElementType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::errors::InvalidDescriptorError;

/// An element type: how one element of a tensor is stored.
///
/// There is one object per type, so `hurray.float32 is hurray.dtype.float32` and `is` compares.
/// The 13 types of tier 1 are names of `hurray` too, all 26 are names of `hurray.dtype`, and
/// `Dtype.from_tag` gives the private ones, which two parties agreed on and an `ExtensionType`
/// describes.
///
/// >>> hurray.float32.bit_width, hurray.dtype.int4.is_sub_byte
/// (32, True)
#[pyclass(frozen, module = "hurray")]
pub(crate) struct Dtype {
    element_type: ElementType,
    name: Py<PyString>,
}

/// What all private types are called; only their tags tell them apart.
const PRIVATE_NAME: &str = "extension";

#[pymethods]
impl Dtype {
    /// The name, such as "float32"; "extension" for a private type.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    /// The byte that stands for this type in a descriptor.
    #[getter]
    fn tag(&self) -> u8 {
        self.element_type.tag()
    }

    /// Bits of one element; 0 for a private type, whose width its ExtensionType states.
    #[getter]
    fn bit_width(&self) -> u32 {
        self.element_type
            .storage_width()
            .map_or(0, |width| width.bits())
    }

    /// The alignment in bytes that one element wants, as opposed to the 64 of a whole buffer.
    #[getter]
    fn element_alignment(&self) -> u32 {
        self.element_type.element_alignment()
    }

    /// 1 for the types that every reader must have, 2 for the others.
    #[getter]
    fn tier(&self) -> u8 {
        self.element_type.tier()
    }

    /// Whether this is a floating-point or complex type.
    #[getter]
    fn is_float(&self) -> bool {
        self.element_type.is_float()
    }

    /// Whether this is a signed or unsigned integer type; bool is none.
    #[getter]
    fn is_integer(&self) -> bool {
        self.element_type.integer_range().is_some()
    }

    /// Whether values below zero can be stored.
    #[getter]
    fn is_signed(&self) -> bool {
        match self.element_type.integer_range() {
            Some((lowest, _)) => lowest < 0,
            None => self.element_type.is_float() && self.element_type != ElementType::Float8E8m0,
        }
    }

    /// Whether several elements share a byte.
    #[getter]
    fn is_sub_byte(&self) -> bool {
        self.element_type
            .storage_width()
            .is_some_and(|width| width.is_packed())
    }

    /// Whether the type is of tier 1.
    #[getter]
    fn is_array_api(&self) -> bool {
        self.tier() == 1
    }

    /// The type with this name.
    ///
    /// Raises InvalidDescriptorError, with all names, if there is none.
    #[classmethod]
    #[pyo3(signature = (name))]
    fn from_name(cls: &Bound<'_, PyType>, name: &str) -> PyResult<Py<Self>> {
        match ElementType::from_name(name) {
            Some(element_type) => dtype(cls.py(), element_type),
            None => {
                let names: Vec<_> = ElementType::named().map(|t| t.to_string()).collect();
                Err(InvalidDescriptorError::new_err(format!(
                    "no element type is called '{name}'; there are {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// The type for a descriptor's tag byte; 0xF0 to 0xFE are private types.
    ///
    /// Raises InvalidDescriptorError for a tag that is invalid, reserved or not assigned.
    #[classmethod]
    #[pyo3(signature = (tag))]
    fn from_tag(cls: &Bound<'_, PyType>, tag: u8) -> PyResult<Py<Self>> {
        match ElementType::from_tag(tag) {
            Some(element_type) => dtype(cls.py(), element_type),
            None => Err(InvalidDescriptorError::new_err(format!(
                "no element type has tag {tag:#04x}; hurray.dtype lists the named ones, \
                 0xf0 to 0xfe are private"
            ))),
        }
    }

    // There is one object per type, so that identity is equality and only the hash is of its own: the same in every process.
    fn __hash__(&self) -> u8 {
        self.tag()
    }

    fn __str__(&self, py: Python<'_>) -> Py<PyString> {
        self.name(py)
    }

    fn __repr__(&self) -> String {
        match (self.element_type, self.tier()) {
            (ElementType::Private(tag), _) => format!("hurray.Dtype.from_tag({:#04X})", tag.get()),
            (named, 1) => format!("hurray.{named}"),
            (named, _) => format!("hurray.dtype.{named}"),
        }
    }
}

impl Dtype {
    /// The type that this object stands for.
    pub(crate) fn element_type(&self) -> ElementType {
        self.element_type
    }
}

/// The object for `element_type`.
pub(crate) fn dtype(py: Python<'_>, element_type: ElementType) -> PyResult<Py<Dtype>> {
    static OBJECTS: PyOnceLock<Vec<Option<Py<Dtype>>>> = PyOnceLock::new();
    let objects = OBJECTS.get_or_try_init(py, || {
        (0..=u8::MAX)
            .map(|tag| {
                ElementType::from_tag(tag)
                    .map(|t| object(py, t))
                    .transpose()
            })
            .collect::<PyResult<_>>()
    })?;
    match objects.get(usize::from(element_type.tag())) {
        Some(Some(object)) => Ok(object.clone_ref(py)),
        // Every type has a tag, and every tag of a type an object.
        _ => object(py, element_type),
    }
}

fn object(py: Python<'_>, element_type: ElementType) -> PyResult<Py<Dtype>> {
    let name = match element_type {
        ElementType::Private(_) => PyString::intern(py, PRIVATE_NAME),
        named => PyString::intern(py, &named.to_string()),
    };
    Py::new(
        py,
        Dtype {
            element_type,
            name: name.unbind(),
        },
    )
}

/// A dtype argument.
pub(crate) struct DtypeArgument(pub(crate) ElementType);

impl<'py> FromPyObject<'_, 'py> for DtypeArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<Dtype>() {
            Ok(dtype) => Ok(Self(dtype.get().element_type())),
            Err(_) => Err(PyTypeError::new_err(format!(
                "dtype is a hurray.Dtype, such as hurray.float32 or hurray.dtype.int4, not {}",
                object.repr()?
            ))),
        }
    }
}

/// Puts `Dtype`, the module `dtype` and the types of tier 1 on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Dtype>()?;
    let types = PyModule::new(py, "hurray.dtype")?;
    types.setattr("__doc__", "The 26 element types of the format.")?;
    for element_type in ElementType::named() {
        let name = element_type.to_string();
        let object = dtype(py, element_type)?;
        if element_type.tier() == 1 {
            module.add(name.as_str(), object.clone_ref(py))?;
        }
        types.add(name.as_str(), object)?;
    }
    crate::add_module(module, "dtype", &types)
}
