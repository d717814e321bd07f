//! NumPy arrays.

use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use hurray_core::memory::measure_alignment;
use hurray_core::{
    ByteExtent, ElementType, Layout, LayoutError, Shape, StorageWidth, Strides, element_count,
    strided_extent,
};
use hurray_ffi::gather::{Elements, Spacing, gather};
use hurray_ffi::{Buffer, BufferFlags, Place, Readiness};
use numpy::npyffi::{
    NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_F_CONTIGUOUS, NPY_ARRAY_WRITEABLE, PyArray_Check,
    PyArray_CheckExact, PyArray_Descr, PyArrayObject, npy_intp,
};
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::{BOUNDARY, CopyArgument, copy_of, copying, dense};
use crate::copies::{self, Reason};
use crate::errors::{CopyRequiredError, OrRaise, Raise, UnsupportedError};
use crate::numpy_dtype;
use crate::owner::{calling, keep};
use crate::tensor::Tensor;

/// Wraps a NumPy array, sharing its memory where that begins on a 64-byte boundary.
///
/// `copy=None` copies only an array whose memory does not (`hurray.copies()` tells), `False` raises
/// CopyRequiredError instead, which names the measured alignment, and `True` always copies. Arrays
/// allocated under `hurray.aligned_allocator()` are never in need of it, and a slice of one
/// begins at a `byte_offset` from the boundary before it.
///
/// Shape, strides of any sign and order stay as they are: a C-contiguous array is row-major, a
/// Fortran-contiguous one column-major, any other strided. A read-only array gives a read-only
/// tensor. Types of ml_dtypes map to theirs. bool and the types of less than a byte have a byte
/// per element in NumPy and are packed, which is a copy.
///
/// Raises UnsupportedError for a dtype that the format does not have: longdouble, byte-swapped
/// numbers, objects, strings, dates, structures.
#[pyfunction]
#[pyo3(signature = (array, *, copy=CopyArgument::IfNeeded), text_signature = "(array, *, copy=None)")]
fn from_numpy(array: &Bound<'_, PyAny>, copy: CopyArgument) -> PyResult<Tensor> {
    const CALL: &str = "from_numpy";
    let py = array.py();
    let tensor = if is_array(array) {
        import(array, copy, CALL)
    } else if array.is_instance(scalar_type(py)?)? {
        // A scalar's value lies inside the object, which only a copy gets at.
        let numpy = py.import("numpy")?;
        let array = calling(py, || numpy.call_method1("asarray", (array,)))?;
        import(&array, copy, CALL)
    } else {
        Err(PyTypeError::new_err(format!(
            "from_numpy takes a numpy.ndarray, not {}",
            array.get_type().name()?
        )))
    }?;
    Tensor::new(py, tensor)
}

fn scalar_type(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static GENERIC: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GENERIC
        .get_or_try_init(py, || Ok(py.import("numpy")?.getattr("generic")?.unbind()))
        .map(|generic| generic.bind(py))
}

/// Whether `object` is a `numpy.ndarray`.
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` proves that this thread is attached, and is a live object.
    unsafe { PyArray_Check(object.py(), object.as_ptr()) != 0 }
}

/// Whether `object` is a `numpy.ndarray`, and of no subclass.
pub(crate) fn is_exactly_array(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` proves that this thread is attached, and is a live object.
    unsafe { PyArray_CheckExact(object.py(), object.as_ptr()) != 0 }
}

/// An array's fields, while nothing else runs in the interpreter.
struct Fields<'a> {
    data: *mut u8,
    /// In elements.
    dimensions: &'a [npy_intp],
    /// In bytes.
    strides: &'a [npy_intp],
    base: Option<NonNull<pyo3::ffi::PyObject>>,
    descr: &'a PyArray_Descr,
    flags: i32,
}

