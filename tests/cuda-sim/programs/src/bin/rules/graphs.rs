//! Graphs and the objects that live as long as they do.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{
    self, CUgraph, CUresult, CUstreamCaptureMode, NON_BLOCKING, Result,
};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "a_graph_does_what_was_captured",
        a_graph_does_what_was_captured,
    ),
    (
        "a_user_object_lives_as_long_as_its_graphs",
        a_user_object_lives_as_long_as_its_graphs,
    ),
    (
        "an_invalid_capture_lets_its_objects_go",
        an_invalid_capture_lets_its_objects_go,
    ),
];

static DESTROYED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn destroy(_data: *mut c_void) {
    DESTROYED.fetch_add(1, Ordering::SeqCst);
}

fn wait_for_destruction() {
    while DESTROYED.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A captured kernel that adds 1 to `memory`, with a user object.
fn capture(device: &Device, memory: u64, stream: cuda::CUstream) -> Result<CUgraph> {
    cuda::begin_capture(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    cuda::add(device.add, memory, memory, LEN, 1, stream)?;
    let object = cuda::user_object(std::ptr::null_mut(), Some(destroy))?;
    let (_, _, graph) = cuda::capture_info(stream)?;
    cuda::give_to_graph(graph, object)?;
    cuda::end_capture(stream)
}

fn a_graph_does_what_was_captured() -> Result {
    let device = Device::open(0)?;
    let (stream, memory) = (cuda::stream(NON_BLOCKING)?, cuda::alloc(LEN)?);
    cuda::fill(memory, 0, LEN, stream)?;
    let graph = capture(&device, memory, stream)?;
    let exec = cuda::instantiate(graph)?;
    for _ in 0..3 {
        cuda::launch_graph(exec, stream)?;
    }
    cuda::synchronize_stream(stream)?;
    assert_eq!(cuda::download_now(memory, LEN)?, [3; LEN]);
    cuda::destroy_exec(exec)?;
    cuda::destroy_graph(graph)?;
    wait_for_destruction();
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_user_object_lives_as_long_as_its_graphs() -> Result {
    let device = Device::open(0)?;
    let (stream, memory) = (cuda::stream(NON_BLOCKING)?, cuda::alloc(LEN)?);
    cuda::fill(memory, 0, LEN, stream)?;
    let graph = capture(&device, memory, stream)?;
    let exec = cuda::instantiate(graph)?;
    cuda::destroy_graph(graph)?;
    cuda::launch_graph(exec, stream)?;
    thread::sleep(Duration::from_millis(10));
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 0);
    cuda::destroy_exec(exec)?;
    // The launch may outlive the graph, and the object the launch.
    wait_for_destruction();
    cuda::synchronize_stream(stream)?;
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn an_invalid_capture_lets_its_objects_go() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    cuda::begin_capture(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let object = cuda::user_object(std::ptr::null_mut(), Some(destroy))?;
    let (_, _, graph) = cuda::capture_info(stream)?;
    cuda::give_to_graph(graph, object)?;
    assert!(cuda::synchronize_stream(stream).is_err());
    assert_eq!(
        cuda::end_capture(stream),
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    wait_for_destruction();
    cuda::destroy_stream(stream)?;
    device.close()
}
