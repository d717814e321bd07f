use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use hurray_core::{
    BufferHandle, DeviceTag, MIN_BUFFER_ALIGNMENT, MemoryClass, Stream, SyncMode, TensorDescriptor,
};
use smallvec::SmallVec;
use thiserror::Error;

use crate::access::{self, AccessError, Reach};
use crate::buffer::Region;
use crate::loan::Returns;
use crate::order::{self, OrderError, Part};
use crate::{Buffer, BufferError, BufferFlags, BufferList, ListError};

/// A descriptor and buffers that make no tensor.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum TensorError {
    /// A descriptor that no tensor can have.
    #[error(transparent)]
    Descriptor(#[from] hurray_core::Error),
    /// The head of a composite, which is no tensor of its own.
    #[error("a composite's head owns no buffers: its members do")]
    Head,
    /// A descriptor of a composite, or one of its buffers.
    #[error("item {item} of the composite: {source}")]
    Member {
        /// Which descriptor, in stream order; the head is 0.
        item: usize,
        /// What is wrong.
        source: Box<TensorError>,
    },
    /// Another number of buffers than rows.
    #[error("{buffers} buffers for a table of {rows} rows")]
    BufferCount {
        /// Rows of the table.
        rows: usize,
        /// Buffers that came.
        buffers: usize,
    },
    /// Memory that no buffer can be made of.
    #[error("buffer {buffer}: {source}")]
    Buffer {
        /// The buffer's index.
        buffer: usize,
        /// What is wrong with it.
        source: BufferError,
    },
    /// A buffer on another device than its row's.
    #[error("buffer {buffer} is on `{found}`, its row says `{row}`")]
    Device {
        /// The buffer's index.
        buffer: usize,
        /// The row's device.
        row: DeviceTag,
        /// The buffer's device.
        found: DeviceTag,
    },
    /// A buffer of another memory class than its row's.
    #[error("buffer {buffer} is `{found}` memory, its row says `{row}`")]
    MemoryClass {
        /// The buffer's index.
        buffer: usize,
        /// The row's class.
        row: MemoryClass,
        /// The buffer's class.
        found: MemoryClass,
    },
    /// A buffer in another mode than its row's.
    #[error("buffer {buffer} is `{found}`, its row says `{row}`")]
    SyncMode {
        /// The buffer's index.
        buffer: usize,
        /// The row's mode.
        row: SyncMode,
        /// The buffer's mode.
        found: SyncMode,
    },
    /// Buffers of one tensor on several devices of one kind.
    #[error("buffer {buffer} is on device {found}, a buffer before it on device {first}")]
    DeviceId {
        /// The buffer's index.
        buffer: usize,
        /// The device of the first buffer.
        first: u32,
        /// The device of this buffer.
        found: u32,
    },
    /// A buffer with fewer bytes than its row.
    #[error("buffer {buffer} has {found} bytes, its row says {row}")]
    TooSmall {
        /// The buffer's index.
        buffer: usize,
        /// The row's bytes.
        row: u64,
        /// The buffer's bytes.
        found: u64,
    },
    /// A buffer whose address has less alignment than its row says, or than the format asks for.
    #[error(
        "buffer {buffer} is aligned to {measured} bytes as measured, and {declared} are declared"
    )]
    UnderAligned {
        /// The buffer's index.
        buffer: usize,
        /// The row's alignment; at least 64.
        declared: u32,
        /// What the address has.
        measured: u32,
    },
}

/// A tensor: a descriptor, and buffers that are what its rows say. It never changes; clones share the owners.
#[derive(Clone, Debug)]
pub struct Tensor {
    descriptor: Arc<TensorDescriptor>,
    buffers: SmallVec<[Buffer; 3]>,
}

impl Tensor {
    /// The one way to a tensor: everything that decides which bytes may be touched is checked here. The contents of index buffers are not
    /// (`decisions.md` 2).
    ///
    /// A row's alignment is what the producer declared; [`Buffer::alignment`] is what the memory has.
    ///
    /// # Errors
    /// What [`TensorDescriptor::validate`] finds, then the first buffer that is not what its row says.
    pub fn new(
        descriptor: impl Into<Arc<TensorDescriptor>>,
        buffers: impl Into<SmallVec<[Buffer; 3]>>,
    ) -> Result<Self, TensorError> {
        let (descriptor, buffers) = (descriptor.into(), buffers.into());
        check(&descriptor, buffers.iter().map(Buffer::region))?;
        Ok(Self::from_checked(descriptor, buffers))
    }

