//! Captures: their modes, and what invalidates them.

use std::ptr;
use std::thread;

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{
    self, CUresult as E, CUstream, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status,
    LEGACY, NON_BLOCKING, Result,
};
use hurray_cuda_programs::device::{Device, LEN};

const GLOBAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: Mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "a_capture_has_a_status_a_number_and_a_graph",
        a_capture_has_a_status_a_number_and_a_graph,
    ),
    (
        "a_global_capture_ends_by_any_threads_allocation",
        a_global_capture_ends_by_any_threads_allocation,
    ),
    (
        "a_thread_local_capture_ends_by_its_own_threads_allocation",
        a_thread_local_capture_ends_by_its_own_threads_allocation,
    ),
    (
        "a_thread_local_capture_survives_other_threads",
        a_thread_local_capture_survives_other_threads,
    ),
    (
        "a_relaxed_capture_survives_allocations",
        a_relaxed_capture_survives_allocations,
    ),
    (
        "a_relaxed_thread_may_allocate",
        a_relaxed_thread_may_allocate,
    ),
    (
        "an_event_query_ends_a_global_capture",
        an_event_query_ends_a_global_capture,
    ),
    (
        "a_capturing_stream_cannot_be_waited_for",
        a_capturing_stream_cannot_be_waited_for,
    ),
    (
        "a_context_with_a_capture_cannot_be_waited_for",
        a_context_with_a_capture_cannot_be_waited_for,
    ),
    (
        "a_captured_event_cannot_be_asked",
        a_captured_event_cannot_be_asked,
    ),
    (
        "a_capture_cannot_wait_for_an_outside_event",
        a_capture_cannot_wait_for_an_outside_event,
    ),
    (
        "two_captures_cannot_be_merged",
        two_captures_cannot_be_merged,
    ),
    ("a_fork_is_joined", a_fork_is_joined),
    ("an_unjoined_fork_is_an_error", an_unjoined_fork_is_an_error),
    (
        "the_legacy_stream_cannot_be_used_beside_a_blocking_capture",
        the_legacy_stream_cannot_be_used_beside_a_blocking_capture,
    ),
    (
        "asking_the_legacy_stream_does_not_invalidate",
        asking_the_legacy_stream_does_not_invalidate,
    ),
    (
        "the_legacy_stream_cannot_capture",
        the_legacy_stream_cannot_capture,
    ),
    (
        "a_capture_is_ended_where_it_began",
        a_capture_is_ended_where_it_began,
    ),
    (
        "an_invalid_capture_takes_nothing_more",
        an_invalid_capture_takes_nothing_more,
    ),
];

/// The device, and a stream that captures.
fn begin(mode: Mode) -> Result<(Device, CUstream)> {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    cuda::begin_capture(stream, mode)?;
    Ok((device, stream))
}

