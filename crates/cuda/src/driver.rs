//! Every entry point of the driver that this crate calls, and what a call says when it fails.
//!
//! cudarc's `sys` layer gives the types and finds the library. Its `result` layer is not used: it makes the driver's answer a Rust enum, and an
//! answer newer than the enum would be undefined behaviour. Here every answer is a number.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUgraph,
    CUgraphEdgeData, CUgraphNode, CUhostFn, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUpointer_attribute, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus, CUuserObject,
    cuuint64_t,
};
use hurray_core::DeviceError;

/// An answer of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const CAPTURE_UNSUPPORTED: Self = Self(900);
    /// Capturing streams depend on the legacy stream, which can't be used meanwhile.
    pub(crate) const CAPTURE_IMPLICIT: Self = Self(906);

    /// Whether the context is gone or beyond use, so that nothing runs in it any more: a driver that has ended, a context that was destroyed, and
    /// the errors of which the reference says that they leave the process in an inconsistent state.
    pub(crate) fn is_lost(self) -> bool {
        matches!(
            self.0,
            4 // DEINITIALIZED
            | 226 // CONTAINED
            | 700 // ILLEGAL_ADDRESS
            | 702 // LAUNCH_TIMEOUT
            | 709 // CONTEXT_IS_DESTROYED
            | 710 // ASSERT
            | 714
                ..=719 // the faults of a kernel
            | 721 // TENSOR_MEMORY_LEAK
        )
    }
}

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The function.
    pub(crate) operation: &'static str,
    /// What it answered.
    pub(crate) code: Code,
}

impl CallError {
    /// What a driver would answer that is no more.
    pub(crate) const GONE: Self = Self {
        operation: "cuInit",
        code: Code(4),
    };
}

/// The entry points as methods, each named as the driver names it. A line is a function; its types are checked against cudarc's.
macro_rules! entry_points {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        /// The driver, loaded.
        #[expect(non_snake_case, reason = "the driver's names")]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($ty),*) -> u32,)*
            name_of: NameOf,
        }

        $(const _: unsafe fn($($ty),*) -> sys::CUresult = sys::$name;)*

        #[allow(clippy::too_many_arguments, reason = "the driver's own; most functions have fewer")]
        impl Driver {
            /// Looks every entry point up.
            ///
            /// # Errors
            /// The first one that the library lacks.
            pub(crate) fn load() -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        type Function = unsafe extern "C" fn($($ty),*) -> u32;
                        symbol::<Function>(stringify!($name))?
                    },)*
                    name_of: symbol::<NameOf>("cuGetErrorName")?,
                })
            }

            $(
                #[expect(non_snake_case, reason = "the driver's name")]
                pub(crate) unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), CallError> {
                    // SAFETY: the symbol has this type (checked against cudarc's declaration above), and the caller keeps to what the
                    // driver's reference asks of the arguments.
                    let code = Code(unsafe { (self.$name)($($arg),*) });
                    match code {
                        Code::SUCCESS => Ok(()),
                        code => Err(CallError { operation: stringify!($name), code }),
                    }
                }
            )*
        }
    };
}

/// `cuGetErrorName`, whose first argument is a number here: any is allowed, only known ones have a name.
type NameOf = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;

/// The function of that name, which the caller gives its type.
fn symbol<F: Copy>(name: &'static str) -> Result<F, &'static str> {
    // SAFETY: only called once `is_culib_present` has said that the library loads.
    let library = unsafe { sys::culib() };
    // SAFETY: `F` is the type of the driver's function of that name.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| name)
}

entry_points! {
    cuInit(flags: c_uint);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);

    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);

    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    cuStreamGetId(stream: CUstream, id: *mut c_ulonglong);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuStreamSynchronize(stream: CUstream);

    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, len: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuMemAlloc_v2(address: *mut CUdeviceptr, len: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemHostAlloc(address: *mut *mut c_void, len: usize, flags: c_uint);
    cuMemFreeHost(address: *mut c_void);
    cuMemAllocManaged(address: *mut CUdeviceptr, len: usize, flags: c_uint);
    cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, values: *mut *mut c_void, address: CUdeviceptr);

    cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream);
    cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, len: usize, stream: CUstream);
    cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);

    cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
    cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut cuuint64_t, graph: *mut CUgraph, dependencies: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize);
    cuUserObjectCreate(object: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, references: c_uint, flags: c_uint);
    cuUserObjectRelease(object: CUuserObject, references: c_uint);
    cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, references: c_uint, flags: c_uint);
}

impl Driver {
    /// The driver's name for `code`.
    pub(crate) fn name(&self, code: Code) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the out pointer is valid, and any number may be asked for.
        let answer = unsafe { (self.name_of)(code.0, &raw mut name) };
        if answer != 0 || name.is_null() {
            return format!("error {}, which this driver has no name for", code.0);
        }
        // SAFETY: the driver answers with a constant string of its own.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned()
    }

    /// The failed call as an error for the caller.
    pub(crate) fn error(&self, failed: CallError) -> DeviceError {
        DeviceError::Driver {
            operation: failed.operation,
            name: self.name(failed.code),
        }
    }
}
