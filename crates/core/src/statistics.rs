//! The statistics section: hints about the values (`descriptor.md` § 11.2). They never decide correctness.

/// The section as it is on the wire: a mask, and fields that mean something only where their bit of the mask is set.
///
/// The fields without a set bit are kept as they were read, so that a relay repeats them. The accessors answer `None` for those.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Bit 0 `nnz`, 1 `sparsity_ratio`, 2 minimum, maximum and largest magnitude, 3 mean and deviation, 4 N:M sparsity, 5 NaN and infinity.
    pub computed_mask: u32,
    /// Stored non-zero elements.
    pub nnz: u64,
    /// Share of zeros, 0 to 1.
    pub sparsity_ratio: f64,
    /// Smallest value.
    pub value_min: f64,
    /// Largest value.
    pub value_max: f64,
    /// Largest magnitude.
    pub value_abs_max: f64,
    /// Mean.
    pub value_mean: f64,
    /// Population standard deviation.
    pub value_stddev: f64,
    /// N of an N:M sparsity pattern.
    pub nm_n: u8,
    /// M of an N:M sparsity pattern.
    pub nm_m: u8,
    /// Whether any element is NaN.
    pub has_nan: bool,
    /// Whether any element is infinite.
    pub has_inf: bool,
}

/// Two sections are equal when they have the same bytes on the wire: NaN payloads and fields without a set bit count.
impl PartialEq for Statistics {
    fn eq(&self, other: &Self) -> bool {
        let bits = |s: &Self| {
            (
                [
                    s.sparsity_ratio,
                    s.value_min,
                    s.value_max,
                    s.value_abs_max,
                    s.value_mean,
                    s.value_stddev,
                ]
                .map(f64::to_bits),
                (s.computed_mask, s.nnz, s.nm_n, s.nm_m, s.has_nan, s.has_inf),
            )
        };
        bits(self) == bits(other)
    }
}

impl Eq for Statistics {}
