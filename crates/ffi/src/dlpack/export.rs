//! Tensors out, as DLPack's managed tensors: one allocation each, which holds the buffer's owner and nothing of Python.

use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::Arc;

use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use hurray_core::{
    DYNAMIC, ElementType, Layout, LayoutError, Shape, Stream, Strides, SyncMode,
    column_major_strides, is_row_major, row_major_strides,
};
use smallvec::{SmallVec, smallvec};
use thiserror::Error;

use super::device::{self, UnsupportedDevice};
use super::element_type::{self, Storage, UnsupportedElementType};
use super::{Copied, CopyReason};
use crate::access::{self, AccessError, Reach};
use crate::gather::{Elements, GatherError, Spacing, gather};
use crate::{Buffer, BufferFlags, OrderError, Owner, Place, Tensor, TransferError};

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
        "the bytes are on {place}, and DLPack device ({device_type}, {device_id}) was asked for: `.to(device)` moves them"
    )]
    OtherDevice {
        /// Where the bytes are.
        place: Place,
        /// `dl_device[0]`.
        device_type: u32,
        /// `dl_device[1]`.
        device_id: i32,
    },
    /// Bytes of a device for the CPU, without leave to copy.
    #[error(
        "the bytes are on {place}, and to be had on the CPU they are copied, which `copy=False` forbids"
    )]
    MoveForbidden {
        /// Where the bytes are.
        place: Place,
    },
    /// Elements on a device that must be put into another order or spacing.
    #[error(
        "the elements are on {place}, where nothing here packs, unpacks or reverses them: `.to(\"cpu\")` copies the tensor first"
    )]
    Repacking {
        /// Where the bytes are.
        place: Place,
    },
    /// Bytes that are not given out.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Bytes that could not be brought onto the consumer's stream, or waited for.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A copy by a device that could not be made.
    #[error(transparent)]
    Transfer(#[from] TransferError),
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
pub struct Options<'s> {
    /// Always, never, or only where it must be.
    pub copy: Option<bool>,
    /// The device on which the consumer wants the array; the bytes' own if `None`.
    pub device: Option<DLDevice>,
    /// Whether `float4_e2m1` leaves in two lanes, as torch has it, rather than one (dmlc/dlpack#158).
    pub in_pairs: bool,
    /// The stream on which the bytes of a device are handed out, or copied; without one they must be ready, and stay where they are.
    pub stream: Option<&'s Stream>,
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
    /// What was copied for it.
    pub copies: SmallVec<[Copied; 1]>,
}

/// `tensor` as a managed tensor. The flag IS_COPIED is set exactly when the elements were copied, READ_ONLY when the buffer is read-only
/// and they were not. A capsule that says CPU waits on the host until the bytes are ready; any other is ordered on the options' stream, on which the
/// bytes are out until the managed tensor is released. Everything is checked before the driver is called.
///
/// # Errors
/// [`ExportError`].
pub fn export<M: Abi>(tensor: &Tensor, options: Options<'_>) -> Result<Exported<M>, ExportError> {
    let plan = Plan::of(tensor, options)?;
    let is_read_only = plan.buffer.flags().contains(BufferFlags::READ_ONLY);
    let from = plan.buffer.place();
    let copied = |bytes, to, reason| Copied {
        bytes,
        from,
        to,
        reason,
    };
    match plan.way {
        Way::Share => {
            if is_read_only && !M::HAS_FLAGS {
                return Err(ExportError::ReadOnly);
            }
            let flags = if is_read_only {
                DlpackFlags::READ_ONLY
            } else {
                DlpackFlags::empty()
            };
            let handed_out = plan.handed_out(options.stream)?;
            let byte_offset = tensor.descriptor().byte_offset;
            Ok(Exported {
                tensor: plan.managed(&handed_out, byte_offset, plan.order, flags)?,
                copies: SmallVec::new(),
            })
        }
        Way::Gather(reason) => {
            let ready = plan.handed_out(None)?;
            let bytes = plan.gathered(&ready)?;
            let copies = smallvec![copied(bytes.len(), Place::HOST, reason)];
            let flags = DlpackFlags::IS_COPIED;
            Ok(Exported {
                tensor: plan.managed(&Buffer::from(bytes), 0, Order::RowMajor, flags)?,
                copies,
            })
        }
        Way::CopyThere => {
            let copy = plan.buffer.copy_to(from, options.stream)?;
            let copies = smallvec![copied(copy.len(), from, CopyReason::Request)];
            let handed_out = plan.on(&copy, options.stream)?;
            let byte_offset = tensor.descriptor().byte_offset;
            let flags = DlpackFlags::IS_COPIED;
            Ok(Exported {
                tensor: plan.managed(&handed_out, byte_offset, plan.order, flags)?,
                copies,
            })
        }
        Way::Move { repacks } => {
            let host = tensor.copy_to(Place::HOST, options.stream)?;
            let bytes = host.buffers().iter().map(Buffer::len).sum();
            let options = Options {
                copy: repacks.then_some(true),
                in_pairs: options.in_pairs,
                ..Options::default()
            };
            let mut exported = export_copied::<M>(&host, options)?;
            exported
                .copies
                .insert(0, copied(bytes, Place::HOST, CopyReason::Device));
            Ok(exported)
        }
    }
}