/// Ends a capture that must have been invalidated.
fn end_invalid(device: Device, stream: CUstream) -> Result {
    assert_eq!(
        cuda::end_capture(stream),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    assert_eq!(
        cuda::capturing(stream)?,
        Status::CU_STREAM_CAPTURE_STATUS_NONE
    );
    cuda::destroy_stream(stream)?;
    device.close()
}

/// Ends a capture that must be valid.
fn end_valid(device: Device, stream: CUstream) -> Result {
    let graph = cuda::end_capture(stream)?;
    cuda::destroy_graph(graph)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

/// Does something with the device's context in another thread.
fn elsewhere(device: &Device, work: fn() -> Result) -> Result {
    let context = device.context.addr();
    let thread = thread::spawn(move || {
        cuda::set_current(ptr::without_provenance_mut(context))?;
        work()
    });
    thread.join().unwrap_or(Err(E::CUDA_ERROR_UNKNOWN))
}

fn allocate() -> Result {
    cuda::free(cuda::alloc(LEN)?)
}

fn a_capture_has_a_status_a_number_and_a_graph() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    assert_eq!(
        cuda::capture_info(stream)?.0,
        Status::CU_STREAM_CAPTURE_STATUS_NONE
    );
    cuda::begin_capture(stream, THREAD_LOCAL)?;
    let (status, first, graph) = cuda::capture_info(stream)?;
    assert_eq!(status, Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_eq!(cuda::end_capture(stream)?, graph);
    cuda::destroy_graph(graph)?;
    cuda::begin_capture(stream, THREAD_LOCAL)?;
    assert_ne!(cuda::capture_info(stream)?.1, first);
    end_valid(device, stream)
}

fn a_global_capture_ends_by_any_threads_allocation() -> Result {
    let (device, stream) = begin(GLOBAL)?;
    assert_eq!(
        elsewhere(&device, allocate),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    assert_eq!(
        cuda::capturing(stream)?,
        Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED
    );
    end_invalid(device, stream)
}

fn a_thread_local_capture_ends_by_its_own_threads_allocation() -> Result {
    let (device, stream) = begin(THREAD_LOCAL)?;
    assert_eq!(allocate(), Err(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    end_invalid(device, stream)
}

fn a_thread_local_capture_survives_other_threads() -> Result {
    let (device, stream) = begin(THREAD_LOCAL)?;
    elsewhere(&device, allocate)?;
    end_valid(device, stream)
}

fn a_relaxed_capture_survives_allocations() -> Result {
    let (device, stream) = begin(RELAXED)?;
    allocate()?;
    elsewhere(&device, allocate)?;
    end_valid(device, stream)
}

fn a_relaxed_thread_may_allocate() -> Result {
    let (device, stream) = begin(GLOBAL)?;
    assert_eq!(cuda::exchange_mode(RELAXED)?, GLOBAL);
    allocate()?;
    assert_eq!(cuda::exchange_mode(GLOBAL)?, RELAXED);
    end_valid(device, stream)
}

fn an_event_query_ends_a_global_capture() -> Result {
    let device = Device::open(0)?;
    let (stream, other, event) = (
        cuda::stream(NON_BLOCKING)?,
        cuda::stream(NON_BLOCKING)?,
        cuda::event()?,
    );
    cuda::record(event, other)?;
    cuda::begin_capture(stream, GLOBAL)?;
    assert_eq!(
        cuda::query_event(event),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    assert_eq!(
        cuda::end_capture(stream),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    cuda::destroy_event(event)?;
    cuda::destroy_stream(stream)?;
    cuda::destroy_stream(other)?;
    device.close()
}

fn a_capturing_stream_cannot_be_waited_for() -> Result {
    for ask in [cuda::synchronize_stream, cuda::query_stream] {
        let (device, stream) = begin(RELAXED)?;
        assert_eq!(ask(stream), Err(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        end_invalid(device, stream)?;
    }
    Ok(())
}

fn a_context_with_a_capture_cannot_be_waited_for() -> Result {
    let (device, stream) = begin(RELAXED)?;
    assert_eq!(
        cuda::synchronize(),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    end_invalid(device, stream)
}

fn a_captured_event_cannot_be_asked() -> Result {
    for ask in [cuda::synchronize_event, cuda::query_event] {
        let (device, stream) = begin(RELAXED)?;
        let event = cuda::event()?;
        cuda::record(event, stream)?;
        assert_eq!(ask(event), Err(E::CUDA_ERROR_CAPTURED_EVENT));
        cuda::destroy_event(event)?;
        end_invalid(device, stream)?;
    }
    Ok(())
}

fn a_capture_cannot_wait_for_an_outside_event() -> Result {
    let device = Device::open(0)?;
    let (stream, other, event) = (
        cuda::stream(NON_BLOCKING)?,
        cuda::stream(NON_BLOCKING)?,
        cuda::event()?,
    );
    cuda::record(event, other)?;
    cuda::begin_capture(stream, RELAXED)?;
    assert_eq!(
        cuda::wait(stream, event),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
    );
    cuda::destroy_event(event)?;
    cuda::destroy_stream(other)?;
    end_invalid(device, stream)
}

fn two_captures_cannot_be_merged() -> Result {
    let (device, first) = begin(RELAXED)?;
    let (second, event) = (cuda::stream(NON_BLOCKING)?, cuda::event()?);
    cuda::begin_capture(second, RELAXED)?;
    cuda::record(event, first)?;
    assert_eq!(
        cuda::wait(second, event),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_MERGE)
    );
    assert!(cuda::end_capture(second).is_err());
    cuda::destroy_event(event)?;
    cuda::destroy_stream(second)?;
    end_invalid(device, first)
}

fn a_fork_is_joined() -> Result {
    let device = Device::open(0)?;
    let (first, second) = (cuda::stream(NON_BLOCKING)?, cuda::stream(NON_BLOCKING)?);
    let (fork, join) = (cuda::event()?, cuda::event()?);
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    cuda::begin_capture(first, GLOBAL)?;
    cuda::fill(a, 1, LEN, first)?;
    cuda::record(fork, first)?;
    cuda::wait(second, fork)?;
    assert_eq!(cuda::capture_info(first)?.1, cuda::capture_info(second)?.1);
    cuda::copy(b, a, LEN, second)?;
    cuda::record(join, second)?;
    cuda::wait(first, join)?;
    let graph = cuda::end_capture(first)?;
    assert_eq!(
        cuda::capturing(second)?,
        Status::CU_STREAM_CAPTURE_STATUS_NONE
    );
    assert_eq!(cuda::count_nodes(graph)?, 2);
    cuda::destroy_graph(graph)?;
    for event in [fork, join] {
        cuda::destroy_event(event)?;
    }
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn an_unjoined_fork_is_an_error() -> Result {
    let device = Device::open(0)?;
    let (first, second, fork) = (
        cuda::stream(NON_BLOCKING)?,
        cuda::stream(NON_BLOCKING)?,
        cuda::event()?,
    );
    let memory = cuda::alloc(LEN)?;
    cuda::begin_capture(first, GLOBAL)?;
    cuda::record(fork, first)?;
    cuda::wait(second, fork)?;
    cuda::fill(memory, 1, LEN, second)?;
    assert_eq!(
        cuda::end_capture(first),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    );
    cuda::destroy_event(fork)?;
    cuda::free(memory)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn the_legacy_stream_cannot_be_used_beside_a_blocking_capture() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(0)?;
    let memory = cuda::alloc(LEN)?;
    cuda::begin_capture(stream, RELAXED)?;
    assert_eq!(
        cuda::fill(memory, 1, LEN, LEGACY),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    );
    assert_eq!(
        cuda::end_capture(stream),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    // Beside a non-blocking one it can.
    let other = cuda::stream(NON_BLOCKING)?;
    cuda::begin_capture(other, RELAXED)?;
    cuda::fill(memory, 1, LEN, LEGACY)?;
    let graph = cuda::end_capture(other)?;
    cuda::destroy_graph(graph)?;
    cuda::synchronize()?;
    cuda::free(memory)?;
    cuda::destroy_stream(other)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn asking_the_legacy_stream_does_not_invalidate() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(0)?;
    cuda::begin_capture(stream, GLOBAL)?;
    assert_eq!(
        cuda::capturing(LEGACY),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    );
    end_valid(device, stream)
}

fn the_legacy_stream_cannot_capture() -> Result {
    let device = Device::open(0)?;
    assert_eq!(
        cuda::begin_capture(LEGACY, GLOBAL),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    device.close()
}

fn a_capture_is_ended_where_it_began() -> Result {
    let device = Device::open(0)?;
    let (first, second, fork) = (
        cuda::stream(NON_BLOCKING)?,
        cuda::stream(NON_BLOCKING)?,
        cuda::event()?,
    );
    let memory = cuda::alloc(LEN)?;
    cuda::begin_capture(first, GLOBAL)?;
    cuda::record(fork, first)?;
    cuda::wait(second, fork)?;
    cuda::fill(memory, 1, LEN, second)?;
    assert_eq!(
        cuda::end_capture(second),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
    );
    assert!(cuda::end_capture(first).is_err());
    cuda::begin_capture(first, GLOBAL)?;
    let context = device.context.addr();
    let stream = first.addr();
    let other = thread::spawn(move || {
        cuda::set_current(ptr::without_provenance_mut(context))?;
        cuda::end_capture(ptr::without_provenance_mut(stream)).map(drop)
    });
    assert!(
        other
            .join()
            .is_ok_and(|ended| ended == Err(E::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD))
    );
    let _ = cuda::end_capture(first).map(cuda::destroy_graph);
    cuda::free(memory)?;
    cuda::destroy_event(fork)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn an_invalid_capture_takes_nothing_more() -> Result {
    let device = Device::open(0)?;
    let (stream, memory) = (cuda::stream(NON_BLOCKING)?, cuda::alloc(LEN)?);
    cuda::begin_capture(stream, RELAXED)?;
    assert!(cuda::synchronize_stream(stream).is_err());
    assert_eq!(
        cuda::fill(memory, 1, LEN, stream),
        Err(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    assert!(cuda::end_capture(stream).is_err());
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}
