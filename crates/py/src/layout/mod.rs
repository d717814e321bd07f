//! `hurray.Layout`, the classes under it, and `hurray.layout_tag_kind`.
//!
//! The base class holds the layout as core has it, which is what tensors and comparisons use; a class under it holds its own parameters once
//! more, for its properties.

mod block_paged;
pub(crate) mod composite;
mod dense;
mod opaque;
mod sparse;

use hurray_core::{Layout as Core, PrivateTag};
use pyo3::prelude::*;
use pyo3::{PyClass, PyClassInitializer};

use crate::errors::{OrRaise, UnsupportedError};
use crate::shape::ShapeArgument;

use block_paged::BlockPagedLayout;
use composite::CompositeLayout;
use dense::{
    ColMajorLayout, HilbertLayout, MortonLayout, RowMajorLayout, StridedLayout, TiledLayout,
};
use opaque::{PrivateExtensionLayout, UnknownLayout};
use sparse::{CooLayout, CscLayout, CsfLayout, CsrLayout};

/// How a tensor's elements lie in its buffers. The base of all layout classes; it cannot be
/// constructed.
#[pyclass(subclass, frozen, eq, hash, module = "hurray")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Layout(Form);

#[derive(PartialEq, Eq, Hash)]
enum Form {
    Known(Core),
    /// A tag that this version of the format does not define, with its bytes.
    Unknown {
        tag: u8,
        bytes: Vec<u8>,
    },
}

/// What an unknown layout is called, as a private one is; class and tag tell them apart.
const UNKNOWN_NAME: &str = "extension";

#[pymethods]
impl Layout {
    /// The byte that stands for the layout in a descriptor.
    #[getter]
    fn tag(&self) -> u8 {
        match &self.0 {
            Form::Known(layout) => layout.tag(),
            Form::Unknown { tag, .. } => *tag,
        }
    }

    /// The name, such as "row_major"; "extension" for private and unknown layouts.
    #[getter]
    fn name(&self) -> &'static str {
        match &self.0 {
            Form::Known(layout) => layout.name(),
            Form::Unknown { .. } => UNKNOWN_NAME,
        }
    }

    /// How many buffers the layout has, those of a quantization not counted: 0 for a composite
    /// head, None where only the layout's authors know.
    #[getter]
    fn buffer_count(&self) -> Option<usize> {
        match &self.0 {
            Form::Known(layout) => {
                // Only the buffers of a CSF layout depend on the rank, and its parameters have one.
                let rank = match layout {
                    Core::Csf(csf) => csf.mode_order.len(),
                    _ => 0,
                };
                layout.buffer_count(rank)
            }
            Form::Unknown { .. } => None,
        }
    }

    /// Whether every element has an address that follows from its index: row- and column-major,
    /// strided, tiled, Morton and Hilbert.
    #[getter]
    fn is_dense(&self) -> bool {
        matches!(&self.0, Form::Known(layout) if layout.is_dense())
    }

    /// Whether the layout has no buffers of its own: a composite head's.
    #[getter]
    fn is_virtual(&self) -> bool {
        matches!(&self.0, Form::Known(layout) if layout.is_virtual())
    }

    /// Checks that a tensor of this shape can have this layout. A dimension may be None.
    ///
    /// Raises InvalidDescriptorError, with the numbers, if not. Layouts that nobody here can read
    /// accept every shape.
    #[pyo3(signature = (shape))]
    fn validate_against_shape(&self, shape: ShapeArgument) -> PyResult<()> {
        match &self.0 {
            Form::Known(layout) => layout.validate(&shape.0).or_raise(),
            Form::Unknown { .. } => Ok(()),
        }
    }
}

impl Layout {
    /// The layout of a tensor.
    ///
    /// # Errors
    /// `UnsupportedError` for a tag that this version of the format does not define: nothing would say how large its buffers are.
    pub(crate) fn known(&self) -> PyResult<&Core> {
        match &self.0 {
            Form::Known(layout) => Ok(layout),
            Form::Unknown { tag, .. } => Err(UnsupportedError::new_err(format!(
                "no tensor can have the unknown layout {tag:#04x}; relay the descriptor's bytes instead"
            ))),
        }
    }
}

