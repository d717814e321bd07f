//! The driver API as the programs call it: every entry point gives its code, and may be given anything, since what it refuses is what is tested.
//!
//! On the stand-in driver a wrong handle or address is refused or reported. On a real driver some of them are undefined; the programs that pass such
//! ones are the defective ones, which run on the stand-in alone.

#![expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "a driver must refuse a wrong handle, and that is what is tested; see above for a real one"
)]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use cudarc::driver::sys;
pub use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUhostFn,
    CUmemPool_attribute, CUmemoryPool, CUmemorytype, CUmodule, CUpointer_attribute, CUresult,
    CUstream, CUstreamCaptureMode, CUstreamCaptureStatus, CUuserObject,
};

/// What a call comes to.
pub type Result<T = ()> = std::result::Result<T, CUresult>;

/// The legacy default stream, the per-thread default stream.
pub const LEGACY: CUstream = ptr::without_provenance_mut(1);
/// See [`LEGACY`].
pub const PER_THREAD: CUstream = ptr::without_provenance_mut(2);
/// Flags of [`stream`].
pub const NON_BLOCKING: c_uint = 1;
/// Physical memory's granularity is asked for with it.
const MINIMUM: sys::CUmemAllocationGranularity_flags =
    sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;

/// The test kernels' source.
const PTX: &str = include_str!("../../src/kernels.ptx");

/// Loads a driver, before cudarc looks for one: it then finds the one that is loaded.
///
/// # Errors
/// The dynamic loader's words.
pub fn load(library: &Path) -> std::result::Result<(), String> {
    let path =
        CString::new(library.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a C string; the library is a driver, whose initialisers are meant to be run.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        Err(format!("{} can't be loaded", library.display()))
    } else {
        Ok(())
    }
}

/// A function of the stand-in driver; `None` on a real one.
fn control(name: &std::ffi::CStr) -> Option<*mut c_void> {
    // SAFETY: the loaded driver is global, and the name is a C string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// How many defects the stand-in driver has reported; 0 on a real one.
#[must_use]
pub fn reports() -> usize {
    let Some(symbol) = control(c"cuda_sim_reports") else {
        return 0;
    };
    // SAFETY: the stand-in driver's function of that name has this signature.
    let function: extern "C" fn() -> usize = unsafe { std::mem::transmute(symbol) };
    function()
}

/// Whether this is the stand-in driver.
#[must_use]
pub fn simulated() -> bool {
    control(c"cuda_sim_reports").is_some()
}

fn result(code: CUresult) -> Result {
    if code == CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(code)
    }
}

/// Defines functions that pass their arguments on: `fn ours(arguments) = theirs(arguments, out first)`.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) = $call:ident($($value:expr),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// What the driver says.
        pub fn $name($($arg: $ty),*) -> Result {
            // SAFETY: what the arguments are good for is the program's affair, as the module says.
            result(unsafe { sys::$call($($value),*) })
        }
    )*};
}

/// Defines functions that ask for one value: it is the first parameter.
macro_rules! queries {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $initial:expr, |$place:ident| $call:ident($($value:expr),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// What the driver says.
        pub fn $name($($arg: $ty),*) -> Result<$out> {
            let mut answer: $out = $initial;
            let $place = &raw mut answer;
            // SAFETY: the answer has a place; what the other arguments are good for is the program's affair, as the module says.
            result(unsafe { sys::$call($($value),*) }).map(|()| answer)
        }
    )*};
}

