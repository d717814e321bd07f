//! Places as `Device` objects.

use hurray_ffi::Place;
use pyo3::prelude::*;

use crate::device::{self, Device};

/// The object for `place`.
pub(crate) fn device(py: Python<'_>, place: Place) -> PyResult<Py<Device>> {
    device::object(
        py,
        Device {
            tag: place.device,
            device_id: place.device_id,
            memory_class: place.memory_class,
        },
    )
}

/// The place that `device` names.
pub(crate) fn of(device: &Device) -> Place {
    Place {
        device: device.tag,
        device_id: device.device_id,
        memory_class: device.memory_class,
    }
}
