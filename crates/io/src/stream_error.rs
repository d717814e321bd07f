use std::io;

use hurray_core::memory::AllocationError;
use hurray_core::{BufferTableError, CompositeError, Error, SyncMode};
use hurray_ffi::{OrderError, TensorError};
use thiserror::Error;

use crate::OutgoingError;
use crate::outflow::WriteError;

/// What can be wrong with a stream, and with what is written to one. After any of them but [`Io`](Self::Io) the position is undefined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The source or sink.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The input ends inside a descriptor or buffer (ST1).
    #[error("the stream ends at byte {position}, inside a {inside}")]
    Truncated {
        /// Bytes of the stream.
        position: u64,
        /// Descriptor or buffer.
        inside: &'static str,
    },
    /// A descriptor that is shorter than its own length field (ST2).
    #[error("a descriptor of {length} bytes does not hold its own length")]
    ShortDescriptor {
        /// What it states.
        length: u32,
    },
    /// A descriptor above the limit (ST3).
    #[error("a descriptor of {length} bytes is above the limit of {limit}")]
    LongDescriptor {
        /// What it states.
        length: u32,
        /// The limit.
        limit: u32,
    },
    /// A descriptor that no tensor can have (ST4), or whose buffers are too small or too many for it (ST10).
    #[error(transparent)]
    Descriptor(#[from] Error),
    /// A buffer above the limit (ST5).
    #[error("buffer {buffer} of {byte_size} bytes is above the limit of {limit}")]
    LargeBuffer {
        /// The buffer's index in its tensor.
        buffer: usize,
        /// Its bytes.
        byte_size: u64,
        /// The limit.
        limit: u64,
    },
    /// A buffer that another machine could not wait for (ST6).
    #[error(
        "buffer {buffer} is `{mode}`, and what crosses machines is `{}`",
        SyncMode::ProducerSynced
    )]
    SyncMode {
        /// The buffer's index in its tensor.
        buffer: usize,
        /// Its mode.
        mode: SyncMode,
    },
    /// The input ends where a member should begin (ST7).
    #[error("the stream ends at byte {position}, and {open} open composites miss members")]
    Torn {
        /// Bytes of the stream.
        position: u64,
        /// Heads that wait for members.
        open: usize,
    },
    /// Heads nested above the limit (ST9).
    #[error("a head inside {limit} others, and heads nest {limit} levels deep at most")]
    Depth {
        /// The limit.
        limit: usize,
    },
    /// Buffers that are not what their rows say.
    #[error(transparent)]
    Tensor(TensorError),
    /// There is no memory for what came.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// A tensor that cannot be written.
    #[error(transparent)]
    Unwritable(#[from] OutgoingError),
    /// Bytes that a device did not bring.
    #[error(transparent)]
    Device(#[from] OrderError),
    /// The stream is used after an error, or given more bytes than it asked for.
    #[error("the stream cannot be used after an error")]
    Failed,
}

impl StreamError {
    /// The rule of `stream.md` § 5 that does not hold; empty where it is none of those.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "ST1",
            Self::ShortDescriptor { .. } => "ST2",
            Self::LongDescriptor { .. } => "ST3",
            Self::Descriptor(Error::Composite(CompositeError::Depth { .. }))
            | Self::Depth { .. } => "ST9",
            Self::Descriptor(Error::Composite(_)) => "ST8",
            Self::Descriptor(Error::BufferTable(
                BufferTableError::Count { .. }
                | BufferTableError::TooSmall { .. }
                | BufferTableError::ByteOffsetPastEnd { .. }
                | BufferTableError::BeforeStart { .. },
            )) => "ST10",
            Self::Descriptor(_) => "ST4",
            Self::LargeBuffer { .. } => "ST5",
            Self::SyncMode { .. } | Self::Unwritable(OutgoingError::SyncMode { .. }) => "ST6",
            Self::Torn { .. } => "ST7",
            _ => "",
        }
    }
}

impl From<WriteError> for StreamError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Io(error) => Self::Io(error),
            WriteError::Order(error) => Self::Device(error),
        }
    }
}

impl From<TensorError> for StreamError {
    fn from(error: TensorError) -> Self {
        match error {
            TensorError::Descriptor(error) => Self::Descriptor(error),
            error => Self::Tensor(error),
        }
    }
}
