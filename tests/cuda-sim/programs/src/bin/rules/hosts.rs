//! Host functions.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{self, CUresult, NON_BLOCKING, Result};
use hurray_cuda_programs::device::Device;

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "a_host_function_runs_in_its_streams_order",
        a_host_function_runs_in_its_streams_order,
    ),
    (
        "a_host_function_runs_though_nobody_asks",
        a_host_function_runs_though_nobody_asks,
    ),
    (
        "a_host_function_reads_what_came_before_it",
        a_host_function_reads_what_came_before_it,
    ),
    (
        "a_host_function_is_a_function",
        a_host_function_is_a_function,
    ),
];

static CALLS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count(data: *mut c_void) {
    assert_eq!(CALLS.fetch_add(1, Ordering::SeqCst), data.addr() as u32);
}

fn a_host_function_runs_in_its_streams_order() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    for index in 0..20 {
        device.busy(stream)?;
        cuda::launch_host(stream, Some(count), std::ptr::without_provenance_mut(index))?;
    }
    cuda::synchronize_stream(stream)?;
    assert_eq!(CALLS.load(Ordering::SeqCst), 20);
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_host_function_runs_though_nobody_asks() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    cuda::launch_host(stream, Some(count), std::ptr::null_mut())?;
    while CALLS.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    cuda::synchronize_stream(stream)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_host_function_is_a_function() -> Result {
    let device = Device::open(0)?;
    assert_eq!(
        cuda::launch_host(std::ptr::null_mut(), None, std::ptr::null_mut()),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    device.close()
}

unsafe extern "C" fn read(data: *mut c_void) {
    // SAFETY: page-locked memory that an earlier operation of the stream has written.
    CALLS.store(unsafe { data.cast::<u32>().read() }, Ordering::SeqCst);
}

fn a_host_function_reads_what_came_before_it() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let (host, memory) = (cuda::alloc_host(4)?, cuda::alloc(4)?);
    cuda::fill_words(memory, 0x1234_5678, 1, stream)?;
    cuda::download(host, memory, 4, stream)?;
    cuda::launch_host(stream, Some(read), host.cast())?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(CALLS.load(Ordering::SeqCst), 0x1234_5678);
    cuda::free(memory)?;
    cuda::free_host(host)?;
    cuda::destroy_stream(stream)?;
    device.close()
}
