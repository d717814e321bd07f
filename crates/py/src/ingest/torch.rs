//! PyTorch's tensors, in and out, over DLPack.

use dlpark::ffi::DLManagedTensorVersioned;
use hurray_core::{DeviceTag, ElementType, MemoryClass};
use hurray_ffi::access::Reach;
use hurray_ffi::dlpack::Options;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{CopyArgument, library};
use crate::cuda::StreamArgument;
use crate::dlpack::export;
use crate::dlpack::import::{Wanted, from_dlpack};
use crate::errors::{OrRaise, UnsupportedError, dlpack_refusal};
use crate::handoff;
use crate::owner::calling;
use crate::tensor::{Tensor, check_plain};

/// torch's current stream of a device.
fn current_stream<'py>(
    torch: &Bound<'py, PyModule>,
    device: impl IntoPyObject<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = torch.py();
    let cuda = torch.getattr(intern!(py, "cuda"))?;
    let function = cuda.getattr(intern!(py, "current_stream"))?;
    let arguments = PyTuple::new(py, [device])?;
    calling(py, || function.call1(arguments))
}

/// Wraps a PyTorch tensor, sharing its memory where that begins on a 64-byte boundary.
///
/// `copy=None` copies only a tensor whose memory does not (`hurray.copies()` tells), `False` raises
/// CopyRequiredError instead, which names the measured alignment, and `True` always copies. Strides
/// stay as they are. bool is packed, which is a copy.
///
/// torch is not asked to wait: a tensor of a CUDA device comes in mode consumer_stream, on torch's
/// current stream of that device.
///
/// Raises ImportError where torch is not installed, and what torch raises for a tensor that it does
/// not export: one that asks for a gradient (`detach()` does not), a sparse or quantized one.
#[pyfunction]
#[pyo3(signature = (tensor, *, copy=CopyArgument::IfNeeded), text_signature = "(tensor, *, copy=None)")]
fn from_torch(tensor: &Bound<'_, PyAny>, copy: CopyArgument) -> PyResult<Tensor> {
    let py = tensor.py();
    let torch = library(py, "torch", "torch")?;
    if !tensor.is_instance(&torch.getattr("Tensor")?)? {
        return Err(PyTypeError::new_err(format!(
            "from_torch takes a torch.Tensor, not {}",
            tensor.get_type().name()?
        )));
    }
    let wanted = Wanted {
        place: None,
        copy,
        call: "from_torch",
    };
    let is_cuda = tensor.getattr(intern!(py, "is_cuda"))?.is_truthy()?;
    // For what it queued on its own stream torch does not wait.
    let stream = match is_cuda {
        true => Some(current_stream(&torch, tensor.getattr("device")?)?),
        false => None,
    };
    Tensor::new(py, from_dlpack(tensor, stream.as_ref(), wanted)?)
}

/// `to_torch` of `this`.
pub(crate) fn to_torch<'py>(this: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let (py, tensor) = (this.py(), this.get().inner());
    let torch = library(py, "torch", "torch")?;
    // Before torch asks, which has words of its own for what it then sees.
    check_plain(tensor)?;
    tensor.check_access(Reach::Ordered).or_raise()?;
    let element_type = tensor.descriptor().element_type;
    let found = if element_type == ElementType::Float4E2m1 {
        let place = handoff::place_of(tensor);
        let stream = match (place.device, place.memory_class) {
            (DeviceTag::Cuda, MemoryClass::Standard | MemoryClass::Unified) => {
                let named = StreamArgument::new(&current_stream(&torch, place.device_id)?)?;
                handoff::stream_for(py, place, named)?
            }
            _ => None,
        };
        // torch has fp4 in pairs only.
        let options = Options {
            in_pairs: true,
            stream: stream.as_ref(),
            ..Options::default()
        };
        let capsule = export::managed::<DLManagedTensorVersioned>(py, tensor, options, "to_torch")?
            .into_pyobject(py)?;
        calling(py, || torch.call_method1("from_dlpack", (capsule,)))
    } else {
        calling(py, || torch.call_method1("from_dlpack", (this,)))
    };
    found.map_err(|error| {
        let is_torchs = error.is_instance_of::<PyBufferError>(py)
            && !error.is_instance_of::<UnsupportedError>(py);
        if is_torchs {
            dlpack_refusal(
                py,
                format!(
                    "torch does not take {element_type} ({}); buffer(0) gives the bytes",
                    error.value(py)
                ),
            )
        } else {
            error
        }
    })
}

/// Puts `from_torch` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(from_torch, module)?)
}
