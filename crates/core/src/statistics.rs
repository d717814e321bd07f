//! The statistics section: hints about the values (`descriptor.md` § 11.2). They never decide correctness.

use std::hash::{Hash, Hasher};

use crate::DescriptorError;
use crate::wire::{Reader, Writer};

const NNZ: u32 = 1 << 0;
const SPARSITY_RATIO: u32 = 1 << 1;
const VALUE_RANGE: u32 = 1 << 2;
const MOMENTS: u32 = 1 << 3;
const SPARSITY_PATTERN: u32 = 1 << 4;
const NON_FINITE: u32 = 1 << 5;
const DEFINED: u32 = NNZ | SPARSITY_RATIO | VALUE_RANGE | MOMENTS | SPARSITY_PATTERN | NON_FINITE;

/// What is known of a tensor's real (dequantized) values; a `bool` counts as 0 or 1. The default knows nothing.
///
/// A section that was read keeps every byte, also of what its mask calls unknown, so that a relay repeats it. The accessors answer `None`
/// for the unknown, and do not judge the known: a section that was read may break S15.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    computed_mask: u32,
    nnz: u64,
    sparsity_ratio: f64,
    value_min: f64,
    value_max: f64,
    value_abs_max: f64,
    value_mean: f64,
    value_stddev: f64,
    nm_n: u8,
    nm_m: u8,
    has_nan: bool,
    has_inf: bool,
}

impl Statistics {
    pub(crate) const ENCODED_LEN: usize = 72;

    /// With the number of stored non-zero elements.
    #[must_use]
    pub fn with_nnz(self, nnz: u64) -> Self {
        Self { nnz, ..self }.known(NNZ)
    }

    /// With the share of zeros.
    ///
    /// # Errors
    /// A ratio that is not between 0 and 1 (S15).
    pub fn with_sparsity_ratio(self, ratio: f64) -> Result<Self, DescriptorError> {
        if !(0.0..=1.0).contains(&ratio) {
            return Err(DescriptorError::SparsityRatio { ratio });
        }
        let known = Self {
            sparsity_ratio: ratio,
            ..self
        };
        Ok(known.known(SPARSITY_RATIO))
    }

    /// With the smallest value, the largest value and the largest magnitude.
    #[must_use]
    pub fn with_value_range(self, min: f64, max: f64, abs_max: f64) -> Self {
        let known = Self {
            value_min: min,
            value_max: max,
            value_abs_max: abs_max,
            ..self
        };
        known.known(VALUE_RANGE)
    }

    /// With the mean and the population standard deviation.
    ///
    /// # Errors
    /// A deviation that is negative or NaN (S15).
    pub fn with_moments(self, mean: f64, stddev: f64) -> Result<Self, DescriptorError> {
        if stddev.is_nan() || stddev < 0.0 {
            return Err(DescriptorError::Deviation { stddev });
        }
        let known = Self {
            value_mean: mean,
            value_stddev: stddev,
            ..self
        };
        Ok(known.known(MOMENTS))
    }

    /// With an N:M sparsity pattern: at most `n` of any `m` neighbours are not zero.
    ///
    /// # Errors
    /// `n` above `m` (S15).
    pub fn with_sparsity_pattern(self, n: u8, m: u8) -> Result<Self, DescriptorError> {
        if n > m {
            return Err(DescriptorError::SparsityPattern { n, m });
        }
        let known = Self {
            nm_n: n,
            nm_m: m,
            ..self
        };
        Ok(known.known(SPARSITY_PATTERN))
    }

    /// With whether any element is NaN, and whether any is infinite.
    #[must_use]
    pub fn with_non_finite(self, has_nan: bool, has_inf: bool) -> Self {
        let known = Self {
            has_nan,
            has_inf,
            ..self
        };
        known.known(NON_FINITE)
    }

    fn known(self, bit: u32) -> Self {
        Self {
            computed_mask: self.computed_mask | bit,
            ..self
        }
    }

    fn if_known<T>(&self, bit: u32, value: T) -> Option<T> {
        (self.computed_mask & bit != 0).then_some(value)
    }

    /// The bits of what is known: 0 `nnz`, 1 `sparsity_ratio`, 2 minimum, maximum and magnitude, 3 mean and deviation, 4 the N:M pattern,
    /// 5 NaN and infinity.
    #[must_use]
    pub const fn computed_mask(&self) -> u32 {
        self.computed_mask
    }

