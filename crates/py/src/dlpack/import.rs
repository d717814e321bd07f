//! `from_dlpack`.

use std::num::NonZeroUsize;

use dlpark::Managed;
use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensorVersioned};
use hurray_core::{Dependency, DeviceLayer, DeviceTag, MIN_BUFFER_ALIGNMENT, MemoryClass, Stream};
use hurray_cuda::LAYER;
use hurray_ffi::dlpack::{Array, ArrayError, CopyReason, ImportError, device};
use hurray_ffi::gather::GatherError;
use hurray_ffi::{Owner, Place, Readiness, Tensor, TransferError};
use pyo3::exceptions::{PyAttributeError, PyMemoryError, PyTypeError};
use pyo3::ffi::PyType_IsSubtype;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

use super::argument;
use super::capsule::{Capsule, owner_of};
use super::exchange::{self, Taken};
use crate::copies;
use crate::cuda::{StreamArgument, current_stream};
use crate::errors::{BufferError, CopyRequiredError, OrRaise, Raise, dlpack_refusal};
use crate::ingest::{CopyArgument, copying, numpy};
use crate::owner::{calling, detached};
use crate::tensor::{Tensor as PyTensor, transfer};

/// Wraps the memory of a DLPack producer, sharing it where it begins on a 64-byte boundary.
///
/// Arguments are those of the array API standard. `copy=None` copies only memory that does not begin
/// there, and types that have a byte for each element where the format packs them
/// (`hurray.copies()` tells); `False` raises CopyRequiredError instead, which names the measured
/// alignment; `True` always copies. `device` is where the array is wanted. `stream` is the one on
/// which an array of a device is going to be used, by default that device's current stream
/// (`hurray.cuda.current_stream`): the producer orders it, and the tensor is `consumer_stream`.
/// Arrays of the CPU have none.
///
/// Strides of any sign, order and shape stay as they are. A read-only array gives a read-only
/// tensor, and so does one of jax, whose arrays never change.
///
/// Raises TypeError for an object without `__dlpack__`, BufferError for an array that cannot be, and
/// UnsupportedError, which is also a built-in BufferError, for a type or device without a
/// counterpart here.
#[pyfunction]
#[pyo3(
    name = "from_dlpack",
    signature = (x, *, device=None, copy=CopyArgument::IfNeeded, stream=None),
    text_signature = "(x, *, device=None, copy=None, stream=None)"
)]
pub(super) fn from_dlpack_py<'py>(
    x: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: CopyArgument,
    stream: Option<&Bound<'py, PyAny>>,
) -> PyResult<Py<PyTensor>> {
    let py = x.py();
    let place = match device {
        Some(device) => Some(crate::device::argument(device)?.get().0),
        None => None,
    };
    if let Ok(tensor) = x.cast_exact::<PyTensor>() {
        let inner = tensor.get().inner();
        let is_there = |place| inner.buffers().iter().all(|b| b.place() == place);
        match place.filter(|&place| !is_there(place)) {
            Some(place) => {
                let moved = transfer::to(py, inner, place, stream, copy, "from_dlpack")?;
                return PyTensor::new_object(py, moved);
            }
            None if stream.is_none() && copy != CopyArgument::Always => {
                return Ok(tensor.clone().unbind());
            }
            None => {}
        }
    }
    let wanted = Wanted {
        place,
        copy,
        call: "from_dlpack",
    };
    Py::new(py, PyTensor::new(py, from_dlpack(x, stream, wanted)?)?)
}

/// What the caller of an import wants.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Where; where it is, if `None`.
    pub(crate) place: Option<Place>,
    /// Always, never, or only where it must be copied.
    pub(crate) copy: CopyArgument,
    /// The call that is reported with a copy.
    pub(crate) call: &'static str,
}

