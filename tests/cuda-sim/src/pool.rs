//! Stream-ordered pools: allocation and free are operations of a stream.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};

use crate::clock::Epoch;
use crate::driver::Driver;
use crate::entry::{Call, In, Out, Outcome, entry};
use crate::memory::{Backing, Mapping, MappingKind};
use crate::queue::Work;
use crate::shadow::Access;
use crate::stream::StreamId;

/// Bytes that a pool's blocks are multiples of.
const BLOCK: usize = 512;

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    device: usize,
    /// Belongs to the device from the start, and can't be destroyed.
    default: bool,
    /// Idle bytes beyond it are given back at the next synchronisation.
    threshold: u64,
    /// Bytes taken from the device.
    reserved: usize,
    reserved_high: usize,
    /// Bytes allocated and not freed.
    used: usize,
    used_high: usize,
    /// Reserved bytes that nobody uses and no queued work can touch.
    idle: usize,
    /// Blocks whose free is queued: address, bytes left for others, the free's step.
    freeing: Vec<(u64, usize, Epoch)>,
    /// Devices that can reach the pool's memory, besides its own.
    pub(crate) access: BTreeSet<usize>,
    reuse: [i32; 3],
}

impl Driver {
    pub(crate) fn create_pool(&mut self, device: usize) -> CUmemoryPool {
        let pool = Pool {
            device,
            default: true,
            threshold: 0,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            idle: 0,
            freeing: Vec::new(),
            access: BTreeSet::new(),
            reuse: [1; 3],
        };
        self.pools.insert(pool)
    }

    /// A queued free of a pool's block has run.
    pub(crate) fn return_to_pool(&mut self, handle: CUmemoryPool, mapping: &Mapping) {
        let Ok(pool) = self.pools.get_mut(handle) else {
            // Destroyed meanwhile: its blocks live on until they are freed.
            return self.give_back(mapping.device, mapping.taken);
        };
        match pool
            .freeing
            .iter()
            .position(|&(address, _, _)| address == mapping.start)
        {
            Some(index) => pool.idle += pool.freeing.swap_remove(index).1,
            // Freed from the host, in no stream's order.
            None => {
                pool.used -= mapping.taken;
                pool.idle += mapping.taken;
            }
        }
    }

    /// Gives idle bytes beyond each pool's threshold back, as a synchronisation does.
    pub(crate) fn trim_pools(&mut self) {
        self.shrink_pools(|pool| usize::try_from(pool.threshold).unwrap_or(usize::MAX));
    }

    /// Gives all idle bytes back.
    pub(crate) fn empty_pools(&mut self) {
        self.shrink_pools(|_| 0);
    }

    fn shrink_pools(&mut self, keep: impl Fn(&Pool) -> usize) {
        let mut given = Vec::new();
        for pool in self.pools.iter_mut() {
            given.push((pool.device, pool.shrink(keep(pool))));
        }
        for (device, bytes) in given {
            self.give_back(device, bytes);
        }
    }
}

impl Pool {
    /// Gives idle bytes back until `keep` are reserved, and says how many.
    fn shrink(&mut self, keep: usize) -> usize {
        let bytes = self.reserved.saturating_sub(keep).min(self.idle);
        self.idle -= bytes;
        self.reserved -= bytes;
        bytes
    }
}

