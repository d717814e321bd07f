//! `hurray.Composite`.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use hurray_core::{
    CompositeHead, CompositionRule, Layout as CoreLayout, MemberRole, Stream, TensorDescriptor,
};
use hurray_ffi::Item;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use smallvec::SmallVec;

use crate::capsule;
use crate::cuda::StreamArgument;
use crate::descriptor::Descriptor;
use crate::device;
use crate::element_type::{Dtype, DtypeArgument, dtype};
use crate::errors::OrRaise;
use crate::handoff;
use crate::ingest::CopyArgument;
use crate::layout::{self, Layout};
use crate::owner::{self, detached};
use crate::shape::{self, ShapeArgument};
use crate::tensor::{Tensor, transfer};

/// One logical tensor of several: a head that owns no buffers, and its members.
///
/// `composition_rule` is "partition" (disjoint boxes that cover the head), "overlay" (a base, then
/// corrections over it, which "replace" or "add" as `combine_op` says) or "group" (unrelated
/// tensors). Members are tensors or composites; those of a partition or overlay say with
/// `shard=` which box of the head they are.
///
/// Raises InvalidDescriptorError, with the numbers, for members that do not fit.
#[pyclass(frozen, weakref, module = "hurray")]
pub(crate) struct Composite(
    /// Dropped when the object is, and nowhere else.
    ManuallyDrop<hurray_ffi::Composite>,
);

impl Drop for Composite {
    fn drop(&mut self) {
        // SAFETY: nothing uses it after this.
        let composite = unsafe { ManuallyDrop::take(&mut self.0) };
        if calls_foreign_code(&composite) {
            owner::drop_detached(composite);
        }
    }
}

/// Whether letting go of a member calls another library's table.
fn calls_foreign_code(composite: &hurray_ffi::Composite) -> bool {
    composite.members().iter().any(|member| match member {
        Item::Tensor(tensor) => owner::calls_foreign_code(tensor),
        Item::Composite(composite) => calls_foreign_code(composite),
    })
}

impl Composite {
    /// Shows `composite`.
    pub(crate) fn new(composite: hurray_ffi::Composite) -> Self {
        Self(ManuallyDrop::new(composite))
    }

    /// The composite without its face.
    pub(crate) fn inner(&self) -> &hurray_ffi::Composite {
        &self.0
    }

    fn head(&self) -> &Arc<TensorDescriptor> {
        self.0.head()
    }

    /// The stream that an argument names, for work on the members' bytes.
    fn stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<Stream> {
        StreamArgument::new(stream)?.for_memory(stream.py(), handoff::place_of_composite(&self.0))
    }
}

/// The member that a Python object is, in the role that its place gives it.
fn member(object: &Bound<'_, PyAny>, position: usize, rule: CompositionRule) -> PyResult<Item> {
    if let Ok(composite) = object.cast::<Composite>() {
        return Ok(Item::Composite(composite.get().inner().clone()));
    }
    let Ok(tensor) = object.cast::<Tensor>() else {
        return Err(PyTypeError::new_err(format!(
            "members[{position}] is a hurray.Tensor or a hurray.Composite, not {}",
            object.get_type().name()?
        )));
    };
    let tensor = tensor.get().inner();
    let role = match (rule, position) {
        (CompositionRule::Overlay(_), 0) => Some(MemberRole::Base),
        (CompositionRule::Overlay(_), _) => Some(MemberRole::Correction),
        _ => None,
    };
    if tensor.descriptor().member == role {
        return Ok(Item::Tensor(tensor.clone()));
    }
    let descriptor = TensorDescriptor {
        member: role,
        ..TensorDescriptor::clone(tensor.descriptor())
    };
    Ok(Item::Tensor(
        hurray_ffi::Tensor::new(descriptor, SmallVec::from(tensor.buffers())).or_raise()?,
    ))
}

#[pymethods]
impl Composite {
    #[new]
    #[pyo3(signature = (composition_rule, *, shape, dtype, members, combine_op=None))]
    fn py_new(
        composition_rule: &str,
        shape: ShapeArgument,
        dtype: DtypeArgument,
        members: &Bound<'_, PyAny>,
        combine_op: Option<&str>,
    ) -> PyResult<Self> {
        let rule = layout::composite::rule(composition_rule, combine_op)?;
        let members = members
            .try_iter()?
            .enumerate()
            .map(|(position, object)| member(&object?, position, rule))
            .collect::<PyResult<Vec<_>>>()?;
        let layout = CoreLayout::Composite(CompositeHead {
            rule,
            // More members than a head can count have no memory to be in.
            member_count: u32::try_from(members.len()).unwrap_or(u32::MAX),
        });
        let head = TensorDescriptor::new(dtype.0, shape.0, layout, []);
        hurray_ffi::Composite::new(head, members)
            .or_raise()
            .map(Self::new)
    }

    /// The head's descriptor: shape, type and rule, no buffers.
    #[getter]
    fn descriptor(&self) -> Descriptor {
        Descriptor::new(self.head().clone())
    }

