//! An export is one allocation, whatever the number of buffers, and consuming it in the same build is none; nothing is left behind
//! (pytorch/pytorch#162113, pytorch/pytorch#9261).

mod tensors;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use hurray_core::{ElementType, TensorDescriptor};
use hurray_ffi::dlpack::{self, Options};
use hurray_ffi::{Buffer, Composite, Item, Tensor, consume};
use tensors::{host_row, host_tensor, plain};

struct Counting;

thread_local! {
    static MADE: Cell<usize> = const { Cell::new(0) };
    static FREED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MADE.set(MADE.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        FREED.set(FREED.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `body` runs.
fn allocations<T>(body: impl FnOnce() -> T) -> (usize, T) {
    let before = MADE.get();
    let value = body();
    (MADE.get() - before, value)
}

#[test]
fn an_allocation_is_counted() {
    assert_eq!(allocations(|| Box::new(7_u64)).0, 1);
    assert_eq!(allocations(|| 7_u64).0, 0);
}

#[test]
fn an_export_is_one_allocation() {
    let tensor = host_tensor();
    let (count, list) = allocations(|| tensor.export().unwrap());
    assert_eq!(count, 1);
    assert_eq!(list.len(), 3);
    let context = list.context().as_ptr();
    let list = list.into_raw().as_ptr();
    // SAFETY: the list was given away for this.
    let (count, got) = allocations(|| unsafe { consume(list, context) }.unwrap());
    assert_eq!(count, 0);
    let Item::Tensor(got) = got else {
        panic!("a composite")
    };
    assert_eq!(got.buffers()[2].as_ptr(), tensor.buffers()[2].as_ptr());
    assert_eq!(
        allocations(|| got.clone()).0,
        0,
        "a tensor is cloned by counting"
    );
}

#[test]
fn an_export_of_a_composite_is_one_allocation() {
    let members = vec![Item::Tensor(host_tensor()); 10];
    let head = TensorDescriptor {
        layout: hurray_core::Layout::Composite(hurray_core::CompositeHead {
            rule: hurray_core::CompositionRule::Group,
            member_count: 10,
        }),
        buffers: [].as_slice().into(),
        ..plain(ElementType::Int4, &[], host_row(0))
    };
    let composite = Composite::new(head, members).unwrap();
    let (count, list) = allocations(|| composite.export().unwrap());
    assert_eq!((count, list.len()), (1, 30));
}

#[test]
fn an_export_to_dlpack_is_one_allocation() {
    let bytes = hurray_core::memory::AlignedBytes::zeroed(4096).unwrap();
    let descriptor = plain(ElementType::Float32, &[8, 16, 8], host_row(4096));
    let tensor = Tensor::new(descriptor, [Buffer::from(bytes)].as_slice()).unwrap();
    let (made, freed) = (MADE.get(), FREED.get());
    for _ in 0..10_000 {
        drop(dlpack::export::<DLManagedTensorVersioned>(&tensor, Options::default()).unwrap());
        drop(dlpack::export::<DLManagedTensor>(&tensor, Options::default()).unwrap());
    }
    assert_eq!((MADE.get() - made, FREED.get() - freed), (20_000, 20_000));
}
