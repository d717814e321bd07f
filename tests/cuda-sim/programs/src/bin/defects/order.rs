//! Accesses of two streams that nothing orders.

use hurray_cuda_programs::cuda::{self, LEGACY, NON_BLOCKING, PER_THREAD, Result};
use hurray_cuda_programs::device::LEN;

use crate::Defect;
use crate::scene::Scene;

pub(crate) const DEFECTS: &[Defect] = &[
    ("read_without_a_wait", "race", read_without_a_wait),
    ("write_over_a_reader", "race", write_over_a_reader),
    ("write_over_a_writer", "race", write_over_a_writer),
    (
        "write_over_one_of_two_readers",
        "race",
        write_over_one_of_two_readers,
    ),
    ("overlap_of_one_byte", "race", overlap_of_one_byte),
    ("overlap_of_strided_rows", "race", overlap_of_strided_rows),
    (
        "wait_for_an_unrecorded_event",
        "race",
        wait_for_an_unrecorded_event,
    ),
    ("record_before_the_work", "race", record_before_the_work),
    ("wait_before_the_record", "race", wait_before_the_record),
    ("wait_on_the_wrong_stream", "race", wait_on_the_wrong_stream),
    ("wait_for_an_older_record", "race", wait_for_an_older_record),
    (
        "legacy_and_a_non_blocking_stream",
        "race",
        legacy_and_a_non_blocking_stream,
    ),
    (
        "per_thread_and_a_non_blocking_stream",
        "race",
        per_thread_and_a_non_blocking_stream,
    ),
    ("two_blocking_streams", "race", two_blocking_streams),
    (
        "a_query_that_was_not_ready",
        "race",
        a_query_that_was_not_ready,
    ),
    (
        "a_synchronous_upload_is_not_over",
        "race",
        a_synchronous_upload_is_not_over,
    ),
    (
        "first_use_on_another_stream",
        "race",
        first_use_on_another_stream,
    ),
    (
        "a_peer_copy_without_a_wait",
        "race",
        a_peer_copy_without_a_wait,
    ),
    ("a_kernel_beside_a_kernel", "race", a_kernel_beside_a_kernel),
    ("one_of_two_inputs", "race", one_of_two_inputs),
];

fn read_without_a_wait(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    if !broken {
        scene.order(scene.first, scene.second)?;
    }
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn write_over_a_reader(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    scene.order(scene.first, scene.second)?;
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    if !broken {
        scene.order(scene.second, scene.first)?;
    }
    cuda::fill(scene.a, 2, LEN, scene.first)?;
    scene.close()
}

fn write_over_a_writer(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    if !broken {
        scene.order(scene.first, scene.second)?;
    }
    cuda::fill(scene.a, 2, LEN, scene.second)?;
    scene.close()
}

fn write_over_one_of_two_readers(broken: bool) -> Result {
    let scene = Scene::open()?;
    let third = cuda::stream(NON_BLOCKING)?;
    let c = cuda::alloc(LEN)?;
    cuda::copy(scene.b, scene.a, LEN, scene.first)?;
    cuda::copy(c, scene.a, LEN, scene.second)?;
    scene.order(scene.first, third)?;
    if !broken {
        scene.order(scene.second, third)?;
    }
    cuda::fill(scene.a, 2, LEN, third)?;
    cuda::synchronize()?;
    cuda::free(c)?;
    cuda::destroy_stream(third)?;
    scene.close()
}

fn overlap_of_one_byte(broken: bool) -> Result {
    let scene = Scene::open()?;
    let half = LEN / 2;
    cuda::fill(scene.a, 1, half, scene.first)?;
    let start = scene.a + half as u64 - u64::from(broken);
    cuda::fill(start, 2, half, scene.second)?;
    scene.close()
}

fn overlap_of_strided_rows(broken: bool) -> Result {
    use hurray_cuda_programs::cuda::{CUDA_MEMCPY2D, CUmemorytype};
    let scene = Scene::open()?;
    let copy = |x: usize| CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: scene.b,
        srcArray: std::ptr::null_mut(),
        srcPitch: 64,
        dstXInBytes: x,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: scene.a,
        dstArray: std::ptr::null_mut(),
        dstPitch: 64,
        WidthInBytes: 32,
        Height: 8,
    };
    // Columns 0..32 and 32..64 of one matrix: the hulls overlap, the bytes don't.
    cuda::copy_2d(&copy(0), scene.first)?;
    cuda::copy_2d(&copy(if broken { 31 } else { 32 }), scene.second)?;
    scene.close()
}

