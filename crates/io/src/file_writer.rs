use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use hurray_core::composite::Assembler;
use hurray_core::{Layout, TensorDescriptor};
use hurray_ffi::{Buffer, Composite, Item, Tensor, TensorError};
use smallvec::SmallVec;

use crate::container::{
    HAS_CHECKSUM, HEADER_LEN, INDEX_IS_SORTED, MAGIC, SECTION_ALIGNMENT, TRAILER_LEN,
    TRAILER_MAGIC, is_data_alignment,
};
use crate::gathered_write::{Part, push_zeros, write_parts};
use crate::index::{self, Entry};
use crate::metadata::{self, Value};
use crate::outgoing::{outgoing, stored_row};
use crate::{FileError, OutgoingError};

/// How a file is written.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FileOptions {
    /// Every buffer begins on a multiple of it: a power of two from 4096 to 2 MiB, 4096 unless set.
    pub alignment: u32,
    /// Whether the index is in the order of the names instead of the tensors.
    pub sorted_index: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            alignment: 4096,
            sorted_index: false,
        }
    }
}

/// Writes a file of tensors front to back, without seeking; it can be read once it is [finished](Self::finish).
///
/// Bytes are written from where they lie; those of a device come through pinned chunks, copied on a stream that is ordered after their writes. Equal tensors in equal order make equal files: rows say `cpu`, `standard`, `producer_synced` and an
/// alignment of 64, whatever memory the bytes come from, and bytes before a tensor's first element stay behind.
///
/// Not promised: that the sink is synced, and, where a write fails, anything about it.
#[derive(Debug)]
pub struct FileWriter<W> {
    sink: W,
    options: FileOptions,
    position: u64,
    entries: Vec<Entry>,
    names: HashSet<Box<str>>,
    metadata: Vec<(String, Value)>,
    /// The composite whose members are still to come.
    open: Option<Assembler>,
    failed: bool,
    /// Whether only the number of bytes counts: a device need not bring them then.
    is_rehearsal: bool,
}

impl<W: Write> FileWriter<W> {
    /// The same, for a sink that only counts.
    pub(crate) fn rehearsal(sink: W, options: FileOptions) -> Result<Self, FileError> {
        let mut writer = Self::new(sink, options)?;
        writer.is_rehearsal = true;
        Ok(writer)
    }

    /// Begins a file in `sink`.
    ///
    /// # Errors
    /// An alignment that is not offered; the sink's.
    pub fn new(mut sink: W, options: FileOptions) -> Result<Self, FileError> {
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
        sink.write_all(&header)?;
        Ok(Self {
            sink,
            options,
            position: HEADER_LEN,
            entries: Vec::new(),
            names: HashSet::new(),
            metadata: Vec::new(),
            open: None,
            failed: false,
            is_rehearsal: false,
        })
    }

    /// Adds a metadata value. Keys are checked when the file is finished.
    pub fn push_metadata(&mut self, key: impl Into<String>, value: Value) {
        self.metadata.push((key.into(), value));
    }

    /// Writes a tensor, or a composite's head: the tensors that follow are its members then, until it has all.
    ///
    /// # Errors
    /// A name that is taken or no name; those of [`Tensor::new`]; bytes that may not be read; a member that does not fit its head, after which
    /// the file cannot be finished; the sink's, likewise. Nothing was written before the sink's.
    pub fn write_tensor(
        &mut self,
        name: &str,
        descriptor: impl Into<Arc<TensorDescriptor>>,
        buffers: impl Into<SmallVec<[Buffer; 3]>>,
    ) -> Result<(), FileError> {
        let (descriptor, buffers) = (descriptor.into(), buffers.into());
        let refused = |source| FileError::Tensor {
            name: name.into(),
            source,
        };
        if !descriptor.layout.is_virtual() {
            let tensor = Tensor::new(descriptor, buffers).map_err(refused)?;
            return self.write_checked(name, tensor.descriptor(), tensor.buffers());
        }
        if !buffers.is_empty() {
            let source = TensorError::BufferCount {
                rows: 0,
                buffers: buffers.len(),
            };
            return Err(refused(source));
        }
        descriptor
            .validate()
            .map_err(|source| refused(source.into()))?;
        self.write_checked(name, &descriptor, &[])
    }

    /// Writes a tensor, or a composite's head, whose bytes lie at any address: `bytes` are each buffer's, as many as its row says. What the rows
    /// say otherwise is not looked at.
    ///
    /// # Errors
    /// As [`write_tensor`](Self::write_tensor).
    pub fn write_bytes(
        &mut self,
        name: &str,
        mut descriptor: TensorDescriptor,
        bytes: &[&[u8]],
    ) -> Result<(), FileError> {
        let refused = |source| FileError::Tensor {
            name: name.into(),
            source,
        };
        let rows = descriptor.buffers.len();
        if rows != bytes.len() {
            let buffers = bytes.len();
            return Err(refused(TensorError::BufferCount { rows, buffers }));
        }
        for (buffer, (row, bytes)) in descriptor.buffers.iter_mut().zip(bytes).enumerate() {
            let found = bytes.len() as u64;
            if row.byte_size != found {
                let row = row.byte_size;
                return Err(refused(TensorError::TooSmall { buffer, row, found }));
            }
            *row = stored_row(bytes.len());
        }
        descriptor
            .validate()
            .map_err(|source| refused(source.into()))?;
        self.check_name(name)?;
        let parts: SmallVec<[_; 3]> = bytes.iter().map(|bytes| Part::Host(bytes)).collect();
        self.write_outgoing(name, &descriptor, parts)
    }

