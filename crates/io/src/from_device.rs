//! Bytes of a device's memory into a file or stream: copied to pinned chunks, of which one is written while others fill.

use std::collections::VecDeque;
use std::io::{IoSlice, Write};

use hurray_core::{BufferHandle, CopyRequest, DeviceError, DeviceLayer, StagingRing};
use hurray_ffi::{Buffer, Place, device};

use crate::gathered_write::{Part, WriteError, write_gathered};

/// What is still to be written of one device's parts and the host's between them, in order.
pub(crate) struct FromDevice<'a> {
    layer: &'static dyn DeviceLayer,
    ring: Box<dyn StagingRing>,
    waiting: VecDeque<Waiting<'a>>,
    /// Chunks in `waiting`: those before the ring's current one, as many as it has at most.
    under_way: usize,
}

enum Waiting<'a> {
    Host(&'a [u8]),
    /// So many bytes, which are on their way to a chunk.
    Chunk(usize),
}

impl<'a> FromDevice<'a> {
    /// For parts of the device at `place`.
    pub(crate) fn new(place: Place) -> Result<Self, DeviceError> {
        let layer = device::reaching(place)?;
        Ok(Self {
            layer,
            ring: layer.staging_ring(place.device_id)?,
            waiting: VecDeque::new(),
            under_way: 0,
        })
    }

    /// Writes all of `parts`.
    pub(crate) fn write(
        mut self,
        sink: &mut impl Write,
        parts: &'a [Part<'_>],
    ) -> Result<(), WriteError> {
        for part in parts {
            match part {
                Part::Host(bytes) => self.waiting.push_back(Waiting::Host(bytes)),
                Part::Device { index, row, buffer } => self.copy(sink, *index, row, buffer)?,
            }
        }
        // From the current chunk on to the oldest that is under way.
        for _ in self.under_way..self.ring.chunks() {
            self.ring.advance(None)?;
        }
        while self.under_way > 0 {
            self.write_oldest(sink)?;
            self.ring.advance(None)?;
        }
        self.write_oldest(sink)
    }

    /// Queues the copies of a buffer, on a stream that is ordered after what its bytes depend on.
    fn copy(
        &mut self,
        sink: &mut impl Write,
        index: usize,
        row: &BufferHandle,
        buffer: &Buffer,
    ) -> Result<(), WriteError> {
        let stream = self.ring.stream().clone();
        // Out on the stream until the last copy is queued.
        let buffer = buffer.order(index, row, &stream)?;
        let place = buffer.place();
        let device_id = (!place.is_host_accessible()).then_some(place.device_id);
        let mut copied = 0_usize;
        while copied < buffer.len() {
            if self.under_way == self.ring.chunks() {
                self.write_oldest(sink)?;
            }
            let chunk = self.ring.chunk()?;
            let len = chunk.len().min(buffer.len().saturating_sub(copied));
            let to = (chunk.as_mut_ptr().expose_provenance(), None);
            let from = (buffer.as_ptr().addr().saturating_add(copied), device_id);
            let request = CopyRequest::contiguous(from, to, len);
            // SAFETY: the buffer is out on the stream, which is ordered after its writes, until the copy is queued; the chunk has `len` bytes or more, and is
            // left alone until the copy is done, which `advance` sees to.
            let queued = unsafe { self.layer.copy(&[request], &stream) };
            self.ring.advance(Some(&stream))?;
            queued?;
            self.under_way = self.under_way.saturating_add(1);
            self.waiting.push_back(Waiting::Chunk(len));
            copied = copied.saturating_add(len);
        }
        Ok(())
    }

    /// Writes the oldest chunk that is under way, which is the ring's current one, and what comes before it; the rest where there is none.
    fn write_oldest(&mut self, sink: &mut impl Write) -> Result<(), WriteError> {
        let mut parts = Vec::new();
        let mut len = 0;
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting {
                Waiting::Host(bytes) => parts.push(IoSlice::new(bytes)),
                Waiting::Chunk(chunk) => {
                    len = chunk;
                    break;
                }
            }
        }
        if len == 0 {
            return Ok(write_gathered(sink, &mut parts)?);
        }
        self.under_way = self.under_way.saturating_sub(1);
        let chunk = self.ring.chunk()?;
        parts.push(IoSlice::new(chunk.get(..len).unwrap_or(chunk)));
        let written = write_gathered(sink, &mut parts);
        if written.is_err() {
            // It has arrived, and nothing else is queued on the chunk.
            self.ring.advance(None)?;
        }
        Ok(written?)
    }
}
