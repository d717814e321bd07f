//! The one place that makes slices of foreign memory and maps files.

use std::fs::File;
use std::ops::Deref;
use std::{io, slice};

use hurray_core::BufferHandle;
use hurray_ffi::access::{self, AccessError, Reach};
use hurray_ffi::{Buffer, BufferFlags, Owner, Place, Readiness};
use memmap2::{Mmap, MmapOptions};

/// The bytes of buffer `index`, whose row is `row`. Those of a declared tensor are given too where they are in host memory: they are repeated,
/// not read (`sync.md`).
pub(crate) fn host_bytes<'a>(
    index: usize,
    row: &BufferHandle,
    buffer: &'a Buffer,
) -> Result<&'a [u8], AccessError> {
    let is_declared = buffer.flags().contains(BufferFlags::DECLARED);
    if !(is_declared && buffer.place() == Place::HOST) {
        access::check(index, row, buffer, Reach::Host)?;
    }
    if buffer.is_empty() {
        return Ok(&[]);
    }
    // SAFETY: a buffer's address is valid for reads of its length while its owner lives, which the borrow of the buffer ensures
    // (`Buffer::from_owner`); the host reaches it and all writes are complete, by the check above or because host memory always is.
    Ok(unsafe { slice::from_raw_parts(buffer.as_ptr(), buffer.len()) })
}

/// A whole file as one buffer. Its pages are private: what is written to one is written to a copy, which only this process has.
pub(crate) fn map(file: &File) -> io::Result<Buffer> {
    let mut options = MmapOptions::new();
    // Few pages are ever written, and memory for all of them must not be asked for in advance.
    options.no_reserve_swap();
    // SAFETY: that nobody truncates or changes the file while it is mapped is asked of whoever opens it, in the documentation of
    // `FileReader::open`: no system this runs on can enforce it.
    let mut map = unsafe { options.map_copy(file) }?;
    let (address, len) = (map.as_mut_ptr(), map.len());
    // SAFETY: the map is readable and writable over its length until it is dropped, and reached through this buffer only.
    let buffer = unsafe {
        Buffer::from_owner(
            address,
            len,
            Place::HOST,
            Readiness::Ready,
            BufferFlags::empty(),
            Owner::Map(map),
        )
    };
    buffer.map_err(io::Error::other)
}

/// A whole file, mapped to be read: for who reads other formats.
///
/// Not promised: that the bytes stay as they are while someone else writes to the file; after a truncation in place, touching what is gone ends the
/// process (SIGBUS).
#[derive(Debug)]
pub struct FileMap(Mmap);

impl FileMap {
    /// Maps `file`, which must not be changed in place as long as the map lives.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the pages are only read, and that nobody changes the file is asked of the caller, as in `map`.
        Ok(Self(unsafe { Mmap::map(file) }?))
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