    /// The element type that the head presents.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<Dtype>> {
        dtype(py, self.head().element_type)
    }

    /// The head's layout, a `CompositeLayout`.
    #[getter]
    fn layout(&self, py: Python<'_>) -> PyResult<Py<Layout>> {
        layout::object(py, &self.head().layout)
    }

    /// How many members there are.
    #[getter]
    fn member_count(&self) -> usize {
        self.0.members().len()
    }

    /// "base" or "correction" for each member of an overlay, None for others.
    #[getter]
    fn member_roles<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let roles = self.0.members().iter().map(|member| match member {
            Item::Tensor(tensor) => tensor.descriptor().member,
            Item::Composite(_) => None,
        });
        let names = roles.map(|role| -> Option<Bound<'py, PyString>> {
            role.map(|role| {
                match role {
                    MemberRole::Base => intern!(py, "base"),
                    MemberRole::Correction => intern!(py, "correction"),
                }
                .clone()
            })
        });
        PyTuple::new(py, names.collect::<Vec<_>>())
    }

    /// The members in stream order.
    #[getter]
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let members = self
            .0
            .members()
            .iter()
            .map(|member| capsule::object(py, member.clone()))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, members)
    }

    /// The number of dimensions of the head.
    #[getter]
    fn ndim(&self) -> usize {
        self.head().shape.len()
    }

    /// The head's dimensions in elements, None for one that is not known.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shape::tuple(py, &self.head().shape)
    }

    /// A capsule that carries the head and all members with their buffers. No byte is copied.
    #[pyo3(name = "__hurray__", signature = (stream=None))]
    fn hurray<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let argument = stream.map(StreamArgument::or_none).transpose()?.flatten();
        let list = match argument {
            None => self.0.export(),
            Some(argument) => {
                let ordered = handoff::composite(py, &self.0, argument)?;
                detached(py, move || ordered.export())
            }
        };
        capsule::of_list(py, list.or_raise()?)
    }

    /// Makes later work on `stream` wait, on the device, for what each buffer of the members depends
    /// on, as `Tensor.order`.
    ///
    /// Raises as `Tensor.order`.
    #[pyo3(signature = (stream))]
    fn order<'py>(&self, py: Python<'py>, stream: &Bound<'py, PyAny>) -> PyResult<Self> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        detached(py, || inner.order(&stream))
            .or_raise()
            .map(Self::new)
    }

    /// The same composite with members in mode event, as `Tensor.record`: one event for all.
    ///
    /// Raises as `Tensor.record`.
    #[pyo3(signature = (stream))]
    fn record<'py>(&self, py: Python<'py>, stream: &Bound<'py, PyAny>) -> PyResult<Self> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        detached(py, || inner.record(&stream))
            .or_raise()
            .map(Self::new)
    }

    /// Makes `stream` wait for the work of everybody who has given bytes of the members back so far,
    /// as `Tensor.order_after_readers`.
    ///
    /// Raises as `Tensor.order_after_readers`.
    #[pyo3(signature = (stream))]
    fn order_after_readers<'py>(
        &self,
        py: Python<'py>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        detached(py, || inner.order_after_readers(&stream)).or_raise()
    }

    /// Keeps the members' memory, once everybody has let go of it, until work queued on `stream` by
    /// then is done, as `Tensor.record_stream`.
    ///
    /// Raises as `Tensor.record_stream`.
    #[pyo3(signature = (stream))]
    fn record_stream<'py>(&self, py: Python<'py>, stream: &Bound<'py, PyAny>) -> PyResult<()> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        detached(py, || inner.record_stream(&stream)).or_raise()
    }

    /// Blocks until the members' bytes may be read, as `Tensor.synchronize`.
    ///
    /// Raises as `Tensor.synchronize`.
    fn synchronize(&self, py: Python<'_>) -> PyResult<Self> {
        let inner = self.inner();
        detached(py, || inner.synchronize())
            .or_raise()
            .map(Self::new)
    }

    /// The composite with all members on another device, as `Tensor.to`.
    ///
    /// Raises as `Tensor.to`.
    #[pyo3(signature = (device, *, stream=None, copy=CopyArgument::IfNeeded), text_signature = "($self, device, *, stream=None, copy=None)")]
    fn to(
        &self,
        py: Python<'_>,
        device: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        copy: CopyArgument,
    ) -> PyResult<Self> {
        let place = device::argument(device)?.get().0;
        transfer::composite(py, &self.0, place, stream, copy, "to").map(Self::new)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| is_alike(&self.0, &other.get().0))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut members = Vec::new();
        for member in self.0.members() {
            members.push(match member {
                Item::Tensor(_) => "Tensor".to_owned(),
                Item::Composite(composite) => Self::new(composite.clone()).__repr__(py)?,
            });
        }
        let rule = match &self.head().layout {
            CoreLayout::Composite(head) => layout::composite::rule_name(head.rule),
            other => other.name(),
        };
        Ok(format!(
            "hurray.Composite(rule='{rule}', shape={}, members=[{}])",
            self.shape(py)?,
            members.join(", ")
        ))
    }
}

/// Whether both declare the same: heads and members; what the bytes are is not looked at.
fn is_alike(a: &hurray_ffi::Composite, b: &hurray_ffi::Composite) -> bool {
    a.head() == b.head()
        && a.members().len() == b.members().len()
        && a.members().iter().zip(b.members()).all(|pair| match pair {
            (Item::Tensor(a), Item::Tensor(b)) => a.descriptor() == b.descriptor(),
            (Item::Composite(a), Item::Composite(b)) => is_alike(a, b),
            _ => false,
        })
}

/// Puts `Composite` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Composite>()
}
