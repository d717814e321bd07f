use std::fs::File;
use std::io;
use std::iter;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use hurray_core::composite::Assembler;
use hurray_core::{DeviceTag, Error, Layout, TensorDescriptor};
use hurray_ffi::{Buffer, CompositeAssembler, Item, Place, Tensor, TensorError, measure_rows};
use smallvec::SmallVec;

use crate::FileError;
use crate::container::{Container, ContainerParser, Opening};
use crate::host_bytes::map;
use crate::incoming::declare_elsewhere;
use crate::index::Entry;
use crate::metadata::Value;
use crate::progress::Progress;
use crate::slice::slice;
use crate::source::Source;
use crate::to_device::ToDevice;

/// Where tensors are to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// In host memory; rows that name other memory are kept, and their bytes relayed (`sync.md`).
    #[default]
    Declared,
    /// In host memory, and all rows say so.
    Host,
    /// In memory of a device's own; at a place of the CPU, as [`Host`](Self::Host).
    Device(Place),
}

/// An open file of tensors, which borrow its bytes where it is mapped, and have copies where it is not.
///
/// ```text
/// FileReader ─┐
/// Tensor ─────┼─> map of the file
/// Tensor ─────┘
/// ```
///
/// Opening costs the header, the trailer, the index and the metadata; a descriptor is read when its tensor is asked for. The map lives as long as
/// the reader or any tensor from it, and its pages are private: what is written to a tensor changes neither the file nor what others see of it.
/// Threads may share a reader.
///
/// Not promised: that mapped bytes stay as they are while someone else writes to the file. Replace a file by renaming another over it, as
/// [`save`](crate::save) does; after a truncation in place, touching what is gone ends the process (SIGBUS).
#[derive(Debug)]
pub struct FileReader {
    source: Source,
    container: Container,
}

