//! `hurray.open`, and the `hurray.File` that it gives.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hurray_io::Target;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::container::{Container, DeviceArgument};
use super::metadata;
use super::progress::Progress;
use crate::capsule;
use crate::descriptor::Descriptor;
use crate::owner::detached;
use crate::tensor::Tensor;

/// An open file: a mapping of names to tensors that reads what it is asked for.
///
/// `hurray.open` gives it; it cannot be constructed. Names come in the order of the index, without
/// the members of composites, which can be asked for by their names all the same. Tensors stay when
/// the file is closed. Threads may share a file.
#[pyclass(frozen, weakref, module = "hurray")]
pub(crate) struct File {
    /// `None` once it is closed.
    open: Mutex<Option<Arc<Open>>>,
    target: Target,
}

struct Open {
    container: Container,
    /// The names, once they were asked for.
    names: OnceLock<Vec<String>>,
}

impl Open {
    fn names(&self, py: Python<'_>) -> PyResult<&[String]> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        let roots = self.container.roots(py)?;
        let names = roots.into_iter().map(str::to_owned).collect();
        Ok(self.names.get_or_init(|| names))
    }

    fn has(&self, name: &str) -> bool {
        self.container.reader.container().find(name).is_some()
    }
}

impl File {
    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> PyResult<Arc<Open>> {
        let open = self.slot().clone();
        open.ok_or_else(|| PyValueError::new_err("the file is closed"))
    }

    /// The file, if it has this name.
    fn having<'a>(&self, name: &'a Bound<'_, PyAny>) -> PyResult<(Arc<Open>, &'a str)> {
        let open = self.open()?;
        match name.cast::<PyString>() {
            Ok(text) if open.has(text.to_str()?) => Ok((open, text.to_str()?)),
            _ => Err(PyKeyError::new_err((name.clone().unbind(),))),
        }
    }
}

#[pymethods]
impl File {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open()?.names(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names = PyTuple::new(py, self.open()?.names(py)?)?;
        Ok(names.try_iter()?.into_any())
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        let open = self.open()?;
        match name.cast::<PyString>() {
            Ok(name) => Ok(name.to_str().is_ok_and(|name| open.has(name))),
            Err(_) => Ok(false),
        }
    }

    /// The Tensor or Composite of this name. Raises KeyError where the file has none, and what
    /// `load` raises.
    fn __getitem__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (open, name) = self.having(name)?;
        let mut progress = Progress::new(None, None, "")?;
        let items = open
            .container
            .items(py, &[name], self.target, &mut progress)?;
        match items.into_iter().next() {
            Some(item) => capsule::object(py, item),
            None => Err(PyKeyError::new_err(name.to_owned())),
        }
    }

    /// The tensor or composite of this name, or `default` where the file has none.
    #[pyo3(signature = (name, default=None))]
    fn get(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        if self.__contains__(name)? {
            return self.__getitem__(py, name).map(Some);
        }
        Ok(default)
    }

    /// A view of the names.
    fn keys<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(this, "KeysView")
    }

    /// A view of the tensors and composites, each read when it is come to.
    fn values<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(this, "ValuesView")
    }

    /// A view of names and tensors, each read when it is come to.
    fn items<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(this, "ItemsView")
    }

    /// The descriptor of the tensor of this name, or of a composite's head, as the file has it.
    /// Raises KeyError where the file has none.
    fn descriptor(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Descriptor> {
        let (open, name) = self.having(name)?;
        let container = &open.container;
        let descriptor = detached(py, || container.reader.descriptor(name));
        descriptor
            .map(Descriptor::new)
            .map_err(|error| container.raise(py, error))
    }

    /// The part of a tensor from `start` to `stop` along its first axis, which count as in
    /// `sequence[start:stop]`. No other byte of it is read.
    ///
    /// Raises KeyError where the file has no such name, UnsupportedError for a tensor that is not
    /// row-major, column-major or strided, is quantized or a scalar, or whose elements of less than
    /// a byte make `start` begin inside one.
    #[pyo3(signature = (name, start=None, stop=None))]
    fn slice(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        start: Option<i128>,
        stop: Option<i128>,
    ) -> PyResult<Py<Tensor>> {
        let (open, name) = self.having(name)?;
        let container = &open.container;
        let target = self.target;
        let slice = detached(py, || {
            let descriptor = container.reader.descriptor(name)?;
            let rows = descriptor.shape.first().copied().unwrap_or(0);
            let from = index(start, 0, rows);
            let to = index(stop, rows, rows).max(from);
            container.reader.slice(name, from..to, target)
        });
        let slice = slice.map_err(|error| container.raise(py, error))?;
        Tensor::new_object(py, slice)
    }

    /// The metadata, as `load_kv` gives it.
    #[getter]
    fn kv<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::dict(py, self.open()?.container.reader.metadata())
    }

    /// Closes the file. Tensors that map it keep their bytes.
    fn close(&self, py: Python<'_>) {
        let open = self.slot().take();
        detached(py, || drop(open));
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.slot().is_none()
    }

    fn __enter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        this.get().open()?;
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        match &*self.slot() {
            Some(open) => format!(
                "<hurray.File {:?}, {} entries>",
                open.container.title(),
                open.container.reader.container().entries().len()
            ),
            None => "<hurray.File, closed>".to_owned(),
        }
    }
}

/// One of the views of a mapping.
fn view<'py>(file: &Bound<'py, File>, class: &str) -> PyResult<Bound<'py, PyAny>> {
    let module = file.py().import("collections.abc")?;
    module.getattr(class)?.call1((file,))
}

/// An index of a slice as Python counts: from the end where it is negative, and no further than the ends.
fn index(given: Option<i128>, default: u64, len: u64) -> u64 {
    let Some(at) = given else { return default };
    let distance = u64::try_from(at.unsigned_abs()).unwrap_or(u64::MAX);
    if at < 0 {
        len.saturating_sub(distance)
    } else {
        distance.min(len)
    }
}

/// Opens a file to read tensors from it one by one.
///
/// `path`, `device` and `mmap` are as with `load`. Opening reads where everything is, and the
/// metadata; a tensor is read, or mapped, when it is asked for.
///
/// >>> with hurray.open("model.hrry") as file:
/// ...     rows = file.slice("embeddings", 100, 200)
#[pyfunction]
#[pyo3(
    signature = (path, *, device=DeviceArgument(Target::Host), mmap=true),
    text_signature = "(path, *, device='cpu', mmap=True)"
)]
fn open(path: &Bound<'_, PyAny>, device: DeviceArgument, mmap: bool) -> PyResult<File> {
    let open = Open {
        container: Container::open(path, mmap, "open")?,
        names: OnceLock::new(),
    };
    Ok(File {
        open: Mutex::new(Some(Arc::new(open))),
        target: device.0,
    })
}

/// Puts `open` and `File` on the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<File>()?;
    // `isinstance` tells that it is a mapping.
    let mapping = py.import("collections.abc")?.getattr("Mapping")?;
    mapping.call_method1("register", (py.get_type::<File>(),))?;
    module.add_function(wrap_pyfunction!(open, module)?)
}
