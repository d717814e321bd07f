//! Graphs whose parts are not ordered, or whose memory is gone.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hurray_cuda_programs::cuda::{self, CUstreamCaptureMode, Result};
use hurray_cuda_programs::device::LEN;

use crate::Defect;
use crate::scene::Scene;

pub(crate) const DEFECTS: &[Defect] = &[
    (
        "a_fork_that_reads_too_early",
        "race",
        a_fork_that_reads_too_early,
    ),
    (
        "a_launch_beside_other_work",
        "race",
        a_launch_beside_other_work,
    ),
    (
        "a_launch_after_the_free",
        "use-after-free",
        a_launch_after_the_free,
    ),
    (
        "a_free_under_a_launch",
        "use-after-free",
        a_free_under_a_launch,
    ),
];

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn a_fork_that_reads_too_early(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::begin_capture(scene.first, GLOBAL)?;
    if broken {
        cuda::record(scene.event, scene.first)?;
        cuda::fill(scene.a, 1, LEN, scene.first)?;
    } else {
        cuda::fill(scene.a, 1, LEN, scene.first)?;
        cuda::record(scene.event, scene.first)?;
    }
    cuda::wait(scene.second, scene.event)?;
    cuda::copy(scene.b, scene.a, LEN, scene.second)?;
    cuda::record(scene.other, scene.second)?;
    cuda::wait(scene.first, scene.other)?;
    cuda::destroy_graph(cuda::end_capture(scene.first)?)?;
    scene.close()
}

fn a_launch_beside_other_work(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::begin_capture(scene.first, GLOBAL)?;
    cuda::copy(scene.b, scene.a, LEN, scene.first)?;
    let graph = cuda::end_capture(scene.first)?;
    let exec = cuda::instantiate(graph)?;
    cuda::fill(scene.a, 1, LEN, scene.second)?;
    if !broken {
        scene.order(scene.second, scene.first)?;
    }
    cuda::launch_graph(exec, scene.first)?;
    cuda::synchronize()?;
    cuda::destroy_exec(exec)?;
    cuda::destroy_graph(graph)?;
    scene.close()
}

fn a_launch_after_the_free(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc(LEN)?;
    cuda::begin_capture(scene.first, GLOBAL)?;
    cuda::copy(scene.b, c, LEN, scene.first)?;
    let graph = cuda::end_capture(scene.first)?;
    let exec = cuda::instantiate(graph)?;
    if broken {
        cuda::free(c)?;
    }
    cuda::launch_graph(exec, scene.first)?;
    cuda::synchronize()?;
    if !broken {
        cuda::free(c)?;
    }
    cuda::destroy_exec(exec)?;
    cuda::destroy_graph(graph)?;
    scene.close()
}

static RELEASED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn release(_data: *mut c_void) {
    RELEASED.store(true, Ordering::SeqCst);
}

/// What a launch reads is freed by a reclaimer when the graph's user object is destroyed, which is after the launch, and not when the program has let go
/// of the graph.
fn a_free_under_a_launch(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc(LEN)?;
    cuda::begin_capture(scene.first, GLOBAL)?;
    cuda::copy(scene.b, c, LEN, scene.first)?;
    if !broken {
        let object = cuda::user_object(std::ptr::dangling_mut(), Some(release))?;
        cuda::give_to_graph(cuda::capture_info(scene.first)?.2, object)?;
    }
    let graph = cuda::end_capture(scene.first)?;
    let exec = cuda::instantiate(graph)?;
    cuda::destroy_graph(graph)?;
    cuda::launch_graph(exec, scene.first)?;
    cuda::destroy_exec(exec)?;
    let context = scene.device.context.addr();
    let reclaimer = thread::Builder::new()
        .name("hurray-reclaimer".to_owned())
        .spawn(move || {
            cuda::set_current(std::ptr::without_provenance_mut(context))?;
            while !broken && !RELEASED.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            cuda::free(c)
        });
    assert!(matches!(
        reclaimer.map(thread::JoinHandle::join),
        Ok(Ok(Ok(())))
    ));
    scene.close()
}
