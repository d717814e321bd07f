//! Streams of every kind, and what orders them.

use std::ptr;
use std::thread;

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{self, CUresult, LEGACY, NON_BLOCKING, PER_THREAD, Result};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    ("a_stream_runs_in_order", a_stream_runs_in_order),
    (
        "legacy_waits_for_blocking_streams",
        legacy_waits_for_blocking_streams,
    ),
    (
        "blocking_streams_wait_for_legacy",
        blocking_streams_wait_for_legacy,
    ),
    ("null_is_the_legacy_stream", null_is_the_legacy_stream),
    ("per_thread_streams_block", per_thread_streams_block),
    (
        "per_thread_streams_differ_by_thread",
        per_thread_streams_differ_by_thread,
    ),
    (
        "a_query_is_success_or_not_ready",
        a_query_is_success_or_not_ready,
    ),
    (
        "a_destroyed_stream_finishes_its_work",
        a_destroyed_stream_finishes_its_work,
    ),
    (
        "an_event_orders_non_blocking_streams",
        an_event_orders_non_blocking_streams,
    ),
    (
        "synchronizing_a_context_waits_for_all",
        synchronizing_a_context_waits_for_all,
    ),
    (
        "an_enqueue_into_a_full_queue_waits",
        an_enqueue_into_a_full_queue_waits,
    ),
    ("a_stream_knows_its_context", a_stream_knows_its_context),
    (
        "unknown_stream_flags_are_refused",
        unknown_stream_flags_are_refused,
    ),
];

fn a_stream_runs_in_order() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    device.busy(stream)?;
    cuda::fill(a, 1, LEN, stream)?;
    cuda::add(device.add, b, a, LEN, 2, stream)?;
    cuda::copy(a, b, LEN, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(cuda::download_now(a, LEN)?, [3; LEN]);
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn legacy_waits_for_blocking_streams() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(0)?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    device.busy(stream)?;
    cuda::fill(a, 7, LEN, stream)?;
    cuda::copy(b, a, LEN, LEGACY)?;
    cuda::synchronize_stream(LEGACY)?;
    assert_eq!(cuda::download_now(b, LEN)?, [7; LEN]);
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn blocking_streams_wait_for_legacy() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(0)?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    device.busy(LEGACY)?;
    cuda::fill(a, 8, LEN, LEGACY)?;
    cuda::copy(b, a, LEN, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(cuda::download_now(b, LEN)?, [8; LEN]);
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn null_is_the_legacy_stream() -> Result {
    let device = Device::open(0)?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    device.busy(ptr::null_mut())?;
    cuda::fill(a, 9, LEN, ptr::null_mut())?;
    cuda::copy(b, a, LEN, LEGACY)?;
    cuda::synchronize_stream(ptr::null_mut())?;
    assert_eq!(cuda::download_now(b, LEN)?, [9; LEN]);
    cuda::free(a)?;
    cuda::free(b)?;
    device.close()
}

fn per_thread_streams_block() -> Result {
    let device = Device::open(0)?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    device.busy(PER_THREAD)?;
    cuda::fill(a, 4, LEN, PER_THREAD)?;
    cuda::copy(b, a, LEN, LEGACY)?;
    cuda::add(device.add, a, b, LEN, 1, PER_THREAD)?;
    cuda::synchronize_stream(PER_THREAD)?;
    assert_eq!(cuda::download_now(a, LEN)?, [5; LEN]);
    cuda::free(a)?;
    cuda::free(b)?;
    device.close()
}

fn per_thread_streams_differ_by_thread() -> Result {
    let device = Device::open(0)?;
    let context = device.context.addr();
    device.busy(PER_THREAD)?;
    // Another thread's stream 2 is idle however busy this one's is.
    let other = thread::spawn(move || {
        cuda::set_current(ptr::without_provenance_mut(context))?;
        cuda::query_stream(PER_THREAD)
    });
    assert!(other.join().is_ok_and(|idle| idle.is_ok()));
    cuda::synchronize_stream(PER_THREAD)?;
    device.close()
}

fn a_query_is_success_or_not_ready() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    cuda::query_stream(stream)?;
    device.busy(stream)?;
    assert!(matches!(
        cuda::query_stream(stream),
        Ok(()) | Err(CUresult::CUDA_ERROR_NOT_READY)
    ));
    cuda::synchronize_stream(stream)?;
    cuda::query_stream(stream)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_destroyed_stream_finishes_its_work() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let event = cuda::event()?;
    let memory = cuda::alloc(LEN)?;
    device.busy(stream)?;
    cuda::fill(memory, 3, LEN, stream)?;
    cuda::record(event, stream)?;
    cuda::destroy_stream(stream)?;
    cuda::synchronize_event(event)?;
    assert_eq!(cuda::download_now(memory, LEN)?, [3; LEN]);
    cuda::free(memory)?;
    cuda::destroy_event(event)?;
    device.close()
}

fn an_event_orders_non_blocking_streams() -> Result {
    let device = Device::open(0)?;
    let (first, second) = (cuda::stream(NON_BLOCKING)?, cuda::stream(NON_BLOCKING)?);
    let event = cuda::event()?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    device.busy(first)?;
    cuda::fill(a, 5, LEN, first)?;
    cuda::record(event, first)?;
    cuda::wait(second, event)?;
    cuda::copy(b, a, LEN, second)?;
    cuda::synchronize_stream(second)?;
    assert_eq!(cuda::download_now(b, LEN)?, [5; LEN]);
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn synchronizing_a_context_waits_for_all() -> Result {
    let device = Device::open(0)?;
    let streams = [cuda::stream(0)?, cuda::stream(NON_BLOCKING)?];
    let memory = [cuda::alloc(LEN)?, cuda::alloc(LEN)?];
    for (stream, address) in streams.into_iter().zip(memory) {
        device.busy(stream)?;
        cuda::fill(address, 6, LEN, stream)?;
    }
    cuda::synchronize()?;
    for (stream, address) in streams.into_iter().zip(memory) {
        cuda::query_stream(stream)?;
        cuda::free(address)?;
        cuda::destroy_stream(stream)?;
    }
    device.close()
}

fn an_enqueue_into_a_full_queue_waits() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let memory = cuda::alloc(LEN)?;
    cuda::fill(memory, 0, LEN, stream)?;
    for _ in 0..5000 {
        cuda::add(device.add, memory, memory, 1, 1, stream)?;
    }
    cuda::synchronize_stream(stream)?;
    assert_eq!(cuda::download_now(memory, 1)?, [(5000 % 256) as u8]);
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_stream_knows_its_context() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    assert_eq!(cuda::stream_context(stream)?, device.context);
    assert_eq!(cuda::stream_context(LEGACY)?, device.context);
    cuda::destroy_stream(stream)?;
    device.close()
}

fn unknown_stream_flags_are_refused() -> Result {
    let device = Device::open(0)?;
    assert_eq!(cuda::stream(64), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    device.close()
}
