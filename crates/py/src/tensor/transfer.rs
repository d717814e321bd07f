//! `Tensor.to`.

use std::sync::Arc;

use hurray_core::{DeviceTag, Stream};
use hurray_ffi::{Composite, Item, Place, Tensor};
use pyo3::prelude::*;

use crate::copies::{self, Reason};
use crate::cuda::{StreamArgument, current_stream};
use crate::errors::{CopyRequiredError, OrRaise};
use crate::ingest::CopyArgument;
use crate::owner::{detached, drop_detached};

/// The tensor at `place`: itself where it is there already and no copy is asked for. A copy is reported as made by `call`.
pub(crate) fn to(
    py: Python<'_>,
    tensor: &Tensor,
    place: Place,
    stream: Option<&Bound<'_, PyAny>>,
    copy: CopyArgument,
    call: &'static str,
) -> PyResult<Tensor> {
    let settled = tensor.settled().or_raise()?;
    let elsewhere = |found: &Place| *found != place;
    let mut places = settled.buffers().iter().map(|buffer| buffer.place());
    let from = places.clone().find(elsewhere);
    if copy != CopyArgument::Always && from.is_none() {
        return Ok(settled);
    }
    if copy == CopyArgument::Never {
        let from = from.unwrap_or(place);
        return Err(CopyRequiredError::new_err(format!(
            "the bytes are on {from}, and to have them on {place} is a copy, which copy=False forbids"
        )));
    }
    // The device's that is written to, or else read from.
    let on_device = |place: &Place| place.device == DeviceTag::Cuda;
    let device = Some(place).filter(on_device).or(places.find(on_device));
    let stream: Option<Stream> = match (device, stream) {
        (None, None) => None,
        (None, Some(stream)) => {
            // Of no consequence between places of the host.
            StreamArgument::or_none(stream)?;
            None
        }
        (Some(device), Some(stream)) => {
            Some(StreamArgument::new(stream)?.of_device(py, device.device_id)?)
        }
        (Some(device), None) => Some(current_stream(py, device.device_id)?),
    };
    let copied = detached(py, || settled.copy_to(place, stream.as_ref())).or_raise()?;
    for (source, target) in settled.buffers().iter().zip(copied.buffers()) {
        let reason = if source.place() == target.place() {
            Reason::Request
        } else {
            Reason::Device
        };
        copies::report(
            py,
            target.len(),
            source.place(),
            target.place(),
            reason,
            call,
        )?;
    }
    Ok(copied)
}

/// The same for all members of a composite.
///
/// # Errors
/// As [`to`]; no member is moved then.
pub(crate) fn composite(
    py: Python<'_>,
    composite: &Composite,
    place: Place,
    stream: Option<&Bound<'_, PyAny>>,
    copy: CopyArgument,
    call: &'static str,
) -> PyResult<Composite> {
    let mut moved = Vec::with_capacity(composite.members().len());
    for member in composite.members() {
        let member = match member {
            Item::Tensor(tensor) => to(py, tensor, place, stream, copy, call).map(Item::Tensor),
            Item::Composite(composite) => {
                self::composite(py, composite, place, stream, copy, call).map(Item::Composite)
            }
        };
        match member {
            Ok(member) => moved.push(member),
            Err(error) => {
                drop_detached(moved);
                return Err(error);
            }
        }
    }
    // What fitted its head does so elsewhere.
    Composite::new(Arc::clone(composite.head()), moved).or_raise()
}
