//! Measures how much memory a thread holds at most, and asks for.
#![allow(dead_code, reason = "each test crate uses its part")]
#![expect(unsafe_code, reason = "counts what the system allocator is asked for")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes held and the most that were.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
    /// Bytes that were ever asked for.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is the system allocator's, whose contract this passes on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the system allocator's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let (held, most) = HELD.get();
        HELD.set((held.saturating_sub_unsigned(layout.size()), most));
        // SAFETY: `memory` came from `alloc` above with this layout, so from the system allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn add(bytes: usize) {
    let (held, most) = HELD.get();
    let held = held.saturating_add_unsigned(bytes);
    HELD.set((held, most.max(held)));
    ASKED.set(ASKED.get().saturating_add(bytes));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that `f` asks for in all on this thread, and what it gives.
pub(crate) fn asked<T>(f: impl FnOnce() -> T) -> (usize, T) {
    let before = ASKED.get();
    let value = f();
    (ASKED.get().saturating_sub(before), value)
}

/// The most bytes that `f` holds at a time on this thread, over what was held before, and what it gives.
pub(crate) fn peak<T>(f: impl FnOnce() -> T) -> (usize, T) {
    let (before, _) = HELD.get();
    HELD.set((before, before));
    let value = f();
    let (_, most) = HELD.get();
    (most.saturating_sub(before).unsigned_abs(), value)
}
