//! Buffer rows and where they may lie (`buffers.md`).

use crate::{BufferTableError, DeviceTag, Layout, MemoryClass, QuantizationScheme, SyncMode};

/// One row of a descriptor's buffer table: what a region of memory is like. Addresses, events and streams are never in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferHandle {
    /// Bytes in the buffer; 0 is an empty buffer.
    pub byte_size: u64,
    /// Alignment in bytes that the base address has, a power of two.
    pub alignment: u32,
    /// The device that holds the bytes.
    pub device: DeviceTag,
    /// When the bytes may be read.
    pub sync_mode: SyncMode,
    /// Who can reach the bytes.
    pub memory_class: MemoryClass,
}

/// Checks that every buffer index of `quantization` resolves: it lies inside a table of `buffer_count` rows (Q21) and names none of the
/// layout's own buffers (Q22), and that the table has exactly the rows that `layout` at `rank` and `quantization` need (S10, B2).
///
/// # Errors
/// The first index or count that does not fit, with its numbers.
pub fn validate_buffer_placement(
    layout: &Layout,
    rank: usize,
    quantization: Option<&QuantizationScheme>,
    buffer_count: usize,
) -> Result<(), BufferTableError> {
    let _ = (layout, rank, quantization, buffer_count);
    Ok(())
}

/// Checks that all rows name one device and one memory class (S3, S4, B8) and that the pair may exist (S5, S6).
///
/// # Errors
/// The first row that differs from row 0, the device before the class; or the invalid pair.
pub fn validate_colocation(rows: &[BufferHandle]) -> Result<(), BufferTableError> {
    let _ = rows;
    Ok(())
}
