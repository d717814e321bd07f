//! A file: its container as the parser opens it, then each descriptor. No byte of a buffer is read.

use std::fs::File;
use std::io;
use std::ops::Range;

use hurray_io::{ContainerParser, FileError, FileReader, Opening, Section};

use super::{Container, Format, Input, Part};
use crate::data;
use crate::fault::{self, Fault};
use crate::fields;

const TRAILER: u64 = 40;

/// Reads a file of `size` bytes.
pub(super) fn read(file: &File, size: u64) -> io::Result<Input> {
    let mut input = Input {
        format: Format::File,
        size,
        parts: Vec::new(),
        roots: Vec::new(),
        container: None,
        faults: Vec::new(),
        bytes: None,
    };
    let mut sections = Sections {
        size,
        ..Sections::default()
    };
    let container = match sections.open(file)? {
        Ok(container) => container,
        Err(error) => {
            let offset = sections.locate(&error);
            input.faults.push(Fault::of_file(&error, offset));
            return Ok(input);
        }
    };
    input.container = Some(Container {
        alignment: container.alignment(),
        is_sorted: container.is_sorted(),
        metadata: container.metadata().to_vec(),
        index: sections.index.clone(),
        metadata_section: sections.metadata.clone(),
    });
    // An entry's number, and where it is in the index.
    let numbered = sections.entries().map(|(offset, _)| offset).enumerate();
    let mut entries: Vec<_> = container.entries().iter().zip(numbered).collect();
    entries.sort_by_key(|(entry, _)| entry.descriptor_offset);
    let (numbers, places): (Vec<_>, Vec<_>) = entries.iter().map(|(_, place)| *place).unzip();
    for ((entry, _), &place) in entries.iter().zip(&places) {
        let start = entry.descriptor_offset;
        let end = start.saturating_add(entry.descriptor_length.into());
        let bytes = data::whole(file, &(start..end))?;
        let mut part = Part::new(entry.name.to_string(), start, bytes);
        match container.decode(entry, &part.bytes) {
            Ok(descriptor) => {
                // What is wrong with them is found below, with the rest of the tensor.
                let ranges = container.buffer_ranges(entry, &descriptor);
                part.buffers = ranges.map(|ranges| ranges.to_vec()).unwrap_or_default();
                part.descriptor = Some(descriptor);
            }
            Err(error) => {
                let offset = locate_in(&error, (&part, place), &[]);
                input.faults.push(Fault::of_file(&error, offset));
            }
        }
        input.parts.push(part);
    }
    input.nest();
    judge(file, &places, &mut input)?;
    input.roots.sort_by_key(|&part| numbers.get(part));
    Ok(input)
}

/// Asks the reader for each item whose descriptors can be read. `places` are those of the parts in the index.
fn judge(file: &File, places: &[u64], input: &mut Input) -> io::Result<()> {
    let reader = FileReader::map(file.try_clone()?).map_err(io::Error::other)?;
    for root in input.roots.clone() {
        let inside = input.inside(root);
        let (Some(parts), Some(places)) = (input.parts.get_mut(inside.clone()), places.get(inside))
        else {
            continue;
        };
        let Some(first) = parts.first() else { continue };
        if parts.iter().any(|part| part.descriptor.is_none()) {
            continue;
        }
        match reader.item(&first.name) {
            Ok(_) => parts.iter_mut().for_each(|part| part.is_sound = true),
            Err(error) => {
                let named = fault::tensor_of(&error);
                let part = parts.iter().position(|part| Some(&*part.name) == named);
                let part = part.unwrap_or(0);
                let found = parts.get(part).zip(places.get(part).copied());
                let offset = found.and_then(|found| locate_in(&error, found, parts));
                input.faults.push(Fault::of_file(&error, offset));
            }
        }
    }
    Ok(())
}

/// Where a tensor breaks its rule: in `part`, in its place in the index, or in one of the parts of its composite.
fn locate_in(error: &FileError, (part, place): (&Part, u64), inside: &[Part]) -> Option<u64> {
    let within = match error {
        FileError::DescriptorLength { .. } => 6,
        FileError::Composite { source, .. } => {
            return inside.get(fault::item_of(source)).map(|part| part.offset);
        }
        FileError::DataRange { .. }
        | FileError::DataOffset { .. }
        | FileError::DataLength { .. } => return Some(place),
        _ => match fault::error_in_file(error) {
            Some(error) => fields::locate(error, &part.bytes),
            None => 0,
        },
    };
    Some(part.offset.saturating_add(within))
}

/// Where the sections of a file are, as far as they are known.
#[derive(Debug, Default)]
struct Sections {
    size: u64,
    header: Vec<u8>,
    index: Range<u64>,
    index_bytes: Vec<u8>,
    metadata: Range<u64>,
}

