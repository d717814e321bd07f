//! The tensor descriptor (`descriptor.md`).

use smallvec::SmallVec;

use crate::{
    BufferHandle, DescriptorError, ElementType, Error, ExtensionType, Layout, QuantizationSection,
    Shape, Shard, Statistics,
};

/// The format version that a descriptor states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// 1; every other value is refused (R3, S1).
    pub major: u8,
    /// 0 for everything this crate writes of its own.
    pub minor: u8,
}

impl Default for Version {
    fn default() -> Self {
        Self { major: 1, minor: 0 }
    }
}

/// What a tensor is inside an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberRole {
    /// Lies over the base.
    Correction,
    /// Spans the head and lies under the corrections.
    Base,
}

/// Everything that a tensor declares about itself, without its bytes.
///
/// Any combination of fields can be held, so that an inspector can show a descriptor that no tensor could have;
/// [`validate`](Self::validate) tells the two apart.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDescriptor {
    /// The version on the wire.
    pub version: Version,
    /// The type of the stored elements.
    pub element_type: ElementType,
    /// Dimensions in elements; [`DYNAMIC`](crate::DYNAMIC) is unknown.
    pub shape: Shape,
    /// Bytes from the start of buffer 0 to element `[0, …, 0]`.
    pub byte_offset: u64,
    /// How the elements lie.
    pub layout: Layout,
    /// One row per buffer, the layout's own first.
    pub buffers: SmallVec<[BufferHandle; 3]>,
    /// How codes stand for values.
    pub quantization: Option<QuantizationSection>,
    /// Which part of a parent this is.
    pub shard: Option<Shard>,
    /// Hints about the values.
    pub statistics: Option<Statistics>,
    /// What a private element type is made of; present exactly when the type is private.
    pub extension_type: Option<ExtensionType>,
    /// The role in an overlay.
    pub member: Option<MemberRole>,
    /// What a later minor version appended and this one does not know; empty at 1.0. Kept so that a relay repeats it.
    pub skipped: Vec<u8>,
}

impl TensorDescriptor {
    /// Reads one descriptor from the front of `bytes`, which may go on; gives it and the bytes it took (its `descriptor_length`).
    ///
    /// # Errors
    /// The first of R1–R60, S1, S2, S12, S13 that `bytes` break, in the order of `descriptor.md` § 12.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), Error> {
        let _ = bytes;
        Err(DescriptorError::TooShort { available: 0 }.into())
    }

    /// Writes the descriptor.
    ///
    /// # Errors
    /// What a writer must not write (`descriptor.md` § 14, W6, W9, W10).
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        Err(DescriptorError::TooShort { available: 0 }.into())
    }

    /// Checks everything that can be known without the buffers' bytes and decides which of them may be touched: layout against shape,
    /// the buffer table against layout, quantization and sizes, colocation, `byte_offset`, the quantization against type and shape.
    /// A tensor exists only over a descriptor that passes.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(())
    }
}
