//! Memory of our own: from a pool that is stream-ordered, plain, pinned and managed.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{
    CUdevice, CUdevice_attribute, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocation_st__bindgen_ty_1, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool,
};
use hurray_core::memory::declared_alignment;
use hurray_core::{Allocation, AllocationRequest, DeviceError, MemoryClass, Stream};

use crate::calls::DriverCalls;
use crate::capture::Capture;
use crate::context::{Current, Relaxed};
use crate::device::Device;
use crate::driver::{CallError, Code, Driver};
use crate::owner::{Held, Owned};
use crate::reclaimer::Waits;
use crate::release::PoolStatistics;
use crate::{order, probe, release, stream};

/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for every context.
const PORTABLE: u32 = 1;
/// `CU_MEM_ATTACH_GLOBAL`: any stream of any device may use it.
const ATTACH_GLOBAL: u32 = 1;
/// Unused bytes that the pool keeps: all, since getting them from the driver again would block. `empty_cache` gives them back.
const RELEASE_THRESHOLD: u64 = u64::MAX;

/// A stream-ordered pool of one device.
pub(crate) struct Pool(CUmemoryPool);

// SAFETY: a pool is a handle that the driver lets any thread use.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool of our own; `None` where the device has none.
    pub(crate) fn create(driver: &Driver, device: CUdevice) -> Result<Option<Self>, CallError> {
        let mut supported = 0;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        // SAFETY: the out pointer is valid, and the device is the driver's.
        unsafe { driver.cuDeviceGetAttribute(&raw mut supported, attribute, device) }?;
        if supported == 0 {
            return Ok(None);
        }
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: device },
            },
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            gpuDirectRDMACapable: 0,
            reserved: [0; 53],
        };
        let mut pool: CUmemoryPool = ptr::null_mut();
        // SAFETY: both pointers are valid.
        unsafe { driver.cuMemPoolCreate(&raw mut pool, &raw const properties) }?;
        let pool = Self(pool);
        let mut threshold = RELEASE_THRESHOLD;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value = (&raw mut threshold).cast::<c_void>();
        // SAFETY: the pool is live, and the attribute is 64 bits wide.
        let set = unsafe { driver.cuMemPoolSetAttribute(pool.0, attribute, value) };
        if let Err(failed) = set {
            pool.destroy(driver);
            return Err(failed);
        }
        Ok(Some(pool))
    }

    /// How much of the device's memory it has.
    pub(crate) fn statistics(&self, device: &Device) -> Result<PoolStatistics, CallError> {
        let driver = device.driver();
        let _relaxed = Relaxed::enter(driver)?;
        let read = |attribute| {
            let mut value = 0_u64;
            let out = (&raw mut value).cast::<c_void>();
            // SAFETY: the pool is live, and the attribute is 64 bits wide.
            unsafe { driver.cuMemPoolGetAttribute(self.0, attribute, out) }.map(|()| value)
        };
        Ok(PoolStatistics {
            device_id: device.id(),
            used: read(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            reserved: read(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
        })
    }

    /// Ends a pool that nothing was allocated from.
    pub(crate) fn destroy(self, driver: &Driver) {
        // SAFETY: the pool is live and given up. Failing, there is nobody to tell.
        let _: Result<(), CallError> = unsafe { driver.cuMemPoolDestroy(self.0) };
    }

    /// Gives unused memory back to the device.
    pub(crate) fn trim(&self, driver: &Driver) {
        let Ok(_relaxed) = Relaxed::enter(driver) else {
            return;
        };
        // SAFETY: the pool is live. Failing, it keeps its memory.
        let _: Result<(), CallError> = unsafe { driver.cuMemPoolTrimTo(self.0, 0) };
    }
}

/// As [`hurray_core::DeviceLayer::allocate`].
pub(crate) fn allocate(
    request: AllocationRequest,
    stream: &Stream,
) -> Result<Allocation, DeviceError> {
    let AllocationRequest {
        device_id,
        len,
        memory_class,
        shareable,
    } = request;
    stream::require_open(stream)?;
    let device = Device::get(device_id)?;
    if len == 0 {
        return Ok(Allocation {
            address: 0,
            len,
            alignment: 1,
            dependency: None,
            owner: Box::new(Owned::new(Held::Foreign(Box::new(())))),
        });
    }
    let failed = |failed| out_of_memory(device, len, failed);
    let (address, owner, dependency) = match memory_class {
        MemoryClass::Standard => {
            stream.require_device(device_id)?;
            let (address, held) = match &device.pool {
                Some(pool) if !shareable => {
                    let address = from_pool(device, pool, len, stream)?;
                    (address, Held::Pool(PoolBlock { device, address }))
                }
                _ => {
                    let address = plain(device, len).map_err(failed)?;
                    (address, Held::Driver(DriverBlock::device(device, address)))
                }
            };
            // From here on the owner frees it, should the event fail.
            let owner = Owned::allocated(held, stream);
            (address, owner, Some(order::after(stream)?))
        }
        MemoryClass::HostPinned => {
            let address = pinned(device, len).map_err(failed)?;
            let block = DriverBlock::pinned(device, address);
            (address, Owned::new(Held::Driver(block)), None)
        }
        MemoryClass::Unified => {
            let address = managed(device, len).map_err(failed)?;
            let block = DriverBlock::device(device, address);
            (address, Owned::new(Held::Driver(block)), None)
        }
        memory_class => return Err(DeviceError::NoSuchMemory { memory_class }),
    };
    Ok(Allocation {
        address,
        len,
        alignment: declared_alignment(address, len),
        dependency,
        owner: Box::new(owner),
    })
}

fn from_pool(
    device: &Device,
    pool: &Pool,
    len: usize,
    stream: &Stream,
) -> Result<usize, DeviceError> {
    let driver = device.driver();
    let call = |failed| driver.error(failed);
    let _current = Current::enter(driver, device.context()).map_err(call)?;
    // Memory that is allocated in a capture belongs to the graph.
    if Capture::of(driver, stream).map_err(call)? != Capture::None {
        return Err(DeviceError::Capturing {
            operation: "allocating device memory",
        });
    }
    let mut address = 0;
    // SAFETY: the out pointer is valid; pool and stream are live.
    unsafe {
        driver.cuMemAllocFromPoolAsync(&raw mut address, len, pool.0, stream::handle(stream))
    }
    .map_err(|failed| out_of_memory(device, len, failed))?;
    Ok(address as usize)
}

/// Device memory that is in no pool. What the pool holds unused may be what is missing.
fn plain(device: &Device, len: usize) -> Result<usize, CallError> {
    let driver = device.driver();
    let _current = Current::enter(driver, device.context())?;
    let _relaxed = Relaxed::enter(driver)?;
    let mut address = 0;
    // SAFETY: the out pointer is valid.
    let mut answer = unsafe { driver.cuMemAlloc_v2(&raw mut address, len) };
    if let (Err(failed), Some(pool)) = (answer, &device.pool)
        && failed.code == Code::OUT_OF_MEMORY
    {
        pool.trim(driver);
        // SAFETY: as above.
        answer = unsafe { driver.cuMemAlloc_v2(&raw mut address, len) };
    }
    answer.map(|()| address as usize)
}

/// Page-locked host memory.
pub(crate) fn pinned(device: &Device, len: usize) -> Result<usize, CallError> {
    let driver = device.driver();
    let _current = Current::enter(driver, device.context())?;
    let _relaxed = Relaxed::enter(driver)?;
    let mut address = ptr::null_mut();
    // SAFETY: the out pointer is valid.
    unsafe { driver.cuMemHostAlloc(&raw mut address, len, PORTABLE) }?;
    Ok(address.expose_provenance())
}

/// Memory that moves between host and device.
fn managed(device: &Device, len: usize) -> Result<usize, CallError> {
    let driver = device.driver();
    let _current = Current::enter(driver, device.context())?;
    let _relaxed = Relaxed::enter(driver)?;
    let mut address = 0;
    // SAFETY: the out pointer is valid.
    unsafe { driver.cuMemAllocManaged(&raw mut address, len, ATTACH_GLOBAL) }?;
    Ok(address as usize)
}

/// The failure, with the sizes where the device is exhausted.
fn out_of_memory(device: &Device, requested: usize, failed: CallError) -> DeviceError {
    let driver = device.driver();
    if failed.code != Code::OUT_OF_MEMORY {
        return driver.error(failed);
    }
    let (mut free, mut total) = (0, 0);
    if let Ok(_current) = Current::enter(driver, device.context()) {
        // SAFETY: both out pointers are valid. Failing, the sizes say 0.
        let _: Result<(), CallError> =
            unsafe { driver.cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    }
    DeviceError::OutOfMemory {
        operation: failed.operation,
        name: driver.name(failed.code),
        requested,
        free,
        total,
        device_id: device.id(),
    }
}

/// Memory of the device's pool.
pub(crate) struct PoolBlock {
    device: &'static Device,
    address: usize,
}

impl PoolBlock {
    /// Which device has it.
    pub(crate) fn device(&self) -> &'static Device {
        self.device
    }

    /// Frees it after what is queued on `stream`, which is ordered after every use.
    pub(crate) fn free(self, stream: &Stream) -> Result<(), Self> {
        match self.queue_free(stream) {
            Ok(()) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(_) => Err(self),
        }
    }

    fn queue_free(&self, stream: &Stream) -> Result<(), CallError> {
        let driver = self.device.driver();
        let _current = Current::enter(driver, self.device.context())?;
        // SAFETY: the memory is this value's, allocated from a pool, freed once (`free` forgets the value), and every use of it is queued and
        // ordered before what is queued on the stream from now on.
        unsafe { driver.cuMemFreeAsync(self.address as u64, stream::handle(stream)) }
    }
}

/// For the reclaimer, once every use is done: no stream has to wait.
impl Drop for PoolBlock {
    fn drop(&mut self) {
        if !probe::is_this_process() {
            return;
        }
        let lane = self
            .device
            .lanes
            .get(self.device.id(), &Waits::<DriverCalls>::new());
        let is_freed = lane.is_ok_and(|lane| match self.queue_free(lane.stream.stream()) {
            Ok(()) => true,
            Err(failed) => failed.code.is_lost(),
        });
        if let (false, Some(reclaimer)) = (is_freed, release::reclaimer()) {
            reclaimer.keep(());
        }
    }
}

enum Block {
    Device(usize),
    Pinned(usize),
}

/// Memory that the driver frees at once and blocks for: the reclaimer drops it, once every use is done.
pub(crate) struct DriverBlock {
    driver: &'static Driver,
    context: usize,
    block: Block,
}

impl DriverBlock {
    /// Device memory of [`plain`] or [`managed`], given to nobody else.
    fn device(device: &Device, address: usize) -> Self {
        Self {
            driver: device.driver(),
            context: device.context(),
            block: Block::Device(address),
        }
    }

    /// Page-locked memory of [`pinned`], given to nobody else.
    pub(crate) fn pinned(device: &Device, address: usize) -> Self {
        Self {
            driver: device.driver(),
            context: device.context(),
            block: Block::Pinned(address),
        }
    }
}

impl Drop for DriverBlock {
    fn drop(&mut self) {
        if !probe::is_this_process() {
            return;
        }
        let freed = Current::enter(self.driver, self.context).and_then(|_current| {
            let _relaxed = Relaxed::enter(self.driver)?;
            match self.block {
                // SAFETY: the memory is this value's, and nothing uses it any more.
                Block::Device(address) => unsafe { self.driver.cuMemFree_v2(address as u64) },
                // SAFETY: as above.
                Block::Pinned(address) => unsafe {
                    self.driver
                        .cuMemFreeHost(ptr::with_exposed_provenance_mut(address))
                },
            }
        });
        // Freed it is not, and there is nobody to tell.
        if let (Err(failed), Some(reclaimer)) = (freed, release::reclaimer())
            && !failed.code.is_lost()
        {
            reclaimer.keep(());
        }
    }
}
