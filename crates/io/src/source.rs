//! Where a file's bytes are, and how they come to memory.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use hurray_core::memory::AlignedBytes;
use hurray_ffi::Buffer;

use crate::FileError;
use crate::host_bytes::host_bytes;
use crate::parallel_read::read_parts;
use crate::progress::Progress;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) enum Source {
    /// In memory, which tensors borrow.
    Memory(Buffer),
    /// In a file, from which those are read that are asked for.
    File(File),
}

impl Source {
    /// How many there are.
    pub(crate) fn size(&self) -> Result<u64, FileError> {
        Ok(match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.metadata()?.len(),
        })
    }

    /// The bytes of `range`, which the file was found to have: as many as that, unless it was truncated since.
    pub(crate) fn bytes(&self, range: &Range<u64>) -> Result<Cow<'_, [u8]>, FileError> {
        match self {
            Self::Memory(memory) => {
                let bytes = host_bytes(0, &memory.handle(), memory)?;
                let start = usize::try_from(range.start).unwrap_or(usize::MAX);
                let end = usize::try_from(range.end).unwrap_or(usize::MAX);
                Ok(bytes.get(start..end).unwrap_or_default().into())
            }
            Self::File(file) => {
                let mut bytes = vec![0; len(range)?];
                file.read_exact_at(&mut bytes, range.start)?;
                Ok(bytes.into())
            }
        }
    }

    /// The buffers of `ranges`: borrowed, or read on several threads into memory of their own, aligned as the format asks.
    pub(crate) fn buffers(
        &self,
        ranges: &[Range<u64>],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Buffer>, FileError> {
        match self {
            Self::Memory(memory) => ranges
                .iter()
                .map(|range| {
                    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
                    memory.slice(start, len(range)?).map_err(io::Error::other)
                })
                .map(|buffer| buffer.map_err(FileError::from))
                .collect(),
            Self::File(file) => {
                let memory: Result<Vec<_>, FileError> = ranges
                    .iter()
                    .map(|range| Ok(AlignedBytes::zeroed(len(range)?)?))
                    .collect();
                let mut memory = memory?;
                let targets = memory.iter_mut().zip(ranges);
                let targets = targets.map(|(memory, range)| (&mut **memory, range.start));
                read_parts(file, targets, progress)?;
                Ok(memory.into_iter().map(Buffer::from).collect())
            }
        }
    }
}

/// The bytes of a range, which memory is to hold.
fn len(range: &Range<u64>) -> io::Result<usize> {
    let len = range.end.saturating_sub(range.start);
    usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory.into())
}