calls! {
    /// `cuInit`.
    fn init() = cuInit(0);
    /// `cuDevicePrimaryCtxRelease`.
    fn release_primary(device: c_int) = cuDevicePrimaryCtxRelease_v2(device);
    /// `cuCtxSetCurrent`.
    fn set_current(context: CUcontext) = cuCtxSetCurrent(context);
    /// `cuCtxPushCurrent`.
    fn push(context: CUcontext) = cuCtxPushCurrent_v2(context);
    /// `cuCtxSynchronize`.
    fn synchronize() = cuCtxSynchronize();
    /// `cuCtxEnablePeerAccess`.
    fn enable_peer(context: CUcontext) = cuCtxEnablePeerAccess(context, 0);
    /// `cuCtxDisablePeerAccess`.
    fn disable_peer(context: CUcontext) = cuCtxDisablePeerAccess(context);
    /// `cuStreamDestroy`.
    fn destroy_stream(stream: CUstream) = cuStreamDestroy_v2(stream);
    /// `cuStreamSynchronize`.
    fn synchronize_stream(stream: CUstream) = cuStreamSynchronize(stream);
    /// `cuStreamQuery`.
    fn query_stream(stream: CUstream) = cuStreamQuery(stream);
    /// `cuStreamWaitEvent`.
    fn wait(stream: CUstream, event: CUevent) = cuStreamWaitEvent(stream, event, 0);
    /// `cuEventDestroy`.
    fn destroy_event(event: CUevent) = cuEventDestroy_v2(event);
    /// `cuEventRecord`.
    fn record(event: CUevent, stream: CUstream) = cuEventRecord(event, stream);
    /// `cuEventSynchronize`.
    fn synchronize_event(event: CUevent) = cuEventSynchronize(event);
    /// `cuEventQuery`.
    fn query_event(event: CUevent) = cuEventQuery(event);
    /// `cuMemFree`.
    fn free(address: CUdeviceptr) = cuMemFree_v2(address);
    /// `cuMemFreeAsync`.
    fn free_async(address: CUdeviceptr, stream: CUstream) = cuMemFreeAsync(address, stream);
    /// `cuMemFreeHost`.
    fn free_host(pointer: *mut u8) = cuMemFreeHost(pointer.cast());
    /// `cuMemHostUnregister`.
    fn unregister(pointer: *mut u8) = cuMemHostUnregister(pointer.cast());
    /// `cuMemPoolDestroy`.
    fn destroy_pool(pool: CUmemoryPool) = cuMemPoolDestroy(pool);
    /// `cuMemPoolTrimTo`.
    fn trim_pool(pool: CUmemoryPool, keep: usize) = cuMemPoolTrimTo(pool, keep);
    /// `cuMemcpyDtoDAsync`.
    fn copy(target: CUdeviceptr, source: CUdeviceptr, len: usize, stream: CUstream) = cuMemcpyDtoDAsync_v2(target, source, len, stream);
    /// `cuMemcpyDtoD`.
    fn copy_now(target: CUdeviceptr, source: CUdeviceptr, len: usize) = cuMemcpyDtoD_v2(target, source, len);
    /// `cuMemcpyHtoDAsync`.
    fn upload(target: CUdeviceptr, source: *const u8, len: usize, stream: CUstream) = cuMemcpyHtoDAsync_v2(target, source.cast(), len, stream);
    /// `cuMemcpyDtoHAsync`.
    fn download(target: *mut u8, source: CUdeviceptr, len: usize, stream: CUstream) = cuMemcpyDtoHAsync_v2(target.cast(), source, len, stream);
    /// `cuMemcpyPeerAsync`.
    fn copy_peer(to: (CUdeviceptr, CUcontext), from: (CUdeviceptr, CUcontext), len: usize, stream: CUstream) =
        cuMemcpyPeerAsync(to.0, to.1, from.0, from.1, len, stream);
    /// `cuMemcpy2DAsync`.
    fn copy_2d(copy: &CUDA_MEMCPY2D, stream: CUstream) = cuMemcpy2DAsync_v2(copy, stream);
    /// `cuMemsetD8Async`.
    fn fill(address: CUdeviceptr, byte: u8, len: usize, stream: CUstream) = cuMemsetD8Async(address, byte, len, stream);
    /// `cuMemsetD32Async`.
    fn fill_words(address: CUdeviceptr, word: u32, count: usize, stream: CUstream) = cuMemsetD32Async(address, word, count, stream);
    /// `cuModuleUnload`.
    fn unload(module: CUmodule) = cuModuleUnload(module);
    /// `cuLaunchHostFunc`.
    fn launch_host(stream: CUstream, function: CUhostFn, data: *mut c_void) = cuLaunchHostFunc(stream, function, data);
    /// `cuStreamBeginCapture`.
    fn begin_capture(stream: CUstream, mode: CUstreamCaptureMode) = cuStreamBeginCapture_v2(stream, mode);
    /// `cuGraphDestroy`.
    fn destroy_graph(graph: CUgraph) = cuGraphDestroy(graph);
    /// `cuGraphExecDestroy`.
    fn destroy_exec(exec: CUgraphExec) = cuGraphExecDestroy(exec);
    /// `cuGraphLaunch`.
    fn launch_graph(exec: CUgraphExec, stream: CUstream) = cuGraphLaunch(exec, stream);
    /// `cuGraphRetainUserObject`, the references moving to the graph.
    fn give_to_graph(graph: CUgraph, object: CUuserObject) = cuGraphRetainUserObject(graph, object, 1, 1);
    /// `cuMemRelease`.
    fn release_physical(handle: u64) = cuMemRelease(handle);
    /// `cuMemMap`.
    fn map(address: CUdeviceptr, len: usize, handle: u64) = cuMemMap(address, len, 0, handle, 0);
    /// `cuMemUnmap`.
    fn unmap(address: CUdeviceptr, len: usize) = cuMemUnmap(address, len);
    /// `cuMemAddressFree`.
    fn free_addresses(address: CUdeviceptr, len: usize) = cuMemAddressFree(address, len);
}