impl Call<'_> {
    fn pool(&mut self, handle: CUmemoryPool) -> Result<&mut Pool, CUresult> {
        if let Err(misuse) = self.pools.get(handle) {
            self.misused("pool", handle, misuse);
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.pools.get_mut(handle).map_err(CUresult::from)
    }

    fn allocate_from(
        &mut self,
        out: &Out<CUdeviceptr>,
        bytes: usize,
        handle: CUmemoryPool,
        stream: CUstream,
    ) -> Outcome {
        let stream = self.resolve(stream)?;
        if bytes == 0 || out.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = self.pool(handle)?.device;
        if let Some(capture) = self.stream(stream).capture {
            self.invalidate(capture);
            return Err(self.not_modelled("an allocation in a capture"));
        }
        self.refuse_implicit(stream)?;
        let block = bytes
            .checked_next_multiple_of(BLOCK)
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.reserve(handle, device, block, stream)?;
        let range = self.device_addresses(bytes)?;
        self.enqueue(stream, Vec::new(), Work::Nothing)?;
        let place = Arc::clone(&self.stream(stream).name);
        let site = self.site(&place);
        let born = self.stream(stream).clock.clone();
        let epoch = self.stream_epoch(stream);
        let id = self.fresh_id();
        let context = self.stream(stream).context;
        let access = Access {
            epoch,
            write: true,
            site: Arc::clone(&site),
        };
        let mapping = Mapping {
            start: range.start,
            end: range.end,
            kind: MappingKind::Device,
            device,
            context,
            pool: Some(handle),
            taken: block,
            backing: Rc::new(Backing::private(bytes)),
            offset: 0,
            born,
            freed: None,
            site,
            id,
            flags: 0,
        };
        self.adopt(mapping, &access);
        let pool = self.pool(handle)?;
        pool.used += block;
        pool.used_high = pool.used_high.max(pool.used);
        out.set(range.start)
    }

    /// Finds bytes for a block: idle ones, ones whose free is ordered before the stream, and what is missing from the device.
    fn reserve(
        &mut self,
        handle: CUmemoryPool,
        device: usize,
        block: usize,
        stream: StreamId,
    ) -> Outcome {
        let clock = self.stream(stream).clock.clone();
        let pool = self.pool(handle)?;
        let mut missing = block;
        let idle = pool.idle.min(missing);
        pool.idle -= idle;
        missing -= idle;
        let mut reused = Vec::new();
        for (address, bytes, epoch) in &mut pool.freeing {
            if clock.covers(*epoch) {
                let part = missing.min(*bytes);
                *bytes -= part;
                missing -= part;
                reused.push((*address, part));
            }
        }
        let taken = self.take(device, missing);
        let pool = self.pool(handle)?;
        match taken {
            Ok(()) => {
                pool.reserved += missing;
                pool.reserved_high = pool.reserved_high.max(pool.reserved);
            }
            Err(_) => {
                pool.idle += idle;
                for (address, part) in reused {
                    match pool
                        .freeing
                        .iter_mut()
                        .find(|(freeing, _, _)| *freeing == address)
                    {
                        Some((_, bytes, _)) => *bytes += part,
                        None => pool.idle += part,
                    }
                }
            }
        }
        taken
    }

    fn free_async(&mut self, address: u64, stream: CUstream) -> Outcome {
        let stream = self.resolve(stream)?;
        if let Some(capture) = self.stream(stream).capture {
            self.invalidate(capture);
            return Err(self.not_modelled("a free in a capture"));
        }
        self.refuse_implicit(stream)?;
        let (range, born) =
            self.allocation_to_free(address, |kind| *kind == MappingKind::Device)?;
        let (epoch, mut clock, after) = self.begin_free(stream);
        let place = Arc::clone(&self.stream(stream).name);
        let site = self.site(&place);
        let function = self.function;
        let early = self.config.injections.early(function);
        if early {
            clock = self.early_clock(&born);
        }
        self.mark_freed(
            range,
            &Access {
                epoch,
                write: true,
                site,
            },
            &clock,
        );
        let (pool, taken) = self
            .memory
            .mappings
            .get(&address)
            .map(|mapping| (mapping.pool, mapping.taken))
            .unwrap_or_default();
        if let Some(Ok(pool)) = pool.map(|pool| self.pools.get_mut(pool)) {
            pool.used -= taken;
            pool.freeing.push((address, taken, epoch));
        }
        if early {
            self.release(address);
        }
        self.end_free(
            stream,
            after,
            if early {
                Work::Nothing
            } else {
                Work::Free(address)
            },
        );
        Ok(())
    }
}

