//! The `stream=` argument, everywhere: what may name a stream, and which one it names.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hurray_core::{DeviceError, DeviceLayer, Stream as CoreStream, StreamObject};
use hurray_cuda::LAYER;
use hurray_ffi::{Owner, Place};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use super::stream::Stream;
use crate::errors::{OrRaise, UnsupportedError};
use crate::owner::{calling, detached, keep};

/// What every refusal says.
const STREAMS: &str = "1 is the legacy default stream, 2 the per-thread default, larger numbers are handles; \
                       a stream object (of hurray.cuda, torch, cupy or numba, or with __cuda_stream__) says which it is";

/// A stream that an argument names. Making one asks no driver.
pub(crate) enum StreamArgument<'py> {
    /// A stream of `hurray.cuda`.
    Ours(Bound<'py, Stream>),
    /// A number, as the array API standard has them.
    Number(NonZeroUsize),
    /// Another library's stream.
    Object {
        /// What keeps it alive.
        object: Bound<'py, PyAny>,
        number: NonZeroUsize,
        /// The device that it says it is of.
        device_id: Option<u32>,
    },
}

impl<'py> StreamArgument<'py> {
    /// What `stream` names; `None` where it is -1, which asks for no order.
    ///
    /// # Errors
    /// `ValueError` for 0, a bool or a number below -1; `TypeError` for what is neither a number nor a stream object; what the object raises.
    pub(crate) fn or_none(stream: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let invalid =
            || PyValueError::new_err(format!("stream {stream} names no stream: {STREAMS}"));
        if let Ok(stream) = stream.cast::<Stream>() {
            return Ok(Some(Self::Ours(stream.clone())));
        }
        if stream.is_instance_of::<PyBool>() {
            return Err(invalid());
        }
        match stream.extract::<i128>() {
            Ok(number) => {
                return match usize::try_from(number).map(NonZeroUsize::new) {
                    Ok(Some(number)) => Ok(Some(Self::Number(number))),
                    _ if number == -1 => Ok(None),
                    _ => Err(invalid()),
                };
            }
            // More bits than any handle has.
            Err(_) if stream.is_instance_of::<PyInt>() => return Err(invalid()),
            Err(_) => {}
        }
        match handle(stream)? {
            Some(handle) => Ok(Some(Self::Object {
                number: NonZeroUsize::new(handle).unwrap_or(CoreStream::LEGACY),
                device_id: device_id(stream)?,
                object: stream.clone(),
            })),
            None => Err(PyTypeError::new_err(format!(
                "stream is an int or a stream object, not {}; {STREAMS}",
                stream.get_type().name()?
            ))),
        }
    }

    /// What `stream` names, where it must name one.
    ///
    /// # Errors
    /// As [`or_none`](Self::or_none), and `ValueError` for -1.
    pub(crate) fn new(stream: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::or_none(stream)?.ok_or_else(|| {
            PyValueError::new_err(format!("stream -1 names no stream here: {STREAMS}"))
        })
    }

    /// The number, as the driver and `__dlpack__` have it.
    pub(crate) fn number(&self) -> NonZeroUsize {
        match self {
            Self::Ours(stream) => stream.get().stream().number(),
            Self::Number(number) | Self::Object { number, .. } => *number,
        }
    }

    /// The device that the stream is known to be of; numbers say none.
    pub(super) fn device_id(&self) -> Option<u32> {
        match self {
            Self::Ours(stream) => Some(stream.get().stream().device_id()),
            Self::Number(_) => None,
            Self::Object { device_id, .. } => *device_id,
        }
    }

    /// The stream, of device `device_id`. An object is kept alive while the stream is in use; a number must stay valid until then.
    ///
    /// # Errors
    /// `DeviceError` where there is no such device, or the stream is of another one.
    pub(crate) fn of_device(self, py: Python<'py>, device_id: u32) -> PyResult<CoreStream> {
        match self {
            Self::Ours(stream) => {
                let stream = stream.get().stream().clone();
                stream.require_device(device_id).or_raise()?;
                Ok(stream)
            }
            foreign => foreign.lend(py, device_id, None),
        }
    }

    /// The stream, for work on bytes at `place`: of the device that has them, or, where it is the host's memory that devices reach, of whichever device it
    /// is of.
    ///
    /// # Errors
    /// As [`of_device`](Self::of_device).
    pub(crate) fn for_memory(self, py: Python<'py>, place: Place) -> PyResult<CoreStream> {
        if place.is_host_accessible() {
            let device_id = self.find_device(py)?;
            self.of_device(py, device_id)
        } else {
            self.of_device(py, place.device_id)
        }
    }

