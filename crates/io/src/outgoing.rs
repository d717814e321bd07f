//! What leaves of a tensor: the descriptor that is true of the bytes in a file or stream, and the bytes.

use hurray_core::{
    BufferHandle, DeviceTag, Error, MIN_BUFFER_ALIGNMENT, MemoryClass, SyncMode, TensorDescriptor,
};
use hurray_ffi::access::AccessError;
use hurray_ffi::{Buffer, BufferFlags};
use smallvec::SmallVec;
use thiserror::Error;

use crate::host_bytes::host_bytes;

/// A tensor that cannot leave.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum OutgoingError {
    /// Bytes that may not be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A descriptor that cannot be written.
    #[error(transparent)]
    Descriptor(#[from] Error),
    /// A buffer that another machine could not wait for (ST6).
    #[error(
        "buffer {buffer} is `{mode}`, and what crosses machines is `{}`",
        SyncMode::ProducerSynced
    )]
    SyncMode {
        /// The buffer's index.
        buffer: usize,
        /// Its mode.
        mode: SyncMode,
    },
}

/// The bytes of a tensor's buffers.
pub(crate) type Bytes<'a> = SmallVec<[&'a [u8]; 3]>;

/// The descriptor and the bytes that leave.
///
/// Rows say `cpu`, `standard`, `producer_synced`, and 64 or, empty, 1 (decision 15), so equal tensors leave as equal bytes; and nothing before
/// the first element leaves (decision 19). A declared tensor leaves as it came.
pub(crate) fn outgoing<'a>(
    descriptor: &TensorDescriptor,
    buffers: &'a [Buffer],
) -> Result<(TensorDescriptor, Bytes<'a>), OutgoingError> {
    let mut bytes = Bytes::new();
    for (index, (row, buffer)) in descriptor.buffers.iter().zip(buffers).enumerate() {
        let all = host_bytes(index, row, buffer)?;
        // A tensor's buffer has its row's bytes or more.
        let len = usize::try_from(row.byte_size).unwrap_or(usize::MAX);
        bytes.push(all.get(..len).unwrap_or(all));
    }
    let mut descriptor = descriptor.clone();
    let is_declared = |buffer: &Buffer| buffer.flags().contains(BufferFlags::DECLARED);
    if buffers.iter().any(is_declared) {
        return Ok((descriptor, bytes));
    }
    let unused = bytes_before(&descriptor)?;
    if let Some(first) = bytes.first_mut()
        && unused > 0
    {
        let skipped = usize::try_from(unused).unwrap_or(usize::MAX);
        *first = first.get(skipped..).unwrap_or_default();
        descriptor.byte_offset = descriptor.byte_offset.saturating_sub(unused);
    }
    for (row, bytes) in descriptor.buffers.iter_mut().zip(&bytes) {
        *row = stored_row(bytes);
    }
    Ok((descriptor, bytes))
}

/// The row of a buffer that is these bytes, in a file or stream (decision 15).
pub(crate) fn stored_row(bytes: &[u8]) -> BufferHandle {
    BufferHandle {
        byte_size: bytes.len() as u64,
        alignment: if bytes.is_empty() {
            1
        } else {
            MIN_BUFFER_ALIGNMENT as u32
        },
        device: DeviceTag::Cpu,
        sync_mode: SyncMode::ProducerSynced,
        memory_class: MemoryClass::Standard,
    }
}

/// Bytes of buffer 0 before the lowest element, at most `byte_offset`.
fn bytes_before(descriptor: &TensorDescriptor) -> Result<u64, Error> {
    if descriptor.byte_offset == 0 || !descriptor.layout.is_dense() {
        return Ok(0);
    }
    let width = descriptor.element_width()?;
    let before = match descriptor.layout.extent(&descriptor.shape)? {
        Some(extent) => extent.bytes(width)?.before,
        None => 0,
    };
    Ok(descriptor.byte_offset.saturating_sub(before))
}
