//! Several devices.

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{self, CUresult, NON_BLOCKING, Result};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "a_peer_copy_needs_no_peer_access",
        a_peer_copy_needs_no_peer_access,
    ),
    ("peer_access_is_enabled_once", peer_access_is_enabled_once),
    (
        "a_kernel_reaches_a_peers_memory",
        a_kernel_reaches_a_peers_memory,
    ),
    (
        "a_kernel_runs_where_its_module_is",
        a_kernel_runs_where_its_module_is,
    ),
];

fn a_peer_copy_needs_no_peer_access() -> Result {
    let first = Device::open(0)?;
    let a = cuda::alloc(LEN)?;
    cuda::upload_now(a, &[19; LEN])?;
    // An upload from ordinary memory may not have ended when it returns.
    cuda::synchronize()?;
    let second = Device::open(1)?;
    let (stream, b) = (cuda::stream(NON_BLOCKING)?, cuda::alloc(LEN)?);
    cuda::copy_peer((b, second.context), (a, first.context), LEN, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(cuda::download_now(b, LEN)?, [19; LEN]);
    cuda::free(b)?;
    cuda::destroy_stream(stream)?;
    second.close()?;
    cuda::set_current(first.context)?;
    cuda::free(a)?;
    first.close()
}

fn peer_access_is_enabled_once() -> Result {
    let second = Device::open(1)?;
    let first = Device::open(0)?;
    if cuda::can_access_peer(0, 1)? == 1 {
        cuda::enable_peer(second.context)?;
        assert_eq!(
            cuda::enable_peer(second.context),
            Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        );
        cuda::disable_peer(second.context)?;
        assert_eq!(
            cuda::disable_peer(second.context),
            Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
        );
    } else {
        assert_eq!(
            cuda::enable_peer(second.context),
            Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
        );
    }
    first.close()?;
    second.close()
}

fn a_kernel_reaches_a_peers_memory() -> Result {
    let second = Device::open(1)?;
    let theirs = cuda::alloc(LEN)?;
    cuda::upload_now(theirs, &[40; LEN])?;
    cuda::synchronize()?;
    let first = Device::open(0)?;
    if cuda::can_access_peer(0, 1)? == 1 {
        let (stream, ours) = (cuda::stream(NON_BLOCKING)?, cuda::alloc(LEN)?);
        cuda::enable_peer(second.context)?;
        cuda::add(first.add, ours, theirs, LEN, 2, stream)?;
        cuda::synchronize_stream(stream)?;
        assert_eq!(cuda::download_now(ours, LEN)?, [42; LEN]);
        cuda::disable_peer(second.context)?;
        cuda::free(ours)?;
        cuda::destroy_stream(stream)?;
    }
    first.close()?;
    cuda::set_current(second.context)?;
    cuda::free(theirs)?;
    second.close()
}

fn a_kernel_runs_where_its_module_is() -> Result {
    let first = Device::open(0)?;
    let second = Device::open(1)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    assert_eq!(
        cuda::delay(first.delay, 1, stream),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
    cuda::destroy_stream(stream)?;
    second.close()?;
    first.close()
}
