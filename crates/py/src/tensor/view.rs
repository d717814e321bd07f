//! Tensors over the buffers of another: its bytes, its codes, its transpose, its components.

use hurray_core::{BufferHandle, ElementType, Layout, QuantizationScheme, Shape, TensorDescriptor};
use hurray_ffi::access::{self, AccessError, Reach};
use hurray_ffi::{Buffer, Tensor};
use pyo3::exceptions::{PyAttributeError, PyIndexError};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

use crate::cuda::StreamArgument;
use crate::errors::{OrRaise, UnsupportedError};
use crate::handoff;
use crate::owner::detached;

/// A tensor of the first `len` bytes of a buffer, which may not be read yet.
fn over(
    (mut row, buffer): (BufferHandle, &Buffer),
    len: u64,
    element_type: ElementType,
    shape: Shape,
) -> PyResult<Tensor> {
    // A row's length is an address space's at most.
    let slice = buffer.slice(0, len as usize).or_raise()?;
    row.byte_size = len;
    row.alignment = slice.alignment();
    let view = TensorDescriptor::new(element_type, shape, Layout::RowMajor, [row]);
    Tensor::new(view, smallvec![slice]).or_raise()
}

fn row_and_buffer(tensor: &Tensor, index: usize) -> PyResult<(BufferHandle, &Buffer)> {
    match (
        tensor.descriptor().buffers.get(index),
        tensor.buffers().get(index),
    ) {
        (Some(row), Some(buffer)) => Ok((*row, buffer)),
        _ => Err(PyIndexError::new_err(format!("no buffer at index {index}"))),
    }
}

/// The bytes of buffer `index`, for work on the stream that `argument` names, if one is named.
pub(super) fn buffer<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    index: usize,
    argument: Option<StreamArgument<'py>>,
) -> PyResult<Tensor> {
    let (mut row, found) = row_and_buffer(tensor, index)?;
    let shape = smallvec![row.byte_size];
    let view = |row, buffer: &Buffer| over((row, buffer), row.byte_size, ElementType::Uint8, shape);
    let stream = match argument {
        Some(argument) => handoff::stream_for(py, found.place(), argument)?,
        None => {
            let checked = access::check(index, &row, found, Reach::Device);
            return match checked {
                Err(error @ AccessError::NotReady { .. }) => Err(UnsupportedError::new_err(
                    format!("{error}; `buffer({index}, stream=)` orders it on a stream"),
                )),
                checked => checked.or_raise().and_then(|()| view(row, found)),
            };
        }
    };
    let Some(stream) = stream else {
        access::check(index, &row, found, Reach::Ordered).or_raise()?;
        return view(row, found);
    };
    let ordered = detached(py, || found.order(index, &row, &stream)).or_raise()?;
    row.sync_mode = ordered.mode();
    // Where the view fails, which it does not, it lets go attached.
    view(row, &ordered)
}

/// The storage of a quantized tensor, without its scheme.
pub(super) fn codes(tensor: &Tensor) -> PyResult<Tensor> {
    let descriptor = tensor.descriptor();
    let Some(section) = &descriptor.quantization else {
        return Err(PyAttributeError::new_err(
            "'Tensor' object has no attribute 'codes'; it is not quantized",
        ));
    };
    let scheme = section.scheme().or_raise()?;
    // The scheme's buffers come after the layout's.
    let own = descriptor
        .buffers
        .len()
        .saturating_sub(scheme.parameter_buffer_count());
    let view = TensorDescriptor {
        byte_offset: descriptor.byte_offset,
        shard: descriptor.shard.clone(),
        extension_type: descriptor.extension_type,
        ..TensorDescriptor::new(
            descriptor.element_type,
            descriptor.shape.clone(),
            descriptor.layout.clone(),
            descriptor.buffers.iter().take(own).copied(),
        )
    };
    let buffers: SmallVec<[Buffer; 3]> = tensor.buffers().iter().take(own).cloned().collect();
    Tensor::new(view, buffers).or_raise()
}

/// The transpose: all axes reversed.
pub(super) fn transpose(tensor: &Tensor) -> PyResult<Tensor> {
    let descriptor = tensor.descriptor();
    let rank = descriptor.shape.len();
    if rank < 2 {
        return Ok(tensor.clone());
    }
    let layout = match &descriptor.layout {
        Layout::RowMajor => Layout::ColumnMajor,
        Layout::ColumnMajor => Layout::RowMajor,
        Layout::Strided(strides) => Layout::Strided(strides.iter().rev().copied().collect()),
        Layout::Csr { nnz } => Layout::Csc { nnz: *nnz },
        Layout::Csc { nnz } => Layout::Csr { nnz: *nnz },
        other => {
            return Err(UnsupportedError::new_err(format!(
                "the transpose of a {} tensor is no view of its storage; row_major, col_major, strided, csr and csc tensors have one",
                other.name()
            )));
        }
    };
    let quantization = match &descriptor.quantization {
        Some(section) => Some(transposed(section.scheme().or_raise()?, rank)?.encode()),
        None => None,
    };
    let shard = descriptor.shard.clone().map(|mut shard| {
        shard.parent_shape.reverse();
        shard.offset.reverse();
        shard
    });
    let view = TensorDescriptor {
        shape: descriptor.shape.iter().rev().copied().collect(),
        layout,
        quantization,
        shard,
        // N:M sparsity is along the last axis, which is another one now.
        statistics: None,
        member: None,
        ..TensorDescriptor::clone(descriptor)
    };
    Tensor::new(view, SmallVec::from(tensor.buffers())).or_raise()
}

