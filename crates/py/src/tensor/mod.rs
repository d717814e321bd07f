//! `hurray.Tensor`.

mod array;
mod construct;
mod empty;
mod extents;
mod lend;
mod repr;
pub(crate) mod transfer;
mod view;

use std::mem::ManuallyDrop;

use hurray_core::{Layout as CoreLayout, Stream, SyncMode, element_count};
use hurray_ffi::Place;
use hurray_ffi::access::Reach;
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::ffi::Py_buffer;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffer_handle::BufferHandle;
use crate::capsule;
use crate::cuda::StreamArgument;
use crate::descriptor::Descriptor;
use crate::device::{self, Device};
use crate::dlpack;
use crate::element_type::{Dtype, DtypeArgument, dtype};
use crate::errors::{BufferError, OrRaise};
use crate::extension_type::ExtensionType;
use crate::handoff;
use crate::ingest::{CopyArgument, cupy, jax, torch};
use crate::layout::{self, Layout};
use crate::owner::{self, detached};
use crate::quantization;
use crate::shape::{self, ShapeArgument};
use crate::shard::Shard;
use crate::statistics::Statistics;

/// A tensor: what its buffers hold, and the buffers, shared with whoever owns the memory.
///
/// `buffer` and each of `aux_buffers` may be anything that exposes memory: bytes-like objects,
/// NumPy arrays, DLPack producers, other tensors (`other.buffer(i)`). Each is kept alive on its
/// own and shared where its memory begins on a 64-byte boundary, else copied (`hurray.copies()`
/// tells). The bytes are taken as they are, in the order of `layout`: `buffer` has the elements,
/// `aux_buffers` the other buffers of the layout and then the parameters of `quantization`.
/// `shape` is in elements. `byte_offset` is where element [0, ..., 0] begins in `buffer`; by
/// default 0, or as far as negative strides reach back.
///
/// Raises BufferError for a buffer that is too small or not on `device`, InvalidDescriptorError
/// for parameters that do not fit each other, UnsupportedError for what no tensor can have.
///
/// >>> hurray.Tensor(bytes(16), hurray.float32, [4])
/// hurray.Tensor([0. 0. 0. 0.], dtype=float32)
#[pyclass(frozen, weakref, module = "hurray")]
pub(crate) struct Tensor {
    /// Dropped when the object is, and nowhere else.
    inner: ManuallyDrop<hurray_ffi::Tensor>,
    device: Py<Device>,
}

