//! Tensors of DLPack arrays.

use dlpark::ffi::{DLDevice, DLManagedTensorVersioned, DLTensor};
use dlpark::{DlpackFlags, Managed};
use hurray_core::memory::{AlignedBytes, AllocationError};
use hurray_core::{Layout, MIN_BUFFER_ALIGNMENT, Stream, TensorDescriptor, element_count};
use smallvec::smallvec;
use thiserror::Error;

use super::array::{Array, ArrayError};
use super::element_type::Storage;
use super::export::{ExportError, Options, export};
use crate::gather::{Elements, GatherError, Spacing, gather};
use crate::{
    Buffer, BufferError, BufferFlags, Owner, Place, Readiness, Tensor, TensorError, TransferError,
};

/// A DLPack array of which no tensor can be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Elements that cannot be copied.
    #[error(transparent)]
    Copy(#[from] GatherError),
    /// Memory of which there is no buffer.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A buffer of which there is no tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Elements on a device that must be packed, or have gaps.
    #[error(
        "the elements are on {place} and can't be shared as they lie, and nothing here packs them there: copy the array to the CPU first"
    )]
    Repacking {
        /// Where the bytes are.
        place: Place,
    },
    /// A copy by the device that could not be made.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

/// An array that cannot be allocated.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// A prototype that cannot be.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// Memory of a device.
    #[error(
        "memory of DLPack device ({device_type}, {device_id}) is not allocated here, only the CPU's"
    )]
    Device {
        /// `DLDevice.device_type`.
        device_type: u32,
        /// `DLDevice.device_id`.
        device_id: i32,
    },
    /// No tensor of that shape.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A tensor that does not leave.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// A new row-major array of zeros with the shape, type and device of `prototype`; its data and strides are not looked at.
///
/// # Safety
/// `shape` of `prototype`, where not NULL, is valid for reads of `ndim` numbers.
///
/// # Errors
/// [`AllocateError`].
pub unsafe fn allocate(
    prototype: &DLTensor,
) -> Result<Managed<DLManagedTensorVersioned>, AllocateError> {
    if prototype.device != DLDevice::CPU {
        let (device_type, device_id) = prototype.device.into();
        return Err(AllocateError::Device {
            device_type,
            device_id,
        });
    }
    let placeless = DLTensor {
        // Any address that is not NULL: only the length of the extent is used.
        data: std::ptr::without_provenance_mut(MIN_BUFFER_ALIGNMENT),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
        ..*prototype
    };
    // SAFETY: the caller's word for the shape; there are no strides.
    let array = unsafe { Array::read(&placeless, DlpackFlags::empty()) }?;
    let options = Options {
        in_pairs: array.storage == Storage::Pairs,
        ..Options::default()
    };
    Ok(export(&array.zeros()?, options)?.tensor)
}

impl From<AllocationError> for ImportError {
    fn from(error: AllocationError) -> Self {
        Self::Copy(error.into())
    }
}

impl Array {
    /// A tensor over the array's own bytes, for an array that [needs no copy](Self::copy_reason).
    ///
    /// # Safety
    /// Until `owner` is dropped, the memory from the lowest to the highest element is valid for reads by whatever can reach `place`, and for writes
    /// unless the array is read-only; its writes are complete once `readiness` says so. Of an array without elements nothing is asked, and its owner is
    /// dropped at once.
    ///
    /// # Errors
    /// [`ImportError`]; the owner is dropped.
    pub unsafe fn borrow(
        &self,
        place: Place,
        readiness: Readiness,
        owner: Owner,
    ) -> Result<Tensor, ImportError> {
        if self.is_empty() {
            let mut nothing = AlignedBytes::zeroed(0)?;
            let (address, owner) = (nothing.as_mut_ptr(), Owner::Allocation(nothing));
            // SAFETY: there are no bytes.
            let buffer = unsafe {
                Buffer::from_owner(address, 0, place, Readiness::Ready, self.flags(), owner)
            }?;
            return Ok(self.tensor(buffer, 0, self.layout())?);
        }
        // SAFETY: the caller's word.
        let buffer = unsafe { self.buffer(place, readiness, owner) }?;
        let byte_offset = (self.address - self.extent.start) as u64;
        Ok(self.tensor(buffer, byte_offset, self.layout())?)
    }