/// [`export`] of host memory that was copied for the consumer.
fn export_copied<M: Abi>(host: &Tensor, options: Options<'_>) -> Result<Exported<M>, ExportError> {
    let plan = Plan::of(host, options)?;
    match plan.way {
        Way::Share => {
            let byte_offset = host.descriptor().byte_offset;
            let flags = DlpackFlags::IS_COPIED;
            Ok(Exported {
                tensor: plan.managed(plan.buffer, byte_offset, plan.order, flags)?,
                copies: SmallVec::new(),
            })
        }
        _ => export(host, options),
    }
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
    // What a device layer copies can be had on the CPU.
    let moves = wanted == DLDevice::CPU && crate::device::layer(place.device).is_some();
    device::as_wanted(place, announced, wanted)
        .or(moves.then_some(DLDevice::CPU))
        .ok_or(ExportError::OtherDevice {
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

/// How the bytes get to the consumer.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Where they are.
    Share,
    /// In a row-major copy that the host makes.
    Gather(CopyReason),
    /// In a copy that a device makes, of all bytes as they lie.
    CopyThere,
    /// In a copy in host memory, and a row-major one of that where elements must be unpacked or reversed.
    Move { repacks: bool },
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
    way: Way,
}

impl<'a> Plan<'a> {
    fn of(tensor: &'a Tensor, options: Options<'_>) -> Result<Self, ExportError> {
        let descriptor = tensor.descriptor();
        let buffer = plain(tensor)?;
        let shape = &descriptor.shape;
        if let Some(axis) = shape.iter().position(|&n| n == DYNAMIC) {
            return Err(ExportError::Dynamic { axis });
        }
        let (mut dtype, storage) = element_type::to_dlpack(descriptor.element_type)?;
        let place = buffer.place();
        let device = capsule_device(tensor, options.device)?;
        let order = Order::of(&descriptor.layout, shape)?;
        let unpacks = storage == Storage::BytePerElement;
        if unpacks && options.copy == Some(false) {
            return Err(ExportError::UnpackingForbidden {
                element_type: descriptor.element_type,
            });
        }
        let negative = match order {
            Order::Strided(strides) if strides.iter().any(|&stride| stride < 0) => Some(strides),
            _ => None,
        };
        let way = if device == DLDevice::CPU && !place.is_host_accessible() {
            if options.copy == Some(false) {
                return Err(ExportError::MoveForbidden { place });
            }
            Way::Move {
                repacks: unpacks || negative.is_some(),
            }
        } else if !unpacks && options.copy != Some(true) {
            Way::Share
        } else if device != DLDevice::CPU {
            if unpacks || negative.is_some() {
                return Err(ExportError::Repacking { place });
            }
            Way::CopyThere
        } else if unpacks {
            Way::Gather(CopyReason::Packing)
        } else {
            Way::Gather(CopyReason::Request)
        };
        if let (Way::Share, Some(strides)) = (way, negative) {
            return Err(ExportError::NegativeStrides {
                strides: strides.to_vec(),
            });
        }
        let waits = device == DLDevice::CPU && place.is_host_accessible();
        tensor.check_access(if waits || options.stream.is_some() {
            Reach::Ordered
        } else {
            Reach::Device
        })?;
        if let (Some(stream), false) = (options.stream, way == Way::Share && waits) {
            access::check_stream(buffer, stream).map_err(OrderError::from)?;
        }
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
            way,
        })
    }

    /// The buffer as this capsule's consumer may use it: ready, where that expects memory of the CPU, else on its stream.
    fn handed_out(&self, stream: Option<&Stream>) -> Result<Cow<'a, Buffer>, ExportError> {
        let is_ready = self.buffer.mode() == SyncMode::ProducerSynced;
        if self.device != DLDevice::CPU {
            self.on(self.buffer, stream)
        } else if is_ready {
            Ok(Cow::Borrowed(self.buffer))
        } else {
            let ready = self.tensor.synchronize()?;
            // A plain tensor has one.
            Ok(ready
                .buffers()
                .first()
                .map_or(Cow::Borrowed(self.buffer), |ready| {
                    Cow::Owned(ready.clone())
                }))
        }
    }

    /// A buffer of this export on the consumer's stream, if that has one.
    fn on<'b>(
        &self,
        buffer: &'b Buffer,
        stream: Option<&Stream>,
    ) -> Result<Cow<'b, Buffer>, ExportError> {
        Ok(match stream {
            Some(stream) => Cow::Owned(buffer.order(0, &buffer.handle(), stream)?),
            None => Cow::Borrowed(buffer),
        })
    }

    /// The elements in `buffer`, which is this export's and ready, in row-major order and as DLPack stores them.
    fn gathered(&self, buffer: &Buffer) -> Result<hurray_core::memory::AlignedBytes, ExportError> {
        let descriptor = self.tensor.descriptor();
        let width = descriptor
            .element_type
            .storage_width()
            .ok_or(UnsupportedElementType::NoCode(descriptor.element_type))?;
        let bytes = match buffer.len() {
            0 => &[],
            len => {
                // SAFETY: the buffer has `len` bytes at its address for as long as it lives, the plan found them in the host's reach and the caller
                // complete, and by `Buffer::from_owner` nobody writes to them meanwhile but through the address.
                unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast_const(), len) }
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