/// A tensor over the memory of a DLPack producer, or over a copy of it where `wanted` allows one and the memory needs it. NumPy's own arrays are
/// read as such: the same memory by the same rules, and it is known how far it reaches (decision 19).
///
/// # Errors
/// `TypeError` for an object that is no producer, `ValueError` for a bad stream, `CopyRequiredError`, `BufferError` for a descriptor that cannot be,
/// `UnsupportedError` (also a built-in `BufferError`) for what has no counterpart here.
pub(crate) fn from_dlpack(
    object: &Bound<'_, PyAny>,
    stream: Option<&Bound<'_, PyAny>>,
    wanted: Wanted,
) -> PyResult<Tensor> {
    if wanted.place.is_none_or(|place| place == Place::HOST) {
        if numpy::is_exactly_array(object) {
            argument::check_stream(stream, DLDevice::CPU)?;
            return numpy::import(object, wanted.copy, wanted.call);
        }
        let taken = exchange::take(object)?;
        // Bytes elsewhere than where they are wanted the producer is asked for.
        if let Some(Taken {
            tensor,
            work_stream,
        }) = taken
            && (wanted.place.is_none() || device_of(&tensor) == DLDevice::CPU)
        {
            argument::check_stream(stream, device_of(&tensor))?;
            return from_managed(object.py(), tensor, Some(work_stream), stream, wanted);
        }
    }
    let py = object.py();
    refuse_pending_negation(object)?;
    let announced = announced_device(object)?;
    let asked = match (announced, wanted.place) {
        (Some(announced), Some(place)) if device::place(announced) != Ok(place) => {
            Some(device::announced(place).map_err(|error| dlpack_refusal(py, error.to_string()))?)
        }
        _ => None,
    };
    let expected = asked.or(announced);
    let consumer = match expected {
        Some(expected) => {
            argument::check_stream(stream, device::in_capsule(expected))?;
            consumer_of(py, supported(py, expected)?, stream)?
        }
        None => None,
    };
    let capsule = Capsule::open(call_dlpack(object, asked, wanted.copy, consumer.as_ref())?)?;
    let (descriptor, flags) = capsule.tensor();
    // SAFETY: the producer's shape and strides are valid for as many numbers as it has dimensions.
    let array = unsafe { Array::read(descriptor, flags) };
    let mut array = array.map_err(|error| refusal(py, &error))?;
    if is_immutable(&object.get_type())? {
        array.set_read_only();
    }
    let found = array.device();
    // Pinned memory comes as the CPU's (D3).
    if let Some(expected) = expected
        && expected != found
        && device::in_capsule(expected) != found
    {
        return Err(BufferError::new_err(format!(
            "__dlpack_device__ says {:?}, and the capsule {:?}",
            <(u32, i32)>::from(expected),
            <(u32, i32)>::from(found)
        )));
    }
    let place = supported(py, expected.unwrap_or(found))?;
    let order = match consumer {
        // The producer has ordered it.
        Some(consumer) => Some(Order {
            producer: consumer.clone(),
            consumer,
        }),
        // By the array API standard, a producer that is told no stream orders the legacy default one.
        None => Order::after(py, place, Stream::LEGACY, stream)?,
    };
    finish(py, &array, place, order, wanted, || capsule.take())
}

/// A tensor of a managed tensor that came without a capsule, whose bytes are written on the producer's stream `work_stream`; on the current one if `None`.
///
/// # Errors
/// As [`from_dlpack`]; the managed tensor is released.
pub(super) fn from_managed(
    py: Python<'_>,
    tensor: Managed<DLManagedTensorVersioned>,
    work_stream: Option<NonZeroUsize>,
    stream: Option<&Bound<'_, PyAny>>,
    wanted: Wanted,
) -> PyResult<Tensor> {
    // SAFETY: the handle's descriptor is live, and nobody else has it.
    let descriptor = unsafe { tensor.tensor() };
    // SAFETY: the producer's shape and strides are valid for as many numbers as it has dimensions.
    let array = unsafe { Array::read(descriptor, tensor.flags()) };
    let array = array.map_err(|error| refusal(py, &error))?;
    let place = supported(py, array.device())?;
    let order = match work_stream {
        Some(work_stream) => Order::after(py, place, work_stream, stream)?,
        None => consumer_of(py, place, stream)?.map(|consumer| Order {
            producer: consumer.clone(),
            consumer,
        }),
    };
    finish(py, &array, place, order, wanted, || Ok(owner_of(tensor)))
}

/// The streams on which the bytes of a device are written and will be used.
struct Order {
    producer: Stream,
    consumer: Stream,
}

