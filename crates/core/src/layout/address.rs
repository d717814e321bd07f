//! Element offsets of the dense layouts (`layouts.md` § 4).

use super::Layout;
use super::strided::{Extent, ordered_offset, static_dimensions, strided_extent, strided_offset};
use crate::{LayoutError, element_count};

impl Layout {
    /// The lowest and highest element offset that must be stored, padding included (`layouts.md` § 4.6); `None` where the shape has no
    /// elements.
    ///
    /// # Errors
    /// A layout without element offsets; a dynamic dimension (G7); offsets that do not fit 64 bits. Parameters that
    /// [`validate`](Self::validate) refuses give an error here or an extent of no meaning.
    pub fn extent(&self, shape: &[u64]) -> Result<Option<Extent>, LayoutError> {
        self.has_offsets()?;
        if let Self::Strided(strides) = self {
            return strided_extent(shape, strides);
        }
        static_dimensions(shape)?;
        if shape.contains(&0) {
            return Ok(None);
        }
        match self {
            Self::Tiled(level) => level.extent(shape),
            Self::Morton(morton) => morton.extent(),
            Self::Hilbert(hilbert) => hilbert.extent(),
            _ => Extent::of_count(element_count(shape)),
        }
        .map(Some)
    }

    /// The offset of the element at `index`, in elements from element `[0, …, 0]`.
    ///
    /// # Errors
    /// A layout without element offsets; a dynamic dimension (G7); an index outside the shape; an offset that does not fit 63 bits.
    /// Parameters that [`validate`](Self::validate) refuses give an error here or an offset of no meaning.
    pub fn element_offset(&self, shape: &[u64], index: &[u64]) -> Result<i64, LayoutError> {
        self.has_offsets()?;
        static_dimensions(shape)?;
        if index.len() != shape.len() {
            return Err(LayoutError::IndexRank {
                found: index.len(),
                rank: shape.len(),
            });
        }
        let outside = index
            .iter()
            .zip(shape)
            .position(|(index, dim)| index >= dim);
        if let Some(dimension) = outside {
            return Err(LayoutError::IndexOutOfBounds {
                dimension,
                index: index.get(dimension).copied().unwrap_or(0),
                size: shape.get(dimension).copied().unwrap_or(0),
            });
        }
        match self {
            Self::ColumnMajor => ordered_offset(index.iter().zip(shape).rev()),
            Self::Strided(strides) => strided_offset(index, strides),
            Self::Tiled(level) => level.offset(shape, index),
            Self::Morton(morton) => morton.offset(index),
            Self::Hilbert(hilbert) => hilbert.offset(index),
            _ => ordered_offset(index.iter().zip(shape)),
        }
    }

    fn has_offsets(&self) -> Result<(), LayoutError> {
        if self.is_dense() {
            Ok(())
        } else {
            Err(LayoutError::NoElementOffset {
                layout: self.name(),
            })
        }
    }
}
