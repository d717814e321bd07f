//! The layout's bytes in a descriptor: its tag, and the parameters between `byte_offset` and the buffer table (`descriptor.md` § 8).
//!
//! [`Layout::check_parameters`] judges what both directions must refuse, so that whatever is written can be read.

use super::{
    BlockPaged, CombineOp, CompositeHead, CompositionRule, Coo, Csf, Hilbert, IndexType,
    InnerOrder, KvRole, Layout, Morton, PrivateLayout, TileLevel, TileOrder,
};
use crate::wire::{Reader, Writer};
use crate::{DescriptorError, PrivateTag};

const ROW_MAJOR: u8 = 0x01;
const COLUMN_MAJOR: u8 = 0x02;
const STRIDED: u8 = 0x03;
const TILED: u8 = 0x04;
const MORTON: u8 = 0x05;
const COO: u8 = 0x06;
const CSR: u8 = 0x07;
const CSC: u8 = 0x08;
const CSF: u8 = 0x09;
const BLOCK_PAGED: u8 = 0x0A;
const COMPOSITE: u8 = 0x0B;
const HILBERT: u8 = 0x40;

/// `outer_layout` and `inner_layout` of a tile level are the tags of plain layouts.
const MAX_TILE_LEVELS: usize = 8;
/// `layer_index` of a paged layout that belongs to no layer.
const NO_LAYER: u32 = u32::MAX;
/// `member_count` of a composite that is still open, which this version does not have.
const OPEN_COMPOSITE: u32 = u32::MAX;

impl Layout {
    /// The byte on the wire.
    #[must_use]
    pub const fn tag(&self) -> u8 {
        match self {
            Self::RowMajor => ROW_MAJOR,
            Self::ColumnMajor => COLUMN_MAJOR,
            Self::Strided(_) => STRIDED,
            Self::Tiled(_) => TILED,
            Self::Morton(_) => MORTON,
            Self::Coo(_) => COO,
            Self::Csr { .. } => CSR,
            Self::Csc { .. } => CSC,
            Self::Csf(_) => CSF,
            Self::BlockPaged(_) => BLOCK_PAGED,
            Self::Composite(_) => COMPOSITE,
            Self::Hilbert(_) => HILBERT,
            Self::Private(layout) => layout.tag.get(),
        }
    }

    /// Reads the parameters of the layout `tag`: R11–R30.
    pub(crate) fn read(
        tag: u8,
        rank: usize,
        reader: &mut Reader<'_>,
    ) -> Result<Self, DescriptorError> {
        let layout = match tag {
            ROW_MAJOR => Self::RowMajor,
            COLUMN_MAJOR => Self::ColumnMajor,
            STRIDED => Self::Strided(reader.i64s("strides", rank)?),
            // Its levels are judged one by one, the innermost first.
            TILED => return Ok(Self::Tiled(Box::new(TileLevel::read(1, rank, reader)?))),
            MORTON => Self::Morton(Morton {
                bits: reader.u32s("morton_bits", rank)?,
            }),
            COO => {
                let nnz = reader.u64("nnz")?;
                let is_sorted = reader.bool("is_sorted")?;
                read_reserved::<7>(reader)?;
                Self::Coo(Coo { nnz, is_sorted })
            }
            CSR | CSC => {
                let nnz = reader.u64("nnz")?;
                read_reserved::<8>(reader)?;
                if tag == CSR {
                    Self::Csr { nnz }
                } else {
                    Self::Csc { nnz }
                }
            }
            CSF => {
                let nnz = reader.u64("nnz")?;
                let mode_order = reader.u32s("mode_order", rank)?;
                read_reserved::<8>(reader)?;
                Self::Csf(Csf { nnz, mode_order })
            }
            BLOCK_PAGED => Self::BlockPaged(BlockPaged::read(reader)?),
            COMPOSITE => Self::Composite(CompositeHead::read(reader)?),
            HILBERT => Self::Hilbert(Hilbert {
                order: reader.u32("hilbert_order")?,
                rank: reader.u32("hilbert_rank")?,
            }),
            0x00 | 0xFF => return Err(DescriptorError::InvalidLayoutTag { tag }),
            _ => match PrivateTag::new(tag) {
                Some(tag) => Self::Private(PrivateLayout::read(tag, reader)?),
                None => return Err(DescriptorError::ReservedLayoutTag { tag }),
            },
        };
        layout.check_parameters(rank)?;
        Ok(layout)
    }

