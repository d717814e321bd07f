//! Shapes: dimensions in elements, dimension 0 outermost.

use smallvec::SmallVec;

/// The dimension that is not known yet (`descriptor.md` § 6). It is never an extent: no size or address follows from it.
pub const DYNAMIC: u64 = u64::MAX;

/// The highest rank of the format.
pub const MAX_RANK: usize = 64;

/// The dimensions of a tensor; the common ranks are stored inline.
pub type Shape = SmallVec<[u64; 6]>;

/// The number of elements of `shape`: 1 for a scalar, 0 if any dimension is 0, `None` while a dimension is [`DYNAMIC`]
/// or if the product does not fit 64 bits.
#[must_use]
pub fn element_count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&DYNAMIC) {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1_u64, |count, &dim| count.checked_mul(dim))
}
