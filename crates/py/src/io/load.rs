//! `hurray.load` and `hurray.load_kv`.

use hurray_ffi::Item;
use hurray_io::Target;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::container::{self, Container, DeviceArgument};
use super::metadata;
use super::progress::Progress;
use crate::capsule;

/// Loads tensors from a file, as a dict of Tensor and Composite by name; `names` chooses some.
///
/// `path` is a path, a binary file object, which is read from where it stands to its end, or the
/// file's contents as bytes or anything like them. A composite comes whole, and its members not by
/// their own names; asked for by name, they come as well.
///
/// A file is mapped: no byte is read before it is touched, every buffer begins on a page, and what
/// is written to a tensor stays in this process and changes no file. Do not truncate a file while
/// tensors map it; `save` does not. With `mmap=False` bytes are read, on several threads, into
/// memory of their own.
///
/// `device="cpu"` gives host tensors, also of what the file declares to be another device's, without
/// a copy; `device=None` leaves those as declared, to be relayed. With another device, bytes are read
/// into pinned memory and copied from there, several chunks at a time; each tensor comes in mode
/// `event`, and can be used before the rest is there. `progress` is called with the bytes read
/// and all that are to be read (once, at the end, where the file is mapped); True shows a bar of
/// tqdm.
///
/// Raises FileError for a file that is not there (a FileNotFoundError too), is no container or
/// lacks a name, InvalidDescriptorError for descriptors and composites that cannot be, DeviceError
/// for a device that cannot be used.
///
/// >>> hurray.load("model.hrry")["weights"]
#[pyfunction]
#[pyo3(
    signature = (path, *, names=None, device=DeviceArgument(Target::Host), mmap=true, progress=None),
    text_signature = "(path, *, names=None, device='cpu', mmap=True, progress=None)"
)]
fn load<'py>(
    path: &Bound<'py, PyAny>,
    names: Option<&Bound<'py, PyAny>>,
    device: DeviceArgument,
    mmap: bool,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = path.py();
    let wanted = names.map(container::names).transpose()?;
    let container = Container::open(path, mmap, "load")?;
    let mut progress = Progress::new(progress, None, &container.title())?;
    let names = match &wanted {
        Some(wanted) => wanted.iter().map(String::as_str).collect(),
        None => container.roots(py)?,
    };
    let items = container.items(py, &names, device.0, &mut progress)?;
    progress.end(py, items.iter().map(bytes).sum())?;
    let loaded = PyDict::new(py);
    for (name, item) in names.iter().zip(items) {
        loaded.set_item(name, capsule::object(py, item)?)?;
    }
    progress.close(py)?;
    Ok(loaded)
}

fn bytes(item: &Item) -> u64 {
    match item {
        Item::Tensor(tensor) => tensor
            .buffers()
            .iter()
            .map(|buffer| buffer.len() as u64)
            .sum(),
        Item::Composite(composite) => composite.members().iter().map(bytes).sum(),
    }
}

/// The metadata of a file, as a dict: what was given to `save` as `kv`. Values are bool, int, float,
/// str, bytes and lists of one of these.
///
/// `path` is as with `load`; of a file, no tensor is read.
///
/// Raises FileError as `load` does.
#[pyfunction]
#[pyo3(signature = (path))]
fn load_kv<'py>(path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let container = Container::open(path, false, "load_kv")?;
    metadata::dict(path.py(), container.reader.metadata())
}

/// Puts `load` and `load_kv` on the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(load, module)?)?;
    module.add_function(wrap_pyfunction!(load_kv, module)?)
}
