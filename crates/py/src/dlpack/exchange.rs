//! The C exchange API of DLPack 1.3, both ways.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr;

use dlpark::Managed;
use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensorVersioned, DLTensor};
use dlpark::python::DlpackExchangeProducer;
use dlpark::python::consumer::exchange::ExchangeApi;
use hurray_core::{DeviceTag, MemoryClass, Stream};
use hurray_ffi::Place;
use hurray_ffi::dlpack::{self, Options};
use pyo3::exceptions::PyException;
use pyo3::ffi::{Py_TPFLAGS_HEAPTYPE, PyType_GetFlags};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use super::{export, import};
use crate::handoff;
use crate::ingest::CopyArgument;
use crate::owner::calling;
use crate::tensor::Tensor;

/// The name that is reported with a copy.
const CALL: &str = "__dlpack_c_exchange_api__";

/// What a table gave.
pub(super) struct Taken {
    pub(super) tensor: Managed<DLManagedTensorVersioned>,
    /// The number of the stream that the producer works on.
    pub(super) work_stream: NonZeroUsize,
}

/// What is known of a type.
struct Known {
    class: Py<PyType>,
    table: Option<Table>,
}

/// The table of functions that a type has registered.
struct Table {
    api: ExchangeApi,
    /// Whether instances must be asked for what the table does not look at.
    is_torch: bool,
}

// SAFETY: a table is constant and lives as long as the process, by DLPack's rule; its functions are called attached to the interpreter only.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// Types that stay for good: those with a table, and static ones without. Others are looked up each time.
static KNOWN: [PyOnceLock<Known>; 8] = [const { PyOnceLock::new() }; 8];

/// The managed tensor of `object` through its type's table, and the stream that orders it; `None` where there is no table or it fails, and `__dlpack__` is
/// to be asked, which has the better words.
pub(super) fn take(object: &Bound<'_, PyAny>) -> PyResult<Option<Taken>> {
    let class = object.get_type();
    let known = KNOWN
        .iter()
        .map_while(|slot| slot.get(object.py()))
        .find(|known| known.class.is(&class));
    match known {
        Some(known) => match &known.table {
            Some(table) => table.take(object),
            None => Ok(None),
        },
        None => match look_up(object, &class)? {
            Some(table) => {
                let tensor = table.take(object);
                keep(class, Some(table));
                tensor
            }
            None => {
                if !is_heap_type(&class) {
                    keep(class, None);
                }
                Ok(None)
            }
        },
    }
}

/// Whether the type was made at run time and may be freed.
pub(super) fn is_heap_type(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: `class` is a type.
    let flags = unsafe { PyType_GetFlags(class.as_type_ptr()) };
    flags & Py_TPFLAGS_HEAPTYPE != 0
}

fn keep(class: Bound<'_, PyType>, table: Option<Table>) {
    let py = class.py();
    let mut known = Known {
        class: class.unbind(),
        table,
    };
    for slot in &KNOWN {
        match slot.set(py, known) {
            Ok(()) => return,
            Err(returned) => known = returned,
        }
    }
}

/// The type's own table: a subclass that inherits one may mean something else by its bytes (K3).
fn look_up(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Option<Table>> {
    let py = object.py();
    let name = intern!(py, "__dlpack_c_exchange_api__");
    if !class.getattr(intern!(py, "__dict__"))?.contains(name)? {
        return Ok(None);
    }
    // An attribute that is no capsule of this name, or no table of major version 1 in its chain, is as none (K1).
    let Some(api) = ExchangeApi::from_object(object.as_borrowed()).unwrap_or(None) else {
        return Ok(None);
    };
    let module = class.getattr(intern!(py, "__module__"))?;
    let is_torch = module
        .cast::<PyString>()
        .is_ok_and(|module| module.to_str().is_ok_and(|module| module == "torch"));
    Ok(Some(Table { api, is_torch }))
}

impl Table {
    fn take(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<Taken>> {
        if self.is_torch && !is_plain(object)? {
            return Ok(None);
        }
        match calling(object.py(), || {
            self.api.import_managed_no_sync(object.as_borrowed())
        }) {
            Ok(tensor) => {
                let (tensor, work_stream) = tensor.into_parts();
                let work_stream = NonZeroUsize::new(work_stream.addr());
                Ok(Some(Taken {
                    tensor,
                    work_stream: work_stream.unwrap_or(Stream::LEGACY),
                }))
            }
            Err(error) if error.is_instance_of::<PyException>(object.py()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a torch tensor's bytes are its values: it asks for no gradient, and no conjugation or negation is pending.
fn is_plain(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = tensor.py();
    Ok(!tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()?
        && !tensor.call_method0(intern!(py, "is_conj"))?.is_truthy()?
        && !tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?)
}

// SAFETY: there are no borrowed views; managed tensors own what they point to; memory of a device is ordered on the stream that
// `current_work_stream` gives, and no other is made here.
unsafe impl DlpackExchangeProducer for Tensor {
    fn managed_tensor_no_sync(
        &self,
        py: Python<'_>,
    ) -> PyResult<Managed<DLManagedTensorVersioned>> {
        let stream = match handoff::place_of(self.inner()) {
            Place {
                device: DeviceTag::Cuda,
                device_id,
                memory_class: MemoryClass::Standard | MemoryClass::Unified,
            } => export::current_stream_if_any(py, device_id)?,
            _ => None,
        };
        let options = Options {
            stream: stream.as_ref(),
            ..Options::default()
        };
        export::managed(py, self.inner(), options, CALL)
    }

    fn current_work_stream(py: Python<'_>, device: DLDevice) -> PyResult<*mut c_void> {
        let stream = match (device.device_type, u32::try_from(device.device_id)) {
            (DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED, Ok(device_id)) => {
                export::current_stream_if_any(py, device_id)?
            }
            _ => None,
        };
        // The legacy default stream is NULL there.
        let number = stream.map_or(Stream::LEGACY, |stream| stream.number());
        let handle = if number == Stream::LEGACY {
            0
        } else {
            number.get()
        };
        Ok(ptr::without_provenance_mut(handle))
    }

    fn allocate(prototype: &DLTensor) -> Result<Managed<DLManagedTensorVersioned>, String> {
        // SAFETY: the consumer's shape is valid for as many numbers as it has dimensions.
        unsafe { dlpack::allocate(prototype) }.map_err(|error| error.to_string())
    }

    fn from_managed_tensor_no_sync(
        py: Python<'_>,
        tensor: Managed<DLManagedTensorVersioned>,
    ) -> PyResult<Py<Self>> {
        let wanted = import::Wanted {
            place: None,
            copy: CopyArgument::IfNeeded,
            call: CALL,
        };
        // The consumer's function says that nothing is to be waited for: what it works on is this device's current stream.
        let tensor = import::from_managed(py, tensor, None, None, wanted)?;
        Py::new(py, Self::new(py, tensor)?)
    }
}

/// Puts `__dlpack_c_exchange_api__` on the type `Tensor`.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    dlpark::python::install_exchange_api::<Tensor>(py)
}
