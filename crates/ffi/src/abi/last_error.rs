//! The text of a thread's last failure.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::fmt::{self, Display, Write};

/// Longer texts are cut.
const CAPACITY: usize = 512;

thread_local! {
    // Const and without a destructor, so that it needs no allocation and outlives the destructors of other thread locals, which may release
    // buffers.
    static TEXT: UnsafeCell<[u8; CAPACITY]> = const { UnsafeCell::new([0; CAPACITY]) };
}

/// Writes up to the last byte but one, on a character boundary, and without NUL.
struct Text<'a> {
    bytes: &'a mut [u8; CAPACITY],
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars().filter(|&character| character != '\0') {
            let end = self.len + character.len_utf8();
            let Some(slot) = self.bytes.get_mut(self.len..end).filter(|_| end < CAPACITY) else {
                return Err(fmt::Error);
            };
            character.encode_utf8(slot);
            self.len = end;
        }
        Ok(())
    }
}

/// Keeps `error` as the calling thread's last.
pub(super) fn set(error: &dyn Display) {
    // Formatted elsewhere first: the error may quote the last text.
    let mut bytes = [0; CAPACITY];
    let mut text = Text {
        bytes: &mut bytes,
        len: 0,
    };
    // A text that is too long is cut.
    let _ = write!(text, "{error}");
    TEXT.with(|cell| {
        // SAFETY: the cell is this thread's alone, and no reference to its content outlives a function of this module.
        unsafe { *cell.get() = bytes };
    });
}

/// The calling thread's last text, NUL-terminated.
pub(super) fn get() -> *const c_char {
    TEXT.with(|cell| cell.get().cast_const().cast())
}

/// A copy of the text that another library's `last_error` gives.
///
/// # Safety
/// `text` is NULL, or a string that ends with NUL and stays as it is during the call.
pub(super) unsafe fn copy(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, and a string by the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        // SAFETY: the text is this thread's and NUL-terminated.
        unsafe { copy(get()) }
    }

    #[test]
    fn a_text_is_kept_until_the_next() {
        assert_eq!(text(), "");
        set(&"a first");
        set(&"and a second");
        assert_eq!(text(), "and a second");
        set(&"");
        assert_eq!(text(), "");
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        for shift in 0..4 {
            set(&format!("{}{}", "x".repeat(shift), "ü€𝄞".repeat(100)));
            let text = text();
            assert!(
                (CAPACITY - 5..CAPACITY).contains(&text.len()),
                "{}",
                text.len()
            );
            assert!(!text.contains('\u{FFFD}'), "{text}");
        }
    }

    #[test]
    fn a_text_ends_at_its_end_only() {
        set(&"one\0two");
        assert_eq!(text(), "onetwo");
    }

    #[test]
    fn no_text_is_an_empty_one() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { copy(std::ptr::null()) }, "");
    }
}
