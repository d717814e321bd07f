//! What the driver knows of addresses.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CUpointer_attribute;
use hurray_core::{DeviceError, MemoryClass, PointerClaim, PointerError, PointerFacts};

use crate::driver::CallError;
use crate::probe;

/// `CU_MEMORYTYPE_HOST`.
const HOST: u32 = 1;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: u32 = 2;

/// As [`hurray_core::DeviceLayer::pointer_facts`].
pub(crate) fn facts(address: usize) -> Result<Option<PointerFacts>, DeviceError> {
    let driver = probe::driver()?;
    ask(address).map_err(|failed| driver.error(failed))
}

/// The same, for a caller who knows what to do with the driver's answer.
pub(crate) fn ask(address: usize) -> Result<Option<PointerFacts>, CallError> {
    let driver = probe::driver().map_err(|_| CallError::GONE)?;
    let (mut kind, mut ordinal, mut is_managed, mut is_mapped) = (0_u32, -1_i32, 0_u32, 0_u32);
    // A range that was reserved may hold several mappings; other memory is one.
    let (mut range, mut mapping) = ((0_usize, 0_usize), (0_usize, 0_usize));
    let mut attributes = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    ];
    let mut values: [*mut c_void; 8] = [
        (&raw mut kind).cast(),
        (&raw mut ordinal).cast(),
        (&raw mut is_managed).cast(),
        (&raw mut is_mapped).cast(),
        (&raw mut range.0).cast(),
        (&raw mut range.1).cast(),
        (&raw mut mapping.0).cast(),
        (&raw mut mapping.1).cast(),
    ];
    // SAFETY: as many attributes as values, each of the width that the reference gives; any address may be asked for.
    unsafe {
        driver.cuPointerGetAttributes(
            8,
            ptr::from_mut(&mut attributes).cast(),
            ptr::from_mut(&mut values).cast(),
            address as u64,
        )
    }?;
    // Of an address that it does not know the driver answers no type.
    let is_hole = kind == DEVICE && is_managed == 0 && is_mapped == 0;
    if kind == 0 || is_hole {
        return Ok(None);
    }
    let memory_class = match (is_managed, kind) {
        (0, HOST) => MemoryClass::HostPinned,
        (0, _) => MemoryClass::Standard,
        _ => MemoryClass::Unified,
    };
    let (start, size) = if mapping.1 > 0 { mapping } else { range };
    Ok(Some(PointerFacts {
        device_id: u32::try_from(ordinal).unwrap_or(0),
        memory_class,
        len: size.saturating_sub(address.saturating_sub(start)),
    }))
}

/// As [`hurray_core::DeviceLayer::check_pointer`]. A range may span several mappings, and each is asked for.
pub(crate) fn check(claim: &PointerClaim) -> Result<(), PointerError> {
    let &PointerClaim {
        address,
        len,
        device_id,
        memory_class,
    } = claim;
    if len == 0 {
        return Ok(());
    }
    let end = address
        .checked_add(len)
        .ok_or(PointerError::Wraps { address, len })?;
    let mut next = address;
    while next < end {
        let found = next - address;
        let facts = match facts(next)? {
            Some(facts) if facts.len > 0 => facts,
            _ if found > 0 => {
                return Err(PointerError::Short {
                    address,
                    len,
                    found,
                });
            }
            _ => {
                return Err(PointerError::Unknown {
                    address: next,
                    device_id,
                });
            }
        };
        // Peer memory is a device's, reached by others.
        let is_as_claimed = facts.memory_class == memory_class
            || facts.memory_class == MemoryClass::Standard && memory_class == MemoryClass::Peer;
        if !is_as_claimed {
            return Err(PointerError::OtherClass {
                address: next,
                claimed: memory_class,
                found: facts.memory_class,
            });
        }
        // Pinned and managed memory are no device's: whichever names itself for them will do.
        if facts.memory_class == MemoryClass::Standard && facts.device_id != device_id {
            return Err(PointerError::OtherDevice {
                address: next,
                claimed: device_id,
                found: facts.device_id,
            });
        }
        next = next.saturating_add(facts.len);
    }
    Ok(())
}