queries! {
    /// `cuDriverGetVersion`.
    fn version() -> c_int = 0, |out| cuDriverGetVersion(out);
    /// `cuDeviceGetCount`.
    fn devices() -> c_int = 0, |out| cuDeviceGetCount(out);
    /// `cuDevicePrimaryCtxRetain`.
    fn retain_primary(device: c_int) -> CUcontext = ptr::null_mut(), |out| cuDevicePrimaryCtxRetain(out, device);
    /// `cuCtxGetCurrent`.
    fn current() -> CUcontext = ptr::null_mut(), |out| cuCtxGetCurrent(out);
    /// `cuCtxPopCurrent`.
    fn pop() -> CUcontext = ptr::null_mut(), |out| cuCtxPopCurrent_v2(out);
    /// `cuDeviceCanAccessPeer`.
    fn can_access_peer(device: c_int, peer: c_int) -> c_int = 0, |out| cuDeviceCanAccessPeer(out, device, peer);
    /// `cuStreamCreate`.
    fn stream(flags: c_uint) -> CUstream = ptr::null_mut(), |out| cuStreamCreate(out, flags);
    /// `cuStreamGetCtx`.
    fn stream_context(stream: CUstream) -> CUcontext = ptr::null_mut(), |out| cuStreamGetCtx(stream, out);
    /// `cuEventCreate`, without timing.
    fn event() -> CUevent = ptr::null_mut(), |out| cuEventCreate(out, 2);
    /// `cuMemAlloc`.
    fn alloc(len: usize) -> CUdeviceptr = 0, |out| cuMemAlloc_v2(out, len);
    /// `cuMemAllocAsync`.
    fn alloc_async(len: usize, stream: CUstream) -> CUdeviceptr = 0, |out| cuMemAllocAsync(out, len, stream);
    /// `cuMemAllocFromPoolAsync`.
    fn alloc_from(pool: CUmemoryPool, len: usize, stream: CUstream) -> CUdeviceptr = 0, |out| cuMemAllocFromPoolAsync(out, len, pool, stream);
    /// `cuMemAllocManaged`, attached to every stream.
    fn alloc_managed(len: usize) -> CUdeviceptr = 0, |out| cuMemAllocManaged(out, len, 1);
    /// `cuDeviceGetDefaultMemPool`.
    fn default_pool(device: c_int) -> CUmemoryPool = ptr::null_mut(), |out| cuDeviceGetDefaultMemPool(out, device);
    /// `cuStreamIsCapturing`.
    fn capturing(stream: CUstream) -> CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, |out| cuStreamIsCapturing(stream, out);
    /// `cuStreamEndCapture`.
    fn end_capture(stream: CUstream) -> CUgraph = ptr::null_mut(), |out| cuStreamEndCapture(stream, out);
    /// `cuGraphInstantiate`.
    fn instantiate(graph: CUgraph) -> CUgraphExec = ptr::null_mut(), |out| cuGraphInstantiateWithFlags(out, graph, 0);
    /// `cuGraphGetNodes`: how many there are.
    fn count_nodes(graph: CUgraph) -> usize = 0, |out| cuGraphGetNodes(graph, ptr::null_mut(), out);
    /// `cuUserObjectCreate`, with one reference.
    fn user_object(data: *mut c_void, destroy: CUhostFn) -> CUuserObject = ptr::null_mut(), |out| cuUserObjectCreate(out, data, destroy, 1, 1);
    /// `cuMemAddressReserve`.
    fn reserve(len: usize) -> CUdeviceptr = 0, |out| cuMemAddressReserve(out, len, 0, 0, 0);
    /// `cuMemPoolGetAttribute`, of the attributes that are bytes.
    fn pool_bytes(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 = 0, |out| cuMemPoolGetAttribute(pool, attribute, out.cast());
    /// `cuPointerGetAttribute`, of the attributes that are words.
    fn pointer_word(address: CUdeviceptr, attribute: CUpointer_attribute) -> u32 = 0, |out| cuPointerGetAttribute(out.cast(), attribute, address);
    /// `cuPointerGetAttribute`, of the attributes that are sizes or addresses.
    fn pointer_size(address: CUdeviceptr, attribute: CUpointer_attribute) -> u64 = 0, |out| cuPointerGetAttribute(out.cast(), attribute, address);
}

/// `cuMemHostAlloc`.
///
/// # Errors
/// What the driver says.
pub fn alloc_host(len: usize) -> Result<*mut u8> {
    let mut pointer: *mut c_void = ptr::null_mut();
    // SAFETY: the answer has a place.
    result(unsafe { sys::cuMemHostAlloc(&raw mut pointer, len, 0) }).map(|()| pointer.cast())
}

/// `cuGetProcAddress`: where the function is that a name means in a version of CUDA.
///
/// # Errors
/// What the driver says.
pub fn proc_address(name: &std::ffi::CStr, version: c_int) -> Result<*mut c_void> {
    let mut address: *mut c_void = ptr::null_mut();
    // SAFETY: the answer has a place, and the name is a C string.
    let code = unsafe {
        sys::cuGetProcAddress_v2(name.as_ptr(), &raw mut address, version, 0, ptr::null_mut())
    };
    result(code).map(|()| address)
}

/// `cuMemHostRegister`.
///
/// # Errors
/// What the driver says.
pub fn register(memory: &mut [u8]) -> Result {
    // SAFETY: living memory of that length.
    result(unsafe { sys::cuMemHostRegister_v2(memory.as_mut_ptr().cast(), memory.len(), 0) })
}

/// `cuMemcpyHtoD` of ordinary memory.
///
/// # Errors
/// What the driver says.
pub fn upload_now(target: CUdeviceptr, bytes: &[u8]) -> Result {
    // SAFETY: living memory of that length.
    result(unsafe { sys::cuMemcpyHtoD_v2(target, bytes.as_ptr().cast(), bytes.len()) })
}

/// `cuMemcpyDtoH` to ordinary memory.
///
/// # Errors
/// What the driver says.
pub fn download_now(source: CUdeviceptr, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    // SAFETY: living memory of that length.
    result(unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), source, len) }).map(|()| bytes)
}

