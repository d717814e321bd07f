//! A tensor as a NumPy array: `__array__` and `__array_interface__`.

use std::ffi::c_int;

use hurray_core::{
    DeviceTag, ElementType, Layout, StorageWidth, Stream, Strides, TensorDescriptor,
    column_major_strides, row_major_strides,
};
use hurray_ffi::access::Reach;
use hurray_ffi::gather::{Elements, Spacing, gather};
use hurray_ffi::{BufferFlags, Place, Tensor};
use numpy::npyffi::{
    NPY_ARRAY_WRITEABLE, NpyTypes, PY_ARRAY_API, PyArray_Descr, get_type_object, npy_intp,
};
use pyo3::exceptions::{PyAttributeError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use crate::copies::{self, Reason};
use crate::cuda::StreamArgument;
use crate::errors::{CopyRequiredError, OrRaise, UnsupportedError};
use crate::handoff::place_of;
use crate::ingest::{copying, dense};
use crate::owner::{calling, detached};
use crate::{numpy_dtype, shape};

/// The elements of a tensor that may leave as plain values.
pub(super) struct Plain<'a> {
    pub(super) descriptor: &'a TensorDescriptor,
    pub(super) width: StorageWidth,
    /// In elements.
    pub(super) strides: Strides,
    /// The address of element `[0, …, 0]`.
    pub(super) address: *mut u8,
    pub(super) is_read_only: bool,
}

impl<'a> Plain<'a> {
    /// The elements, whether or not they may be read now.
    ///
    /// # Errors
    /// [`UnsupportedError`], naming what gives the storage, for a quantized, sparse or paged tensor (decision 16), and for one whose elements
    /// do not lie at strides.
    pub(super) fn of(tensor: &'a Tensor) -> PyResult<Self> {
        let descriptor = tensor.descriptor();
        if descriptor.quantization.is_some() {
            return Err(UnsupportedError::new_err(
                "the codes of a quantized tensor are not its values: codes is the unquantized view of the same storage, \
                 buffer(i) gives the bytes of each buffer",
            ));
        }
        let strides = match &descriptor.layout {
            Layout::RowMajor => row_major_strides(&descriptor.shape).or_raise()?,
            Layout::ColumnMajor => column_major_strides(&descriptor.shape).or_raise()?,
            Layout::Strided(strides) => strides.clone(),
            other => return Err(UnsupportedError::new_err(storage_of(other))),
        };
        let width = descriptor.element_width().or_raise()?;
        let (address, is_read_only) = match tensor.buffers().first() {
            Some(buffer) => (
                // The offset lies in the buffer.
                buffer
                    .as_ptr()
                    .wrapping_add(descriptor.byte_offset as usize),
                buffer.flags().contains(BufferFlags::READ_ONLY),
            ),
            None => (std::ptr::null_mut(), true),
        };
        Ok(Self {
            descriptor,
            width,
            strides,
            address,
            is_read_only,
        })
    }

    /// Strides in bytes, for elements of whole bytes.
    pub(super) fn byte_strides(&self) -> SmallVec<[npy_intp; 6]> {
        let size = npy_intp::try_from(self.width.bits() / 8).unwrap_or(1);
        // In bounds where they are walked; a stride that is not walked may wrap.
        self.strides
            .iter()
            .map(|&stride| (stride as npy_intp).wrapping_mul(size))
            .collect()
    }
}

/// What gives the storage of a layout whose elements do not lie at strides.
fn storage_of(layout: &Layout) -> String {
    let components = match layout {
        Layout::Coo(_) => "values and indices are views of its components",
        Layout::Csr { .. } => "values, col_indices and row_ptr are views of its components",
        Layout::Csc { .. } => "values, row_indices and col_ptr are views of its components",
        Layout::Csf(_) => {
            "values is a view of its stored values, and buffer(i) gives the bytes of each level"
        }
        Layout::BlockPaged(_) => {
            "buffer(0) gives the bytes of the page pool, buffer(1) the block table and buffer(2) the sequence pointer"
        }
        _ => "buffer(0) gives the bytes",
    };
    format!(
        "a {} tensor is not a plain array: {components}",
        layout.name()
    )
}

