//! Malloc, calloc, realloc and free whose addresses keep the format's alignment promise.
//!
//! Data of a page or more begin on a page, all other data on a 64-byte boundary. Neither freeing nor resizing needs the old size: a header
//! in front of the data keeps it. One block of the global allocator holds both:
//!
//! ```text
//! block               data = block + offset
//! | unused   | Header | size bytes | unused |
//! |<----- offset ---->|
//! ```
//!
//! The block is asked for at the alignment that C's `malloc` gives anyway, and is one alignment longer than the data. So zeroed memory comes
//! from `calloc`, whose fresh pages cost nothing until they are touched, and large blocks grow by `mremap`: an over-aligned request has
//! neither in the standard allocator.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::ptr::{self, NonNull};

use crate::{MIN_BUFFER_ALIGNMENT, PAGE_ALIGNMENT};

/// What [`free`] and [`reallocate`] need to know, in the bytes before the data.
#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    /// Bytes of data.
    size: usize,
    /// From the start of the block to the data.
    offset: usize,
}

/// Two words: what `malloc` aligns to, so that the header always fits between an unaligned block and its data.
const BLOCK_ALIGNMENT: usize = size_of::<Header>();
const _: () = assert!(BLOCK_ALIGNMENT.is_power_of_two());
const _: () = assert!(BLOCK_ALIGNMENT.is_multiple_of(align_of::<Header>()));
const _: () = assert!(MIN_BUFFER_ALIGNMENT.is_multiple_of(BLOCK_ALIGNMENT));

/// From this many bytes on huge pages are asked for, as NumPy's own allocator does.
const HUGE_PAGES_FROM: usize = 4 << 20;

/// The alignment that data of `size` bytes get.
const fn alignment_of(size: usize) -> usize {
    if size < PAGE_ALIGNMENT {
        MIN_BUFFER_ALIGNMENT
    } else {
        PAGE_ALIGNMENT
    }
}

/// The block for `size` bytes of data, never empty; `None` where its length overflows.
fn block_layout(size: usize) -> Option<Layout> {
    let length = size.checked_add(alignment_of(size))?;
    Layout::from_size_align(length, BLOCK_ALIGNMENT).ok()
}

/// Where data go in a block at `block_address`, a multiple of [`BLOCK_ALIGNMENT`]: between `BLOCK_ALIGNMENT` and `alignment` bytes in.
fn data_offset(block_address: usize, alignment: usize) -> usize {
    alignment.wrapping_sub(block_address & alignment.wrapping_sub(1))
}

/// `size` bytes of uninitialised memory, at an address of their own even where `size` is 0; `None` where there is no such block.
pub fn allocate(size: usize) -> Option<NonNull<u8>> {
    let layout = block_layout(size)?;
    // SAFETY: `block_layout` adds the alignment to the size, so the layout is not empty.
    let block = NonNull::new(unsafe { alloc(layout) })?;
    // SAFETY: the block was made by `block_layout(size)` just now and holds nothing.
    Some(unsafe { place(block, size) })
}

/// As [`allocate`], but zero. Fresh pages stay untouched, so that a large block costs its memory only where it is used.
pub fn allocate_zeroed(size: usize) -> Option<NonNull<u8>> {
    let layout = block_layout(size)?;
    // SAFETY: `block_layout` adds the alignment to the size, so the layout is not empty.
    let block = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    // SAFETY: the block was made by `block_layout(size)` just now and holds nothing but zeros.
    Some(unsafe { place(block, size) })
}

