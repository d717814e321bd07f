//! Tensors for tests, and their bytes.
#![allow(dead_code, reason = "each test crate uses its part")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use hurray_core::memory::AlignedBytes;
use hurray_core::{
    BufferHandle, CompositeHead, CompositionRule, DeviceTag, ElementType, Layout, MemoryClass,
    Shard, SyncMode, TensorDescriptor,
};
use hurray_ffi::{Buffer, Composite, Item, Tensor};

pub(crate) fn row(byte_size: usize) -> BufferHandle {
    BufferHandle {
        byte_size: byte_size as u64,
        alignment: if byte_size == 0 { 1 } else { 64 },
        device: DeviceTag::Cpu,
        sync_mode: SyncMode::ProducerSynced,
        memory_class: MemoryClass::Standard,
    }
}

pub(crate) fn memory(bytes: &[u8]) -> Buffer {
    Buffer::from(AlignedBytes::copy_of(bytes).unwrap())
}

/// A row-major uint8 tensor of these elements.
pub(crate) fn bytes_tensor(bytes: &[u8]) -> Tensor {
    let shape = [bytes.len() as u64];
    let rows = [row(bytes.len())];
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, shape.as_slice(), Layout::RowMajor, rows);
    Tensor::new(descriptor, [memory(bytes)].as_slice()).unwrap()
}

pub(crate) fn head(rule: CompositionRule, shape: &[u64], member_count: u32) -> TensorDescriptor {
    let head = CompositeHead { rule, member_count };
    TensorDescriptor::new(ElementType::Uint8, shape, Layout::Composite(head), [])
}

/// `count` rows of 4 elements, a partition of one tensor.
pub(crate) fn rows_partition(count: u32) -> Composite {
    let parent = [u64::from(count), 4];
    let members: Vec<Item> = (0..count)
        .map(|at| {
            let tensor = bytes_tensor(&[at as u8; 4]);
            let (descriptor, buffers) = tensor.into_parts();
            let mut descriptor = TensorDescriptor::clone(&descriptor);
            descriptor.shape = [1, 4].as_slice().into();
            descriptor.shard = Some(Shard {
                parent_shape: parent.as_slice().into(),
                offset: [u64::from(at), 0].as_slice().into(),
            });
            Item::Tensor(Tensor::new(descriptor, buffers).unwrap())
        })
        .collect();
    Composite::new(head(CompositionRule::Partition, &parent, count), members).unwrap()
}

/// Groups inside each other, `depth` heads in all.
pub(crate) fn nested(depth: usize) -> Composite {
    let mut inner = Composite::new(head(CompositionRule::Group, &[], 0), []).unwrap();
    for _ in 1..depth {
        let members = [Item::Composite(inner)];
        inner = Composite::new(head(CompositionRule::Group, &[], 1), members).unwrap();
    }
    inner
}

/// The bytes of a tensor in host memory.
#[expect(unsafe_code, reason = "looks at what was read")]
pub(crate) fn bytes_of(tensor: &Tensor, buffer: usize) -> &[u8] {
    let buffer = &tensor.buffers()[buffer];
    if buffer.is_empty() {
        return &[];
    }
    // SAFETY: the buffers of these tests are in host memory, and nobody writes to them.
    unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) }
}