    /// The parameters' bytes.
    pub(crate) fn parameters_len(&self) -> usize {
        match self {
            Self::RowMajor | Self::ColumnMajor => 0,
            Self::Strided(strides) => size_of_val(strides.as_slice()),
            Self::Tiled(level) => level.encoded_len(),
            Self::Morton(morton) => size_of_val(morton.bits.as_slice()),
            Self::Coo(_) | Self::Csr { .. } | Self::Csc { .. } => 16,
            Self::Csf(csf) => size_of_val(csf.mode_order.as_slice()).saturating_add(16),
            Self::BlockPaged(_) => 32,
            Self::Composite(_) | Self::Hilbert(_) => 8,
            Self::Private(layout) => layout.data.len().saturating_add(12),
        }
    }

    /// Writes the parameters of a layout that [`check_parameters`](Self::check_parameters) accepts.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::RowMajor | Self::ColumnMajor => {}
            Self::Strided(strides) => writer.i64s(strides),
            Self::Tiled(level) => level.write(writer),
            Self::Morton(morton) => writer.u32s(&morton.bits),
            Self::Coo(coo) => {
                writer.u64(coo.nnz);
                writer.u8(coo.is_sorted.into());
                writer.zeros::<7>();
            }
            Self::Csr { nnz } | Self::Csc { nnz } => {
                writer.u64(*nnz);
                writer.zeros::<8>();
            }
            Self::Csf(csf) => {
                writer.u64(csf.nnz);
                writer.u32s(&csf.mode_order);
                writer.zeros::<8>();
            }
            Self::BlockPaged(paged) => paged.write(writer),
            Self::Composite(head) => head.write(writer),
            Self::Hilbert(hilbert) => {
                writer.u32(hilbert.order);
                writer.u32(hilbert.rank);
            }
            Self::Private(layout) => {
                writer.u64(layout.id);
                // `encoded_len` has refused longer data.
                writer.u32(u32::try_from(layout.data.len()).unwrap_or(u32::MAX));
                writer.bytes(&layout.data);
            }
        }
    }

    /// Whether the parameters are as many as `rank` asks for, and each one that a descriptor may hold: R14–R30 as far as these types can
    /// break them. Whether they fit the shape is another question.
    pub fn check_parameters(&self, rank: usize) -> Result<(), DescriptorError> {
        match self {
            Self::RowMajor
            | Self::ColumnMajor
            | Self::Coo(_)
            | Self::Csr { .. }
            | Self::Csc { .. }
            | Self::Private(_) => Ok(()),
            Self::Strided(strides) => check_length("strides", strides.len(), rank),
            Self::Tiled(level) => level.check(1, rank),
            Self::Morton(morton) => {
                check_length("morton_bits", morton.bits.len(), rank)?;
                if rank == 0 {
                    return Err(DescriptorError::MortonScalar);
                }
                match morton.bits.iter().position(|&bits| bits == 0) {
                    Some(dimension) => Err(DescriptorError::ZeroMortonBits { dimension }),
                    None => Ok(()),
                }
            }
            Self::Csf(csf) => {
                check_length("mode_order", csf.mode_order.len(), rank)?;
                check_permutation(&csf.mode_order)
            }
            Self::BlockPaged(paged) => {
                if paged.layer_index == Some(NO_LAYER) {
                    return Err(DescriptorError::LayerIndex);
                }
                Ok(())
            }
            Self::Composite(head) => {
                if head.member_count == OPEN_COMPOSITE {
                    return Err(DescriptorError::OpenComposite);
                }
                Ok(())
            }
            Self::Hilbert(hilbert) => {
                if hilbert.order == 0 {
                    return Err(DescriptorError::HilbertOrder);
                }
                if hilbert.rank < 2 {
                    return Err(DescriptorError::HilbertRank { rank: hilbert.rank });
                }
                Ok(())
            }
        }
    }
}

/// Takes `N` reserved bytes of a layout (R13).
fn read_reserved<const N: usize>(reader: &mut Reader<'_>) -> Result<(), DescriptorError> {
    let offset = reader.position();
    if reader.is_zero::<N>("the layout's reserved bytes")? {
        Ok(())
    } else {
        Err(DescriptorError::LayoutReserved { offset })
    }
}

