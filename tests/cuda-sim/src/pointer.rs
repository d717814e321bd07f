//! What the driver knows of an address.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUmemoryPool, CUmemorytype, CUresult};

use crate::driver::Driver;
use crate::entry::{Call, In, Out, Outcome, PointerAttribute, entry};
use crate::memory::{Mapping, MappingKind};

/// The ordinal of memory that belongs to no device.
const NO_DEVICE: c_int = -2;

impl Driver {
    fn known(&self, address: u64) -> Option<&Mapping> {
        self.memory
            .find(address)
            .filter(|mapping| mapping.freed.is_none())
    }
}

impl Call<'_> {
    /// Writes one attribute. Of memory that the driver doesn't know, everything is 0 or null.
    fn attribute(&self, attribute: PointerAttribute, address: u64, data: *mut c_void) -> Outcome {
        use cudarc::driver::sys::CUpointer_attribute as A;
        let is = |known: A| attribute.0 == known as u32;
        let mapping = self.known(address);
        let flag = |value: bool| Out::from_pointer(data.cast::<c_uint>()).set(c_uint::from(value));
        if is(A::CU_POINTER_ATTRIBUTE_CONTEXT) {
            // Memory that was mapped by cuMemMap, or came from a pool, belongs to no context.
            let owned = mapping.filter(|mapping| {
                mapping.pool.is_none() && !matches!(mapping.kind, MappingKind::Virtual { .. })
            });
            Out::from_pointer(data.cast::<CUcontext>())
                .set(owned.map_or(std::ptr::null_mut(), |mapping| mapping.context))
        } else if is(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            let kind = mapping.map_or(0, |mapping| match mapping.kind {
                MappingKind::Pinned | MappingKind::Registered => {
                    CUmemorytype::CU_MEMORYTYPE_HOST as c_uint
                }
                _ => CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint,
            });
            Out::from_pointer(data.cast::<c_uint>()).set(kind)
        } else if is(A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
            Out::from_pointer(data.cast::<CUdeviceptr>()).set(if mapping.is_some() {
                address
            } else {
                0
            })
        } else if is(A::CU_POINTER_ATTRIBUTE_HOST_POINTER) {
            let host = mapping.is_some_and(Mapping::host_accessible);
            Out::from_pointer(data.cast::<u64>()).set(if host { address } else { 0 })
        } else if is(A::CU_POINTER_ATTRIBUTE_BUFFER_ID) {
            Out::from_pointer(data.cast::<c_ulonglong>())
                .set(mapping.map_or(0, |mapping| mapping.id))
        } else if is(A::CU_POINTER_ATTRIBUTE_IS_MANAGED) {
            flag(mapping.is_some_and(|mapping| mapping.kind == MappingKind::Managed))
        } else if is(A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            Out::from_pointer(data.cast::<c_int>())
                .set(mapping.map_or(NO_DEVICE, |mapping| mapping.device as c_int))
        } else if is(A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) {
            flag(mapping.is_some_and(|mapping| {
                mapping.kind == MappingKind::Device && mapping.pool.is_none()
            }))
        } else if is(A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
            let range = self
                .reservation(address)
                .or_else(|| mapping.map(Mapping::range));
            Out::from_pointer(data.cast::<CUdeviceptr>()).set(range.map_or(0, |range| range.start))
        } else if is(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
            let range = self
                .reservation(address)
                .or_else(|| mapping.map(Mapping::range));
            Out::from_pointer(data.cast::<usize>())
                .set(range.map_or(0, |range| (range.end - range.start) as usize))
        } else if is(A::CU_POINTER_ATTRIBUTE_MAPPED) {
            flag(mapping.is_some())
        } else if is(A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
            Out::from_pointer(data.cast::<u64>()).set(0)
        } else if is(A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
            || is(A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)
        {
            flag(false)
        } else if is(A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
            Out::from_pointer(data.cast::<CUmemoryPool>()).set(
                mapping
                    .and_then(|mapping| mapping.pool)
                    .unwrap_or(std::ptr::null_mut()),
            )
        } else if is(A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) {
            Out::from_pointer(data.cast::<CUdeviceptr>())
                .set(mapping.map_or(0, |mapping| mapping.start))
        } else if is(A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE) {
            Out::from_pointer(data.cast::<usize>())
                .set(mapping.map_or(0, |mapping| (mapping.end - mapping.start) as usize))
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    }
}

entry! {
    fn cuPointerGetAttribute(data: *mut c_void, attribute: PointerAttribute, ptr: CUdeviceptr) |call| {
        if call.known(ptr).is_none() && call.reservation(ptr).is_none() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.attribute(attribute, ptr, data)
    }
    fn cuPointerGetAttributes(numAttributes: c_uint, attributes: crate::entry::PointerAttributes, data: Out<*mut c_void>, ptr: CUdeviceptr) |call| {
        for index in 0..numAttributes as usize {
            let attribute = In::from_pointer(attributes.0).at(index)?;
            call.attribute(PointerAttribute(attribute), ptr, data.at(index)?)?;
        }
        Ok(())
    }
}
