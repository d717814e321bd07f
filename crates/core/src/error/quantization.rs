use thiserror::Error;

use crate::{BufferName, ElementType};

/// A quantization section that cannot be read (Q1–Q14), or a scheme that does not fit its tensor (Q15–Q26), by `quantization.md` § 10.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum QuantizationError {
    /// A section without its 4-byte header (Q1).
    #[error("a quantization section of {length} bytes is shorter than its 4-byte header")]
    HeaderTruncated {
        /// The section's bytes.
        length: usize,
    },
    /// Scheme tag 0x00 or 0xFF (Q2).
    #[error("quantization scheme tag {tag:#04x} is never valid")]
    InvalidTag {
        /// The tag.
        tag: u8,
    },
    /// A reserved scheme tag (Q3).
    #[error("quantization scheme tag {tag:#04x} is reserved")]
    ReservedTag {
        /// The tag.
        tag: u8,
    },
    /// A private scheme: its bytes are relayed, its values are known to who agreed on it (Q4).
    #[error("quantization scheme {tag:#04x} is private")]
    PrivateScheme {
        /// The tag.
        tag: u8,
    },
    /// A scheme tag without a scheme (Q5).
    #[error("quantization scheme tag {tag:#04x} names no scheme")]
    UnassignedTag {
        /// The tag.
        tag: u8,
    },
    /// A scheme version other than 1 (Q6).
    #[error("version {version} of quantization scheme {tag:#04x} cannot be read, only 1")]
    SchemeVersion {
        /// The scheme's tag.
        tag: u8,
        /// The version found.
        version: u8,
    },
    /// A section shorter than its scheme (Q7).
    #[error(
        "a section of {length} bytes is shorter than the {required} of quantization scheme {tag:#04x}"
    )]
    SchemeTruncated {
        /// The scheme's tag.
        tag: u8,
        /// The section's bytes.
        length: usize,
        /// The scheme's bytes.
        required: usize,
    },
    /// A flag that the scheme does not have (Q8).
    #[error("undefined bits are set in the flags {flags:#06x} of quantization scheme {tag:#04x}")]
    UndefinedFlags {
        /// The scheme's tag.
        tag: u8,
        /// The flags.
        flags: u16,
    },
    /// A reserved byte of the section is set (Q9).
    #[error(
        "a reserved byte of the quantization section is set at its offset {offset} or after it"
    )]
    SectionReserved {
        /// Where the reserved bytes begin in the section.
        offset: usize,
    },
    /// A scale of zero, infinity or NaN (Q10).
    #[error("scale {scale} is not finite and other than zero")]
    Scale {
        /// The scale.
        scale: f32,
    },
    /// A block size that the scheme does not have (Q11).
    #[error("block size {block_size} is no power of two from {min} to {max}")]
    BlockSize {
        /// The block size.
        block_size: u32,
        /// The scheme's least.
        min: u32,
        /// The scheme's greatest.
        max: u32,
    },
    /// A type of scales that the scheme does not have (Q12).
    #[error("scales of type tag {tag:#04x} do not belong to this quantization scheme")]
    ScaleType {
        /// The type tag.
        tag: u8,
    },
    /// SYMMETRIC set with a buffer of zero points, or clear without one (Q13).
    #[error(
        "the scheme is {}symmetric, and its zero-point buffer index is {zero_point_buffer:#x}",
        if *.symmetric { "" } else { "not " }
    )]
    Symmetry {
        /// Whether the flag is set.
        symmetric: bool,
        /// The index; 0xFFFFFFFF is none.
        zero_point_buffer: u32,
    },
    /// A scheme without a buffer of scales (Q14).
    #[error("the scale buffer index is 0xffffffff, which is none")]
    NoScaleBuffer,
    /// A type whose elements the scheme cannot be the codes of (Q15).
    #[error("{scheme} codes are not stored as {element_type}")]
    StorageType {
        /// The scheme.
        scheme: &'static str,
        /// The tensor's element type.
        element_type: ElementType,
    },
    /// A zero point that is no code (Q16).
    #[error("zero point {zero_point} is outside {element_type}")]
    ZeroPointRange {
        /// The zero point.
        zero_point: i32,
        /// The tensor's element type.
        element_type: ElementType,
    },
    /// An axis that the tensor does not have (Q17).
    #[error("quantization axis {axis} of a tensor of rank {rank}")]
    Axis {
        /// The axis.
        axis: u32,
        /// The tensor's rank.
        rank: usize,
    },
    /// An axis whose size is not known (Q18).
    #[error("quantization axis {axis} is dynamic")]
    DynamicAxis {
        /// The axis.
        axis: u32,
    },
    /// A block longer than the axis that it divides (Q19).
    #[error("blocks of {block_size} along axis {axis}, which has {size} elements")]
    BlockExceedsAxis {
        /// The axis.
        axis: u32,
        /// Elements of a block.
        block_size: u32,
        /// Elements of the axis.
        size: u64,
    },
    /// An MXFP axis that is empty or no whole number of blocks (Q20).
    #[error("axis {axis} has {size} elements, no positive multiple of the block size {block_size}")]
    BlockMultiple {
        /// The axis.
        axis: u32,
        /// Elements of a block.
        block_size: u32,
        /// Elements of the axis.
        size: u64,
    },
    /// A parameter buffer of another size than its entries take (Q24).
    #[error(
        "buffer {buffer} ({name}) has {byte_size} bytes, and its entries take exactly {needed}"
    )]
    ParameterSize {
        /// The row.
        buffer: usize,
        /// What the buffer holds.
        name: BufferName,
        /// Bytes of the entries.
        needed: u64,
        /// The row's bytes.
        byte_size: u64,
    },
    /// More parameters than any buffer can hold (Q24).
    #[error("the parameters take more than 2^64 bytes")]
    ParameterOverflow,
}

impl QuantizationError {
    /// The rule of `quantization.md` that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::HeaderTruncated { .. } => "Q1",
            Self::InvalidTag { .. } => "Q2",
            Self::ReservedTag { .. } => "Q3",
            Self::PrivateScheme { .. } => "Q4",
            Self::UnassignedTag { .. } => "Q5",
            Self::SchemeVersion { .. } => "Q6",
            Self::SchemeTruncated { .. } => "Q7",
            Self::UndefinedFlags { .. } => "Q8",
            Self::SectionReserved { .. } => "Q9",
            Self::Scale { .. } => "Q10",
            Self::BlockSize { .. } => "Q11",
            Self::ScaleType { .. } => "Q12",
            Self::Symmetry { .. } => "Q13",
            Self::NoScaleBuffer => "Q14",
            Self::StorageType { .. } => "Q15",
            Self::ZeroPointRange { .. } => "Q16",
            Self::Axis { .. } => "Q17",
            Self::DynamicAxis { .. } => "Q18",
            Self::BlockExceedsAxis { .. } => "Q19",
            Self::BlockMultiple { .. } => "Q20",
            Self::ParameterSize { .. } | Self::ParameterOverflow => "Q24",
        }
    }
}
