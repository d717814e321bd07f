//! Copies of tensors at other places.

use std::sync::Arc;

use hurray_core::memory::{AlignedBytes, AllocationError};
use hurray_core::{
    BufferHandle, CopyRequest, Dependency, DeviceError, DeviceTag, MemoryClass, Stream,
};
use smallvec::SmallVec;
use thiserror::Error;

use crate::access::{self, AccessError, Reach};
use crate::lent::Lent;
use crate::loan::Returns;
use crate::order::{self, Buffers, Part};
use crate::{Buffer, BufferFlags, Place, Readiness, Tensor, TensorError, device, measure_rows};

/// A copy that was not made.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// Bytes that may not be read. No driver was called.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A device that can't be used, or a call of its driver that failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No host memory for the copy.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// Places that nothing here copies between.
    #[error("nothing here copies from {from} to {to}")]
    NoWay {
        /// Where the bytes are.
        from: Place,
        /// Where they were to go.
        to: Place,
    },
    /// A copy between a device and anywhere that no stream was named for.
    #[error("a copy from {from} to {to} runs on a stream, and none was named")]
    NoStream {
        /// Where the bytes are.
        from: Place,
        /// Where they were to go.
        to: Place,
    },
    /// Buffers of which there is no tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Tensor {
    /// The tensor with rows that say where the bytes are and in what mode, as a declared one is read. No byte is copied.
    ///
    /// # Errors
    /// Buffers on several devices.
    pub fn settled(&self) -> Result<Self, TensorError> {
        let is_declared = |buffer: &Buffer| buffer.flags().contains(BufferFlags::DECLARED);
        if !self.buffers().iter().any(is_declared) {
            return Ok(self.clone());
        }
        let (rows, buffers) = settle(self);
        self.rebuilt(rows, buffers)
    }

    /// A copy of the tensor at `place`, made on `stream`, which is ordered after the bytes' writes first; only a copy from host memory to host memory needs
    /// none. The copy is `consumer_stream` of `stream` (`event` of the per-thread default), and `producer_synced` in memory of the CPU, where the call
    /// returns once it is there. It has memory of its own; layout and parameters stay.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is handed out.
    pub fn copy_to(&self, place: Place, stream: Option<&Stream>) -> Result<Self, TransferError> {
        let (rows, buffers) = settle(self);
        let parts: SmallVec<[Part<'_>; 3]> = rows
            .iter()
            .zip(&buffers)
            .enumerate()
            .map(|(index, (row, buffer))| Part { index, row, buffer })
            .collect();
        let copies = copy(&parts, place, stream)?;
        drop(parts);
        Ok(self.rebuilt(rows, copies)?)
    }

    /// The same tensor over other buffers, whose rows say what they are.
    fn rebuilt(
        &self,
        mut rows: SmallVec<[BufferHandle; 3]>,
        buffers: Buffers,
    ) -> Result<Self, TensorError> {
        for (row, buffer) in rows.iter_mut().zip(&buffers) {
            *row = BufferHandle {
                byte_size: row.byte_size,
                ..buffer.handle()
            };
        }
        measure_rows(&mut rows, &buffers);
        let mut descriptor = Arc::clone(self.descriptor());
        let held = &mut Arc::make_mut(&mut descriptor).buffers;
        held.iter_mut()
            .zip(rows)
            .for_each(|(held, row)| *held = row);
        Self::new(descriptor, buffers)
    }
}

impl Buffer {
    /// A copy of the buffer at `place`, as [`Tensor::copy_to`] makes it.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn copy_to(&self, place: Place, stream: Option<&Stream>) -> Result<Self, TransferError> {
        let row = self.handle();
        let part = Part {
            index: 0,
            row: &row,
            buffer: self,
        };
        let copies = copy(&[part], place, stream)?;
        // One for one.
        Ok(copies.into_iter().next().unwrap_or_else(|| self.clone()))
    }
}

/// Rows and buffers of `tensor`, those that are declared as they are.
fn settle(tensor: &Tensor) -> (SmallVec<[BufferHandle; 3]>, Buffers) {
    let rows = tensor.descriptor().buffers.iter();
    rows.zip(tensor.buffers())
        .map(|(row, buffer)| {
            let buffer = buffer.settled();
            let row = BufferHandle {
                byte_size: row.byte_size,
                ..buffer.handle()
            };
            (row, buffer)
        })
        .unzip()
}

