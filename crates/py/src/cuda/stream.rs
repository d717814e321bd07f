//! `hurray.cuda.Stream`.

use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hurray_core::{Dependency, DeviceLayer, Stream as CoreStream};
use hurray_cuda::{CudaStream, LAYER};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::StreamArgument;
use crate::device::Device;
use crate::errors::OrRaise;
use crate::open_blocks::OpenBlocks;
use crate::owner::{detached, drop_detached};

/// The blocks that `current_stream` looks at first.
pub(super) static CURRENT: OpenBlocks = OpenBlocks::new("hurray.cuda.Stream");

/// A CUDA stream: a new one of `device`, or another library's.
///
/// `stream` is None for a new one, which does not wait for the legacy default stream nor that for it;
/// 1 for the legacy default stream, 2 for the per-thread default; a handle, which must stay valid
/// while it is in use; or a stream object of torch, CuPy or numba or with `__cuda_stream__`, which is
/// kept alive. `device` is a number, "cuda:1" or a `hurray.Device`; without it a handle or an object
/// is of its own device, a default stream given as a number and a new one are of device 0.
///
/// `with stream:` makes it the current one of its device, in this thread or task.
///
/// Raises DeviceError where there is no driver or device, or the stream is of another one, and
/// ValueError for 0, a bool or a negative number.
#[pyclass(frozen, eq, hash, weakref, module = "hurray.cuda")]
pub(crate) struct Stream {
    stream: ManuallyDrop<CoreStream>,
    /// The driver's stream, where it is of our own.
    owned: ManuallyDrop<Option<CudaStream>>,
    /// Whether another library's is closed here.
    is_closed: Arc<AtomicBool>,
}

impl Stream {
    /// The stream of another library that `argument` names.
    pub(super) fn lend<'py>(
        py: Python<'py>,
        argument: StreamArgument<'py>,
        device_id: u32,
    ) -> PyResult<Self> {
        let is_closed = Arc::new(AtomicBool::new(false));
        let stream = argument.lend(py, device_id, Some(Arc::clone(&is_closed)))?;
        Ok(Self {
            stream: ManuallyDrop::new(stream),
            owned: ManuallyDrop::new(None),
            is_closed,
        })
    }

    /// The stream, to be named to the device layer.
    pub(crate) fn stream(&self) -> &CoreStream {
        &self.stream
    }

    fn dependency(&self) -> Dependency {
        Dependency::Stream(self.stream().clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: taken here only, and not used again.
        let stream = unsafe { ManuallyDrop::take(&mut self.stream) };
        // SAFETY: as above.
        let owned = unsafe { ManuallyDrop::take(&mut self.owned) };
        if owned.is_some() {
            // The last holder has the driver end the stream.
            drop_detached((stream, owned));
        }
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.stream() == other.stream()
    }
}

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.stream.context(), self.stream.number()).hash(state);
    }
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (stream=None, *, device=None))]
    fn new<'py>(
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        device: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let named = stream.map(StreamArgument::new).transpose()?;
        let device_id = match (device, &named) {
            (None, Some(named)) => named.find_device(py)?,
            _ => super::device_argument(device)?,
        };
        if let Some(named) = named {
            return Self::lend(py, named, device_id);
        }
        let owned = detached(py, || CudaStream::new(device_id)).or_raise()?;
        Ok(Self {
            stream: ManuallyDrop::new(owned.stream().clone()),
            owned: ManuallyDrop::new(Some(owned)),
            is_closed: Arc::default(),
        })
    }

    /// The device that the stream is of.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<Device>> {
        super::device_object(py, self.stream.device_id())
    }

    /// The driver's handle; 1 for the legacy default stream, 2 for the per-thread default.
    #[getter]
    fn handle(&self) -> usize {
        self.stream.number().get()
    }

    /// Whether `Stream()` made it, and not another library.
    #[getter]
    fn is_owned(&self) -> bool {
        self.owned.is_some()
    }

    /// Whether `close` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.stream.is_closed()
    }

    /// Version 0 of CUDA's stream protocol: (0, handle).
    #[pyo3(name = "__cuda_stream__")]
    fn cuda_stream(&self) -> (u32, usize) {
        (0, self.handle())
    }

    /// Blocks until everything queued on the stream by now is done.
    ///
    /// Raises DeviceError for a stream that is closed or being captured, and for what the driver says.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let dependency = self.dependency();
        detached(py, || LAYER.wait(&[&dependency])).or_raise()
    }

    /// Nothing is queued on it any more: naming it raises DeviceError from now on. What is queued is
    /// still done, and another library's stream stays as it is.
    fn close(&self) {
        match &*self.owned {
            Some(owned) => owned.close(),
            None => self.is_closed.store(true, Ordering::Release),
        }
    }

    fn __enter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        CURRENT.open(this.as_any())?;
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(this: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if CURRENT.close(this.as_any())? {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "the stream was not entered in this context: `with stream:` is left in the thread or task that entered it",
        ))
    }

    fn __repr__(&self) -> String {
        let number = self.stream.number();
        let number = if number <= CoreStream::PER_THREAD {
            number.to_string()
        } else {
            format!("{number:#x}")
        };
        let closed = if self.is_closed() { ", closed" } else { "" };
        format!(
            "hurray.cuda.Stream({number}, device=cuda:{}{closed})",
            self.stream.device_id()
        )
    }
}
