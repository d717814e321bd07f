use std::io::{self, IoSlice, Write};

/// As many zeros as one slice of a gap has.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Adds a gap of `len` zeros.
pub(crate) fn push_zeros(parts: &mut Vec<IoSlice<'_>>, mut len: u64) {
    while len > 0 {
        let step = len.min(ZEROS.len() as u64);
        parts.push(IoSlice::new(ZEROS.get(..step as usize).unwrap_or(&ZEROS)));
        len = len.saturating_sub(step);
    }
}

/// Writes all of `parts` from where they lie.
pub(crate) fn write_gathered(
    sink: &mut impl Write,
    mut parts: &mut [IoSlice<'_>],
) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match sink.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