/// `__array__`, for `call`.
pub(super) fn array<'py>(
    this: &Bound<'py, super::Tensor>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    call: &'static str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let tensor = this.get().inner();
    let plain = Plain::of(tensor)?;
    tensor.check_access(Reach::Host).or_raise()?;
    let own = numpy_dtype::dtype(py, plain.descriptor.element_type)?;
    let wanted = match dtype {
        Some(dtype) => {
            let numpy = py.import("numpy")?;
            let dtype = calling(py, || numpy.call_method1("dtype", (dtype,)))?;
            (!dtype.eq(own)?).then_some(dtype)
        }
        None => None,
    };
    if copy == Some(false) {
        if plain.width.is_packed() {
            return Err(CopyRequiredError::new_err(format!(
                "the format packs {} in {} bits and NumPy has a byte for each: sharing is impossible whatever the alignment; \
                 copy=None unpacks a copy, buffer(0) gives the packed bytes",
                plain.descriptor.element_type,
                plain.width.bits()
            )));
        }
        if let Some(dtype) = &wanted {
            return Err(CopyRequiredError::new_err(format!(
                "casting {} to {dtype} is a copy; copy=None allows it",
                plain.descriptor.element_type
            )));
        }
    }
    let (array, is_copied) = if plain.width.is_packed() {
        (unpacked(py, tensor, &plain, own, call)?, true)
    } else {
        let array = over(
            py,
            own,
            &plain.descriptor.shape,
            &plain.byte_strides(),
            plain.address,
            plain.is_read_only,
            this.as_any(),
        )?;
        (array, false)
    };
    let copied = match wanted {
        Some(dtype) => calling(py, || array.call_method1("astype", (dtype,)))?,
        None if copy == Some(true) && !is_copied => {
            calling(py, || array.call_method1("copy", ("K",)))?
        }
        None => return Ok(array),
    };
    copies::report(
        py,
        copied.getattr("nbytes")?.extract()?,
        place_of(tensor),
        Place::HOST,
        Reason::Request,
        call,
    )?;
    Ok(copied)
}

/// The elements of a tensor that may be read, with a byte for each.
fn unpacked<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    plain: &Plain<'_>,
    dtype: &Bound<'py, PyAny>,
    call: &'static str,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes: &[u8] = match tensor.buffers().first() {
        Some(buffer) if !buffer.is_empty() => {
            // SAFETY: access was checked, so these are readable host bytes, which the tensor keeps alive. Whoever writes to them meanwhile,
            // from another thread, races with any reader.
            unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) }
        }
        _ => &[],
    };
    let shape = &plain.descriptor.shape;
    let elements = Elements {
        bytes,
        origin: plain.descriptor.byte_offset,
        shape,
        strides: &plain.strides,
        width: plain.width,
        spacing: Spacing::Packed,
    };
    let copy = copying(py, bytes.len(), || {
        gather(&elements, Spacing::BytePerElement)
    })
    .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    copies::report(
        py,
        copy.len(),
        place_of(tensor),
        Place::HOST,
        Reason::Packing,
        call,
    )?;
    // The copy lives in a tensor, which the array keeps.
    let len = copy.len() as u64;
    let copy = dense(
        ElementType::Uint8,
        smallvec::smallvec![len],
        Layout::RowMajor,
        0,
        copy.into(),
    )?;
    let address = copy.buffers().first().map(|buffer| buffer.as_ptr());
    let copy = Bound::new(py, super::Tensor::new(py, copy)?)?;
    let strides: SmallVec<[npy_intp; 6]> = row_major_strides(shape)
        .or_raise()?
        .iter()
        .map(|&stride| stride as npy_intp)
        .collect();
    over(
        py,
        dtype,
        shape,
        &strides,
        address.unwrap_or(std::ptr::null_mut()),
        false,
        copy.as_any(),
    )
}

