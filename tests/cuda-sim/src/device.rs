//! Devices, and the calls that need no context.

use std::ffi::{c_char, c_int, c_uint};
use std::fmt::Write as _;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUmemoryPool, CUresult, CUuuid,
};

use crate::driver::{self, Driver};
use crate::entry::{Out, entry};

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    /// The primary context; null while nobody retains it.
    pub(crate) primary: CUcontext,
    pub(crate) primary_count: usize,
    /// The pool that the device has from the start; null where it has none.
    pub(crate) default_pool: CUmemoryPool,
    /// The pool that `cuMemAllocAsync` takes from.
    pub(crate) pool: CUmemoryPool,
    /// Bytes of memory.
    pub(crate) total: usize,
    /// Bytes taken, the idle bytes of pools among them.
    pub(crate) taken: usize,
    pub(crate) peak: usize,
}

impl Driver {
    /// A device's place in the list, from its ordinal.
    pub(crate) fn device(&self, ordinal: CUdevice) -> Result<usize, CUresult> {
        let index = usize::try_from(ordinal).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        if index < self.devices.len() {
            Ok(index)
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
        }
    }

    pub(crate) fn device_at(&self, index: usize) -> Result<&Device, CUresult> {
        self.devices
            .get(index)
            .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    pub(crate) fn device_at_mut(&mut self, index: usize) -> Result<&mut Device, CUresult> {
        self.devices
            .get_mut(index)
            .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }
}

entry! {
    fn cuInit(Flags: c_uint) |call| {
        if Flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if call.config.devices == 0 {
            return Err(CUresult::CUDA_ERROR_NO_DEVICE);
        }
        if !call.initialised {
            call.initialised = true;
            driver::claim_process();
            crate::fault::watch();
            for index in 0..call.config.devices as usize {
                let total = call.config.memory;
                let null = std::ptr::null_mut();
                call.devices.push(Device { primary: std::ptr::null_mut(), primary_count: 0, default_pool: null, pool: null, total, taken: 0, peak: 0 });
                if call.config.pools {
                    let pool = call.create_pool(index);
                    let device = call.device_at_mut(index)?;
                    device.default_pool = pool;
                    device.pool = pool;
                }
            }
        }
        Ok(())
    }
    fn cuDriverGetVersion(driverVersion: Out<c_int>) |call| {
        driverVersion.set(call.config.version)
    }
    fn cuDeviceGetCount(count: Out<c_int>) |call| {
        count.set(call.devices.len() as c_int)
    }
    fn cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) |call| {
        device.set(call.device(ordinal)? as CUdevice)
    }
    fn cuDeviceGetName(name: Out<c_char>, len: c_int, dev: CUdevice) |call| {
        let index = call.device(dev)?;
        let mut text = String::new();
        let _ = write!(text, "Simulated device {index}");
        let room = usize::try_from(len).ok().and_then(|len| len.checked_sub(1)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        for (at, byte) in text.bytes().take(room).chain([0]).enumerate() {
            name.set_at(at, byte as c_char)?;
        }
        Ok(())
    }
    fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, dev: CUdevice) |call| {
        let index = call.device(dev)?;
        let mut bytes = [0; 16];
        bytes[15] = index as c_char;
        uuid.set(CUuuid { bytes })
    }
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, dev: CUdevice) |call| {
        let index = call.device(dev)?;
        bytes.set(call.device_at(index)?.total)
    }
    fn cuDeviceGetAttribute(pi: Out<c_int>, attrib: CUdevice_attribute, dev: CUdevice) |call| {
        use CUdevice_attribute as A;
        let index = call.device(dev)?;
        pi.set(match attrib {
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
            A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => 1024,
            A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
            A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 4,
            A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 2,
            A::CU_DEVICE_ATTRIBUTE_MAX_PITCH | A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => c_int::MAX,
            A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => c_int::from(call.config.pools),
            A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => index as c_int,
            A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
            | A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
            | A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
            | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
            | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
            | A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
            | A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
            | A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 1,
            _ => 0,
        })
    }
    fn cuDeviceCanAccessPeer(canAccessPeer: Out<c_int>, dev: CUdevice, peerDev: CUdevice) |call| {
        let (device, peer) = (call.device(dev)?, call.device(peerDev)?);
        canAccessPeer.set(c_int::from(call.config.peer && device != peer))
    }
    fn cuDeviceGetP2PAttribute(value: Out<c_int>, attrib: CUdevice_P2PAttribute, srcDevice: CUdevice, dstDevice: CUdevice) |call| {
        let (source, target) = (call.device(srcDevice)?, call.device(dstDevice)?);
        if source == target {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        let access = attrib == CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
        value.set(c_int::from(access && call.config.peer))
    }
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |call| {
        let index = call.current_device()?;
        let device = call.device_at(index)?;
        free.set(device.total.saturating_sub(device.taken))?;
        total.set(device.total)
    }
}