fn check_length(
    parameter: &'static str,
    length: usize,
    rank: usize,
) -> Result<(), DescriptorError> {
    if length == rank {
        Ok(())
    } else {
        Err(DescriptorError::ParameterLength {
            parameter,
            length,
            rank,
        })
    }
}

/// R21, for a rank of at most 64.
fn check_permutation(mode_order: &[u32]) -> Result<(), DescriptorError> {
    let rank = mode_order.len();
    let mut seen = 0_u64;
    for (level, &dimension) in mode_order.iter().enumerate() {
        let bit = match usize::try_from(dimension) {
            Ok(index) if index < rank => 1_u64.checked_shl(dimension).unwrap_or(0),
            _ => 0,
        };
        if bit == 0 || seen & bit != 0 {
            return Err(DescriptorError::ModeOrder {
                level,
                dimension,
                rank,
            });
        }
        seen |= bit;
    }
    Ok(())
}

impl TileLevel {
    fn read(depth: usize, rank: usize, reader: &mut Reader<'_>) -> Result<Self, DescriptorError> {
        if depth > MAX_TILE_LEVELS {
            return Err(DescriptorError::TilingDepth);
        }
        let tile_shape = reader.u64s("tile_shape", rank)?;
        let outer_tag = reader.u8("outer_layout")?;
        let inner_tag = reader.u8("inner_layout")?;
        read_reserved::<2>(reader)?;
        let outer = match outer_tag {
            ROW_MAJOR => Ok(TileOrder::RowMajor),
            COLUMN_MAJOR => Ok(TileOrder::ColumnMajor),
            STRIDED => Ok(TileOrder::Strided(reader.i64s("outer_strides", rank)?)),
            value => Err(DescriptorError::OuterLayout { value }),
        };
        let inner = match inner_tag {
            ROW_MAJOR => Ok(InnerOrder::RowMajor),
            COLUMN_MAJOR => Ok(InnerOrder::ColumnMajor),
            STRIDED => Ok(InnerOrder::Strided(reader.i64s("inner_strides", rank)?)),
            TILED => Ok(InnerOrder::Tiled(Box::new(Self::read(
                depth.saturating_add(1),
                rank,
                reader,
            )?))),
            value => Err(DescriptorError::InnerLayout { value }),
        };
        check_tile_shape(&tile_shape)?;
        Ok(Self {
            tile_shape,
            outer: outer?,
            inner: inner?,
        })
    }

    fn encoded_len(&self) -> usize {
        let outer = match &self.outer {
            TileOrder::RowMajor | TileOrder::ColumnMajor => 0,
            TileOrder::Strided(strides) => size_of_val(strides.as_slice()),
        };
        let inner = match &self.inner {
            InnerOrder::RowMajor | InnerOrder::ColumnMajor => 0,
            InnerOrder::Strided(strides) => size_of_val(strides.as_slice()),
            InnerOrder::Tiled(level) => level.encoded_len(),
        };
        size_of_val(self.tile_shape.as_slice())
            .saturating_add(4)
            .saturating_add(outer)
            .saturating_add(inner)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.u64s(&self.tile_shape);
        writer.u8(match self.outer {
            TileOrder::RowMajor => ROW_MAJOR,
            TileOrder::ColumnMajor => COLUMN_MAJOR,
            TileOrder::Strided(_) => STRIDED,
        });
        writer.u8(match self.inner {
            InnerOrder::RowMajor => ROW_MAJOR,
            InnerOrder::ColumnMajor => COLUMN_MAJOR,
            InnerOrder::Strided(_) => STRIDED,
            InnerOrder::Tiled(_) => TILED,
        });
        writer.zeros::<2>();
        if let TileOrder::Strided(strides) = &self.outer {
            writer.i64s(strides);
        }
        match &self.inner {
            InnerOrder::RowMajor | InnerOrder::ColumnMajor => {}
            InnerOrder::Strided(strides) => writer.i64s(strides),
            InnerOrder::Tiled(level) => level.write(writer),
        }
    }

