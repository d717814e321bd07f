//! `aligned_allocator()`: NumPy arrays whose data keep the format's alignment promise, through a data memory handler (NEP 49).
//!
//! NumPy keeps the handler in force in a context variable, and with each array the handler that made it. So an array can be freed long after
//! the block and from any thread, and a block changes nothing for other threads and tasks.

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};

use hurray_core::memory::aligned_heap;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyTuple};

use crate::numpy_c_api::NumpyCApi;

/// NumPy's `PyDataMemAllocator`.
#[repr(C)]
struct DataMemAllocator {
    /// Always NULL: the functions need none.
    ctx: Option<&'static c_void>,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// NumPy's `PyDataMem_Handler`, version 1.
#[repr(C)]
struct DataMemHandler {
    name: [u8; 127],
    version: u8,
    allocator: DataMemAllocator,
}

const _: () = assert!(offset_of!(DataMemHandler, version) == 127);
const _: () = assert!(offset_of!(DataMemHandler, allocator) == 128);
const _: () = assert!(size_of::<DataMemAllocator>() == 5 * size_of::<usize>());

/// What `numpy._core.multiarray.get_handler_name()` shows.
const NAME: &[u8] = b"hurray_aligned";
/// The name that NumPy asks of a handler's capsule.
const CAPSULE_NAME: &CStr = c"mem_handler";

/// Arrays hold pointers to it, so it lives as long as the process.
static HANDLER: DataMemHandler = DataMemHandler {
    name: {
        let mut name = [0; 127];
        name.split_at_mut(NAME.len()).0.copy_from_slice(NAME);
        name
    },
    version: 1,
    allocator: DataMemAllocator {
        ctx: None,
        malloc,
        calloc,
        realloc,
        free,
    },
};

fn to_numpy(data: Option<NonNull<u8>>) -> *mut c_void {
    data.map_or(null_mut(), |data| data.as_ptr().cast())
}

/// NumPy raises `MemoryError` where it gets NULL from this or the next two.
unsafe extern "C" fn malloc(_ctx: *mut c_void, size: usize) -> *mut c_void {
    to_numpy(aligned_heap::allocate(size))
}

unsafe extern "C" fn calloc(_ctx: *mut c_void, count: usize, item_size: usize) -> *mut c_void {
    to_numpy(
        count
            .checked_mul(item_size)
            .and_then(aligned_heap::allocate_zeroed),
    )
}

unsafe extern "C" fn realloc(_ctx: *mut c_void, data: *mut c_void, size: usize) -> *mut c_void {
    match NonNull::new(data.cast()) {
        None => to_numpy(aligned_heap::allocate(size)),
        // SAFETY: NumPy gives an array's data to the handler that made them, only while they are alive and not used elsewhere.
        Some(data) => to_numpy(unsafe { aligned_heap::reallocate(data, size) }),
    }
}

unsafe extern "C" fn free(_ctx: *mut c_void, data: *mut c_void, _size: usize) {
    if let Some(data) = NonNull::new(data.cast()) {
        // SAFETY: NumPy gives an array's data to the handler that made them, once.
        unsafe { aligned_heap::free(data) };
    }
}

/// The capsule that NumPy keeps with each array.
fn handler(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CAPSULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CAPSULE
        .get_or_try_init(py, || {
            // SAFETY: the capsule's pointer and name live as long as the process. NumPy, the reader of a capsule of this name, only reads
            // what it points to, which is laid out as NumPy declares it.
            let capsule = unsafe {
                PyCapsule::new_with_pointer(py, NonNull::from(&HANDLER).cast(), CAPSULE_NAME)
            }?;
            Ok(capsule.into_any().unbind())
        })
        .map(|capsule| capsule.bind(py))
}

/// How many blocks are open in the current context, 0 unless set. `Token.reset` refuses any other context than that of `set`.
fn depth(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    VARIABLE
        .get_or_try_init(py, || {
            py.import("contextvars")?
                .call_method1("ContextVar", ("hurray.aligned_allocator",))
                .map(Bound::unbind)
        })
        .map(|variable| variable.bind(py))
}

/// What leaving a block needs.
struct Entered {
    /// The open blocks with this one.
    depth: usize,
    token: Py<PyAny>,
    previous_handler: Py<PyAny>,
}

/// What `aligned_allocator()` returns. It can be entered again once it was left.
#[pyclass(module = "hurray")]
struct AlignedAllocatorCtx {
    numpy: NumpyCApi,
    entered: Option<Entered>,
}

#[pymethods]
impl AlignedAllocatorCtx {
    /// Makes the aligned allocator that of the current context.
    fn __enter__(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.entered.is_some() {
            return Err(PyRuntimeError::new_err(
                "this aligned_allocator() is in use; a nested block needs an aligned_allocator() of its own",
            ));
        }
        let variable = depth(py)?;
        let depth = variable
            .call_method1(intern!(py, "get"), (0,))?
            .extract::<usize>()?
            .saturating_add(1);
        let token = variable.call_method1(intern!(py, "set"), (depth,))?;
        match self.numpy.set_handler(handler(py)?) {
            Ok(previous_handler) => {
                self.entered = Some(Entered {
                    depth,
                    token: token.unbind(),
                    previous_handler: previous_handler.unbind(),
                });
                Ok(())
            }
            Err(error) => {
                variable.call_method1(intern!(py, "reset"), (token,))?;
                Err(error)
            }
        }
    }

