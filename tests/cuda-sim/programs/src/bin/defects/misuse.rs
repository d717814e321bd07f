//! Wrong ranges, devices and handles.

use hurray_cuda_programs::cuda::{self, CUresult, NON_BLOCKING, Result};
use hurray_cuda_programs::device::{Device, LEN};

use crate::Defect;
use crate::scene::Scene;

pub(crate) const DEFECTS: &[Defect] = &[
    ("a_copy_past_the_end", "out-of-bounds", a_copy_past_the_end),
    (
        "a_strided_copy_past_the_end",
        "out-of-bounds",
        a_strided_copy_past_the_end,
    ),
    (
        "a_kernel_past_the_end",
        "out-of-bounds",
        a_kernel_past_the_end,
    ),
    (
        "a_copy_of_what_is_no_memory",
        "unknown-address",
        a_copy_of_what_is_no_memory,
    ),
    (
        "a_copy_of_a_hole_between_mappings",
        "out-of-bounds",
        a_copy_of_a_hole_between_mappings,
    ),
    (
        "a_kernel_on_a_peers_memory",
        "peer",
        a_kernel_on_a_peers_memory,
    ),
    (
        "a_kernel_on_a_mapping_without_access",
        "peer",
        a_kernel_on_a_mapping_without_access,
    ),
    ("a_destroyed_stream", "destroyed-handle", a_destroyed_stream),
    ("a_destroyed_event", "destroyed-handle", a_destroyed_event),
    (
        "a_stream_destroyed_twice",
        "destroyed-handle",
        a_stream_destroyed_twice,
    ),
    (
        "an_event_of_a_context_that_is_gone",
        "destroyed-handle",
        an_event_of_a_context_that_is_gone,
    ),
    (
        "an_event_handle_that_is_somebody_elses_now",
        "race",
        an_event_handle_that_is_somebody_elses_now,
    ),
];

fn a_copy_past_the_end(broken: bool) -> Result {
    let scene = Scene::open()?;
    let copied = cuda::copy(
        scene.b,
        scene.a + 1,
        LEN - 1 + usize::from(broken),
        scene.first,
    );
    assert_eq!(
        copied,
        if broken {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        } else {
            Ok(())
        }
    );
    scene.close()
}

fn a_strided_copy_past_the_end(broken: bool) -> Result {
    use hurray_cuda_programs::cuda::{CUDA_MEMCPY2D, CUmemorytype};
    let scene = Scene::open()?;
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: scene.a,
        srcArray: std::ptr::null_mut(),
        srcPitch: 1024,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: scene.b,
        dstArray: std::ptr::null_mut(),
        dstPitch: 1024,
        WidthInBytes: 1024,
        Height: 4 + usize::from(broken),
    };
    let copied = cuda::copy_2d(&copy, scene.first);
    assert_eq!(copied.is_err(), broken);
    scene.close()
}

fn a_kernel_past_the_end(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::add(
        scene.device.add,
        scene.a,
        scene.b,
        LEN + usize::from(broken),
        1,
        scene.first,
    )?;
    if broken {
        assert_eq!(
            cuda::synchronize_stream(scene.first),
            Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
        );
        return Ok(());
    }
    scene.close()
}