    /// The device that the stream is of: what it says, or what the driver says of a handle; device 0 where nobody knows.
    ///
    /// # Errors
    /// `DeviceError` where there is no device.
    pub(super) fn find_device(&self, py: Python<'py>) -> PyResult<u32> {
        if let Some(device_id) = self.device_id() {
            return Ok(device_id);
        }
        let number = self.number();
        // SAFETY: the number is 1, 2 or a live stream's, and the stream is not used.
        match detached(py, || unsafe { LAYER.stream(0, number, None) }.map(|_| ())) {
            Ok(()) => Ok(0),
            Err(DeviceError::OtherDevice { stream, .. }) => Ok(stream),
            Err(error) => Err(error).or_raise(),
        }
    }

    /// The stream of another library, behind an object that can be closed.
    pub(super) fn lend(
        self,
        py: Python<'py>,
        device_id: u32,
        is_closed: Option<Arc<AtomicBool>>,
    ) -> PyResult<CoreStream> {
        if let Some(stream) = self.device_id().filter(|own| *own != device_id) {
            let bytes = device_id;
            return Err(DeviceError::OtherDevice { bytes, stream }).or_raise();
        }
        let number = self.number();
        let kept = match &self {
            Self::Ours(stream) => Some(keep(stream.as_any())),
            Self::Number(_) => None,
            Self::Object { object, .. } => Some(keep(object)),
        };
        let inner = match &self {
            Self::Ours(stream) => Some(stream.get().stream().clone()),
            _ => None,
        };
        let object = (kept.is_some() || is_closed.is_some()).then(|| {
            Arc::new(Lent {
                inner,
                _kept: kept,
                is_closed,
            }) as Arc<dyn StreamObject>
        });
        let named = detached(py, || {
            // SAFETY: the number is 1, 2 or what a stream's object gave, which is kept; a bare handle is valid by the caller's word, as documented.
            unsafe { LAYER.stream(device_id, number, object) }
        });
        named.or_raise()
    }
}

/// What stands behind another library's stream.
struct Lent {
    /// A stream of ours that is wrapped once more.
    inner: Option<CoreStream>,
    /// Its object, let go attached.
    _kept: Option<Owner>,
    /// Set by the wrapper's `close`.
    is_closed: Option<Arc<AtomicBool>>,
}

impl StreamObject for Lent {
    fn is_closed(&self) -> bool {
        let own = self.is_closed.as_ref();
        own.is_some_and(|closed| closed.load(Ordering::Acquire))
            || self.inner.as_ref().is_some_and(CoreStream::is_closed)
    }
}

/// The handle that a stream object gives; `None` for what is no stream object. The default stream of torch and CuPy is 0.
fn handle(stream: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let py = stream.py();
    if let Some(method) = stream.getattr_opt(intern!(py, "__cuda_stream__"))? {
        // CuPy and cuda-python have it as a method, drafts of the protocol had it as a property.
        let answer = if method.is_callable() {
            calling(py, || method.call0())?
        } else {
            method
        };
        let (version, handle): (i64, usize) = answer.extract().map_err(|_| {
            PyTypeError::new_err(format!(
                "__cuda_stream__ must give (version, handle), not {answer}"
            ))
        })?;
        if version != 0 {
            return Err(UnsupportedError::new_err(format!(
                "__cuda_stream__ answers in version {version} of its protocol; this library reads 0"
            )));
        }
        return Ok(Some(handle));
    }
    if !stream.hasattr(intern!(py, "synchronize"))? {
        return Ok(None);
    }
    // torch, CuPy, numba.
    for attribute in [
        intern!(py, "cuda_stream"),
        intern!(py, "ptr"),
        intern!(py, "handle"),
    ] {
        let Some(handle) = stream.getattr_opt(attribute)? else {
            continue;
        };
        // numba's is a `ctypes.c_void_p`, whose NULL is None.
        let handle = match handle.getattr_opt(intern!(py, "value"))? {
            Some(value) if value.is_none() => return Ok(Some(0)),
            Some(value) => value,
            None => handle,
        };
        if let Ok(handle) = handle.extract() {
            return Ok(Some(handle));
        }
    }
    Ok(None)
}

/// The device that a stream object says it is of: torch's do, and CuPy's but the default ones.
fn device_id(stream: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let py = stream.py();
    for attribute in [intern!(py, "device_index"), intern!(py, "device_id")] {
        if let Some(number) = stream.getattr_opt(attribute)? {
            return Ok(number.extract().ok());
        }
    }
    Ok(None)
}