/// `cuMemGetInfo`: free and total bytes.
///
/// # Errors
/// What the driver says.
pub fn memory() -> Result<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both answers have a place.
    result(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).map(|()| (free, total))
}

/// `cuMemGetAddressRange`: start and length.
///
/// # Errors
/// What the driver says.
pub fn address_range(address: CUdeviceptr) -> Result<(CUdeviceptr, usize)> {
    let (mut start, mut len) = (0, 0);
    // SAFETY: both answers have a place.
    result(unsafe { sys::cuMemGetAddressRange_v2(&raw mut start, &raw mut len, address) })
        .map(|()| (start, len))
}

/// `cuPointerGetAttributes`: memory type, device ordinal, whether it is managed.
///
/// # Errors
/// What the driver says.
pub fn pointer_facts(address: CUdeviceptr) -> Result<(u32, c_int, u32)> {
    let (mut kind, mut device, mut managed) = (0_u32, 0, 0_u32);
    let mut attributes = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
    ];
    let mut answers: [*mut c_void; 3] = [
        (&raw mut kind).cast(),
        (&raw mut device).cast(),
        (&raw mut managed).cast(),
    ];
    // SAFETY: three attributes, and a place of the right type for each answer.
    result(unsafe {
        sys::cuPointerGetAttributes(3, attributes.as_mut_ptr(), answers.as_mut_ptr(), address)
    })
    .map(|()| (kind, device, managed))
}

/// `cuMemPoolSetAttribute` of the release threshold.
///
/// # Errors
/// What the driver says.
pub fn set_threshold(pool: CUmemoryPool, mut bytes: u64) -> Result {
    // SAFETY: the attribute's value is a 64-bit number.
    result(unsafe {
        sys::cuMemPoolSetAttribute(
            pool,
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut bytes).cast(),
        )
    })
}

/// `cuMemPoolCreate` on a device.
///
/// # Errors
/// What the driver says.
pub fn pool(device: c_int) -> Result<CUmemoryPool> {
    let mut pool = ptr::null_mut();
    // SAFETY: all-zero is a valid value of this struct of numbers and null pointers.
    let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(device);
    // SAFETY: the answer has a place, and the properties are whole.
    result(unsafe { sys::cuMemPoolCreate(&raw mut pool, &raw const properties) }).map(|()| pool)
}

