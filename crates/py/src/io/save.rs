//! `hurray.save`.

use hurray_ffi::Item;
use hurray_io::FileOptions;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PyString};

use super::container::watched;
use super::error::of_file;
use super::metadata;
use super::path::FilePath;
use super::progress::Progress;
use super::sink::Sink;
use crate::capsule;
use crate::copies;
use crate::errors::UnsupportedError;
use crate::owner::detached;

/// Saves tensors to a file.
///
/// `tensors` is a mapping of names to Tensor and Composite. `kv` is a mapping of str to bool, int,
/// float, str, bytes or a list of one of these, which `load_kv` gives back. The members of a
/// composite are named `<name>.0`, `<name>.1`, nested ones `<name>.0.0`.
///
/// The file at `path` takes the place of an older one at once and as a whole, when all of it is on
/// the disk: an error, or the end of the process, leaves the old file as it was, and tensors that
/// map it keep it. `path` may also be a binary file object, a socket or a pipe, which is written to
/// front to back, from where it stands, and stays open.
///
/// Bytes are written from where they lie, and every buffer begins on a multiple of `alignment`
/// bytes in the file: a power of two from 4096 to 2 MiB. Equal tensors make equal files.
/// `sorted_index` lists the tensors by name instead of in the order of the mapping. `progress` is
/// called with the bytes written and the file's; True shows a bar of tqdm.
///
/// Raises FileError where the system cannot write, for a name or `kv` that a file cannot hold,
/// UnsupportedError for what is no tensor or has bytes that may not be read, and what a file object
/// or `progress` raises as it is.
///
/// >>> hurray.save("model.hrry", {"weights": tensor}, kv={"version": "1.0"})
#[pyfunction]
#[pyo3(signature = (path, tensors, *, kv=None, progress=None, alignment=4096, sorted_index=false))]
fn save(
    path: &Bound<'_, PyAny>,
    tensors: &Bound<'_, PyAny>,
    kv: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
    alignment: u32,
    sorted_index: bool,
) -> PyResult<()> {
    let py = path.py();
    // The objects go last: they let go of their tensors without the interpreter.
    let (keep, items) = items(tensors)?;
    let items = items.iter().map(|(name, item)| (&**name, item));
    let metadata = kv.map(metadata::argument).transpose()?.unwrap_or_default();
    let mut options = FileOptions::default();
    options.alignment = alignment;
    options.sorted_index = sorted_index;
    let target = FilePath::of_target(path)?;
    let title = target.as_ref().map(FilePath::title).unwrap_or_default();
    let mut progress = Progress::new(progress, None, &title)?;
    let written = match &target {
        Some(path) if !path.is_special() => detached(py, || {
            watched(&mut progress, |watch| {
                hurray_io::save(path, items.clone(), &metadata, options, watch)
            })
        }),
        _ => {
            let mut sink = Sink::new(path, None)?;
            sink.announce(items.clone().map(|(_, item)| item), keep.as_any());
            detached(py, || {
                watched(&mut progress, |watch| {
                    hurray_io::save_to(&mut sink, items.clone(), &metadata, options, watch)
                })
            })
        }
    };
    written.map_err(|error| of_file(py, error, target.as_ref().map(|path| path.name(py))))?;
    for (_, item) in items {
        copies::report_device_bytes(py, item, "save")?;
    }
    progress.close(py)
}

/// Items by name, in their order.
type Named = Vec<(String, Item)>;

/// The objects of the `tensors` argument, and what they show.
fn items<'py>(tensors: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyList>, Named)> {
    let Ok(mapping) = tensors.cast::<PyMapping>() else {
        return Err(PyTypeError::new_err(format!(
            "tensors is a mapping of str to tensors, not {}",
            tensors.get_type().name()?
        )));
    };
    let pairs = mapping.items()?;
    let mut items = Vec::with_capacity(pairs.len());
    for pair in pairs.iter() {
        let (name, object): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
        let Ok(name) = name.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!(
                "the name of a tensor is a str, not {}",
                name.get_type().name()?
            )));
        };
        let name = name.to_str()?.to_owned();
        let Some(item) = capsule::item(&object) else {
            return Err(UnsupportedError::new_err(format!(
                "{name:?} is a {}, and a file has hurray.Tensor and hurray.Composite; from_numpy and its like make one",
                object.get_type().name()?
            )));
        };
        items.push((name, item));
    }
    Ok((pairs, items))
}

/// Puts `save` on the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(save, module)?)
}
