//! The container without I/O: bytes in, and which bytes are needed next (`file.md`).

use std::cmp::Ordering;
use std::{io, ops::Range};

use hurray_core::{Layout, TensorDescriptor};
use smallvec::SmallVec;

use crate::file_error::{FileError, Section};
use crate::index::{self, Entry};
use crate::metadata::{self, Value};

pub(crate) const MAGIC: [u8; 8] = *b"HRRYFILE";
pub(crate) const TRAILER_MAGIC: [u8; 4] = *b"HRRY";
pub(crate) const HEADER_LEN: u64 = 64;
pub(crate) const TRAILER_LEN: u64 = 40;
/// Descriptors and sections begin on multiples of it.
pub(crate) const SECTION_ALIGNMENT: u64 = 8;

pub(crate) const HAS_METADATA: u32 = 1;
pub(crate) const INDEX_IS_SORTED: u32 = 1 << 1;
pub(crate) const HAS_CHECKSUM: u32 = 1 << 2;
const KNOWN_FLAGS: u32 = HAS_METADATA | INDEX_IS_SORTED | HAS_CHECKSUM;

/// Whether the buffers of a file may begin on multiples of `alignment` (FC29).
pub(crate) const fn is_data_alignment(alignment: u32) -> bool {
    alignment.is_power_of_two() && alignment >= 4096 && alignment <= 1 << 21
}

#[derive(Clone, Copy, Debug)]
struct Header {
    flags: u32,
    alignment: u32,
    first_descriptor: u64,
}

#[derive(Clone, Copy, Debug)]
struct Trailer {
    index: (u64, u64),
    metadata: (u64, u32),
    checksum: u32,
}

/// Opens a container: tells which bytes of the file it needs, and takes them.
///
/// ```text
/// start(size) ─> Needs ─ supply(bytes) ─> Needs … ─> Done(Container)
/// ```
///
/// It asks for the header, the trailer, the index and, where there is one, the metadata; never for bytes that are not in the file.
#[derive(Debug)]
pub struct ContainerParser {
    size: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Header,
    Trailer(Header),
    Index(Header, Trailer),
    Metadata(Header, Trailer, Index),
}

type Index = (Vec<Entry>, Vec<u32>);

/// How far a container is open.
#[derive(Debug)]
pub enum Opening {
    /// It needs the bytes of [`ContainerParser::range`].
    Needs(ContainerParser),
    /// It is open.
    Done(Container),
}

impl ContainerParser {
    /// Begins with a file of `size` bytes.
    ///
    /// # Errors
    /// FC1.
    pub fn start(size: u64) -> Result<Self, FileError> {
        if size < HEADER_LEN {
            return Err(FileError::NoHeader { size });
        }
        Ok(Self {
            size,
            state: State::Header,
        })
    }

    /// The bytes of the file that [`supply`](Self::supply) takes next.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match &self.state {
            State::Header => 0..HEADER_LEN,
            State::Trailer(_) => self.trailer()..self.size,
            State::Index(_, trailer) => trailer.index_range(),
            State::Metadata(_, trailer, _) => trailer.metadata_range(),
        }
    }

    /// Takes the bytes of [`range`](Self::range).
    ///
    /// # Errors
    /// The first rule of FC2–FC40 that the file breaks as far as it was read, those excluded that need a descriptor; as many bytes as asked for
    /// did not come (`UnexpectedEof`).
    pub fn supply(self, bytes: &[u8]) -> Result<Opening, FileError> {
        let range = self.range();
        if bytes.len() as u64 != range.end.saturating_sub(range.start) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let size = self.size;
        let state = match self.state {
            State::Header => State::Trailer(Header::parse(bytes, size)?),
            State::Trailer(header) => {
                State::Index(header, Trailer::parse(bytes, &header, self.trailer())?)
            }
            State::Index(header, trailer) => {
                let index = trailer.parse_index(&header, bytes)?;
                if trailer.metadata.1 == 0 {
                    return Container::new(size, header, trailer, index, Vec::new())
                        .map(Opening::Done);
                }
                State::Metadata(header, trailer, index)
            }
            State::Metadata(header, trailer, index) => {
                let metadata = metadata::parse(bytes)?;
                return Container::new(size, header, trailer, index, metadata).map(Opening::Done);
            }
        };
        Ok(Opening::Needs(Self { size, state }))
    }

    fn trailer(&self) -> u64 {
        self.size.saturating_sub(TRAILER_LEN)
    }
}

