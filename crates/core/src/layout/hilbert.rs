//! The Hilbert curve of Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004), as `layouts.md` § 4.5 gives it.

use super::Hilbert;
use super::strided::Extent;
use crate::{DYNAMIC, LayoutError, Shape};

impl Hilbert {
    /// H3, H4 for every dimension that is known, and H5.
    pub(super) fn validate(&self, shape: &[u64]) -> Result<(), LayoutError> {
        if usize::try_from(self.rank) != Ok(shape.len()) {
            return Err(LayoutError::HilbertRank {
                curve: self.rank,
                rank: shape.len(),
            });
        }
        let side = 1_u64
            .checked_shl(self.order)
            .ok_or(LayoutError::HilbertOrder { order: self.order })?;
        for (dimension, &size) in shape.iter().enumerate() {
            if size != DYNAMIC && size != side {
                return Err(LayoutError::HilbertDimension {
                    dimension,
                    size,
                    order: self.order,
                });
            }
        }
        self.offset_bits().map(|_| ())
    }

    /// `rank · order`, the bits of an offset (H5).
    fn offset_bits(&self) -> Result<u32, LayoutError> {
        match self.rank.checked_mul(self.order) {
            Some(bits) if bits <= 64 && self.order < 64 => Ok(bits),
            _ => Err(LayoutError::HilbertBits {
                rank: self.rank,
                order: self.order,
            }),
        }
    }

    /// All places of the curve.
    pub(super) fn extent(&self) -> Result<Extent, LayoutError> {
        let places = 1_i128.checked_shl(self.offset_bits()?).unwrap_or(0);
        Extent::from_wide(0, places.saturating_sub(1))
    }

    /// The offset of an index inside the shape.
    pub(super) fn offset(&self, index: &[u64]) -> Result<i64, LayoutError> {
        if usize::try_from(self.rank) != Ok(index.len()) {
            return Err(LayoutError::HilbertRank {
                curve: self.rank,
                rank: index.len(),
            });
        }
        self.offset_bits()?;
        let mut axes = Shape::from_slice(index);
        // The names and steps are those of the reference; `order` is below 64, for the rank is not 0.
        for bit in (1..self.order).rev() {
            let mask = mask(bit);
            for axis in 0..axes.len() {
                undo(&mut axes, axis, bit, mask);
            }
        }
        let mut previous = 0;
        for axis in &mut axes {
            *axis ^= previous;
            previous = *axis;
        }
        let last = axes.last().copied().unwrap_or(0);
        let gray = (1..self.order)
            .filter(|&bit| is_set(last, bit))
            .fold(0, |gray, bit| gray ^ mask(bit));
        let mut offset = 0_u64;
        // The bits from the highest down, of each the axes from 0 on: dimension 0 is the top bit of each group.
        for bit in (0..self.order).rev() {
            for &axis in &axes {
                offset = (offset << 1) | u64::from(is_set(axis ^ gray, bit));
            }
        }
        i64::try_from(offset).map_err(|_| LayoutError::ExtentOverflow)
    }
}

/// `2^bit − 1`, for a bit below 64.
fn mask(bit: u32) -> u64 {
    1_u64
        .checked_shl(bit)
        .map_or(u64::MAX, |bit| bit.wrapping_sub(1))
}

fn is_set(value: u64, bit: u32) -> bool {
    value.checked_shr(bit).is_some_and(|value| value & 1 == 1)
}

/// One step of the transform: inverts the low bits of axis 0, or exchanges them with those of `axis`.
fn undo(axes: &mut [u64], axis: usize, bit: u32, mask: u64) {
    let Some(&value) = axes.get(axis) else { return };
    let Some(&first) = axes.first() else { return };
    let change = if is_set(value, bit) {
        mask
    } else {
        (first ^ value) & mask
    };
    if let Some(first) = axes.first_mut() {
        *first ^= change;
    }
    if !is_set(value, bit)
        && let Some(value) = axes.get_mut(axis)
    {
        *value ^= change;
    }
}
