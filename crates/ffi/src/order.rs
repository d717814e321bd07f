//! Bringing bytes onto a stream, and waiting for them.
//!
//! Each of these takes all buffers that go together: one wait for each event and one record for each stream that several of them share. Everything is
//! checked before anything is done.

use std::sync::Arc;

use hurray_core::{
    BufferHandle, Dependency, DeviceError, DeviceLayer, DeviceOwner, DeviceTag, Stream, SyncMode,
};
use smallvec::SmallVec;
use thiserror::Error;

use crate::access::{self, AccessError, Reach};
use crate::device;
use crate::lent::Lent;
use crate::loan::{Loan, Returns};
use crate::{Buffer, Owner};

/// Bytes that could not be brought onto a stream, or waited for. They have not been handed out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrderError {
    /// Bytes that may not be given out. No driver was called.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A stream of another device, a device that can't be used, or a call of its driver that failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A buffer, and what its tensor says of it.
#[derive(Clone, Copy)]
pub(crate) struct Part<'b> {
    pub(crate) index: usize,
    pub(crate) row: &'b BufferHandle,
    pub(crate) buffer: &'b Buffer,
}

/// Buffers of one tensor or composite, in order.
pub(crate) type Buffers = SmallVec<[Buffer; 3]>;

/// The buffers, to be used by work that is queued on `stream` from now on: its later work follows what they depend on, and each is out on `stream` until
/// the returned one is dropped. Ready ones stay ready.
pub(crate) fn onto(parts: &[Part<'_>], stream: &Stream) -> Result<Buffers, OrderError> {
    let Some(layer) = check(parts, stream)? else {
        return Ok(Buffers::new());
    };
    let roots = roots(layer, parts)?;
    let ordered = layer
        .order(&dependencies(parts), stream)?
        .map(|dependency| Arc::new(Lent::Dependency(dependency)));
    let loans = lend(layer, &roots, stream)?;
    Ok(parts
        .iter()
        .zip(loans)
        .map(|(part, loan)| {
            let lent = match part.buffer.mode() {
                SyncMode::ProducerSynced => None,
                SyncMode::Event | SyncMode::ConsumerStream => ordered.clone(),
            };
            part.buffer.depending(lent, loan)
        })
        .collect())
}

/// The buffers in mode event: an event after the work that is queued on `stream` by now, which follows what they depend on.
pub(crate) fn record(parts: &[Part<'_>], stream: &Stream) -> Result<Buffers, OrderError> {
    require_device_memory(parts)?;
    let Some(layer) = check(parts, stream)? else {
        return Ok(Buffers::new());
    };
    // Whoever the stream is new to may have used it without telling anybody; that it has used the bytes is noted before they can be let go.
    let is_known = |part: &Part<'_>| match part.buffer.dependency() {
        Some(Dependency::Stream(known)) => known == stream,
        _ => false,
    };
    let used = if parts.iter().all(is_known) {
        Buffers::new()
    } else {
        onto(parts, stream)?
    };
    let event = Dependency::Event(layer.record(stream)?);
    // Together, for one event more and not one for each.
    Returns::default().extend(used);
    let event = Arc::new(Lent::Dependency(event));
    Ok(parts
        .iter()
        .map(|part| {
            let lent = Some(Arc::clone(&event));
            part.buffer.depending(lent, behind(part.buffer))
        })
        .collect())
}

/// Blocks until the bytes may be read; the buffers, ready.
pub(crate) fn synchronize(parts: &[Part<'_>]) -> Result<Buffers, OrderError> {
    for part in parts {
        access::check(part.index, part.row, part.buffer, Reach::Ordered)?;
    }
    let mut waiting = parts.iter().map(|part| part.buffer);
    if let Some(buffer) = waiting.find(|buffer| buffer.dependency().is_some()) {
        device::reaching(buffer.place())?.wait(&dependencies(parts))?;
    }
    Ok(parts
        .iter()
        .map(|part| part.buffer.depending(None, behind(part.buffer)))
        .collect())
}

/// Notes that work on `stream` uses the bytes until their last holder lets go: they are not freed before what is queued there by then is done.
pub(crate) fn record_stream(parts: &[Part<'_>], stream: &Stream) -> Result<(), OrderError> {
    require_device_memory(parts)?;
    if let Some(layer) = check(parts, stream)? {
        let roots = roots(layer, parts)?;
        layer.order(&dependencies(parts), stream)?;
        layer.enter(&distinct(&roots), stream)?;
    }
    Ok(())
}

/// Makes `stream` wait for everything that has come back so far, on whatever stream it was out.
pub(crate) fn order_after_readers(parts: &[Part<'_>], stream: &Stream) -> Result<(), OrderError> {
    require_device_memory(parts)?;
    if let Some(layer) = check(parts, stream)? {
        let roots = roots(layer, parts)?;
        layer.order_after_readers(&distinct(&roots), stream)?;
    }
    Ok(())
}

/// That work on `stream`, once it is ordered, may use the bytes; the layer that orders it, unless there are no buffers.
fn check(
    parts: &[Part<'_>],
    stream: &Stream,
) -> Result<Option<&'static dyn DeviceLayer>, OrderError> {
    for part in parts {
        access::check(part.index, part.row, part.buffer, Reach::Ordered)?;
        access::check_stream(part.buffer, stream)?;
    }
    let mut reached = None;
    for part in parts {
        let place = part.buffer.place();
        if reached.is_none_or(|(device, _)| device != place.device) {
            reached = Some((place.device, device::reaching(place)?));
        }
    }
    Ok(reached.map(|(_, layer)| layer))
}

/// Memory of the CPU is ready always, and its owners know no device.
fn require_device_memory(parts: &[Part<'_>]) -> Result<(), AccessError> {
    let host = |part: &&Part<'_>| part.buffer.place().device == DeviceTag::Cpu;
    match parts.iter().find(host) {
        Some(part) => Err(AccessError::HostMemory { buffer: part.index }),
        None => Ok(()),
    }
}

fn dependencies<'b>(parts: &[Part<'b>]) -> SmallVec<[&'b Dependency; 3]> {
    parts
        .iter()
        .filter_map(|part| part.buffer.dependency())
        .collect()
}

/// Whether all buffers are out on `stream` already, and so ordered there, and each comes back when it is dropped: nobody else holds its use.
pub(crate) fn are_out_on(parts: &[Part<'_>], stream: &Stream) -> bool {
    parts.iter().all(|part| match part.buffer.owner() {
        Owner::Loan(loan) => loan.is_on(stream) && part.buffer.is_only_holder(),
        _ => false,
    })
}

/// For each buffer an owner that knows the device: the one it has, or one made for this use of host memory.
fn roots(
    layer: &'static dyn DeviceLayer,
    parts: &[Part<'_>],
) -> Result<SmallVec<[Arc<Owner>; 3]>, DeviceError> {
    parts.iter().map(|part| root(layer, part.buffer)).collect()
}

/// As [`roots`], for one.
pub(crate) fn root(
    layer: &'static dyn DeviceLayer,
    buffer: &Buffer,
) -> Result<Arc<Owner>, DeviceError> {
    let owner = behind(buffer);
    match &*owner {
        Owner::Device(_) => Ok(owner),
        _ => device::hold(layer, buffer.place(), &owner),
    }
}

/// The owner without the use on a stream.
fn behind(buffer: &Buffer) -> Arc<Owner> {
    match buffer.owner() {
        Owner::Loan(loan) => loan.of().cloned(),
        _ => None,
    }
    .unwrap_or_else(|| buffer.shared_owner())
}

/// What the layer knows of `roots`, each once.
fn distinct(roots: &[Arc<Owner>]) -> SmallVec<[&dyn DeviceOwner; 3]> {
    let mut owners = SmallVec::new();
    for (number, root) in roots.iter().enumerate() {
        let known = roots.iter().take(number);
        if let Owner::Device(device) = &**root
            && !known.clone().any(|known| Arc::ptr_eq(known, root))
        {
            owners.push(device.owner());
        }
    }
    owners
}

/// Tells the layer that `roots` are out on `stream`; for each its use, which ends when that is dropped.
pub(crate) fn lend(
    layer: &'static dyn DeviceLayer,
    roots: &[Arc<Owner>],
    stream: &Stream,
) -> Result<SmallVec<[Arc<Owner>; 3]>, DeviceError> {
    layer.enter(&distinct(roots), stream)?;
    let mut loans = SmallVec::<[Arc<Owner>; 3]>::new();
    for root in roots {
        let known = roots.iter().position(|known| Arc::ptr_eq(known, root));
        let loan = known.and_then(|known| loans.get(known)).cloned();
        loans.push(loan.unwrap_or_else(|| {
            let loan = Loan::new(stream.clone(), Arc::clone(root));
            Arc::new(Owner::Loan(loan))
        }));
    }
    Ok(loans)
}
