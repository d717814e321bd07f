//! Objects that speak the CUDA array interface, versions 0 to 3.

use std::ptr;

use hurray_core::{
    Dependency, DeviceLayer, DeviceTag, Layout, Shape, Stream, Strides, is_column_major,
    is_row_major, row_major_strides,
};
use hurray_cuda::LAYER;
use hurray_ffi::{Buffer, BufferFlags, Owner, Place, Readiness, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::numpy::{item_size, strided_span};
use super::{BOUNDARY, dense};
use crate::cuda::{self, StreamArgument, current_stream};
use crate::errors::{BufferError, OrRaise, Raise, UnsupportedError};
use crate::numpy_dtype;
use crate::owner::{calling, detached, keep};

/// The entries that are read.
struct Interface<'py> {
    dtype: Bound<'py, PyAny>,
    shape: Shape,
    /// In bytes.
    strides: Option<Vec<i64>>,
    address: usize,
    is_read_only: bool,
    /// What a reader must wait for.
    stream: Option<StreamArgument<'py>>,
}

/// How the bytes of an import become ready.
pub(super) enum Order {
    /// As the interface says: the current stream waits for the one it names.
    ByInterface,
    /// The producer is not asked: they are as far as this stream is.
    On(Stream),
}

/// The object's memory as a tensor; `None` where it has no such interface. Nothing is copied, and no byte is touched.
///
/// # Errors
/// `BufferError` for an interface that is wrong or lies about its memory, `ValueError` for stream 0, `UnsupportedError` for a type without a
/// counterpart or masked elements, `DeviceError` where the streams can't be ordered.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    match interface(object)? {
        Some(entries) => tensor(object, entries, Order::ByInterface).map(Some),
        None => Ok(None),
    }
}

/// The memory of `object`, which has the interface, as far as `stream` is.
///
/// # Errors
/// As [`import`]; the entry for the stream is not looked at.
pub(super) fn import_on(object: &Bound<'_, PyAny>, stream: Stream) -> PyResult<Tensor> {
    match interface(object)? {
        Some(entries) => tensor(object, entries, Order::On(stream)),
        None => Err(BufferError::new_err(format!(
            "{} has no __cuda_array_interface__",
            object.get_type().name()?
        ))),
    }
}

fn interface<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Interface<'py>>> {
    let py = object.py();
    let found = calling(py, || {
        object.getattr_opt(intern!(py, "__cuda_array_interface__"))
    })?;
    let Some(found) = found else { return Ok(None) };
    let wrong =
        |what: &str| BufferError::new_err(format!("__cuda_array_interface__ {what}: {found}"));
    let entries = found
        .cast::<PyDict>()
        .map_err(|_| wrong("must be a dict"))?;
    let entry = |name| {
        entries
            .get_item(name)
            .map(|value| value.filter(|value| !value.is_none()))
    };
    if entry("mask")?.is_some() {
        return Err(UnsupportedError::new_err(
            "the array has a mask, which the format has not: share its elements and its mask each on their own",
        ));
    }
    let number = |value: &Bound<'py, PyAny>| value.extract::<i64>().ok();
    let numbers = |value: Bound<'py, PyAny>| {
        let tuple = value.cast_into::<PyTuple>().ok()?;
        tuple
            .iter()
            .map(|value| number(&value))
            .collect::<Option<Vec<_>>>()
    };
    let shape = entry("shape")?
        .and_then(numbers)
        .and_then(|shape| shape.into_iter().map(|n| u64::try_from(n).ok()).collect())
        .ok_or_else(|| wrong("has no shape"))?;
    let strides = match entry("strides")? {
        Some(strides) => Some(numbers(strides).ok_or_else(|| wrong("has strides that are none"))?),
        None => None,
    };
    let (address, is_read_only) = entry("data")?
        .and_then(|data| data.extract::<(usize, bool)>().ok())
        .ok_or_else(|| wrong("has no data"))?;
    let typestr = entry("typestr")?.ok_or_else(|| wrong("has no typestr"))?;
    let numpy = py.import("numpy")?;
    let mut dtype = calling(py, || numpy.call_method1("dtype", (typestr,)))?;
    // Types that NumPy lacks call themselves so many bytes; CuPy's arrays say which in NumPy's own words.
    let is_void = dtype.getattr("kind")?.eq("V")?;
    if let (true, Some(own)) = (is_void, object.getattr_opt(intern!(py, "dtype"))?)
        && own.is_instance(&numpy.getattr("dtype")?)?
    {
        dtype = own;
    }
    let version = entry("version")?
        .and_then(|version| number(&version))
        .unwrap_or(0);
    let stream = match entries.get_item("stream")? {
        // Versions before the third have no such entry, and their producers do not wait.
        None if version < 3 => Some(StreamArgument::Number(Stream::LEGACY)),
        None => None,
        Some(stream) if stream.is_none() => None,
        Some(stream) => Some(named(&stream)?),
    };
    Ok(Some(Interface {
        dtype,
        shape,
        strides,
        address,
        is_read_only,
        stream,
    }))
}