/// Moves data to a new size: the first `min(old, new)` bytes stay, any others are uninitialised. Where it gives `None` the old data are
/// as they were, and still the caller's.
///
/// # Safety
///
/// `data` came from this module and was neither freed nor moved since. Nothing reads or writes it during the call. After a `Some` the old
/// address is not used again.
pub unsafe fn reallocate(data: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: the caller says that `data` is live.
    let Header {
        size: old_size,
        offset: old_offset,
    } = unsafe { header(data) };
    let kept = old_size.min(size);
    let alignment = alignment_of(size);

    if alignment_of(old_size) != alignment {
        let moved = allocate(size)?;
        // SAFETY: both hold `kept` bytes at least, and the new block overlaps nothing that lives.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), moved.as_ptr(), kept) };
        // SAFETY: the caller says that `data` is live and not used again.
        unsafe { free(data) };
        return Some(moved);
    }

    let old_layout = block_layout(old_size)?;
    let length = block_layout(size)?.size();
    // SAFETY: the header's offset leads from the data back to the start of the same block.
    let old_block = unsafe { data.sub(old_offset) };
    // SAFETY: the block came from the global allocator with this very layout; `length` is that of a valid layout of the same alignment,
    // and not 0.
    let block = NonNull::new(unsafe { realloc(old_block.as_ptr(), old_layout, length) })?;
    let offset = data_offset(block.addr().get(), alignment);
    if offset != old_offset {
        // SAFETY: `old_offset` is at most `alignment`, and the block is longer than `alignment` by `size`.
        let from = unsafe { block.add(old_offset) };
        // SAFETY: as above, for `offset`.
        let to = unsafe { block.add(offset) };
        // SAFETY: both offsets are at most `alignment` and `kept` at most `size`, so both ranges lie in the block; `realloc` kept the
        // first min(old, new) bytes of the block, to which `old_offset + kept` belongs; `copy` allows overlap.
        unsafe { ptr::copy(from.as_ptr(), to.as_ptr(), kept) };
    }
    // SAFETY: the block has the length that `block_layout(size)` gives, and its data are where `place` puts them.
    Some(unsafe { place(block, size) })
}

/// Gives data back.
///
/// # Safety
///
/// `data` came from this module, was neither freed nor moved since, and is not used again.
pub unsafe fn free(data: NonNull<u8>) {
    // SAFETY: the caller says that `data` is live.
    let Header { size, offset } = unsafe { header(data) };
    // It was `Some` when the block was made.
    let Some(layout) = block_layout(size) else {
        return;
    };
    // SAFETY: the header's offset leads from the data back to the start of the same block.
    let block = unsafe { data.sub(offset) };
    // SAFETY: the block came from the global allocator with this very layout, and the caller gives it up.
    unsafe { dealloc(block.as_ptr(), layout) };
}

/// Writes the header of `size` bytes of data in `block`, and gives the data's address. Data that are there already are not touched.
///
/// # Safety
///
/// `block` has the length and alignment that `block_layout(size)` gives, and is the caller's alone. Any data in it begin at [`data_offset`].
unsafe fn place(block: NonNull<u8>, size: usize) -> NonNull<u8> {
    let alignment = alignment_of(size);
    let offset = data_offset(block.addr().get(), alignment);
    // SAFETY: the offset is at most the alignment, by which the block is longer than the data.
    let data = unsafe { block.add(offset) };
    // SAFETY: the offset is at least one header.
    let header = unsafe { data.cast::<Header>().sub(1) };
    // SAFETY: the header ends where the data begin, so it lies in the block and touches no data; the data are aligned to a multiple of its
    // size, and so of its alignment.
    unsafe { header.write(Header { size, offset }) };
    advise_huge_pages(block, size.saturating_add(alignment));
    data
}

/// The header of live data.
///
/// # Safety
///
/// `data` came from this module and was neither freed nor moved since.
unsafe fn header(data: NonNull<u8>) -> Header {
    // SAFETY: `place` left room for a header before the data.
    let header = unsafe { data.cast::<Header>().sub(1) };
    // SAFETY: `place` wrote it, and nothing but this module writes outside the data.
    unsafe { header.read() }
}

