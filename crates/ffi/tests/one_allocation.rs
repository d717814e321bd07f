//! An export is one allocation, whatever the number of buffers, and consuming it in the same build is none.

mod tensors;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hurray_ffi::{Composite, Item, consume};
use tensors::host_tensor;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `body` runs.
fn allocations<T>(body: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNT.get();
    let value = body();
    (COUNT.get() - before, value)
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
    let head = hurray_core::TensorDescriptor {
        layout: hurray_core::Layout::Composite(hurray_core::CompositeHead {
            rule: hurray_core::CompositionRule::Group,
            member_count: 10,
        }),
        quantization: None,
        buffers: [].as_slice().into(),
        ..tensors::plain(hurray_core::ElementType::Int4, &[], tensors::host_row(0))
    };
    let composite = Composite::new(head, members).unwrap();
    let (count, list) = allocations(|| composite.export().unwrap());
    assert_eq!((count, list.len()), (1, 30));
}
