//! `hurray.Device` and the module `hurray.device`.

use std::fmt;

use hurray_core::{BufferHandle, DeviceTag, MemoryClass};
use hurray_ffi::Place;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::errors::InvalidDescriptorError;

/// Where bytes live: the kind of device, which one of that kind, and who can reach its memory.
///
/// `kind` is "cpu", "cuda", "rocm", "metal", "vulkan", "webgpu", "hexagon", "level_zero" or
/// "opencl", or the tag byte of a device, 0xF0 to 0xFE being private ones. `memory_class` is
/// "standard", "host_pinned", "unified" or "peer", or a byte. A string may say all three:
/// "cuda:1/host_pinned". The defaults are 0 and "standard".
///
/// Raises InvalidDescriptorError, with the accepted values, for anything else. Which classes
/// exist on which kind is checked when a tensor is made.
///
/// >>> hurray.Device("cuda", 1), hurray.Device("cuda:0/host_pinned")
/// (cuda:1, cuda:0/host_pinned)
#[pyclass(frozen, eq, hash, module = "hurray")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Device(pub(crate) Place);

/// What `kind` and `memory_class` are called where the format gives no name.
const PRIVATE_NAME: &str = "private";

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (kind, device_id=None, memory_class=None))]
    fn new(
        kind: &Bound<'_, PyAny>,
        device_id: Option<i128>,
        memory_class: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut place = match kind.cast::<PyString>() {
            Ok(text) => {
                let text = text.to_str()?;
                let (has_id, has_class) = (text.contains(':'), text.contains('/'));
                if (has_id && device_id.is_some()) || (has_class && memory_class.is_some()) {
                    return Err(InvalidDescriptorError::new_err(format!(
                        "'{text}' already says what device_id or memory_class say again"
                    )));
                }
                parse(text)?
            }
            Err(_) => first(device_tag(kind)?),
        };
        if let Some(id) = device_id {
            place.device_id = u32::try_from(id).map_err(|_| {
                InvalidDescriptorError::new_err(format!(
                    "device_id is an int from 0 to {}, got {id}",
                    u32::MAX
                ))
            })?;
        }
        if let Some(class) = memory_class {
            place.memory_class = class_argument(class)?;
        }
        Ok(Self(place))
    }

    /// The kind of device, such as "cuda"; "private" for a private one.
    #[getter]
    fn kind(&self) -> String {
        match self.0.device {
            DeviceTag::Private(_) => PRIVATE_NAME.to_owned(),
            named => named.to_string(),
        }
    }

    /// Which device of its kind, from 0. It is not part of a descriptor.
    #[getter]
    fn device_id(&self) -> u32 {
        self.0.device_id
    }

    /// Who can reach the memory, such as "host_pinned"; "private" for a private class.
    #[getter]
    fn memory_class(&self) -> String {
        match self.0.memory_class {
            MemoryClass::Private(_) => PRIVATE_NAME.to_owned(),
            named => named.to_string(),
        }
    }

    /// The byte that stands for the kind in a descriptor; it tells private devices apart.
    #[getter]
    fn tag(&self) -> u8 {
        self.0.device.to_byte()
    }

    /// The byte that stands for the memory class in a descriptor.
    #[getter]
    fn memory_class_tag(&self) -> u8 {
        self.0.memory_class.to_byte()
    }

    /// Whether this is a device that two parties agreed on outside the format.
    #[getter]
    fn is_private(&self) -> bool {
        matches!(self.0.device, DeviceTag::Private(_))
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Standard memory of a device.
pub(crate) const fn standard(device: DeviceTag, device_id: u32) -> Place {
    Place {
        device,
        device_id,
        memory_class: MemoryClass::Standard,
    }
}

/// Device 0 of its kind with standard memory.
const fn first(device: DeviceTag) -> Place {
    standard(device, 0)
}

/// What a row says of its device, which is not which one of its kind.
pub(crate) fn of_row(row: &BufferHandle) -> Place {
    Place {
        memory_class: row.memory_class,
        ..first(row.device)
    }
}

/// Reads "kind", "kind:id", "kind/class" and "kind:id/class".
fn parse(text: &str) -> PyResult<Place> {
    let (device, class) = match text.split_once('/') {
        Some((device, class)) => (device, named_class(class)?),
        None => (text, MemoryClass::Standard),
    };
    let (kind, id) = match device.split_once(':') {
        // `u32::from_str` would take a sign.
        Some((kind, id)) if id.bytes().all(|digit| digit.is_ascii_digit()) => {
            (kind, id.parse().ok())
        }
        Some((kind, _)) => (kind, None),
        None => (device, Some(0)),
    };
    let tag = DeviceTag::from_name(kind).ok_or_else(|| unknown_kind(&format!("'{kind}'")))?;
    let device_id = id.ok_or_else(|| {
        InvalidDescriptorError::new_err(format!(
            "'{text}' has no device_id from 0 to {} after the colon",
            u32::MAX
        ))
    })?;
    Ok(Place {
        device: tag,
        device_id,
        memory_class: class,
    })
}

fn device_tag(kind: &Bound<'_, PyAny>) -> PyResult<DeviceTag> {
    kind.extract::<u8>()
        .ok()
        .and_then(DeviceTag::from_byte)
        .map_or_else(|| Err(unknown_kind(&kind.repr()?.to_string())), Ok)
}

fn unknown_kind(kind: &str) -> PyErr {
    InvalidDescriptorError::new_err(format!(
        "there is no device kind {kind}, but {}, and the bytes 0xf0 to 0xfe for private devices",
        DeviceTag::NAMED.map(|tag| tag.to_string()).join(", ")
    ))
}

fn class_argument(class: &Bound<'_, PyAny>) -> PyResult<MemoryClass> {
    if let Ok(name) = class.cast::<PyString>() {
        return named_class(name.to_str()?);
    }
    class
        .extract::<u8>()
        .ok()
        .and_then(MemoryClass::from_byte)
        .map_or_else(|| Err(unknown_class(&class.repr()?.to_string())), Ok)
}

fn named_class(name: &str) -> PyResult<MemoryClass> {
    MemoryClass::from_name(name).ok_or_else(|| unknown_class(&format!("'{name}'")))
}

fn unknown_class(name: &str) -> PyErr {
    InvalidDescriptorError::new_err(format!(
        "there is no memory class {name}, but {}, and the bytes 0xf0 to 0xfe for private classes",
        MemoryClass::NAMED.map(|class| class.to_string()).join(", ")
    ))
}

/// The object for `place`: `hurray.device`'s own for device 0 of a named kind with standard memory, a new one otherwise.
pub(crate) fn object(py: Python<'_>, place: Place) -> PyResult<Py<Device>> {
    static FIRST: PyOnceLock<Vec<Py<Device>>> = PyOnceLock::new();
    let singletons = FIRST.get_or_try_init(py, || {
        DeviceTag::NAMED
            .iter()
            .map(|&tag| Py::new(py, Device(first(tag))))
            .collect::<PyResult<_>>()
    })?;
    match singletons.iter().find(|object| object.get().0 == place) {
        Some(object) => Ok(object.clone_ref(py)),
        None => Py::new(py, Device(place)),
    }
}

/// A `device=` argument: a `Device`, or a string that names one.
///
/// # Errors
/// `TypeError` for another type, `InvalidDescriptorError` for a string that names no device.
pub(crate) fn argument(object: &Bound<'_, PyAny>) -> PyResult<Py<Device>> {
    match object.cast::<PyString>() {
        Ok(text) => self::object(object.py(), parse(text.to_str()?)?),
        Err(_) => match object.cast::<Device>() {
            Ok(device) => Ok(device.clone().unbind()),
            Err(_) => Err(PyTypeError::new_err(format!(
                "device is a string, such as \"cuda:0\", or a hurray.Device, not {}",
                object.get_type().name()?
            ))),
        },
    }
}

/// Puts `Device` and the module `device` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Device>()?;
    let devices = PyModule::new(py, "hurray.device")?;
    devices.setattr(
        "__doc__",
        "Device 0 of each kind that the format names, with standard memory.",
    )?;
    for tag in DeviceTag::NAMED {
        devices.add(tag.to_string().as_str(), object(py, first(tag))?)?;
    }
    crate::add_module(module, "device", &devices)
}
