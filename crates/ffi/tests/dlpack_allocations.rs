//! An export costs one allocation (K5, C14).

use std::alloc::{GlobalAlloc, Layout as AllocLayout, System};
use std::cell::Cell;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use hurray_core::memory::AlignedBytes;
use hurray_core::{ElementType, Layout, TensorDescriptor, Version};
use hurray_ffi::dlpack::{Options, export};
use hurray_ffi::{Buffer, Tensor};
use smallvec::smallvec;

struct Counting;

thread_local! {
    // The test harness has threads of its own.
    static MADE: Cell<usize> = const { Cell::new(0) };
    static FREED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: AllocLayout) -> *mut u8 {
        MADE.set(MADE.get() + 1);
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: AllocLayout) {
        FREED.set(FREED.get() + 1);
        // SAFETY: the caller's word.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn an_export_is_one_allocation() {
    let buffer = Buffer::from(AlignedBytes::zeroed(4096).unwrap());
    let descriptor = TensorDescriptor {
        version: Version::default(),
        element_type: ElementType::Float32,
        shape: smallvec![8, 16, 8],
        byte_offset: 0,
        layout: Layout::RowMajor,
        buffers: smallvec![buffer.handle()],
        quantization: None,
        shard: None,
        statistics: None,
        extension_type: None,
        member: None,
        skipped: Vec::new(),
    };
    let tensor = Tensor::new(descriptor, smallvec![buffer]).unwrap();
    let (made, freed) = (MADE.get(), FREED.get());
    for _ in 0..10_000 {
        drop(export::<DLManagedTensorVersioned>(&tensor, Options::default()).unwrap());
        drop(export::<DLManagedTensor>(&tensor, Options::default()).unwrap());
    }
    assert_eq!(MADE.get() - made, 20_000);
    assert_eq!(FREED.get() - freed, 20_000);
}