impl Header {
    /// FC2–FC5, FC28–FC30.
    fn parse(bytes: &[u8], size: u64) -> Result<Self, FileError> {
        let found = field(bytes, 0);
        if found != MAGIC {
            return Err(FileError::Magic { found });
        }
        let [major, _minor] = field(bytes, 8);
        if major != 1 {
            return Err(FileError::Version { major });
        }
        let flags = u32::from_le_bytes(field(bytes, 12));
        if flags & !KNOWN_FLAGS != 0 {
            return Err(FileError::Flags { flags });
        }
        if size < HEADER_LEN + TRAILER_LEN {
            return Err(FileError::NoTrailer { size });
        }
        if field(bytes, 10) != [0; 2] || field(bytes, 36) != [0; 28] {
            return Err(FileError::Reserved {
                section: Section::Header,
            });
        }
        let alignment = u32::from_le_bytes(field(bytes, 16));
        if !is_data_alignment(alignment) {
            return Err(FileError::Alignment { alignment });
        }
        let first_descriptor = u64::from_le_bytes(field(bytes, 20));
        if first_descriptor < HEADER_LEN || !first_descriptor.is_multiple_of(SECTION_ALIGNMENT) {
            return Err(FileError::FirstDescriptor {
                stated: first_descriptor,
                found: None,
            });
        }
        Ok(Self {
            flags,
            alignment,
            first_descriptor,
        })
    }
}

impl Trailer {
    /// FC6, FC7, FC13, FC28, FC36–FC38. The trailer begins at `at`.
    fn parse(bytes: &[u8], header: &Header, at: u64) -> Result<Self, FileError> {
        let found = field(bytes, 36);
        if found != TRAILER_MAGIC {
            return Err(FileError::TrailerMagic { found });
        }
        if field(bytes, 32) != [0; 4] {
            return Err(FileError::Reserved {
                section: Section::Trailer,
            });
        }
        let trailer = Self {
            index: (
                u64::from_le_bytes(field(bytes, 0)),
                u64::from_le_bytes(field(bytes, 8)),
            ),
            metadata: (
                u64::from_le_bytes(field(bytes, 16)),
                u32::from_le_bytes(field(bytes, 24)),
            ),
            checksum: u32::from_le_bytes(field(bytes, 28)),
        };
        trailer.check_index(at)?;
        trailer.check_metadata(header, at)?;
        if header.flags & HAS_CHECKSUM == 0 && trailer.checksum != 0 {
            return Err(FileError::UnannouncedChecksum {
                stated: trailer.checksum,
            });
        }
        Ok(trailer)
    }

    fn check_index(&self, trailer: u64) -> Result<(), FileError> {
        let (offset, length) = self.index;
        if !ends_by(offset, length, trailer) {
            return Err(FileError::IndexRange {
                offset,
                length,
                trailer,
            });
        }
        check_section(Section::Index, offset)
    }

    fn check_metadata(&self, header: &Header, trailer: u64) -> Result<(), FileError> {
        let (offset, length) = self.metadata;
        let announced = header.flags & HAS_METADATA != 0;
        if (offset == 0) != (length == 0) || announced && offset == 0 {
            return Err(FileError::MetadataPresence {
                offset,
                length,
                announced,
            });
        }
        if !ends_by(offset, length.into(), trailer) {
            return Err(FileError::MetadataRange {
                offset,
                length: length.into(),
                trailer,
            });
        }
        check_section(Section::Metadata, offset)
    }

    /// FC8, then those of the index.
    fn parse_index(&self, header: &Header, bytes: &[u8]) -> Result<Index, FileError> {
        if header.flags & HAS_CHECKSUM != 0 {
            let computed = crc32c::crc32c(bytes);
            if computed != self.checksum {
                return Err(FileError::Checksum {
                    stated: self.checksum,
                    computed,
                });
            }
        }
        index::parse(bytes, header.flags & INDEX_IS_SORTED != 0)
    }

    fn index_range(&self) -> Range<u64> {
        let (offset, length) = self.index;
        offset..offset.saturating_add(length)
    }

    fn metadata_range(&self) -> Range<u64> {
        let (offset, length) = self.metadata;
        offset..offset.saturating_add(length.into())
    }
}

/// `N` bytes of a header or trailer, which have their fixed lengths.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    field.copied().unwrap_or([0; N])
}

fn ends_by(offset: u64, length: u64, limit: u64) -> bool {
    offset.checked_add(length).is_some_and(|end| end <= limit)
}