impl<'a> Fields<'a> {
    /// Reads `array`, for which [`is_array`] holds.
    ///
    /// # Safety
    /// `array` points to a live ndarray, and as long as the result is used no Python code runs.
    unsafe fn of(array: *mut pyo3::ffi::PyObject) -> Self {
        // SAFETY: every ndarray begins with these fields, in all releases of NumPy's C API.
        let array = unsafe { &*array.cast::<PyArrayObject>() };
        let fields = &array.fields;
        let rank = usize::try_from(fields.nd).unwrap_or(0);
        let numbers = |first: *mut npy_intp| {
            if rank == 0 {
                return &[] as &[npy_intp];
            }
            // SAFETY: NumPy keeps `nd` dimensions and as many strides.
            unsafe { slice::from_raw_parts(first, rank) }
        };
        Self {
            data: fields.data.cast(),
            dimensions: numbers(fields.dimensions),
            strides: numbers(fields.strides),
            base: NonNull::new(fields.base),
            // SAFETY: an ndarray has a dtype, which it keeps alive.
            descr: unsafe { &*fields.descr },
            flags: fields.flags,
        }
    }

    /// The addresses that the array's own elements lie between; empty without elements.
    fn extent(&self) -> Range<usize> {
        if self.dimensions.contains(&0) {
            return 0..0;
        }
        let (mut before, mut after) = (0_usize, 0_usize);
        for (&n, &stride) in self.dimensions.iter().zip(self.strides) {
            // NumPy made these of memory that is there, so nothing overflows; where somebody lied, the bounds come out too narrow.
            let reach = stride.unsigned_abs().saturating_mul((n - 1) as usize);
            let side = if stride < 0 { &mut before } else { &mut after };
            *side = side.saturating_add(reach);
        }
        let data = self.data.addr();
        // The last element has a byte at least.
        data.saturating_sub(before)..data.saturating_add(after).saturating_add(1)
    }
}

/// The memory that `array` lies in as far as it is known to be there: the extent of the last array in its chain of bases.
fn memory(array: &Bound<'_, PyAny>) -> Range<usize> {
    let mut owner = array.as_ptr();
    loop {
        // SAFETY: `array` is an ndarray, and every base that was walked to is one, kept alive by the one before. No Python code runs.
        let fields = unsafe { Fields::of(owner) };
        match fields.base {
            // SAFETY: this thread is attached, and a base is a live object.
            Some(base) if unsafe { PyArray_Check(array.py(), base.as_ptr()) != 0 } => {
                owner = base.as_ptr();
            }
            _ => return fields.extent(),
        }
    }
}

/// An array as numbers that were checked.
struct Source {
    element_type: ElementType,
    width: StorageWidth,
    shape: Shape,
    layout: Layout,
    /// Address of element `[0, …, 0]`.
    data: *mut u8,
    /// Bytes from the lowest byte of any element to `data`.
    before: usize,
    /// Bytes from the lowest byte to the end of the highest element; 0 without elements.
    len: usize,
    is_read_only: bool,
}

impl Source {
    fn read(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = array.py();
        // SAFETY: the caller checked that it is an array. The two numbers are read before Python code runs.
        let descr = &unsafe { Fields::of(array.as_ptr()) }.descr.fields;
        let (type_num, is_swapped) = (descr.type_num, descr.byteorder as u8 == SWAPPED);
        let element_type = match numpy_dtype::element_type(py, type_num)? {
            Some(element_type) if !is_swapped => element_type,
            _ => return Err(unsupported_dtype(array, is_swapped)),
        };
        let Some(width) = element_type.storage_width() else {
            return Err(unsupported_dtype(array, false));
        };
        let item = item_size(width);
        // SAFETY: as above; from here on Python code runs only where this function then returns.
        let fields = unsafe { Fields::of(array.as_ptr()) };
        let mut shape = Shape::with_capacity(fields.dimensions.len());
        for &n in fields.dimensions {
            shape.push(n as u64);
        }
        let flags = fields.flags;
        let is_c = flags & NPY_ARRAY_C_CONTIGUOUS != 0;
        let (layout, before, len) = if is_c || flags & NPY_ARRAY_F_CONTIGUOUS != 0 {
            let layout = if is_c {
                Layout::RowMajor
            } else {
                Layout::ColumnMajor
            };
            (layout, 0, dense_len(&shape, item)?)
        } else {
            let strides = element_strides(array, &fields, i64::from(item))?;
            let (before, len) = strided_span(&shape, &strides, item)?;
            (Layout::Strided(strides), before, len)
        };
        Ok(Self {
            element_type,
            width,
            shape,
            layout,
            data: fields.data,
            before,
            len,
            is_read_only: flags & NPY_ARRAY_WRITEABLE == 0,
        })
    }

