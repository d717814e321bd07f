use thiserror::Error;

use crate::{BufferName, DeviceTag, MemoryClass};

/// A buffer table that its descriptor cannot have: counts, indices, placement, sizes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BufferTableError {
    /// Another number of rows than layout and quantization have buffers (B2, S10).
    #[error(
        "the {layout} layout and its quantization have {needed} buffers, and the table {found}"
    )]
    Count {
        /// The layout's name.
        layout: &'static str,
        /// Layout buffers and distinct parameter buffers.
        needed: usize,
        /// Rows of the table.
        found: usize,
    },
    /// A buffer smaller than what is in it (B4).
    #[error("buffer {buffer} ({name}) has {byte_size} bytes, and needs {needed}")]
    TooSmall {
        /// The row.
        buffer: usize,
        /// What the buffer holds.
        name: BufferName,
        /// The least bytes, `byte_offset` and padding included.
        needed: u64,
        /// The row's bytes.
        byte_size: u64,
    },
    /// `byte_offset` on a layout that has no element `[0, …, 0]` to point at (B5, S8).
    #[error("byte_offset is {byte_offset}, and must be 0 on the {layout} layout")]
    ByteOffsetOnIndexed {
        /// The layout's name.
        layout: &'static str,
        /// The offset.
        byte_offset: u64,
    },
    /// `byte_offset` past the end of buffer 0 (B6, S7).
    #[error("byte_offset {byte_offset} is past the {byte_size} bytes of buffer 0")]
    ByteOffsetPastEnd {
        /// The offset.
        byte_offset: u64,
        /// The row's bytes.
        byte_size: u64,
    },
    /// An element before the start of buffer 0 (S2 of `layouts.md`).
    #[error("elements lie {needed} bytes before element 0, and byte_offset is {byte_offset}")]
    BeforeStart {
        /// Bytes from the lowest element to element 0.
        needed: u64,
        /// The offset.
        byte_offset: u64,
    },
    /// Statistics that count other stored elements than the layout (B7).
    #[error("the statistics count {statistics} stored elements, and the layout {layout}")]
    StatisticsNnz {
        /// The statistics' `nnz`.
        statistics: u64,
        /// The layout's `nnz`.
        layout: u64,
    },
    /// A row on another device than row 0 (S3, B8, Q23).
    #[error("buffer {buffer} is on {device}, and buffer 0 on {first}")]
    Device {
        /// The row.
        buffer: usize,
        /// Its device.
        device: DeviceTag,
        /// Row 0's device.
        first: DeviceTag,
    },
    /// A row of another memory class than row 0 (S4, B8).
    #[error("buffer {buffer} is {class} memory, and buffer 0 {first}")]
    MemoryClass {
        /// The row.
        buffer: usize,
        /// Its class.
        class: MemoryClass,
        /// Row 0's class.
        first: MemoryClass,
    },
    /// A memory class that the device does not have (S5; S6 where either is private).
    #[error("there is no {class} memory on {device}")]
    InvalidPair {
        /// The device.
        device: DeviceTag,
        /// The class.
        class: MemoryClass,
    },
    /// A parameter buffer past the end of the table (Q21, B3).
    #[error("the index of the {name} is {index}, and the table has {buffer_count} buffers")]
    IndexPastTable {
        /// What the index is of.
        name: BufferName,
        /// The index.
        index: u32,
        /// Rows of the table.
        buffer_count: usize,
    },
    /// A parameter buffer that is one of the layout's own (Q22, B3).
    #[error(
        "the index of the {name} is {index}, and the first {layout_buffers} buffers are the layout's own"
    )]
    IndexOfLayoutBuffer {
        /// What the index is of.
        name: BufferName,
        /// The index.
        index: u32,
        /// Buffers of the layout.
        layout_buffers: usize,
    },
    /// A private type whose elements have no size that the format defines (S17).
    #[error("elements of {bits} bits have no size, so there is no tensor of them")]
    ElementSize {
        /// The type's bits; 0 if its section is missing.
        bits: u32,
    },
    /// Exactly the bytes that whole last blocks would take, where the format stores no padding (decision 3).
    #[error(
        "the codes take {needed} bytes, and the buffer has exactly the {padded} of padded blocks, which store nothing here"
    )]
    PaddedBlocks {
        /// Bytes of the codes.
        needed: u64,
        /// Bytes of the codes with every last block filled up; also what the buffer has from `byte_offset` on.
        padded: u64,
    },
}

impl BufferTableError {
    /// The rule that does not hold, by the number that says most (Q21 and Q22 are B3, S3 and S4 are B8).
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Count { .. } => "B2",
            Self::TooSmall { .. } => "B4",
            Self::ByteOffsetOnIndexed { .. } => "B5",
            Self::ByteOffsetPastEnd { .. } => "B6",
            Self::BeforeStart { .. } => "S2",
            Self::StatisticsNnz { .. } => "B7",
            Self::Device { .. } => "S3",
            Self::MemoryClass { .. } => "S4",
            Self::InvalidPair {
                device: DeviceTag::Private(_),
                ..
            }
            | Self::InvalidPair {
                class: MemoryClass::Private(_),
                ..
            } => "S6",
            Self::InvalidPair { .. } => "S5",
            Self::IndexPastTable { .. } => "Q21",
            Self::IndexOfLayoutBuffer { .. } => "Q22",
            Self::ElementSize { .. } => "S17",
            Self::PaddedBlocks { .. } => "decision 3",
        }
    }
}
