//! Handing bytes over on a stream that a caller names.

use hurray_core::{DeviceError, DeviceLayer, DeviceTag, Stream};
use hurray_cuda::LAYER;
use hurray_ffi::access::Reach;
use hurray_ffi::{Composite, Item, Place, Tensor};
use pyo3::prelude::*;

use crate::cuda::StreamArgument;
use crate::errors::OrRaise;
use crate::owner::{detached, drop_detached};

/// Where a tensor's bytes are.
pub(crate) fn place_of(tensor: &Tensor) -> Place {
    tensor
        .buffers()
        .first()
        .map_or(Place::HOST, |buffer| buffer.place())
}

/// Where a composite's bytes are: those of its first member that has any.
pub(crate) fn place_of_composite(composite: &Composite) -> Place {
    let places = composite.members().iter().map(|member| match member {
        Item::Tensor(tensor) => place_of(tensor),
        Item::Composite(composite) => place_of_composite(composite),
    });
    let mut places = places.filter(|place| *place != Place::HOST);
    places.next().unwrap_or(Place::HOST)
}

/// The stream that `argument` names, for work on bytes at `place`; `None` where nothing here has streams for them: bytes that are ready are then
/// handed over as they are, and others not at all.
///
/// # Errors
/// A stream of another device, or a device that can't be used, which memory of the CPU does not need.
pub(crate) fn stream_for<'py>(
    py: Python<'py>,
    place: Place,
    argument: StreamArgument<'py>,
) -> PyResult<Option<Stream>> {
    if !matches!(place.device, DeviceTag::Cpu | DeviceTag::Cuda) {
        return Ok(None);
    }
    match detached(py, || LAYER.device_count()) {
        Ok(_) => argument.for_memory(py, place).map(Some),
        Err(DeviceError::Unavailable { .. }) => Ok(None),
        Err(_) if place.device == DeviceTag::Cpu => Ok(None),
        Err(error) => Err(error).or_raise(),
    }
}

/// The tensor for work that is queued on the stream from now on, as [`Tensor::order`].
///
/// # Errors
/// `UnsupportedError` for bytes that may not be given out, `DeviceError` for a stream that they can't be ordered on.
pub(crate) fn tensor<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    argument: StreamArgument<'py>,
) -> PyResult<Tensor> {
    match stream_for(py, place_of(tensor), argument)? {
        Some(stream) => detached(py, || tensor.order(&stream)).or_raise(),
        None => {
            tensor.check_access(Reach::Ordered).or_raise()?;
            Ok(tensor.clone())
        }
    }
}

/// The same for all members of a composite.
///
/// # Errors
/// As [`tensor`].
pub(crate) fn composite<'py>(
    py: Python<'py>,
    composite: &Composite,
    argument: StreamArgument<'py>,
) -> PyResult<Composite> {
    match stream_for(py, place_of_composite(composite), argument)? {
        Some(stream) => detached(py, || composite.order(&stream)).or_raise(),
        None => {
            check(composite)?;
            Ok(composite.clone())
        }
    }
}

/// The same for an item that was just taken from a producer: what that has ordered on the stream is not ordered again. Let go detached where it is
/// refused.
///
/// # Errors
/// As [`tensor`].
pub(crate) fn taken<'py>(
    py: Python<'py>,
    item: Item,
    argument: StreamArgument<'py>,
) -> PyResult<Item> {
    let place = match &item {
        Item::Tensor(tensor) => place_of(tensor),
        Item::Composite(composite) => place_of_composite(composite),
    };
    let stream = match stream_for(py, place, argument) {
        Ok(stream) => stream,
        Err(error) => {
            drop_detached(item);
            return Err(error);
        }
    };
    match stream {
        Some(stream) => detached(py, move || item.into_ordered(&stream)).or_raise(),
        None => match check_item(&item) {
            Ok(()) => Ok(item),
            Err(error) => {
                drop_detached(item);
                Err(error)
            }
        },
    }
}

fn check_item(item: &Item) -> PyResult<()> {
    match item {
        Item::Tensor(tensor) => tensor.check_access(Reach::Ordered).or_raise(),
        Item::Composite(composite) => check(composite),
    }
}

fn check(composite: &Composite) -> PyResult<()> {
    composite.members().iter().try_for_each(check_item)
}
