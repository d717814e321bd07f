//! Tiles, nested up to eight levels (`layouts.md` § 4.3).

use std::iter;

use super::strided::{Extent, ordered_offset, strided_extent, strided_offset};
use super::{InnerOrder, TileLevel, TileOrder};
use crate::{LayoutError, Shape, element_count};

impl TileLevel {
    /// The levels from the outermost in, without recursion: nothing has yet counted them.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |level| match &level.inner {
            InnerOrder::Tiled(nested) => Some(&**nested),
            _ => None,
        })
    }

    /// T6: every nested tile divides the one around it.
    pub(super) fn validate(&self) -> Result<(), LayoutError> {
        for (level, (parent, nested)) in self.levels().zip(self.levels().skip(1)).enumerate() {
            let sizes = parent.tile_shape.iter().zip(&nested.tile_shape);
            for (dimension, (&parent, &tile)) in sizes.enumerate() {
                if parent.checked_rem(tile) != Some(0) {
                    return Err(LayoutError::TileDivision {
                        level: level.saturating_add(1),
                        dimension,
                        tile,
                        parent,
                    });
                }
            }
        }
        Ok(())
    }

    /// The offsets of all tiles, boundary tiles in full. With `T = Π tile_shape` per level, the offset is `Σ outer·T` over the levels and
    /// the offset inside the innermost tile, so the extents add up the same way.
    pub(super) fn extent(&self, shape: &[u64]) -> Result<Extent, LayoutError> {
        let mut dims = Shape::from_slice(shape);
        let (mut lo, mut hi) = (0_i128, 0_i128);
        let mut add = |extent: Extent, times: i64| {
            let scaled = |offset: i64| i128::from(offset).checked_mul(i128::from(times));
            lo = scaled(extent.lo).and_then(|offset| lo.checked_add(offset))?;
            hi = scaled(extent.hi).and_then(|offset| hi.checked_add(offset))?;
            Some(())
        };
        for level in self.levels() {
            let tile = level.tile(&dims)?;
            for (dim, &tile) in dims.iter_mut().zip(tile) {
                *dim = dim.div_ceil(tile);
            }
            let outer = match &level.outer {
                TileOrder::RowMajor | TileOrder::ColumnMajor => {
                    Extent::of_count(element_count(&dims))?
                }
                TileOrder::Strided(strides) => {
                    strided_extent(&dims, strides)?.unwrap_or(Extent::POINT)
                }
            };
            add(outer, spacing(tile)?).ok_or(LayoutError::ExtentOverflow)?;
            let inner = match &level.inner {
                InnerOrder::RowMajor | InnerOrder::ColumnMajor => {
                    Extent::of_count(element_count(tile))?
                }
                InnerOrder::Strided(strides) => {
                    strided_extent(tile, strides)?.unwrap_or(Extent::POINT)
                }
                InnerOrder::Tiled(_) => Extent::POINT,
            };
            add(inner, 1).ok_or(LayoutError::ExtentOverflow)?;
            dims.copy_from_slice(tile);
        }
        Extent::from_wide(lo, hi)
    }

    /// The offset of an index inside `shape`.
    pub(super) fn offset(&self, shape: &[u64], index: &[u64]) -> Result<i64, LayoutError> {
        let mut dims = Shape::from_slice(shape);
        let mut within = Shape::from_slice(index);
        let mut tiles = Shape::from_slice(index);
        let mut offset = 0_i64;
        for level in self.levels() {
            let tile = level.tile(&dims)?;
            for (k, &tile) in tile.iter().enumerate() {
                let (Some(dim), Some(within), Some(number)) =
                    (dims.get_mut(k), within.get_mut(k), tiles.get_mut(k))
                else {
                    break;
                };
                *dim = dim.div_ceil(tile);
                // `tile` has refused a tile of no elements.
                *number = within.checked_div(tile).unwrap_or(0);
                *within = within.checked_rem(tile).unwrap_or(0);
            }
            let outer = match &level.outer {
                TileOrder::RowMajor => ordered_offset(tiles.iter().zip(&dims))?,
                TileOrder::ColumnMajor => ordered_offset(tiles.iter().zip(&dims).rev())?,
                TileOrder::Strided(strides) => strided_offset(&tiles, strides)?,
            };
            let inner = match &level.inner {
                InnerOrder::RowMajor => ordered_offset(within.iter().zip(tile))?,
                InnerOrder::ColumnMajor => ordered_offset(within.iter().zip(tile).rev())?,
                InnerOrder::Strided(strides) => strided_offset(&within, strides)?,
                InnerOrder::Tiled(_) => 0,
            };
            offset = outer
                .checked_mul(spacing(tile)?)
                .and_then(|outer| offset.checked_add(outer))
                .and_then(|offset| offset.checked_add(inner))
                .ok_or(LayoutError::ExtentOverflow)?;
            dims.copy_from_slice(tile);
        }
        Ok(offset)
    }

    /// The tile's shape, of the rank of `dims` and without a 0.
    fn tile(&self, dims: &[u64]) -> Result<&[u64], LayoutError> {
        if self.tile_shape.len() != dims.len() || self.tile_shape.contains(&0) {
            return Err(LayoutError::ParameterCount {
                found: self.tile_shape.len(),
                rank: dims.len(),
            });
        }
        Ok(&self.tile_shape)
    }
}

/// Elements from one tile to the next.
fn spacing(tile: &[u64]) -> Result<i64, LayoutError> {
    element_count(tile)
        .and_then(|count| i64::try_from(count).ok())
        .ok_or(LayoutError::ExtentOverflow)
}
