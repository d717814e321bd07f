//! A thread that waits for the device and releases memory must wait itself, and its waits must not stand in for the program's.

use std::ptr;
use std::thread;

use hurray_cuda_programs::cuda::{self, CUresult, Result};
use hurray_cuda_programs::device::LEN;

use crate::Defect;
use crate::scene::Scene;

pub(crate) const DEFECTS: &[Defect] = &[
    (
        "the_reclaimers_poll_is_no_wait_of_the_program",
        "race",
        the_reclaimers_poll_is_no_wait_of_the_program,
    ),
    (
        "the_reclaimer_frees_without_waiting",
        "use-after-free",
        the_reclaimer_frees_without_waiting,
    ),
    (
        "the_reclaimer_frees_on_a_stream_without_a_wait",
        "use-after-free",
        the_reclaimer_frees_on_a_stream_without_a_wait,
    ),
];

/// Runs work on a thread that bears the reclaimer's name.
fn reclaim(scene: &Scene, work: impl FnOnce() -> Result + Send + 'static) -> Result {
    let context = scene.device.context.addr();
    let thread = thread::Builder::new()
        .name("hurray-reclaimer".to_owned())
        .spawn(move || {
            cuda::set_current(ptr::without_provenance_mut(context))?;
            work()
        });
    thread
        .map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?
        .join()
        .unwrap_or(Err(CUresult::CUDA_ERROR_UNKNOWN))
}

fn the_reclaimers_poll_is_no_wait_of_the_program(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    let event = scene.event.addr();
    reclaim(&scene, move || {
        while cuda::query_event(ptr::without_provenance_mut(event)).is_err() {}
        Ok(())
    })?;
    if !broken {
        cuda::wait(scene.second, scene.event)?;
    }
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    scene.close()
}

fn the_reclaimer_frees_without_waiting(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc(LEN)?;
    cuda::fill(c, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    let event = scene.event.addr();
    reclaim(&scene, move || {
        if !broken {
            cuda::synchronize_event(ptr::without_provenance_mut(event))?;
        }
        cuda::free(c)
    })?;
    scene.close()
}

fn the_reclaimer_frees_on_a_stream_without_a_wait(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc_async(LEN, scene.first)?;
    cuda::fill(c, 1, LEN, scene.first)?;
    cuda::record(scene.event, scene.first)?;
    let (event, stream) = (scene.event.addr(), scene.second.addr());
    reclaim(&scene, move || {
        let stream = ptr::without_provenance_mut(stream);
        if !broken {
            cuda::wait(stream, ptr::without_provenance_mut(event))?;
        }
        cuda::free_async(c, stream)
    })?;
    scene.close()
}
