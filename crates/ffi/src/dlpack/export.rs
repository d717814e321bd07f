//! Tensors out, as DLPack's managed tensors: one allocation each, which holds the buffer's owner and nothing of Python.

use std::ffi::c_void;
use std::sync::Arc;

use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use hurray_core::{
    DYNAMIC, ElementType, Layout, LayoutError, Shape, Strides, column_major_strides, is_row_major,
    row_major_strides,
};
use thiserror::Error;

use super::CopyReason;
use super::device::{self, UnsupportedDevice};
use super::element_type::{self, Storage, UnsupportedElementType};
use crate::access::{AccessError, Reach};
use crate::gather::{Elements, GatherError, Spacing, gather};
use crate::{Buffer, BufferFlags, Owner, Place, Tensor};

/// A tensor that does not leave through DLPack. Nothing has happened.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Codes are not values (decision 16).
    #[error(
        "a quantized tensor does not leave through DLPack as if its codes were values: `codes` is the unquantized view of them, `buffer(i)` \
         gives each buffer"
    )]
    Quantized,
    /// A layout without strides.
    #[error(
        "a {layout} tensor does not leave through DLPack, which knows strides only: `buffer(i)` gives each buffer"
    )]
    Layout {
        /// The layout's name.
        layout: &'static str,
    },
    /// A dimension that is not known yet.
    #[error("dimension {axis} is dynamic, and DLPack knows no such dimension")]
    Dynamic {
        /// Which one.
        axis: usize,
    },
    /// An empty tensor whose dimensions or strides DLPack cannot state.
    #[error("the dimensions or strides of shape {shape:?} exceed 63 bits")]
    Dimension {
        /// The shape.
        shape: Vec<u64>,
    },
    /// No DLPack type.
    #[error(transparent)]
    ElementType(#[from] UnsupportedElementType),
    /// No DLPack device.
    #[error(transparent)]
    Device(#[from] UnsupportedDevice),
    /// A device other than the bytes', which would have to move.
    #[error(
        "the bytes are on {place}, and DLPack device ({device_type}, {device_id}) was asked for: nothing here moves them"
    )]
    OtherDevice {
        /// Where the bytes are.
        place: Place,
        /// `dl_device[0]`.
        device_type: u32,
        /// `dl_device[1]`.
        device_id: i32,
    },
    /// Bytes that are not given out.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Negative strides without leave to copy (decision 21).
    #[error(
        "strides {strides:?} are negative, which DLPack's consumers do not expect: `copy=True` packs the elements"
    )]
    NegativeStrides {
        /// The strides, in elements.
        strides: Vec<i64>,
    },
    /// One bit here, one byte there, and no leave to copy (decision 18).
    #[error(
        "{element_type} elements are packed here and one byte each in DLPack: unpacking them is a copy, which `copy=False` forbids"
    )]
    UnpackingForbidden {
        /// The type.
        element_type: ElementType,
    },
    /// Read-only bytes for a consumer that cannot be told (numpy/numpy#20742).
    #[error(
        "the buffer is read-only, which a DLPack capsule before version 1.0 cannot say: ask with `max_version=(1, 0)`, or for `copy=True`"
    )]
    ReadOnly,
    /// Elements that do not pair (dmlc/dlpack#158).
    #[error(
        "elements leave in pairs only where the last dimension is even and dense, not with shape {shape:?} and strides {strides:?}"
    )]
    Pairs {
        /// The shape.
        shape: Vec<u64>,
        /// The strides, in elements.
        strides: Vec<i64>,
    },
    /// Strides that cannot be stated.
    #[error(transparent)]
    Strides(#[from] LayoutError),
    /// A copy that was needed and could not be made.
    #[error(transparent)]
    Copy(#[from] GatherError),
    /// No memory for the managed tensor.
    #[error("a managed tensor of {rank} dimensions cannot be allocated")]
    Allocation {
        /// Dimensions.
        rank: usize,
    },
}

/// What the consumer asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Always, never, or only where it must be.
    pub copy: Option<bool>,
    /// The device on which the consumer wants the array; the bytes' own if `None`.
    pub device: Option<DLDevice>,
    /// Whether `float4_e2m1` leaves in two lanes, as torch has it, rather than one (dmlc/dlpack#158).
    pub in_pairs: bool,
}

