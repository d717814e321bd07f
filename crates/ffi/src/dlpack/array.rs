//! What a DLPack tensor says of itself, checked on numbers alone before a byte is read.

use std::ops::Range;
use std::slice;

use dlpark::DlpackFlags;
use dlpark::ffi::{DLDevice, DLTensor};
use hurray_core::memory::measure_alignment;
use hurray_core::{
    ElementType, Extent, Layout, LayoutError, MAX_RANK, MIN_BUFFER_ALIGNMENT, Shape, StorageWidth,
    Strides, element_count, is_column_major, is_row_major, row_major_strides, strided_extent,
};
use thiserror::Error;

use super::CopyReason;
use super::element_type::{self, Storage, UnsupportedElementType};

/// A DLPack tensor that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// No element type here.
    #[error(transparent)]
    ElementType(#[from] UnsupportedElementType),
    /// More dimensions than the format has.
    #[error("a DLPack tensor of {ndim} dimensions, of which the format has {MAX_RANK} at most")]
    Rank {
        /// `DLTensor.ndim`.
        ndim: i32,
    },
    /// A negative number of dimensions.
    #[error("a DLPack tensor of {ndim} dimensions")]
    NegativeRank {
        /// `DLTensor.ndim`.
        ndim: i32,
    },
    /// Dimensions without a shape.
    #[error("a DLPack tensor of {ndim} dimensions with a NULL shape")]
    NullShape {
        /// `DLTensor.ndim`.
        ndim: i32,
    },
    /// A negative dimension.
    #[error("dimension {axis} of a DLPack tensor is {value}")]
    NegativeDimension {
        /// Which one.
        axis: usize,
        /// Its size.
        value: i64,
    },
    /// Elements without data.
    #[error("a DLPack tensor of shape {shape:?} with NULL data")]
    NullData {
        /// The shape.
        shape: Vec<u64>,
    },
    /// Offsets that no memory can hold.
    #[error(transparent)]
    Strides(#[from] LayoutError),
    /// Elements that no memory can hold.
    #[error(
        "shape {shape:?} with strides {strides:?} of {element_type} from {address:#x} exceeds the address space"
    )]
    Extent {
        /// The shape.
        shape: Vec<u64>,
        /// The strides, in elements.
        strides: Vec<i64>,
        /// The type.
        element_type: ElementType,
        /// Where element `[0, …, 0]` would be.
        address: u128,
    },
    /// Elements in pairs whose last dimension is not dense.
    #[error(
        "elements in pairs of two lanes need a last dimension of stride 1, not strides {strides:?}"
    )]
    StridedPairs {
        /// The strides, in pairs.
        strides: Vec<i64>,
    },
}

/// An array in memory that is not ours yet: its elements lie in `extent` and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The type of the elements.
    pub(super) element_type: ElementType,
    /// The width of one element.
    pub(super) width: StorageWidth,
    /// Dimensions in elements.
    pub(super) shape: Shape,
    /// Strides in elements; row-major where there are no elements.
    pub(super) strides: Strides,
    /// How the elements are stored.
    pub(super) storage: Storage,
    /// The address of element `[0, …, 0]`; 0 where there are no elements.
    pub(super) address: usize,
    /// From the first byte of the lowest element to past the last byte of the highest; empty where there are no elements. Between 0 and
    /// `isize::MAX`.
    pub(super) extent: Range<usize>,
    /// The offsets of the lowest and the highest element.
    offsets: Extent,
    device: DLDevice,
    pub(super) is_read_only: bool,
    is_copied: bool,
}

impl Array {
    /// Reads a descriptor. Nothing at `data` is touched.
    ///
    /// # Safety
    /// `shape` and `strides` of `tensor`, where not NULL, are valid for reads of `ndim` numbers.
    ///
    /// # Errors
    /// [`ArrayError`], the first that applies.
    pub unsafe fn read(tensor: &DLTensor, flags: DlpackFlags) -> Result<Self, ArrayError> {
        let ndim = tensor.ndim;
        let rank = usize::try_from(ndim).map_err(|_| ArrayError::NegativeRank { ndim })?;
        if rank > MAX_RANK {
            return Err(ArrayError::Rank { ndim });
        }
        if rank == 0 {
            return Self::checked(tensor, &[], None, flags);
        }
        if tensor.shape.is_null() {
            return Err(ArrayError::NullShape { ndim });
        }
        // SAFETY: the shape is not NULL, and so valid for reads of `rank` numbers.
        let shape = unsafe { slice::from_raw_parts(tensor.shape, rank) };
        // NULL is row-major; from version 1.2 on producers state it, and some do not.
        let strides = (!tensor.strides.is_null()).then(|| {
            // SAFETY: the strides are not NULL, and so valid for reads of `rank` numbers.
            unsafe { slice::from_raw_parts(tensor.strides, rank) }
        });
        Self::checked(tensor, shape, strides, flags)
    }