    /// A tensor of parts that [`check`] passed.
    pub(crate) fn from_checked(
        descriptor: Arc<TensorDescriptor>,
        buffers: SmallVec<[Buffer; 3]>,
    ) -> Self {
        Self {
            descriptor,
            buffers,
        }
    }

    /// Everything the tensor declares about itself.
    #[must_use]
    pub fn descriptor(&self) -> &Arc<TensorDescriptor> {
        &self.descriptor
    }

    /// Its buffers, in the order of the descriptor's table.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Whether all of its bytes may be used by `reach` now; see [`access::check`].
    ///
    /// # Errors
    /// The first buffer whose bytes may not.
    pub fn check_access(&self, reach: Reach) -> Result<(), AccessError> {
        self.descriptor
            .buffers
            .iter()
            .zip(&self.buffers)
            .enumerate()
            .try_for_each(|(index, (row, buffer))| access::check(index, row, buffer, reach))
    }

    /// The tensor as one list that can leave in a capsule: one allocation, which shares the owners.
    ///
    /// # Errors
    /// A descriptor that cannot be written, or no memory.
    pub fn export(&self) -> Result<BufferList, ListError> {
        BufferList::of_tensor(self)
    }

    /// The tensor for work that is queued on `stream` from now on, each buffer by its own mode: the stream waits once for each event that buffers share,
    /// and not at all for ready ones and for its own work. The result is `consumer_stream` of `stream` (`event` of the per-thread default), or
    /// `producer_synced` where it was; this tensor stays as it is.
    ///
    /// The bytes of the result are out on `stream` until it is dropped, with everything made of it: they are not let go before the work that is queued
    /// there by then is done. An address that outlives it is not covered.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is handed out.
    pub fn order(&self, stream: &Stream) -> Result<Self, OrderError> {
        Ok(self.with_buffers(order::onto(&self.parts(), stream)?))
    }

    /// As [`order`](Self::order), of a tensor that has just been taken from somebody: one that came ordered on `stream` is out there once, and not twice.
    ///
    /// # Errors
    /// [`OrderError`]; the tensor is let go.
    pub fn into_ordered(self, stream: &Stream) -> Result<Self, OrderError> {
        if order::are_out_on(&self.parts(), stream) {
            return Ok(self);
        }
        self.order(stream)
    }

    /// The tensor in mode `event`: an event that follows the work queued on `stream` by now, which is [ordered](Self::order) first. To be called after
    /// writing through an exported view.
    ///
    /// # Errors
    /// [`OrderError`]; memory of the CPU takes no event.
    pub fn record(&self, stream: &Stream) -> Result<Self, OrderError> {
        Ok(self.with_buffers(order::record(&self.parts(), stream)?))
    }

    /// Blocks until all bytes may be read; the tensor, `producer_synced`.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is known of the bytes.
    pub fn synchronize(&self) -> Result<Self, OrderError> {
        Ok(self.with_buffers(order::synchronize(&self.parts())?))
    }

    /// Notes that work on `stream` uses the bytes until their last holder lets go: what is queued there by then is done before they are. The stream is
    /// ordered first.
    ///
    /// # Errors
    /// [`OrderError`]; memory of the CPU remembers no stream.
    pub fn record_stream(&self, stream: &Stream) -> Result<(), OrderError> {
        order::record_stream(&self.parts(), stream)
    }

    /// Makes `stream` wait for the work of everybody who has given the bytes back so far: before they are overwritten in place.
    ///
    /// # Errors
    /// [`OrderError`]; memory of the CPU remembers no stream.
    pub fn order_after_readers(&self, stream: &Stream) -> Result<(), OrderError> {
        order::order_after_readers(&self.parts(), stream)
    }

    /// The buffers with their rows.
    pub(crate) fn parts(&self) -> impl Deref<Target = [Part<'_>]> {
        let rows = self.descriptor.buffers.iter();
        rows.zip(&self.buffers)
            .enumerate()
            .map(|(index, (row, buffer))| Part { index, row, buffer })
            .collect::<SmallVec<[_; 3]>>()
    }