fn named<'py>(stream: &Bound<'py, PyAny>) -> PyResult<StreamArgument<'py>> {
    StreamArgument::new(stream).map_err(|error| {
        let text = format!(
            "__cuda_array_interface__ names a stream that is none: {}",
            error.value(stream.py())
        );
        PyValueError::new_err(text)
    })
}

fn tensor(object: &Bound<'_, PyAny>, entries: Interface<'_>, order: Order) -> PyResult<Tensor> {
    let py = object.py();
    let element_type =
        match numpy_dtype::element_type(py, entries.dtype.getattr("num")?.extract()?)? {
            Some(element_type) if entries.dtype.getattr("isnative")?.is_truthy()? => element_type,
            _ => {
                return Err(UnsupportedError::new_err(format!(
                    "elements of dtype {} have no element type here",
                    entries.dtype
                )));
            }
        };
    let width = element_type
        .storage_width()
        .filter(|width| !width.is_packed())
        .ok_or_else(|| {
            UnsupportedError::new_err(format!(
                "the array has a byte for each {element_type} and the format packs them: share it as uint8"
            ))
        })?;
    let item = item_size(width);
    let strides = match entries.strides {
        None => row_major_strides(&entries.shape).or_raise()?,
        Some(strides) => in_elements(&entries.shape, &strides, i64::from(item))?,
    };
    let (before, len) = strided_span(&entries.shape, &strides, item)?;
    let first = entries
        .address
        .checked_sub(before)
        .filter(|first| *first > 0 || len == 0);
    let first = first.ok_or_else(|| {
        BufferError::new_err(format!(
            "elements of shape {:?} at byte strides of {strides:?} elements reach {before} bytes before address {:#x}",
            entries.shape.as_slice(),
            entries.address
        ))
    })?;
    let layout = if is_row_major(&entries.shape, &strides) {
        Layout::RowMajor
    } else if is_column_major(&entries.shape, &strides) {
        Layout::ColumnMajor
    } else {
        Layout::Strided(strides)
    };
    // Memory of a device begins on more than 64 bytes wherever it was allocated: the boundary before an element lies in the same memory.
    let slack = if len == 0 { 0 } else { first % BOUNDARY };
    let start = first - slack;
    let place = place(py, start, len)?;
    let readiness = match order {
        Order::On(stream) => Readiness::Held(cuda::written_on(py, stream)?),
        Order::ByInterface => match entries.stream {
            None => Readiness::Ready,
            Some(writes) => {
                let writes = Dependency::Stream(writes.for_memory(py, place)?);
                let stream = current_stream(py, place.device_id)?;
                detached(py, || LAYER.order(&[&writes], &stream))
                    .or_raise()?
                    .map_or(Readiness::Ready, Readiness::Held)
            }
        },
    };
    let mut flags = BufferFlags::empty();
    flags.set(BufferFlags::READ_ONLY, entries.is_read_only);
    let buffer = over(
        py,
        start,
        slack + len,
        place,
        readiness,
        flags,
        keep(object),
    )?;
    dense(
        element_type,
        entries.shape,
        layout,
        (slack + before) as u64,
        buffer,
    )
}

/// Where the bytes are, by the driver's word.
fn place(py: Python<'_>, start: usize, len: usize) -> PyResult<Place> {
    let mut place = Place {
        device: DeviceTag::Cuda,
        ..Place::HOST
    };
    if len == 0 {
        return Ok(place);
    }
    match detached(py, || LAYER.pointer_facts(start)).or_raise()? {
        Some(facts) => {
            place.device_id = facts.device_id;
            place.memory_class = facts.memory_class;
            Ok(place)
        }
        None => Err(BufferError::new_err(format!(
            "__cuda_array_interface__ names the address {start:#x}, and the driver does not know it"
        ))),
    }
}

fn over(
    py: Python<'_>,
    start: usize,
    len: usize,
    place: Place,
    readiness: Readiness,
    flags: BufferFlags,
    owner: Owner,
) -> PyResult<Buffer> {
    let made = detached(py, move || {
        // SAFETY: by the interface, the object keeps these bytes alive and in place, and they are writable unless flagged; they are ready once the
        // stream that it names is, which the readiness says. The driver is asked whether they are there.
        unsafe {
            Buffer::from_owner(
                ptr::with_exposed_provenance_mut(start),
                len,
                place,
                readiness,
                flags,
                owner,
            )
        }
    });
    made.map_err(Raise::raise)
}

/// Byte strides in elements.
fn in_elements(shape: &[u64], strides: &[i64], item: i64) -> PyResult<Strides> {
    let mut found = Strides::with_capacity(strides.len());
    for (axis, stride) in strides.iter().enumerate() {
        // The stride of a dimension that is never walked means nothing.
        let is_walked = shape.get(axis).is_some_and(|n| *n > 1);
        if is_walked && stride % item != 0 {
            return Err(UnsupportedError::new_err(format!(
                "axis {axis} of the array has a stride of {stride} bytes, no multiple of its {item}-byte elements"
            )));
        }
        found.push(stride / item);
    }
    Ok(found)
}
