//! The tensor descriptor (`descriptor.md`).

mod decode;
mod encode;
mod rules;
mod validate;

use smallvec::SmallVec;

use crate::{
    BufferHandle, ElementType, ExtensionType, Layout, QuantizationSection, Shape, Shard, Statistics,
};

pub use validate::ElementAddress;

const MAGIC: [u8; 4] = *b"HRRY";
const HEADER_LEN: usize = 20;
const ROW_LEN: usize = 16;
const MEMBER_LEN: usize = 16;

const HAS_QUANTIZATION: u32 = 1 << 0;
const HAS_SHARD: u32 = 1 << 1;
const HAS_EXTENSION_TYPE: u32 = 1 << 2;
const HAS_STATISTICS: u32 = 1 << 3;
const HAS_COMPOSITE_MEMBER: u32 = 1 << 4;

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
    /// A descriptor of version 1.0 whose elements begin where buffer 0 does, without optional sections.
    #[must_use]
    pub fn new(
        element_type: ElementType,
        shape: impl Into<Shape>,
        layout: Layout,
        buffers: impl IntoIterator<Item = BufferHandle>,
    ) -> Self {
        Self {
            version: Version::default(),
            element_type,
            shape: shape.into(),
            byte_offset: 0,
            layout,
            buffers: buffers.into_iter().collect(),
            quantization: None,
            shard: None,
            statistics: None,
            extension_type: None,
            member: None,
            skipped: Vec::new(),
        }
    }
}