    /// A tensor over a copy of the bytes from the lowest to the highest element, which `stream` copies on the device that holds them, and the bytes of the
    /// copy. The array's own memory is kept until that is done.
    ///
    /// # Safety
    /// As [`borrow`](Self::borrow).
    ///
    /// # Errors
    /// [`ImportError`]: elements that would have to be packed, too, which nothing does on a device. The owner is dropped.
    pub unsafe fn copy_there(
        &self,
        place: Place,
        readiness: Readiness,
        owner: Owner,
        stream: &Stream,
    ) -> Result<(Tensor, usize), ImportError> {
        if !self.lies_as_here() {
            return Err(ImportError::Repacking { place });
        }
        // SAFETY: the caller's word.
        let buffer = unsafe { self.buffer(place, readiness, owner) }?;
        let copy = buffer.copy_to(place, Some(stream))?;
        let (len, byte_offset) = (copy.len(), (self.address - self.extent.start) as u64);
        Ok((self.tensor(copy, byte_offset, self.layout())?, len))
    }

    /// The bytes from the lowest to the highest element.
    ///
    /// # Safety
    /// As [`borrow`](Self::borrow).
    unsafe fn buffer(
        &self,
        place: Place,
        readiness: Readiness,
        owner: Owner,
    ) -> Result<Buffer, BufferError> {
        let address = std::ptr::with_exposed_provenance_mut(self.extent.start);
        let len = self.extent.len();
        // SAFETY: the caller's word for memory, owner and writes.
        unsafe { Buffer::from_owner(address, len, place, readiness, self.flags(), owner) }
    }

    fn flags(&self) -> BufferFlags {
        if self.is_read_only {
            BufferFlags::READ_ONLY
        } else {
            BufferFlags::empty()
        }
    }

    /// A tensor over a copy of the elements in host memory, and the bytes of the copy. The strides stay where the copy need not be larger for it:
    /// transposed, reversed and broadcast arrays are copied as they lie.
    ///
    /// # Safety
    /// The memory from the lowest to the highest element is the host's, valid for reads, and nothing writes to it during the call.
    ///
    /// # Errors
    /// [`ImportError`].
    pub unsafe fn copy(&self) -> Result<(Tensor, usize), ImportError> {
        let source = std::ptr::with_exposed_provenance::<u8>(self.extent.start);
        let len = self.extent.len();
        let (bytes, byte_offset, layout) = if self.lies_dense() {
            // SAFETY: the caller's word.
            let bytes = unsafe { AlignedBytes::copy_from_ptr(source, len) }?;
            let byte_offset = (self.address - self.extent.start) as u64;
            (bytes, byte_offset, self.layout())
        } else {
            let bytes = if len == 0 {
                &[]
            } else {
                // SAFETY: the caller's word; the extent was checked to be no longer than `isize::MAX`.
                unsafe { std::slice::from_raw_parts(source, len) }
            };
            let elements = Elements {
                bytes,
                origin: (self.address - self.extent.start) as u64,
                shape: &self.shape,
                strides: &self.strides,
                width: self.width,
                spacing: match self.storage {
                    Storage::BytePerElement => Spacing::BytePerElement,
                    Storage::Same | Storage::Pairs => Spacing::Packed,
                },
            };
            (gather(&elements, Spacing::Packed)?, 0, Layout::RowMajor)
        };
        let len = bytes.len();
        Ok((self.tensor(Buffer::from(bytes), byte_offset, layout)?, len))
    }

    /// A row-major tensor of zeros of this shape and type.
    fn zeros(&self) -> Result<Tensor, ImportError> {
        let len = element_count(&self.shape)
            .and_then(|count| usize::try_from(self.width.byte_size(count)?).ok())
            .ok_or(GatherError::TooLarge)?;
        let buffer = Buffer::from(AlignedBytes::zeroed(len)?);
        Ok(self.tensor(buffer, 0, Layout::RowMajor)?)
    }

    fn tensor(
        &self,
        buffer: Buffer,
        byte_offset: u64,
        layout: Layout,
    ) -> Result<Tensor, TensorError> {
        let descriptor = TensorDescriptor {
            byte_offset,
            ..TensorDescriptor::new(
                self.element_type,
                self.shape.clone(),
                layout,
                [buffer.handle()],
            )
        };
        Tensor::new(descriptor, smallvec![buffer])
    }
}