entry! {
    fn cuMemPoolCreate(pool: Out<CUmemoryPool>, poolProps: In<CUmemPoolProps>) |call| {
        let properties = poolProps.get()?;
        if properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(call.not_modelled("a pool that is not on a device"));
        }
        if !call.config.pools {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = call.device(location_id(&properties.location))?;
        let handle = call.create_pool(device);
        call.pool(handle)?.default = false;
        pool.set(handle)
    }
    fn cuMemPoolDestroy(pool: CUmemoryPool) |call| {
        if call.pool(pool)?.default {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let removed = call.pools.remove(pool).map_err(CUresult::from)?;
        call.give_back(removed.device, removed.idle);
        for device in &mut call.devices {
            if device.pool == pool {
                device.pool = device.default_pool;
            }
        }
        Ok(())
    }
    fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) |call| {
        let pool = call.pool(pool)?;
        let (device, bytes) = (pool.device, pool.shrink(minBytesToKeep));
        call.give_back(device, bytes);
        Ok(())
    }
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) |call| {
        use CUmemPool_attribute as A;
        let pool = call.pool(pool)?;
        match attr {
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold = In::from_pointer(value.cast::<u64>()).get()?,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.reserved_high = pool.reserved,
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => pool.used_high = pool.used,
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => pool.reuse[0] = In::from_pointer(value.cast::<i32>()).get()?,
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => pool.reuse[1] = In::from_pointer(value.cast::<i32>()).get()?,
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => pool.reuse[2] = In::from_pointer(value.cast::<i32>()).get()?,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) |call| {
        use CUmemPool_attribute as A;
        let pool = call.pool(pool)?;
        let number = match attr {
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.reserved as u64,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.reserved_high as u64,
            A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => pool.used as u64,
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => pool.used_high as u64,
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => return Out::from_pointer(value.cast()).set(pool.reuse[0]),
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => return Out::from_pointer(value.cast()).set(pool.reuse[1]),
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => return Out::from_pointer(value.cast()).set(pool.reuse[2]),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        Out::from_pointer(value.cast()).set(number)
    }
    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: In<CUmemAccessDesc>, count: usize) |call| {
        for index in 0..count {
            let entry = map.at(index)?;
            let device = call.device(location_id(&entry.location))?;
            let peer = call.config.peer;
            let pool = call.pool(pool)?;
            let allowed = entry.flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            match (allowed, device == pool.device) {
                (false, true) => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
                (true, true) => {}
                (true, false) if !peer => return Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
                (true, false) => drop(pool.access.insert(device)),
                (false, false) => drop(pool.access.remove(&device)),
            }
        }
        Ok(())
    }
    fn cuMemPoolGetAccess(flags: Out<CUmemAccess_flags>, memPool: CUmemoryPool, location: Out<CUmemLocation>) |call| {
        let device = call.device(location_id(&location.get()?))?;
        let pool = call.pool(memPool)?;
        let allowed = device == pool.device || pool.access.contains(&device);
        flags.set(if allowed { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE })
    }
    fn cuDeviceGetDefaultMemPool(pool_out: Out<CUmemoryPool>, dev: CUdevice) |call| {
        let index = call.device(dev)?;
        let pool = call.device_at(index)?.default_pool;
        if pool.is_null() { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { pool_out.set(pool) }
    }
    fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, dev: CUdevice) |call| {
        let index = call.device(dev)?;
        let handle = call.device_at(index)?.pool;
        if handle.is_null() { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { pool.set(handle) }
    }
    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) |call| {
        let index = call.device(dev)?;
        if call.pool(pool)?.device != index {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        call.device_at_mut(index)?.pool = pool;
        Ok(())
    }
    fn cuMemAllocAsync(dptr: Out<CUdeviceptr>, bytesize: usize, hStream: CUstream) |call| {
        let stream = call.resolve(hStream)?;
        let device = call.stream(stream).device;
        let pool = call.device_at(device)?.pool;
        if pool.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        call.allocate_from(&dptr, bytesize, pool, hStream)
    }
    fn cuMemAllocFromPoolAsync(dptr: Out<CUdeviceptr>, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) |call| {
        call.allocate_from(&dptr, bytesize, pool, hStream)
    }
    fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) |call| {
        call.free_async(dptr, hStream)
    }
}

/// The device that a location names.
pub(crate) fn location_id(location: &CUmemLocation) -> CUdevice {
    // SAFETY: every field of the union is an int or smaller at the same place, and any int is a valid one.
    unsafe { location.__bindgen_anon_1.id }
}
