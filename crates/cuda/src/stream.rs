//! Streams: the driver's two default ones, those of other libraries, and our own.

use std::fmt;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice, CUstream};
use hurray_core::{DeviceError, Stream, StreamObject};

use crate::context::{Current, Relaxed};
use crate::device::Device;
use crate::driver::{CallError, Code, Driver};
use crate::probe;

/// `CU_STREAM_NON_BLOCKING`: it does not wait for the legacy stream, nor that for it.
const NON_BLOCKING: u32 = 1;

/// The id of the two default streams, which their number and context tell apart.
const DEFAULT: u64 = 0;

/// The driver's handle. The two special numbers are the driver's own for these streams (`CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`).
pub(crate) fn handle(stream: &Stream) -> CUstream {
    stream.number().get() as CUstream
}

/// The legacy default stream of the same context.
pub(crate) fn legacy_of(stream: &Stream) -> Stream {
    // SAFETY: the context is a stream's and so lives for good, and every context has a legacy stream, as long as it lives.
    unsafe {
        Stream::from_parts(
            stream.device_id(),
            stream.context(),
            Stream::LEGACY,
            DEFAULT,
            None,
        )
    }
}

/// That nothing was closed before it is used.
pub(crate) fn require_open(stream: &Stream) -> Result<(), DeviceError> {
    if stream.is_closed() {
        return Err(DeviceError::Closed { object: "stream" });
    }
    Ok(())
}

/// A stream of another library, or a default one.
///
/// # Safety
/// As [`hurray_core::DeviceLayer::stream`].
pub(crate) unsafe fn named(
    device_id: u32,
    number: NonZeroUsize,
    object: Option<Arc<dyn StreamObject>>,
) -> Result<Stream, DeviceError> {
    let device = Device::get(device_id)?;
    let (mut context, mut id) = (device.context(), DEFAULT);
    if number != Stream::LEGACY && number != Stream::PER_THREAD {
        let driver = device.driver();
        let found = home(driver, number).map_err(|failed| driver.error(failed))?;
        context = found.0;
        id = identify(driver, number).map_err(|failed| driver.error(failed))?;
        if u32::try_from(found.1) != Ok(device_id) {
            return Err(DeviceError::OtherDevice {
                bytes: device_id,
                stream: found.1.cast_unsigned(),
            });
        }
    }
    // SAFETY: the context is a live stream's or the device's primary one, which is never given back; the rest is the caller's word.
    Ok(unsafe { Stream::from_parts(device_id, context, number, id, object) })
}

/// The context of a stream, and that context's device.
fn home(driver: &Driver, number: NonZeroUsize) -> Result<(usize, CUdevice), CallError> {
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: the caller's number is a live stream's, and the out pointer is valid.
    unsafe { driver.cuStreamGetCtx(number.get() as CUstream, &raw mut context) }?;
    let _current = Current::enter(driver, context.addr())?;
    let mut device = 0;
    // SAFETY: the out pointer is valid.
    unsafe { driver.cuCtxGetDevice(&raw mut device) }?;
    Ok((context.addr(), device))
}

/// What the driver calls a stream, and never another one.
fn identify(driver: &Driver, number: NonZeroUsize) -> Result<u64, CallError> {
    let mut id = 0;
    // SAFETY: the number is a live stream's, and the out pointer is valid.
    unsafe { driver.cuStreamGetId(number.get() as CUstream, &raw mut id) }?;
    Ok(id)
}

/// A stream of our own: non-blocking, and destroyed when nothing names it any more, closed or not. Work that is queued then is still done.
pub struct CudaStream {
    owned: Arc<Owned>,
    stream: Stream,
}

impl CudaStream {
    /// A new stream of device `device_id`.
    ///
    /// # Errors
    /// No such device, or what the driver says.
    pub fn new(device_id: u32) -> Result<Self, DeviceError> {
        let device = Device::get(device_id)?;
        let driver = device.driver();
        let call = |failed| driver.error(failed);
        let handle = create(driver, device.context()).map_err(call)?;
        let owned = Arc::new(Owned {
            driver,
            handle,
            is_closed: AtomicBool::new(false),
        });
        let id = identify(driver, handle).map_err(call)?;
        let object: Arc<dyn StreamObject> = Arc::clone(&owned) as _;
        // SAFETY: the primary context is never given back, and the stream lives as long as its object.
        let stream =
            unsafe { Stream::from_parts(device_id, device.context(), handle, id, Some(object)) };
        Ok(Self { owned, stream })
    }

    /// The stream, to be named to the layer.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Nothing is queued on it any more: naming it is an error from now on. What is queued is still done.
    pub fn close(&self) {
        self.owned.is_closed.store(true, Ordering::Release);
    }
}

impl fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

/// A new stream's handle.
fn create(driver: &Driver, context: usize) -> Result<NonZeroUsize, CallError> {
    let _current = Current::enter(driver, context)?;
    let _relaxed = Relaxed::enter(driver)?;
    let mut stream: CUstream = ptr::null_mut();
    // SAFETY: the out pointer is valid.
    unsafe { driver.cuStreamCreate(&raw mut stream, NON_BLOCKING) }?;
    NonZeroUsize::new(stream.addr()).ok_or(CallError {
        operation: "cuStreamCreate",
        code: Code::INVALID_HANDLE,
    })
}

/// What is destroyed with the last holder.
struct Owned {
    driver: &'static Driver,
    handle: NonZeroUsize,
    is_closed: AtomicBool,
}

impl StreamObject for Owned {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if probe::is_this_process() {
            // SAFETY: `create` made it, and nobody holds it any more. The driver finishes what is queued first, without blocking.
            // Failing, there is nobody to tell.
            let _: Result<(), CallError> = unsafe {
                self.driver
                    .cuStreamDestroy_v2(self.handle.get() as CUstream)
            };
        }
    }
}