    /// Restores the allocator that was in force before.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let Some(entered) = &self.entered else {
            return Err(PyRuntimeError::new_err(
                "this aligned_allocator() was not entered",
            ));
        };
        let variable = depth(py)?;
        let depth = variable
            .call_method1(intern!(py, "get"), (0,))?
            .extract::<usize>()?;
        if depth != entered.depth {
            return Err(left_elsewhere(depth, entered.depth));
        }
        if let Err(error) = variable.call_method1(intern!(py, "reset"), (&entered.token,)) {
            let refusal = left_elsewhere(depth, entered.depth);
            refusal.set_cause(py, Some(error));
            return Err(refusal);
        }
        self.numpy.set_handler(entered.previous_handler.bind(py))?;
        self.entered = None;
        Ok(())
    }
}

fn left_elsewhere(open: usize, expected: usize) -> PyErr {
    PyRuntimeError::new_err(format!(
        "this aligned_allocator() must be left in the thread and context that entered it, after the blocks entered inside it: \
         {open} blocks are open here, it was number {expected} where it was entered"
    ))
}

/// A context manager: NumPy arrays made inside the `with` block begin on a 64-byte boundary, and on a page from 4096 bytes up.
///
/// So `hurray.from_numpy(array, copy=False)` shares them. NumPy's own allocator promises 16 bytes at most, and most of its arrays have to
/// be copied. `numpy.zeros` stays lazy. An array is freed by the allocator that made it, however long after the block.
///
/// The block changes the current context only: a thread started inside it, or a worker of a pool, allocates as before. Blocks nest, and
/// each restores what was in force when it was entered.
///
/// Raises
/// ------
/// ImportError
///     NumPy is not installed.
/// UnsupportedError
///     This NumPy has no memory handlers (it is older than 1.22), or a C ABI that is not known.
/// RuntimeError
///     A block is entered while it is open, or left in another thread or context than it was entered in.
#[pyfunction]
fn aligned_allocator(py: Python<'_>) -> PyResult<AlignedAllocatorCtx> {
    Ok(AlignedAllocatorCtx {
        numpy: NumpyCApi::get(py)?,
        entered: None,
    })
}

/// Puts the function and its class on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<AlignedAllocatorCtx>()?;
    module.add_function(wrap_pyfunction!(aligned_allocator, module)?)
}