    /// The address of the lowest byte of any element.
    fn lowest(&self) -> *mut u8 {
        self.data.wrapping_sub(self.before)
    }

    /// The elements' bytes.
    ///
    /// # Safety
    /// The array lives, and nobody writes to it.
    unsafe fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: NumPy's shape and strides address memory that the array keeps alive, from the lowest byte on.
        unsafe { slice::from_raw_parts(self.lowest(), self.len) }
    }
}

/// Bytes that NumPy has for an element.
pub(super) const fn item_size(width: StorageWidth) -> u32 {
    width.bits().div_ceil(8)
}

/// Bytes of all elements, one after the other.
fn dense_len(shape: &[u64], item: u32) -> PyResult<usize> {
    element_count(shape)
        .and_then(|count| usize::try_from(count.checked_mul(u64::from(item))?).ok())
        .ok_or_else(|| LayoutError::ExtentOverflow.raise())
}

/// Bytes from the lowest byte of any element to element `[0, …, 0]`, and to the end of the highest.
pub(super) fn strided_span(shape: &[u64], strides: &[i64], item: u32) -> PyResult<(usize, usize)> {
    let (Some(extent), Some(width)) = (
        strided_extent(shape, strides).or_raise()?,
        StorageWidth::from_bits(item.saturating_mul(8)),
    ) else {
        return Ok((0, 0));
    };
    let ByteExtent { before, after } = extent.bytes(width).or_raise()?;
    before
        .checked_add(after)
        .and_then(|len| Some((usize::try_from(before).ok()?, usize::try_from(len).ok()?)))
        .ok_or_else(|| LayoutError::ExtentOverflow.raise())
}

/// NumPy's byte order character of numbers that are not the machine's.
const SWAPPED: u8 = if cfg!(target_endian = "little") {
    b'>'
} else {
    b'<'
};

fn unsupported_dtype(array: &Bound<'_, PyAny>, is_swapped: bool) -> PyErr {
    let name = |array: &Bound<'_, PyAny>| {
        let dtype = array.getattr("dtype")?;
        let scalar = dtype.getattr("type")?.getattr("__name__")?;
        Ok::<_, PyErr>(format!("{} ({scalar})", dtype.str()?))
    };
    let dtype = match name(array) {
        Ok(dtype) => dtype,
        Err(error) => return error,
    };
    UnsupportedError::new_err(if is_swapped {
        format!(
            "NumPy dtype {dtype} is not in this machine's byte order; \
             array.astype(array.dtype.newbyteorder('=')) is"
        )
    } else {
        format!("NumPy dtype {dtype} has no element type here")
    })
}

/// The strides in elements.
fn element_strides(array: &Bound<'_, PyAny>, fields: &Fields<'_>, item: i64) -> PyResult<Strides> {
    let mut strides = Strides::with_capacity(fields.strides.len());
    for (axis, (&n, &stride)) in fields.dimensions.iter().zip(fields.strides).enumerate() {
        let stride = stride as i64;
        // The stride of a dimension that is never walked means nothing.
        if n > 1 && stride % item != 0 {
            return Err(UnsupportedError::new_err(format!(
                "axis {axis} of the array has a stride of {stride} bytes, no multiple of its {item}-byte elements \
                 ({}); numpy.ascontiguousarray gives one that can be shared",
                array.getattr("dtype")?.str()?
            )));
        }
        strides.push(stride / item);
    }
    Ok(strides)
}

/// A tensor over the memory of `array`, for which [`is_array`] holds, or over a copy.
pub(crate) fn import(
    array: &Bound<'_, PyAny>,
    copy: CopyArgument,
    call: &'static str,
) -> PyResult<hurray_ffi::Tensor> {
    let source = Source::read(array)?;
    if source.width.is_packed() {
        return match copy {
            CopyArgument::Never => Err(CopyRequiredError::new_err(format!(
                "NumPy has a byte for each {} and the format {} bits: sharing is impossible whatever the alignment; \
                 copy=None packs a copy",
                source.element_type,
                source.width.bits()
            ))),
            _ => gathered(array, &source, Reason::Packing, call),
        };
    }
    if copy == CopyArgument::Always {
        return copied(array, &source, Reason::Request, call);
    }
    match slack(array, &source) {
        Some(slack) => shared(array, source, slack),
        None if copy == CopyArgument::Never => Err(CopyRequiredError::new_err(format!(
            "the array's memory is aligned to {} bytes as measured, and to be shared it needs {BOUNDARY}; \
             copy=None copies it, and arrays allocated under hurray.aligned_allocator() need no copy",
            measure_alignment(source.lowest().addr())
        ))),
        None => copied(array, &source, Reason::Alignment, call),
    }
}