impl FileReader {
    /// Maps the file at `path`, which must not be changed in place as long as the reader or a tensor from it lives. A file that was truncated
    /// before is refused before it is mapped.
    ///
    /// # Errors
    /// The file cannot be opened or mapped; what [`ContainerParser::supply`] finds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::map(File::open(path)?)
    }

    /// As [`open`](Self::open), with a file that is open already, whatever its position.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn map(file: File) -> Result<Self, FileError> {
        let Self { source, container } = Self::of(file.into())?;
        let Source::File(file) = source else {
            return Ok(Self { source, container });
        };
        let map = map(file.file())?;
        // It may have been truncated since it was looked at.
        if (map.len() as u64) < container.size() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let source = Source::Memory(map, Some(file));
        Ok(Self { source, container })
    }

    /// Opens the file at `path` without a map: bytes are read when they are asked for, into memory of their own. Bytes that have gone by then are an
    /// error.
    ///
    /// # Errors
    /// The file cannot be opened; what [`ContainerParser::supply`] finds.
    pub fn open_unmapped(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::unmapped(File::open(path)?)
    }

    /// As [`open_unmapped`](Self::open_unmapped), with a file that is open already, whatever its position.
    ///
    /// # Errors
    /// As [`open_unmapped`](Self::open_unmapped).
    pub fn unmapped(file: File) -> Result<Self, FileError> {
        Self::of(file.into())
    }

    /// Reads a file whose bytes are all in `file`: memory that the host may read.
    ///
    /// # Errors
    /// What [`ContainerParser::supply`] finds; bytes that may not be read.
    pub fn new(file: Buffer) -> Result<Self, FileError> {
        Self::of(Source::Memory(file, None))
    }

    fn of(source: Source) -> Result<Self, FileError> {
        let container = read_container(&source)?;
        Ok(Self { source, container })
    }

    /// Where everything is, and the metadata.
    #[must_use]
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// The descriptor of an entry; of the head, where that is a composite.
    ///
    /// # Errors
    /// FC22–FC24, FC32, FC33, FC42; the file's.
    pub fn descriptor(&self, name: &str) -> Result<TensorDescriptor, FileError> {
        Ok(self.locate(self.find(name)?)?.descriptor)
    }

    /// The tensor of this name, which may be the member of a composite. Where the file is mapped, no byte of it is touched.
    ///
    /// # Errors
    /// FC22–FC24, FC32, FC33, FC41, FC42; a composite's head; the file's.
    pub fn tensor(&self, name: &str) -> Result<Tensor, FileError> {
        let located = self.locate(self.find(name)?)?;
        if located.descriptor.layout.is_virtual() {
            return Err(FileError::IsComposite { name: name.into() });
        }
        self.read_tensor(located, Target::Declared)
    }

    /// The tensor or the whole composite of this name.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); FC25–FC27.
    pub fn item(&self, name: &str) -> Result<Item, FileError> {
        let items = self.items(&[name], Target::Declared, &mut unwatched)?;
        let none = || FileError::NoTensor { name: name.into() };
        items.into_iter().next().ok_or_else(none)
    }

    /// The tensors and whole composites of these names, in their order. Bytes that are read are read on several threads, and `progress` is told of
    /// them.
    ///
    /// To a device they come through pinned chunks, each copied while others are read, past the page cache where they are more than that holds.
    /// Each item is in mode `event`: it can be used before the rest is there, and the last may still be under way when this returns.
    ///
    /// # Errors
    /// As [`item`](Self::item); no memory; a device that cannot be used; [`FileError::Stopped`].
    pub fn items(
        &self,
        names: &[&str],
        target: Target,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Item>, FileError> {
        let mut located = Vec::with_capacity(names.len());
        let mut counts = Vec::with_capacity(names.len());
        for name in names {
            let before = located.len();
            self.locate_item(self.find(name)?, &mut located)?;
            counts.push(located.len().saturating_sub(before));
        }
        let ranges: Vec<_> = located
            .iter()
            .flat_map(|located| located.ranges.iter().cloned())
            .collect();
        let mut located = located.into_iter();
        let mut assemble_all = |buffers: Vec<Buffer>| {
            let mut buffers = buffers.into_iter();
            let items = counts
                .iter()
                .map(|&count| assemble(located.by_ref().take(count), &mut buffers, target));
            items.collect()
        };
        match target {
            Target::Device(place) if place.device != DeviceTag::Cpu => {
                let (copies, buffers) = ToDevice::allocate(place, ranges)?;
                copies.fill(&self.source, assemble_all(buffers)?, progress)
            }
            _ => assemble_all(self.source.buffers(&ranges, progress)?),
        }
    }

    /// The tensor of `rows` of the first axis of a row-major, column-major or strided tensor. No other byte is read, or, where the file is mapped,
    /// any.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); a tensor or rows that make no slice.
    pub fn slice(&self, name: &str, rows: Range<u64>, target: Target) -> Result<Tensor, FileError> {
        let Located {
            entry,
            descriptor,
            mut ranges,
        } = self.locate(self.find(name)?)?;
        let (descriptor, bytes) = slice(&descriptor, &rows).map_err(|source| FileError::Slice {
            name: entry.name.clone(),
            source,
        })?;
        if let Some(range) = ranges.first_mut() {
            *range = range.start.saturating_add(bytes.start)..range.start.saturating_add(bytes.end);
        }
        let located = Located {
            entry,
            descriptor,
            ranges,
        };
        self.read_tensor(located, target)
    }

    /// The names of all entries that are no member of a composite, in the order of the index.
    ///
    /// # Errors
    /// FC22, FC23 of an entry without data, which may be a head.
    pub fn roots(&self) -> Result<Vec<&str>, FileError> {
        let entries = self.container.entries();
        let mut is_member = vec![false; entries.len()];
        // The members that are still to come, of all open heads; a member that is a head adds its own.
        let mut missing = 0_u64;
        for number in self.container.in_file_order() {
            let Some(entry) = entries.get(number) else {
                continue;
            };
            if missing > 0 {
                missing = missing.saturating_sub(1);
                if let Some(is_member) = is_member.get_mut(number) {
                    *is_member = true;
                }
            }
            // A head owns no bytes.
            if entry.data_length == 0
                && let Layout::Composite(head) = self.decode(entry)?.layout
            {
                missing = missing.saturating_add(head.member_count.into());
            }
        }
        let names = entries.iter().zip(is_member);
        Ok(names
            .filter_map(|(entry, is_member)| (!is_member).then_some(&*entry.name))
            .collect())
    }

    fn find(&self, name: &str) -> Result<usize, FileError> {
        self.container
            .find(name)
            .ok_or_else(|| FileError::NoTensor { name: name.into() })
    }

    /// The tensor or head with this number, and where its bytes are.
    fn locate(&self, number: usize) -> Result<Located<'_>, FileError> {
        let Some(entry) = self.container.entries().get(number) else {
            return Err(FileError::NoTensor {
                name: Box::default(),
            });
        };
        let descriptor = self.decode(entry)?;
        let ranges = self.container.buffer_ranges(entry, &descriptor)?;
        Ok(Located {
            entry,
            descriptor,
            ranges,
        })
    }

    /// Adds the tensor with this number, or the head and as many of its members as there are.
    fn locate_item<'r>(
        &'r self,
        number: usize,
        located: &mut Vec<Located<'r>>,
    ) -> Result<(), FileError> {
        let head = self.locate(number)?;
        if !head.descriptor.layout.is_virtual() {
            located.push(head);
            return Ok(());
        }
        let head = head.entry;
        // Nothing is read for members that make no composite.
        let mut rules = Assembler::new();
        let refused = |source| FileError::Composite {
            name: head.name.clone(),
            source,
        };
        for number in self.container.in_file_order_from(number) {
            let found = self.locate(number)?;
            rules.push(&found.descriptor).map_err(refused)?;
            located.push(found);
            if rules.is_complete() {
                return Ok(());
            }
        }
        rules.finish().map(drop).map_err(refused)
    }

    fn read_tensor(&self, located: Located<'_>, target: Target) -> Result<Tensor, FileError> {
        let Target::Device(place) = target else {
            let buffers = self.source.buffers(&located.ranges, &mut unwatched)?;
            return located.tensor(&mut buffers.into_iter(), target);
        };
        if place.device == DeviceTag::Cpu {
            return self.read_tensor(located, Target::Host);
        }
        let name = located.entry.name.clone();
        let (copies, buffers) = ToDevice::allocate(place, located.ranges.to_vec())?;
        let tensor = located.tensor(&mut buffers.into_iter(), target)?;
        let filled = copies.fill(&self.source, vec![Item::Tensor(tensor)], &mut unwatched)?;
        match filled.into_iter().next() {
            Some(Item::Tensor(tensor)) => Ok(tensor),
            _ => Err(FileError::NoTensor { name }),
        }
    }

    fn decode(&self, entry: &Entry) -> Result<TensorDescriptor, FileError> {
        let bytes = self.source.bytes(&entry.descriptor())?;
        self.container.decode(entry, &bytes)
    }

    /// The metadata in the writer's order.
    #[must_use]
    pub fn metadata(&self) -> &[(String, Value)] {
        self.container.metadata()
    }
}

