//! Virtual memory management: reserved addresses, physical memory, and the mappings between them.

use std::collections::BTreeSet;
use std::ffi::c_ulonglong;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUresult,
};

use crate::driver::Driver;
use crate::entry::{Call, In, Out, Outcome, entry};
use crate::memory::{Backing, Mapping, MappingKind};
use crate::pool::location_id;
use crate::report::Kind;
use crate::shadow::Access;

/// Physical memory comes in multiples of it.
const GRANULARITY: usize = 2 << 20;

/// Reserved addresses.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) len: u64,
}

/// Physical memory of a device.
#[derive(Debug)]
pub(crate) struct Physical {
    device: usize,
    len: usize,
    backing: Rc<Backing>,
    /// The handle, and every mapping.
    references: usize,
}

impl Driver {
    /// The reserved range that holds an address.
    pub(crate) fn reservation(&self, address: u64) -> Option<Range<u64>> {
        let (&start, reservation) = self.reservations.range(..=address).next_back()?;
        let range = start..start + reservation.len;
        range.contains(&address).then_some(range)
    }

    fn drop_physical(&mut self, handle: u64) {
        let Some(physical) = self.physical.get_mut(&handle) else {
            return;
        };
        physical.references -= 1;
        if physical.references == 0 {
            let (device, len) = (physical.device, physical.len);
            self.physical.remove(&handle);
            self.give_back(device, len);
        }
    }
}

impl Call<'_> {
    /// The mappings that make up a range, if they fill it.
    fn mapped(&self, range: &Range<u64>) -> Result<Vec<u64>, CUresult> {
        let mut starts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let mapping = self.memory.find(at).filter(|mapping| {
                matches!(mapping.kind, MappingKind::Virtual { .. }) && mapping.start == at
            });
            let mapping = mapping
                .filter(|mapping| mapping.end <= range.end)
                .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            starts.push(mapping.start);
            at = mapping.end;
        }
        Ok(starts)
    }

    fn map(&mut self, range: Range<u64>, offset: usize, handle: u64) -> Outcome {
        let inside = self
            .reservation(range.start)
            .is_some_and(|reserved| range.end <= reserved.end);
        let before = self.memory.mappings.range(..range.end).next_back();
        let free = before.is_none_or(|(_, mapping)| mapping.end <= range.start);
        let context = self.current_handle()?;
        let site = self.host_site();
        let (epoch, born) = self.host_step();
        let id = self.fresh_id();
        let physical = self
            .physical
            .get_mut(&handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // The driver maps whole handles only.
        if !inside || !free || offset != 0 || range.end - range.start != physical.len as u64 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        physical.references += 1;
        let mapping = Mapping {
            start: range.start,
            end: range.end,
            kind: MappingKind::Virtual {
                access: BTreeSet::new(),
            },
            device: physical.device,
            context,
            pool: None,
            taken: 0,
            backing: Rc::clone(&physical.backing),
            offset,
            born,
            freed: None,
            site: Arc::clone(&site),
            id,
            flags: 0,
        };
        self.adopt(
            mapping,
            &Access {
                epoch,
                write: true,
                site,
            },
        );
        Ok(())
    }

    fn unmap(&mut self, range: &Range<u64>) -> Outcome {
        for start in self.mapped(range)? {
            let Some(mapping) = self.memory.mappings.get(&start) else {
                continue;
            };
            let (range, backing) = (mapping.range(), Rc::clone(&mapping.backing));
            let site = self.host_site();
            let (epoch, clock) = self.host_step();
            self.mark_freed(
                range,
                &Access {
                    epoch,
                    write: true,
                    site,
                },
                &clock,
            );
            self.release(start);
            let handle = self
                .physical
                .iter()
                .find(|(_, physical)| Rc::ptr_eq(&physical.backing, &backing))
                .map(|(&handle, _)| handle);
            if let Some(handle) = handle {
                self.drop_physical(handle);
            }
        }
        Ok(())
    }
}

entry! {
    fn cuMemGetAllocationGranularity(granularity: Out<usize>, prop: In<CUmemAllocationProp>, option: CUmemAllocationGranularity_flags) |call| {
        let _ = option;
        call.device(location_id(&prop.get()?.location))?;
        granularity.set(GRANULARITY)
    }
    fn cuMemAddressReserve(ptr: Out<CUdeviceptr>, size: usize, alignment: usize, addr: CUdeviceptr, flags: c_ulonglong) |call| {
        let _ = addr;
        if size == 0 || !size.is_multiple_of(GRANULARITY) || flags != 0 || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let range = call.memory.addresses(size as u64, alignment.max(GRANULARITY) as u64)?;
        call.reservations.insert(range.start, Reservation { len: size as u64 });
        ptr.set(range.start)
    }
    fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) |call| {
        let range = ptr..ptr + size as u64;
        let mapped = call.memory.mappings.range(..range.end).next_back().is_some_and(|(_, mapping)| mapping.end > range.start);
        if mapped || call.reservations.get(&ptr).is_none_or(|reservation| reservation.len != size as u64) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.reservations.remove(&ptr);
        Ok(())
    }
    fn cuMemCreate(handle: Out<CUmemGenericAllocationHandle>, size: usize, prop: In<CUmemAllocationProp>, flags: c_ulonglong) |call| {
        call.refuse_unsafe_call()?;
        let properties = prop.get()?;
        if size == 0 || !size.is_multiple_of(GRANULARITY) || flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(call.not_modelled("physical memory that is not on a device"));
        }
        let device = call.device(location_id(&properties.location))?;
        call.take(device, size)?;
        let id = call.fresh_id();
        call.physical.insert(id, Physical { device, len: size, backing: Rc::new(Backing::private(size)), references: 1 });
        handle.set(id)
    }
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) |call| {
        if !call.physical.contains_key(&handle) {
            let site = call.host_site();
            call.reports.push(Kind::DestroyedHandle, format_args!("{site} releases the physical memory {handle}, which is none"));
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.drop_physical(handle);
        Ok(())
    }
    fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) |call| {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.map(ptr..ptr + size as u64, offset, handle)
    }
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) |call| {
        call.unmap(&(ptr..ptr + size as u64))
    }
    fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: In<CUmemAccessDesc>, count: usize) |call| {
        let starts = call.mapped(&(ptr..ptr + size as u64))?;
        for index in 0..count {
            let entry = desc.at(index)?;
            let device = call.device(location_id(&entry.location))?;
            let peer = call.config.peer;
            for start in &starts {
                let Some(mapping) = call.memory.mappings.get_mut(start) else { continue };
                let reachable = peer || device == mapping.device;
                let MappingKind::Virtual { access } = &mut mapping.kind else { continue };
                match entry.flags {
                    CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => drop(access.remove(&device)),
                    _ if reachable => drop(access.insert(device)),
                    _ => return Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
                }
            }
        }
        Ok(())
    }
    fn cuMemGetAccess(flags: Out<c_ulonglong>, location: In<CUmemLocation>, ptr: CUdeviceptr) |call| {
        let device = call.device(location_id(&location.get()?))?;
        let Some(MappingKind::Virtual { access }) = call.memory.find(ptr).map(|mapping| &mapping.kind) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let allowed = access.contains(&device);
        let answer = if allowed { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE };
        flags.set(answer as c_ulonglong)
    }
}
