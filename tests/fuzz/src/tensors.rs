//! What holds of every tensor that was read.

use std::hint::black_box;
use std::slice;

use hurray_core::memory::AlignedBytes;
use hurray_core::{PAGE_ALIGNMENT, TensorDescriptor, validate_contents};
use hurray_ffi::access::Reach;
use hurray_ffi::{Buffer, Item, Tensor};

/// A copy of `bytes` where a map would have it.
pub(crate) fn memory(bytes: &[u8]) -> Buffer {
    let mut memory = AlignedBytes::zeroed_with_alignment(bytes.len(), PAGE_ALIGNMENT)
        .expect("memory for an input");
    memory.copy_from_slice(bytes);
    Buffer::from(memory)
}

/// The tensors of an item in stream order.
pub(crate) fn each_tensor<'a>(item: &'a Item, f: &mut impl FnMut(&'a Tensor)) {
    match item {
        Item::Tensor(tensor) => f(tensor),
        Item::Composite(composite) => {
            for member in composite.members() {
                each_tensor(member, f);
            }
        }
    }
}

/// The bytes of buffer `index`.
pub(crate) fn bytes_of(tensor: &Tensor, index: usize) -> &[u8] {
    bytes(&tensor.buffers()[index])
}

/// The bytes of a buffer that lies in memory which these readers were given or made.
pub(crate) fn bytes(buffer: &Buffer) -> &[u8] {
    if buffer.is_empty() {
        return &[];
    }
    // SAFETY: a buffer's address is valid for reads of its length while its owner lives, which the borrow ensures; those of files and
    // streams are in host memory, and nobody writes to them.
    unsafe { slice::from_raw_parts(buffer.as_ptr(), buffer.len()) }
}

/// Checks a tensor and reads all its bytes.
pub(crate) fn check(tensor: &Tensor) {
    let descriptor = tensor.descriptor();
    descriptor.validate().expect("a tensor is valid");
    let buffers: Vec<&[u8]> = (0..tensor.buffers().len())
        .map(|index| bytes_of(tensor, index))
        .collect();
    for (row, bytes) in descriptor.buffers.iter().zip(&buffers) {
        assert!(bytes.len() as u64 >= row.byte_size);
        assert!(row.byte_size == 0 || bytes.as_ptr().addr().is_multiple_of(row.alignment as usize));
        black_box(bytes.iter().fold(0_u8, |sum, byte| sum ^ byte));
    }
    let _ = tensor.check_access(Reach::Host);
    if let Err(error) = validate_contents(descriptor, &buffers) {
        assert!(!error.rule().is_empty(), "{error}");
    }
    let last: Vec<u64> = descriptor
        .shape
        .iter()
        .map(|dim| dim.saturating_sub(1))
        .collect();
    if descriptor.layout.is_dense() && !descriptor.shape.contains(&0) {
        let last = descriptor
            .element_address(&last)
            .expect("the last element has an address");
        assert!(last.byte + u64::from(last.length) <= buffers[0].len() as u64);
    }
}

/// Checks that two items have equal tensors. What a writer may change is where they lie: rows, and how many bytes are before the first element.
pub(crate) fn assert_equal(left: &Item, right: &Item) {
    match (left, right) {
        (Item::Tensor(left), Item::Tensor(right)) => {
            assert_described_alike(left.descriptor(), right.descriptor());
            assert_eq!(left.buffers().len(), right.buffers().len());
            for index in 0..left.buffers().len() {
                let [left, right] = [left, right].map(|tensor| {
                    let descriptor = tensor.descriptor();
                    let is_moved = index == 0 && descriptor.layout.is_dense();
                    let skipped = if is_moved { descriptor.byte_offset } else { 0 };
                    let row = &descriptor.buffers[index];
                    &bytes_of(tensor, index)[skipped as usize..row.byte_size as usize]
                });
                assert!(left == right, "buffer {index}");
            }
        }
        (Item::Composite(left), Item::Composite(right)) => {
            assert_described_alike(left.head(), right.head());
            assert_eq!(left.members().len(), right.members().len());
            for (left, right) in left.members().iter().zip(right.members()) {
                assert_equal(left, right);
            }
        }
        _ => panic!("a tensor and a composite"),
    }
}

/// Compares what is written, since NaN bounds are no number.
fn assert_described_alike(left: &TensorDescriptor, right: &TensorDescriptor) {
    let mut left = left.clone();
    if left.layout.is_dense() {
        left.byte_offset = right.byte_offset;
    }
    left.buffers.clone_from(&right.buffers);
    assert_eq!(left.encode(), right.encode());
}
