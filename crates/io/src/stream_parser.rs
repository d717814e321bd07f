//! The stream without I/O: where the next bytes go, and which item they complete (`stream.md` Part I).

use std::sync::Arc;

use hurray_core::memory::AlignedBytes;
use hurray_core::{
    BufferHandle, DescriptorError, Error, MIN_BUFFER_ALIGNMENT, PAGE_ALIGNMENT, SyncMode,
    TensorDescriptor, composite,
};
use hurray_ffi::{Buffer, CompositeAssembler, Item, Tensor, measure_rows};
use smallvec::SmallVec;

use crate::StreamError;
use crate::incoming::{declare_elsewhere, is_elsewhere};

/// Bytes that tell a descriptor's version and length.
const PREFIX_LEN: usize = 10;
/// Bytes that are taken for a buffer before any of it has come; they grow to `GROWTH` times what has (decision 9).
const FIRST_STEP: usize = 1 << 16;
/// As many as the stream had before are taken too, up to this: what came long ago says little of what is to come.
const MOST_TRUST: u64 = 1 << 28;
const FIRST_DESCRIPTOR_STEP: usize = 1 << 10;
const GROWTH: usize = 4;

/// What a stream may ask of its reader, and what a writer may write.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StreamLimits {
    /// The longest descriptor in bytes, 16 MiB unless set.
    pub max_descriptor_bytes: u32,
    /// The largest buffer in bytes; unlimited unless set.
    pub max_buffer_bytes: u64,
    /// Heads that may be open at once; 64 unless set, and at most.
    pub max_composite_depth: usize,
    /// Whether the other end is another machine, so that every buffer must be `producer_synced`.
    pub cross_machine: bool,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            max_descriptor_bytes: 1 << 24,
            max_buffer_bytes: u64::MAX,
            max_composite_depth: composite::MAX_DEPTH,
            cross_machine: false,
        }
    }
}

/// Reads a stream: says where its next bytes go, and takes them.
///
/// ```text
/// space() ─> &mut [u8] ─ fill n of them ─> advance(n) ─> an item, or none yet
///                        no more to come ─> end()
/// ```
///
/// A buffer's bytes go straight to where they stay, unless it is larger than 64 KiB and than all that came before it, and they move as it grows:
/// memory follows the bytes that came, never the bytes that were declared. No space reaches past an item's last byte, so nothing is read ahead.
#[derive(Debug)]
pub struct StreamParser {
    limits: StreamLimits,
    position: u64,
    state: State,
    /// The composite whose members are still to come.
    composite: Option<CompositeAssembler>,
}

#[derive(Debug)]
enum State {
    Descriptor {
        /// The first `filled` came.
        bytes: Vec<u8>,
        filled: usize,
    },
    Buffers {
        descriptor: Arc<TensorDescriptor>,
        done: SmallVec<[Buffer; 3]>,
        /// Of the next buffer, the first `filled` came.
        bytes: AlignedBytes,
        filled: usize,
    },
    Failed,
}

impl StreamParser {
    /// Waits for the first byte.
    #[must_use]
    pub fn new(limits: StreamLimits) -> Self {
        Self {
            limits,
            position: 0,
            state: State::waiting(Vec::new()),
            composite: None,
        }
    }

    /// Bytes that came.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the next bytes go. Never empty, except after an error.
    pub fn space(&mut self) -> &mut [u8] {
        let (bytes, filled) = match &mut self.state {
            State::Descriptor { bytes, filled } => (bytes.as_mut_slice(), *filled),
            State::Buffers { bytes, filled, .. } => (&mut **bytes, *filled),
            State::Failed => (&mut [][..], 0),
        };
        bytes.get_mut(filled..).unwrap_or_default()
    }