impl Order {
    /// Of memory at `place` that is written on the stream of number `producer` and used on `stream`; `None` where memory there has no streams.
    fn after(
        py: Python<'_>,
        place: Place,
        producer: NonZeroUsize,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Self>> {
        let Some(consumer) = consumer_of(py, place, stream)? else {
            return Ok(None);
        };
        let producer = StreamArgument::Number(producer).of_device(py, consumer.device_id())?;
        Ok(Some(Self { producer, consumer }))
    }

    /// Makes the consumer's stream wait: the readiness of the bytes then.
    fn establish(&self, py: Python<'_>) -> PyResult<Readiness> {
        let written = Dependency::Stream(self.producer.clone());
        let ordered = detached(py, || LAYER.order(&[&written], &self.consumer)).or_raise()?;
        Ok(ordered.map_or(Readiness::Ready, Readiness::Held))
    }
}

/// The stream on which memory at `place` is going to be used: the one that is named, else the device's current one; `None` where the memory has no
/// streams.
fn consumer_of(
    py: Python<'_>,
    place: Place,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Stream>> {
    if place.device != DeviceTag::Cuda || place.memory_class == MemoryClass::HostPinned {
        return Ok(None);
    }
    let named = match stream {
        Some(stream) => StreamArgument::or_none(stream)?,
        None => None,
    };
    match named {
        Some(named) => named.of_device(py, place.device_id),
        None => current_stream(py, place.device_id),
    }
    .map(Some)
}

fn device_of(tensor: &Managed<DLManagedTensorVersioned>) -> DLDevice {
    // SAFETY: the handle's descriptor is live, and nobody else has it.
    unsafe { tensor.tensor() }.device
}

/// A tensor of the array: over the memory that `take` gives an owner of, or over a copy if there must be one.
fn finish(
    py: Python<'_>,
    array: &Array,
    place: Place,
    order: Option<Order>,
    wanted: Wanted,
    take: impl FnOnce() -> PyResult<Owner>,
) -> PyResult<Tensor> {
    let copy = wanted.copy.as_option();
    let reason = array.copy_reason(copy);
    if let Some(reason) = reason {
        may_copy(py, array, place, wanted, reason)?;
    } else if copy == Some(false) && array.is_copied() {
        return Err(CopyRequiredError::new_err(
            "copy=False was given, and the DLPack producer copied: its capsule says IS_COPIED",
        ));
    }
    let readiness = match &order {
        Some(order) => order.establish(py)?,
        None => Readiness::Ready,
    };
    let owner = take()?;
    let Some(reason) = reason else {
        let borrow = || {
            // SAFETY: the memory is complete once `readiness` says so, and the producer keeps it until the owner is dropped.
            unsafe { array.borrow(place, readiness, owner) }
        };
        // A driver is asked whether the memory is where it is said to be.
        let tensor = match place.device {
            DeviceTag::Cpu => borrow(),
            _ => detached(py, borrow),
        };
        return tensor.map_err(|error| failure(py, &error));
    };
    let (tensor, bytes, to) = match order {
        Some(order) => {
            let copy = detached(py, || {
                // SAFETY: as above.
                unsafe { array.copy_there(place, readiness, owner, &order.consumer) }
            });
            let (tensor, bytes) = copy.map_err(|error| failure(py, &error))?;
            (tensor, bytes, place)
        }
        None => {
            // The owner is held while the interpreter is not.
            let copy = copying(py, array.byte_len(), || {
                // SAFETY: the host reaches the memory, which the owner keeps and whose writes are complete.
                unsafe { array.copy() }
            });
            drop(owner);
            let (tensor, bytes) = copy.map_err(|error| failure(py, &error))?;
            (tensor, bytes, Place::HOST)
        }
    };
    copies::report(py, bytes, place, to, reason.into(), wanted.call)?;
    Ok(tensor)
}

/// Whether a copy for `reason` is allowed.
fn may_copy(
    py: Python<'_>,
    array: &Array,
    place: Place,
    wanted: Wanted,
    reason: CopyReason,
) -> PyResult<()> {
    if wanted.copy == CopyArgument::Never {
        return Err(CopyRequiredError::new_err(
            if reason == CopyReason::Packing {
                format!(
                    "DLPack has a byte for each {0} and the format packs them: sharing is impossible whatever the alignment; copy=None packs a copy",
                    array.element_type()
                )
            } else {
                format!(
                    "the array's memory is aligned to {} bytes as measured, and to be shared it needs {MIN_BUFFER_ALIGNMENT}; copy=None copies it",
                    array.alignment()
                )
            },
        ));
    }
    if reason == CopyReason::Packing && !place.is_host_accessible() {
        return Err(dlpack_refusal(
            py,
            format!(
                "the array's elements on {place} have a byte each where the format packs them, and nothing here packs them there: copy the array to the \
                 CPU first"
            ),
        ));
    }
    Ok(())
}

/// What `__dlpack_device__` says; `None` for a producer of before there was one.
fn announced_device(object: &Bound<'_, PyAny>) -> PyResult<Option<DLDevice>> {
    let py = object.py();
    let (device_type, device_id) =
        match calling(py, || object.call_method0(intern!(py, "__dlpack_device__"))) {
            Ok(device) => device.extract().map_err(|_| {
                BufferError::new_err(format!(
                    "__dlpack_device__ must return (device_type, device_id), not {device}"
                ))
            })?,
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => return Ok(None),
            Err(error) => return Err(error),
        };
    Ok(Some(DLDevice {
        device_type: DLDeviceType(device_type),
        device_id,
    }))
}

/// Calls `__dlpack__`, and once more with no more than the stream if it knows none of our other arguments (C7).
fn call_dlpack<'py>(
    object: &Bound<'py, PyAny>,
    device: Option<DLDevice>,
    copy: CopyArgument,
    consumer: Option<&Stream>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let method = match object.getattr(intern!(py, "__dlpack__")) {
        Ok(method) => method,
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => {
            return Err(PyTypeError::new_err(format!(
                "{} is no DLPack producer: it has no __dlpack__",
                object.get_type().name()?
            )));
        }
        Err(error) => return Err(error),
    };
    let least = PyDict::new(py);
    if let Some(consumer) = consumer {
        least.set_item(intern!(py, "stream"), consumer.number().get())?;
    }
    let arguments = least.copy()?;
    arguments.set_item(intern!(py, "max_version"), (1, 3))?;
    if let Some(device) = device {
        arguments.set_item(intern!(py, "dl_device"), <(u32, i32)>::from(device))?;
    }
    if copy == CopyArgument::Never {
        arguments.set_item(intern!(py, "copy"), false)?;
    }
    let call = || {
        calling(py, || match method.call((), Some(&arguments)) {
            Err(error) if device.is_none() && error.is_instance_of::<PyTypeError>(py) => {
                method.call((), Some(&least))
            }
            result => result,
        })
    };
    match consumer {
        // torch exports what is on its current device only (pytorch/pytorch#169567).
        Some(consumer) => hurray_cuda::on_device(consumer.device_id(), call).or_raise()?,
        None => call(),
    }
}

/// The place of memory that can be taken: the host's, and CUDA's, which can be ordered.
fn supported(py: Python<'_>, device: DLDevice) -> PyResult<Place> {
    let place = device::place(device).map_err(|error| dlpack_refusal(py, error.to_string()))?;
    if matches!(place.device, DeviceTag::Cpu | DeviceTag::Cuda) {
        return Ok(place);
    }
    Err(dlpack_refusal(
        py,
        format!(
            "the array is on {place}, and there is no device layer here to order it: move it to the CPU first"
        ),
    ))
}

/// Refuses a torch tensor whose values are the negatives of its bytes, which torch exports as they are.
fn refuse_pending_negation(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    let Some(class) = torch_tensor(py)? else {
        return Ok(());
    };
    // Not `isinstance`, which torch's metaclass answers.
    // SAFETY: both are types, alive and of this interpreter.
    let is_tensor = unsafe { PyType_IsSubtype(object.get_type_ptr(), class.as_type_ptr()) } != 0;
    if is_tensor && object.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
        return Err(dlpack_refusal(
            py,
            "the torch tensor has a pending negation, which its bytes do not show: share tensor.resolve_neg()".to_owned(),
        ));
    }
    Ok(())
}

