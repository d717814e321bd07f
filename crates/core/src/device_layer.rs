//! What the transport asks of a device (`sync.md`).

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::ThreadId;

use thiserror::Error;

use crate::{DeviceTag, MemoryClass};

/// What stands behind a [`Stream`] and is kept alive while the stream is in use: a stream of our own, another library's object.
pub trait StreamObject: Send + Sync {
    /// Whether its owner has closed it. Nothing more is queued on it then, but what let it go still may name it.
    fn is_closed(&self) -> bool {
        false
    }
}

/// A stream of one device. Its number is 1 for the legacy default stream, 2 for the per-thread default, else the driver's handle; never 0, which
/// means different streams in different compilations.
#[derive(Clone)]
pub struct Stream {
    device_id: u32,
    context: usize,
    number: NonZeroUsize,
    id: u64,
    object: Option<Arc<dyn StreamObject>>,
}

impl Stream {
    /// The number of the legacy default stream.
    pub const LEGACY: NonZeroUsize = NonZeroUsize::MIN;
    /// The number of the per-thread default stream, another stream in every thread.
    pub const PER_THREAD: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

    /// Stream `number` of the driver's context `context`, which belongs to device `device_id`. The driver gives a handle out again once its stream is
    /// destroyed, but never the `id`; what a default stream's is matters to nobody. Device layers make streams
    /// ([`DeviceLayer::stream`]); everybody else asks them.
    ///
    /// # Safety
    /// The context lives for good, and the stream at least as long as every clone of this value and every work that was given it.
    #[must_use]
    #[expect(
        unsafe_code,
        reason = "declared here, called by device crates with their driver's handles"
    )]
    pub unsafe fn from_parts(
        device_id: u32,
        context: usize,
        number: NonZeroUsize,
        id: u64,
        object: Option<Arc<dyn StreamObject>>,
    ) -> Self {
        Self {
            device_id,
            context,
            number,
            id,
            object,
        }
    }

    /// Which device of the layer's kind.
    #[must_use]
    pub fn device_id(&self) -> u32 {
        self.device_id
    }

    /// The driver's context.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> NonZeroUsize {
        self.number
    }

    /// What no other stream of this process has been or will be called, default streams left aside.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it is another stream in every thread.
    #[must_use]
    pub fn is_per_thread(&self) -> bool {
        self.number == Self::PER_THREAD
    }

    /// Whether its owner has closed it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.object
            .as_ref()
            .is_some_and(|object| object.is_closed())
    }

    /// That bytes of device `device_id` may be handed out on this stream.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] where the stream is of another device.
    pub fn require_device(&self, device_id: u32) -> Result<(), DeviceError> {
        if self.device_id == device_id {
            return Ok(());
        }
        Err(DeviceError::OtherDevice {
            bytes: device_id,
            stream: self.device_id,
        })
    }
}

/// Whether both name the same stream; the per-thread default is the same to the calling thread only.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        (self.context, self.number, self.id) == (other.context, other.number, other.id)
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} of device {}", self.number, self.device_id)
    }
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventState {
    /// Recorded, as far as anybody here knows.
    Recorded,
    /// Recorded in the capture with this number: part of a graph, and complete never.
    Captured(u64),
    /// Never recorded: waiting for it would be no wait.
    NotRecorded,
    /// Closed by its owner.
    Closed,
}

/// What stands behind an [`Event`].
///
/// # Safety
/// The handle is a live event of the driver's as long as the value lives.
#[expect(unsafe_code, reason = "declared here, implemented over a driver")]
pub unsafe trait EventObject: Send + Sync {
    /// The driver's handle.
    fn handle(&self) -> usize;

    /// Where it stands.
    fn state(&self) -> EventState {
        EventState::Recorded
    }
}

/// An event, shared by all who wait for it; it goes back to whoever made it with the last of them.
#[derive(Clone)]
pub struct Event(Arc<dyn EventObject>);

impl Event {
    /// The event that `object` holds.
    #[must_use]
    pub fn new(object: Arc<dyn EventObject>) -> Self {
        Self(object)
    }

