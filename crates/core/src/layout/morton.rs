//! The Morton curve: bits of the index interleaved, dimension 0 fastest (`layouts.md` § 4.4).

use super::Morton;
use super::strided::Extent;
use crate::{DYNAMIC, LayoutError};

impl Morton {
    /// M3 for every dimension that is known, and M4.
    pub(super) fn validate(&self, shape: &[u64]) -> Result<(), LayoutError> {
        self.code_bits()?;
        for (dimension, (&size, &bits)) in shape.iter().zip(&self.bits).enumerate() {
            let most = 1_u64.checked_shl(bits).unwrap_or(u64::MAX);
            if size != DYNAMIC && size > most {
                return Err(LayoutError::MortonDimension {
                    dimension,
                    size,
                    bits,
                });
            }
        }
        Ok(())
    }

    /// The code of the index of all ones: every position that a code can set. Fails where the positions are not all below 64 (M4).
    fn code_bits(&self) -> Result<u64, LayoutError> {
        let rank = u64::try_from(self.bits.len()).unwrap_or(u64::MAX);
        let total = self
            .bits
            .iter()
            .fold(0_u64, |total, &bits| total.saturating_add(u64::from(bits)));
        // Of at most 64 · 2^32, exact.
        let highest = (0..rank)
            .zip(&self.bits)
            .map(|(dimension, &bits)| {
                u64::from(bits.saturating_sub(1))
                    .saturating_mul(rank)
                    .saturating_add(dimension)
            })
            .max()
            .unwrap_or(0);
        if total > 64 || highest >= 64 {
            return Err(LayoutError::MortonBits { total, highest });
        }
        Ok(self.code(|_| u64::MAX))
    }

    /// Bit `b` of dimension `d` goes to position `b·rank + d`, for positions below 64.
    fn code(&self, index: impl Fn(usize) -> u64) -> u64 {
        let rank = u32::try_from(self.bits.len()).unwrap_or(u32::MAX);
        let mut code = 0;
        for (dimension, &bits) in self.bits.iter().enumerate() {
            let mut rest = index(dimension);
            let mut position = u32::try_from(dimension).unwrap_or(u32::MAX);
            for _ in 0..bits.min(64) {
                code |= (rest & 1).checked_shl(position).unwrap_or(0);
                rest >>= 1;
                position = position.saturating_add(rank);
            }
        }
        code
    }

    /// From 0 to the code of all ones (decision 11), which is more than `2^Σ bits` where the positions have holes.
    pub(super) fn extent(&self) -> Result<Extent, LayoutError> {
        Extent::from_wide(0, self.code_bits()?.into())
    }

    /// The offset of an index inside the shape.
    pub(super) fn offset(&self, index: &[u64]) -> Result<i64, LayoutError> {
        if index.len() != self.bits.len() {
            return Err(LayoutError::ParameterCount {
                found: self.bits.len(),
                rank: index.len(),
            });
        }
        self.code_bits()?;
        let code = self.code(|dimension| index.get(dimension).copied().unwrap_or(0));
        i64::try_from(code).map_err(|_| LayoutError::ExtentOverflow)
    }
}