    /// Stored non-zero elements.
    #[must_use]
    pub fn nnz(&self) -> Option<u64> {
        self.if_known(NNZ, self.nnz)
    }

    /// The share of zeros.
    #[must_use]
    pub fn sparsity_ratio(&self) -> Option<f64> {
        self.if_known(SPARSITY_RATIO, self.sparsity_ratio)
    }

    /// The smallest value.
    #[must_use]
    pub fn value_min(&self) -> Option<f64> {
        self.if_known(VALUE_RANGE, self.value_min)
    }

    /// The largest value.
    #[must_use]
    pub fn value_max(&self) -> Option<f64> {
        self.if_known(VALUE_RANGE, self.value_max)
    }

    /// The largest magnitude.
    #[must_use]
    pub fn value_abs_max(&self) -> Option<f64> {
        self.if_known(VALUE_RANGE, self.value_abs_max)
    }

    /// The mean.
    #[must_use]
    pub fn value_mean(&self) -> Option<f64> {
        self.if_known(MOMENTS, self.value_mean)
    }

    /// The population standard deviation.
    #[must_use]
    pub fn value_stddev(&self) -> Option<f64> {
        self.if_known(MOMENTS, self.value_stddev)
    }

    /// N of the N:M pattern.
    #[must_use]
    pub fn nm_n(&self) -> Option<u8> {
        self.if_known(SPARSITY_PATTERN, self.nm_n)
    }

    /// M of the N:M pattern.
    #[must_use]
    pub fn nm_m(&self) -> Option<u8> {
        self.if_known(SPARSITY_PATTERN, self.nm_m)
    }

    /// Whether any element is NaN.
    #[must_use]
    pub fn has_nan(&self) -> Option<bool> {
        self.if_known(NON_FINITE, self.has_nan)
    }

    /// Whether any element is infinite.
    #[must_use]
    pub fn has_inf(&self) -> Option<bool> {
        self.if_known(NON_FINITE, self.has_inf)
    }

    /// R44, R45.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DescriptorError> {
        let section = reader.block::<{ Self::ENCODED_LEN }>("the statistics section")?;
        let mut fields = Reader::new(section);
        let mask = fields.u32("computed_mask")?;
        if mask & !DEFINED != 0 {
            return Err(DescriptorError::StatisticsMask { mask });
        }
        if !fields.is_zero::<4>("reserved")? {
            return Err(DescriptorError::StatisticsReserved { offset: 4 });
        }
        let statistics = Self {
            computed_mask: mask,
            nnz: fields.u64("nnz")?,
            sparsity_ratio: fields.f64("sparsity_ratio")?,
            value_min: fields.f64("value_min")?,
            value_max: fields.f64("value_max")?,
            value_abs_max: fields.f64("value_abs_max")?,
            value_mean: fields.f64("value_mean")?,
            value_stddev: fields.f64("value_stddev")?,
            nm_n: fields.u8("nm_n")?,
            nm_m: fields.u8("nm_m")?,
            has_nan: fields.bool("has_nan")?,
            has_inf: fields.bool("has_inf")?,
        };
        if !fields.is_zero::<4>("reserved")? {
            return Err(DescriptorError::StatisticsReserved { offset: 68 });
        }
        Ok(statistics)
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.computed_mask);
        writer.zeros::<4>();
        writer.u64(self.nnz);
        for bits in self.float_bits() {
            writer.u64(bits);
        }
        writer.bytes(&[
            self.nm_n,
            self.nm_m,
            self.has_nan.into(),
            self.has_inf.into(),
        ]);
        writer.zeros::<4>();
    }

    fn float_bits(&self) -> [u64; 6] {
        [
            self.sparsity_ratio,
            self.value_min,
            self.value_max,
            self.value_abs_max,
            self.value_mean,
            self.value_stddev,
        ]
        .map(f64::to_bits)
    }
}

/// Two sections are equal when they have the same bytes on the wire: NaN payloads and unknown fields count.
impl PartialEq for Statistics {
    fn eq(&self, other: &Self) -> bool {
        let integers = |s: &Self| (s.computed_mask, s.nnz, s.nm_n, s.nm_m, s.has_nan, s.has_inf);
        integers(self) == integers(other) && self.float_bits() == other.float_bits()
    }
}

impl Eq for Statistics {}

impl Hash for Statistics {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.computed_mask.hash(state);
        self.nnz.hash(state);
        self.float_bits().hash(state);
    }
}
