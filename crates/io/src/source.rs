//! Where a file's bytes are, and how they come to memory.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;

use hurray_core::memory::{AlignedBytes, AllocationError};
use hurray_ffi::Buffer;

use crate::FileError;
use crate::file_bytes::{FileBytes, into_chunk};
use crate::host_bytes::host_bytes;
use crate::parallel::{self, PART};
use crate::progress::Progress;

/// More threads than this do not make reading into host memory faster.
const MOST_THREADS: usize = 8;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) enum Source {
    /// In memory, which tensors borrow: that of the file itself, where it is mapped.
    Memory(Buffer, Option<FileBytes>),
    /// In a file, from which those are read that are asked for.
    File(FileBytes),
}

impl From<File> for Source {
    fn from(file: File) -> Self {
        Self::File(FileBytes::new(file))
    }
}

impl Source {
    /// How many there are.
    pub(crate) fn size(&self) -> Result<u64, FileError> {
        Ok(match self {
            Self::Memory(bytes, _) => bytes.len() as u64,
            Self::File(bytes) => bytes.file().metadata()?.len(),
        })
    }

    /// The bytes of `range`, which the file was found to have: as many as that, unless it was truncated since.
    pub(crate) fn bytes(&self, range: &Range<u64>) -> Result<Cow<'_, [u8]>, FileError> {
        match self {
            Self::Memory(memory, _) => Ok(part(memory, range)?.into()),
            Self::File(file) => {
                let len = len(range)?;
                let mut bytes = Vec::new();
                bytes
                    .try_reserve_exact(len)
                    .map_err(|_| AllocationError::Exhausted { len, alignment: 1 })?;
                bytes.resize(len, 0);
                file.read(&mut bytes, range.start)?;
                Ok(bytes.into())
            }
        }
    }

    /// Brings `range` into `chunk`, as [`FileBytes::read_chunk`] does.
    pub(crate) fn read_chunk(
        &self,
        chunk: &mut [u8],
        range: &Range<u64>,
        is_direct: bool,
    ) -> Result<(), FileError> {
        match self {
            Self::Memory(memory, None) => {
                let bytes = part(memory, range)?;
                let target = chunk
                    .get_mut(into_chunk(range.start)..)
                    .and_then(|chunk| chunk.get_mut(..bytes.len()));
                target
                    .ok_or(io::Error::from(io::ErrorKind::InvalidInput))?
                    .copy_from_slice(bytes);
                Ok(())
            }
            // A page fault for every page would be slower.
            Self::Memory(_, Some(file)) | Self::File(file) => {
                Ok(file.read_chunk(chunk, range, is_direct)?)
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
            Self::Memory(memory, _) => ranges
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
                let parts = memory.iter_mut().zip(ranges).flat_map(|(memory, range)| {
                    memory.chunks_mut(PART).zip((range.start..).step_by(PART))
                });
                parallel::for_each(
                    parts,
                    total(ranges),
                    MOST_THREADS,
                    || Ok(()),
                    |(), (target, offset)| {
                        file.read(target, offset)?;
                        Ok(target.len() as u64)
                    },
                    progress,
                )?;
                Ok(memory.into_iter().map(Buffer::from).collect())
            }
        }
    }
}

/// The bytes of all ranges.
pub(crate) fn total(ranges: &[Range<u64>]) -> u64 {
    let lens = ranges
        .iter()
        .map(|range| range.end.saturating_sub(range.start));
    lens.fold(0, u64::saturating_add)
}

/// The bytes of a range, which memory is to hold.
pub(crate) fn len(range: &Range<u64>) -> io::Result<usize> {
    let len = range.end.saturating_sub(range.start);
    usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

fn part<'a>(memory: &'a Buffer, range: &Range<u64>) -> Result<&'a [u8], FileError> {
    let bytes = host_bytes(0, &memory.handle(), memory)?;
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    Ok(bytes.get(start..end).unwrap_or_default())
}
