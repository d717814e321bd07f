//! Contexts of another version: nothing past the version is read, not even the table or the list.
#![cfg(target_os = "linux")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the mapping below is this test's own"
)]

use std::ptr;

use hurray_ffi::abi::{HurrayBufferList, HurrayCapsuleContext};
use hurray_ffi::{ConsumeError, consume};

const PAGE: usize = 4096;

/// The last four bytes before a page that nobody can read, holding `version`; and an address in that page.
fn at_the_edge(version: u32) -> (*const HurrayCapsuleContext, *mut HurrayBufferList) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let pages = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    let forbidden = pages.wrapping_byte_add(PAGE);
    assert_eq!(
        unsafe { libc::mprotect(forbidden, PAGE, libc::PROT_NONE) },
        0
    );
    let edge = forbidden.wrapping_byte_sub(4);
    unsafe { edge.cast::<u32>().write(version) };
    (edge.cast_const().cast(), forbidden.cast())
}

#[test]
fn other_versions_are_refused_by_number_and_nothing_else_is_read() {
    for found in [0, 1, 2, 4, u32::MAX] {
        let (context, list) = at_the_edge(found);
        let error = unsafe { consume(list, context) }.unwrap_err();
        assert_eq!(error, ConsumeError::Version { found });
        let text = error.to_string();
        assert!(
            text.contains(&found.to_string()) && text.contains('3'),
            "{text}"
        );
    }
}

/// Of a context that says how long it is no more than that is read.
#[test]
fn a_short_context_is_not_read_past_its_size() {
    let (edge, list) = at_the_edge(8);
    let context = edge.wrapping_byte_sub(4);
    unsafe { context.cast_mut().cast::<u32>().write(3) };
    let error = unsafe { consume(list, context) }.unwrap_err();
    let (found, needed) = (8, size_of::<HurrayCapsuleContext>());
    assert_eq!(error, ConsumeError::ShortContext { found, needed });
}