/// One of the two managed tensors.
pub trait Abi: ManagedTensorBase + 'static {
    /// Whether it has flags.
    const HAS_FLAGS: bool;
}

impl Abi for DLManagedTensor {
    const HAS_FLAGS: bool = false;
}

impl Abi for DLManagedTensorVersioned {
    const HAS_FLAGS: bool = true;
}

/// A tensor ready to leave.
pub struct Exported<M: ManagedTensorBase> {
    /// Owns the bytes.
    pub tensor: Managed<M>,
    /// Bytes that were copied, and why.
    pub copied: Option<(usize, CopyReason)>,
}

/// `tensor` as a managed tensor. The flag IS_COPIED is set exactly when the elements were copied, READ_ONLY when the buffer is read-only
/// and they were not.
///
/// # Errors
/// [`ExportError`].
pub fn export<M: Abi>(tensor: &Tensor, options: Options) -> Result<Exported<M>, ExportError> {
    let plan = Plan::of(tensor, options)?;
    let is_read_only = plan.buffer.flags().contains(BufferFlags::READ_ONLY);
    if let Some(reason) = plan.copy {
        let bytes = plan.gathered()?;
        let len = bytes.len();
        let tensor = plan.managed(
            &Buffer::from(bytes),
            0,
            Order::RowMajor,
            DlpackFlags::IS_COPIED,
        )?;
        return Ok(Exported {
            tensor,
            copied: Some((len, reason)),
        });
    }
    if is_read_only && !M::HAS_FLAGS {
        return Err(ExportError::ReadOnly);
    }
    let flags = if is_read_only {
        DlpackFlags::READ_ONLY
    } else {
        DlpackFlags::empty()
    };
    let byte_offset = tensor.descriptor().byte_offset;
    Ok(Exported {
        tensor: plan.managed(plan.buffer, byte_offset, plan.order, flags)?,
        copied: None,
    })
}

/// What `__dlpack_device__` answers.
///
/// # Errors
/// [`ExportError`] for a tensor that could not leave at all.
pub fn announced_device(tensor: &Tensor) -> Result<DLDevice, ExportError> {
    let buffer = plain(tensor)?;
    Ok(device::announced(buffer.place())?)
}

/// The device that a capsule of `tensor` names, for a consumer that wants the array on `wanted`.
///
/// # Errors
/// [`ExportError`] for a tensor that could not leave at all, or not without moving.
pub fn capsule_device(tensor: &Tensor, wanted: Option<DLDevice>) -> Result<DLDevice, ExportError> {
    let place = plain(tensor)?.place();
    let announced = device::announced(place)?;
    let Some(wanted) = wanted else {
        return Ok(device::in_capsule(announced));
    };
    device::as_wanted(place, announced, wanted).ok_or(ExportError::OtherDevice {
        place,
        device_type: wanted.device_type.0,
        device_id: wanted.device_id,
    })
}

/// The one buffer of a tensor that strides describe and whose elements are values.
fn plain(tensor: &Tensor) -> Result<&Buffer, ExportError> {
    let descriptor = tensor.descriptor();
    if descriptor.quantization.is_some() {
        return Err(ExportError::Quantized);
    }
    let layout = match &descriptor.layout {
        Layout::RowMajor | Layout::ColumnMajor | Layout::Strided(_) => match tensor.buffers() {
            [buffer] => return Ok(buffer),
            _ => "dense",
        },
        Layout::Tiled(_) => "tiled",
        Layout::Morton(_) => "Morton",
        Layout::Coo(_) => "COO",
        Layout::Csr { .. } => "CSR",
        Layout::Csc { .. } => "CSC",
        Layout::Csf(_) => "CSF",
        Layout::BlockPaged(_) => "block-paged",
        Layout::Composite(_) => "composite",
        Layout::Hilbert(_) => "Hilbert",
        Layout::Private(_) => "private-layout",
    };
    Err(ExportError::Layout { layout })
}

