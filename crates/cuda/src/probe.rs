//! Whether there is a driver to speak to, found out once.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys;
use hurray_core::DeviceError;

use crate::driver::{CallError, Code, Driver};

/// The process that initialised the driver; 0 while none has. Only that process may use it: a fork copies the memory and not the driver's threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A driver that has started.
struct Probed {
    driver: Driver,
    device_count: u32,
}

/// The driver, or the sentence that says why there is none.
static PROBED: OnceLock<Result<Probed, String>> = OnceLock::new();

/// Whether this process may call the driver and let go of what belongs to it. Asked before any lock is taken: in a forked child a lock may be held by a
/// thread that is not there.
pub(crate) fn is_this_process() -> bool {
    matches!(PROCESS.load(Ordering::Relaxed), 0) || PROCESS.load(Ordering::Relaxed) == process::id()
}

/// The driver, initialised by the first call. Never panics.
///
/// # Errors
/// Why there is none, as a sentence; the same one at every call.
pub(crate) fn driver() -> Result<&'static Driver, DeviceError> {
    probed().map(|probed| &probed.driver)
}

/// How many devices there are, at least one.
///
/// # Errors
/// As [`driver`].
pub(crate) fn device_count() -> Result<u32, DeviceError> {
    probed().map(|probed| probed.device_count)
}

fn probed() -> Result<&'static Probed, DeviceError> {
    if !is_this_process() {
        return Err(DeviceError::Forked);
    }
    // Two threads may both probe; the driver does not mind, and nobody waits under a lock.
    let probed = match PROBED.get() {
        Some(probed) => probed,
        None => {
            let found = probe();
            PROBED.get_or_init(|| found)
        }
    };
    probed.as_ref().map_err(|reason| DeviceError::Unavailable {
        reason: reason.clone(),
    })
}

fn probe() -> Result<Probed, String> {
    // SAFETY: loads and unloads the driver's library, whose initialisers may run at any time.
    if !unsafe { sys::is_culib_present() } {
        return Err(
            "no CUDA driver: the library libcuda.so is not installed, or not where the loader looks (LD_LIBRARY_PATH)"
                .into(),
        );
    }
    let driver = Driver::load().map_err(|symbol| {
        format!(
            "the CUDA driver is too old: it has no {symbol}; drivers for CUDA 12.3 and newer do"
        )
    })?;
    PROCESS.store(process::id(), Ordering::Relaxed);
    match start(&driver) {
        Ok(device_count) => Ok(Probed {
            driver,
            device_count,
        }),
        Err(CallError { code: Code::NO_DEVICE, .. }) => Err(
            "the CUDA driver finds no device: none is installed, or CUDA_VISIBLE_DEVICES hides them all".into(),
        ),
        Err(CallError { operation, code }) => Err(format!(
            "the CUDA driver does not start: {operation} answers {}",
            driver.name(code)
        )),
    }
}

/// Starts the driver; how many devices there are then, at least one.
fn start(driver: &Driver) -> Result<u32, CallError> {
    // SAFETY: 0 is the one value allowed for the flags.
    unsafe { driver.cuInit(0) }?;
    let mut count = 0;
    // SAFETY: the out pointer is valid, and the driver is initialised.
    unsafe { driver.cuDeviceGetCount(&raw mut count) }?;
    u32::try_from(count)
        .ok()
        .filter(|count| *count > 0)
        .ok_or(CallError {
            operation: "cuDeviceGetCount",
            code: Code::NO_DEVICE,
        })
}