fn check_section(section: Section, offset: u64) -> Result<(), FileError> {
    if offset.is_multiple_of(SECTION_ALIGNMENT) {
        Ok(())
    } else {
        Err(FileError::SectionOffset { section, offset })
    }
}

/// An open container: where the tensors are, and the metadata. Every range lies in the file, and no two share bytes.
#[derive(Debug)]
pub struct Container {
    size: u64,
    alignment: u32,
    is_sorted: bool,
    entries: Vec<Entry>,
    /// Entries in the order of their names.
    by_name: Vec<u32>,
    /// Entries in the order of their descriptors.
    by_offset: Vec<u32>,
    metadata: Vec<(String, Value)>,
}

impl Container {
    fn new(
        size: u64,
        header: Header,
        trailer: Trailer,
        (entries, by_name): Index,
        metadata: Vec<(String, Value)>,
    ) -> Result<Self, FileError> {
        for entry in &entries {
            check_entry(entry, size, &header)?;
        }
        let mut by_offset: Vec<u32> = (0..entries.len() as u32).collect();
        by_offset.sort_by_key(|&entry| entries.get(entry as usize).map(Entry::descriptor_start));
        let lowest = by_offset
            .first()
            .and_then(|&first| entries.get(first as usize));
        if let Some(lowest) = lowest
            && lowest.descriptor_offset != header.first_descriptor
        {
            return Err(FileError::FirstDescriptor {
                stated: header.first_descriptor,
                found: Some(lowest.descriptor_offset),
            });
        }
        check_overlap(size, &trailer, &entries)?;
        Ok(Self {
            size,
            alignment: header.alignment,
            is_sorted: header.flags & INDEX_IS_SORTED != 0,
            entries,
            by_name,
            by_offset,
            metadata,
        })
    }

    /// The tensors and heads in the order of the index.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The metadata in the writer's order.
    #[must_use]
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// The file's bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What the buffers are aligned to in the file.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Whether the index is in the order of the names.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        self.is_sorted
    }

    /// The number of the entry of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        let order = |&entry: &u32| match self.entries.get(entry as usize) {
            Some(entry) => (*entry.name).cmp(name),
            None => Ordering::Less,
        };
        let at = self.by_name.binary_search_by(order).ok()?;
        self.by_name.get(at).map(|&entry| entry as usize)
    }

    /// The numbers of the entries from `entry` on in the order of their descriptors, which is that of a composite's members.
    pub(crate) fn in_file_order_from(&self, entry: usize) -> impl Iterator<Item = usize> {
        let start = self.entries.get(entry).map(Entry::descriptor_start);
        let at = self.by_offset.partition_point(|&other| {
            self.entries
                .get(other as usize)
                .map(Entry::descriptor_start)
                < start
        });
        let rest = self.by_offset.get(at..).unwrap_or_default();
        rest.iter().map(|&entry| entry as usize)
    }

    /// The numbers of all entries in the order of their descriptors.
    pub(crate) fn in_file_order(&self) -> impl Iterator<Item = usize> {
        self.by_offset.iter().map(|&entry| entry as usize)
    }

    /// Decodes the descriptor of an entry from its bytes.
    ///
    /// # Errors
    /// FC22, FC23.
    pub fn decode(&self, entry: &Entry, bytes: &[u8]) -> Result<TensorDescriptor, FileError> {
        let decoded = TensorDescriptor::decode(bytes);
        if let Some(&found) = bytes.get(6..).and_then(<[u8]>::first_chunk)
            && bytes.starts_with(&TRAILER_MAGIC)
        {
            let found = u32::from_le_bytes(found);
            if found != entry.descriptor_length {
                return Err(FileError::DescriptorLength {
                    name: entry.name.clone(),
                    stated: entry.descriptor_length,
                    found: Some(found),
                });
            }
        } else if bytes.len() < 10 {
            return Err(FileError::DescriptorLength {
                name: entry.name.clone(),
                stated: entry.descriptor_length,
                found: None,
            });
        }
        match decoded {
            Ok((descriptor, _)) => Ok(descriptor),
            Err(source) => Err(FileError::Descriptor {
                name: entry.name.clone(),
                source,
            }),
        }
    }

    /// Where the buffers of a tensor are in the file.
    ///
    /// # Errors
    /// FC24, FC32, FC33.
    pub fn buffer_ranges(
        &self,
        entry: &Entry,
        descriptor: &TensorDescriptor,
    ) -> Result<SmallVec<[Range<u64>; 3]>, FileError> {
        // A head may have its gap or not (decision 8).
        let is_head = matches!(descriptor.layout, Layout::Composite(_));
        if !is_head && !entry.data_offset.is_multiple_of(self.alignment.into()) {
            return Err(self.data_offset(entry));
        }
        let mut ranges = SmallVec::new();
        let mut position = entry.data_offset;
        for row in &descriptor.buffers {
            let range = position
                .checked_next_multiple_of(self.alignment.into())
                .and_then(|start| Some(start..start.checked_add(row.byte_size)?))
                .filter(|range| range.end <= self.size);
            let range = range.ok_or_else(|| FileError::DataRange {
                name: entry.name.clone(),
                offset: entry.data_offset,
                length: position
                    .saturating_sub(entry.data_offset)
                    .saturating_add(row.byte_size),
                size: self.size,
            })?;
            position = range.end;
            ranges.push(range);
        }
        let needed = position.saturating_sub(entry.data_offset);
        if needed != entry.data_length {
            return Err(FileError::DataLength {
                name: entry.name.clone(),
                stated: entry.data_length,
                needed,
            });
        }
        Ok(ranges)
    }

    fn data_offset(&self, entry: &Entry) -> FileError {
        FileError::DataOffset {
            name: entry.name.clone(),
            offset: entry.data_offset,
            alignment: self.alignment,
        }
    }
}

