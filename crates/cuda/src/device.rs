//! Devices and their primary contexts, the ones that PyTorch and CuPy use too.

use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUcontext, CUdevice};
use hurray_core::DeviceError;

use crate::context::{Current, Relaxed};
use crate::driver::{CallError, Driver};
use crate::memory::Pool;
use crate::pinned_ring::PinnedRings;
use crate::release_lane::ReleaseLanes;
use crate::{probe, release};

/// A device in use: its primary context is retained for the life of the process.
pub(crate) struct Device {
    driver: &'static Driver,
    id: u32,
    ordinal: CUdevice,
    context: usize,
    /// `None` where the device has no stream-ordered pools.
    pub(crate) pool: Option<Pool>,
    pub(crate) rings: PinnedRings,
    pub(crate) lanes: ReleaseLanes,
}

/// Runs `work` with device `device_id` current to the calling thread, as libraries expect of whoever asks them for that device's memory; the one that was
/// current is again afterwards.
///
/// # Errors
/// No such device, or what the driver says; `work` has not run.
pub fn on_device<T>(device_id: u32, work: impl FnOnce() -> T) -> Result<T, DeviceError> {
    let device = Device::get(device_id)?;
    let driver = device.driver();
    let _current =
        Current::enter(driver, device.context()).map_err(|failed| driver.error(failed))?;
    Ok(work())
}

/// One cell per device.
static DEVICES: OnceLock<Vec<OnceLock<Device>>> = OnceLock::new();

impl Device {
    /// Device `id`, whose primary context is retained by the first call.
    pub(crate) fn get(id: u32) -> Result<&'static Self, DeviceError> {
        let driver = probe::driver()?;
        let count = probe::device_count()?;
        let devices =
            DEVICES.get_or_init(|| (0..count).map(|_| OnceLock::new()).collect::<Vec<_>>());
        let cell = usize::try_from(id)
            .ok()
            .and_then(|index| devices.get(index))
            .ok_or(DeviceError::NoDevice {
                device_id: id,
                count,
            })?;
        if let Some(device) = cell.get() {
            return Ok(device);
        }
        release::start()?;
        let device = Self::open(driver, id).map_err(|failed| driver.error(failed))?;
        // Of two threads that open it at the same moment one is too late; its references are given back.
        if let Err(late) = cell.set(device) {
            late.close();
        }
        cell.get().ok_or(DeviceError::NoDevice {
            device_id: id,
            count,
        })
    }

    /// Those in use.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        DEVICES
            .get()
            .into_iter()
            .flatten()
            .filter_map(OnceLock::get)
    }

    pub(crate) fn driver(&self) -> &'static Driver {
        self.driver
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The primary context.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    fn open(driver: &'static Driver, id: u32) -> Result<Self, CallError> {
        let _relaxed = Relaxed::enter(driver)?;
        let mut device: CUdevice = 0;
        // SAFETY: the out pointer is valid.
        unsafe { driver.cuDeviceGet(&raw mut device, id.cast_signed()) }?;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the out pointer is valid, and the device is the driver's.
        unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut context, device) }?;
        let pool = match Pool::create(driver, device) {
            Ok(pool) => pool,
            Err(failed) => {
                release_context(driver, device);
                return Err(failed);
            }
        };
        Ok(Self {
            driver,
            id,
            ordinal: device,
            context: context.addr(),
            pool,
            rings: PinnedRings::new(),
            lanes: ReleaseLanes::new(),
        })
    }

    /// Gives back what [`open`](Self::open) took.
    fn close(self) {
        if let Some(pool) = self.pool {
            pool.destroy(self.driver);
        }
        release_context(self.driver, self.ordinal);
    }
}

fn release_context(driver: &Driver, device: CUdevice) {
    // SAFETY: `open` retained it. Failing, it stays retained, as it would otherwise.
    let _: Result<(), CallError> = unsafe { driver.cuDevicePrimaryCtxRelease_v2(device) };
}
