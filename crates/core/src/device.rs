//! Where the bytes of a buffer live: device tags and memory classes (`buffers.md` § 3, § 4).

use std::fmt;

use crate::PrivateTag;

/// The kind of device that holds a buffer. Which device of that kind is run-time information and not part of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceTag {
    /// Host memory.
    #[default]
    Cpu,
    /// NVIDIA CUDA.
    Cuda,
    /// AMD ROCm.
    Rocm,
    /// Apple Metal.
    Metal,
    /// Vulkan.
    Vulkan,
    /// WebGPU.
    WebGpu,
    /// Qualcomm Hexagon.
    Hexagon,
    /// Intel oneAPI Level Zero.
    LevelZero,
    /// OpenCL.
    OpenCl,
    /// A device that producer and consumer agreed on.
    Private(PrivateTag),
}

impl DeviceTag {
    /// The named devices in the order of their tags.
    pub const NAMED: [Self; 9] = [
        Self::Cpu,
        Self::Cuda,
        Self::Rocm,
        Self::Metal,
        Self::Vulkan,
        Self::WebGpu,
        Self::Hexagon,
        Self::LevelZero,
        Self::OpenCl,
    ];

    /// The device for a byte of the wire; `None` for a reserved (R34) or invalid (R35) one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x00 => Some(Self::Cpu),
            0x01 => Some(Self::Cuda),
            0x02 => Some(Self::Rocm),
            0x03 => Some(Self::Metal),
            0x04 => Some(Self::Vulkan),
            0x05 => Some(Self::WebGpu),
            0x06 => Some(Self::Hexagon),
            0x07 => Some(Self::LevelZero),
            0x08 => Some(Self::OpenCl),
            _ => match PrivateTag::new(byte) {
                Some(tag) => Some(Self::Private(tag)),
                None => None,
            },
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Cpu => 0x00,
            Self::Cuda => 0x01,
            Self::Rocm => 0x02,
            Self::Metal => 0x03,
            Self::Vulkan => 0x04,
            Self::WebGpu => 0x05,
            Self::Hexagon => 0x06,
            Self::LevelZero => 0x07,
            Self::OpenCl => 0x08,
            Self::Private(tag) => tag.get(),
        }
    }

    /// The device with this name as [`Display`](fmt::Display) gives it; private devices have no name of their own.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED
            .into_iter()
            .find(|device| device.name() == Some(name))
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
            Self::Metal => "metal",
            Self::Vulkan => "vulkan",
            Self::WebGpu => "webgpu",
            Self::Hexagon => "hexagon",
            Self::LevelZero => "level_zero",
            Self::OpenCl => "opencl",
            Self::Private(_) => return None,
        })
    }
}

impl fmt::Display for DeviceTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "private_{:#04x}", self.to_byte()),
        }
    }
}

/// Who can reach a buffer's memory, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryClass {
    /// The tagged device only.
    #[default]
    Standard,
    /// Page-locked host memory that the device reads over the interconnect.
    HostPinned,
    /// Hardware-coherent memory that both sides reach; pages may move.
    Unified,
    /// Memory that named peer devices reach; the host only through a copy.
    Peer,
    /// A class that producer and consumer agreed on; private devices only.
    Private(PrivateTag),
}

impl MemoryClass {
    /// The named classes in the order of their values.
    pub const NAMED: [Self; 4] = [Self::Standard, Self::HostPinned, Self::Unified, Self::Peer];

    /// The class for a byte of the wire; `None` for a reserved (R37) or invalid (R38) one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x00 => Some(Self::Standard),
            0x01 => Some(Self::HostPinned),
            0x02 => Some(Self::Unified),
            0x03 => Some(Self::Peer),
            _ => match PrivateTag::new(byte) {
                Some(tag) => Some(Self::Private(tag)),
                None => None,
            },
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Standard => 0x00,
            Self::HostPinned => 0x01,
            Self::Unified => 0x02,
            Self::Peer => 0x03,
            Self::Private(tag) => tag.get(),
        }
    }

    /// The class with this name as [`Display`](fmt::Display) gives it; private classes have no name of their own.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED
            .into_iter()
            .find(|class| class.name() == Some(name))
    }

    /// Whether memory of this class on `device` may exist: the validity matrix of `buffers.md` § 4 (S5, S6).
    #[must_use]
    pub const fn is_valid_on(self, device: DeviceTag) -> bool {
        match (device, self) {
            (_, Self::Standard) | (DeviceTag::Private(_), Self::Private(_)) => true,
            (DeviceTag::WebGpu | DeviceTag::Private(_), _) | (_, Self::Private(_)) => false,
            (_, Self::HostPinned | Self::Unified) => true,
            (device, Self::Peer) => matches!(
                device,
                DeviceTag::Cuda | DeviceTag::Rocm | DeviceTag::Vulkan | DeviceTag::LevelZero
            ),
        }
    }

    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Standard => "standard",
            Self::HostPinned => "host_pinned",
            Self::Unified => "unified",
            Self::Peer => "peer",
            Self::Private(_) => return None,
        })
    }
}

impl fmt::Display for MemoryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "private_{:#04x}", self.to_byte()),
        }
    }
}