/// An array over memory that `owner` keeps alive.
fn over<'py>(
    py: Python<'py>,
    dtype: &Bound<'py, PyAny>,
    shape: &[u64],
    byte_strides: &[npy_intp],
    address: *mut u8,
    is_read_only: bool,
    owner: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut dimensions: SmallVec<[npy_intp; 6]> = SmallVec::with_capacity(shape.len());
    for &n in shape {
        // An empty shape may have dimensions that no memory could have.
        dimensions.push(npy_intp::try_from(n).map_err(|_| {
            UnsupportedError::new_err(format!("NumPy has no dimension of {n} elements"))
        })?);
    }
    let mut byte_strides: SmallVec<[npy_intp; 6]> = SmallVec::from_slice(byte_strides);
    let rank = c_int::try_from(dimensions.len()).unwrap_or(c_int::MAX);
    let flags = if is_read_only { 0 } else { NPY_ARRAY_WRITEABLE };
    // Without elements the array gets memory of its own, since the address may be nothing.
    let (data, strides) = if dimensions.contains(&0) {
        (std::ptr::null_mut(), std::ptr::null_mut())
    } else {
        (address, byte_strides.as_mut_ptr())
    };
    // SAFETY: this thread is attached.
    let class = unsafe { get_type_object(py, NpyTypes::PyArray_Type) };
    let descr = dtype.clone().into_ptr().cast::<PyArray_Descr>();
    // SAFETY: `class` is ndarray; `descr` is a reference to a dtype, which the call takes; dimensions and strides have `rank` numbers, which it
    // copies; the elements they address lie in memory that `owner` keeps alive, and are writable unless flagged.
    let array = unsafe {
        PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            class,
            descr,
            rank,
            dimensions.as_mut_ptr(),
            strides,
            data.cast(),
            flags,
            std::ptr::null_mut(),
        )
    };
    // SAFETY: a new reference, or NULL with an exception set.
    let array = unsafe { Bound::from_owned_ptr_or_err(py, array) }?;
    if data.is_null() {
        if is_read_only {
            array.call_method1("setflags", (false,))?;
        }
        return Ok(array);
    }
    let base = owner.clone().into_ptr();
    // SAFETY: `array` is a new array without a base; the call takes the reference, also where it fails.
    if unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base) } != 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(array)
}

/// `__array_interface__`.
pub(super) fn interface<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    // The mode first: a tensor that may not be read refuses, and does not look as if it were another kind of object.
    tensor.check_access(Reach::Device).or_raise()?;
    let absent = |why: String| {
        PyAttributeError::new_err(format!(
            "'Tensor' object has no attribute '__array_interface__': {why}"
        ))
    };
    let plain = Plain::of(tensor).map_err(|error| absent(error.value(py).to_string()))?;
    tensor
        .check_access(Reach::Host)
        .map_err(|error| absent(error.to_string()))?;
    Ok(entries(py, &plain)
        .ok_or_else(|| absent(no_code(&plain)))??
        .into_any())
}

/// `__cuda_array_interface__`.
pub(super) fn cuda_interface<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let absent = |why: String| {
        PyAttributeError::new_err(format!(
            "'Tensor' object has no attribute '__cuda_array_interface__': {why}"
        ))
    };
    let place = place_of(tensor);
    if place.device != DeviceTag::Cuda {
        return Err(absent(format!("it is on {place}")));
    }
    tensor.check_access(Reach::Ordered).or_raise()?;
    let plain = Plain::of(tensor).map_err(|error| absent(error.value(py).to_string()))?;
    let interface = entries(py, &plain).ok_or_else(|| absent(no_code(&plain)))??;
    let stream = if tensor.check_access(Reach::Device).is_ok() {
        None
    } else {
        let number = StreamArgument::Number(Stream::LEGACY);
        let legacy = number.of_device(py, place.device_id)?;
        // The address never comes back.
        detached(py, || tensor.record_stream(&legacy)).or_raise()?;
        Some(Stream::LEGACY)
    };
    interface.set_item("stream", stream)?;
    Ok(interface.into_any())
}

/// What both array interfaces say; `None` where NumPy has no code for the type.
fn entries<'py>(py: Python<'py>, plain: &Plain<'_>) -> Option<PyResult<Bound<'py, PyDict>>> {
    let code = native_code(plain.descriptor.element_type)?;
    let fill = || {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", shape::tuple(py, &plain.descriptor.shape)?)?;
        interface.set_item("typestr", code)?;
        interface.set_item("data", (plain.address.addr(), plain.is_read_only))?;
        interface.set_item("strides", PyTuple::new(py, plain.byte_strides())?)?;
        Ok(interface)
    };
    Some(fill())
}

fn no_code(plain: &Plain<'_>) -> String {
    format!("it has no code for {}", plain.descriptor.element_type)
}

/// NumPy's type string of a type that it has itself and stores as the format does.
const fn native_code(element_type: ElementType) -> Option<&'static str> {
    use ElementType as T;
    Some(match element_type {
        T::Int8 => "|i1",
        T::Uint8 => "|u1",
        T::Int16 => "<i2",
        T::Uint16 => "<u2",
        T::Int32 => "<i4",
        T::Uint32 => "<u4",
        T::Int64 => "<i8",
        T::Uint64 => "<u8",
        T::Float16 => "<f2",
        T::Float32 => "<f4",
        T::Float64 => "<f8",
        T::Complex64 => "<c8",
        T::Complex128 => "<c16",
        _ => return None,
    })
}
