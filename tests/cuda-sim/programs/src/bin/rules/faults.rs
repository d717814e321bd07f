//! Modules that are none, and contexts that are lost.

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{self, CUresult, NON_BLOCKING, Result};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    ("an_image_is_checked", an_image_is_checked),
    (
        "a_kernel_is_looked_up_by_name",
        a_kernel_is_looked_up_by_name,
    ),
    // The one program that the simulator reports, since it reads what it must not.
    (
        "an_illegal_address_breaks_the_context",
        an_illegal_address_breaks_the_context,
    ),
];

fn an_image_is_checked() -> Result {
    let device = Device::open(0)?;
    assert!(matches!(
        cuda::load_module(b"no kernel at all\0"),
        Err(CUresult::CUDA_ERROR_INVALID_IMAGE | CUresult::CUDA_ERROR_INVALID_PTX)
    ));
    device.close()
}

fn a_kernel_is_looked_up_by_name() -> Result {
    let device = Device::open(0)?;
    let module = cuda::load_kernels()?;
    assert_eq!(
        cuda::function(module, c"hurray_sim_nothing"),
        Err(CUresult::CUDA_ERROR_NOT_FOUND)
    );
    cuda::unload(module)?;
    device.close()
}

fn an_illegal_address_breaks_the_context() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    cuda::add(device.add, 0, 0, LEN, 1, stream)?;
    assert_eq!(
        cuda::synchronize_stream(stream),
        Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
    );
    // For good.
    assert_eq!(cuda::alloc(LEN), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(
        cuda::synchronize(),
        Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
    );
    cuda::release_primary(0)
}
