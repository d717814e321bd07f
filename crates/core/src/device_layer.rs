//! What the transport asks of a device.

use std::fmt;

use crate::{DeviceTag, MemoryClass};

/// A stream of one device: 1 is the legacy default stream, 2 the per-thread default, larger numbers are the driver's handles. Never 0, which means
/// different streams in different compilations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// Which device of the layer's kind.
    pub device_id: u32,
    /// The number.
    pub number: std::num::NonZeroUsize,
}

/// A recorded event: the driver's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub usize);

/// Bytes somewhere: in host memory, or on the layer's device where `device_id` says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where the bytes begin.
    pub address: usize,
    /// How many they are.
    pub len: usize,
    /// The device that holds them; `None` is the host.
    pub device_id: Option<u32>,
}

/// What the driver knows of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointerFacts {
    /// The kind of device that holds the memory.
    pub device: DeviceTag,
    /// Which device of that kind.
    pub device_id: u32,
    /// Who can reach the memory.
    pub memory_class: MemoryClass,
    /// Bytes of the allocation from the address on.
    pub len: usize,
}

/// A driver call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// The driver's name of the error.
    pub name: String,
    /// What was asked of the driver.
    pub operation: &'static str,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.operation, self.name)
    }
}

impl std::error::Error for DeviceError {}

/// The operations of one kind of device, as the transport uses them: as `&'static dyn DeviceLayer`, knowing no vendor.
///
/// No call waits on the host but [`wait`](Self::wait), and none blocks a thread that only lets go.
pub trait DeviceLayer: Send + Sync {
    /// The kind of device.
    fn device(&self) -> DeviceTag;

    /// Makes all later work on `stream` wait for `event`, on the device.
    ///
    /// # Errors
    /// What the driver says; nothing was ordered.
    fn order(&self, stream: Stream, event: Event) -> Result<(), DeviceError>;

    /// Records an event after the work queued on `stream` by now. The caller lets it go with [`free_event`](Self::free_event).
    ///
    /// # Errors
    /// What the driver says; nothing was recorded.
    fn record(&self, stream: Stream) -> Result<Event, DeviceError>;

    /// Blocks the calling thread until `event` is complete.
    ///
    /// # Errors
    /// What the driver says; nothing is known of the event.
    fn wait(&self, event: Event) -> Result<(), DeviceError>;

    /// Takes back an event of [`record`](Self::record); waits on it that are queued stay queued.
    fn free_event(&self, event: Event);

    /// Queues a copy of `from` to `to`, of the same length, on `stream`. Both must live until the work is done.
    ///
    /// # Safety
    /// Both spans are as they say, do not overlap, and are left alone by everything that is not ordered with `stream`.
    ///
    /// # Errors
    /// What the driver says; nothing was queued.
    #[expect(unsafe_code, reason = "declared here, implemented by device crates")]
    unsafe fn copy(&self, from: Span, to: Span, stream: Stream) -> Result<(), DeviceError>;

    /// Drops `owner` when the work queued on `streams` by now is done, on any thread, without blocking the calling one.
    fn free_after(&self, streams: &[Stream], owner: Box<dyn Send>);

    /// What the driver knows of `address`; `None` where it knows nothing, as of ordinary host memory.
    ///
    /// # Errors
    /// What the driver says.
    fn pointer_facts(&self, address: usize) -> Result<Option<PointerFacts>, DeviceError>;
}

/// A trait object of it is what the transport holds.
const _: Option<&'static dyn DeviceLayer> = None;
