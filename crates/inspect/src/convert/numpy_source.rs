use std::borrow::Cow;
use std::io::{self, Cursor, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use hurray_core::{ElementType, TensorDescriptor};
use hurray_io::{FileMap, Value};
use zip::{CompressionMethod, ZipArchive};

use super::ConvertError;
use super::npy_header::{self, MOST_BYTES, NpyError, NpyHeader};
use super::refusal::Refusal;
use super::safetensors_source::packed;
use super::source::{Bytes, Listed, Source, zeroed};

/// NumPy arrays: one in a file, or many in an archive.
pub(crate) struct NumpySource<'a> {
    listed: Vec<Listed>,
    arrays: Vec<Array>,
    file: &'a [u8],
    /// Without an archive the file is the one array.
    archive: Option<Archive<'a>>,
}

/// How a listed array is read; nothing for one that is refused.
type Array = Option<(usize, NpyHeader)>;

struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    /// Where compressed members are unpacked to.
    scratch: PathBuf,
}

impl<'a> NumpySource<'a> {
    /// The one array of a file, under `name`.
    pub(crate) fn open_npy(file: &'a [u8], name: &str) -> Result<Self, ConvertError> {
        let mut source = Self {
            listed: Vec::new(),
            arrays: Vec::new(),
            file,
            archive: None,
        };
        source
            .list(name.to_owned(), 0, file, file.len() as u64)
            .map_err(|error| npy_error(name, error))?;
        Ok(source)
    }

    /// The arrays of an archive. Compressed ones are unpacked in the folder `scratch`, to `most_unpacked` bytes in all.
    pub(crate) fn open_npz(
        file: &'a [u8],
        scratch: &Path,
        most_unpacked: u64,
    ) -> Result<Self, ConvertError> {
        let mut zip = ZipArchive::new(Cursor::new(file))?;
        if zip.has_overlapping_entries()? {
            return Err(ConvertError::OverlappingMembers);
        }
        // Of two members with one name only the last would be found.
        if zip.has_duplicate_names() {
            return Err(ConvertError::DuplicateMembers);
        }
        let mut source = Self {
            listed: Vec::new(),
            arrays: Vec::new(),
            file,
            archive: None,
        };
        let mut unpacked = 0_u64;
        for number in 0..zip.len() {
            let mut member = zip.by_index(number)?;
            if member.is_dir() {
                continue;
            }
            if member.compression() != CompressionMethod::Stored {
                unpacked = unpacked.saturating_add(member.size());
                if unpacked > most_unpacked {
                    return Err(ConvertError::Unpacked {
                        bytes: unpacked,
                        most: most_unpacked,
                    });
                }
            }
            let name = member.name()?.into_owned();
            let Some(name) = name.strip_suffix(".npy") else {
                source.push(name, Err(Refusal::NoArray), None);
                continue;
            };
            let mut start = Vec::new();
            let size = member.size();
            (&mut member)
                .take(MOST_BYTES as u64)
                .read_to_end(&mut start)
                .map_err(|error| ConvertError::member(name, error))?;
            source
                .list(name.to_owned(), number, &start, size)
                .map_err(|error| npy_error(name, error))?;
        }
        let scratch = scratch.to_owned();
        source.archive = Some(Archive { zip, scratch });
        Ok(source)
    }

    /// Lists an array of `size` bytes that begins with `start`.
    fn list(
        &mut self,
        name: String,
        number: usize,
        start: &[u8],
        size: u64,
    ) -> Result<(), NpyError> {
        match npy_header::parse(start)? {
            Ok(header) => {
                let found = size.saturating_sub(header.data_start as u64);
                if found != header.data_len {
                    let needed = header.data_len;
                    return Err(NpyError::DataLength { needed, found });
                }
                let descriptor = header.descriptor.clone();
                self.push(name, Ok(descriptor), Some((number, header)));
            }
            Err(refusal) => self.push(name, Err(refusal), None),
        }
        Ok(())
    }

    fn push(&mut self, name: String, descriptor: Result<TensorDescriptor, Refusal>, array: Array) {
        let note = match &array {
            Some((_, header)) if header.swapped.is_some() => {
                Some("big-endian, bytes swapped".into())
            }
            Some((_, header)) if header.descriptor.element_type == ElementType::Bool => {
                Some("bool, packed to one bit for each".into())
            }
            _ => None,
        };
        self.listed.push(Listed {
            name,
            descriptor,
            note,
        });
        self.arrays.push(array);
    }
}

impl<'a> Source<'a> for NumpySource<'a> {
    fn metadata(&self) -> &[(String, Value)] {
        &[]
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn tensors(&self) -> &[Listed] {
        &self.listed
    }

    fn read(&self, number: usize) -> Result<Vec<Bytes<'a>>, ConvertError> {
        let (Some(Some((member, header))), Some(listed)) =
            (self.arrays.get(number), self.listed.get(number))
        else {
            return Ok(Vec::new());
        };
        let start = header.data_start;
        let bytes = match &self.archive {
            None => Bytes::Borrowed(self.file.get(start..).unwrap_or_default()),
            Some(archive) => archive.read(self.file, *member, start, &listed.name)?,
        };
        let is_bool = header.descriptor.element_type == ElementType::Bool;
        Ok(vec![match header.swapped {
            Some(width) => Bytes::Owned(swapped(&bytes, width)?),
            None if is_bool => Bytes::Owned(packed(&bytes)?),
            None => bytes,
        }])
    }
}

impl<'a> Archive<'a> {
    /// The bytes of a member from `start` on, checked against its CRC.
    fn read(
        &self,
        file: &'a [u8],
        number: usize,
        start: usize,
        name: &str,
    ) -> Result<Bytes<'a>, ConvertError> {
        let failed = |error| ConvertError::member(name, error);
        // A handle of its own, since reading takes one for itself.
        let mut zip = self.zip.clone();
        let mut member = zip.by_index(number)?;
        let size = member.size();
        if member.compression() == CompressionMethod::Stored {
            if member.compressed_size() != size {
                return Err(failed(io::ErrorKind::InvalidData.into()));
            }
            let range = member.data_start().and_then(|first| part(first, size));
            io::copy(&mut member, &mut io::sink()).map_err(failed)?;
            let bytes = range.and_then(|range| file.get(range)?.get(start..));
            return bytes
                .map(Bytes::Borrowed)
                .ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut unpacked = tempfile::tempfile_in(&self.scratch).map_err(failed)?;
        let copied = io::copy(&mut member.take(size.saturating_add(1)), &mut unpacked);
        let found = copied.map_err(failed)?;
        if found != size {
            return Err(failed(io::ErrorKind::InvalidData.into()));
        }
        unpacked.flush().map_err(failed)?;
        let map = FileMap::new(&unpacked).map_err(failed)?;
        Ok(Bytes::Unpacked(map, start))
    }
}

fn part(start: u64, len: u64) -> Option<Range<usize>> {
    let end = start.checked_add(len)?;
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// The numbers of `width` bytes each, the other end first.
fn swapped(bytes: &[u8], width: usize) -> Result<Vec<u8>, ConvertError> {
    let mut swapped = zeroed(bytes.len())?;
    for (to, from) in swapped.chunks_mut(width).zip(bytes.chunks(width)) {
        to.copy_from_slice(from);
        to.reverse();
    }
    Ok(swapped)
}

fn npy_error(name: &str, source: NpyError) -> ConvertError {
    ConvertError::Npy {
        name: Cow::Borrowed(name).into_owned(),
        source,
    }
}
