//! Writes of many parts from where they lie.

use std::io::{self, IoSlice, Write};

use hurray_core::{BufferHandle, DeviceError};
use hurray_ffi::{Buffer, OrderError, Place};
use thiserror::Error;

use crate::from_device::FromDevice;

/// As many zeros as one slice of a gap has.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Bytes on their way out.
#[derive(Clone, Debug)]
pub(crate) enum Part<'a> {
    /// In memory that the host may read.
    Host(&'a [u8]),
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

    /// Where the device has them that has to bring them.
    fn place(&self) -> Option<Place> {
        match self {
            Self::Host(_) => None,
            Self::Device { buffer, .. } => Some(buffer.place()),
        }
    }
}

/// Bytes that did not come through.
#[derive(Debug, Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Order(#[from] OrderError),
}

impl From<DeviceError> for WriteError {
    fn from(error: DeviceError) -> Self {
        Self::Order(error.into())
    }
}

/// Adds a gap of `len` zeros.
pub(crate) fn push_zeros(parts: &mut Vec<Part<'_>>, mut len: u64) {
    while len > 0 {
        let step = len.min(ZEROS.len() as u64);
        parts.push(Part::Host(ZEROS.get(..step as usize).unwrap_or(&ZEROS)));
        len = len.saturating_sub(step);
    }
}

/// Writes all of `parts`: what the host has from where it lies, what a device has through pinned chunks.
pub(crate) fn write_parts(sink: &mut impl Write, parts: &[Part<'_>]) -> Result<(), WriteError> {
    let mut rest = parts;
    while !rest.is_empty() {
        let first = rest.iter().find_map(Part::place);
        let is_elsewhere = |part: &Part<'_>| match (part.place(), first) {
            (Some(place), Some(first)) => {
                (place.device, place.device_id) != (first.device, first.device_id)
            }
            _ => false,
        };
        let count = rest.iter().position(is_elsewhere).unwrap_or(rest.len());
        let (run, others) = rest.split_at(count);
        match first {
            Some(place) => FromDevice::new(place)?.write(sink, run)?,
            None => {
                let host = run.iter().filter_map(|part| match part {
                    Part::Host(bytes) => Some(IoSlice::new(bytes)),
                    Part::Device { .. } => None,
                });
                write_gathered(sink, &mut Vec::from_iter(host))?;
            }
        }
        rest = others;
    }
    Ok(())
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
