//! What leaves of a tensor: the descriptor that is true of the bytes in a file or stream, and the bytes.

use std::borrow::Cow;
use std::ops::Range;

use hurray_core::{
    BufferHandle, DeviceTag, Error, MIN_BUFFER_ALIGNMENT, MemoryClass, SyncMode, TensorDescriptor,
};
use hurray_ffi::access::{self, AccessError, Reach};
use hurray_ffi::{Buffer, BufferFlags, device};
use smallvec::SmallVec;
use thiserror::Error;

use crate::host_bytes::host_bytes;
use crate::part::Part;

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

/// The descriptor and the bytes that leave: as the host has them, or, where it may not read them, as a device is to bring them.
///
/// Rows say `cpu`, `standard`, `producer_synced`, and 64 or, empty, 1 (decision 15), so equal tensors leave as equal bytes; and nothing before
/// the first element leaves (decision 19). A declared tensor leaves as it came.
pub(crate) fn outgoing<'a>(
    descriptor: &TensorDescriptor,
    buffers: &'a [Buffer],
) -> Result<(TensorDescriptor, SmallVec<[Part<'a>; 3]>), OutgoingError> {
    let is_declared = |buffer: &Buffer| buffer.flags().contains(BufferFlags::DECLARED);
    let is_relayed = buffers.iter().any(is_declared);
    let unused = if is_relayed {
        0
    } else {
        bytes_before(descriptor)?
    };
    let mut parts = SmallVec::<[Part<'a>; 3]>::new();
    for (index, (row, buffer)) in descriptor.buffers.iter().zip(buffers).enumerate() {
        // A tensor's buffer has its row's bytes or more.
        let begin = if index == 0 { unused } else { 0 };
        parts.push(part(index, row, buffer, begin..row.byte_size)?);
    }
    let mut descriptor = descriptor.clone();
    if !is_relayed {
        descriptor.byte_offset = descriptor.byte_offset.saturating_sub(unused);
        for (row, part) in descriptor.buffers.iter_mut().zip(&parts) {
            *row = stored_row(part.len() as u64);
        }
    }
    Ok((descriptor, parts))
}

/// The bytes of buffer `index` in `range`.
fn part<'a>(
    index: usize,
    row: &BufferHandle,
    buffer: &'a Buffer,
    range: Range<u64>,
) -> Result<Part<'a>, OutgoingError> {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    let refused = match host_bytes(index, row, buffer) {
        Ok(bytes) => return Ok(Part::Host(bytes.get(start..end).unwrap_or_default().into())),
        Err(refused) => refused,
    };
    // A device brings what somebody can wait for, where there is one.
    if let AccessError::Declared { .. } = refused {
        return Err(refused.into());
    }
    access::check(index, row, buffer, Reach::Ordered)?;
    if device::reaching(buffer.place()).is_err() {
        return Err(refused.into());
    }
    Ok(match buffer.slice(start, end.saturating_sub(start)) {
        Ok(buffer) if !buffer.is_empty() => Part::Device {
            index,
            row: *row,
            buffer,
        },
        _ => Part::Host(Cow::Borrowed(&[])),
    })
}

/// The row of a buffer of `byte_size` bytes in a file or stream (decision 15).
#[must_use]
pub fn stored_row(byte_size: u64) -> BufferHandle {
    BufferHandle {
        byte_size,
        alignment: if byte_size == 0 {
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
