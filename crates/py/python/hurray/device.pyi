"""Device 0 of each kind that the format names, with standard memory."""

from hurray import Device

cpu: Device
cuda: Device
rocm: Device
metal: Device
vulkan: Device
webgpu: Device
hexagon: Device
level_zero: Device
opencl: Device