/// `scheme` over reversed axes.
fn transposed(scheme: QuantizationScheme, rank: usize) -> PyResult<QuantizationScheme> {
    match scheme {
        QuantizationScheme::TensorAffine(_) => Ok(scheme),
        QuantizationScheme::ChannelAffine(mut channel) => {
            // The axis of a tensor that exists is less than its rank.
            channel.axis = (rank as u32).saturating_sub(1).saturating_sub(channel.axis);
            Ok(QuantizationScheme::ChannelAffine(channel))
        }
        QuantizationScheme::BlockAffine(_)
        | QuantizationScheme::Nf4(_)
        | QuantizationScheme::Mxfp(_) => Err(UnsupportedError::new_err(
            "the scales of a block-wise scheme have the order of the untransposed elements; codes.T transposes the codes alone",
        )),
    }
}

/// The number of stored elements.
pub(super) fn nnz(descriptor: &TensorDescriptor, attribute: &str) -> PyResult<u64> {
    match &descriptor.layout {
        Layout::Coo(coo) => Ok(coo.nnz),
        Layout::Csr { nnz } | Layout::Csc { nnz } => Ok(*nnz),
        Layout::Csf(csf) => Ok(csf.nnz),
        _ => Err(absent(descriptor, attribute)),
    }
}

fn absent(descriptor: &TensorDescriptor, attribute: &str) -> PyErr {
    PyAttributeError::new_err(format!(
        "'Tensor' object has no attribute '{attribute}'; this is a {} tensor",
        descriptor.layout.name()
    ))
}

/// The stored values.
pub(super) fn values(tensor: &Tensor) -> PyResult<Tensor> {
    let descriptor = tensor.descriptor();
    let nnz = nnz(descriptor, "values")?;
    let quantization = match &descriptor.quantization {
        Some(section) => match section.scheme().or_raise()? {
            QuantizationScheme::TensorAffine(_) => Some(section.clone()),
            _ => {
                return Err(UnsupportedError::new_err(
                    "the stored values of a quantized tensor are codes: codes.values gives them, buffer(i) the scheme's parameters",
                ));
            }
        },
        None => None,
    };
    let (mut row, buffer) = row_and_buffer(tensor, 0)?;
    let width = descriptor.element_width().or_raise()?;
    // The tensor exists, so its buffer has the bytes of `nnz` elements.
    let len = width.byte_size(nnz).unwrap_or(row.byte_size);
    let slice = buffer.slice(0, len as usize).or_raise()?;
    row.byte_size = len;
    row.alignment = slice.alignment();
    let view = TensorDescriptor {
        quantization,
        extension_type: descriptor.extension_type,
        ..TensorDescriptor::new(
            descriptor.element_type,
            Shape::from_slice(&[nnz]),
            Layout::RowMajor,
            [row],
        )
    };
    Tensor::new(view, smallvec![slice]).or_raise()
}

/// A component of uint64 by its name.
pub(super) fn component(tensor: &Tensor, name: &str) -> PyResult<Tensor> {
    let descriptor = tensor.descriptor();
    let extent = |axis: usize| descriptor.shape.get(axis).copied().unwrap_or(0);
    let (index, shape): (usize, Shape) = match (&descriptor.layout, name) {
        (Layout::Coo(coo), "indices") => (1, smallvec![coo.nnz, descriptor.shape.len() as u64]),
        (Layout::Csr { nnz }, "col_indices") | (Layout::Csc { nnz }, "row_indices") => {
            (1, smallvec![*nnz])
        }
        // The tensor exists, so its buffer has one entry more than the dimension has.
        (Layout::Csr { .. }, "row_ptr") => (2, smallvec![extent(0).saturating_add(1)]),
        (Layout::Csc { .. }, "col_ptr") => (2, smallvec![extent(1).saturating_add(1)]),
        _ => return Err(absent(descriptor, name)),
    };
    let len = shape.iter().fold(8_u64, |len, &n| len.saturating_mul(n));
    over(
        row_and_buffer(tensor, index)?,
        len,
        ElementType::Uint64,
        shape,
    )
}
