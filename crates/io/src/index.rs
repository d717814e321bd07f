//! The index section of a file (`file.md` § 5).

use std::ops::Range;

use crate::FileError;
use crate::cursor::Cursor;
use crate::file_error::Section;

/// The bytes of an entry whose name has one byte.
const LEAST_ENTRY: usize = 35;

/// Where one tensor of a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Box<str>,
    /// The first byte of its descriptor.
    pub descriptor_offset: u64,
    /// Bytes of its descriptor.
    pub descriptor_length: u32,
    /// The first byte of its first buffer.
    pub data_offset: u64,
    /// Bytes to the end of its last buffer, gaps included.
    pub data_length: u64,
}

impl Entry {
    /// What orders tensors in a file.
    pub(crate) fn descriptor_start(&self) -> u64 {
        self.descriptor_offset
    }

    /// The bytes of the descriptor; in the file, as was checked when it was opened.
    #[must_use]
    pub fn descriptor(&self) -> Range<u64> {
        let end = self
            .descriptor_offset
            .saturating_add(self.descriptor_length.into());
        self.descriptor_offset..end
    }

    /// The bytes of the buffers and the gaps between them.
    pub(crate) fn data(&self) -> Range<u64> {
        self.data_offset..self.data_offset.saturating_add(self.data_length)
    }
}

/// Reads the section: FC9–FC12, FC34, FC39, FC40. Gives the entries and their numbers in the order of their names.
pub(crate) fn parse(bytes: &[u8], is_sorted: bool) -> Result<(Vec<Entry>, Vec<u32>), FileError> {
    let mut cursor = Cursor { rest: bytes };
    let count = cursor
        .u64()
        .ok_or(FileError::IndexTruncated { entry: 0, count: 0 })?;
    let most = cursor.rest.len() / LEAST_ENTRY;
    let room = match usize::try_from(count) {
        Ok(room) if room <= most && u32::try_from(room).is_ok() => room,
        _ => {
            return Err(FileError::IndexTruncated {
                entry: most as u64,
                count,
            });
        }
    };
    let mut entries = Vec::with_capacity(room);
    for entry in 0..count {
        let truncated = FileError::IndexTruncated { entry, count };
        entries.push(parse_entry(entry, &mut cursor)?.ok_or(truncated)?);
    }
    if !cursor.rest.is_empty() {
        return Err(FileError::Trailing {
            section: Section::Index,
            bytes: cursor.rest.len(),
        });
    }
    let mut by_name: Vec<u32> = (0..room as u32).collect();
    let name = |entry: &u32| entries.get(*entry as usize).map(|entry| &*entry.name);
    if is_sorted && let Some([first, second]) = descent(&by_name, name) {
        return Err(FileError::Unsorted {
            before: first.into(),
            name: second.into(),
        });
    }
    // Stable: it is linear where the names ascend already.
    by_name.sort_by_key(name);
    match by_name
        .windows(2)
        .find(|pair| pair.first().map(name) == pair.last().map(name))
    {
        Some([first, ..]) => Err(FileError::DuplicateName {
            name: name(first).unwrap_or_default().into(),
        }),
        _ => Ok((entries, by_name)),
    }
}

/// The first two neighbours of which the second is lower.
fn descent<'a>(numbers: &[u32], name: impl Fn(&u32) -> Option<&'a str>) -> Option<[&'a str; 2]> {
    numbers.windows(2).find_map(|pair| {
        let (first, second) = (name(pair.first()?)?, name(pair.last()?)?);
        (first > second).then_some([first, second])
    })
}

fn parse_entry(entry: u64, cursor: &mut Cursor<'_>) -> Result<Option<Entry>, FileError> {
    let Some(name) = cursor.u16().and_then(|len| cursor.take(len.into())) else {
        return Ok(None);
    };
    if name.is_empty() {
        return Err(FileError::EmptyName { entry });
    }
    let Ok(name) = str::from_utf8(name) else {
        return Err(FileError::NameUtf8 { entry });
    };
    let mut numbers = || {
        Some((
            Entry {
                name: name.into(),
                descriptor_offset: cursor.u64()?,
                descriptor_length: cursor.u32()?,
                data_offset: cursor.u64()?,
                data_length: cursor.u64()?,
            },
            cursor.u32()?,
        ))
    };
    match numbers() {
        Some((entry, 0)) => Ok(Some(entry)),
        Some((Entry { name, .. }, flags)) => Err(FileError::EntryFlags { name, flags }),
        None => Ok(None),
    }
}

/// Writes the section.
pub(crate) fn encode<'a>(entries: impl ExactSizeIterator<Item = &'a Entry> + Clone) -> Vec<u8> {
    let names: usize = entries.clone().map(|entry| entry.name.len()).sum();
    let mut bytes = Vec::with_capacity(
        entries
            .len()
            .saturating_mul(34)
            .saturating_add(names)
            .saturating_add(8),
    );
    bytes.extend((entries.len() as u64).to_le_bytes());
    for entry in entries {
        // The writer has checked the length.
        bytes.extend((entry.name.len() as u16).to_le_bytes());
        bytes.extend(entry.name.as_bytes());
        bytes.extend(entry.descriptor_offset.to_le_bytes());
        bytes.extend(entry.descriptor_length.to_le_bytes());
        bytes.extend(entry.data_offset.to_le_bytes());
        bytes.extend(entry.data_length.to_le_bytes());
        bytes.extend([0; 4]);
    }
    bytes
}