    /// The driver's handle, live as long as this value.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.0.handle()
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> EventState {
        self.0.state()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {:#x}", self.handle())
    }
}

/// The device work that bytes depend on: what a buffer in mode `event` or `consumer_stream` holds. One that is `producer_synced` holds none.
#[derive(Clone, Debug)]
pub enum Dependency {
    /// What was queued when the event was recorded.
    Event(Event),
    /// What is queued on the stream; never the per-thread default, which is no stream to anybody else.
    Stream(Stream),
}

/// What to allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationRequest {
    /// The device that holds the memory, or that host memory is pinned for.
    pub device_id: u32,
    /// Bytes.
    pub len: usize,
    /// `standard`, `host_pinned` or `unified`.
    pub memory_class: MemoryClass,
    /// Whether other processes or network cards are to reach it; pools can't give such memory.
    pub shareable: bool,
}

/// Memory of a device's own.
pub struct Allocation {
    /// The first byte; 0 where there are none.
    pub address: usize,
    /// Bytes.
    pub len: usize,
    /// The alignment that the address has, in bytes, at most 4096; 1 where there are no bytes.
    pub alignment: u32,
    /// What its first use must follow: the allocation's stream, or nothing, where the host reaches the memory and may use it at once.
    pub dependency: Option<Dependency>,
    /// Frees it.
    pub owner: Box<dyn DeviceOwner>,
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len, self.address)
    }
}

/// Whoever keeps bytes alive that a device may still use when their last holder lets go. Dropping it lets go of the bytes once the work that the layer
/// was told of is done, on any thread, never blocking the calling one. Only the layer that made it can use it otherwise.
pub trait DeviceOwner: Any + Send + Sync {
    /// Whether dropping this owner now gives the bytes back in the order of `stream`, on which one use has not come back and no other stream has used
    /// them: then nothing need be recorded for that use to come back first.
    fn goes_back_on(&self, stream: &Stream) -> bool {
        let _ = stream;
        false
    }
}

/// Whoever keeps foreign bytes alive that can go back to their producer in a stream's order. Dropping it says that all work is done.
pub trait StreamOrdered: Send + Sync {
    /// Gives the bytes back once the work queued on `stream` by now is done, without waiting for it. False where the producer does not take them so:
    /// nothing has happened, and the bytes are still held.
    fn release_on(&mut self, stream: &Stream) -> bool;
}

/// One end of a copy: rows of bytes somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    /// The first byte.
    pub address: usize,
    /// Bytes from the beginning of a row to the next one's.
    pub pitch: usize,
    /// The device that holds them; `None` is the host.
    pub device_id: Option<u32>,
}

/// `rows` rows of `row_len` bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// Where they are.
    pub from: CopyEnd,
    /// Where they go.
    pub to: CopyEnd,
    /// Bytes of a row; at most either pitch, unless there is one row.
    pub row_len: usize,
    /// Rows.
    pub rows: usize,
}

impl CopyRequest {
    /// `len` bytes in one piece. Addresses are of the host where the device is `None`.
    #[must_use]
    pub const fn contiguous(
        from: (usize, Option<u32>),
        to: (usize, Option<u32>),
        len: usize,
    ) -> Self {
        Self {
            from: CopyEnd {
                address: from.0,
                pitch: len,
                device_id: from.1,
            },
            to: CopyEnd {
                address: to.0,
                pitch: len,
                device_id: to.1,
            },
            row_len: len,
            rows: 1,
        }
    }

    /// Bytes that are copied.
    ///
    /// # Errors
    /// [`DeviceError::CopyShape`] where rows overlap or an end does not fit the address space.
    pub fn len(&self) -> Result<usize, DeviceError> {
        let shape = || DeviceError::CopyShape {
            row_len: self.row_len,
            rows: self.rows,
            from_pitch: self.from.pitch,
            to_pitch: self.to.pitch,
        };
        for end in [self.from, self.to] {
            if self.rows > 1 && end.pitch < self.row_len {
                return Err(shape());
            }
            self.rows
                .saturating_sub(1)
                .checked_mul(end.pitch)
                .and_then(|to_last| to_last.checked_add(self.row_len))
                .and_then(|extent| extent.checked_add(end.address))
                .filter(|end| isize::try_from(*end).is_ok())
                .ok_or_else(shape)?;
        }
        self.row_len.checked_mul(self.rows).ok_or_else(shape)
    }

    /// Whether no byte is copied.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.row_len == 0 || self.rows == 0
    }
}

/// What the driver knows of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointerFacts {
    /// Which device of the layer's kind; for host memory, the one it is pinned for.
    pub device_id: u32,
    /// Who can reach the memory.
    pub memory_class: MemoryClass,
    /// Bytes of the mapping from the address on.
    pub len: usize,
}