/// Progress that nobody is told of.
fn unwatched(_done: u64, _total: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn read_container(source: &Source) -> Result<Container, FileError> {
    let mut parser = ContainerParser::start(source.size()?)?;
    loop {
        let bytes = source.bytes(&parser.range())?;
        match parser.supply(&bytes)? {
            Opening::Needs(next) => parser = next,
            Opening::Done(container) => return Ok(container),
        }
    }
}

/// A tensor or head, and where its buffers are in the file.
struct Located<'r> {
    entry: &'r Entry,
    descriptor: TensorDescriptor,
    ranges: SmallVec<[Range<u64>; 3]>,
}

impl Located<'_> {
    /// Takes its buffers from `buffers`, and brings its rows together with them.
    fn take_buffers(
        &mut self,
        buffers: &mut impl Iterator<Item = Buffer>,
        target: Target,
    ) -> SmallVec<[Buffer; 3]> {
        let mut own: SmallVec<[Buffer; 3]> = buffers.take(self.ranges.len()).collect();
        let rows = &mut self.descriptor.buffers;
        match target {
            Target::Declared => declare_elsewhere(rows, &mut own),
            Target::Host | Target::Device(_) => {
                for (row, buffer) in rows.iter_mut().zip(&own) {
                    *row = buffer.handle();
                }
            }
        }
        own
    }

    fn tensor(
        mut self,
        buffers: &mut impl Iterator<Item = Buffer>,
        target: Target,
    ) -> Result<Tensor, FileError> {
        let buffers = self.take_buffers(buffers, target);
        measure_rows(&mut self.descriptor.buffers, &buffers);
        Tensor::new(self.descriptor, buffers).map_err(|source| refused(self.entry, source))
    }
}

/// The tensor, or the composite of a head and what follows it.
fn assemble<'r>(
    mut located: impl Iterator<Item = Located<'r>>,
    buffers: &mut impl Iterator<Item = Buffer>,
    target: Target,
) -> Result<Item, FileError> {
    let Some(first) = located.next() else {
        return Err(FileError::NoTensor {
            name: Box::default(),
        });
    };
    if !first.descriptor.layout.is_virtual() {
        return first.tensor(buffers, target).map(Item::Tensor);
    }
    let head = first.entry;
    let mut assembler = CompositeAssembler::new();
    for mut item in iter::once(first).chain(located) {
        let buffers = item.take_buffers(buffers, target);
        assembler
            .push(item.descriptor)
            .and_then(|()| assembler.fill(buffers))
            .map_err(|source| match source {
                TensorError::Descriptor(Error::Composite(_)) => refused(head, source),
                _ => refused(item.entry, source),
            })?;
    }
    let composite = assembler.finish();
    composite
        .map(Item::Composite)
        .map_err(|source| refused(head, source))
}

fn refused(entry: &Entry, source: TensorError) -> FileError {
    let name = entry.name.clone();
    match source {
        TensorError::Descriptor(Error::Composite(source)) => FileError::Composite { name, source },
        TensorError::Descriptor(source) if !matches!(source, Error::BufferTable(_)) => {
            FileError::Descriptor { name, source }
        }
        source => FileError::Tensor { name, source },
    }
}