    fn check(&self, depth: usize, rank: usize) -> Result<(), DescriptorError> {
        if depth > MAX_TILE_LEVELS {
            return Err(DescriptorError::TilingDepth);
        }
        check_length("tile_shape", self.tile_shape.len(), rank)?;
        if let TileOrder::Strided(strides) = &self.outer {
            check_length("outer_strides", strides.len(), rank)?;
        }
        match &self.inner {
            InnerOrder::RowMajor | InnerOrder::ColumnMajor => {}
            InnerOrder::Strided(strides) => check_length("inner_strides", strides.len(), rank)?,
            InnerOrder::Tiled(level) => level.check(depth.saturating_add(1), rank)?,
        }
        check_tile_shape(&self.tile_shape)
    }
}

/// R14, R15.
fn check_tile_shape(tile_shape: &[u64]) -> Result<(), DescriptorError> {
    if tile_shape.is_empty() {
        return Err(DescriptorError::TiledScalar);
    }
    match tile_shape.iter().position(|&extent| extent == 0) {
        Some(dimension) => Err(DescriptorError::ZeroTile { dimension }),
        None => Ok(()),
    }
}

impl BlockPaged {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DescriptorError> {
        let page_size = reader.u32("page_size")?;
        let num_pages = reader.u64("num_pages")?;
        let paged_axis = reader.u32("paged_axis")?;
        let num_seqs = reader.u32("num_seqs")?;
        let kv_role = match reader.u8("kv_role")? {
            0 => KvRole::Key,
            1 => KvRole::Value,
            2 => KvRole::Fused,
            value => return Err(DescriptorError::KvRole { value }),
        };
        let layer_index = reader.u32("layer_index")?;
        let index_type = match reader.u8("index_type")? {
            0 => IndexType::Uint32,
            1 => IndexType::Uint64,
            value => return Err(DescriptorError::IndexType { value }),
        };
        read_reserved::<6>(reader)?;
        Ok(Self {
            page_size,
            num_pages,
            paged_axis,
            num_seqs,
            kv_role,
            layer_index: (layer_index != NO_LAYER).then_some(layer_index),
            index_type,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.page_size);
        writer.u64(self.num_pages);
        writer.u32(self.paged_axis);
        writer.u32(self.num_seqs);
        writer.u8(match self.kv_role {
            KvRole::Key => 0,
            KvRole::Value => 1,
            KvRole::Fused => 2,
        });
        writer.u32(self.layer_index.unwrap_or(NO_LAYER));
        writer.u8(match self.index_type {
            IndexType::Uint32 => 0,
            IndexType::Uint64 => 1,
        });
        writer.zeros::<6>();
    }
}

impl CompositeHead {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DescriptorError> {
        let rule = reader.u8("composition_rule")?;
        let combine_op = reader.u8("combine_op")?;
        read_reserved::<2>(reader)?;
        let member_count = reader.u32("member_count")?;
        let rule = match (rule, combine_op) {
            (1, 0) => CompositionRule::Partition,
            (2, 1) => CompositionRule::Overlay(CombineOp::Replace),
            (2, 2) => CompositionRule::Overlay(CombineOp::Add),
            (3, 0) => CompositionRule::Group,
            (1..=3, _) => return Err(DescriptorError::CombineOp { rule, combine_op }),
            (0xFF, _) => return Err(DescriptorError::InvalidCompositionRule),
            (0xF0..=0xFE, _) => {
                return Err(DescriptorError::PrivateCompositionRule { value: rule });
            }
            _ => return Err(DescriptorError::ReservedCompositionRule { value: rule }),
        };
        Ok(Self { rule, member_count })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes(&match self.rule {
            CompositionRule::Partition => [1, 0, 0, 0],
            CompositionRule::Overlay(CombineOp::Replace) => [2, 1, 0, 0],
            CompositionRule::Overlay(CombineOp::Add) => [2, 2, 0, 0],
            CompositionRule::Group => [3, 0, 0, 0],
        });
        writer.u32(self.member_count);
    }
}

impl PrivateLayout {
    fn read(tag: PrivateTag, reader: &mut Reader<'_>) -> Result<Self, DescriptorError> {
        let id = reader.u64("extension_layout_id")?;
        let length = reader.u32("the private layout's length")?;
        // Where usize is 32 bits wide, no such number of bytes can be at hand.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let data = reader.bytes("the private layout's data", length)?.to_vec();
        Ok(Self { tag, id, data })
    }
}
