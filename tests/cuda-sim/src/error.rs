//! Error codes, their names and their texts.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::LazyLock;

use cudarc::driver::sys::CUresult;

use crate::entry::{Code, Out, entry};

/// Every code that the bound version of the driver API has.
const CODES: [CUresult; 106] = [
    CUresult::CUDA_SUCCESS,
    CUresult::CUDA_ERROR_INVALID_VALUE,
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_INITIALIZED,
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_PROFILER_DISABLED,
    CUresult::CUDA_ERROR_PROFILER_NOT_INITIALIZED,
    CUresult::CUDA_ERROR_PROFILER_ALREADY_STARTED,
    CUresult::CUDA_ERROR_PROFILER_ALREADY_STOPPED,
    CUresult::CUDA_ERROR_STUB_LIBRARY,
    CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_MULTICAST_RESOURCE_FULL,
    CUresult::CUDA_ERROR_NO_DEVICE,
    CUresult::CUDA_ERROR_INVALID_DEVICE,
    CUresult::CUDA_ERROR_DEVICE_NOT_LICENSED,
    CUresult::CUDA_ERROR_INVALID_IMAGE,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_CONTEXT_ALREADY_CURRENT,
    CUresult::CUDA_ERROR_MAP_FAILED,
    CUresult::CUDA_ERROR_UNMAP_FAILED,
    CUresult::CUDA_ERROR_ARRAY_IS_MAPPED,
    CUresult::CUDA_ERROR_ALREADY_MAPPED,
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_ALREADY_ACQUIRED,
    CUresult::CUDA_ERROR_NOT_MAPPED,
    CUresult::CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
    CUresult::CUDA_ERROR_NOT_MAPPED_AS_POINTER,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT,
    CUresult::CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
    CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
    CUresult::CUDA_ERROR_INVALID_PTX,
    CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
    CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED,
    CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
    CUresult::CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_INSUFFICIENT_LOADER_VERSION,
    CUresult::CUDA_ERROR_INVALID_SOURCE,
    CUresult::CUDA_ERROR_FILE_NOT_FOUND,
    CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    CUresult::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
    CUresult::CUDA_ERROR_OPERATING_SYSTEM,
    CUresult::CUDA_ERROR_INVALID_HANDLE,
    CUresult::CUDA_ERROR_ILLEGAL_STATE,
    CUresult::CUDA_ERROR_LOSSY_QUERY,
    CUresult::CUDA_ERROR_NOT_FOUND,
    CUresult::CUDA_ERROR_NOT_READY,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
    CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
    CUresult::CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_TOO_MANY_PEERS,
    CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
    CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
    CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED,
    CUresult::CUDA_ERROR_MPS_RPC_FAILURE,
    CUresult::CUDA_ERROR_MPS_SERVER_NOT_READY,
    CUresult::CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
    CUresult::CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
    CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUresult::CUDA_ERROR_CDP_NOT_SUPPORTED,
    CUresult::CUDA_ERROR_CDP_VERSION_MISMATCH,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUresult::CUDA_ERROR_CAPTURED_EVENT,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
    CUresult::CUDA_ERROR_TIMEOUT,
    CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
    CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE,
    CUresult::CUDA_ERROR_FUNCTION_NOT_LOADED,
    CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE,
    CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
    CUresult::CUDA_ERROR_KEY_ROTATION,
    CUresult::CUDA_ERROR_STREAM_DETACHED,
    CUresult::CUDA_ERROR_GRAPH_RECAPTURE_FAILURE,
    CUresult::CUDA_ERROR_FABRIC_NOT_READY,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// Name and text of every code. The driver's callers hold on to them.
static TEXTS: LazyLock<BTreeMap<u32, (CString, CString)>> = LazyLock::new(|| {
    let texts = CODES.iter().map(|&code| {
        let name = format!("{code:?}");
        let text = name
            .trim_start_matches("CUDA_ERROR_")
            .to_lowercase()
            .replace('_', " ");
        (
            code as u32,
            (
                CString::new(name).unwrap_or_default(),
                CString::new(text).unwrap_or_default(),
            ),
        )
    });
    texts.collect()
});

fn text(
    code: Code,
    out: &Out<*const c_char>,
    pick: impl Fn(&'static (CString, CString)) -> &'static CStr,
) -> Result<(), CUresult> {
    match TEXTS.get(&code.0) {
        Some(texts) => out.set(pick(texts).as_ptr()),
        None => {
            out.set(std::ptr::null())?;
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    }
}

entry! {
    fn cuGetErrorName(error: Code, pStr: Out<*const c_char>) |_call| {
        text(error, &pStr, |texts| &texts.0)
    }
    fn cuGetErrorString(error: Code, pStr: Out<*const c_char>) |_call| {
        text(error, &pStr, |texts| &texts.1)
    }
}
