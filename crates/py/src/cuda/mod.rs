//! The module `hurray.cuda`: CUDA devices, their streams and events.
//!
//! Nothing here looks for a driver before it is called: importing the module, tensors of the CPU and files never start one.

mod current;
mod event;
mod stream;
mod stream_argument;

use hurray_core::{Dependency, DeviceError, DeviceLayer, DeviceTag, Stream as CoreStream};
use hurray_cuda::LAYER;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt};

use crate::device;
use crate::errors::OrRaise;
use crate::owner::detached;

pub(crate) use current::{current_stream, stream_of_cupy};
pub(crate) use stream_argument::StreamArgument;

fn count(py: Python<'_>) -> Result<u32, DeviceError> {
    detached(py, || LAYER.device_count())
}

/// Whether there is a CUDA driver with a device. The first call starts the driver; nothing else does
/// before a device is asked for.
#[pyfunction]
fn is_available(py: Python<'_>) -> bool {
    count(py).is_ok()
}

/// Why there is no CUDA device, as a sentence that says what helps; None where there is one.
#[pyfunction]
fn why_not(py: Python<'_>) -> Option<String> {
    count(py).err().map(|error| error.to_string())
}

/// How many CUDA devices there are; 0 where `why_not()` has something to say.
#[pyfunction]
fn device_count(py: Python<'_>) -> u32 {
    count(py).unwrap_or(0)
}

/// What is held for devices, in numbers: for whoever looks for a leak.
///
/// `pending` owners were let go and wait for a device, `kept` ones are kept for good because the
/// driver could not say when they may go, `unused_events` are held to be used again. `pools` has the
/// bytes of each device's pool: `used`, and `reserved` with what is held to be used again. Starts no
/// driver.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let statistics = detached(py, hurray_cuda::statistics);
    let pools = PyDict::new(py);
    for pool in &statistics.pools {
        let numbers = PyDict::new(py);
        numbers.set_item("used", pool.used)?;
        numbers.set_item("reserved", pool.reserved)?;
        pools.set_item(pool.device_id, numbers)?;
    }
    let stats = PyDict::new(py);
    stats.set_item("pending", statistics.pending)?;
    stats.set_item("kept", statistics.kept)?;
    stats.set_item("unused_events", statistics.unused_events)?;
    stats.set_item("pools", pools)?;
    Ok(stats)
}

/// Gives back what is held to be used again: unused memory of the pools, page-locked memory, events.
/// Waits until everything that was let go is released. Starts no driver.
#[pyfunction]
fn empty_cache(py: Python<'_>) {
    detached(py, hurray_cuda::empty_cache);
}

/// What bytes depend on that the work queued on `stream` writes: the stream, or an event where it is another one in every thread.
///
/// # Errors
/// What the driver says of the event.
pub(crate) fn written_on(py: Python<'_>, stream: CoreStream) -> PyResult<Dependency> {
    if stream.is_per_thread() {
        let event = detached(py, || LAYER.record(&stream)).or_raise()?;
        return Ok(Dependency::Event(event));
    }
    Ok(Dependency::Stream(stream))
}

/// A `device=` argument of this module: its number, or what names a CUDA device; `None` is 0.
fn device_argument(device: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    let Some(device) = device else { return Ok(0) };
    if device.is_instance_of::<PyInt>() && !device.is_instance_of::<PyBool>() {
        return device.extract().map_err(|_| {
            PyValueError::new_err(format!("a device's number is 0 or more, not {device}"))
        });
    }
    let place = device::argument(device)
        .map_err(|error| {
            if error.is_instance_of::<PyTypeError>(device.py()) {
                PyTypeError::new_err(format!(
                    "device is a number, a string or a hurray.Device, not {device}"
                ))
            } else {
                error
            }
        })?
        .get()
        .0;
    if place.device == DeviceTag::Cuda {
        return Ok(place.device_id);
    }
    Err(PyValueError::new_err(format!(
        "{place} is no CUDA device: streams and events are of one"
    )))
}

/// The device of that number, as Python has it.
fn device_object(py: Python<'_>, device_id: u32) -> PyResult<Py<device::Device>> {
    device::object(py, device::standard(DeviceTag::Cuda, device_id))
}

/// Puts the module `cuda` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let cuda = PyModule::new(module.py(), "hurray.cuda")?;
    cuda.setattr("__doc__", "CUDA devices, their streams and events.")?;
    for function in [
        wrap_pyfunction!(is_available, &cuda)?,
        wrap_pyfunction!(why_not, &cuda)?,
        wrap_pyfunction!(device_count, &cuda)?,
        wrap_pyfunction!(stats, &cuda)?,
        wrap_pyfunction!(empty_cache, &cuda)?,
        wrap_pyfunction!(current::current_stream_py, &cuda)?,
    ] {
        cuda.add_function(function)?;
    }
    cuda.add_class::<stream::Stream>()?;
    cuda.add_class::<event::Event>()?;
    crate::add_module(module, "cuda", &cuda)
}
