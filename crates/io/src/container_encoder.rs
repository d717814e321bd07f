//! The container without I/O: tensors in, and which bytes come next out (`file.md`).

use std::collections::HashSet;

use hurray_core::composite::Assembler;
use hurray_core::{Layout, TensorDescriptor};
use hurray_ffi::{Buffer, Composite, Item};

use crate::container::{
    HAS_CHECKSUM, HEADER_LEN, INDEX_IS_SORTED, MAGIC, SECTION_ALIGNMENT, TRAILER_LEN,
    TRAILER_MAGIC, is_data_alignment,
};
use crate::index::{self, Entry};
use crate::metadata::{self, Value};
use crate::outgoing::outgoing;
use crate::part::{Part, push_zeros};
use crate::{FileError, FileOptions, OutgoingError};

/// Makes a file front to back. The parts that its calls give are to be written one after the other.
#[derive(Debug)]
pub(crate) struct ContainerEncoder {
    options: FileOptions,
    position: u64,
    entries: Vec<Entry>,
    names: HashSet<Box<str>>,
    metadata: Vec<(String, Value)>,
    /// The composite whose members are still to come.
    open: Option<Assembler>,
    /// Whether a member did not fit its head.
    is_torn: bool,
}

impl ContainerEncoder {
    /// Begins a file; gives its header.
    ///
    /// # Errors
    /// An alignment that is not offered.
    pub(crate) fn new(options: FileOptions) -> Result<(Self, Vec<u8>), FileError> {
        let FileOptions {
            alignment,
            sorted_index,
        } = options;
        if !is_data_alignment(alignment) {
            return Err(FileError::Alignment { alignment });
        }
        let flags = HAS_CHECKSUM | if sorted_index { INDEX_IS_SORTED } else { 0 };
        let mut header = Vec::with_capacity(HEADER_LEN as usize);
        header.extend(MAGIC);
        header.extend([1, 0, 0, 0]);
        header.extend(flags.to_le_bytes());
        header.extend(alignment.to_le_bytes());
        header.extend(HEADER_LEN.to_le_bytes());
        header.extend(u64::MAX.to_le_bytes());
        header.resize(HEADER_LEN as usize, 0);
        let encoder = Self {
            options,
            position: HEADER_LEN,
            entries: Vec::new(),
            names: HashSet::new(),
            metadata: Vec::new(),
            open: None,
            is_torn: false,
        };
        Ok((encoder, header))
    }

    pub(crate) fn push_metadata(&mut self, key: String, value: Value) {
        self.metadata.push((key, value));
    }