    fn checked(
        tensor: &DLTensor,
        dimensions: &[i64],
        strides: Option<&[i64]>,
        flags: DlpackFlags,
    ) -> Result<Self, ArrayError> {
        let mut shape = Shape::with_capacity(dimensions.len());
        for (axis, &value) in dimensions.iter().enumerate() {
            let n =
                u64::try_from(value).map_err(|_| ArrayError::NegativeDimension { axis, value })?;
            shape.push(n);
        }
        let is_padded = flags.contains(DlpackFlags::IS_SUBBYTE_TYPE_PADDED);
        let (element_type, storage) = element_type::from_dlpack(tensor.dtype, is_padded)?;
        let width = element_type
            .storage_width()
            .ok_or(UnsupportedElementType::NoCode(element_type))?;
        // Strides of nothing mean nothing (pytorch/pytorch#41182).
        let mut strides = match strides {
            Some(strides) if !shape.contains(&0) => Strides::from_slice(strides),
            _ => row_major_strides(&shape)?,
        };
        if storage == Storage::Pairs {
            (shape, strides) =
                split_pairs(&shape, &strides).ok_or_else(|| ArrayError::StridedPairs {
                    strides: strides.to_vec(),
                })?;
        }
        let mut array = Self {
            element_type,
            width,
            shape,
            strides,
            storage,
            address: 0,
            extent: 0..0,
            offsets: Extent { lo: 0, hi: 0 },
            device: tensor.device,
            is_read_only: flags.contains(DlpackFlags::READ_ONLY),
            is_copied: flags.contains(DlpackFlags::IS_COPIED),
        };
        if let Some(offsets) = strided_extent(&array.shape, &array.strides)? {
            if tensor.data.is_null() {
                return Err(ArrayError::NullData {
                    shape: array.shape.to_vec(),
                });
            }
            // The offset is part of the address (pytorch/pytorch#168177).
            let address = tensor.data.addr() as u128 + u128::from(tensor.byte_offset);
            if array.place_at(address, offsets).is_none() {
                return Err(ArrayError::Extent {
                    shape: array.shape.to_vec(),
                    strides: array.strides.to_vec(),
                    element_type,
                    address,
                });
            }
        }
        Ok(array)
    }

    /// Fills in where the elements lie; `None` where they exceed the address space.
    fn place_at(&mut self, address: u128, offsets: Extent) -> Option<()> {
        let bits = i128::from(self.element_bits());
        let address = i128::try_from(address).ok()?;
        let first = address.checked_add(i128::from(offsets.lo).checked_mul(bits)?.div_euclid(8))?;
        let bits_to_end = i128::from(offsets.hi).checked_add(1)?.checked_mul(bits)?;
        let end = address.checked_add(bits_to_end.checked_add(7)?.div_euclid(8))?;
        let end = usize::try_from(isize::try_from(end).ok()?).ok()?;
        self.address = usize::try_from(address).ok()?;
        self.extent = usize::try_from(first).ok()?..end;
        self.offsets = offsets;
        Some(())
    }

    /// Bits from one element to the next, where they are now.
    fn element_bits(&self) -> u32 {
        match self.storage {
            Storage::BytePerElement => 8,
            Storage::Same | Storage::Pairs => self.width.bits(),
        }
    }

    /// The device that the tensor names.
    #[must_use]
    pub fn device(&self) -> DLDevice {
        self.device
    }

    /// The type of the elements.
    #[must_use]
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The flag IS_COPIED: the producer made this copy and keeps no reference to it.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        self.is_copied
    }

    /// Marks the array read-only, for producers that do not say it of themselves.
    pub fn set_read_only(&mut self) {
        self.is_read_only = true;
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extent.is_empty()
    }

    /// The alignment of the lowest element's address, in bytes, at most 4096.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        measure_alignment(self.extent.start)
    }

    /// Bytes from the lowest to the highest element.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.extent.len()
    }

    /// The layout: row-major or column-major where the strides say so, leaving dimensions of one element out of account (pytorch/pytorch#163274).
    pub(super) fn layout(&self) -> Layout {
        if is_row_major(&self.shape, &self.strides) {
            Layout::RowMajor
        } else if is_column_major(&self.shape, &self.strides) {
            Layout::ColumnMajor
        } else {
            Layout::Strided(self.strides.clone())
        }
    }

    /// Whether the bytes from the lowest to the highest element are no more than the elements need, and lie as they would here.
    pub(super) fn lies_dense(&self) -> bool {
        self.lies_as_here() && self.offsets.element_count() <= element_count(&self.shape)
    }

    /// Whether the elements lie as they would here, if perhaps with gaps.
    pub(super) fn lies_as_here(&self) -> bool {
        self.storage != Storage::BytePerElement && !self.has_part_of_group()
    }

    /// Whether elements of six bits begin or end inside a group of three bytes, which is stored whole here and not in DLPack.
    fn has_part_of_group(&self) -> bool {
        self.width.bits() == 6
            && (self.offsets.lo.rem_euclid(4), self.offsets.hi.rem_euclid(4)) != (0, 3)
    }

    /// Why the elements must be copied to become a tensor's, if they must; `copy` is what the caller asks for.
    #[must_use]
    pub fn copy_reason(&self, copy: Option<bool>) -> Option<CopyReason> {
        if self.is_empty() {
            None
        } else if !self.lies_as_here() {
            Some(CopyReason::Packing)
        } else if copy == Some(true) && !self.is_copied {
            Some(CopyReason::Request)
        } else if !self.extent.start.is_multiple_of(MIN_BUFFER_ALIGNMENT) {
            Some(CopyReason::Alignment)
        } else {
            None
        }
    }
}

/// Shape and strides of the elements of pairs; `None` where pairs do not adjoin.
fn split_pairs(shape: &[u64], strides: &[i64]) -> Option<(Shape, Strides)> {
    let (&last, outer) = shape.split_last()?;
    let (&last_stride, outer_strides) = strides.split_last()?;
    if last_stride != 1 && last > 1 {
        return None;
    }
    let mut shape = Shape::from_slice(outer);
    shape.push(last.checked_mul(2)?);
    let mut strides = outer_strides
        .iter()
        .map(|stride| stride.checked_mul(2))
        .collect::<Option<Strides>>()?;
    strides.push(1);
    Some((shape, strides))
}
