//! What the rows of a descriptor become over bytes that were read.

use hurray_core::{DeviceTag, MemoryClass, TensorDescriptor};
use hurray_ffi::Buffer;

/// Makes rows and buffers agree: a row of ordinary host memory gets the alignment that its bytes have; another one is kept, and its bytes are
/// declared (`sync.md`). No row keeps more alignment than its bytes have (decision 15).
pub(crate) fn adopt(descriptor: &mut TensorDescriptor, buffers: &mut [Buffer]) {
    for (row, buffer) in descriptor.buffers.iter_mut().zip(buffers) {
        let is_host = row.device == DeviceTag::Cpu && row.memory_class == MemoryClass::Standard;
        if is_host {
            row.alignment = buffer.alignment();
        } else {
            *buffer = buffer.clone().declared();
            if row.byte_size > 0 {
                row.alignment = row.alignment.min(buffer.alignment());
            }
        }
    }
}