/// The bytes from the 64-byte boundary at or before the array's first byte to that byte; `None` if the memory is not known to reach that far
/// (decision 19).
fn slack(array: &Bound<'_, PyAny>, source: &Source) -> Option<usize> {
    let first = source.lowest().addr();
    let slack = if source.len == 0 { 0 } else { first % BOUNDARY };
    // Only bytes of the memory that the elements lie in themselves.
    (slack == 0 || {
        let memory = memory(array);
        memory.start <= first - slack && memory.contains(&first)
    })
    .then_some(slack)
}

/// A tensor over the array's own memory, from `slack` bytes before its first byte on.
#[inline]
fn shared(array: &Bound<'_, PyAny>, source: Source, slack: usize) -> PyResult<hurray_ffi::Tensor> {
    let mut flags = BufferFlags::empty();
    flags.set(BufferFlags::READ_ONLY, source.is_read_only);
    // SAFETY: the array, which the owner keeps, keeps its memory alive and in place; it reaches from the boundary (`slack`) to the end of the
    // highest element, and is writable unless flagged. NumPy's memory is ready and the host's.
    let buffer = unsafe {
        Buffer::from_owner(
            source.lowest().wrapping_sub(slack),
            slack + source.len,
            Place::HOST,
            Readiness::Ready,
            flags,
            keep(array),
        )
    }
    .or_raise()?;
    let byte_offset = (slack + source.before) as u64;
    dense(
        source.element_type,
        source.shape,
        source.layout,
        byte_offset,
        buffer,
    )
}

/// A tensor over a copy. The strides stay while the gaps between elements are no larger than the elements; else the copy is row-major.
fn copied(
    array: &Bound<'_, PyAny>,
    source: &Source,
    reason: Reason,
    call: &'static str,
) -> PyResult<hurray_ffi::Tensor> {
    if source.len / 2 > dense_len(&source.shape, item_size(source.width))? {
        return gathered(array, source, reason, call);
    }
    // SAFETY: the array lives through the call; whoever writes to it meanwhile, from another thread, races with any reader of it.
    let bytes = unsafe { source.bytes() };
    let buffer = copy_of(array.py(), bytes, reason, call)?;
    dense(
        source.element_type,
        source.shape.clone(),
        source.layout.clone(),
        source.before as u64,
        buffer,
    )
}

/// A tensor over a row-major copy, packed as the format packs.
fn gathered(
    array: &Bound<'_, PyAny>,
    source: &Source,
    reason: Reason,
    call: &'static str,
) -> PyResult<hurray_ffi::Tensor> {
    let py = array.py();
    let strides = match &source.layout {
        Layout::Strided(strides) => Ok(strides.clone()),
        Layout::ColumnMajor => hurray_core::column_major_strides(&source.shape),
        _ => hurray_core::row_major_strides(&source.shape),
    }
    .or_raise()?;
    let elements = Elements {
        // SAFETY: the array lives through the call; whoever writes to it meanwhile, from another thread, races with any reader of it.
        bytes: unsafe { source.bytes() },
        origin: source.before as u64,
        shape: &source.shape,
        strides: &strides,
        width: source.width,
        spacing: Spacing::BytePerElement,
    };
    let copy = copying(py, source.len, || gather(&elements, Spacing::Packed))
        .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    copies::report(py, copy.len(), Place::HOST, Place::HOST, reason, call)?;
    dense(
        source.element_type,
        source.shape.clone(),
        Layout::RowMajor,
        0,
        copy.into(),
    )
}

/// Puts `from_numpy` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(from_numpy, module)?)
}