    /// The same tensor over the same bytes, whose modes may be others.
    pub(crate) fn with_buffers(&self, buffers: SmallVec<[Buffer; 3]>) -> Self {
        let mut descriptor = Arc::clone(&self.descriptor);
        for (number, buffer) in buffers.iter().enumerate() {
            if descriptor.buffers[number].sync_mode != buffer.mode() {
                Arc::make_mut(&mut descriptor).buffers[number].sync_mode = buffer.mode();
            }
        }
        Self::from_checked(descriptor, buffers)
    }

    /// Lets go of its buffers together with others, if they are out on a stream.
    pub(crate) fn return_to(&mut self, returns: &mut Returns) {
        if self.buffers.iter().any(Buffer::is_loan) {
            returns.extend(mem::take(&mut self.buffers));
        }
    }

    /// The parts again.
    #[must_use]
    pub fn into_parts(mut self) -> (Arc<TensorDescriptor>, SmallVec<[Buffer; 3]>) {
        (Arc::clone(&self.descriptor), mem::take(&mut self.buffers))
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.return_to(&mut Returns::default());
    }
}

/// Gives each row the alignment that its buffer has; a declared one keeps its own as far as its buffer has it (decision 15). A row with bytes says
/// 64 at least, and [`Tensor::new`] refuses a buffer that has less.
pub fn measure_rows(rows: &mut [BufferHandle], buffers: &[Buffer]) {
    for (row, buffer) in rows.iter_mut().zip(buffers) {
        let is_declared = buffer.flags().contains(BufferFlags::DECLARED);
        let measured = buffer.alignment();
        if row.byte_size > 0 {
            let measured = measured.max(MIN_BUFFER_ALIGNMENT as u32);
            row.alignment = if is_declared {
                row.alignment.min(measured)
            } else {
                measured
            };
        } else if !is_declared {
            row.alignment = measured;
        }
    }
}

/// Checks a descriptor, and then each region against its row, in the order of `docs/c-abi.md`.
pub(crate) fn check<'a>(
    descriptor: &TensorDescriptor,
    regions: impl ExactSizeIterator<Item = &'a Region>,
) -> Result<(), TensorError> {
    if descriptor.layout.is_virtual() {
        return Err(TensorError::Head);
    }
    let rows = &descriptor.buffers;
    if regions.len() != rows.len() {
        return Err(TensorError::BufferCount {
            rows: rows.len(),
            buffers: regions.len(),
        });
    }
    descriptor.validate()?;
    let mut first = None;
    for (buffer, (row, region)) in rows.iter().zip(regions).enumerate() {
        check_row(buffer, row, region)?;
        if !region.flags.contains(BufferFlags::DECLARED) {
            let found = region.place.device_id;
            let first = *first.get_or_insert(found);
            if first != found {
                return Err(TensorError::DeviceId {
                    buffer,
                    first,
                    found,
                });
            }
        }
    }
    Ok(())
}

fn check_row(buffer: usize, row: &BufferHandle, region: &Region) -> Result<(), TensorError> {
    let Region { place, mode, .. } = *region;
    if !region.flags.contains(BufferFlags::DECLARED) {
        if place.device != row.device {
            return Err(TensorError::Device {
                buffer,
                row: row.device,
                found: place.device,
            });
        }
        if place.memory_class != row.memory_class {
            return Err(TensorError::MemoryClass {
                buffer,
                row: row.memory_class,
                found: place.memory_class,
            });
        }
        if mode != row.sync_mode {
            return Err(TensorError::SyncMode {
                buffer,
                row: row.sync_mode,
                found: mode,
            });
        }
    }
    let found = region.len as u64;
    if found < row.byte_size {
        return Err(TensorError::TooSmall {
            buffer,
            row: row.byte_size,
            found,
        });
    }
    // An empty row's address is never used.
    if row.byte_size > 0 {
        let declared = row.alignment.max(MIN_BUFFER_ALIGNMENT as u32);
        if !region.address.addr().is_multiple_of(declared as usize) {
            return Err(TensorError::UnderAligned {
                buffer,
                declared,
                measured: region.alignment(),
            });
        }
    }
    Ok(())
}
