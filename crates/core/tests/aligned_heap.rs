//! Every block of the aligned heap goes back in full, whatever it was resized to.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
#![expect(unsafe_code, reason = "malloc, realloc and free have no safe form")]

mod counting;

use counting::{allocated, freed};
use hurray_core::memory::aligned_heap::{allocate, allocate_zeroed, free, reallocate};

#[test]
fn what_is_allocated_and_resized_is_freed() {
    let sizes = [0, 1, 63, 64, 4095, 4096, 4097, 100_000, 5 << 20];
    for old in sizes {
        for new in sizes {
            let (calls, bytes, ()) = allocated(|| {
                let data = allocate(old).unwrap();
                // SAFETY: the data are live, and used no more.
                let data = unsafe { reallocate(data, new) }.unwrap();
                // SAFETY: as above.
                unsafe { free(data) };
                // SAFETY: as above.
                unsafe { free(allocate_zeroed(new).unwrap()) };
            });
            assert_eq!(bytes, freed(), "{old} to {new} bytes");
            assert_eq!(calls, 3);
        }
    }
}
