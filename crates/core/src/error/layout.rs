use thiserror::Error;

/// A layout that does not fit its shape, or an address that a layout does not have; numbers of `layouts.md` § 11.
///
/// What is wrong with a layout's parameters whatever the shape (T1–T5, M1, M2, H1, H2, F2, P4, P5, C1–C5) is a
/// [`DescriptorError`](crate::DescriptorError).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A rank that the layout does not have (G8, S1, O1, R1, K1, F1, P1).
    #[error("the {layout} layout needs a rank of {needed}, not {rank}")]
    Rank {
        /// The layout's name.
        layout: &'static str,
        /// The ranks it has, in words.
        needed: &'static str,
        /// The rank found.
        rank: usize,
    },
    /// An address or a size asked for while a dimension is not known (G7).
    #[error(
        "dimension {dimension} is dynamic: there is no tensor, size or address before it is known"
    )]
    DynamicDimension {
        /// The dimension.
        dimension: usize,
    },
    /// As many strides, tile sizes or bit counts as the shape does not have dimensions.
    #[error("{found} numbers for the {rank} dimensions of the shape")]
    ParameterCount {
        /// Their number.
        found: usize,
        /// The rank.
        rank: usize,
    },
    /// A nested tile that does not divide the tile around it, so that tiles would share storage (T6).
    #[error(
        "level {level}, dimension {dimension}: tiles of {tile} do not divide the tile of {parent} around them"
    )]
    TileDivision {
        /// The nested tile's level, from 0 outermost.
        level: usize,
        /// The dimension.
        dimension: usize,
        /// The nested tile's elements.
        tile: u64,
        /// The enclosing tile's elements.
        parent: u64,
    },
    /// A dimension that its Morton bits cannot count (M3).
    #[error(
        "dimension {dimension} has {size} elements, more than its {bits} Morton bits can count"
    )]
    MortonDimension {
        /// The dimension.
        dimension: usize,
        /// Its elements.
        size: u64,
        /// Its bits.
        bits: u32,
    },
    /// A Morton code that does not fit 64 bits (M4).
    #[error("the Morton code takes {total} bits, its highest at position {highest}: more than 64")]
    MortonBits {
        /// Sum of the bit counts.
        total: u64,
        /// The highest position that is used.
        highest: u64,
    },
    /// A curve of another rank than the tensor (H3).
    #[error("hilbert_rank {curve} on a tensor of rank {rank}")]
    HilbertRank {
        /// The curve's rank.
        curve: u32,
        /// The tensor's rank.
        rank: usize,
    },
    /// An order of which no dimension can be a power (H4).
    #[error("hilbert_order {order} is above 63")]
    HilbertOrder {
        /// The order.
        order: u32,
    },
    /// A dimension other than `2^order` (H4).
    #[error("dimension {dimension} has {size} elements, not the 2^{order} of its Hilbert curve")]
    HilbertDimension {
        /// The dimension.
        dimension: usize,
        /// Its elements.
        size: u64,
        /// The curve's order.
        order: u32,
    },
    /// A curve whose offsets do not fit 64 bits (H5).
    #[error("a Hilbert curve of rank {rank} and order {order} takes more than 64 bits")]
    HilbertBits {
        /// The curve's rank.
        rank: u32,
        /// The curve's order.
        order: u32,
    },
    /// Pages of no tokens (P2).
    #[error("page_size is 0")]
    PageSize,
    /// Pages along another axis than 0 (P3).
    #[error("paged_axis is {axis}, not 0")]
    PagedAxis {
        /// The axis.
        axis: u32,
    },
    /// A partition's or overlay's head with a dimension that is not known (C10).
    #[error("dimension {dimension} of a partition's or overlay's head is dynamic")]
    DynamicHead {
        /// The dimension.
        dimension: usize,
    },
    /// Element offsets, or a size in bytes, of more than 63 bits: no buffer can be as large as B4 wants it.
    #[error("the elements span more than 2^63 places: no buffer can hold them")]
    ExtentOverflow,
    /// An element offset asked of a layout that finds its elements through indices, or owns none.
    #[error("elements of the {layout} layout have no offset of their own")]
    NoElementOffset {
        /// The layout's name.
        layout: &'static str,
    },
    /// An index of another rank than the shape.
    #[error("an index of {found} numbers into a shape of rank {rank}")]
    IndexRank {
        /// Numbers of the index.
        found: usize,
        /// The shape's rank.
        rank: usize,
    },
    /// An index outside the shape.
    #[error("index {index} is outside dimension {dimension} of {size}")]
    IndexOutOfBounds {
        /// The dimension.
        dimension: usize,
        /// The index.
        index: u64,
        /// The dimension's elements.
        size: u64,
    },
    /// An element whose bytes are not all inside buffer 0 (B4, S2).
    #[error(
        "the element's {length} bytes at {byte} are not inside the {byte_size} bytes of buffer 0"
    )]
    ElementOutsideBuffer {
        /// Where the element's bytes would begin in the buffer.
        byte: i128,
        /// How many they are.
        length: u32,
        /// The buffer's bytes.
        byte_size: u64,
    },
}

impl LayoutError {
    /// The rule that does not hold; empty for a question that no layout answers, such as an index of the wrong rank.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Rank { layout, .. } => match *layout {
                "strided" => "S1",
                "coo" => "O1",
                "csr" => "R1",
                "csc" => "K1",
                "csf" => "F1",
                "block_paged" => "P1",
                _ => "G8",
            },
            Self::DynamicDimension { .. } => "G7",
            Self::ParameterCount { .. } => "W3",
            Self::TileDivision { .. } => "T6",
            Self::MortonDimension { .. } => "M3",
            Self::MortonBits { .. } => "M4",
            Self::HilbertRank { .. } => "H3",
            Self::HilbertOrder { .. } | Self::HilbertDimension { .. } => "H4",
            Self::HilbertBits { .. } => "H5",
            Self::PageSize => "P2",
            Self::PagedAxis { .. } => "P3",
            Self::DynamicHead { .. } => "C10",
            Self::ExtentOverflow | Self::ElementOutsideBuffer { .. } => "B4",
            Self::NoElementOffset { .. }
            | Self::IndexRank { .. }
            | Self::IndexOutOfBounds { .. } => "",
        }
    }
}
