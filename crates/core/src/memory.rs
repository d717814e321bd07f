//! Host memory that keeps the format's alignment promise.

pub mod aligned_heap;

use std::fmt;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};
use std::{slice, thread};

use thiserror::Error;

use crate::{MIN_BUFFER_ALIGNMENT, PAGE_ALIGNMENT};

/// The largest power of two that divides `address`, at most [`PAGE_ALIGNMENT`].
#[must_use]
pub const fn measure_alignment(address: usize) -> u32 {
    let page_bits = PAGE_ALIGNMENT.trailing_zeros();
    let bits = address.trailing_zeros();
    1 << if bits < page_bits { bits } else { page_bits }
}

/// What a row says of `len` bytes at `address`: 1 where there are none, since an empty buffer has no address to use (`buffers.md` § 2).
#[must_use]
pub const fn declared_alignment(address: usize, len: usize) -> u32 {
    if len == 0 {
        1
    } else {
        measure_alignment(address)
    }
}

/// Memory that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocationError {
    /// The system has no such block.
    #[error("no memory for {len} bytes at an alignment of {alignment}")]
    Exhausted {
        /// Bytes that were asked for.
        len: usize,
        /// The alignment that was asked for, in bytes.
        alignment: usize,
    },
    /// An alignment that is not offered.
    #[error("an alignment of {alignment} is not a power of two from 1 to {PAGE_ALIGNMENT}")]
    Alignment {
        /// The alignment that was asked for, in bytes.
        alignment: usize,
    },
}

/// Owned host bytes on a 64-byte boundary, from one page up on a page.
///
/// ```text
/// | header | len bytes |        one block of `aligned_heap`
///          ^ 64 or 4096
/// ```
///
/// Not promised: where two empty ones lie, and that a failed allocation is seen before the bytes are touched (the system may overcommit).
pub struct AlignedBytes {
    /// From `aligned_heap`, `len` bytes or more, all initialised; ours alone.
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: the block is reached through this value only, and `aligned_heap` frees from any thread.
unsafe impl Send for AlignedBytes {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `len` zero bytes. A large block costs its memory only where it is touched.
    ///
    /// # Errors
    /// [`AllocationError::Exhausted`].
    pub fn zeroed(len: usize) -> Result<Self, AllocationError> {
        Self::zeroed_with_alignment(len, MIN_BUFFER_ALIGNMENT)
    }

    /// `len` zero bytes at `alignment` or more: a power of two up to [`PAGE_ALIGNMENT`].
    ///
    /// # Errors
    /// Either [`AllocationError`].
    pub fn zeroed_with_alignment(len: usize, alignment: usize) -> Result<Self, AllocationError> {
        let capacity = capacity(len, alignment)?;
        let data = aligned_heap::allocate_zeroed(capacity)
            .ok_or(AllocationError::Exhausted { len, alignment })?;
        Ok(Self { data, len })
    }

    /// A copy of `source`.
    ///
    /// # Errors
    /// [`AllocationError::Exhausted`].
    pub fn copy_of(source: &[u8]) -> Result<Self, AllocationError> {
        // SAFETY: the slice is readable over its whole length.
        unsafe { Self::copy_from_ptr(source.as_ptr(), source.len()) }
    }

    /// A copy of the `len` bytes at `source`, for bytes that others may reach and of which no slice can be made.
    ///
    /// # Safety
    /// `source` is valid for reads of `len` bytes, and nothing writes to them during the call.
    ///
    /// # Errors
    /// [`AllocationError::Exhausted`].
    pub unsafe fn copy_from_ptr(source: *const u8, len: usize) -> Result<Self, AllocationError> {
        // SAFETY: every byte is written in the next step, before anything reads.
        let copy = unsafe { Self::uninit(len, MIN_BUFFER_ALIGNMENT) }?;
        if len < SPLIT_FROM {
            // SAFETY: the source is readable by the caller's word, the block has `len` bytes or more, and a fresh block overlaps nothing.
            unsafe { ptr::copy_nonoverlapping(source, copy.data.as_ptr(), len) };
            return Ok(copy);
        }
        // SAFETY: the source is readable by the caller's word, and nothing writes to it during the call.
        let source = unsafe { slice::from_raw_parts(source.cast(), len) };
        // SAFETY: the block has `len` bytes or more, and nobody else knows it.
        let target = unsafe { slice::from_raw_parts_mut(copy.data.as_ptr().cast(), len) };
        copy_in_parts(source, target);
        Ok(copy)
    }

    /// `len` bytes at `alignment` or more that nobody has written yet.
    ///
    /// # Safety
    /// The caller writes every byte, through [`as_mut_ptr`](Self::as_mut_ptr), before it or anyone else reads one.
    ///
    /// # Errors
    /// Either [`AllocationError`].
    pub unsafe fn uninit(len: usize, alignment: usize) -> Result<Self, AllocationError> {
        let capacity = capacity(len, alignment)?;
        let data = aligned_heap::allocate(capacity)
            .ok_or(AllocationError::Exhausted { len, alignment })?;
        Ok(Self { data, len })
    }

    /// Where the bytes begin.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.data.as_ptr()
    }

    /// Where the bytes begin, to write.
    #[must_use]
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.data.as_ptr()
    }
}

