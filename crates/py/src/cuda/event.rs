//! `hurray.cuda.Event`.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;

use hurray_core::{Dependency, DeviceError, DeviceLayer, Stream as CoreStream};
use hurray_cuda::{CudaEvent, LAYER};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use super::{StreamArgument, current_stream};
use crate::device::Device;
use crate::errors::OrRaise;
use crate::owner::{detached, drop_detached, keep};

/// A CUDA event: a new one of `device`, not recorded yet, or another library's.
///
/// `event` is None for a new one; a handle, which must stay valid while it is in use; or an event
/// object of torch, CuPy, numba or cuda.core, which is kept alive and counts as recorded. `device` is
/// a number, "cuda:1" or a `hurray.Device`; an event of torch says its own, others are of device 0.
///
/// Raises DeviceError where there is no driver or device, and for a torch event that was never
/// recorded.
#[pyclass(frozen, eq, hash, weakref, module = "hurray.cuda")]
pub(crate) struct Event {
    /// Dropped when the object is, and nowhere else.
    inner: ManuallyDrop<CudaEvent>,
}

impl Event {
    fn inner(&self) -> &CudaEvent {
        &self.inner
    }

    /// What is to be waited for.
    fn dependency(&self) -> Dependency {
        Dependency::Event(self.inner.event())
    }

    /// The `stream=` argument; the current stream where there is none.
    fn stream<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<CoreStream> {
        let device_id = self.inner.device_id();
        match stream {
            Some(stream) => StreamArgument::new(stream)?.of_device(py, device_id),
            None => current_stream(py, device_id),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: taken here only, and not used again.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        if inner.is_owned() {
            // The last holder has the driver end the event.
            drop_detached(inner);
        }
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.handle() == other.handle()
    }
}

impl std::hash::Hash for Event {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.handle().hash(state);
    }
}

#[pymethods]
impl Event {
    #[new]
    #[pyo3(signature = (event=None, *, device=None))]
    fn new(
        py: Python<'_>,
        event: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let made = match event {
            None => {
                let device_id = super::device_argument(device)?;
                detached(py, || CudaEvent::new(device_id))
            }
            Some(event) => {
                let handle = handle(event)?.ok_or(DeviceError::NotRecorded).or_raise()?;
                let device_id = match device {
                    None => device_of(event)?.unwrap_or(0),
                    given => super::device_argument(given)?,
                };
                let object: Box<dyn Any + Send + Sync> = Box::new(keep(event));
                detached(py, || {
                    // SAFETY: the handle is what an event's object gave, which is kept; a bare one is valid by the caller's word, as documented.
                    unsafe { CudaEvent::foreign(device_id, handle, object) }
                })
            }
        };
        Ok(Self {
            inner: ManuallyDrop::new(made.or_raise()?),
        })
    }

    /// The device that the event is of.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<Device>> {
        super::device_object(py, self.inner.device_id())
    }

    /// The driver's handle.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.event().handle()
    }

    /// Whether `Event()` made it, and not another library.
    #[getter]
    fn is_owned(&self) -> bool {
        self.inner.is_owned()
    }

    /// Records it after the work queued on `stream` by now; None is the current stream. What waits for
    /// an earlier record is not moved.
    ///
    /// Raises DeviceError for a closed event or stream, a stream of another device, a capture that it
    /// would break, and for what the driver says.
    #[pyo3(signature = (stream=None))]
    fn record<'py>(&self, py: Python<'py>, stream: Option<&Bound<'py, PyAny>>) -> PyResult<()> {
        let stream = self.stream(py, stream)?;
        let event = self.inner();
        detached(py, || event.record(&stream)).or_raise()
    }

    /// Makes later work on `stream` wait, on the device, for the last record; None is the current
    /// stream.
    ///
    /// Raises DeviceError for an event that was never recorded or is closed, and otherwise as `record`.
    #[pyo3(signature = (stream=None))]
    fn wait<'py>(&self, py: Python<'py>, stream: Option<&Bound<'py, PyAny>>) -> PyResult<()> {
        let stream = self.stream(py, stream)?;
        let dependency = self.dependency();
        detached(py, || LAYER.order(&[&dependency], &stream).map(|_| ())).or_raise()
    }

    /// Blocks until what it was recorded after is done.
    ///
    /// Raises DeviceError for an event that was never recorded, is closed or part of a capture, and for
    /// what the driver says.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let dependency = self.dependency();
        detached(py, || LAYER.wait(&[&dependency])).or_raise()
    }

    /// Whether what it was recorded after is done. Never blocks.
    ///
    /// Raises DeviceError as `synchronize`.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        let event = self.inner();
        detached(py, || event.is_complete()).or_raise()
    }

    /// Nothing waits for it any more: naming it raises DeviceError from now on. Waits that are queued
    /// stay queued, and another library's event stays as it is.
    fn close(&self) {
        self.inner.close();
    }

    fn __repr__(&self) -> String {
        format!(
            "hurray.cuda.Event({:#x}, device=cuda:{})",
            self.handle(),
            self.inner.device_id()
        )
    }
}

/// The handle that names an event; `None` for torch's, which has none before its first record.
fn handle(event: &Bound<'_, PyAny>) -> PyResult<Option<NonZeroUsize>> {
    let py = event.py();
    if let Ok(event) = event.cast::<Event>() {
        return Ok(NonZeroUsize::new(event.get().handle()));
    }
    if event.is_instance_of::<PyInt>() && !event.is_instance_of::<PyBool>() {
        let handle = event.extract().ok().and_then(NonZeroUsize::new);
        return handle
            .map(Some)
            .ok_or_else(|| PyValueError::new_err(format!("event {event} is no event's handle")));
    }
    for attribute in [
        intern!(py, "cuda_event"),
        intern!(py, "ptr"),
        intern!(py, "handle"),
    ] {
        let Some(handle) = event.getattr_opt(attribute)? else {
            continue;
        };
        // numba's is a `ctypes.c_void_p`.
        let handle = handle.getattr_opt(intern!(py, "value"))?.unwrap_or(handle);
        if let Ok(handle) = handle.extract::<usize>() {
            return Ok(NonZeroUsize::new(handle));
        }
    }
    Err(PyTypeError::new_err(format!(
        "event is a handle or an event of hurray.cuda, torch, cupy or numba, not {}",
        event.get_type().name()?
    )))
}

/// The device that an event says it is of: ours do, and torch's.
fn device_of(event: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let py = event.py();
    if let Ok(event) = event.cast::<Event>() {
        return Ok(Some(event.get().inner.device_id()));
    }
    let Some(device) = event.getattr_opt(intern!(py, "device"))? else {
        return Ok(None);
    };
    let index = device.getattr_opt(intern!(py, "index"))?;
    Ok(index.and_then(|index| index.extract().ok()))
}