/// What somebody says of foreign memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerClaim {
    /// The first byte.
    pub address: usize,
    /// Bytes.
    pub len: usize,
    /// Which device of the layer's kind.
    pub device_id: u32,
    /// Who can reach the memory.
    pub memory_class: MemoryClass,
}

/// A device that can't be used, or a call of its driver that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No driver, or no device. The sentence says which, and what helps.
    #[error("{reason}")]
    Unavailable {
        /// The sentence.
        reason: String,
    },
    /// The driver was initialised before this process was forked, and works in the parent only.
    #[error(
        "this process was forked from one that had used a device, and no device can be used in it: start processes with `spawn` or `forkserver`"
    )]
    Forked,
    /// The driver said so.
    #[error("{operation} failed: {name}")]
    Driver {
        /// The driver's function.
        operation: &'static str,
        /// The driver's name of the error.
        name: String,
    },
    /// The device has no such block left.
    #[error(
        "{operation} failed: {name}: {requested} bytes were asked of device {device_id}, which has {free} of {total} bytes free"
    )]
    OutOfMemory {
        /// The driver's function.
        operation: &'static str,
        /// The driver's name of the error.
        name: String,
        /// Bytes that were asked for.
        requested: usize,
        /// Bytes that the device has left.
        free: usize,
        /// Bytes that the device has.
        total: usize,
        /// Which device.
        device_id: u32,
    },
    /// There are fewer devices.
    #[error("there is no device {device_id}, only {count} of them, counted from 0")]
    NoDevice {
        /// The device that was asked for.
        device_id: u32,
        /// How many there are.
        count: u32,
    },
    /// A stream of one device was given for the bytes of another.
    #[error(
        "the bytes are on device {bytes} and the stream is of device {stream}: name a stream of device {bytes}, or copy with `.to()`"
    )]
    OtherDevice {
        /// The device of the bytes.
        bytes: u32,
        /// The device of the stream.
        stream: u32,
    },
    /// A stream or an event of ours that was closed.
    #[error("the {object} is closed")]
    Closed {
        /// `stream` or `event`.
        object: &'static str,
    },
    /// An event of ours that was never recorded: waiting for it would be no wait.
    #[error("the event was never recorded, and nothing can wait for it")]
    NotRecorded,
    /// A graph capture that must not be touched.
    #[error(
        "{operation} would break a graph capture: call `.synchronize()` before the capture begins, or name a stream of the same capture with `stream=`"
    )]
    Capturing {
        /// What was asked.
        operation: &'static str,
    },
    /// Rows that overlap or do not fit the address space.
    #[error(
        "{rows} rows of {row_len} bytes, {from_pitch} bytes apart in the source and {to_pitch} in the target, can't be copied"
    )]
    CopyShape {
        /// Bytes of a row.
        row_len: usize,
        /// Rows.
        rows: usize,
        /// Bytes between rows of the source.
        from_pitch: usize,
        /// Bytes between rows of the target.
        to_pitch: usize,
    },
    /// A copy from pageable host memory to pageable host memory.
    #[error("neither end of the copy is memory that a device reaches")]
    NoDeviceEnd,
    /// A memory class that this layer does not allocate.
    #[error("memory of class `{memory_class}` is not allocated here")]
    NoSuchMemory {
        /// The class that was asked for.
        memory_class: MemoryClass,
    },
}

/// Foreign memory that is not what was said of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PointerError {
    /// The driver could not be asked.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Bytes past the end of the address space.
    #[error("{len} bytes at {address:#x} do not fit the address space")]
    Wraps {
        /// The first byte.
        address: usize,
        /// Bytes.
        len: usize,
    },
    /// Memory that the driver does not know.
    #[error(
        "the address {address:#x} was said to be memory of device {device_id}, and the driver does not know it"
    )]
    Unknown {
        /// The first address that it does not know.
        address: usize,
        /// The device that was named.
        device_id: u32,
    },
    /// Memory of another device.
    #[error(
        "the address {address:#x} was said to be on device {claimed}, and is on device {found}"
    )]
    OtherDevice {
        /// The address.
        address: usize,
        /// The device that was named.
        claimed: u32,
        /// The device that has it.
        found: u32,
    },
    /// Memory of another class.
    #[error("the address {address:#x} was said to be `{claimed}` memory, and is `{found}`")]
    OtherClass {
        /// The address.
        address: usize,
        /// The class that was named.
        claimed: MemoryClass,
        /// The class it has.
        found: MemoryClass,
    },
    /// Memory that ends too early.
    #[error("{len} bytes were said to begin at {address:#x}, and only {found} do")]
    Short {
        /// The first byte.
        address: usize,
        /// Bytes that were claimed.
        len: usize,
        /// Bytes that there are.
        found: usize,
    },
}

