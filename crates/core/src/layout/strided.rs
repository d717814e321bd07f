//! Strides in elements: row-major, column-major and any other (`layouts.md` § 4.1, § 4.2).

use super::Strides;
use crate::{DYNAMIC, LayoutError, StorageWidth, element_count};

/// The lowest and the highest element offset that must be stored, both inclusive, in elements from element `[0, …, 0]`
/// (`layouts.md` § 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The lowest offset, 0 or less.
    pub lo: i64,
    /// The highest offset, 0 or more.
    pub hi: i64,
}

impl Extent {
    /// Only element 0.
    pub(super) const POINT: Self = Self { lo: 0, hi: 0 };

    /// The offsets 0 to `count − 1`; for a count of at least 1.
    pub(super) fn of_count(count: Option<u64>) -> Result<Self, LayoutError> {
        let hi = count.and_then(|count| i64::try_from(count.saturating_sub(1)).ok());
        Ok(Self {
            lo: 0,
            hi: hi.ok_or(LayoutError::ExtentOverflow)?,
        })
    }

    pub(super) fn from_wide(lo: i128, hi: i128) -> Result<Self, LayoutError> {
        match (i64::try_from(lo), i64::try_from(hi)) {
            (Ok(lo), Ok(hi)) => Ok(Self { lo, hi }),
            _ => Err(LayoutError::ExtentOverflow),
        }
    }

    /// The places from the lowest to the highest element.
    #[must_use]
    pub fn element_count(self) -> Option<u64> {
        self.hi.abs_diff(self.lo).checked_add(1)
    }

    /// The bytes that elements of `width` take before the byte at which element 0 begins, and from it on.
    ///
    /// # Errors
    /// [`LayoutError::ExtentOverflow`] if they do not fit 64 bits.
    pub fn bytes(self, width: StorageWidth) -> Result<ByteExtent, LayoutError> {
        let after = u64::try_from(self.hi)
            .ok()
            .and_then(|hi| width.byte_size(hi.checked_add(1)?));
        let before = u64::try_from(width.position(self.lo).byte.unsigned_abs()).ok();
        match (before, after) {
            (Some(before), Some(after)) => Ok(ByteExtent { before, after }),
            _ => Err(LayoutError::ExtentOverflow),
        }
    }
}

/// The bytes around the byte at which element 0 begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteExtent {
    /// Bytes below it.
    pub before: u64,
    /// Bytes from it on.
    pub after: u64,
}

/// The offsets of a strided view, in elements: `lo = Σ min(0, s·(n−1))`, `hi = Σ max(0, s·(n−1))`; `None` for no elements.
///
/// The one function for validation, copies, DLPack and I/O. Strides of any sign, 0 included; with bytes for elements it takes byte
/// strides as well.
///
/// # Errors
/// As many strides as there are not dimensions; a dynamic dimension (G7); offsets that do not fit 64 bits.
pub fn strided_extent(shape: &[u64], strides: &[i64]) -> Result<Option<Extent>, LayoutError> {
    if shape.len() != strides.len() {
        return Err(LayoutError::ParameterCount {
            found: strides.len(),
            rank: shape.len(),
        });
    }
    static_dimensions(shape)?;
    if shape.contains(&0) {
        return Ok(None);
    }
    let (mut lo, mut hi) = (0_i128, 0_i128);
    for (&dim, &stride) in shape.iter().zip(strides) {
        let steps = i128::from(dim.saturating_sub(1));
        // At most 2^63 · 2^64 in size, and the sum of 64 such needs the check.
        let reach = i128::from(stride)
            .checked_mul(steps)
            .ok_or(LayoutError::ExtentOverflow)?;
        let side = if reach < 0 { &mut lo } else { &mut hi };
        *side = side.checked_add(reach).ok_or(LayoutError::ExtentOverflow)?;
    }
    Extent::from_wide(lo, hi).map(Some)
}

