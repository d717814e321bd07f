//! The devices of this process.

use std::sync::{Arc, OnceLock};

use hurray_core::{
    DeviceError, DeviceLayer, DeviceOwner, DeviceTag, PointerClaim, PointerError, Stream,
    StreamOrdered,
};

use crate::buffer::Region;
use crate::{Owner, Place};

static LAYER: OnceLock<&'static dyn DeviceLayer> = OnceLock::new();

/// Gives the transport its device layer, once and before the first buffer of such a device is made: a later one is not looked at. Nothing of a driver is
/// loaded.
pub fn register(layer: &'static dyn DeviceLayer) {
    // A second one is the same one: whoever registers has one to choose from.
    let _ = LAYER.set(layer);
}

/// The registered layer of this kind of device, whether it has a driver or not.
#[must_use]
pub fn layer(device: DeviceTag) -> Option<&'static dyn DeviceLayer> {
    LAYER
        .get()
        .copied()
        .filter(|layer| layer.device() == device)
}

/// The layer whose streams may use memory at `place`. Memory of the CPU is in reach of whatever device there is.
///
/// # Errors
/// Why there is none: no layer, no driver, no device.
pub fn reaching(place: Place) -> Result<&'static dyn DeviceLayer, DeviceError> {
    let layer = match place.device {
        DeviceTag::Cpu => LAYER.get().copied(),
        device => layer(device),
    };
    let layer = layer.ok_or_else(|| DeviceError::Unavailable {
        reason: format!("this program has no device layer for memory on {place}"),
    })?;
    layer.device_count()?;
    Ok(layer)
}

/// The layer of memory that a device holds or shares with the host, where it has a driver; none for memory of the CPU.
pub(crate) fn holding(place: Place) -> Option<&'static dyn DeviceLayer> {
    layer(place.device).filter(|layer| layer.device_count().is_ok())
}

/// That memory of a device is what was said of it, where there is a driver to ask.
pub(crate) fn check(region: &Region) -> Result<(), PointerError> {
    holding(region.place).map_or(Ok(()), |layer| {
        layer.check_pointer(&PointerClaim {
            address: region.address.addr(),
            len: region.len,
            device_id: region.place.device_id,
            memory_class: region.place.memory_class,
        })
    })
}

/// What keeps bytes alive until a device is done with them.
pub struct DeviceHeld {
    layer: &'static dyn DeviceLayer,
    owner: Box<dyn DeviceOwner>,
}

impl DeviceHeld {
    /// Memory of the layer's own.
    pub(crate) fn new(layer: &'static dyn DeviceLayer, owner: Box<dyn DeviceOwner>) -> Self {
        Self { layer, owner }
    }

    /// The layer.
    pub(crate) fn layer(&self) -> &'static dyn DeviceLayer {
        self.layer
    }

    /// The owner, as the layer knows it.
    pub(crate) fn owner(&self) -> &dyn DeviceOwner {
        &*self.owner
    }
}

/// An owner that lets go of `owner` once the device is done with it.
///
/// # Errors
/// Why there is no device. `owner` has not been touched.
pub(crate) fn hold(
    layer: &'static dyn DeviceLayer,
    place: Place,
    owner: &Arc<Owner>,
) -> Result<Arc<Owner>, DeviceError> {
    let held = Arc::clone(owner);
    // To a producer of host memory no stream means anything.
    let owner = if owner.takes_stream() && place.device != DeviceTag::Cpu {
        layer.own_stream_ordered(place.device_id, Box::new(TakenBack { layer, owner: held }))
    } else {
        layer.own(Box::new(held))
    }?;
    Ok(Arc::new(Owner::Device(DeviceHeld { layer, owner })))
}

/// Bytes that their producer may take back in a stream's order.
struct TakenBack {
    layer: &'static dyn DeviceLayer,
    owner: Arc<Owner>,
}

impl StreamOrdered for TakenBack {
    fn release_on(&mut self, stream: &Stream) -> bool {
        // An event or stream of the producer's that is still in use somewhere needs the bytes' owner.
        let Some(owner) = Arc::get_mut(&mut self.owner) else {
            return false;
        };
        match owner {
            Owner::Slot(slot) => slot.release_after(stream.number().get()).is_ok(),
            Owner::Callback(callback) => callback.release_after(|| self.layer.record(stream).ok()),
            _ => false,
        }
    }
}
