//! `cuGetProcAddress`: the entry points by name and version. NVIDIA's Python bindings and the CUDA runtime find them so.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUdriverProcAddressQueryResult as Query, CUresult};

/// From which CUDA version on a newer form of a function is what its name means. Others have had it since CUDA 4.
const SINCE: [(&CStr, c_int); 10] = [
    (c"cuCtxCreate_v4", 12_050),
    (c"cuCtxSynchronize_v2", 13_000),
    (c"cuDeviceGetUuid_v2", 11_040),
    (c"cuDevicePrimaryCtxRelease_v2", 11_000),
    (c"cuDevicePrimaryCtxReset_v2", 11_000),
    (c"cuDevicePrimaryCtxSetFlags_v2", 11_000),
    (c"cuMemAdvise_v2", 13_000),
    (c"cuMemPrefetchAsync_v2", 13_000),
    (c"cuStreamBeginCapture_v2", 10_010),
    (c"cuStreamGetCaptureInfo_v3", 12_030),
];

/// An entry point of this library.
fn exported(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: all-zero is a valid value of this struct of pointers.
    let mut own: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address in this library, and the answer has a place.
    let known = unsafe { libc::dladdr(cuGetProcAddress_v2 as *const c_void, &raw mut own) };
    if known == 0 {
        return None;
    }
    // SAFETY: the file that this code was loaded from, and so is loaded.
    let library = unsafe { libc::dlopen(own.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    // SAFETY: a loaded library, and the name is a C string.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// What a name means in a version of CUDA.
fn find(name: &CStr, version: c_int) -> Result<*mut c_void, Query> {
    let name = match name.to_bytes() {
        b"cuGraphInstantiate" if version >= 12_000 => c"cuGraphInstantiateWithFlags",
        _ => name,
    };
    let mut is_too_new = false;
    for suffix in ["_v4", "_v3", "_v2", ""] {
        let Ok(form) = CString::new([name.to_bytes(), suffix.as_bytes()].concat()) else {
            continue;
        };
        let Some(symbol) = exported(&form) else {
            continue;
        };
        let since = SINCE.iter().find(|(known, _)| *known == form.as_c_str());
        if since.is_none_or(|&(_, since)| since <= version) {
            return Ok(symbol);
        }
        is_too_new = true;
    }
    Err(if is_too_new {
        Query::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
    } else {
        Query::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
    })
}

const _: unsafe fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    sys::cuuint64_t,
    *mut Query,
) -> CUresult = sys::cuGetProcAddress_v2;

/// Not among the entry points that are counted, logged and made to fail: it asks the library and no device.
///
/// # Safety
/// `symbol` is null or a C string; the other pointers are null or good for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    _flags: sys::cuuint64_t,
    status: *mut Query,
) -> u32 {
    if symbol.is_null() || pfn.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE as u32;
    }
    // SAFETY: not null, and so a C string.
    let name = unsafe { CStr::from_ptr(symbol) };
    let (address, found, code) = match find(name, version) {
        Ok(address) => (
            address,
            Query::CU_GET_PROC_ADDRESS_SUCCESS,
            CUresult::CUDA_SUCCESS,
        ),
        Err(found) => (ptr::null_mut(), found, CUresult::CUDA_ERROR_NOT_FOUND),
    };
    // SAFETY: not null, and so good for a write.
    unsafe { pfn.write(address) };
    if !status.is_null() {
        // SAFETY: as above.
        unsafe { status.write(found) };
    }
    code as u32
}