fn a_copy_of_what_is_no_memory(broken: bool) -> Result {
    let scene = Scene::open()?;
    if broken {
        let host = [0_u8; 16];
        // Host memory that is called device memory.
        let claimed = host.as_ptr().expose_provenance() as u64;
        assert_eq!(
            cuda::copy(scene.a, claimed, host.len(), scene.first),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
    }
    scene.close()
}

fn a_copy_of_a_hole_between_mappings(broken: bool) -> Result {
    let scene = Scene::open()?;
    let piece = cuda::granularity(0)?;
    let start = cuda::reserve(3 * piece)?;
    let handles = [
        cuda::physical(0, piece)?,
        cuda::physical(0, piece)?,
        cuda::physical(0, piece)?,
    ];
    let places = [start, start + piece as u64, start + 2 * piece as u64];
    for (index, (handle, place)) in handles.into_iter().zip(places).enumerate() {
        if index != 1 || !broken {
            cuda::map(place, piece, handle)?;
            cuda::allow(place, piece, 0)?;
        }
    }
    let used = cuda::fill(start + piece as u64 - 16, 1, piece + 32, scene.first);
    assert_eq!(used.is_err(), broken);
    cuda::synchronize()?;
    for (index, (handle, place)) in handles.into_iter().zip(places).enumerate() {
        if index != 1 || !broken {
            cuda::unmap(place, piece)?;
        }
        cuda::release_physical(handle)?;
    }
    cuda::free_addresses(start, 3 * piece)?;
    scene.close()
}

fn a_kernel_on_a_peers_memory(broken: bool) -> Result {
    let there = Device::open(1)?;
    let theirs = cuda::alloc(LEN)?;
    let scene = Scene::open()?;
    if !broken {
        cuda::enable_peer(there.context)?;
    }
    cuda::add(scene.device.add, scene.a, theirs, LEN, 1, scene.first)?;
    if broken {
        assert_eq!(
            cuda::synchronize_stream(scene.first),
            Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
        );
        return Ok(());
    }
    cuda::synchronize()?;
    cuda::set_current(there.context)?;
    cuda::free(theirs)?;
    there.close()?;
    cuda::set_current(scene.device.context)?;
    scene.close()
}

fn a_kernel_on_a_mapping_without_access(broken: bool) -> Result {
    let scene = Scene::open()?;
    let piece = cuda::granularity(0)?;
    let (start, handle) = (cuda::reserve(piece)?, cuda::physical(0, piece)?);
    cuda::map(start, piece, handle)?;
    if !broken {
        cuda::allow(start, piece, 0)?;
    }
    cuda::add(scene.device.add, start, scene.a, LEN, 1, scene.first)?;
    if broken {
        assert_eq!(
            cuda::synchronize_stream(scene.first),
            Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
        );
        return Ok(());
    }
    cuda::synchronize()?;
    cuda::unmap(start, piece)?;
    cuda::release_physical(handle)?;
    cuda::free_addresses(start, piece)?;
    scene.close()
}

fn a_destroyed_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    let stream = cuda::stream(NON_BLOCKING)?;
    if broken {
        cuda::destroy_stream(stream)?;
        assert_eq!(
            cuda::fill(scene.a, 1, LEN, stream),
            Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
        );
    } else {
        cuda::fill(scene.a, 1, LEN, stream)?;
        cuda::destroy_stream(stream)?;
    }
    scene.close()
}

fn a_destroyed_event(broken: bool) -> Result {
    let scene = Scene::open()?;
    let event = cuda::event()?;
    if broken {
        cuda::destroy_event(event)?;
        assert_eq!(
            cuda::record(event, scene.first),
            Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
        );
    } else {
        cuda::record(event, scene.first)?;
        cuda::destroy_event(event)?;
    }
    scene.close()
}

fn a_stream_destroyed_twice(broken: bool) -> Result {
    let scene = Scene::open()?;
    let stream = cuda::stream(NON_BLOCKING)?;
    cuda::destroy_stream(stream)?;
    if broken {
        assert_eq!(
            cuda::destroy_stream(stream),
            Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
        );
    }
    scene.close()
}

fn an_event_of_a_context_that_is_gone(broken: bool) -> Result {
    let scene = Scene::open()?;
    let there = Device::open(1)?;
    let event = cuda::event()?;
    if broken {
        there.close()?;
        assert_eq!(
            cuda::synchronize_event(event),
            Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
        );
    } else {
        cuda::synchronize_event(event)?;
        cuda::destroy_event(event)?;
        there.close()?;
    }
    cuda::set_current(scene.device.context)?;
    scene.close()
}

/// The handle comes back at once: the wait is for another event, and nothing says so but the race.
fn an_event_handle_that_is_somebody_elses_now(broken: bool) -> Result {
    let scene = Scene::open()?;
    let event = cuda::event()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::record(event, scene.first)?;
    if !broken {
        cuda::wait(scene.second, event)?;
    }
    cuda::destroy_event(event)?;
    let theirs = cuda::event()?;
    assert_eq!(theirs, event);
    if broken {
        cuda::wait(scene.second, event)?;
    }
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    cuda::destroy_event(theirs)?;
    scene.close()
}