/// Page-locked host memory in chunks of one size, which one thread copies through for a while, and a stream of its own. While the host fills or
/// empties one chunk, the copies from or to the others are under way.
///
/// ```text
/// chunk ─> fill it, queue copies from it ─> advance ─> chunk ─> …
/// ```
///
/// Dropped between the two, it is not used again: what is queued cannot be known.
pub trait StagingRing: Send {
    /// A stream that nobody else queues work on, where the caller has none that it is to copy on.
    fn stream(&self) -> &Stream;

    /// Bytes of a chunk: a multiple of 4096, on a boundary of 4096 at least.
    fn chunk_len(&self) -> usize;

    /// How many chunks there are: so many times [`advance`](Self::advance) leads to the same one again.
    fn chunks(&self) -> usize;

    /// The current chunk, with what the last copy to it brought. Blocks until the last copies from or to it are done.
    ///
    /// # Errors
    /// What the driver says.
    fn chunk(&mut self) -> Result<&mut [u8], DeviceError>;

    /// Goes on to the next chunk. Copies from or to the current one are queued on `copying` by now, and on no other stream; on none, where it is
    /// `None`.
    ///
    /// # Errors
    /// What the driver says. The ring is not used again.
    fn advance(&mut self, copying: Option<&Stream>) -> Result<(), DeviceError>;
}

/// The operations of one kind of device, as the transport uses them: as `&'static dyn DeviceLayer`, knowing no vendor.
///
/// No call waits on the host but [`wait`](Self::wait), [`copy`](Self::copy) where one end is pageable memory, and [`StagingRing::chunk`].
pub trait DeviceLayer: Send + Sync {
    /// The kind of device.
    fn device(&self) -> DeviceTag;

    /// How many devices there are, at least one.
    ///
    /// # Errors
    /// Why there is none.
    fn device_count(&self) -> Result<u32, DeviceError>;

    /// The stream with this number, of device `device_id`. `object` is kept alive while the stream is in use.
    ///
    /// # Safety
    /// The number is 1, 2 or the handle of a stream that lives as long as `object`, or, where there is none, as long as everything that was given the
    /// stream.
    ///
    /// # Errors
    /// No such device; a stream of another one.
    #[expect(unsafe_code, reason = "declared here, implemented by device crates")]
    unsafe fn stream(
        &self,
        device_id: u32,
        number: NonZeroUsize,
        object: Option<Arc<dyn StreamObject>>,
    ) -> Result<Stream, DeviceError>;

    /// Makes all later work on `stream` wait, on the device, for all of `dependencies`, each once. What the ordered bytes depend on then: nothing
    /// where `dependencies` were none, else the stream, or an event where it is the per-thread default.
    ///
    /// # Errors
    /// A closed stream, an event that is closed or was never recorded, a capture that it would break (before the driver is called), or what the driver
    /// says. The bytes must not be handed out.
    fn order(
        &self,
        dependencies: &[&Dependency],
        stream: &Stream,
    ) -> Result<Option<Dependency>, DeviceError>;

    /// Records an event after the work queued on `stream` by now.
    ///
    /// # Errors
    /// A closed stream, or what the driver says.
    fn record(&self, stream: &Stream) -> Result<Event, DeviceError>;

    /// Blocks the calling thread until all of `dependencies` are complete.
    ///
    /// # Errors
    /// As [`order`](Self::order). Nothing is known of the bytes.
    fn wait(&self, dependencies: &[&Dependency]) -> Result<(), DeviceError>;

    /// Memory. That of class `standard` is first used on `stream`, and what fills it there before it is handed out needs no [`enter`](Self::enter);
    /// other memory is ready at once, and every use of it on a stream needs one.
    ///
    /// # Errors
    /// No such device or class, a device that is exhausted, or what the driver says.
    fn allocate(
        &self,
        request: AllocationRequest,
        stream: &Stream,
    ) -> Result<Allocation, DeviceError>;

    /// An owner that drops `owner` when the device is done with the bytes it keeps alive.
    ///
    /// # Errors
    /// Why there is no device. `owner` is dropped.
    fn own(&self, owner: Box<dyn Send + Sync>) -> Result<Box<dyn DeviceOwner>, DeviceError>;