/// The order of the elements, as far as consumers are told.
#[derive(Clone, Copy)]
enum Order<'a> {
    RowMajor,
    ColumnMajor,
    Strided(&'a [i64]),
}

impl<'a> Order<'a> {
    /// Row-major wherever it can be: dimensions of one element and empty arrays may state any stride, and consumers like one only
    /// (pytorch/pytorch#163274, pytorch/pytorch#41182).
    fn of(layout: &'a Layout, shape: &[u64]) -> Result<Self, LayoutError> {
        Ok(match layout {
            Layout::ColumnMajor if is_row_major(shape, &column_major_strides(shape)?) => {
                Self::RowMajor
            }
            Layout::ColumnMajor => Self::ColumnMajor,
            Layout::Strided(strides) if !is_row_major(shape, strides) => Self::Strided(strides),
            _ => Self::RowMajor,
        })
    }

    /// In elements.
    fn strides(self, shape: &[u64]) -> Result<Strides, LayoutError> {
        match self {
            Self::RowMajor => row_major_strides(shape),
            Self::ColumnMajor => column_major_strides(shape),
            Self::Strided(strides) => Ok(Strides::from_slice(strides)),
        }
    }
}

/// An export that has passed every check.
struct Plan<'a> {
    tensor: &'a Tensor,
    buffer: &'a Buffer,
    shape: &'a Shape,
    order: Order<'a>,
    device: DLDevice,
    dtype: dlpark::ffi::DLDataType,
    storage: Storage,
    copy: Option<CopyReason>,
}

impl<'a> Plan<'a> {
    fn of(tensor: &'a Tensor, options: Options) -> Result<Self, ExportError> {
        let descriptor = tensor.descriptor();
        let buffer = plain(tensor)?;
        let shape = &descriptor.shape;
        if let Some(axis) = shape.iter().position(|&n| n == DYNAMIC) {
            return Err(ExportError::Dynamic { axis });
        }
        let (mut dtype, storage) = element_type::to_dlpack(descriptor.element_type)?;
        let device = capsule_device(tensor, options.device)?;
        let order = Order::of(&descriptor.layout, shape)?;
        let copy = if storage == Storage::BytePerElement {
            Some(CopyReason::Packing)
        } else if options.copy == Some(true) {
            Some(CopyReason::Request)
        } else {
            None
        };
        if copy == Some(CopyReason::Packing) && options.copy == Some(false) {
            return Err(ExportError::UnpackingForbidden {
                element_type: descriptor.element_type,
            });
        }
        if let (None, Order::Strided(strides)) = (copy, order)
            && strides.iter().any(|&stride| stride < 0)
        {
            return Err(ExportError::NegativeStrides {
                strides: strides.to_vec(),
            });
        }
        let reach = if copy.is_some() || device == DLDevice::CPU {
            Reach::Host
        } else {
            Reach::Device
        };
        tensor.check_access(reach)?;
        if options.in_pairs {
            dtype = element_type::in_pairs(descriptor.element_type, dtype)?;
        }
        Ok(Self {
            tensor,
            buffer,
            shape,
            order,
            device,
            dtype,
            storage,
            copy,
        })
    }

