//! Devices in DLPack's numbers (`buffers.md` § 10).

use dlpark::ffi::{DLDevice, DLDeviceType};
use hurray_core::{DeviceTag, MemoryClass};
use thiserror::Error;

use crate::Place;

/// A place that one side does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnsupportedDevice {
    /// DLPack has no number for the place.
    #[error("DLPack has no device type for {0} memory")]
    NoType(Place),
    /// A DLPack device without a place here.
    #[error("DLPack device ({device_type}, {device_id}) has no place here")]
    NoPlace {
        /// `DLDevice.device_type`.
        device_type: u32,
        /// `DLDevice.device_id`.
        device_id: i32,
    },
}

/// What `__dlpack_device__` says of memory at `place`.
///
/// # Errors
/// [`NoType`](UnsupportedDevice::NoType) where `buffers.md` § 10 refuses.
pub fn announced(place: Place) -> Result<DLDevice, UnsupportedDevice> {
    use DeviceTag as D;
    use MemoryClass as C;
    let device_type = match (place.device, place.memory_class) {
        (D::Cpu, C::Standard | C::HostPinned | C::Unified) => DLDeviceType::CPU,
        (D::Cuda, C::Standard) => DLDeviceType::CUDA,
        (D::Cuda, C::HostPinned) => DLDeviceType::CUDAHOST,
        (D::Cuda, C::Unified) => DLDeviceType::CUDAMANAGED,
        (D::Rocm, C::Standard) => DLDeviceType::ROCM,
        (D::Rocm, C::HostPinned) => DLDeviceType::ROCMHOST,
        (D::Metal, C::Standard | C::HostPinned | C::Unified) => DLDeviceType::METAL,
        (D::Vulkan, C::Standard | C::HostPinned | C::Unified) => DLDeviceType::VULKAN,
        (D::WebGpu, C::Standard) => DLDeviceType::WEBGPU,
        (D::Hexagon, C::Standard | C::HostPinned | C::Unified) => DLDeviceType::HEXAGON,
        (D::LevelZero, C::Standard | C::HostPinned | C::Unified) => DLDeviceType::ONEAPI,
        (D::OpenCl, C::Standard | C::HostPinned | C::Unified) => DLDeviceType::OPENCL,
        _ => return Err(UnsupportedDevice::NoType(place)),
    };
    // Managed memory belongs to all devices, and is number 0 in DLPack (pytorch/pytorch#96318).
    let device_id = match device_type {
        DLDeviceType::CPU | DLDeviceType::CUDAMANAGED => 0,
        _ => i32::try_from(place.device_id).map_err(|_| UnsupportedDevice::NoType(place))?,
    };
    Ok(DLDevice {
        device_type,
        device_id,
    })
}

/// The device of a capsule whose `__dlpack_device__` is `announced`: pinned memory travels as the CPU's (decision 12, pytorch/pytorch#136250).
#[must_use]
pub fn in_capsule(announced: DLDevice) -> DLDevice {
    match announced.device_type {
        DLDeviceType::CUDAHOST | DLDeviceType::ROCMHOST => DLDevice::CPU,
        _ => announced,
    }
}

/// The device that the capsule names if the consumer asks for `wanted`: without a copy, memory of the host can be had as the CPU's, and managed
/// memory as CUDA's. `None` where the bytes would have to move.
#[must_use]
pub fn as_wanted(place: Place, announced: DLDevice, wanted: DLDevice) -> Option<DLDevice> {
    if wanted == announced {
        Some(in_capsule(announced))
    } else if wanted == DLDevice::CPU && place.is_host_accessible() {
        Some(DLDevice::CPU)
    } else if announced.device_type == DLDeviceType::CUDAMANAGED
        && wanted.device_type == DLDeviceType::CUDA
        && wanted.device_id >= 0
    {
        Some(wanted)
    } else {
        None
    }
}

