use std::io::Write;
use std::sync::Arc;

use hurray_core::TensorDescriptor;
use hurray_ffi::{Buffer, Item, Tensor, TensorError};
use smallvec::SmallVec;

use crate::FileError;
use crate::container_encoder::ContainerEncoder;
use crate::metadata::Value;
use crate::outflow::Outflow;
use crate::outgoing::stored_row;
use crate::part::Part;

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
/// Bytes are written from where they lie; those of a device come through pinned chunks, copied on a stream that is ordered after their writes.
/// Equal tensors in equal order make equal files: rows say `cpu`, `standard`, `producer_synced` and an alignment of 64, whatever memory the bytes
/// come from, and bytes before a tensor's first element stay behind.
///
/// Not promised: that the sink is synced, and, where a write fails, anything about it.
#[derive(Debug)]
pub struct FileWriter<W> {
    sink: W,
    encoder: ContainerEncoder,
    failed: bool,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file in `sink`.
    ///
    /// # Errors
    /// An alignment that is not offered; the sink's.
    pub fn new(mut sink: W, options: FileOptions) -> Result<Self, FileError> {
        let (encoder, header) = ContainerEncoder::new(options)?;
        sink.write_all(&header)?;
        Ok(Self {
            sink,
            encoder,
            failed: false,
        })
    }

    /// Adds a metadata value. Keys are checked when the file is finished.
    pub fn push_metadata(&mut self, key: impl Into<String>, value: Value) {
        self.encoder.push_metadata(key.into(), value);
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
            let (descriptor, buffers) = (tensor.descriptor(), tensor.buffers());
            return self.write(|encoder, parts| encoder.push(name, descriptor, buffers, parts));
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
        self.write(|encoder, parts| encoder.push(name, &descriptor, &[], parts))
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
            *row = stored_row(found);
        }
        descriptor
            .validate()
            .map_err(|source| refused(source.into()))?;
        let buffers = bytes.iter().map(|&bytes| Part::Host(bytes.into()));
        self.write(|encoder, parts| encoder.push_outgoing(name, &descriptor, buffers, parts))
    }

    /// Writes a tensor or a composite, whose members are named `<name>.<i>`, and nested ones `<name>.<i>.<j>`.
    ///
    /// # Errors
    /// As [`write_tensor`](Self::write_tensor). After a member that is refused the file cannot be finished.
    pub fn write_item(&mut self, name: &str, item: &Item) -> Result<(), FileError> {
        self.write(|encoder, parts| encoder.push_item(name, item, parts))
    }

    /// Writes many as [`write_item`](Self::write_item) does, small ones together, and those of a device while it brings the next.
    ///
    /// # Errors
    /// As [`write_item`](Self::write_item). After any the file cannot be finished.
    pub fn write_items<'a>(
        &mut self,
        items: impl IntoIterator<Item = (&'a str, &'a Item)>,
    ) -> Result<(), FileError> {
        if self.failed {
            return Err(FileError::Unfinished);
        }
        self.failed = true;
        let mut out = Outflow::new(&mut self.sink);
        let mut parts = Vec::new();
        for (name, item) in items {
            self.encoder.push_item(name, item, &mut parts)?;
            out.push_all(parts.drain(..))?;
        }
        out.finish()?;
        self.failed = false;
        Ok(())
    }

    /// Writes the parts that `push` gives.
    fn write<'a>(
        &mut self,
        push: impl FnOnce(&mut ContainerEncoder, &mut Vec<Part<'a>>) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        if self.failed {
            return Err(FileError::Unfinished);
        }
        let mut parts = Vec::new();
        // The head and the members before one that is refused have their places already, and are never written.
        push(&mut self.encoder, &mut parts).inspect_err(|_| self.failed = !parts.is_empty())?;
        self.failed = true;
        let mut out = Outflow::new(&mut self.sink);
        out.push_all(parts)?;
        out.finish()?;
        self.failed = false;
        Ok(())
    }

    /// Writes metadata, index and trailer; flushes the sink and gives it back.
    ///
    /// # Errors
    /// An earlier error of the sink, or a composite that misses members; metadata that cannot be written; the sink's.
    pub fn finish(mut self) -> Result<W, FileError> {
        if self.failed {
            return Err(FileError::Unfinished);
        }
        let (parts, _) = self.encoder.finish()?;
        let mut out = Outflow::new(&mut self.sink);
        out.push_all(parts)?;
        out.finish()?;
        self.sink.flush()?;
        Ok(self.sink)
    }
}
