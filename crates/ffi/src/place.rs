use std::fmt;

use hurray_core::{DeviceTag, MemoryClass};

/// Where bytes are: a row's device and memory class, and which device of that kind, which is run-time information and in no descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The kind of device.
    pub device: DeviceTag,
    /// Which device of that kind; 0 for host memory.
    pub device_id: u32,
    /// Who can reach the bytes.
    pub memory_class: MemoryClass,
}

impl Place {
    /// Ordinary host memory.
    pub const HOST: Self = Self {
        device: DeviceTag::Cpu,
        device_id: 0,
        memory_class: MemoryClass::Standard,
    };

    /// Whether the host may use the address: memory of the CPU, and pinned or unified memory of CUDA.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        matches!(
            (self.device, self.memory_class),
            (DeviceTag::Cpu, _)
                | (
                    DeviceTag::Cuda,
                    MemoryClass::HostPinned | MemoryClass::Unified
                )
        )
    }
}

/// `cpu`, `cuda:1`, `cuda:0/host_pinned`: an index where the device is not host memory 0, a class where it is not standard.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device)?;
        if self.device != DeviceTag::Cpu || self.device_id != 0 {
            write!(f, ":{}", self.device_id)?;
        }
        if self.memory_class != MemoryClass::Standard {
            write!(f, "/{}", self.memory_class)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_memory_and_what_cuda_shares_with_it_is_host_accessible() {
        for device in DeviceTag::NAMED {
            for memory_class in MemoryClass::NAMED {
                let place = Place {
                    device,
                    device_id: 0,
                    memory_class,
                };
                let expected = device == DeviceTag::Cpu
                    || device == DeviceTag::Cuda
                        && matches!(memory_class, MemoryClass::HostPinned | MemoryClass::Unified);
                assert_eq!(place.is_host_accessible(), expected, "{place}");
            }
        }
    }

    #[test]
    fn a_place_is_written_shortly() {
        let cuda = |device_id, memory_class| Place {
            device: DeviceTag::Cuda,
            device_id,
            memory_class,
        };
        assert_eq!(Place::HOST.to_string(), "cpu");
        assert_eq!(cuda(1, MemoryClass::Standard).to_string(), "cuda:1");
        assert_eq!(
            cuda(0, MemoryClass::HostPinned).to_string(),
            "cuda:0/host_pinned"
        );
    }
}