/// A copy of each buffer at `place`, as many bytes as its row has.
fn copy(
    parts: &[Part<'_>],
    place: Place,
    stream: Option<&Stream>,
) -> Result<Buffers, TransferError> {
    for part in parts {
        access::check(part.index, part.row, part.buffer, Reach::Ordered)?;
    }
    let is_host = |place: Place| place.device == DeviceTag::Cpu;
    let Some(device_end) = parts
        .iter()
        .map(|part| part.buffer.place())
        .chain([place])
        .find(|&end| !is_host(end))
    else {
        return parts.iter().map(copy_in_host_memory).collect();
    };
    let from = parts.first().map_or(place, |part| part.buffer.place());
    if is_host(place) && place != Place::HOST
        || parts.iter().any(|part| {
            let from = part.buffer.place();
            !is_host(from) && from.device != device_end.device
        })
    {
        return Err(TransferError::NoWay { from, to: place });
    }
    let stream = stream.ok_or(TransferError::NoStream { from, to: place })?;
    copy_on(parts, place, device_end, stream)
}

fn copy_in_host_memory(part: &Part<'_>) -> Result<Buffer, TransferError> {
    let len = part.row.byte_size as usize;
    // SAFETY: memory of the CPU is in the host's reach and ready, and has the bytes of its row (`Tensor::new`).
    let copy = unsafe { AlignedBytes::copy_from_ptr(part.buffer.as_ptr(), len) }?;
    Ok(copy.into())
}

/// [`copy`] by a device: `device_end` is one of the places.
fn copy_on(
    parts: &[Part<'_>],
    place: Place,
    device_end: Place,
    stream: &Stream,
) -> Result<Buffers, TransferError> {
    let layer = device::reaching(device_end)?;
    let dependencies: SmallVec<[&Dependency; 3]> = parts
        .iter()
        .filter_map(|part| part.buffer.dependency())
        .collect();
    layer.order(&dependencies, stream)?;
    // Memory that the device does not reach itself is read by the time the copy is queued.
    let mut sources = SmallVec::<[_; 3]>::new();
    for part in parts {
        let address = part.buffer.as_ptr().addr();
        if part.buffer.place().device != DeviceTag::Cpu || layer.pointer_facts(address)?.is_some() {
            sources.push(order::root(layer, part.buffer)?);
        }
    }
    let sources = order::lend(layer, &sources, stream)?;
    let mut targets = Targets::of(parts, place, stream)?;
    let roots = targets
        .buffers()
        .map(|target| order::root(layer, target))
        .collect::<Result<SmallVec<[_; 3]>, _>>()?;
    // Memory of a pool is let go in the order of its allocation, which the copies follow.
    let filling = if place.memory_class == MemoryClass::Standard {
        SmallVec::new()
    } else {
        order::lend(layer, &roots, stream)?
    };
    let requests: SmallVec<[CopyRequest; 3]> = parts
        .iter()
        .zip(targets.addresses())
        .map(|(part, to)| {
            let from = part.buffer.as_ptr().addr();
            let from = (from, number(part.buffer.place()));
            CopyRequest::contiguous(from, (to, number(place)), part.row.byte_size as usize)
        })
        .collect();
    // SAFETY: the sources have the bytes of their rows (`Tensor::new`), are kept by `parts`, and are out on the stream where the device reads them
    // later; the targets were just allocated, with as many bytes, and are out on the stream too.
    let copied = unsafe { layer.copy(&requests, stream) };
    let mut returns = Returns::default();
    sources
        .into_iter()
        .chain(filling)
        .for_each(|loan| returns.push(loan));
    drop(returns);
    copied?;
    Ok(match targets {
        Targets::Host(bytes) => bytes.into_iter().map(Buffer::from).collect(),
        Targets::Device(buffers) => {
            let after = if stream.is_per_thread() {
                Dependency::Event(layer.record(stream)?)
            } else {
                Dependency::Stream(stream.clone())
            };
            let after = Lent::of(Readiness::Held(after));
            buffers
                .iter()
                .zip(roots)
                .map(|(buffer, root)| buffer.depending(after.clone(), root))
                .collect()
        }
    })
}

/// The device that a copy's end is on; `None` for what the host reaches too.
const fn number(place: Place) -> Option<u32> {
    if place.is_host_accessible() {
        None
    } else {
        Some(place.device_id)
    }
}

/// Memory that is to be filled.
enum Targets {
    Host(SmallVec<[AlignedBytes; 3]>),
    Device(Buffers),
}

impl Targets {
    fn of(parts: &[Part<'_>], place: Place, stream: &Stream) -> Result<Self, TransferError> {
        let lens = parts.iter().map(|part| part.row.byte_size as usize);
        if place.device == DeviceTag::Cpu {
            let bytes = lens.map(AlignedBytes::zeroed).collect::<Result<_, _>>()?;
            return Ok(Self::Host(bytes));
        }
        let allocate = |len| Buffer::allocate(place, len, false, stream);
        Ok(Self::Device(lens.map(allocate).collect::<Result<_, _>>()?))
    }

    /// Those of a device.
    fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        match self {
            Self::Host(_) => [].iter(),
            Self::Device(buffers) => buffers.iter(),
        }
    }

    fn addresses(&mut self) -> SmallVec<[usize; 3]> {
        match self {
            Self::Host(bytes) => bytes
                .iter_mut()
                .map(|bytes| bytes.as_mut_ptr().expose_provenance())
                .collect(),
            Self::Device(buffers) => buffers.iter().map(|b| b.as_ptr().addr()).collect(),
        }
    }
}