impl Drop for Tensor {
    fn drop(&mut self) {
        if owner::calls_foreign_code(&self.inner) {
            // SAFETY: nothing uses it after this.
            owner::drop_detached(unsafe { ManuallyDrop::take(&mut self.inner) });
        } else {
            // SAFETY: as above; where it lies, since it is large.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

impl Tensor {
    /// Shows `inner`.
    pub(crate) fn new(py: Python<'_>, inner: hurray_ffi::Tensor) -> PyResult<Self> {
        // A declared buffer lies elsewhere than its row says; what the tensor shows is the row.
        let device_of = |row: &hurray_core::BufferHandle, found: Place| Place {
            device: row.device,
            device_id: found.device_id,
            memory_class: row.memory_class,
        };
        let place = match (inner.descriptor().buffers.first(), inner.buffers().first()) {
            (Some(row), Some(buffer)) => device_of(row, buffer.place()),
            _ => Place::HOST,
        };
        Ok(Self {
            device: device::object(py, place)?,
            inner: ManuallyDrop::new(inner),
        })
    }

    /// The object that shows `inner`.
    pub(crate) fn new_object(py: Python<'_>, inner: hurray_ffi::Tensor) -> PyResult<Py<Self>> {
        Py::new(py, Self::new(py, inner)?)
    }

    /// The tensor without its face.
    pub(crate) fn inner(&self) -> &hurray_ffi::Tensor {
        &self.inner
    }

    fn descriptor_of(&self) -> &hurray_core::TensorDescriptor {
        self.inner.descriptor()
    }

    /// The stream that an argument names, for work on the tensor's bytes.
    fn stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<Stream> {
        StreamArgument::new(stream)?.for_memory(stream.py(), handoff::place_of(&self.inner))
    }
}

#[pymethods]
impl Tensor {
    #[new]
    #[pyo3(signature = (buffer, dtype, shape, device=None, *, aux_buffers=None, layout=None, quantization=None, statistics=None, shard=None, extension_type=None, byte_offset=None))]
    #[expect(clippy::too_many_arguments, reason = "the sections of a descriptor")]
    fn py_new(
        buffer: &Bound<'_, PyAny>,
        dtype: DtypeArgument,
        shape: ShapeArgument,
        device: Option<&Bound<'_, PyAny>>,
        aux_buffers: Option<&Bound<'_, PyAny>>,
        layout: Option<&Bound<'_, Layout>>,
        quantization: Option<&Bound<'_, PyAny>>,
        statistics: Option<&Bound<'_, Statistics>>,
        shard: Option<&Bound<'_, Shard>>,
        extension_type: Option<&Bound<'_, ExtensionType>>,
        byte_offset: Option<i128>,
    ) -> PyResult<Self> {
        let byte_offset = match byte_offset.map(u64::try_from) {
            None => None,
            Some(Ok(offset)) => Some(offset),
            Some(Err(_)) => {
                return Err(BufferError::new_err(
                    "byte_offset is an int from 0 to the buffer's length in bytes",
                ));
            }
        };
        let declared = construct::Declared {
            element_type: dtype.0,
            shape: shape.0,
            layout: match layout {
                Some(layout) => layout.get().known()?.clone(),
                None => CoreLayout::RowMajor,
            },
            quantization: quantization.map(quantization::argument).transpose()?,
            statistics: statistics.map(|statistics| statistics.get().0),
            shard: shard.map(|shard| shard.get().0.clone()),
            extension_type: extension_type.map(|extension_type| extension_type.get().0),
            byte_offset,
        };
        let device = device.map(crate::device::argument).transpose()?;
        let tensor = construct::tensor(buffer, aux_buffers, declared, device.as_ref())?;
        Self::new(buffer.py(), tensor)
    }

    /// The dimensions in elements.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shape::tuple(py, &self.descriptor_of().shape)
    }

    /// The type of the stored elements; of a quantized tensor, of its codes.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<Dtype>> {
        dtype(py, self.descriptor_of().element_type)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.descriptor_of().shape.len()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> Option<u64> {
        element_count(&self.descriptor_of().shape)
    }

    /// The device that holds the buffers.
    #[getter]
    fn device(&self, py: Python<'_>) -> Py<Device> {
        self.device.clone_ref(py)
    }

    /// How the elements lie in the buffers.
    #[getter]
    fn layout(&self, py: Python<'_>) -> PyResult<Py<Layout>> {
        layout::object(py, &self.descriptor_of().layout)
    }

    /// How codes stand for values, or None.
    #[getter]
    fn quantization(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.descriptor_of()
            .quantization
            .as_ref()
            .map(|section| quantization::section_object(py, section))
            .transpose()
    }

    /// Hints about the values, or None.
    #[getter]
    fn statistics(&self) -> Option<Statistics> {
        self.descriptor_of().statistics.map(Statistics)
    }

    /// Which part of a parent this is, or None.
    #[getter]
    fn shard(&self) -> Option<Shard> {
        self.descriptor_of().shard.clone().map(Shard)
    }

    /// What a private dtype is made of, or None.
    #[getter]
    fn extension_type(&self) -> Option<ExtensionType> {
        self.descriptor_of().extension_type.map(ExtensionType)
    }

    /// Everything the tensor declares about itself, without its bytes.
    #[getter]
    fn descriptor(&self) -> Descriptor {
        Descriptor::new(self.inner.descriptor().clone())
    }

    /// How many buffers there are: the layout's, then the quantization's.
    #[getter]
    fn buffer_count(&self) -> usize {
        self.inner.buffers().len()
    }

    /// One handle per buffer, in the descriptor's order: what the buffer declares about itself.
    /// Handles keep neither the tensor nor its memory alive.
    #[getter]
    fn buffer_handles<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rows = &self.descriptor_of().buffers;
        PyTuple::new(
            py,
            rows.iter()
                .map(|row| BufferHandle::new(*row, self.device.clone_ref(py))),
        )
    }

    /// The bytes of buffer `index`: a tensor of uint8, shape [byte size], over the same memory.
    /// It keeps only that buffer's owner alive and is read-only where the owner is. `stream` is made
    /// to wait for what the bytes depend on, and keeps them until the view is dropped.
    ///
    /// Raises IndexError where there is no such buffer, UnsupportedError while the bytes may not
    /// be read and no stream is named; the text names the mode.
    #[pyo3(signature = (index, *, stream=None))]
    fn buffer<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let count = self.inner.buffers().len();
        let position = match index.extract::<usize>() {
            Ok(position) if position < count => position,
            Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
            _ => {
                return Err(PyIndexError::new_err(format!(
                    "no buffer at index {index}; this tensor has {count}"
                )));
            }
        };
        let argument = stream.map(StreamArgument::new).transpose()?;
        Self::new(py, view::buffer(py, &self.inner, position, argument)?)
    }

