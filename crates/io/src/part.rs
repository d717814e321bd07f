//! Bytes on their way out.

use std::borrow::Cow;

use hurray_core::BufferHandle;
use hurray_ffi::Buffer;

/// As many zeros as one slice of a gap has.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Bytes on their way out.
#[derive(Clone, Debug)]
pub(crate) enum Part<'a> {
    /// In memory that the host may read.
    Host(Cow<'a, [u8]>),
    /// Those that a device has to bring, of buffer `index`, whose row is `row`.
    Device {
        index: usize,
        row: BufferHandle,
        buffer: Buffer,
    },
}

impl Part<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.len(),
            Self::Device { buffer, .. } => buffer.len(),
        }
    }
}

/// Adds a gap of `len` zeros.
pub(crate) fn push_zeros(parts: &mut Vec<Part<'_>>, mut len: u64) {
    while len > 0 {
        let step = len.min(ZEROS.len() as u64);
        let zeros = ZEROS.get(..step as usize).unwrap_or(&ZEROS);
        parts.push(Part::Host(zeros.into()));
        len = len.saturating_sub(step);
    }
}