    /// As [`own`](Self::own), for bytes of device `device_id` whose producer may take them back in a stream's order: on a stream of that device which
    /// follows everybody who uses them.
    ///
    /// # Errors
    /// Why there is no device. `owner` is dropped.
    fn own_stream_ordered(
        &self,
        device_id: u32,
        owner: Box<dyn StreamOrdered>,
    ) -> Result<Box<dyn DeviceOwner>, DeviceError>;

    /// Notes that the bytes of `owners` are handed out on `stream`, which has been ordered after what they depend on, before they are: whoever only wants
    /// to name a stream that uses them orders it first. While the stream captures, what it reads lives as long as the graph.
    ///
    /// # Errors
    /// A closed stream, or what the driver says; the bytes must not be handed out.
    fn enter(&self, owners: &[&dyn DeviceOwner], stream: &Stream) -> Result<(), DeviceError>;

    /// Notes that bytes which thread `to` was handed on `stream` have come back: whatever uses them is queued there by now. The thread says which stream
    /// it is where that is the per-thread default. Failures are kept, and make the release later.
    fn leave(&self, owners: &[&dyn DeviceOwner], stream: &Stream, to: ThreadId);

    /// Makes later work on `stream` wait for everything that has come back so far, on whatever stream: before bytes are overwritten in place.
    ///
    /// # Errors
    /// A closed stream, a capture, or what the driver says; nothing may be overwritten.
    fn order_after_readers(
        &self,
        owners: &[&dyn DeviceOwner],
        stream: &Stream,
    ) -> Result<(), DeviceError>;

    /// Queues copies on `stream`, which is ordered after what both ends depend on. Bytes of pageable host memory are read before the call returns, and
    /// written before it returns.
    ///
    /// # Safety
    /// Every end is as it says, ends do not overlap, and until the work is done they live and are left alone by everything that is not ordered with
    /// `stream`.
    ///
    /// # Errors
    /// What the driver says; some of the copies may be queued.
    #[expect(unsafe_code, reason = "declared here, implemented by device crates")]
    unsafe fn copy(&self, copies: &[CopyRequest], stream: &Stream) -> Result<(), DeviceError>;

    /// Chunks through which bytes come to the memory of device `device_id`, or from it. They go back when the ring is dropped, with their copies
    /// still under way.
    ///
    /// # Errors
    /// No such device, or what the driver says.
    fn staging_ring(&self, device_id: u32) -> Result<Box<dyn StagingRing>, DeviceError>;

    /// What the driver knows of `address`; `None` where it knows nothing, as of ordinary host memory.
    ///
    /// # Errors
    /// What the driver says.
    fn pointer_facts(&self, address: usize) -> Result<Option<PointerFacts>, DeviceError>;

    /// That foreign memory is what it was said to be, mapping by mapping. Nothing is asked of 0 bytes.
    ///
    /// # Errors
    /// How it differs.
    fn check_pointer(&self, claim: &PointerClaim) -> Result<(), PointerError>;
}

/// A trait object of it is what the transport holds.
const _: Option<&'static dyn DeviceLayer> = None;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(row_len: usize, rows: usize, from_pitch: usize, to_pitch: usize) -> CopyRequest {
        let end = |pitch| CopyEnd {
            address: 4096,
            pitch,
            device_id: None,
        };
        CopyRequest {
            from: end(from_pitch),
            to: end(to_pitch),
            row_len,
            rows,
        }
    }

    #[test]
    fn a_copy_counts_its_bytes() {
        assert_eq!(rows(16, 3, 32, 16).len(), Ok(48));
        assert_eq!(rows(16, 1, 0, 0).len(), Ok(16));
        assert_eq!(rows(16, 0, 16, 16).len(), Ok(0));
        assert!(rows(16, 0, 16, 16).is_empty());
        assert_eq!(
            CopyRequest::contiguous((0, None), (0, Some(1)), 7).len(),
            Ok(7)
        );
    }

    #[test]
    fn rows_that_overlap_or_leave_the_address_space_are_refused() {
        for bad in [
            rows(16, 2, 15, 16),
            rows(16, 2, 16, 15),
            rows(usize::MAX, 1, 0, 0),
            rows(1, usize::MAX, 2, 2),
            rows(1 << 40, 1 << 40, 1 << 40, 1 << 40),
        ] {
            assert!(
                matches!(bad.len(), Err(DeviceError::CopyShape { .. })),
                "{bad:?}"
            );
        }
    }
}
