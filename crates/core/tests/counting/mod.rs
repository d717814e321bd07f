//! Counts what a thread asks the allocator for.
#![expect(unsafe_code, reason = "counts what the system allocator is asked for")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static FREED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is the system allocator's, whose contract this passes on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (calls, bytes) = ALLOCATED.get();
        ALLOCATED.set((calls + 1, bytes.saturating_add(layout.size())));
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        FREED.set(FREED.get().saturating_add(layout.size()));
        // SAFETY: `memory` came from `alloc` above with this layout, so from the system allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls and bytes that `f` allocates on this thread, and what it gives.
pub(crate) fn allocated<T>(f: impl FnOnce() -> T) -> (usize, usize, T) {
    ALLOCATED.set((0, 0));
    FREED.set(0);
    let value = f();
    let (calls, bytes) = ALLOCATED.get();
    (calls, bytes, value)
}

/// Bytes that were given back on this thread since the last [`allocated`] began.
#[allow(dead_code, reason = "each test crate uses its part")]
pub(crate) fn freed() -> usize {
    FREED.get()
}