/// Without huge pages, filling a large fresh block costs a page fault every 4 KiB.
///
/// The advice covers every page that the block touches: a mapping of which only a part has it is split, and `mremap` cannot grow it.
fn advise_huge_pages(block: NonNull<u8>, length: usize) {
    #[cfg(target_os = "linux")]
    if length >= HUGE_PAGES_FROM {
        let into_page = block.addr().get() & PAGE_ALIGNMENT.wrapping_sub(1);
        let page = block.as_ptr().wrapping_sub(into_page);
        // A kernel without huge pages refuses, and nothing is lost.
        // SAFETY: this advice changes how the kernel backs the pages, never what they hold, whoever's the rest of a page is.
        unsafe {
            libc::madvise(
                page.cast(),
                length.saturating_add(into_page),
                libc::MADV_HUGEPAGE,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use proptest::prelude::*;

    use super::*;

    /// Sizes on both sides of every size at which something changes.
    const SIZES: [usize; 17] = [
        0,
        1,
        15,
        63,
        64,
        65,
        1000,
        4031,
        4032,
        4095,
        4096,
        4097,
        8192,
        100_000,
        200_000,
        4 << 20,
        9 << 20,
    ];

    fn pattern(index: usize) -> u8 {
        (index % 251) as u8
    }

    fn fill(data: NonNull<u8>, size: usize) {
        for index in 0..size {
            // SAFETY: the tests pass the size that they allocated.
            let byte = unsafe { data.add(index) };
            // SAFETY: as above.
            unsafe { byte.write(pattern(index)) };
        }
    }

    fn holds_pattern(data: NonNull<u8>, size: usize) -> bool {
        // SAFETY: the tests pass a size up to which they filled the data.
        let bytes = unsafe { slice::from_raw_parts(data.as_ptr(), size) };
        bytes
            .iter()
            .enumerate()
            .all(|(index, &byte)| byte == pattern(index))
    }

    fn release(data: NonNull<u8>) {
        // SAFETY: the tests release what they allocated, once.
        unsafe { free(data) };
    }

    fn resize(data: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the tests resize live data, and go on with what this gives.
        unsafe { reallocate(data, size) }
    }

    fn assert_aligned(data: NonNull<u8>, size: usize) {
        let alignment = if size >= 4096 { 4096 } else { 64 };
        assert_eq!(data.addr().get() % alignment, 0, "{size} bytes");
    }

    #[test]
    fn offset_leaves_room_for_the_header_and_the_data() {
        for alignment in [MIN_BUFFER_ALIGNMENT, PAGE_ALIGNMENT] {
            for address in (0..2 * alignment).step_by(BLOCK_ALIGNMENT) {
                let offset = data_offset(address, alignment);
                assert!((size_of::<Header>()..=alignment).contains(&offset));
                assert_eq!((address + offset) % alignment, 0);
            }
        }
    }

    #[test]
    fn every_size_is_aligned_and_its_own() {
        for size in SIZES.into_iter().chain(0..300) {
            let first = allocate(size).unwrap();
            let second = allocate_zeroed(size).unwrap();
            assert_aligned(first, size);
            assert_aligned(second, size);
            assert_ne!(first, second);
            fill(first, size);
            // SAFETY: `size` bytes were allocated as zeros.
            let zeros = unsafe { slice::from_raw_parts(second.as_ptr(), size) };
            assert!(zeros.iter().all(|&byte| byte == 0));
            assert!(holds_pattern(first, size));
            release(second);
            release(first);
        }
    }

    #[test]
    fn zeroed_memory_that_was_used_before_is_zero_again() {
        for size in SIZES {
            for _ in 0..3 {
                let data = allocate_zeroed(size).unwrap();
                // SAFETY: `size` bytes were allocated as zeros.
                let zeros = unsafe { slice::from_raw_parts(data.as_ptr(), size) };
                assert!(zeros.iter().all(|&byte| byte == 0));
                fill(data, size);
                release(data);
            }
        }
    }

    #[test]
    fn every_resize_keeps_the_contents() {
        for old in SIZES {
            for new in SIZES {
                let data = allocate(old).unwrap();
                fill(data, old);
                let data = resize(data, new).unwrap();
                assert_aligned(data, new);
                assert!(holds_pattern(data, old.min(new)), "{old} to {new} bytes");
                fill(data, new);
                release(data);
            }
        }
    }

    #[test]
    fn a_size_that_overflows_gives_nothing_and_keeps_the_old_data() {
        let data = allocate(100).unwrap();
        fill(data, 100);
        for size in [
            usize::MAX,
            usize::MAX - PAGE_ALIGNMENT,
            isize::MAX as usize,
            isize::MAX as usize - PAGE_ALIGNMENT,
            1 << 62,
        ] {
            assert!(allocate(size).is_none());
            assert!(allocate_zeroed(size).is_none());
            assert!(resize(data, size).is_none());
        }
        assert!(holds_pattern(data, 100));
        release(data);

        let page = allocate(PAGE_ALIGNMENT).unwrap();
        fill(page, PAGE_ALIGNMENT);
        assert!(resize(page, isize::MAX as usize).is_none());
        assert!(holds_pattern(page, PAGE_ALIGNMENT));
        release(page);
    }

    #[test]
    fn data_may_be_freed_by_another_thread() {
        let address = allocate(10_000).unwrap().expose_provenance();
        std::thread::spawn(move || release(NonNull::with_exposed_provenance(address)))
            .join()
            .unwrap();
    }

    #[derive(Clone, Debug)]
    enum Step {
        Allocate(usize),
        Zeroed(usize),
        Resize(prop::sample::Index, usize),
        Free(prop::sample::Index),
    }

    fn sizes() -> impl Strategy<Value = usize> {
        prop_oneof![0..300_usize, 3900..4300_usize, 0..20_000_usize]
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            sizes().prop_map(Step::Allocate),
            sizes().prop_map(Step::Zeroed),
            (any::<prop::sample::Index>(), sizes())
                .prop_map(|(which, size)| Step::Resize(which, size)),
            any::<prop::sample::Index>().prop_map(Step::Free),
        ]
    }

    proptest! {
        /// Blocks never overlap, or one's pattern would show in another: each block is filled with a byte of its own.
        #[test]
        fn any_sequence_keeps_every_block_whole(steps in prop::collection::vec(steps(), 1..60)) {
            let bytes = |data: NonNull<u8>, size| {
                // SAFETY: every block below is initialised over the whole of its size.
                unsafe { slice::from_raw_parts_mut(data.as_ptr(), size) }
            };
            let mut live: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let own = number as u8 + 1;
                match step {
                    Step::Allocate(size) => {
                        let data = allocate(size).unwrap();
                        // SAFETY: `size` bytes are ours.
                        unsafe { data.write_bytes(own, size) };
                        live.push((data, size, own));
                    }
                    Step::Zeroed(size) => {
                        let data = allocate_zeroed(size).unwrap();
                        prop_assert!(bytes(data, size).iter().all(|&byte| byte == 0));
                        bytes(data, size).fill(own);
                        live.push((data, size, own));
                    }
                    Step::Resize(which, size) if !live.is_empty() => {
                        let block = which.get(&live);
                        let (data, old, own) = *block;
                        let index = live.iter().position(|other| other.0 == data).unwrap();
                        let data = resize(data, size).unwrap();
                        prop_assert!(bytes(data, old.min(size)).iter().all(|&byte| byte == own));
                        // SAFETY: `size` bytes are ours.
                        unsafe { data.write_bytes(own, size) };
                        live[index] = (data, size, own);
                    }
                    Step::Free(which) if !live.is_empty() => {
                        let (data, ..) = live.swap_remove(which.index(live.len()));
                        release(data);
                    }
                    Step::Resize(..) | Step::Free(_) => {}
                }
                for &(data, size, own) in &live {
                    assert_aligned(data, size);
                    prop_assert!(bytes(data, size).iter().all(|&byte| byte == own));
                }
            }
            for (data, ..) in live {
                release(data);
            }
        }
    }
}