/// The place of memory that a producer announces.
///
/// # Errors
/// [`NoPlace`](UnsupportedDevice::NoPlace).
pub fn place(announced: DLDevice) -> Result<Place, UnsupportedDevice> {
    let DLDevice {
        device_type,
        device_id,
    } = announced;
    let none = UnsupportedDevice::NoPlace {
        device_type: device_type.0,
        device_id,
    };
    let (device, memory_class) = match device_type {
        DLDeviceType::CPU => return Ok(Place::HOST),
        DLDeviceType::CUDA => (DeviceTag::Cuda, MemoryClass::Standard),
        DLDeviceType::CUDAHOST => (DeviceTag::Cuda, MemoryClass::HostPinned),
        DLDeviceType::CUDAMANAGED => (DeviceTag::Cuda, MemoryClass::Unified),
        DLDeviceType::ROCM => (DeviceTag::Rocm, MemoryClass::Standard),
        DLDeviceType::ROCMHOST => (DeviceTag::Rocm, MemoryClass::HostPinned),
        DLDeviceType::METAL => (DeviceTag::Metal, MemoryClass::Standard),
        DLDeviceType::VULKAN => (DeviceTag::Vulkan, MemoryClass::Standard),
        DLDeviceType::WEBGPU => (DeviceTag::WebGpu, MemoryClass::Standard),
        DLDeviceType::HEXAGON => (DeviceTag::Hexagon, MemoryClass::Standard),
        DLDeviceType::ONEAPI => (DeviceTag::LevelZero, MemoryClass::Standard),
        DLDeviceType::OPENCL => (DeviceTag::OpenCl, MemoryClass::Standard),
        _ => return Err(none),
    };
    Ok(Place {
        device,
        device_id: u32::try_from(device_id).map_err(|_| none)?,
        memory_class,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(device: DeviceTag, memory_class: MemoryClass) -> Place {
        Place {
            device,
            device_id: 1,
            memory_class,
        }
    }

    /// `buffers.md` § 10: numbers for standard, pinned, unified and peer memory; 0 is a refusal.
    const TABLE: [(DeviceTag, [u32; 4]); 9] = [
        (DeviceTag::Cpu, [1, 1, 1, 0]),
        (DeviceTag::Cuda, [2, 3, 13, 0]),
        (DeviceTag::Rocm, [10, 11, 0, 0]),
        (DeviceTag::Metal, [8, 8, 8, 0]),
        (DeviceTag::Vulkan, [7, 7, 7, 0]),
        (DeviceTag::WebGpu, [15, 0, 0, 0]),
        (DeviceTag::Hexagon, [16, 16, 16, 0]),
        (DeviceTag::LevelZero, [14, 14, 14, 0]),
        (DeviceTag::OpenCl, [4, 4, 4, 0]),
    ];

    #[test]
    fn numbers_are_those_of_the_table() {
        for (device, numbers) in TABLE {
            for (memory_class, number) in MemoryClass::NAMED.into_iter().zip(numbers) {
                let place = at(device, memory_class);
                let found = announced(place).map(|device| device.device_type.0);
                assert_eq!(found.unwrap_or(0), number, "{place}");
            }
        }
    }

    #[test]
    fn pinned_memory_is_announced_and_travels_as_the_cpus_d3() {
        let pinned = announced(at(DeviceTag::Cuda, MemoryClass::HostPinned)).unwrap();
        assert_eq!((pinned.device_type.0, pinned.device_id), (3, 1));
        assert_eq!(in_capsule(pinned), DLDevice::CPU);
        assert_eq!(
            place(pinned),
            Ok(at(DeviceTag::Cuda, MemoryClass::HostPinned))
        );
    }

    #[test]
    fn managed_memory_is_had_as_cuda_and_as_the_cpus_d5() {
        let managed = at(DeviceTag::Cuda, MemoryClass::Unified);
        let announced = announced(managed).unwrap();
        assert_eq!((announced.device_type.0, announced.device_id), (13, 0));
        for wanted in [DLDevice::CPU, DLDevice::cuda(0), DLDevice::cuda(3)] {
            assert_eq!(as_wanted(managed, announced, wanted), Some(wanted));
        }
        assert_eq!(as_wanted(managed, announced, DLDevice::metal(0)), None);
        assert_eq!(as_wanted(managed, announced, DLDevice::cuda(-1)), None);
    }

    #[test]
    fn device_memory_is_not_had_elsewhere() {
        let cuda = at(DeviceTag::Cuda, MemoryClass::Standard);
        let announced = announced(cuda).unwrap();
        assert_eq!(
            as_wanted(cuda, announced, announced),
            Some(DLDevice::cuda(1))
        );
        assert_eq!(as_wanted(cuda, announced, DLDevice::CPU), None);
        assert_eq!(as_wanted(cuda, announced, DLDevice::cuda(0)), None);
    }

    #[test]
    fn devices_without_a_place_are_refused() {
        for (device_type, device_id) in [(0, 0), (5, 0), (9, 0), (12, 0), (17, 0), (99, 0), (2, -1)]
        {
            let device = DLDevice {
                device_type: DLDeviceType(device_type),
                device_id,
            };
            assert!(place(device).is_err());
        }
    }
}
