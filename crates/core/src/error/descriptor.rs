use thiserror::Error;

use crate::{QuantizationError, SyncMode};

/// Bytes that are no descriptor, and descriptors that no bytes could say: the R rules, S1, S2, S12, S15–S17 and W9 of `descriptor.md`.
///
/// Offsets are bytes from the start of the descriptor, dimensions and rows count from 0.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// Fewer bytes than magic, version and length take (R1).
    #[error(
        "{available} bytes are no descriptor: its first 10 bytes state magic, version and length"
    )]
    TooShort {
        /// Bytes at hand.
        available: usize,
    },
    /// The first four bytes are not `HRRY` (R2).
    #[error("the magic is {magic:02x?}, not 48 52 52 59 (\"HRRY\")")]
    Magic {
        /// The bytes found.
        magic: [u8; 4],
    },
    /// A major version other than 1 (R3; S1 for 0).
    #[error("major version {major} cannot be read, only 1")]
    MajorVersion {
        /// The version found.
        major: u8,
    },
    /// A `descriptor_length` below the 20 bytes of the fixed header (R4).
    #[error("descriptor_length is {declared}, less than the 20 bytes of the fixed header")]
    LengthBelowHeader {
        /// The length stated.
        declared: u32,
    },
    /// A field ends past `descriptor_length` or past the bytes at hand (R5).
    #[error("{field} takes {length} bytes at offset {offset}, past the end at {limit}")]
    Truncated {
        /// The field.
        field: &'static str,
        /// Where it begins.
        offset: usize,
        /// Its bytes.
        length: usize,
        /// The lesser of `descriptor_length` and the bytes at hand.
        limit: usize,
    },
    /// A flag bit from 5 to 31 is set (R6).
    #[error("reserved bits are set in the flags {flags:#010x}")]
    ReservedFlags {
        /// The flags.
        flags: u32,
    },
    /// Type tag 0x00 or 0xFF (R7).
    #[error("type tag {tag:#04x} is never valid")]
    InvalidTypeTag {
        /// The tag.
        tag: u8,
    },
    /// A reserved type tag (R8).
    #[error("type tag {tag:#04x} is reserved")]
    ReservedTypeTag {
        /// The tag.
        tag: u8,
    },
    /// A type tag without a type (R9).
    #[error("type tag {tag:#04x} names no type")]
    UnassignedTypeTag {
        /// The tag.
        tag: u8,
    },
    /// A rank above 64 (R10, W9).
    #[error("rank {rank} is above 64")]
    Rank {
        /// The rank.
        rank: usize,
    },
    /// Layout tag 0x00 or 0xFF (R11).
    #[error("layout tag {tag:#04x} is never valid")]
    InvalidLayoutTag {
        /// The tag.
        tag: u8,
    },
    /// A reserved layout tag (R12).
    #[error("layout tag {tag:#04x} is reserved")]
    ReservedLayoutTag {
        /// The tag.
        tag: u8,
    },
    /// A reserved byte of the layout's parameters is set (R13).
    #[error("a reserved byte of the layout's parameters is set at offset {offset} or after it")]
    LayoutReserved {
        /// Where the reserved bytes begin.
        offset: usize,
    },
    /// A tiled scalar (R14).
    #[error("a tiled layout needs a rank of at least 1")]
    TiledScalar,
    /// A tile without elements (R15).
    #[error("dimension {dimension} of a tile is 0")]
    ZeroTile {
        /// The dimension.
        dimension: usize,
    },
    /// An order of tiles that is none (R16).
    #[error("outer_layout {value} is not 1, 2 or 3")]
    OuterLayout {
        /// The byte found.
        value: u8,
    },
    /// An order inside tiles that is none (R17).
    #[error("inner_layout {value} is not 1, 2, 3 or 4")]
    InnerLayout {
        /// The byte found.
        value: u8,
    },
    /// A ninth level of tiles (R18).
    #[error("tiles are nested more than 8 levels deep")]
    TilingDepth,
    /// A Morton scalar (R19).
    #[error("a Morton layout needs a rank of at least 1")]
    MortonScalar,
    /// A Morton dimension of no bits (R20).
    #[error("dimension {dimension} of a Morton layout has 0 bits")]
    ZeroMortonBits {
        /// The dimension.
        dimension: usize,
    },
    /// A mode order that is no permutation of the dimensions (R21).
    #[error(
        "mode_order puts dimension {dimension} at level {level}, so it is no permutation of {rank} dimensions"
    )]
    ModeOrder {
        /// The first level that repeats a dimension or leaves the rank.
        level: usize,
        /// The dimension it states.
        dimension: u32,
        /// The rank.
        rank: usize,
    },
    /// A key-value role that is none (R22).
    #[error("kv_role {value} is not 0, 1 or 2")]
    KvRole {
        /// The byte found.
        value: u8,
    },
    /// An index type that is none (R23).
    #[error("index type {value} is not 0 or 1")]
    IndexType {
        /// The byte found.
        value: u8,
    },
    /// Composition rule 0x00 or 0x04–0xEF (R24).
    #[error("composition rule {value:#04x} is reserved")]
    ReservedCompositionRule {
        /// The byte found.
        value: u8,
    },
    /// Composition rule 0xFF (R25).
    #[error("composition rule 0xff is never valid")]
    InvalidCompositionRule,
    /// Composition rule 0xF0–0xFE (R26).
    #[error("composition rule {value:#04x} is private")]
    PrivateCompositionRule {
        /// The byte found.
        value: u8,
    },
    /// A combine op that the composition rule does not have (R27).
    #[error("combine_op {combine_op} does not fit composition rule {rule}")]
    CombineOp {
        /// The composition rule's byte.
        rule: u8,
        /// The byte found.
        combine_op: u8,
    },
    /// Member count 2^32 − 1 (R28).
    #[error("member_count 4294967295 is reserved")]
    OpenComposite,
    /// A Hilbert curve of order 0 (R29).
    #[error("hilbert_order is 0")]
    HilbertOrder,
    /// A Hilbert curve of fewer than two dimensions (R30).
    #[error("hilbert_rank {rank} is below 2")]
    HilbertRank {
        /// The curve's rank.
        rank: u32,
    },
    /// A private type without an extension type section, or the section without such a type (R31).
    #[error(
        "type tag {tag:#04x} with{} an extension type section: private types have one, and only they",
        if *.present { "" } else { "out" }
    )]
    ExtensionTypePresence {
        /// The type tag.
        tag: u8,
        /// Whether the section is there.
        present: bool,
    },
    /// An empty buffer table outside a composite head (R32).
    #[error("the buffer table is empty, which only a composite head's may be")]
    NoBuffers,
    /// Byte 15 of a row is set (R33).
    #[error("buffer {row}: the reserved byte is {value:#04x}")]
    RowReserved {
        /// The row.
        row: usize,
        /// The byte found.
        value: u8,
    },
    /// A reserved device tag (R34).
    #[error("buffer {row}: device tag {tag:#04x} is reserved")]
    ReservedDevice {
        /// The row.
        row: usize,
        /// The tag.
        tag: u8,
    },
    /// Device tag 0xFF (R35).
    #[error("buffer {row}: device tag 0xff is never valid")]
    InvalidDevice {
        /// The row.
        row: usize,
    },
    /// A sync mode that is none (R36).
    #[error("buffer {row}: sync mode {value} is not 0, 1 or 2")]
    SyncMode {
        /// The row.
        row: usize,
        /// The byte found.
        value: u8,
    },
    /// A reserved memory class (R37).
    #[error("buffer {row}: memory class {value:#04x} is reserved")]
    ReservedMemoryClass {
        /// The row.
        row: usize,
        /// The byte found.
        value: u8,
    },
    /// Memory class 0xFF (R38).
    #[error("buffer {row}: memory class 0xff is never valid")]
    InvalidMemoryClass {
        /// The row.
        row: usize,
    },
    /// An alignment that is no power of two (R39).
    #[error("buffer {row}: alignment {alignment} is no power of two")]
    Alignment {
        /// The row.
        row: usize,
        /// The alignment.
        alignment: u32,
    },
    /// A buffer with bytes that is aligned to fewer than 64 (R40).
    #[error("buffer {row}: {byte_size} bytes aligned to {alignment}, less than 64")]
    AlignmentBelowMinimum {
        /// The row.
        row: usize,
        /// The buffer's bytes.
        byte_size: u64,
        /// The alignment.
        alignment: u32,
    },
    /// Host memory that is not synchronised by its producer (R41).
    #[error(
        "buffer {row}: sync mode {mode} on the host, which takes {} only",
        SyncMode::ProducerSynced
    )]
    HostSyncMode {
        /// The row.
        row: usize,
        /// The mode.
        mode: SyncMode,
    },
    /// A quantization section longer than what is left (R42).
    #[error("quantization_length is {declared}, and {left} bytes are left")]
    QuantizationTruncated {
        /// The length stated.
        declared: u32,
        /// Bytes left.
        left: usize,
    },
    /// A shard that ends outside its parent, by exact arithmetic (R43, S13).
    #[error(
        "dimension {dimension}: the shard covers {extent} from {offset}, outside its parent's {parent}"
    )]
    ShardOutOfBounds {
        /// The dimension.
        dimension: usize,
        /// Where the shard begins.
        offset: u64,
        /// The tensor's extent.
        extent: u64,
        /// The parent's extent.
        parent: u64,
    },
    /// A shard of a parent whose extent is not known (S12).
    #[error("dimension {dimension}: the shard's parent is dynamic")]
    ShardDynamic {
        /// The dimension.
        dimension: usize,
    },
    /// A reserved bit of the statistics' mask is set (R44).
    #[error("reserved bits are set in computed_mask {mask:#010x}")]
    StatisticsMask {
        /// The mask.
        mask: u32,
    },
    /// A reserved byte of the statistics is set (R45).
    #[error("a reserved byte of the statistics is set at their offset {offset} or after it")]
    StatisticsReserved {
        /// Where the reserved bytes begin in the section.
        offset: usize,
    },
    /// A private type of no bits (R46).
    #[error("the extension type is 0 bits wide")]
    ExtensionWidthZero,
    /// A packing factor that does not follow from the width (R47, R49).
    #[error(
        "packing factor {packing_factor} of a {bit_width}-bit extension type is not {expected}"
    )]
    PackingFactor {
        /// The type's bits.
        bit_width: u32,
        /// The factor found.
        packing_factor: u8,
        /// The factor of this width.
        expected: u8,
    },
    /// A private type of 3, 5, 6 or 7 bits (R48).
    #[error("an extension type cannot be {bit_width} bits wide")]
    ExtensionWidth {
        /// The type's bits.
        bit_width: u32,
    },
    /// A reserved byte of the extension type is set (R50).
    #[error("a reserved byte of the extension type is set at its offset {offset} or after it")]
    ExtensionReserved {
        /// Where the reserved bytes begin in the section.
        offset: usize,
    },
    /// A member role that is none (R51).
    #[error("member role {value} is not 0 or 1")]
    MemberRole {
        /// The byte found.
        value: u8,
    },
    /// A reserved byte of the member section is set (R52).
    #[error("a reserved byte of the member section is set")]
    MemberReserved,
    /// At minor version 0, sections that do not end at `descriptor_length` (R53).
    #[error("descriptor_length is {declared}, and the sections take {consumed} bytes")]
    Length {
        /// The length stated.
        declared: u32,
        /// Bytes that the sections take.
        consumed: usize,
    },
    /// At a later minor version, a `descriptor_length` past the bytes at hand (S2).
    #[error("descriptor_length is {declared}, and {available} bytes are at hand")]
    LengthPastEnd {
        /// The length stated.
        declared: u32,
        /// Bytes at hand.
        available: usize,
    },
    /// A composite head with buffers (R54, W10).
    #[error("a composite head has {count} buffers, and may have none")]
    HeadBuffers {
        /// Rows of the table.
        count: usize,
    },
    /// A composite head with a byte offset (R55, W10).
    #[error("a composite head has byte_offset {byte_offset}, and may have none")]
    HeadByteOffset {
        /// The offset.
        byte_offset: u64,
    },
    /// A quantized composite head (R56, W10).
    #[error("a composite head cannot be quantized")]
    HeadQuantization,
    /// A composite head with a member section (R57, W10): a head is never the member of an overlay.
    #[error("a composite head cannot be the member of an overlay, so it has no member section")]
    HeadMember,
    /// A shard of a block-paged tensor (R58).
    #[error("a block-paged tensor cannot be a shard")]
    PagedShard,
    /// A shard of a compressed fibre tensor (R59).
    #[error("a CSF tensor cannot be a shard")]
    CsfShard,
    /// A block-paged tensor whose quantization cannot be read (R60).
    #[error("block-paged: {0}")]
    PagedQuantization(#[source] QuantizationError),
    /// A block-paged tensor quantized per channel along its pages (R60).
    #[error("a block-paged tensor cannot be quantized per channel of axis 0, the paged one")]
    PagedChannelAxis,
    /// A block-paged tensor quantized per blocks that are not its pages (R60).
    #[error(
        "blocks of {block_size} along axis {axis} are not the pages of {page_size} along axis 0"
    )]
    PagedBlocks {
        /// The scheme's axis.
        axis: u32,
        /// The scheme's block size.
        block_size: u32,
        /// The layout's page size.
        page_size: u32,
    },

    /// More rows than a table can hold (W9).
    #[error("{count} buffers are more than 255")]
    TooManyBuffers {
        /// Rows of the table.
        count: usize,
    },
    /// A list of the layout or of the shard whose length is not the rank: its bytes would be read as something else (W3).
    #[error("{parameter} has {length} entries for a rank of {rank}")]
    ParameterLength {
        /// The list.
        parameter: &'static str,
        /// Its entries.
        length: usize,
        /// The rank.
        rank: usize,
    },
    /// A layer index that stands for "none" on the wire (W3).
    #[error("layer_index 4294967295 stands for no layer")]
    LayerIndex,
    /// Bytes of a later minor version in a descriptor of minor version 0 (R53, W3).
    #[error("{length} bytes are appended to a descriptor of minor version 0")]
    SkippedBytes {
        /// Their number.
        length: usize,
    },
    /// A descriptor longer than `descriptor_length` can say (W3).
    #[error("the descriptor takes {length} bytes, more than 4294967295")]
    TooLong {
        /// Its bytes.
        length: u64,
    },
    /// A space to write to that is not as long as the descriptor (W3).
    #[error("the descriptor takes {required} bytes, and has room for {available}")]
    Room {
        /// The descriptor's bytes.
        required: usize,
        /// Bytes of the space.
        available: usize,
    },
    /// A share of zeros outside 0 to 1 (S15).
    #[error("sparsity_ratio {ratio} is not between 0 and 1")]
    SparsityRatio {
        /// The ratio.
        ratio: f64,
    },
    /// A negative standard deviation, or none (S15).
    #[error("value_stddev {stddev} is not 0 or more")]
    Deviation {
        /// The deviation.
        stddev: f64,
    },
    /// An N:M pattern with N above M (S15).
    #[error("the sparsity pattern {n}:{m} keeps more elements than it has")]
    SparsityPattern {
        /// N.
        n: u8,
        /// M.
        m: u8,
    },
    /// A property that the extension type's family does not have (S16).
    #[error("{field} is {value}, which {} extension type cannot have", if *.is_float { "a float" } else { "an integer" })]
    ExtensionField {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// Whether the type is a float.
        is_float: bool,
    },
    /// A private type of more than a byte that is no whole number of bytes (S17).
    #[error("an extension type of {bit_width} bits is no whole number of bytes")]
    ExtensionPartialByte {
        /// The type's bits.
        bit_width: u32,
    },
}