fn wait_for_an_unrecorded_event(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    if !broken {
        cuda::record(scene.event, scene.first)?;
    }
    cuda::wait(scene.second, scene.event)?;
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn record_before_the_work(broken: bool) -> Result {
    let scene = Scene::open()?;
    if broken {
        cuda::record(scene.event, scene.first)?;
        cuda::fill(scene.a, 1, LEN, scene.first)?;
    } else {
        cuda::fill(scene.a, 1, LEN, scene.first)?;
        cuda::record(scene.event, scene.first)?;
    }
    cuda::wait(scene.second, scene.event)?;
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn wait_before_the_record(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    if broken {
        cuda::wait(scene.second, scene.event)?;
        cuda::record(scene.event, scene.first)?;
    } else {
        cuda::record(scene.event, scene.first)?;
        cuda::wait(scene.second, scene.event)?;
    }
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn wait_on_the_wrong_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    cuda::wait(if broken { scene.first } else { scene.second }, scene.event)?;
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn wait_for_an_older_record(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::record(scene.event, scene.first)?;
    if broken {
        cuda::wait(scene.second, scene.event)?;
    }
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    if !broken {
        cuda::wait(scene.second, scene.event)?;
    }
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn legacy_and_a_non_blocking_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    let stream = cuda::stream(if broken { NON_BLOCKING } else { 0 })?;
    cuda::fill(scene.a, 1, LEN, stream)?;
    cuda::copy(scene.b, scene.a, LEN, LEGACY)?;
    cuda::synchronize()?;
    cuda::destroy_stream(stream)?;
    scene.close()
}

fn per_thread_and_a_non_blocking_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, PER_THREAD)?;
    if !broken {
        scene.order(PER_THREAD, scene.first)?;
    }
    cuda::copy(scene.b, scene.a, LEN, scene.first)?;
    scene.close()
}

fn two_blocking_streams(broken: bool) -> Result {
    let scene = Scene::open()?;
    let (first, second) = (cuda::stream(0)?, cuda::stream(0)?);
    cuda::fill(scene.a, 1, LEN, first)?;
    if !broken {
        // Anything on the legacy stream comes after the one and before the other.
        cuda::fill(scene.b, 1, 1, LEGACY)?;
    }
    cuda::copy(scene.b, scene.a, LEN, second)?;
    cuda::synchronize()?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    scene.close()
}

fn a_query_that_was_not_ready(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    if !broken {
        while cuda::query_event(scene.event).is_err() {}
    }
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn a_synchronous_upload_is_not_over(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::upload_now(scene.a, &[1; LEN])?;
    if !broken {
        cuda::synchronize_stream(LEGACY)?;
    }
    cuda::copy(scene.b, scene.a, LEN, scene.first)?;
    scene.close()
}

fn first_use_on_another_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    let memory = cuda::alloc_async(LEN, scene.first)?;
    if !broken {
        scene.order(scene.first, scene.second)?;
    }
    cuda::fill(memory, 1, LEN, scene.second)?;
    cuda::free_async(memory, scene.second)?;
    scene.close()
}

fn a_peer_copy_without_a_wait(broken: bool) -> Result {
    use hurray_cuda_programs::device::Device;
    let scene = Scene::open()?;
    let there = Device::open(1)?;
    let (stream, target) = (cuda::stream(NON_BLOCKING)?, cuda::alloc(LEN)?);
    cuda::set_current(scene.device.context)?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    if !broken {
        cuda::wait(stream, scene.event)?;
    }
    cuda::copy_peer(
        (target, there.context),
        (scene.a, scene.device.context),
        LEN,
        stream,
    )?;
    cuda::synchronize_stream(stream)?;
    cuda::free(target)?;
    cuda::destroy_stream(stream)?;
    there.close()?;
    cuda::set_current(scene.device.context)?;
    scene.close()
}

fn a_kernel_beside_a_kernel(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::add(scene.device.add, scene.a, scene.b, LEN, 1, scene.first)?;
    if !broken {
        scene.order(scene.first, scene.second)?;
    }
    cuda::add(scene.device.add, scene.b, scene.a, LEN, 1, scene.second)?;
    scene.close()
}

/// Two inputs from two streams: a wait for the one is no wait for the other.
fn one_of_two_inputs(broken: bool) -> Result {
    let scene = Scene::open()?;
    let third = cuda::stream(NON_BLOCKING)?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    cuda::fill(scene.b, 2, LEN, scene.second)?;
    cuda::record(scene.other, scene.second)?;
    cuda::wait(third, scene.event)?;
    if !broken {
        cuda::wait(third, scene.other)?;
    }
    cuda::add(scene.device.add, scene.b, scene.a, LEN, 1, third)?;
    cuda::synchronize()?;
    cuda::destroy_stream(third)?;
    scene.close()
}
