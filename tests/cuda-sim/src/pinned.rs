//! Memory that host and devices share: page-locked, registered and managed.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUmem_advise, CUresult, CUstream};

use crate::entry::{Call, Location, Out, Outcome, entry};
use crate::memory::{Backing, MappingKind};
use crate::queue::Work;

const REGISTER_FLAGS: c_uint = 0xF;
const HOST_ALLOC_FLAGS: c_uint = 7;
const ATTACH_GLOBAL: c_uint = 1;
const ATTACH_HOST: c_uint = 2;

impl Call<'_> {
    fn host_alloc(&mut self, out: &Out<*mut c_void>, bytes: usize, flags: c_uint) -> Outcome {
        self.current()?;
        self.refuse_unsafe_call()?;
        if bytes == 0 || flags > HOST_ALLOC_FLAGS || out.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (range, backing) = self.memory.share(bytes as u64)?;
        self.host_allocation(range.clone(), MappingKind::Pinned, 0, backing, flags)?;
        out.set(std::ptr::with_exposed_provenance_mut(range.start as usize))
    }

    /// Host memory that devices can reach, by its address.
    fn host_mapping(&self, pointer: *mut c_void) -> Result<&crate::memory::Mapping, CUresult> {
        let mapping = self.memory.find(pointer.addr() as u64);
        mapping
            .filter(|mapping| matches!(mapping.kind, MappingKind::Pinned | MappingKind::Registered))
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

entry! {
    fn cuMemHostAlloc(pp: Out<*mut c_void>, bytesize: usize, Flags: c_uint) |call| {
        call.host_alloc(&pp, bytesize, Flags)
    }
    fn cuMemAllocHost_v2(pp: Out<*mut c_void>, bytesize: usize) |call| {
        call.host_alloc(&pp, bytesize, 0)
    }
    fn cuMemFreeHost(p: *mut c_void) |call| {
        call.free_now(p.addr() as u64, |kind| *kind == MappingKind::Pinned)
    }
    fn cuMemHostGetDevicePointer_v2(pdptr: Out<CUdeviceptr>, p: *mut c_void, Flags: c_uint) |call| {
        call.host_mapping(p)?;
        if Flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        pdptr.set(p.addr() as u64)
    }
    fn cuMemHostGetFlags(pFlags: Out<c_uint>, p: *mut c_void) |call| {
        let flags = call.host_mapping(p)?.flags;
        pFlags.set(flags)
    }
    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: c_uint) |call| {
        call.current()?;
        call.refuse_unsafe_call()?;
        let start = p.addr() as u64;
        if p.is_null() || bytesize == 0 || Flags > REGISTER_FLAGS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let range = start..start + bytesize as u64;
        if call.memory.mappings.values().any(|mapping| mapping.start < range.end && range.start < mapping.end) {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        call.host_allocation(range, MappingKind::Registered, 0, Backing::borrowed(p.cast()), Flags)
    }
    fn cuMemHostUnregister(p: *mut c_void) |call| {
        if !call.memory.mappings.get(&(p.addr() as u64)).is_some_and(|mapping| mapping.kind == MappingKind::Registered) {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        }
        call.free_now(p.addr() as u64, |kind| *kind == MappingKind::Registered)?;
        // The memory is the program's, and may be registered anew or be ordinary memory again.
        call.memory.exhume(&(p.addr() as u64..p.addr() as u64 + 1));
        Ok(())
    }
    fn cuMemAllocManaged(dptr: Out<CUdeviceptr>, bytesize: usize, flags: c_uint) |call| {
        let device = call.current_device()?;
        call.refuse_unsafe_call()?;
        if bytesize == 0 || (flags != ATTACH_GLOBAL && flags != ATTACH_HOST) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.take(device, bytesize)?;
        let (range, backing) = call.memory.share(bytesize as u64)?;
        call.host_allocation(range.clone(), MappingKind::Managed, bytesize, backing, 0)?;
        dptr.set(range.start)
    }
    fn cuMemPrefetchAsync_v2(devPtr: CUdeviceptr, count: usize, location: Location, flags: c_uint, hStream: CUstream) |call| {
        let _ = (location, flags);
        let stream = call.resolve(hStream)?;
        let managed = call.memory.find(devPtr).filter(|mapping| mapping.kind == MappingKind::Managed);
        if managed.is_none_or(|mapping| count as u64 > mapping.end - devPtr) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.enqueue(stream, Vec::new(), Work::Nothing).map(drop)
    }
    fn cuMemAdvise_v2(devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, location: Location) |call| {
        let _ = (count, advice, location);
        let managed = call.memory.find(devPtr).is_some_and(|mapping| mapping.kind == MappingKind::Managed);
        if managed { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }
    fn cuStreamAttachMemAsync(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint) |call| {
        let _ = (length, flags);
        let stream = call.resolve(hStream)?;
        if !call.memory.find(dptr).is_some_and(|mapping| mapping.kind == MappingKind::Managed) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.enqueue(stream, Vec::new(), Work::Nothing).map(drop)
    }
}