    /// The elements in row-major order, as DLPack stores them.
    fn gathered(&self) -> Result<hurray_core::memory::AlignedBytes, ExportError> {
        let descriptor = self.tensor.descriptor();
        let width = descriptor
            .element_type
            .storage_width()
            .ok_or(UnsupportedElementType::NoCode(descriptor.element_type))?;
        let bytes = match self.buffer.len() {
            0 => &[],
            len => {
                // SAFETY: the buffer has `len` bytes at its address for as long as it lives, `check_access` found them complete and in the
                // host's reach, and by `Buffer::from_owner` nobody writes to them meanwhile but through the address.
                unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().cast_const(), len) }
            }
        };
        let strides = self.order.strides(self.shape)?;
        let elements = Elements {
            bytes,
            origin: descriptor.byte_offset,
            shape: self.shape,
            strides: &strides,
            width,
            spacing: Spacing::Packed,
        };
        let target = match self.storage {
            Storage::BytePerElement => Spacing::BytePerElement,
            Storage::Same | Storage::Pairs => Spacing::Packed,
        };
        Ok(gather(&elements, target)?)
    }

    /// The managed tensor of elements that begin `byte_offset` bytes into `buffer`.
    fn managed<M: Abi>(
        &self,
        buffer: &Buffer,
        byte_offset: u64,
        order: Order<'_>,
        flags: DlpackFlags,
    ) -> Result<Managed<M>, ExportError> {
        let shape = self.shape.as_slice();
        let prepared = if self.dtype.lanes == 2 {
            let (shape, strides) = in_pairs(shape, &order.strides(shape)?)?;
            Dynamic::new(shape.as_slice(), strides.as_slice()).prepare_as::<M>()
        } else {
            match order {
                Order::RowMajor => Dynamic::compact(shape).prepare_as::<M>(),
                Order::ColumnMajor => {
                    let strides = column_major_strides(shape)?;
                    Dynamic::new(shape, strides.as_slice()).prepare_as::<M>()
                }
                Order::Strided(strides) => Dynamic::new(shape, strides).prepare_as::<M>(),
            }
        }
        .map_err(|error| match error {
            dlpark::metadata::Error::Allocation { .. } => {
                ExportError::Allocation { rank: shape.len() }
            }
            _ => ExportError::Dimension {
                shape: shape.to_vec(),
            },
        })?;
        let owner: Arc<Owner> = buffer.shared_owner();
        let mut initialized = prepared.initialize(owner);
        let is_empty = shape.contains(&0);
        let (data, byte_offset) = match self.device.device_type {
            _ if is_empty => (std::ptr::null_mut(), 0),
            // Consumers ignore the offset, so it goes into the address where that is one (pytorch/pytorch#168177).
            DLDeviceType::CPU
            | DLDeviceType::CUDA
            | DLDeviceType::CUDAMANAGED
            | DLDeviceType::ROCM => {
                let offset = usize::try_from(byte_offset).unwrap_or(0);
                (buffer.as_ptr().wrapping_add(offset).cast::<c_void>(), 0)
            }
            _ => (buffer.as_ptr().cast::<c_void>(), byte_offset),
        };
        initialized
            .set_data(data)
            .set_device(self.device)
            .set_dtype(self.dtype)
            .set_byte_offset(byte_offset);
        // SAFETY: IS_COPIED comes with a buffer made for this export alone, READ_ONLY with a buffer that is; nothing here pads elements.
        unsafe { initialized.set_flags_unchecked(flags) };
        // SAFETY: the tensor's checks hold of shape, strides and offset, so every element lies in the buffer's bytes; the context is their
        // owner, which lives until the deleter; shape and strides lie in the allocation.
        Ok(unsafe { initialized.finish() })
    }
}

/// Shape and strides of elements counted in pairs.
fn in_pairs(shape: &[u64], strides: &Strides) -> Result<(Shape, Strides), ExportError> {
    let (mut halves, mut half_strides) = (Shape::from_slice(shape), strides.clone());
    let is_dense = match (halves.last_mut(), half_strides.last_mut()) {
        (Some(n), Some(stride)) => {
            let is_dense = *n % 2 == 0 && (*stride == 1 || *n == 0);
            *n /= 2;
            // Two, so that every stride is halved alike.
            *stride = 2;
            is_dense
        }
        _ => false,
    };
    if !is_dense || half_strides.iter().any(|stride| stride % 2 != 0) {
        return Err(ExportError::Pairs {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
        });
    }
    for stride in &mut half_strides {
        *stride /= 2;
    }
    Ok((halves, half_strides))
}