/// A class under [`Layout`] with its parameters, once for the base and once for itself.
fn initializer<T: PyClass<BaseType = Layout>>(layout: Core, class: T) -> PyClassInitializer<T> {
    PyClassInitializer::from(Layout(Form::Known(layout))).add_subclass(class)
}

/// As [`initializer`], for parameters that a descriptor may hold at `rank` (R14–R30).
fn checked<T: PyClass<BaseType = Layout>>(
    layout: Core,
    rank: usize,
    class: T,
) -> PyResult<PyClassInitializer<T>> {
    layout.check_parameters(rank).or_raise()?;
    Ok(initializer(layout, class))
}

/// The object for `layout`.
pub(crate) fn object(py: Python<'_>, layout: &Core) -> PyResult<Py<Layout>> {
    fn make<T: PyClass<BaseType = Layout>>(
        py: Python<'_>,
        layout: &Core,
        class: T,
    ) -> PyResult<Py<Layout>> {
        let object = Bound::new(py, initializer(layout.clone(), class))?;
        Ok(object.into_super().unbind())
    }
    match layout {
        Core::RowMajor => make(py, layout, RowMajorLayout),
        Core::ColumnMajor => make(py, layout, ColMajorLayout),
        Core::Strided(strides) => make(py, layout, StridedLayout(strides.clone())),
        Core::Tiled(level) => make(py, layout, TiledLayout(level.clone())),
        Core::Morton(morton) => make(py, layout, MortonLayout(morton.clone())),
        Core::Coo(coo) => make(py, layout, CooLayout(*coo)),
        Core::Csr { nnz } => make(py, layout, CsrLayout { nnz: *nnz }),
        Core::Csc { nnz } => make(py, layout, CscLayout { nnz: *nnz }),
        Core::Csf(csf) => make(py, layout, CsfLayout(csf.clone())),
        Core::BlockPaged(paged) => make(py, layout, BlockPagedLayout(*paged)),
        Core::Composite(head) => make(py, layout, CompositeLayout(*head)),
        Core::Hilbert(hilbert) => make(py, layout, HilbertLayout(*hilbert)),
        Core::Private(private) => make(py, layout, PrivateExtensionLayout(private.clone())),
    }
}

/// What kind of layout tag `tag` is: "named" for one that this version of the format defines,
/// "reserved" for one that a later version may, "private" for 0xF0 to 0xFE, "invalid" for 0x00
/// and 0xFF.
///
/// >>> hurray.layout_tag_kind(0x07)
/// 'named'
#[pyfunction]
#[pyo3(signature = (tag))]
fn layout_tag_kind(tag: u8) -> &'static str {
    match tag {
        0x01..=0x0B | 0x40 => "named",
        0x00 | 0xFF => "invalid",
        _ if PrivateTag::new(tag).is_some() => "private",
        _ => "reserved",
    }
}

/// Puts the classes and `layout_tag_kind` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Layout>()?;
    module.add_class::<RowMajorLayout>()?;
    module.add_class::<ColMajorLayout>()?;
    module.add_class::<StridedLayout>()?;
    module.add_class::<TiledLayout>()?;
    module.add_class::<MortonLayout>()?;
    module.add_class::<HilbertLayout>()?;
    module.add_class::<CooLayout>()?;
    module.add_class::<CsrLayout>()?;
    module.add_class::<CscLayout>()?;
    module.add_class::<CsfLayout>()?;
    module.add_class::<BlockPagedLayout>()?;
    module.add_class::<CompositeLayout>()?;
    module.add_class::<PrivateExtensionLayout>()?;
    module.add_class::<UnknownLayout>()?;
    module.add_function(wrap_pyfunction!(layout_tag_kind, module)?)
}