    /// Writes a tensor or a composite, whose members are named `<name>.<i>`, and nested ones `<name>.<i>.<j>`.
    ///
    /// # Errors
    /// As [`write_tensor`](Self::write_tensor).
    pub fn write_item(&mut self, name: &str, item: &Item) -> Result<(), FileError> {
        match item {
            Item::Tensor(tensor) => self.write_checked(name, tensor.descriptor(), tensor.buffers()),
            Item::Composite(composite) => self.write_composite(&mut name.to_owned(), composite),
        }
    }

    fn write_composite(
        &mut self,
        name: &mut String,
        composite: &Composite,
    ) -> Result<(), FileError> {
        self.write_checked(name, composite.head(), &[])?;
        let len = name.len();
        for (number, member) in composite.members().iter().enumerate() {
            name.push('.');
            name.push_str(&number.to_string());
            match member {
                Item::Tensor(tensor) => {
                    self.write_checked(name, tensor.descriptor(), tensor.buffers())?;
                }
                Item::Composite(composite) => self.write_composite(name, composite)?,
            }
            name.truncate(len);
        }
        Ok(())
    }

    /// Writes what [`Tensor::new`] accepts, or a head.
    fn write_checked(
        &mut self,
        name: &str,
        descriptor: &TensorDescriptor,
        buffers: &[Buffer],
    ) -> Result<(), FileError> {
        self.check_name(name)?;
        let outgoing = outgoing(descriptor, buffers);
        let (descriptor, parts) = outgoing.map_err(|source| unwritable(name, source))?;
        self.write_outgoing(name, &descriptor, parts)
    }

    fn check_name(&self, name: &str) -> Result<(), FileError> {
        if self.failed {
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

    /// Writes a descriptor that is true of `buffers` in a file.
    fn write_outgoing(
        &mut self,
        name: &str,
        descriptor: &TensorDescriptor,
        buffers: SmallVec<[Part<'_>; 3]>,
    ) -> Result<(), FileError> {
        let encoded = descriptor
            .encode()
            .map_err(|source| unwritable(name, source.into()))?;
        self.check_membership(name, descriptor)?;
        self.failed = true;
        let entry = self.write_entry(name, &encoded, buffers)?;
        self.failed = false;
        self.names.insert(name.into());
        self.entries.push(entry);
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
            self.failed = true;
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

    fn write_entry(
        &mut self,
        name: &str,
        descriptor: &[u8],
        buffers: SmallVec<[Part<'_>; 3]>,
    ) -> Result<Entry, FileError> {
        let alignment = self.options.alignment.into();
        let mut parts = Vec::with_capacity(buffers.len().saturating_mul(2).saturating_add(3));
        let descriptor_offset = self.position;
        let mut position = descriptor_offset.saturating_add(descriptor.len() as u64);
        parts.push(Part::Host(descriptor));
        // A head too has its gap (decision 8).
        pad(&mut parts, &mut position, alignment);
        let data_offset = position;
        for buffer in buffers {
            pad(&mut parts, &mut position, alignment);
            position = position.saturating_add(buffer.len() as u64);
            if self.is_rehearsal && matches!(buffer, Part::Device { .. }) {
                push_zeros(&mut parts, buffer.len() as u64);
            } else {
                parts.push(buffer);
            }
        }
        let data_length = position.saturating_sub(data_offset);
        pad(&mut parts, &mut position, SECTION_ALIGNMENT);
        write_parts(&mut self.sink, &parts)?;
        self.position = position;
        Ok(Entry {
            name: name.into(),
            descriptor_offset,
            descriptor_length: descriptor.len() as u32,
            data_offset,
            data_length,
        })
    }

    /// Writes metadata, index and trailer; flushes the sink and gives it back.
    ///
    /// # Errors
    /// An earlier error of the sink, or a composite that misses members; metadata that cannot be written; the sink's.
    pub fn finish(mut self) -> Result<W, FileError> {
        if self.failed || self.open.is_some() {
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
        let mut parts = Vec::new();
        let metadata_offset = if metadata.is_empty() {
            0
        } else {
            self.position
        };
        parts.push(Part::Host(&metadata));
        let mut position = self.position.saturating_add(metadata.len() as u64);
        pad(&mut parts, &mut position, SECTION_ALIGNMENT);
        parts.push(Part::Host(&index));
        let mut trailer = Vec::with_capacity(TRAILER_LEN as usize);
        trailer.extend(position.to_le_bytes());
        trailer.extend((index.len() as u64).to_le_bytes());
        trailer.extend(metadata_offset.to_le_bytes());
        // `metadata::encode` has checked the length.
        trailer.extend((metadata.len() as u32).to_le_bytes());
        trailer.extend(crc32c::crc32c(&index).to_le_bytes());
        trailer.extend([0; 4]);
        trailer.extend(TRAILER_MAGIC);
        parts.push(Part::Host(&trailer));
        write_parts(&mut self.sink, &parts)?;
        self.sink.flush()?;
        Ok(self.sink)
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
