//! Schemes against the tensor they quantize: Q15–Q20, and what their parameters take (`quantization.md` § 4, § 5, § 10).

use crate::{
    BlockAffine, DYNAMIC, ElementType, Layout, QuantizationError, QuantizationScheme, ScaleType,
    TensorAffine, element_count,
};

impl QuantizationScheme {
    /// The scheme's name, as in `per_channel_affine`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TensorAffine(_) => "per_tensor_affine",
            Self::ChannelAffine(_) => "per_channel_affine",
            Self::BlockAffine(_) => "per_block_affine",
            Self::Nf4(_) => "nf4",
            Self::Mxfp(_) => "mxfp",
        }
    }

    /// The dimension along which the parameters change; `None` for one set of them.
    #[must_use]
    pub const fn axis(&self) -> Option<u32> {
        match self {
            Self::TensorAffine(_) => None,
            Self::ChannelAffine(scheme) => Some(scheme.axis),
            Self::BlockAffine(scheme) => Some(scheme.axis),
            Self::Nf4(scheme) => Some(scheme.axis),
            Self::Mxfp(scheme) => Some(scheme.axis),
        }
    }

    /// The elements of a block along the axis; `None` for a scheme without blocks.
    #[must_use]
    pub const fn block_size(&self) -> Option<u32> {
        match self {
            Self::TensorAffine(_) | Self::ChannelAffine(_) => None,
            Self::BlockAffine(scheme) => Some(scheme.block_size),
            Self::Nf4(scheme) => Some(scheme.block_size),
            Self::Mxfp(scheme) => Some(scheme.block_size),
        }
    }

    /// The rows of the scales and of the zero points, which may be one.
    #[must_use]
    pub const fn parameter_buffers(&self) -> (Option<u32>, Option<u32>) {
        match self {
            Self::TensorAffine(_) => (None, None),
            Self::ChannelAffine(scheme) => (Some(scheme.scale_buffer), scheme.zero_point_buffer),
            Self::BlockAffine(scheme) => (Some(scheme.scale_buffer), scheme.zero_point_buffer),
            Self::Nf4(scheme) => (Some(scheme.scale_buffer), None),
            Self::Mxfp(scheme) => (Some(scheme.scale_buffer), None),
        }
    }

    /// The number of distinct parameter buffers: 0, 1 or 2.
    #[must_use]
    pub fn parameter_buffer_count(&self) -> usize {
        match self.parameter_buffers() {
            (None, None) => 0,
            (Some(scales), Some(zero_points)) if scales != zero_points => 2,
            _ => 1,
        }
    }

    /// The type of the scales.
    #[must_use]
    pub const fn scale_type(&self) -> ElementType {
        match self {
            Self::BlockAffine(BlockAffine { scale_type, .. }) => match scale_type {
                ScaleType::Float16 => ElementType::Float16,
                ScaleType::Bfloat16 => ElementType::Bfloat16,
                ScaleType::Float32 => ElementType::Float32,
            },
            Self::Mxfp(_) => ElementType::Float8E8m0,
            _ => ElementType::Float32,
        }
    }

    /// Whether codes of this scheme may be stored as `element_type` (`quantization.md` § 4).
    #[must_use]
    pub const fn accepts(&self, element_type: ElementType) -> bool {
        use ElementType::{
            Float4E2m1, Float6E2m3, Float6E3m2, Float8E4m3, Float8E5m2, Int2, Int4, Int8, Int16,
            Int32, Uint2, Uint4, Uint8, Uint16, Uint32,
        };
        match self {
            Self::TensorAffine(_) | Self::ChannelAffine(_) => matches!(
                element_type,
                Int8 | Uint8 | Int16 | Uint16 | Int32 | Uint32 | Int4 | Uint4 | Int2 | Uint2
            ),
            Self::BlockAffine(_) => {
                matches!(element_type, Int8 | Uint8 | Int4 | Uint4 | Int2 | Uint2)
            }
            Self::Nf4(_) => matches!(element_type, Uint4),
            Self::Mxfp(_) => matches!(
                element_type,
                Float8E4m3 | Float8E5m2 | Float4E2m1 | Float6E2m3 | Float6E3m2 | Int8 | Int4
            ),
        }
    }

    /// Checks that codes of `element_type` in a tensor of `shape` can be this scheme's: Q15–Q20.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(
        &self,
        element_type: ElementType,
        shape: &[u64],
    ) -> Result<(), QuantizationError> {
        if !self.accepts(element_type) {
            return Err(QuantizationError::StorageType {
                scheme: self.name(),
                element_type,
            });
        }
        if let Self::TensorAffine(TensorAffine { zero_point, .. }) = *self
            && !is_code(element_type, zero_point)
        {
            return Err(QuantizationError::ZeroPointRange {
                zero_point,
                element_type,
            });
        }
        let Some(axis) = self.axis() else {
            return Ok(());
        };
        let size = usize::try_from(axis).ok().and_then(|axis| shape.get(axis));
        let &size = size.ok_or(QuantizationError::Axis {
            axis,
            rank: shape.len(),
        })?;
        if size == DYNAMIC {
            return Err(QuantizationError::DynamicAxis { axis });
        }
        let Some(block_size) = self.block_size() else {
            return Ok(());
        };
        let blocks = u64::from(block_size);
        if let Self::Mxfp(_) = self {
            if size == 0 || size.checked_rem(blocks) != Some(0) {
                return Err(QuantizationError::BlockMultiple {
                    axis,
                    block_size,
                    size,
                });
            }
        } else if size > 0 && blocks > size {
            return Err(QuantizationError::BlockExceedsAxis {
                axis,
                block_size,
                size,
            });
        }
        Ok(())
    }

    /// The number of scales, and of zero points if the scheme has them: 0 for a scheme whose parameters are in the section, otherwise
    /// `shape[axis]` or, for blocks, `ceil(shape[axis] / block_size)` times the other dimensions. A block-paged tensor quantized by its
    /// pages has one for each slot of the pool.
    ///
    /// # Errors
    /// [`QuantizationError::ParameterOverflow`]; an axis that [`validate`](Self::validate) refuses.
    pub fn parameter_count(
        &self,
        shape: &[u64],
        layout: &Layout,
    ) -> Result<u64, QuantizationError> {
        let Some(axis) = self.axis() else {
            return Ok(0);
        };
        let Some((before, [size, after @ ..])) = usize::try_from(axis)
            .ok()
            .and_then(|axis| shape.split_at_checked(axis))
        else {
            return Err(QuantizationError::Axis {
                axis,
                rank: shape.len(),
            });
        };
        let count = match (self, self.block_size(), layout) {
            (_, None, _) => Some(*size),
            (Self::BlockAffine(_), _, Layout::BlockPaged(paged)) => {
                paged.num_pages.checked_mul(paged.page_size.into())
            }
            (_, Some(block_size), _) => {
                let blocks = size.div_ceil(u64::from(block_size).max(1));
                product([&[blocks], before, after])
            }
        };
        count.ok_or(QuantizationError::ParameterOverflow)
    }

    /// The elements of the tensor with its last block filled up in every row, where that is more than it has: what a tensor takes
    /// that stores the padding (decision 3).
    pub(crate) fn padded_count(&self, shape: &[u64]) -> Option<u64> {
        if let Self::Mxfp(_) = self {
            return None;
        }
        let block_size = u64::from(self.block_size()?).max(1);
        let axis = usize::try_from(self.axis()?).ok()?;
        let (before, [size, after @ ..]) = shape.split_at_checked(axis)? else {
            return None;
        };
        let padded = size.checked_next_multiple_of(block_size)?;
        if padded == *size {
            return None;
        }
        product([&[padded], before, after])
    }
}

/// Whether an integer type stores `zero_point`.
pub(crate) fn is_code(element_type: ElementType, zero_point: i32) -> bool {
    element_type
        .integer_range()
        .is_some_and(|(lowest, highest)| {
            let zero_point = i128::from(zero_point);
            (i128::from(lowest)..=i128::from(highest)).contains(&zero_point)
        })
}

fn product(parts: [&[u64]; 3]) -> Option<u64> {
    let counts = parts.map(element_count);
    if counts.contains(&Some(0)) {
        return Some(0);
    }
    counts
        .into_iter()
        .try_fold(1_u64, |product, count| product.checked_mul(count?))
}
