//! Initialisation and contexts.

use std::ptr;

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{self, CUresult, Result};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    ("init_comes_first", init_comes_first),
    ("a_call_needs_a_context", a_call_needs_a_context),
    ("primary_context_is_counted", primary_context_is_counted),
    ("contexts_are_a_stack", contexts_are_a_stack),
    (
        "a_thread_begins_without_a_context",
        a_thread_begins_without_a_context,
    ),
    (
        "devices_are_numbered_from_zero",
        devices_are_numbered_from_zero,
    ),
    (
        "an_entry_point_is_found_by_name_and_version",
        an_entry_point_is_found_by_name_and_version,
    ),
];

fn init_comes_first() -> Result {
    assert_eq!(cuda::devices(), Err(CUresult::CUDA_ERROR_NOT_INITIALIZED));
    assert!(cuda::version()? >= 12000);
    cuda::init()?;
    assert!(cuda::devices()? >= 1);
    cuda::init()
}

fn a_call_needs_a_context() -> Result {
    cuda::init()?;
    assert_eq!(cuda::alloc(LEN), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    assert_eq!(cuda::stream(0), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    assert_eq!(cuda::event(), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    assert_eq!(cuda::pop(), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    Ok(())
}

fn primary_context_is_counted() -> Result {
    cuda::init()?;
    let first = cuda::retain_primary(0)?;
    assert_eq!(cuda::retain_primary(0)?, first);
    cuda::release_primary(0)?;
    cuda::set_current(first)?;
    let memory = cuda::alloc(LEN)?;
    cuda::free(memory)?;
    cuda::release_primary(0)
}

fn contexts_are_a_stack() -> Result {
    let device = Device::open(0)?;
    assert_eq!(cuda::current()?, device.context);
    cuda::push(device.context)?;
    assert_eq!(cuda::pop()?, device.context);
    assert_eq!(cuda::current()?, device.context);
    cuda::set_current(ptr::null_mut())?;
    assert_eq!(cuda::current()?, ptr::null_mut());
    device.close()
}

fn a_thread_begins_without_a_context() -> Result {
    let device = Device::open(0)?;
    let other = std::thread::spawn(|| cuda::current().map(|context| context.is_null()));
    assert!(other.join().is_ok_and(|null| null == Ok(true)));
    device.close()
}

fn devices_are_numbered_from_zero() -> Result {
    cuda::init()?;
    let count = cuda::devices()?;
    assert_eq!(
        cuda::retain_primary(count),
        Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
    );
    assert_eq!(
        cuda::retain_primary(-1),
        Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
    );
    Ok(())
}

fn an_entry_point_is_found_by_name_and_version() -> Result {
    assert!(!cuda::proc_address(c"cuMemAlloc", 3020)?.is_null());
    let (old, new) = (
        cuda::proc_address(c"cuStreamBeginCapture", 10_010)?,
        cuda::proc_address(c"cuStreamBeginCapture", 12_000)?,
    );
    assert_eq!(old, new);
    for (name, version) in [(c"cuNothing", 12_000), (c"cuStreamGetCaptureInfo", 10_000)] {
        assert_eq!(
            cuda::proc_address(name, version),
            Err(CUresult::CUDA_ERROR_NOT_FOUND)
        );
    }
    cuda::init()
}