/// `Σ index·strides`, for an index inside the shape.
pub(super) fn strided_offset(index: &[u64], strides: &[i64]) -> Result<i64, LayoutError> {
    if index.len() != strides.len() {
        return Err(LayoutError::ParameterCount {
            found: strides.len(),
            rank: index.len(),
        });
    }
    let mut offset = 0_i128;
    for (&index, &stride) in index.iter().zip(strides) {
        offset = i128::from(index)
            .checked_mul(i128::from(stride))
            .and_then(|step| offset.checked_add(step))
            .ok_or(LayoutError::ExtentOverflow)?;
    }
    i64::try_from(offset).map_err(|_| LayoutError::ExtentOverflow)
}

/// The offset by Horner's rule, over pairs of index and dimension from the slowest to the fastest.
pub(super) fn ordered_offset<'a>(
    places: impl Iterator<Item = (&'a u64, &'a u64)>,
) -> Result<i64, LayoutError> {
    let mut offset = 0_u64;
    for (&index, &dim) in places {
        offset = offset
            .checked_mul(dim)
            .and_then(|offset| offset.checked_add(index))
            .ok_or(LayoutError::ExtentOverflow)?;
    }
    i64::try_from(offset).map_err(|_| LayoutError::ExtentOverflow)
}

pub(crate) fn static_dimensions(shape: &[u64]) -> Result<(), LayoutError> {
    match shape.iter().position(|&dim| dim == DYNAMIC) {
        Some(dimension) => Err(LayoutError::DynamicDimension { dimension }),
        None => Ok(()),
    }
}

/// The strides of a row-major shape, in elements: `s[r−1] = 1`, `s[k] = s[k+1]·n[k+1]`. A stride of an empty shape that would overflow
/// is 0.
///
/// # Errors
/// A dynamic dimension (G7); a stride that does not fit 63 bits.
pub fn row_major_strides(shape: &[u64]) -> Result<Strides, LayoutError> {
    let mut strides = ordered_strides(shape, shape.iter().rev())?;
    strides.reverse();
    Ok(strides)
}

/// The strides of a column-major shape, in elements: `s[0] = 1`, `s[k] = s[k−1]·n[k−1]`. A stride of an empty shape that would overflow
/// is 0.
///
/// # Errors
/// A dynamic dimension (G7); a stride that does not fit 63 bits.
pub fn column_major_strides(shape: &[u64]) -> Result<Strides, LayoutError> {
    ordered_strides(shape, shape.iter())
}

fn ordered_strides<'a>(
    shape: &[u64],
    dims: impl Iterator<Item = &'a u64>,
) -> Result<Strides, LayoutError> {
    static_dimensions(shape)?;
    let empty = shape.contains(&0);
    let mut stride = Some(1_i64);
    let mut strides = Strides::with_capacity(shape.len());
    for &dim in dims {
        match stride {
            Some(stride) => strides.push(stride),
            None if empty => strides.push(0),
            None => return Err(LayoutError::ExtentOverflow),
        }
        stride = i64::try_from(dim)
            .ok()
            .and_then(|dim| stride?.checked_mul(dim));
    }
    Ok(strides)
}

/// Whether `strides` put the elements of `shape` where row-major puts them. A dimension of one element may have any stride, and an empty
/// shape any strides.
#[must_use]
pub fn is_row_major(shape: &[u64], strides: &[i64]) -> bool {
    shape.len() == strides.len() && is_ordered(shape, shape.iter().zip(strides).rev())
}

/// Whether `strides` put the elements of `shape` where column-major puts them. A dimension of one element may have any stride, and an
/// empty shape any strides.
#[must_use]
pub fn is_column_major(shape: &[u64], strides: &[i64]) -> bool {
    shape.len() == strides.len() && is_ordered(shape, shape.iter().zip(strides))
}

fn is_ordered<'a>(shape: &[u64], places: impl Iterator<Item = (&'a u64, &'a i64)>) -> bool {
    if element_count(shape) == Some(0) {
        return true;
    }
    let mut expected = Some(1_u64);
    for (&dim, &stride) in places {
        if dim == 1 {
            continue;
        }
        if expected.is_none() || u64::try_from(stride).ok() != expected {
            return false;
        }
        expected = expected.and_then(|expected| expected.checked_mul(dim));
    }
    true
}