/// `torch.Tensor`, if torch has been imported; an attribute that misses costs more than the whole import.
fn torch_tensor(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyType>>> {
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if let Some(class) = TENSOR.get(py) {
        return Ok(Some(class.bind(py)));
    }
    let modules = MODULES.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.unbind())
    })?;
    let Ok(modules) = modules.bind(py).cast::<PyDict>() else {
        return Ok(None);
    };
    let Some(torch) = modules.get_item(intern!(py, "torch"))? else {
        return Ok(None);
    };
    // Without the class while torch is still being imported.
    let class = torch.getattr_opt(intern!(py, "Tensor"))?;
    let Some(Ok(class)) = class.map(Bound::cast_into::<PyType>) else {
        return Ok(None);
    };
    Ok(Some(TENSOR.get_or_init(py, || class.unbind()).bind(py)))
}

/// Whether arrays of this type never change, though their capsules do not say so: jax's.
fn is_immutable(class: &Bound<'_, PyType>) -> PyResult<bool> {
    // A static type's module is made up anew each time, and jax's types are none.
    if !exchange::is_heap_type(class) {
        return Ok(false);
    }
    let module = class.getattr(intern!(class.py(), "__module__"))?;
    let Ok(module) = module.cast_into::<PyString>() else {
        return Ok(false);
    };
    Ok(module.to_str()?.starts_with("jaxlib."))
}

fn refusal(py: Python<'_>, error: &ArrayError) -> PyErr {
    match error {
        ArrayError::ElementType(_) | ArrayError::Rank { .. } => {
            dlpack_refusal(py, error.to_string())
        }
        _ => BufferError::new_err(error.to_string()),
    }
}

fn failure(py: Python<'_>, error: &ImportError) -> PyErr {
    match error {
        ImportError::Repacking { .. } => dlpack_refusal(py, error.to_string()),
        ImportError::Transfer(TransferError::Device(error)) => error.clone().raise(),
        ImportError::Buffer(error) => error.clone().raise(),
        ImportError::Copy(GatherError::Allocation(_)) => PyMemoryError::new_err(error.to_string()),
        _ => BufferError::new_err(error.to_string()),
    }
}