    /// (address, bytes, device) of each buffer, for transports and kernels of one's own. They do
    /// not keep the memory: hold the tensor until the work is queued. In mode consumer_stream the
    /// addresses are good on that stream; let go of what `order(stream)` gave, and the memory stays
    /// until what was queued there is done.
    ///
    /// Raises UnsupportedError in mode event, naming what would work.
    fn extents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        extents::extents(py, &self.inner)
    }

    /// The storage of a quantized tensor as a tensor of its codes, without the scheme and its
    /// parameters. AttributeError where there is no quantization.
    #[getter]
    fn codes(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::codes(&self.inner)?)
    }

    /// The transpose, a view over the same buffers. CSR becomes CSC and the reverse.
    ///
    /// Raises UnsupportedError for a layout or scheme whose storage has no transpose.
    #[getter(T)]
    fn transpose(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::transpose(&self.inner)?)
    }

    /// The number of stored elements. AttributeError where the layout does not store it.
    #[getter]
    fn nnz(&self) -> PyResult<u64> {
        view::nnz(self.descriptor_of(), "nnz")
    }

    /// The stored values, shape [nnz]: a view. AttributeError where the layout has none.
    #[getter]
    fn values(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::values(&self.inner)?)
    }

    /// The coordinates of a COO tensor, uint64, shape [nnz, ndim]: a view.
    #[getter]
    fn indices(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::component(&self.inner, "indices")?)
    }

    /// The column indices of a CSR tensor, uint64, shape [nnz]: a view.
    #[getter]
    fn col_indices(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::component(&self.inner, "col_indices")?)
    }

    /// The row pointer of a CSR tensor, uint64, shape [rows + 1]: a view.
    #[getter]
    fn row_ptr(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::component(&self.inner, "row_ptr")?)
    }

    /// The row indices of a CSC tensor, uint64, shape [nnz]: a view.
    #[getter]
    fn row_indices(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::component(&self.inner, "row_indices")?)
    }

    /// The column pointer of a CSC tensor, uint64, shape [columns + 1]: a view.
    #[getter]
    fn col_ptr(&self, py: Python<'_>) -> PyResult<Self> {
        Self::new(py, view::component(&self.inner, "col_ptr")?)
    }

    /// A capsule that carries all buffers and everything the tensor declares, for
    /// `from_hurray` or any other consumer of the protocol. No byte is copied.
    ///
    /// `stream` is the consumer's: it is made to wait, on the device, for what each buffer depends
    /// on, and the bytes are kept until what is queued on it by the time the consumer lets go is
    /// done. None and -1 ask for no order: what the buffers depend on travels in the capsule.
    ///
    /// Raises ValueError for a stream that is none, DeviceError where the stream can't wait,
    /// UnsupportedError where nothing came that could be waited for.
    #[pyo3(name = "__hurray__", signature = (stream=None))]
    fn hurray<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let argument = stream.map(StreamArgument::or_none).transpose()?.flatten();
        let list = match argument {
            None => self.inner.export(),
            Some(argument) => {
                let ordered = handoff::tensor(py, &self.inner, argument)?;
                detached(py, move || ordered.export())
            }
        };
        capsule::of_list(py, list.or_raise()?)
    }

    /// Makes later work on `stream` wait, on the device, for what each buffer depends on. Gives the
    /// same tensor in mode consumer_stream, or producer_synced where it was; this one stays as it
    /// is. Until the new one and what is made of it are dropped the memory stays for that stream.
    ///
    /// Raises DeviceError where the stream is of another device or can't wait, and UnsupportedError
    /// where nothing came that could be waited for.
    #[pyo3(signature = (stream))]
    fn order<'py>(&self, py: Python<'py>, stream: &Bound<'py, PyAny>) -> PyResult<Self> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        Self::new(py, detached(py, || inner.order(&stream)).or_raise()?)
    }

    /// The same tensor in mode event: ready when what it waited for and the work queued on `stream`
    /// by now are done. To be called after writing through an exported view; such writes are not
    /// seen otherwise.
    ///
    /// Raises as `order`, and UnsupportedError for memory of the CPU.
    #[pyo3(signature = (stream))]
    fn record<'py>(&self, py: Python<'py>, stream: &Bound<'py, PyAny>) -> PyResult<Self> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        Self::new(py, detached(py, || inner.record(&stream)).or_raise()?)
    }

    /// Makes `stream` wait for the work of everybody who has given the bytes back so far: before
    /// they are overwritten in place.
    ///
    /// Raises as `record`.
    #[pyo3(signature = (stream))]
    fn order_after_readers<'py>(
        &self,
        py: Python<'py>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        detached(py, || inner.order_after_readers(&stream)).or_raise()
    }

    /// Keeps the memory, once everybody has let go of it, until work queued on `stream` by then is
    /// done. For work on another stream than the one that a consumer named, or on a raw address.
    ///
    /// Raises as `record`.
    #[pyo3(signature = (stream))]
    fn record_stream<'py>(&self, py: Python<'py>, stream: &Bound<'py, PyAny>) -> PyResult<()> {
        let (inner, stream) = (self.inner(), self.stream(stream)?);
        detached(py, || inner.record_stream(&stream)).or_raise()
    }

    /// Blocks until the bytes may be read. Gives the same tensor in mode producer_synced; itself
    /// where it is.
    ///
    /// Raises DeviceError for what the driver says, and UnsupportedError where nothing came that
    /// could be waited for.
    fn synchronize<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let (py, inner) = (this.py(), this.get().inner());
        let mut buffers = inner.buffers().iter();
        if buffers.all(|buffer| buffer.mode() == SyncMode::ProducerSynced) {
            inner.check_access(Reach::Ordered).or_raise()?;
            return Ok(this.clone());
        }
        let ready = detached(py, || inner.synchronize()).or_raise()?;
        Bound::new(py, Self::new(py, ready)?)
    }

    /// A NumPy array over the tensor's memory, which it keeps alive; read-only where the tensor
    /// is. bool and the types of less than a byte are unpacked, which is a copy; `dtype` casts.
    ///
    /// Raises CopyRequiredError where `copy=False` and the result would be a copy;
    /// UnsupportedError for a tensor that is not plain, not in host memory or not ready.
    #[pyo3(name = "__array__", signature = (dtype=None, copy=None))]
    fn array<'py>(
        this: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        array::array(this, dtype, copy, "__array__")
    }

    /// NumPy's array interface, version 3. AttributeError where the tensor has no such form: its
    /// elements have no address of their own or no NumPy type, or are not in host memory.
    ///
    /// Raises UnsupportedError while the bytes may not be read.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array::interface(py, &self.inner)
    }

    /// The CUDA array interface, version 3. AttributeError where the tensor has no such form: its
    /// elements have no address of their own or no NumPy type, or are not on a CUDA device.
    ///
    /// The entry `stream` is None where the bytes are ready. Otherwise it is 1: the legacy default
    /// stream is made to wait for them, and keeps them from then on.
    ///
    /// Raises UnsupportedError where nothing came that could be waited for, DeviceError where the
    /// stream can't wait.
    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array::cuda_interface(py, &self.inner)
    }

    /// DLPack: a capsule with the tensor's memory, which it keeps alive; versioned where
    /// `max_version` allows it. `copy=True` gives a row-major copy; bool is unpacked, which is a
    /// copy.
    ///
    /// Raises what is both an UnsupportedError and a built-in BufferError for a tensor that has no
    /// such form, and ValueError for an argument that means nothing.
    #[pyo3(name = "__dlpack__", signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn dlpack<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = dlpack::export::Arguments {
            stream,
            max_version,
            dl_device,
            copy,
        };
        dlpack::export::dlpack(py, &self.inner, &arguments)
    }

    /// DLPack: the device's type and number there.
    #[pyo3(name = "__dlpack_device__")]
    fn dlpack_device(&self, py: Python<'_>) -> PyResult<(u32, i32)> {
        dlpack::export::announced_device(py, &self.inner)
    }

    /// A torch.Tensor over the same memory, which it keeps alive. bool is unpacked, which is a
    /// copy. torch has no read-only tensors: do not write to one whose source is.
    ///
    /// Raises ImportError where torch is not installed; UnsupportedError for a tensor that is not
    /// plain or not ready, or of a type that torch does not have.
    fn to_torch<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        torch::to_torch(this)
    }

    /// A cupy.ndarray over the same memory, which it keeps alive, ordered on CuPy's current stream.
    ///
    /// Raises ImportError where CuPy is not installed; UnsupportedError for a tensor that is not
    /// plain, or not on a CUDA device.
    fn to_cupy<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        cupy::to_cupy(this)
    }

    /// A jax.Array over the same memory, which it keeps alive, ordered on the stream that JAX names.
    /// bool is unpacked, which is a copy.
    ///
    /// Raises ImportError where JAX is not installed; UnsupportedError for a tensor that is not
    /// plain, or of a type that JAX does not have.
    fn to_jax<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        jax::to_jax(this)
    }

    /// The tensor on another device: itself where it is there, else a copy, whose layout and parameters are
    /// the same (`hurray.copies()` tells). "cpu" brings a tensor that is only declared elsewhere together
    /// with its bytes, without a copy.
    ///
    /// The copy runs on `stream`, by default the current stream of the device that is written to or else
    /// read from, which is ordered after the writes first, and is `consumer_stream` of it. Nothing waits
    /// between page-locked memory and a device; the call holds the caller until pageable memory has been
    /// read, or written. `copy=True` copies always, `copy=False` raises CopyRequiredError instead.
    ///
    /// Raises UnsupportedError for bytes that may not be read, DeviceError where the device can't be used.
    #[pyo3(signature = (device, *, stream=None, copy=CopyArgument::IfNeeded), text_signature = "($self, device, *, stream=None, copy=None)")]
    fn to(
        &self,
        py: Python<'_>,
        device: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        copy: CopyArgument,
    ) -> PyResult<Self> {
        let place = device::argument(device)?.get().0;
        Self::new(
            py,
            transfer::to(py, &self.inner, place, stream, copy, "to")?,
        )
    }

    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut Py_buffer,
        flags: std::ffi::c_int,
    ) -> PyResult<()> {
        // SAFETY: Python passes a `Py_buffer` to fill in.
        unsafe { lend::fill(this, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut Py_buffer) {
        // SAFETY: Python passes a `Py_buffer` that `__getbuffer__` filled in.
        unsafe { lend::release(view) };
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        repr::repr(this)
    }
}

/// Whether the tensor's elements may leave as plain values (decision 16).
///
/// # Errors
/// [`UnsupportedError`](crate::errors::UnsupportedError), naming what gives the storage.
pub(crate) fn check_plain(tensor: &hurray_ffi::Tensor) -> PyResult<()> {
    array::Plain::of(tensor).map(|_| ())
}

/// Puts `Tensor` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Tensor>()?;
    module.add_function(wrap_pyfunction!(empty::empty, module)?)
}