/// Bytes from which a copy is split over threads: there the start of a thread is below a hundredth of what the copy takes.
const SPLIT_FROM: usize = 32 << 20;
/// Bytes that a thread copies at a time.
const PART: usize = 4 << 20;
/// More threads than this do not make memory faster.
const MOST_THREADS: usize = 4;

/// Copies between slices of one length on a few threads: most of the time goes into fresh pages, which one core fills slower than memory takes them.
/// The threads are the call's own, so that a forked process has them too; where there are none to be had, the caller's copies everything.
fn copy_in_parts(source: &[MaybeUninit<u8>], target: &mut [MaybeUninit<u8>]) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let parts = Mutex::new(source.chunks(PART).zip(target.chunks_mut(PART)));
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let copy = || {
        while let Some((source, target)) = next() {
            target.copy_from_slice(source);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(MOST_THREADS) {
            if thread::Builder::new().spawn_scoped(scope, copy).is_err() {
                break;
            }
        }
        copy();
    });
}

/// Bytes to ask `aligned_heap` for, which aligns a page or more to a page and all else to 64.
const fn capacity(len: usize, alignment: usize) -> Result<usize, AllocationError> {
    if !alignment.is_power_of_two() || alignment > PAGE_ALIGNMENT {
        return Err(AllocationError::Alignment { alignment });
    }
    Ok(
        if alignment > MIN_BUFFER_ALIGNMENT && len < PAGE_ALIGNMENT {
            PAGE_ALIGNMENT
        } else {
            len
        },
    )
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block has `len` initialised bytes, and nobody writes while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block has `len` initialised bytes, and nobody else reaches them while `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: the block came from `aligned_heap` and is ours alone, and this is the last use.
        unsafe { aligned_heap::free(self.data) };
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBytes")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "moves 100 MB")]
    fn a_copy_of_many_parts_has_every_byte() {
        for len in [SPLIT_FROM - 1, SPLIT_FROM, SPLIT_FROM + PART + 1] {
            let mut source = vec![1; len];
            for (part, mark) in source.chunks_mut(PART).zip(2..) {
                part[0] = mark;
                let middle = part.len() / 2;
                part[middle..].fill(100 + mark);
            }
            assert!(AlignedBytes::copy_of(&source).unwrap()[..] == source[..]);
        }
    }

    #[test]
    fn an_address_has_the_alignment_that_divides_it() {
        for bits in 0..usize::BITS {
            let expected = 1_u32 << bits.min(12);
            assert_eq!(measure_alignment(1 << bits), expected);
            if bits > 0 {
                assert_eq!(measure_alignment((1 << bits) - 1), 1);
            }
        }
        assert_eq!(measure_alignment(0), 4096);
        assert_eq!(measure_alignment(0x7f00_0000_0040), 64);
        assert_eq!(measure_alignment(0x7f00_0000_0030), 16);
        for offset in 1..128_usize {
            let largest = (0..13).rev().find(|bit| offset % (1 << bit) == 0);
            assert_eq!(
                Some(measure_alignment(8192 + offset).trailing_zeros()),
                largest
            );
        }
    }

    #[test]
    fn an_empty_buffer_declares_1() {
        assert_eq!(declared_alignment(0, 0), 1);
        assert_eq!(declared_alignment(4096, 0), 1);
        assert_eq!(declared_alignment(4096, 1), 4096);
    }

    #[test]
    fn bytes_lie_on_64_and_from_a_page_up_on_a_page() {
        for len in [0, 1, 63, 64, 4095, 4096, 4097, 1 << 20] {
            let bytes = AlignedBytes::zeroed(len).unwrap();
            assert_eq!(bytes.len(), len);
            assert!(bytes.iter().all(|&byte| byte == 0));
            let least = if len >= 4096 { 4096 } else { 64 };
            assert!(measure_alignment(bytes.as_ptr() as usize) >= least, "{len}");
        }
    }

    #[test]
    fn a_small_block_can_ask_for_a_page() {
        for alignment in [1, 64, 128, 4096] {
            let bytes = AlignedBytes::zeroed_with_alignment(10, alignment).unwrap();
            assert_eq!(bytes.len(), 10);
            assert!(measure_alignment(bytes.as_ptr() as usize) as usize >= alignment);
        }
        for alignment in [0, 3, 96, 8192] {
            assert_eq!(
                AlignedBytes::zeroed_with_alignment(10, alignment).unwrap_err(),
                AllocationError::Alignment { alignment }
            );
        }
    }

    #[test]
    fn a_length_beyond_memory_is_an_error_with_its_numbers() {
        for len in [usize::MAX, usize::MAX - 4096, isize::MAX as usize, 1 << 62] {
            let error = AlignedBytes::zeroed(len).unwrap_err();
            assert_eq!(error, AllocationError::Exhausted { len, alignment: 64 });
            assert!(error.to_string().contains(&len.to_string()));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn zeroed_pages_cost_memory_where_they_are_touched() {
        let resident = || -> usize {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_ALIGNMENT
        };
        let before = resident();
        let mut bytes = AlignedBytes::zeroed(1 << 30).unwrap();
        bytes[1 << 29] = 1;
        // What the other tests hold meanwhile is far less.
        assert!(resident() < before + (256 << 20));
    }

    #[test]
    fn a_copy_is_equal_and_apart() {
        let source: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
        let mut copy = AlignedBytes::copy_of(&source[3..]).unwrap();
        assert_eq!(&copy[..], &source[3..]);
        copy[0] = 99;
        assert_eq!(source[3], 3);
    }
}
