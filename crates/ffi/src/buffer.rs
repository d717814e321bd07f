use std::fmt;
use std::ptr;
use std::sync::Arc;

use bitflags::bitflags;
use hurray_core::memory::{AlignedBytes, declared_alignment};
use hurray_core::{
    Allocation, AllocationRequest, BufferHandle, Dependency, DeviceError, DeviceTag, PointerError,
    Stream, SyncMode,
};
use thiserror::Error;

use crate::device::{self, DeviceHeld};
use crate::lent::Lent;
use crate::order::{self, OrderError, Part};
use crate::{Owner, Place, Readiness};

bitflags! {
    /// What else is true of a buffer. The bits are those of `HurrayBufferInfo.flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BufferFlags: u32 {
        /// Nobody writes to the bytes.
        const READ_ONLY = 1;
        /// The row names another place or mode than the bytes have. Such a buffer is relayed, and its bytes are refused.
        const DECLARED = 2;
    }
}

/// Memory that no buffer can be made of.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BufferError {
    /// Bytes at NULL.
    #[error("{len} bytes at address NULL")]
    Null {
        /// Bytes.
        len: u64,
    },
    /// Bytes past the end of the address space, or more than half of it.
    #[error("{len} bytes at {address:#x} do not fit the address space")]
    Wraps {
        /// The first byte.
        address: usize,
        /// Bytes.
        len: u64,
    },
    /// A device without that memory class (S5, S6).
    #[error("there is no {place} memory: `{}` has no class `{}`", place.device, place.memory_class)]
    Place {
        /// The pair that cannot be.
        place: Place,
    },
    /// Memory of the CPU in another mode than producer-synced (R41).
    #[error(
        "memory of the cpu is always `{}`, not `{mode}`",
        SyncMode::ProducerSynced
    )]
    CpuMode {
        /// The mode that was stated.
        mode: SyncMode,
    },
    /// Memory of a device that is not what was said of it.
    #[error(transparent)]
    Pointer(#[from] PointerError),
    /// A slice that does not lie in its buffer.
    #[error("{len} bytes from {offset} do not lie in a buffer of {bytes}")]
    Slice {
        /// The first byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes of the buffer.
        bytes: usize,
    },
}

/// Where bytes are and what they are like, without what keeps them alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// The first byte; meaningless when `len` is 0, and no host pointer on most devices.
    pub(crate) address: *mut u8,
    pub(crate) len: usize,
    pub(crate) place: Place,
    pub(crate) mode: SyncMode,
    pub(crate) flags: BufferFlags,
}

impl Region {
    /// Checks everything that can be wrong with the numbers.
    pub(crate) fn new(
        address: *mut u8,
        len: u64,
        place: Place,
        mode: SyncMode,
        flags: BufferFlags,
    ) -> Result<Self, BufferError> {
        if len > 0 && address.is_null() {
            return Err(BufferError::Null { len });
        }
        let address_space = isize::MAX.unsigned_abs();
        let bytes = usize::try_from(len)
            .ok()
            .filter(|&bytes| bytes <= address_space)
            .filter(|&bytes| bytes == 0 || address.addr().checked_add(bytes).is_some())
            .ok_or(BufferError::Wraps {
                address: address.addr(),
                len,
            })?;
        if !place.memory_class.is_valid_on(place.device) {
            return Err(BufferError::Place { place });
        }
        if place.device == DeviceTag::Cpu && mode != SyncMode::ProducerSynced {
            return Err(BufferError::CpuMode { mode });
        }
        Ok(Self {
            address,
            len: bytes,
            place,
            mode,
            flags,
        })
    }

    /// As the address has it, at most 4096; 1 where there are no bytes.
    pub(crate) fn alignment(&self) -> u32 {
        declared_alignment(self.address.addr(), self.len)
    }
}

/// Bytes somewhere and what keeps them alive.
///
/// ```text
/// Buffer ──┐
/// clone  ──┼─> Owner ──> bytes
/// slice  ──┘
/// ```
///
/// Clones and slices share the owner, which lets go of the bytes when the last of them is dropped. Nothing is copied.
///
/// Not promised: that the address is a host pointer (it is where [`Place::is_host_accessible`]), that bytes which are not read-only stay as they
/// are, and that they may be read at all: [`access::check`](crate::access::check) says.
#[derive(Clone)]
pub struct Buffer {
    region: Region,
    // Before the owner, so that an event goes back before the bytes do.
    lent: Option<Arc<Lent>>,
    owner: Arc<Owner>,
}