    /// Takes the first `count` bytes of [`space`](Self::space), which were written there, and gives the item that they complete.
    ///
    /// # Errors
    /// ST2–ST6, ST8–ST10; more bytes than there is space; no memory. The parser cannot be used any further.
    pub fn advance(&mut self, count: usize) -> Result<Option<Item>, StreamError> {
        if count > self.space().len() {
            self.state = State::Failed;
        }
        self.position = self.position.saturating_add(count as u64);
        // What fails leaves this behind.
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Descriptor { bytes, filled } => {
                self.take_descriptor(bytes, filled.saturating_add(count))
            }
            State::Buffers {
                descriptor,
                done,
                bytes,
                filled,
            } => self.take_buffer(descriptor, done, bytes, filled.saturating_add(count)),
            State::Failed => Err(StreamError::Failed),
        }
    }

    /// Says that no more bytes come.
    ///
    /// # Errors
    /// ST1, ST7; an earlier error.
    pub fn end(&self) -> Result<(), StreamError> {
        let inside = match &self.state {
            State::Descriptor { filled: 0, .. } => {
                return match &self.composite {
                    None => Ok(()),
                    Some(composite) => Err(StreamError::Torn {
                        position: self.position,
                        open: composite.depth(),
                    }),
                };
            }
            State::Descriptor { .. } => "descriptor",
            State::Buffers { .. } => "buffer",
            State::Failed => return Err(StreamError::Failed),
        };
        Err(StreamError::Truncated {
            position: self.position,
            inside,
        })
    }

    fn take_descriptor(
        &mut self,
        mut bytes: Vec<u8>,
        filled: usize,
    ) -> Result<Option<Item>, StreamError> {
        if filled < bytes.len() {
            self.state = State::Descriptor { bytes, filled };
            return Ok(None);
        }
        let length = self.check_prefix(&bytes)?;
        if filled < length {
            let room = filled.saturating_mul(GROWTH).max(FIRST_DESCRIPTOR_STEP);
            bytes.resize(room.min(length), 0);
            self.state = State::Descriptor { bytes, filled };
            return Ok(None);
        }
        let (descriptor, _) = TensorDescriptor::decode(&bytes)?;
        let descriptor = Arc::new(descriptor);
        self.check_limits(&descriptor)?;
        if descriptor.layout.is_virtual() || self.composite.is_some() {
            self.composite
                .get_or_insert_default()
                .push(Arc::clone(&descriptor))?;
        } else {
            descriptor.validate()?;
        }
        if descriptor.layout.is_virtual() {
            self.state = State::waiting(bytes);
            return self.complete_composite();
        }
        self.next_buffer(descriptor, SmallVec::new())
    }

    /// Magic, version and length of a descriptor, before its other bytes.
    fn check_prefix(&self, bytes: &[u8]) -> Result<usize, StreamError> {
        if let Err(Error::Descriptor(
            error @ (DescriptorError::Magic { .. } | DescriptorError::MajorVersion { .. }),
        )) = TensorDescriptor::decode(bytes)
        {
            return Err(Error::from(error).into());
        }
        let length = bytes.get(6..).and_then(<[u8]>::first_chunk);
        let length = u32::from_le_bytes(length.copied().unwrap_or_default());
        if (length as usize) < PREFIX_LEN {
            return Err(StreamError::ShortDescriptor { length });
        }
        let limit = self.limits.max_descriptor_bytes;
        if length > limit {
            return Err(StreamError::LongDescriptor { length, limit });
        }
        Ok(length as usize)
    }

    fn check_limits(&self, descriptor: &TensorDescriptor) -> Result<(), StreamError> {
        for (buffer, row) in descriptor.buffers.iter().enumerate() {
            let limit = self.limits.max_buffer_bytes;
            if row.byte_size > limit {
                return Err(StreamError::LargeBuffer {
                    buffer,
                    byte_size: row.byte_size,
                    limit,
                });
            }
            if self.limits.cross_machine && row.sync_mode != SyncMode::ProducerSynced {
                return Err(StreamError::SyncMode {
                    buffer,
                    mode: row.sync_mode,
                });
            }
        }
        let open = self.composite.as_ref().map_or(0, CompositeAssembler::depth);
        let limit = self.limits.max_composite_depth;
        if descriptor.layout.is_virtual() && open >= limit {
            return Err(StreamError::Depth { limit });
        }
        Ok(())
    }

    fn take_buffer(
        &mut self,
        descriptor: Arc<TensorDescriptor>,
        mut done: SmallVec<[Buffer; 3]>,
        bytes: AlignedBytes,
        filled: usize,
    ) -> Result<Option<Item>, StreamError> {
        let row = descriptor.buffers.get(done.len()).copied();
        let row = row.ok_or(StreamError::Failed)?;
        if filled as u64 == row.byte_size {
            done.push(Buffer::from(bytes));
            return self.next_buffer(descriptor, done);
        }
        let bytes = if filled < bytes.len() {
            bytes
        } else {
            let step = self.step().max(filled.saturating_mul(GROWTH));
            let mut larger = room_for(&row, step)?;
            if let Some(front) = larger.get_mut(..filled) {
                front.copy_from_slice(&bytes);
            }
            larger
        };
        self.state = State::Buffers {
            descriptor,
            done,
            bytes,
            filled,
        };
        Ok(None)
    }

    /// Bytes that may be taken for a buffer, whatever of it has come: a long stream of large buffers moves none of them but the first.
    fn step(&self) -> usize {
        FIRST_STEP.max(self.position.min(MOST_TRUST) as usize)
    }

    /// Waits for the next buffer that has bytes, or completes the tensor.
    fn next_buffer(
        &mut self,
        descriptor: Arc<TensorDescriptor>,
        mut done: SmallVec<[Buffer; 3]>,
    ) -> Result<Option<Item>, StreamError> {
        while let Some(row) = descriptor.buffers.get(done.len()) {
            let bytes = room_for(row, self.step())?;
            if !bytes.is_empty() {
                self.state = State::Buffers {
                    descriptor,
                    done,
                    bytes,
                    filled: 0,
                };
                return Ok(None);
            }
            done.push(Buffer::from(bytes));
        }
        self.complete_tensor(descriptor, done)
    }

    fn complete_tensor(
        &mut self,
        mut descriptor: Arc<TensorDescriptor>,
        mut buffers: SmallVec<[Buffer; 3]>,
    ) -> Result<Option<Item>, StreamError> {
        declare_elsewhere(&descriptor.buffers, &mut buffers);
        if let Some(composite) = &mut self.composite {
            // Then the composite is the only one to hold it.
            drop(descriptor);
            composite.fill(buffers)?;
            self.state = State::waiting(Vec::new());
            return self.complete_composite();
        }
        measure_rows(&mut Arc::make_mut(&mut descriptor).buffers, &buffers);
        let tensor = Tensor::new(descriptor, buffers)?;
        self.state = State::waiting(Vec::new());
        Ok(Some(Item::Tensor(tensor)))
    }

    fn complete_composite(&mut self) -> Result<Option<Item>, StreamError> {
        let complete = self.composite.take_if(|composite| composite.is_complete());
        match complete {
            Some(composite) => Ok(Some(Item::Composite(composite.finish()?))),
            None => Ok(None),
        }
    }
}

impl State {
    /// Waits for the next descriptor.
    fn waiting(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.resize(PREFIX_LEN, 0);
        Self::Descriptor { bytes, filled: 0 }
    }
}

/// Memory for as much of a buffer as `step` allows; a row that is kept is kept with its alignment, up to a page.
fn room_for(row: &BufferHandle, step: usize) -> Result<AlignedBytes, StreamError> {
    let len = usize::try_from(row.byte_size)
        .unwrap_or(usize::MAX)
        .min(step);
    let alignment = if is_elsewhere(row) {
        (row.alignment as usize).clamp(MIN_BUFFER_ALIGNMENT, PAGE_ALIGNMENT)
    } else {
        MIN_BUFFER_ALIGNMENT
    };
    Ok(AlignedBytes::zeroed_with_alignment(len, alignment)?)
}
