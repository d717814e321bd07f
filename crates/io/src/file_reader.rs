use std::fs::File;
use std::ops::Range;
use std::path::Path;

use hurray_core::{Error, Layout, TensorDescriptor};
use hurray_ffi::{Buffer, CompositeAssembler, Item, Tensor, TensorError, measure_rows};
use smallvec::SmallVec;

use crate::FileError;
use crate::container::{Container, ContainerParser, Opening};
use crate::host_bytes::{host_bytes, map};
use crate::incoming::declare_elsewhere;
use crate::index::Entry;
use crate::metadata::Value;

/// An open file of tensors, which borrow its bytes.
///
/// ```text
/// FileReader ─┐
/// Tensor ─────┼─> map of the file
/// Tensor ─────┘
/// ```
///
/// Opening costs the header, the trailer, the index and the metadata; a descriptor is read when its tensor is asked for. The map lives as long as
/// the reader or any tensor from it. Threads may share a reader.
///
/// Not promised: that the bytes stay as they are while someone else writes to the file. Replace a file by renaming another over it; after a
/// truncation in place, touching what is gone ends the process (SIGBUS).
#[derive(Debug)]
pub struct FileReader {
    file: Buffer,
    container: Container,
}

impl FileReader {
    /// Maps the file at `path`, which must not be changed in place as long as the reader or a tensor from it lives.
    ///
    /// # Errors
    /// The file cannot be opened or mapped; what [`ContainerParser::supply`] finds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let file = File::open(path)?;
        // There is no map of no bytes.
        ContainerParser::start(file.metadata()?.len())?;
        Self::new(map(&file)?)
    }

    /// Reads a file whose bytes are all in `file`: memory that the host may read.
    ///
    /// # Errors
    /// What [`ContainerParser::supply`] finds; bytes that may not be read.
    pub fn new(file: Buffer) -> Result<Self, FileError> {
        let bytes = host_bytes(0, &file.handle(), &file)?;
        let mut parser = ContainerParser::start(bytes.len() as u64)?;
        let container = loop {
            let range = parser.range();
            match parser.supply(part(bytes, &range))? {
                Opening::Needs(next) => parser = next,
                Opening::Done(container) => break container,
            }
        };
        Ok(Self { file, container })
    }

    /// Where everything is, and the metadata.
    #[must_use]
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// The descriptor of an entry; of the head, where that is a composite.
    ///
    /// # Errors
    /// FC22–FC24, FC32, FC33, FC42.
    pub fn descriptor(&self, name: &str) -> Result<TensorDescriptor, FileError> {
        let (_, descriptor, _) = self.read_entry(self.find(name)?)?;
        Ok(descriptor)
    }

    /// The tensor of this name, which may be the member of a composite. No byte of it is touched.
    ///
    /// # Errors
    /// FC22–FC24, FC32, FC33, FC41, FC42; a composite's head.
    pub fn tensor(&self, name: &str) -> Result<Tensor, FileError> {
        match self.read(self.find(name)?, false)? {
            Item::Tensor(tensor) => Ok(tensor),
            Item::Composite(_) => Err(FileError::IsComposite { name: name.into() }),
        }
    }

    /// The tensor or the whole composite of this name.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); FC25–FC27.
    pub fn item(&self, name: &str) -> Result<Item, FileError> {
        self.read(self.find(name)?, true)
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

    fn read(&self, number: usize, with_members: bool) -> Result<Item, FileError> {
        let (entry, descriptor, buffers) = self.read_entry(number)?;
        if !descriptor.layout.is_virtual() {
            let tensor = Tensor::new(descriptor, buffers);
            return tensor
                .map(Item::Tensor)
                .map_err(|source| refused(entry, source));
        }
        if !with_members {
            return Err(FileError::IsComposite {
                name: entry.name.clone(),
            });
        }
        let mut assembler = CompositeAssembler::new();
        for number in self.container.in_file_order_from(number) {
            let (member, descriptor, buffers) = self.read_entry(number)?;
            assembler
                .push(descriptor)
                .and_then(|()| assembler.fill(buffers))
                .map_err(|source| match source {
                    TensorError::Descriptor(Error::Composite(_)) => refused(entry, source),
                    _ => refused(member, source),
                })?;
            if assembler.is_complete() {
                break;
            }
        }
        let composite = assembler.finish();
        composite
            .map(Item::Composite)
            .map_err(|source| refused(entry, source))
    }

    fn read_entry(
        &self,
        number: usize,
    ) -> Result<(&Entry, TensorDescriptor, SmallVec<[Buffer; 3]>), FileError> {
        let Some(entry) = self.container.entries().get(number) else {
            return Err(FileError::NoTensor {
                name: Box::default(),
            });
        };
        let mut descriptor = self.decode(entry)?;
        let ranges = self.container.buffer_ranges(entry, &descriptor)?;
        let buffers: Result<SmallVec<[Buffer; 3]>, _> = ranges
            .into_iter()
            .map(|Range { start, end }| {
                self.file
                    .slice(start as usize, end.saturating_sub(start) as usize)
            })
            .collect();
        let mut buffers = buffers.map_err(|source| {
            let source = TensorError::Buffer { buffer: 0, source };
            refused(entry, source)
        })?;
        declare_elsewhere(&descriptor.buffers, &mut buffers);
        measure_rows(&mut descriptor.buffers, &buffers);
        Ok((entry, descriptor, buffers))
    }

    fn decode(&self, entry: &Entry) -> Result<TensorDescriptor, FileError> {
        let bytes = host_bytes(0, &self.file.handle(), &self.file)?;
        self.container
            .decode(entry, part(bytes, &entry.descriptor()))
    }

    /// The metadata in the writer's order.
    #[must_use]
    pub fn metadata(&self) -> &[(String, Value)] {
        self.container.metadata()
    }
}

/// Bytes of a file that the container has found in it.
fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    bytes.get(start..end).unwrap_or_default()
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