impl DescriptorError {
    /// The rule of `descriptor.md` that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::TooShort { .. } => "R1",
            Self::Magic { .. } => "R2",
            Self::MajorVersion { major: 0 } => "S1",
            Self::MajorVersion { .. } => "R3",
            Self::LengthBelowHeader { .. } => "R4",
            Self::Truncated { .. } => "R5",
            Self::ReservedFlags { .. } => "R6",
            Self::InvalidTypeTag { .. } => "R7",
            Self::ReservedTypeTag { .. } => "R8",
            Self::UnassignedTypeTag { .. } => "R9",
            Self::Rank { .. } => "R10",
            Self::InvalidLayoutTag { .. } => "R11",
            Self::ReservedLayoutTag { .. } => "R12",
            Self::LayoutReserved { .. } => "R13",
            Self::TiledScalar => "R14",
            Self::ZeroTile { .. } => "R15",
            Self::OuterLayout { .. } => "R16",
            Self::InnerLayout { .. } => "R17",
            Self::TilingDepth => "R18",
            Self::MortonScalar => "R19",
            Self::ZeroMortonBits { .. } => "R20",
            Self::ModeOrder { .. } => "R21",
            Self::KvRole { .. } => "R22",
            Self::IndexType { .. } => "R23",
            Self::ReservedCompositionRule { .. } => "R24",
            Self::InvalidCompositionRule => "R25",
            Self::PrivateCompositionRule { .. } => "R26",
            Self::CombineOp { .. } => "R27",
            Self::OpenComposite => "R28",
            Self::HilbertOrder => "R29",
            Self::HilbertRank { .. } => "R30",
            Self::ExtensionTypePresence { .. } => "R31",
            Self::NoBuffers => "R32",
            Self::RowReserved { .. } => "R33",
            Self::ReservedDevice { .. } => "R34",
            Self::InvalidDevice { .. } => "R35",
            Self::SyncMode { .. } => "R36",
            Self::ReservedMemoryClass { .. } => "R37",
            Self::InvalidMemoryClass { .. } => "R38",
            Self::Alignment { .. } => "R39",
            Self::AlignmentBelowMinimum { .. } => "R40",
            Self::HostSyncMode { .. } => "R41",
            Self::QuantizationTruncated { .. } => "R42",
            Self::ShardOutOfBounds { .. } => "R43",
            Self::ShardDynamic { .. } => "S12",
            Self::StatisticsMask { .. } => "R44",
            Self::StatisticsReserved { .. } => "R45",
            Self::ExtensionWidthZero => "R46",
            Self::PackingFactor { bit_width: 8.., .. } => "R47",
            Self::ExtensionWidth { .. } => "R48",
            Self::PackingFactor { .. } => "R49",
            Self::ExtensionReserved { .. } => "R50",
            Self::MemberRole { .. } => "R51",
            Self::MemberReserved => "R52",
            Self::Length { .. } | Self::SkippedBytes { .. } => "R53",
            Self::LengthPastEnd { .. } => "S2",
            Self::HeadBuffers { .. } => "R54",
            Self::HeadByteOffset { .. } => "R55",
            Self::HeadQuantization => "R56",
            Self::HeadMember => "R57",
            Self::PagedShard => "R58",
            Self::CsfShard => "R59",
            Self::PagedQuantization(_) | Self::PagedChannelAxis | Self::PagedBlocks { .. } => "R60",
            Self::TooManyBuffers { .. } => "W9",
            Self::ParameterLength { .. }
            | Self::LayerIndex
            | Self::TooLong { .. }
            | Self::Room { .. } => "W3",
            Self::SparsityRatio { .. } | Self::Deviation { .. } | Self::SparsityPattern { .. } => {
                "S15"
            }
            Self::ExtensionField { .. } => "S16",
            Self::ExtensionPartialByte { .. } => "S17",
        }
    }

    /// The number that `layouts.md` § 11 gives the same rule, if it is one of its rules.
    #[must_use]
    pub fn layout_rule(&self) -> Option<&'static str> {
        Some(match self {
            Self::InvalidLayoutTag { .. } => "G1",
            Self::ReservedLayoutTag { .. } => "G2",
            Self::Truncated { .. } | Self::QuantizationTruncated { .. } => "G3",
            Self::LayoutReserved { .. } | Self::RowReserved { .. } => "G4",
            Self::Length { .. } | Self::SkippedBytes { .. } => "G5",
            Self::Rank { .. } => "G6",
            Self::NoBuffers => "B1",
            Self::ZeroTile { .. } => "T1",
            Self::TiledScalar => "T2",
            Self::OuterLayout { .. } => "T3",
            Self::InnerLayout { .. } => "T4",
            Self::TilingDepth => "T5",
            Self::MortonScalar => "M1",
            Self::ZeroMortonBits { .. } => "M2",
            Self::HilbertOrder => "H1",
            Self::HilbertRank { .. } => "H2",
            Self::ModeOrder { .. } => "F2",
            Self::CsfShard => "F3",
            Self::KvRole { .. } => "P4",
            Self::IndexType { .. } => "P5",
            Self::PagedShard => "P6",
            Self::PagedChannelAxis => "P7",
            Self::PagedBlocks { .. } => "P8",
            Self::PagedQuantization(_) => "P9",
            Self::InvalidCompositionRule => "C1",
            Self::ReservedCompositionRule { .. } => "C2",
            Self::PrivateCompositionRule { .. } => "C3",
            Self::CombineOp { .. } => "C4",
            Self::OpenComposite => "C5",
            Self::HeadBuffers { .. } => "C6",
            Self::HeadByteOffset { .. } => "C7",
            Self::HeadQuantization => "C8",
            Self::HeadMember => "C9",
            Self::MemberRole { .. } => "E1",
            Self::MemberReserved => "E2",
            Self::ShardOutOfBounds { .. } => "A3",
            _ => return None,
        })
    }
}
