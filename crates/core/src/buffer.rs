//! Buffer rows and where they may lie (`buffers.md`).

use crate::{
    BufferName, BufferTableError, DeviceTag, Layout, MemoryClass, QuantizationScheme, SyncMode,
};

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
/// How many buffers a private layout owns is not known; it owns the first, and the table may have any number of rows.
///
/// # Errors
/// The first index or count that does not fit, with its numbers.
pub fn validate_buffer_placement(
    layout: &Layout,
    rank: usize,
    quantization: Option<&QuantizationScheme>,
    buffer_count: usize,
) -> Result<(), BufferTableError> {
    let own = layout.buffer_count(rank);
    let layout_buffers = own.unwrap_or(1);
    let mut parameters = 0;
    if let Some(scheme) = quantization {
        let (scales, zero_points) = scheme.parameter_buffers();
        let named = [
            (BufferName::Scales, scales),
            (BufferName::ZeroPoints, zero_points),
        ];
        for (name, index) in named {
            let Some(index) = index else { continue };
            let row = usize::try_from(index).unwrap_or(usize::MAX);
            if row >= buffer_count {
                return Err(BufferTableError::IndexPastTable {
                    name,
                    index,
                    buffer_count,
                });
            }
            if row < layout_buffers {
                return Err(BufferTableError::IndexOfLayoutBuffer {
                    name,
                    index,
                    layout_buffers,
                });
            }
        }
        parameters = scheme.parameter_buffer_count();
    }
    let needed = layout_buffers.saturating_add(parameters);
    if buffer_count < needed || (own.is_some() && buffer_count > needed) {
        return Err(BufferTableError::Count {
            layout: layout.name(),
            needed,
            found: buffer_count,
        });
    }
    Ok(())
}

/// Checks that all rows name one device and one memory class (S3, S4, B8) and that the pair may exist (S5, S6).
///
/// # Errors
/// The first row that differs from row 0, the device before the class; or the invalid pair.
pub fn validate_colocation(rows: &[BufferHandle]) -> Result<(), BufferTableError> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    for (buffer, row) in rows.iter().enumerate() {
        if row.device != first.device {
            return Err(BufferTableError::Device {
                buffer,
                device: row.device,
                first: first.device,
            });
        }
        if row.memory_class != first.memory_class {
            return Err(BufferTableError::MemoryClass {
                buffer,
                class: row.memory_class,
                first: first.memory_class,
            });
        }
    }
    if first.memory_class.is_valid_on(first.device) {
        Ok(())
    } else {
        Err(BufferTableError::InvalidPair {
            device: first.device,
            class: first.memory_class,
        })
    }
}
