//! Bytes of an input, read where they lie.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of what is read of a buffer at a time.
const PIECE: u64 = 1 << 22;

/// The bytes `range` of `file`.
pub(crate) fn whole(file: &File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let length =
        usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length)?;
    bytes.resize(length, 0);
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

/// Ranges of `range` that are short enough to be read as one.
pub(crate) fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    let mut start = range.start;
    std::iter::from_fn(move || {
        let piece = start..start.saturating_add(PIECE).min(end);
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}
