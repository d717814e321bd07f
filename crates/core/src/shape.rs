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
    let mut count = Some(1_u64);
    for &dim in shape {
        if dim == DYNAMIC {
            return None;
        }
        count = match (count, dim) {
            // A later 0 undoes an overflow, a later dynamic dimension does not.
            (_, 0) => Some(0),
            (Some(count), dim) => count.checked_mul(dim),
            (None, _) => None,
        };
    }
    count
}
