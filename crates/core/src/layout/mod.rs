//! Layouts: how the elements of a shape lie in buffers (`layouts.md`).

mod address;
mod block_paged;
mod hilbert;
mod morton;
mod strided;
mod tiled;
mod validate;
mod wire;

use smallvec::SmallVec;

use crate::PrivateTag;

pub(crate) use strided::static_dimensions;
pub use strided::{
    ByteExtent, Extent, column_major_strides, is_column_major, is_row_major, row_major_strides,
    strided_extent,
};

/// Strides in elements (tiles, for the outer strides of a tiling), of any sign.
pub type Strides = SmallVec<[i64; 6]>;

/// How a tensor's elements lie in its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Dense, the last dimension varies fastest. Tag `0x01`.
    RowMajor,
    /// Dense, the first dimension varies fastest. Tag `0x02`.
    ColumnMajor,
    /// Dense with a stride per dimension. Tag `0x03`.
    Strided(Strides),
    /// Dense in tiles, nested up to eight levels. Tag `0x04`.
    Tiled(Box<TileLevel>),
    /// Dense along a Morton curve. Tag `0x05`.
    Morton(Morton),
    /// Coordinates of the stored elements. Tag `0x06`.
    Coo(Coo),
    /// Compressed rows. Tag `0x07`.
    Csr {
        /// Stored elements.
        nnz: u64,
    },
    /// Compressed columns. Tag `0x08`.
    Csc {
        /// Stored elements.
        nnz: u64,
    },
    /// Compressed fibres. Tag `0x09`.
    Csf(Csf),
    /// Pages of tokens in a shared pool. Tag `0x0A`.
    BlockPaged(BlockPaged),
    /// The head of a composite, which owns no buffers. Tag `0x0B`.
    Composite(CompositeHead),
    /// Dense along a Hilbert curve. Tag `0x40`.
    Hilbert(Hilbert),
    /// A layout that producer and consumer agreed on. Tags `0xF0`–`0xFE`.
    Private(PrivateLayout),
}

/// One level of a tiling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileLevel {
    /// Elements of a tile per dimension, each at least 1.
    pub tile_shape: SmallVec<[u64; 4]>,
    /// How tiles follow each other.
    pub outer: TileOrder,
    /// How elements lie inside a tile.
    pub inner: InnerOrder,
}

/// The order of tiles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TileOrder {
    /// Row-major over the grid of tiles.
    RowMajor,
    /// Column-major over the grid of tiles.
    ColumnMajor,
    /// Strides in tiles.
    Strided(Strides),
}

/// The order of elements inside a tile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InnerOrder {
    /// Row-major over the tile.
    RowMajor,
    /// Column-major over the tile.
    ColumnMajor,
    /// Strides in elements.
    Strided(Strides),
    /// Tiles inside the tile.
    Tiled(Box<TileLevel>),
}

/// Parameters of a Morton layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Morton {
    /// Bits of the index per dimension, each at least 1.
    pub bits: SmallVec<[u32; 4]>,
}

/// Parameters of a Hilbert layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hilbert {
    /// Every dimension has `2^order` elements.
    pub order: u32,
    /// The rank of the curve, at least 2.
    pub rank: u32,
}

/// Parameters of a coordinate list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coo {
    /// Stored elements.
    pub nnz: u64,
    /// Whether the coordinates increase, dimension 0 first; `false` promises nothing.
    pub is_sorted: bool,
}

/// Parameters of compressed sparse fibres.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Csf {
    /// Stored elements.
    pub nnz: u64,
    /// The dimension that each level holds, a permutation.
    pub mode_order: SmallVec<[u32; 4]>,
}

/// What a paged cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvRole {
    /// Keys.
    Key,
    /// Values.
    Value,
    /// Both, or something else.
    Fused,
}

/// The element type of a paged layout's index buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexType {
    /// 32 bits.
    Uint32,
    /// 64 bits.
    Uint64,
}

/// Parameters of a block-paged layout; the shape is `[total_tokens, heads, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockPaged {
    /// Tokens of a page.
    pub page_size: u32,
    /// Pages of the pool.
    pub num_pages: u64,
    /// The dimension that is cut into pages; 0.
    pub paged_axis: u32,
    /// Sequences.
    pub num_seqs: u32,
    /// Keys or values.
    pub kv_role: KvRole,
    /// The transformer layer; the wire's `0xFFFFFFFF` is `None`.
    pub layer_index: Option<u32>,
    /// The type of block table and sequence pointer.
    pub index_type: IndexType,
}

/// How the members of a composite make one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompositionRule {
    /// Disjoint boxes that cover the head.
    Partition,
    /// A base, and corrections over it.
    Overlay(CombineOp),
    /// Unrelated tensors.
    Group,
}

/// How a correction of an overlay meets what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CombineOp {
    /// The correction replaces it.
    Replace,
    /// The correction is added to it.
    Add,
}

/// Parameters of a composite's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompositeHead {
    /// How the members make one tensor.
    pub rule: CompositionRule,
    /// The items that follow the head as its members.
    pub member_count: u32,
}

/// A layout that only producer and consumer understand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrivateLayout {
    /// The layout tag.
    pub tag: PrivateTag,
    /// The agreed identity.
    pub id: u64,
    /// Opaque parameters.
    pub data: Vec<u8>,
}

impl Layout {
    /// The layout's name, as in `row_major`; private layouts share `extension`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RowMajor => "row_major",
            Self::ColumnMajor => "col_major",
            Self::Strided(_) => "strided",
            Self::Tiled(_) => "tiled",
            Self::Morton(_) => "morton",
            Self::Coo(_) => "coo",
            Self::Csr { .. } => "csr",
            Self::Csc { .. } => "csc",
            Self::Csf(_) => "csf",
            Self::BlockPaged(_) => "block_paged",
            Self::Composite(_) => "composite",
            Self::Hilbert(_) => "hilbert",
            Self::Private(_) => "extension",
        }
    }

    /// Whether every element has a place of its own in one buffer, at an offset that follows from its index.
    #[must_use]
    pub const fn is_dense(&self) -> bool {
        matches!(
            self,
            Self::RowMajor
                | Self::ColumnMajor
                | Self::Strided(_)
                | Self::Tiled(_)
                | Self::Morton(_)
                | Self::Hilbert(_)
        )
    }

    /// Whether the layout owns no buffers: a composite's head.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        matches!(self, Self::Composite(_))
    }

    /// The buffers that the layout owns in a tensor of `rank`; `None` for a private layout, which has at least one.
    #[must_use]
    pub const fn buffer_count(&self, rank: usize) -> Option<usize> {
        match self {
            Self::Coo(_) => Some(2),
            Self::Csr { .. } | Self::Csc { .. } | Self::BlockPaged(_) => Some(3),
            Self::Csf(_) => Some(rank.saturating_mul(2).saturating_add(1)),
            Self::Composite(_) => Some(0),
            Self::Private(_) => None,
            _ => Some(1),
        }
    }

    /// The stored elements of a sparse layout.
    #[must_use]
    pub const fn nnz(&self) -> Option<u64> {
        match self {
            Self::Coo(coo) => Some(coo.nnz),
            Self::Csr { nnz } | Self::Csc { nnz } => Some(*nnz),
            Self::Csf(csf) => Some(csf.nnz),
            _ => None,
        }
    }
}
