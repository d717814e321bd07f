//! What the transport asks of a device.

/// Placeholder.
pub trait DeviceLayer: Send + Sync {}
