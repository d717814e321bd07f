//! Writes of many parts: what the host has from where it lies, what a device has through pinned chunks, of which one is written while others fill.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use hurray_core::{BufferHandle, CopyRequest, DeviceError, DeviceLayer, DeviceTag, StagingRing};
use hurray_ffi::{Buffer, OrderError, Place, device};
use thiserror::Error;

use crate::part::Part;

/// Parts that one write takes: as many as Linux does.
const MOST_PARTS: usize = 1024;

/// Bytes that did not come through.
#[derive(Debug, Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Order(#[from] OrderError),
}

impl From<DeviceError> for WriteError {
    fn from(error: DeviceError) -> Self {
        Self::Order(error.into())
    }
}

/// Parts on their way to a sink, in order.
pub(crate) struct Outflow<'s, 'a, W> {
    sink: &'s mut W,
    waiting: VecDeque<Waiting<'a>>,
    device: Option<Device>,
}

enum Waiting<'a> {
    Host(Cow<'a, [u8]>),
    /// So many bytes, which are on their way to a chunk.
    Chunk(usize),
}

/// What a device's bytes come through.
struct Device {
    layer: &'static dyn DeviceLayer,
    id: (DeviceTag, u32),
    ring: Box<dyn StagingRing>,
    /// Chunks that are waiting: those before the ring's current one, as many as it has at most.
    under_way: usize,
}

impl<'s, 'a, W: Write> Outflow<'s, 'a, W> {
    pub(crate) fn new(sink: &'s mut W) -> Self {
        Self {
            sink,
            waiting: VecDeque::new(),
            device: None,
        }
    }

    /// Writes `parts`, or notes that they are to be.
    pub(crate) fn push_all(
        &mut self,
        parts: impl IntoIterator<Item = Part<'a>>,
    ) -> Result<(), WriteError> {
        for part in parts {
            match part {
                Part::Host(bytes) => self.waiting.push_back(Waiting::Host(bytes)),
                Part::Device { index, row, buffer } => self.copy(index, &row, &buffer)?,
            }
            if self.waiting.len() >= MOST_PARTS {
                self.write_all()?;
            }
        }
        Ok(())
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> Result<(), WriteError> {
        self.write_all()
    }

    /// Queues the copies of a buffer, on a stream that is ordered after what its bytes depend on.
    fn copy(
        &mut self,
        index: usize,
        row: &BufferHandle,
        buffer: &Buffer,
    ) -> Result<(), WriteError> {
        let place = buffer.place();
        let stream = self.device(place)?.ring.stream().clone();
        // Out on the stream until the last copy is queued.
        let buffer = buffer.order(index, row, &stream)?;
        let device_id = (!place.is_host_accessible()).then_some(place.device_id);
        let mut copied = 0_usize;
        while copied < buffer.len() {
            let device = self.device(place)?;
            if device.under_way == device.ring.chunks() {
                self.write_oldest()?;
            }
            let device = self.device(place)?;
            let chunk = device.ring.chunk()?;
            let len = chunk.len().min(buffer.len().saturating_sub(copied));
            let to = (chunk.as_mut_ptr().expose_provenance(), None);
            let from = (buffer.as_ptr().addr().saturating_add(copied), device_id);
            let request = CopyRequest::contiguous(from, to, len);
            // SAFETY: the buffer is out on the stream, which is ordered after its writes, until the copy is queued; the chunk has `len` bytes or
            // more, and is left alone until the copy is done, which `advance` sees to.
            let queued = unsafe { device.layer.copy(&[request], &stream) };
            device.ring.advance(Some(&stream))?;
            queued?;
            device.under_way = device.under_way.saturating_add(1);
            self.waiting.push_back(Waiting::Chunk(len));
            copied = copied.saturating_add(len);
        }
        Ok(())
    }

    /// The ring of the device at `place`. What another one has is written first.
    fn device(&mut self, place: Place) -> Result<&mut Device, WriteError> {
        let id = (place.device, place.device_id);
        if self.device.as_ref().is_some_and(|device| device.id != id) {
            self.write_all()?;
            self.device = None;
        }
        match &mut self.device {
            Some(device) => Ok(device),
            none => {
                let layer = device::reaching(place)?;
                Ok(none.insert(Device {
                    layer,
                    id,
                    ring: layer.staging_ring(place.device_id)?,
                    under_way: 0,
                }))
            }
        }
    }

    /// Writes everything that is waiting.
    fn write_all(&mut self) -> Result<(), WriteError> {
        if let Some(device) = &mut self.device {
            // From the current chunk on to the oldest that is under way.
            for _ in device.under_way..device.ring.chunks() {
                device.ring.advance(None)?;
            }
        }
        while let Some(device) = &self.device
            && device.under_way > 0
        {
            self.write_oldest()?;
            if let Some(device) = &mut self.device {
                device.ring.advance(None)?;
            }
        }
        self.write_oldest()
    }

    /// Writes the oldest chunk that is under way, which is the ring's current one, and what comes before it; the rest where there is none.
    fn write_oldest(&mut self) -> Result<(), WriteError> {
        let is_chunk = |waiting: &Waiting<'_>| matches!(waiting, Waiting::Chunk(_));
        let count = self.waiting.iter().position(is_chunk);
        let host: Vec<_> = self
            .waiting
            .drain(..count.unwrap_or(self.waiting.len()))
            .collect();
        let mut parts: Vec<_> = host
            .iter()
            .filter_map(|waiting| match waiting {
                Waiting::Host(bytes) => Some(IoSlice::new(bytes)),
                Waiting::Chunk(_) => None,
            })
            .collect();
        let (Some(Waiting::Chunk(len)), Some(device)) =
            (self.waiting.pop_front(), &mut self.device)
        else {
            return Ok(write_gathered(self.sink, &mut parts)?);
        };
        device.under_way = device.under_way.saturating_sub(1);
        let chunk = device.ring.chunk()?;
        parts.push(IoSlice::new(chunk.get(..len).unwrap_or(chunk)));
        let written = write_gathered(self.sink, &mut parts);
        if written.is_err() {
            // It has arrived, and nothing else is queued on the chunk.
            device.ring.advance(None)?;
        }
        Ok(written?)
    }
}

/// Writes all of `parts` from where they lie.
fn write_gathered(sink: &mut impl Write, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match sink.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