fn location(device: c_int) -> sys::CUmemLocation {
    // SAFETY: all-zero is a valid value of this struct of numbers.
    let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
    location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    location.__bindgen_anon_1.id = device;
    location
}

fn physical_properties(device: c_int) -> sys::CUmemAllocationProp {
    // SAFETY: all-zero is a valid value of this struct of numbers and null pointers.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(device);
    properties
}

/// `cuMemGetAllocationGranularity`.
///
/// # Errors
/// What the driver says.
pub fn granularity(device: c_int) -> Result<usize> {
    let mut bytes = 0;
    // SAFETY: the answer has a place, and the properties are whole.
    result(unsafe {
        sys::cuMemGetAllocationGranularity(&raw mut bytes, &physical_properties(device), MINIMUM)
    })
    .map(|()| bytes)
}

/// `cuMemCreate`.
///
/// # Errors
/// What the driver says.
pub fn physical(device: c_int, len: usize) -> Result<u64> {
    let mut handle = 0;
    // SAFETY: the answer has a place, and the properties are whole.
    result(unsafe { sys::cuMemCreate(&raw mut handle, len, &physical_properties(device), 0) })
        .map(|()| handle)
}

/// `cuMemSetAccess`: read and write for a device.
///
/// # Errors
/// What the driver says.
pub fn allow(address: CUdeviceptr, len: usize, device: c_int) -> Result {
    let access = sys::CUmemAccessDesc {
        location: location(device),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: one description.
    result(unsafe { sys::cuMemSetAccess(address, len, &raw const access, 1) })
}

/// `cuThreadExchangeStreamCaptureMode`: the mode before.
///
/// # Errors
/// What the driver says.
pub fn exchange_mode(mut mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode> {
    // SAFETY: the mode has a place.
    result(unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }).map(|()| mode)
}

/// `cuStreamGetCaptureInfo`: status, number and graph.
///
/// # Errors
/// What the driver says.
pub fn capture_info(stream: CUstream) -> Result<(CUstreamCaptureStatus, u64, CUgraph)> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, ptr::null_mut());
    // SAFETY: status, number and graph have a place, and the rest isn't asked for.
    let code = unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            stream,
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    result(code).map(|()| (status, id, graph))
}

/// `cuModuleLoadData` of the test kernels.
///
/// # Errors
/// What the driver says.
///
/// # Panics
/// Never: the source has no null byte.
pub fn load_kernels() -> Result<CUmodule> {
    let source = CString::new(PTX).unwrap_or_default();
    load_module(source.as_bytes_with_nul())
}

/// `cuModuleLoadData`.
///
/// # Errors
/// What the driver says.
pub fn load_module(image: &[u8]) -> Result<CUmodule> {
    let mut module = ptr::null_mut();
    // SAFETY: the answer has a place, and the image ends in a null byte.
    result(unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) })
        .map(|()| module)
}

/// `cuModuleGetFunction`.
///
/// # Errors
/// What the driver says.
pub fn function(module: CUmodule, name: &std::ffi::CStr) -> Result<CUfunction> {
    let mut function = ptr::null_mut();
    let name: *const c_char = name.as_ptr();
    // SAFETY: the answer has a place, and the name is a C string.
    result(unsafe { sys::cuModuleGetFunction(&raw mut function, module, name) }).map(|()| function)
}

fn launch(function: CUfunction, parameters: &mut [*mut c_void], stream: CUstream) -> Result {
    let parameters = parameters.as_mut_ptr();
    // SAFETY: the kernel's parameters are those that its source declares.
    result(unsafe {
        sys::cuLaunchKernel(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            parameters,
            ptr::null_mut(),
        )
    })
}

/// Launches `hurray_sim_add`: `target[i] = source[i] + add`.
///
/// # Errors
/// What the driver says.
pub fn add(
    function: CUfunction,
    mut target: CUdeviceptr,
    mut source: CUdeviceptr,
    len: usize,
    mut add: u32,
    stream: CUstream,
) -> Result {
    let mut len = len as u64;
    launch(
        function,
        &mut [
            (&raw mut target).cast(),
            (&raw mut source).cast(),
            (&raw mut len).cast(),
            (&raw mut add).cast(),
        ],
        stream,
    )
}

/// Launches `hurray_sim_delay`.
///
/// # Errors
/// What the driver says.
pub fn delay(function: CUfunction, mut ticks: u64, stream: CUstream) -> Result {
    launch(function, &mut [(&raw mut ticks).cast()], stream)
}