/// FC21, FC24, FC31, FC32 as far as the entry tells.
fn check_entry(entry: &Entry, size: u64, header: &Header) -> Result<(), FileError> {
    let trailer = size.saturating_sub(TRAILER_LEN);
    let first = header.first_descriptor;
    let offset = entry.descriptor_offset;
    let length = entry.descriptor_length.into();
    if !ends_by(offset, length, trailer) {
        return Err(FileError::DescriptorRange {
            name: entry.name.clone(),
            offset,
            length,
            trailer,
        });
    }
    if offset < first || !offset.is_multiple_of(SECTION_ALIGNMENT) {
        return Err(FileError::DescriptorOffset {
            name: entry.name.clone(),
            offset,
            first,
        });
    }
    if !ends_by(entry.data_offset, entry.data_length, size) {
        return Err(FileError::DataRange {
            name: entry.name.clone(),
            offset: entry.data_offset,
            length: entry.data_length,
            size,
        });
    }
    if entry.data_length > 0 && !entry.data_offset.is_multiple_of(header.alignment.into()) {
        return Err(FileError::DataOffset {
            name: entry.name.clone(),
            offset: entry.data_offset,
            alignment: header.alignment,
        });
    }
    Ok(())
}

/// FC35.
fn check_overlap(size: u64, trailer: &Trailer, entries: &[Entry]) -> Result<(), FileError> {
    /// What a range belongs to; the name is written only into an error.
    #[derive(Clone, Copy)]
    enum Part {
        Header,
        Descriptor(u32),
        Data(u32),
        Metadata,
        Index,
        Trailer,
    }
    let mut parts = Vec::with_capacity(entries.len().saturating_mul(2).saturating_add(4));
    parts.push((0, HEADER_LEN, Part::Header));
    for (number, entry) in (0..).zip(entries) {
        let (descriptor, data) = (entry.descriptor(), entry.data());
        parts.push((descriptor.start, descriptor.end, Part::Descriptor(number)));
        parts.push((data.start, data.end, Part::Data(number)));
    }
    let (metadata, index) = (trailer.metadata_range(), trailer.index_range());
    parts.push((metadata.start, metadata.end, Part::Metadata));
    parts.push((index.start, index.end, Part::Index));
    parts.push((size.saturating_sub(TRAILER_LEN), size, Part::Trailer));
    // Nothing lies in an empty range.
    parts.retain(|&(start, end, _)| start < end);
    // Stable, since parts are mostly in order.
    parts.sort_by_key(|&(start, ..)| start);
    let name = |number: u32| {
        let entry = entries.get(number as usize);
        entry.map(|entry| entry.name.clone()).unwrap_or_default()
    };
    let section = |part| match part {
        Part::Header => Section::Header,
        Part::Descriptor(number) => Section::Descriptor(name(number)),
        Part::Data(number) => Section::Data(name(number)),
        Part::Metadata => Section::Metadata,
        Part::Index => Section::Index,
        Part::Trailer => Section::Trailer,
    };
    match parts.windows(2).find_map(|pair| match *pair {
        [(_, end, first), (start, _, second)] if end > start => Some((first, second)),
        _ => None,
    }) {
        Some((first, second)) => Err(FileError::Overlap {
            first: section(first),
            second: section(second),
        }),
        None => Ok(()),
    }
}
