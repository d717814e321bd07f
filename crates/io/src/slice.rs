//! A part of a dense tensor along its first axis, which has bytes of its own in the tensor's.

use std::ops::Range;

use hurray_core::{
    Layout, LayoutError, MIN_BUFFER_ALIGNMENT, StorageWidth, TensorDescriptor,
    column_major_strides, row_major_strides, strided_extent,
};
use thiserror::Error;

/// A part of a tensor that cannot be had without the rest.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SliceError {
    /// Elements that do not follow from strides.
    #[error("a {layout} tensor has no slices; row_major, col_major and strided ones have")]
    Layout {
        /// The layout's name.
        layout: &'static str,
    },
    /// Codes, whose scheme is one of the whole tensor.
    #[error("a quantized tensor has no slices")]
    Quantized,
    /// No first axis.
    #[error("a scalar has no slices")]
    Scalar,
    /// Indices that the first axis does not have.
    #[error("{start}..{end} does not lie in a first axis of {len}")]
    Range {
        /// The first index.
        start: u64,
        /// The index after the last one.
        end: u64,
        /// Indices of the axis.
        len: u64,
    },
    /// Packed elements that begin inside a byte.
    #[error(
        "index {start} of the first axis does not begin on a byte, with elements of {bits} bits"
    )]
    Packed {
        /// The first index.
        start: u64,
        /// Bits of an element.
        bits: u32,
    },
    /// A descriptor that is wrong in itself.
    #[error(transparent)]
    Descriptor(#[from] hurray_core::Error),
}

/// The descriptor of `rows` of the first axis, and the bytes of buffer 0 that it is for.
///
/// The bytes begin on a multiple of 64 (decision 19). What is known of the values of the whole tensor is not known of a part.
pub(crate) fn slice(
    descriptor: &TensorDescriptor,
    rows: &Range<u64>,
) -> Result<(TensorDescriptor, Range<u64>), SliceError> {
    descriptor.validate()?;
    if descriptor.quantization.is_some() {
        return Err(SliceError::Quantized);
    }
    let shape = &descriptor.shape;
    let (strides, row) = match (&descriptor.layout, descriptor.buffers.as_slice()) {
        (Layout::RowMajor, [row]) => (row_major_strides(shape), row),
        (Layout::ColumnMajor, [row]) => (column_major_strides(shape), row),
        (Layout::Strided(strides), [row]) => (Ok(strides.clone()), row),
        (layout, _) => {
            return Err(SliceError::Layout {
                layout: layout.name(),
            });
        }
    };
    let strides = strides.map_err(hurray_core::Error::from)?;
    let (Some(&len), Some(&stride)) = (shape.first(), strides.first()) else {
        return Err(SliceError::Scalar);
    };
    let &Range { start, end } = rows;
    if start > end || end > len {
        return Err(SliceError::Range { start, end, len });
    }
    let width = descriptor
        .element_width()
        .map_err(hurray_core::Error::from)?;

    let mut part = TensorDescriptor {
        statistics: None,
        member: None,
        skipped: Vec::new(),
        ..descriptor.clone()
    };
    if let Some(len) = part.shape.first_mut() {
        *len = end.saturating_sub(start);
    }
    if let Some(shard) = &mut part.shard
        && let Some(offset) = shard.offset.first_mut()
    {
        *offset = offset.saturating_add(start);
    }
    let bytes = match strided_extent(&part.shape, &strides).map_err(hurray_core::Error::from)? {
        None => {
            part.byte_offset = 0;
            0..0
        }
        Some(extent) => {
            let overflow = || hurray_core::Error::from(LayoutError::ExtentOverflow);
            let skipped = first_byte(start, stride, width)?;
            let first = i128::from(descriptor.byte_offset).saturating_add(skipped);
            let first = u64::try_from(first).map_err(|_| overflow())?;
            let extent = extent.bytes(width).map_err(hurray_core::Error::from)?;
            let low = first.checked_sub(extent.before).ok_or_else(overflow)?;
            let high = first.checked_add(extent.after).ok_or_else(overflow)?;
            let begin = low & !(MIN_BUFFER_ALIGNMENT as u64).saturating_sub(1);
            part.byte_offset = first.saturating_sub(begin);
            // The whole tensor's elements lie in the buffer; were one of these outside, the buffer would be too small for its row.
            begin..high.min(row.byte_size)
        }
    };
    if part.layout == Layout::ColumnMajor {
        part.layout = Layout::Strided(strides);
    }
    if let Some(row) = part.buffers.first_mut() {
        row.byte_size = bytes.end.saturating_sub(bytes.start);
    }
    Ok((part, bytes))
}

/// Bytes from element `[0, …]` to element `[start, 0, …]`.
fn first_byte(start: u64, stride: i64, width: StorageWidth) -> Result<i128, SliceError> {
    let offset = i128::from(start).saturating_mul(stride.into());
    let offset =
        i64::try_from(offset).map_err(|_| hurray_core::Error::from(LayoutError::ExtentOverflow))?;
    let position = width.position(offset);
    if position.bit_shift != 0 {
        return Err(SliceError::Packed {
            start,
            bits: width.bits(),
        });
    }
    Ok(position.byte)
}
