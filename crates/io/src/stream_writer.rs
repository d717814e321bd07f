use std::io::Write;

use hurray_core::{SyncMode, TensorDescriptor};
use hurray_ffi::{Buffer, Composite, Item, Tensor};

use crate::outflow::Outflow;
use crate::outgoing::outgoing;
use crate::part::Part;
use crate::{OutgoingError, StreamError, StreamLimits};

/// Writes tensors and composites to `W`, one after the other, from where their bytes lie.
///
/// Bytes of a device come through pinned chunks. Rows say what is true of the bytes in the stream, and bytes before a tensor's first element stay
/// behind, as with [`FileWriter`](crate::FileWriter).
#[derive(Debug)]
pub struct StreamWriter<W> {
    sink: W,
    limits: StreamLimits,
    failed: bool,
}

impl<W: Write> StreamWriter<W> {
    /// A writer whose stream begins where `sink` stands. Of the limits, depth and `cross_machine` bind it.
    pub fn new(sink: W, limits: StreamLimits) -> Self {
        Self {
            sink,
            limits,
            failed: false,
        }
    }

    /// Writes a tensor.
    ///
    /// # Errors
    /// As [`write_item`](Self::write_item).
    pub fn write_tensor(&mut self, tensor: &Tensor) -> Result<(), StreamError> {
        let mut gathered = Gathered::new(self.limits);
        gathered.push_tensor(tensor)?;
        self.write(gathered)
    }

    /// Writes a tensor or a composite with all its members.
    ///
    /// # Errors
    /// Bytes that may not be read, a descriptor that cannot be written, ST6, ST9: nothing was written then. The sink's, after which the writer
    /// cannot be used any further.
    pub fn write_item(&mut self, item: &Item) -> Result<(), StreamError> {
        let mut gathered = Gathered::new(self.limits);
        gathered.push_item(item, 0)?;
        self.write(gathered)
    }

    /// The sink. What is written to it by other ways is in the stream.
    #[must_use]
    pub fn get_ref(&self) -> &W {
        &self.sink
    }

    /// As [`get_ref`](Self::get_ref).
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Flushes the sink.
    ///
    /// # Errors
    /// The sink's, an earlier one included.
    pub fn flush(&mut self) -> Result<(), StreamError> {
        if self.failed {
            return Err(StreamError::Failed);
        }
        Ok(self.sink.flush()?)
    }

    /// Flushes the sink and gives it back; a stream has no end mark.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn finish(mut self) -> Result<W, StreamError> {
        self.flush()?;
        Ok(self.sink)
    }

    fn write(&mut self, gathered: Gathered<'_>) -> Result<(), StreamError> {
        if self.failed {
            return Err(StreamError::Failed);
        }
        self.failed = true;
        let mut out = Outflow::new(&mut self.sink);
        out.push_all(gathered.parts)?;
        out.finish()?;
        self.failed = false;
        Ok(())
    }
}

/// An item as it leaves: descriptors, and buffers where they lie.
struct Gathered<'a> {
    limits: StreamLimits,
    parts: Vec<Part<'a>>,
}

impl<'a> Gathered<'a> {
    fn new(limits: StreamLimits) -> Self {
        Self {
            limits,
            parts: Vec::new(),
        }
    }

    fn push_item(&mut self, item: &'a Item, depth: usize) -> Result<(), StreamError> {
        match item {
            Item::Tensor(tensor) => self.push_tensor(tensor),
            Item::Composite(composite) => self.push_composite(composite, depth),
        }
    }

    fn push_composite(
        &mut self,
        composite: &'a Composite,
        depth: usize,
    ) -> Result<(), StreamError> {
        let limit = self.limits.max_composite_depth;
        if depth >= limit {
            return Err(StreamError::Depth { limit });
        }
        self.push(composite.head(), &[])?;
        let mut members = composite.members().iter();
        members.try_for_each(|member| self.push_item(member, depth.saturating_add(1)))
    }

    fn push_tensor(&mut self, tensor: &'a Tensor) -> Result<(), StreamError> {
        self.push(tensor.descriptor(), tensor.buffers())
    }

    fn push(
        &mut self,
        descriptor: &TensorDescriptor,
        buffers: &'a [Buffer],
    ) -> Result<(), StreamError> {
        let (descriptor, parts) = outgoing(descriptor, buffers)?;
        if self.limits.cross_machine {
            check_sync_modes(&descriptor)?;
        }
        let encoded = descriptor.encode().map_err(OutgoingError::from)?;
        self.parts.push(Part::Host(encoded.into()));
        self.parts.extend(parts);
        Ok(())
    }
}

/// ST6.
fn check_sync_modes(descriptor: &TensorDescriptor) -> Result<(), OutgoingError> {
    for (buffer, row) in descriptor.buffers.iter().enumerate() {
        if row.sync_mode != SyncMode::ProducerSynced {
            return Err(OutgoingError::SyncMode {
                buffer,
                mode: row.sync_mode,
            });
        }
    }
    Ok(())
}