impl Sections {
    /// Opens the container.
    fn open(&mut self, file: &File) -> io::Result<Result<hurray_io::Container, FileError>> {
        let mut opening = match ContainerParser::start(self.size) {
            Ok(parser) => Opening::Needs(parser),
            Err(error) => return Ok(Err(error)),
        };
        let mut step = 0;
        loop {
            let parser = match opening {
                Opening::Done(container) => return Ok(Ok(container)),
                Opening::Needs(parser) => parser,
            };
            let range = parser.range();
            let bytes = data::whole(file, &range)?;
            let supplied = parser.supply(&bytes);
            self.note(step, range, bytes);
            opening = match supplied {
                Ok(opening) => opening,
                Err(error) => return Ok(Err(error)),
            };
            step += 1;
        }
    }

    /// Keeps what the parser asked for: the header, the trailer, the index, the metadata.
    fn note(&mut self, step: i32, range: Range<u64>, bytes: Vec<u8>) {
        match step {
            0 => self.header = bytes,
            1 => {}
            2 => (self.index, self.index_bytes) = (range, bytes),
            _ => self.metadata = range,
        }
    }

    /// Where a container breaks its rule.
    fn locate(&self, error: &FileError) -> Option<u64> {
        use FileError as E;
        let trailer = self.size.saturating_sub(TRAILER);
        Some(match error {
            E::NoHeader { size } | E::NoTrailer { size } => *size,
            E::Magic { .. } => 0,
            E::Version { .. } => 8,
            E::Flags { .. } => 12,
            E::Reserved {
                section: Section::Header,
            } => {
                let is_early = self.header.get(10..12) != Some(&[0; 2]);
                if is_early { 10 } else { 36 }
            }
            E::Reserved { .. } => trailer.saturating_add(32),
            E::Alignment { .. } => 16,
            E::FirstDescriptor { .. } => 20,
            E::TrailerMagic { .. } => trailer.saturating_add(36),
            E::IndexRange { .. }
            | E::SectionOffset {
                section: Section::Index,
                ..
            } => trailer,
            E::MetadataRange { .. } | E::SectionOffset { .. } | E::MetadataPresence { .. } => {
                trailer.saturating_add(16)
            }
            E::Checksum { .. } | E::UnannouncedChecksum { .. } => trailer.saturating_add(28),
            E::IndexTruncated { entry, .. } | E::EmptyName { entry } | E::NameUtf8 { entry } => {
                self.entry(*entry)
            }
            E::Trailing { section, bytes } => {
                let section = match section {
                    Section::Index => &self.index,
                    _ => &self.metadata,
                };
                section.end.saturating_sub(*bytes as u64)
            }
            E::Overlap { second, .. } => self.section(second)?,
            _ => match fault::tensor_of(error) {
                Some(name) => self.named(name)?,
                None => self.metadata.start,
            },
        })
    }

    fn section(&self, section: &Section) -> Option<u64> {
        let entry = |name: &str, field: u64| {
            let entry = self.named(name)?.saturating_add(2);
            let at = entry
                .saturating_add(name.len() as u64)
                .saturating_add(field);
            let at = usize::try_from(at.checked_sub(self.index.start)?).ok()?;
            let bytes = self.index_bytes.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        Some(match section {
            Section::Header => 0,
            Section::Descriptor(name) => entry(name, 0)?,
            Section::Data(name) => entry(name, 12)?,
            Section::Metadata => self.metadata.start,
            Section::Index => self.index.start,
            _ => self.size.saturating_sub(TRAILER),
        })
    }

    /// The first byte of entry `number` of the index.
    fn entry(&self, number: u64) -> u64 {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let entry = self.entries().nth(number);
        entry.map_or(self.index.end, |(offset, _)| offset)
    }

    /// The first byte of the last entry of this name.
    fn named(&self, name: &str) -> Option<u64> {
        let entries = self.entries();
        let found = entries.filter(|(_, found)| *found == name.as_bytes());
        found.last().map(|(offset, _)| offset)
    }

    /// Where the entries begin, and their names.
    fn entries(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = self.index_bytes.get(8..).unwrap_or_default();
        std::iter::from_fn(move || {
            let offset = self.index.end.saturating_sub(rest.len() as u64);
            let length = rest.split_off(..2)?.first_chunk().copied()?;
            let name = rest.split_off(..u16::from_le_bytes(length).into())?;
            // Offset and length of descriptor and data, and the flags.
            rest = rest.get(32..).unwrap_or_default();
            Some((offset, name))
        })
    }
}
