//! Which bytes that were read are only declared.

use hurray_core::{BufferHandle, DeviceTag, MemoryClass};
use hurray_ffi::Buffer;

/// Whether a row is of other memory than the ordinary host memory that bytes are read into.
pub(crate) fn is_elsewhere(row: &BufferHandle) -> bool {
    row.device != DeviceTag::Cpu || row.memory_class != MemoryClass::Standard
}

/// Marks the buffers whose rows are of other memory: the rows are kept, and the bytes are relayed (`sync.md`).
pub(crate) fn declare_elsewhere(rows: &[BufferHandle], buffers: &mut [Buffer]) {
    for (row, buffer) in rows.iter().zip(buffers) {
        if is_elsewhere(row) {
            *buffer = buffer.clone().declared();
        }
    }
}