// SAFETY: owner and event are `Send + Sync`; the address is a number to this type, which never reads what it points to. Whoever does, does so
// in an unsafe block of their own.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` bytes at `address` that `owner` keeps alive: the one way in for memory that is neither [`AlignedBytes`] nor
    /// [allocated](Self::allocate). Alignment is measured. What a device layer says of memory that a device holds or shares with the host is compared
    /// with `place`, and such an owner is let go only once the device is done with the bytes; without a driver neither is.
    ///
    /// # Safety
    /// * `address` is valid for reads of `len` bytes, by whatever can reach `place`, until `owner` is dropped; nothing is asked of it where `len`
    ///   is 0.
    /// * Unless `flags` say read-only, it is valid for writes too.
    /// * Once `readiness` says that bytes may be read, nobody writes to them except through this buffer's address.
    ///
    /// # Errors
    /// Numbers that cannot be, or memory that is not at `place` ([`BufferError`]). The owner is dropped then.
    pub unsafe fn from_owner(
        address: *mut u8,
        len: usize,
        place: Place,
        readiness: Readiness,
        flags: BufferFlags,
        owner: Owner,
    ) -> Result<Self, BufferError> {
        let region = Region::new(address, len as u64, place, readiness.mode(), flags)?;
        device::check(&region)?;
        Ok(Self::foreign(region, Lent::of(readiness), Arc::new(owner)))
    }

    /// A buffer of memory that was checked. Its owner waits for the device from here on, where there is one.
    pub(crate) fn foreign(region: Region, lent: Option<Arc<Lent>>, owner: Arc<Owner>) -> Self {
        let held = device::holding(region.place)
            .and_then(|layer| device::hold(layer, region.place, &owner).ok());
        Self::from_parts(region, lent, held.unwrap_or(owner))
    }

    /// Memory of a device's own, `len` bytes at `place`, whose first use follows `stream`; `shareable` memory other processes and network cards reach. What
    /// fills it on that stream before anybody else is handed it is ordered already.
    ///
    /// # Errors
    /// No layer, driver or device; a class that is not allocated, an exhausted device, or what the driver says.
    pub fn allocate(
        place: Place,
        len: usize,
        shareable: bool,
        stream: &Stream,
    ) -> Result<Self, DeviceError> {
        let layer = device::reaching(place)?;
        let request = AllocationRequest {
            device_id: place.device_id,
            len,
            memory_class: place.memory_class,
            shareable,
        };
        let Allocation {
            address,
            len,
            dependency,
            owner,
            ..
        } = layer.allocate(request, stream)?;
        let readiness = dependency.map_or(Readiness::Ready, Readiness::Held);
        let region = Region {
            address: ptr::with_exposed_provenance_mut(address),
            len,
            place,
            mode: readiness.mode(),
            flags: BufferFlags::empty(),
        };
        let owner = Owner::Device(DeviceHeld::new(layer, owner));
        Ok(Self::from_parts(
            region,
            Lent::of(readiness),
            Arc::new(owner),
        ))
    }

    /// The parts again.
    pub(crate) fn from_parts(region: Region, lent: Option<Arc<Lent>>, owner: Arc<Owner>) -> Self {
        Self {
            region,
            lent,
            owner,
        }
    }

    /// Where and what, what is lent with it, and who frees it.
    pub(crate) fn into_parts(self) -> (Region, Option<Arc<Lent>>, Arc<Owner>) {
        (self.region, self.lent, self.owner)
    }

    /// Whether no clone or slice holds the bytes too. An event that nobody else holds needs their owner until it goes back.
    pub(crate) fn is_only_holder(&self) -> bool {
        let event = self
            .lent
            .as_ref()
            .filter(|lent| matches!(***lent, Lent::Event(_)) && Arc::strong_count(lent) == 1);
        Arc::strong_count(&self.owner) == 1 + usize::from(event.is_some())
    }

    /// The same bytes, kept alive by `owner`; in the mode of what they depend on now, or ready.
    pub(crate) fn depending(&self, lent: Option<Arc<Lent>>, owner: Arc<Owner>) -> Self {
        let mut region = self.region;
        region.mode = match lent.as_deref().and_then(Lent::dependency) {
            Some(dependency) => Readiness::mode_of(dependency),
            None => SyncMode::ProducerSynced,
        };
        Self::from_parts(region, lent, owner)
    }

    /// Whether it is out on a stream.
    pub(crate) fn is_loan(&self) -> bool {
        matches!(*self.owner, Owner::Loan(_))
    }

    /// Where and what.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The address of the first byte, whatever it is an address of. Reading it is the caller's to justify, with
    /// [`access::check`](crate::access::check).
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.address
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.len == 0
    }

    /// The alignment that the address has, in bytes, at most 4096; 1 where there are no bytes.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.region.alignment()
    }

    /// Where the bytes are.
    #[must_use]
    pub fn place(&self) -> Place {
        self.region.place
    }

    /// When the bytes may be read.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        match self.dependency() {
            Some(dependency) => Readiness::Held(dependency.clone()),
            None => Readiness::from(self.region.mode),
        }
    }

    /// The mode of a row over this buffer: what its readiness is called on the wire.
    #[must_use]
    pub fn mode(&self) -> SyncMode {
        self.region.mode
    }

    /// The device work that the bytes depend on, where something here can wait for it.
    #[must_use]
    pub fn dependency(&self) -> Option<&Dependency> {
        self.lent.as_ref()?.dependency()
    }

    /// What else is true of it.
    #[must_use]
    pub fn flags(&self) -> BufferFlags {
        self.region.flags
    }

    /// Who frees the bytes.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The same, to keep the bytes alive without the buffer.
    pub(crate) fn shared_owner(&self) -> Arc<Owner> {
        Arc::clone(&self.owner)
    }

    /// The row that describes this buffer, with the measured alignment.
    #[must_use]
    pub fn handle(&self) -> BufferHandle {
        BufferHandle {
            byte_size: self.region.len as u64,
            alignment: self.alignment(),
            device: self.region.place.device,
            sync_mode: self.region.mode,
            memory_class: self.region.place.memory_class,
        }
    }

    /// The buffer, number `index` of its tensor and described there by `row`, for work that is queued on `stream` from now on; as
    /// [`Tensor::order`](crate::Tensor::order) does it for all.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is handed out.
    pub fn order(
        &self,
        index: usize,
        row: &BufferHandle,
        stream: &Stream,
    ) -> Result<Self, OrderError> {
        let part = Part {
            index,
            row,
            buffer: self,
        };
        let ordered = order::onto(&[part], stream)?;
        // One for one.
        Ok(ordered.into_iter().next().unwrap_or_else(|| self.clone()))
    }

    /// The `len` bytes from `offset` on, over the same owner.
    ///
    /// # Errors
    /// [`BufferError::Slice`] where they do not lie in this buffer.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Self, BufferError> {
        if offset
            .checked_add(len)
            .is_none_or(|end| end > self.region.len)
        {
            return Err(BufferError::Slice {
                offset,
                len,
                bytes: self.region.len,
            });
        }
        let mut slice = self.clone();
        slice.region.address = self.region.address.wrapping_add(offset);
        slice.region.len = len;
        Ok(slice)
    }

    /// The same bytes, never to be written to.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.region.flags |= BufferFlags::READ_ONLY;
        self
    }

    /// The same bytes under a row that names another place or mode: to relay, not to read.
    #[must_use]
    pub fn declared(mut self) -> Self {
        self.region.flags |= BufferFlags::DECLARED;
        self
    }

    /// The same bytes under a row that names where they are.
    pub(crate) fn settled(&self) -> Self {
        let mut settled = self.clone();
        settled.region.flags -= BufferFlags::DECLARED;
        settled
    }
}

impl From<AlignedBytes> for Buffer {
    fn from(mut bytes: AlignedBytes) -> Self {
        let region = Region {
            address: bytes.as_mut_ptr(),
            len: bytes.len(),
            place: Place::HOST,
            mode: SyncMode::ProducerSynced,
            flags: BufferFlags::empty(),
        };
        Self::from_parts(region, None, Arc::new(Owner::Allocation(bytes)))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(f)
    }
}
