//! The `hurray_buffer` capsule: how a list leaves in one, and how a consumer takes it out (`docs/c-abi.md`).

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use hurray_ffi::abi::{HurrayBufferList, HurrayCapsuleContext};
use hurray_ffi::{BufferList, Item};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::composite::Composite;
use crate::cuda::StreamArgument;
use crate::errors::{BufferError, Raise};
use crate::handoff;
use crate::owner::{calling, detached, drop_detached};
use crate::tensor::Tensor;

/// A capsule whose list nobody has taken.
const NAME: &CStr = c"hurray_buffer";
/// A capsule whose list somebody has.
const USED_NAME: &CStr = c"used_hurray_buffer";
/// The published release's capsule.
const RELEASE_NAME: &CStr = c"hurray_tensor";

/// A capsule that owns `list` until a consumer takes it.
pub(crate) fn of_list(py: Python<'_>, list: BufferList) -> PyResult<Bound<'_, PyAny>> {
    let context = list.context();
    let list = list.into_raw();
    // SAFETY: this thread is attached; the name is static; the destructor expects the pointer of a list of ours.
    let capsule = unsafe { ffi::PyCapsule_New(list.as_ptr().cast(), NAME.as_ptr(), Some(destroy)) };
    // SAFETY: a new reference, or NULL with an exception set.
    let capsule = match unsafe { Bound::from_owned_ptr_or_err(py, capsule) } {
        Ok(capsule) => capsule,
        Err(error) => {
            // SAFETY: no capsule took the list, which came from `into_raw` above.
            drop(unsafe { BufferList::from_raw(list) });
            return Err(error);
        }
    };
    // SAFETY: `capsule` is a capsule; the context lives as long as its list.
    if unsafe { ffi::PyCapsule_SetContext(capsule.as_ptr(), context.as_ptr().cast()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(capsule)
}

/// The destructor: an unconsumed capsule destroys its list.
///
/// # Safety
/// Python calls it once, attached, with a capsule of [`of_list`].
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls destructors with the capsule, which is still intact.
    let name = unsafe { ffi::PyCapsule_GetName(capsule) };
    // SAFETY: a capsule's name is NULL or a string that lives as long as the capsule.
    if !unsafe { is_named(name, NAME) } {
        return;
    }
    // SAFETY: the name is the capsule's own.
    let list = unsafe { ffi::PyCapsule_GetPointer(capsule, name) };
    if let Some(list) = NonNull::new(list.cast::<HurrayBufferList>()) {
        // SAFETY: an unconsumed capsule of `of_list` owns the list that came from `into_raw`.
        let list = unsafe { BufferList::from_raw(list) };
        if list.calls_out() {
            drop_detached(list);
        }
    }
}

/// Whether `name` is this name.
///
/// # Safety
/// `name` is NULL or a string.
unsafe fn is_named(name: *const c_char, expected: &CStr) -> bool {
    if name.is_null() {
        return false;
    }
    // SAFETY: not NULL, and so a string.
    std::ptr::eq(name, expected.as_ptr()) || unsafe { CStr::from_ptr(name) } == expected
}

/// A pointer on its way to a call without the interpreter.
struct Sent<T>(*mut T);

// SAFETY: the list and the context of a claimed capsule are this thread's alone, and it waits for the call.
unsafe impl<T> Send for Sent<T> {}

/// Takes the list out of a capsule, claiming it first: one of several consumers gets it. Where the list is refused the capsule is as it was.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Item> {
    let py = capsule.py();
    if !capsule.is_instance_of::<PyCapsule>() {
        return Err(PyTypeError::new_err(format!(
            "__hurray__ returns a PyCapsule, not {}",
            capsule.get_type().name()?
        )));
    }
    let raw = capsule.as_ptr();
    // SAFETY: `raw` is a live capsule.
    let name = unsafe { ffi::PyCapsule_GetName(raw) };
    // SAFETY: a capsule's name is NULL or a string.
    if !unsafe { is_named(name, NAME) } {
        // SAFETY: as above.
        return Err(unsafe { other_name(name) });
    }
    // SAFETY: `raw` is a live capsule, and the name is static. Nothing ran between the check of the name and this.
    if unsafe { ffi::PyCapsule_SetName(raw, USED_NAME.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: the name is the one that was just set. A capsule's pointer is never NULL.
    let list = unsafe { ffi::PyCapsule_GetPointer(raw, USED_NAME.as_ptr()) };
    // SAFETY: `raw` is a live capsule.
    let context = unsafe { ffi::PyCapsule_GetContext(raw) };
    let list = Sent(list.cast::<HurrayBufferList>());
    let context = Sent(context.cast::<HurrayCapsuleContext>());
    // SAFETY: the context of a claimed capsule is NULL or a producer's.
    let taken = if unsafe { hurray_ffi::abi::consume::is_own(context.0) } {
        // SAFETY: list and context are a claimed capsule's.
        unsafe { hurray_ffi::consume(list.0, context.0) }
    } else {
        detached(py, move || {
            let (list, context) = (list, context);
            // SAFETY: as above; the claim keeps others off while this thread is detached.
            unsafe { hurray_ffi::consume(list.0, context.0) }
        })
    };
    taken.map_err(|error| {
        // SAFETY: `raw` is a live capsule, and the name is its producer's, which lives as long as the capsule.
        unsafe { ffi::PyCapsule_SetName(raw, name) };
        error.raise()
    })
}

/// Why a capsule of another name is refused.
///
/// # Safety
/// `name` is NULL or a string.
unsafe fn other_name(name: *const c_char) -> PyErr {
    if name.is_null() {
        return BufferError::new_err(
            "the capsule has no name; one with a tensor is called 'hurray_buffer'",
        );
    }
    // SAFETY: not NULL, and so a string.
    let name = unsafe { CStr::from_ptr(name) };
    BufferError::new_err(if name == USED_NAME {
        "the capsule was consumed before; each consumer calls __hurray__ for one of its own"
            .to_owned()
    } else if name == RELEASE_NAME {
        "the capsule is called 'hurray_tensor': it is of pyhurray 0.1.0, whose structures are private and cannot be read here".to_owned()
    } else {
        format!(
            "the capsule is called '{}', not 'hurray_buffer'",
            name.to_string_lossy()
        )
    })
}

/// Calls `__hurray__` of `object`, with the consumer's stream where one is named, and takes what its capsule carries; `None` where it has no such
/// method.
pub(crate) fn import(
    object: &Bound<'_, PyAny>,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Item>> {
    let py = object.py();
    let Some(method) = object.getattr_opt(intern!(py, "__hurray__"))? else {
        return Ok(None);
    };
    let capsule = calling(py, || match stream {
        None => method.call0(),
        Some(stream) => {
            let arguments = PyDict::new(py);
            arguments.set_item(intern!(py, "stream"), stream)?;
            method.call((), Some(&arguments))
        }
    })?;
    take(&capsule).map(Some)
}

/// The Python object for `item`.
pub(crate) fn object(py: Python<'_>, item: Item) -> PyResult<Py<PyAny>> {
    Ok(match item {
        Item::Tensor(tensor) => Tensor::new_object(py, tensor)?.into_any(),
        Item::Composite(composite) => Py::new(py, Composite::new(composite))?.into_any(),
    })
}

/// The tensor or composite that an object shows; `None` for any other object.
pub(crate) fn item(object: &Bound<'_, PyAny>) -> Option<Item> {
    if let Ok(tensor) = object.cast::<Tensor>() {
        return Some(Item::Tensor(tensor.get().inner().clone()));
    }
    let composite = object.cast::<Composite>().ok()?;
    Some(Item::Composite(composite.get().inner().clone()))
}

/// Takes a tensor, or a composite, from any object that has `__hurray__`, without copying a byte.
///
/// All buffers come in one capsule, with everything the tensor declares. Each keeps its own
/// producer's memory alive. A tensor whose bytes are not ready comes as it is: its rows say so,
/// and the ways to its bytes refuse.
///
/// `stream` is the one that will use the bytes: the producer is told, and whatever comes is ordered
/// on it. None and -1 ask for no order.
///
/// Raises TypeError for an object without `__hurray__`; BufferError for a capsule that is no
/// tensor's, was consumed before, or whose buffers are not what their rows say; UnsupportedError
/// for another version of the protocol; InvalidDescriptorError for a descriptor that breaks a
/// rule. The capsule then still owns its buffers. DeviceError where `stream` can't wait.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
fn from_hurray<'py>(
    obj: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let py = obj.py();
    let argument = stream.map(StreamArgument::or_none).transpose()?.flatten();
    if let Some(argument) = argument {
        // One order, and not one by the producer and another by the consumer.
        if let Ok(tensor) = obj.cast_exact::<Tensor>() {
            let ordered = handoff::tensor(py, tensor.get().inner(), argument)?;
            return object(py, Item::Tensor(ordered));
        }
        if let Ok(composite) = obj.cast_exact::<Composite>() {
            let ordered = handoff::composite(py, composite.get().inner(), argument)?;
            return object(py, Item::Composite(ordered));
        }
        return object(py, handoff::taken(py, imported(obj, stream)?, argument)?);
    }
    object(py, imported(obj, stream)?)
}

/// What comes from an object that must have `__hurray__`.
fn imported(obj: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Item> {
    match import(obj, stream)? {
        Some(item) => Ok(item),
        None => Err(PyTypeError::new_err(format!(
            "from_hurray takes an object that has __hurray__, and {} has not",
            obj.get_type().name()?
        ))),
    }
}

/// Puts `from_hurray` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(from_hurray, module)?)
}