    /// Adds a tensor or a composite, whose members are named `<name>.<i>`, and nested ones `<name>.<i>.<j>`.
    pub(crate) fn push_item<'a>(
        &mut self,
        name: &str,
        item: &'a Item,
        parts: &mut Vec<Part<'a>>,
    ) -> Result<(), FileError> {
        match item {
            Item::Tensor(tensor) => self.push(name, tensor.descriptor(), tensor.buffers(), parts),
            Item::Composite(composite) => {
                self.push_composite(&mut name.to_owned(), composite, parts)
            }
        }
    }

    fn push_composite<'a>(
        &mut self,
        name: &mut String,
        composite: &'a Composite,
        parts: &mut Vec<Part<'a>>,
    ) -> Result<(), FileError> {
        self.push(name, composite.head(), &[], parts)?;
        let len = name.len();
        for (number, member) in composite.members().iter().enumerate() {
            name.push('.');
            name.push_str(&number.to_string());
            match member {
                Item::Tensor(tensor) => {
                    self.push(name, tensor.descriptor(), tensor.buffers(), parts)?;
                }
                Item::Composite(composite) => self.push_composite(name, composite, parts)?,
            }
            name.truncate(len);
        }
        Ok(())
    }

    /// Adds what [`Tensor::new`](hurray_ffi::Tensor::new) accepts, or a head.
    pub(crate) fn push<'a>(
        &mut self,
        name: &str,
        descriptor: &TensorDescriptor,
        buffers: &'a [Buffer],
        parts: &mut Vec<Part<'a>>,
    ) -> Result<(), FileError> {
        self.check_name(name)?;
        let outgoing = outgoing(descriptor, buffers);
        let (descriptor, buffers) = outgoing.map_err(|source| unwritable(name, source))?;
        self.push_outgoing(name, &descriptor, buffers, parts)
    }

    /// Adds a descriptor that is true of `buffers` in a file.
    pub(crate) fn push_outgoing<'a>(
        &mut self,
        name: &str,
        descriptor: &TensorDescriptor,
        buffers: impl IntoIterator<Item = Part<'a>>,
        parts: &mut Vec<Part<'a>>,
    ) -> Result<(), FileError> {
        self.check_name(name)?;
        let encoded = descriptor
            .encode()
            .map_err(|source| unwritable(name, source.into()))?;
        self.check_membership(name, descriptor)?;
        let alignment = self.options.alignment.into();
        let descriptor_offset = self.position;
        let descriptor_length = encoded.len() as u32;
        let mut position = descriptor_offset.saturating_add(encoded.len() as u64);
        parts.push(Part::Host(encoded.into()));
        // A head too has its gap (decision 8).
        pad(parts, &mut position, alignment);
        let data_offset = position;
        for buffer in buffers {
            pad(parts, &mut position, alignment);
            position = position.saturating_add(buffer.len() as u64);
            parts.push(buffer);
        }
        let data_length = position.saturating_sub(data_offset);
        pad(parts, &mut position, SECTION_ALIGNMENT);
        self.position = position;
        self.names.insert(name.into());
        self.entries.push(Entry {
            name: name.into(),
            descriptor_offset,
            descriptor_length,
            data_offset,
            data_length,
        });
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), FileError> {
        if self.is_torn {
            return Err(FileError::Unfinished);
        }
        if name.is_empty() || u16::try_from(name.len()).is_err() {
            return Err(FileError::NameLength { len: name.len() });
        }
        if self.names.contains(name) {
            return Err(FileError::DuplicateName { name: name.into() });
        }
        Ok(())
    }

    fn check_membership(
        &mut self,
        name: &str,
        descriptor: &TensorDescriptor,
    ) -> Result<(), FileError> {
        if self.open.is_none() && !matches!(descriptor.layout, Layout::Composite(_)) {
            return Ok(());
        }
        let mut assembler = self.open.take().unwrap_or_default();
        if let Err(source) = assembler.push(descriptor) {
            self.is_torn = true;
            return Err(FileError::Composite {
                name: name.into(),
                source,
            });
        }
        if !assembler.is_complete() {
            self.open = Some(assembler);
        }
        Ok(())
    }

    /// Ends the file with metadata, index and trailer; gives its length too.
    ///
    /// # Errors
    /// A composite that misses members; metadata that cannot be written.
    pub(crate) fn finish(mut self) -> Result<(Vec<Part<'static>>, u64), FileError> {
        if self.is_torn || self.open.is_some() {
            return Err(FileError::Unfinished);
        }
        let metadata = if self.metadata.is_empty() {
            Vec::new()
        } else {
            metadata::encode(&self.metadata)?
        };
        if self.options.sorted_index {
            self.entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let index = index::encode(self.entries.iter());
        let metadata_offset = if metadata.is_empty() {
            0
        } else {
            self.position
        };
        let metadata_length = metadata.len();
        let mut parts = vec![Part::Host(metadata.into())];
        let mut position = self.position.saturating_add(metadata_length as u64);
        pad(&mut parts, &mut position, SECTION_ALIGNMENT);
        let mut trailer = Vec::with_capacity(TRAILER_LEN as usize);
        trailer.extend(position.to_le_bytes());
        trailer.extend((index.len() as u64).to_le_bytes());
        trailer.extend(metadata_offset.to_le_bytes());
        // `metadata::encode` has checked the length.
        trailer.extend((metadata_length as u32).to_le_bytes());
        trailer.extend(crc32c::crc32c(&index).to_le_bytes());
        trailer.extend([0; 4]);
        trailer.extend(TRAILER_MAGIC);
        let len = position
            .saturating_add(index.len() as u64)
            .saturating_add(TRAILER_LEN);
        parts.push(Part::Host(index.into()));
        parts.push(Part::Host(trailer.into()));
        Ok((parts, len))
    }
}

fn unwritable(name: &str, source: OutgoingError) -> FileError {
    FileError::Unwritable {
        name: name.into(),
        source,
    }
}

/// A gap to the next multiple of `alignment`.
fn pad(parts: &mut Vec<Part<'_>>, position: &mut u64, alignment: u64) {
    // No sum of bytes in memory comes near 2^64.
    let end = position
        .checked_next_multiple_of(alignment)
        .unwrap_or(*position);
    push_zeros(parts, end.saturating_sub(*position));
    *position = end;
}
