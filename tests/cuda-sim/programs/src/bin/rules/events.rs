//! Events: records, waits and their generations.

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{self, CUresult, NON_BLOCKING, Result};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "an_unrecorded_event_is_complete",
        an_unrecorded_event_is_complete,
    ),
    (
        "a_wait_is_for_the_record_of_its_moment",
        a_wait_is_for_the_record_of_its_moment,
    ),
    (
        "a_query_asks_for_the_last_record",
        a_query_asks_for_the_last_record,
    ),
    (
        "a_destroyed_event_still_orders",
        a_destroyed_event_still_orders,
    ),
    ("an_event_is_of_one_context", an_event_is_of_one_context),
    ("a_wait_crosses_devices", a_wait_crosses_devices),
    (
        "the_host_may_wait_for_an_event_of_another_device",
        the_host_may_wait_for_an_event_of_another_device,
    ),
];

fn an_unrecorded_event_is_complete() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let event = cuda::event()?;
    cuda::query_event(event)?;
    cuda::synchronize_event(event)?;
    cuda::wait(stream, event)?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_wait_is_for_the_record_of_its_moment() -> Result {
    let device = Device::open(0)?;
    let (first, second) = (cuda::stream(NON_BLOCKING)?, cuda::stream(NON_BLOCKING)?);
    let event = cuda::event()?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    cuda::fill(a, 1, LEN, first)?;
    cuda::record(event, first)?;
    cuda::wait(second, event)?;
    // Recorded anew before the wait has run: the wait is for the first record.
    cuda::record(event, first)?;
    cuda::copy(b, a, LEN, second)?;
    cuda::synchronize_stream(second)?;
    assert_eq!(cuda::download_now(b, LEN)?, [1; LEN]);
    cuda::synchronize_stream(first)?;
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn a_query_asks_for_the_last_record() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let event = cuda::event()?;
    cuda::record(event, stream)?;
    cuda::synchronize_event(event)?;
    cuda::query_event(event)?;
    device.busy(stream)?;
    cuda::record(event, stream)?;
    assert!(matches!(
        cuda::query_event(event),
        Ok(()) | Err(CUresult::CUDA_ERROR_NOT_READY)
    ));
    cuda::synchronize_event(event)?;
    cuda::query_event(event)?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_destroyed_event_still_orders() -> Result {
    let device = Device::open(0)?;
    let (first, second) = (cuda::stream(NON_BLOCKING)?, cuda::stream(NON_BLOCKING)?);
    let event = cuda::event()?;
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    device.busy(first)?;
    cuda::fill(a, 2, LEN, first)?;
    cuda::record(event, first)?;
    cuda::wait(second, event)?;
    cuda::destroy_event(event)?;
    cuda::copy(b, a, LEN, second)?;
    cuda::synchronize_stream(second)?;
    assert_eq!(cuda::download_now(b, LEN)?, [2; LEN]);
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn an_event_is_of_one_context() -> Result {
    let first = Device::open(0)?;
    let event = cuda::event()?;
    let second = Device::open(1)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    assert_eq!(
        cuda::record(event, stream),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
    cuda::destroy_stream(stream)?;
    second.close()?;
    cuda::set_current(first.context)?;
    cuda::destroy_event(event)?;
    first.close()
}

fn a_wait_crosses_devices() -> Result {
    let first = Device::open(0)?;
    let (from, event, a) = (
        cuda::stream(NON_BLOCKING)?,
        cuda::event()?,
        cuda::alloc(LEN)?,
    );
    first.busy(from)?;
    cuda::fill(a, 11, LEN, from)?;
    cuda::record(event, from)?;
    let second = Device::open(1)?;
    let (to, b) = (cuda::stream(NON_BLOCKING)?, cuda::alloc(LEN)?);
    cuda::wait(to, event)?;
    cuda::copy_peer((b, second.context), (a, first.context), LEN, to)?;
    cuda::synchronize_stream(to)?;
    assert_eq!(cuda::download_now(b, LEN)?, [11; LEN]);
    cuda::free(b)?;
    cuda::destroy_stream(to)?;
    second.close()?;
    cuda::set_current(first.context)?;
    cuda::free(a)?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(from)?;
    first.close()
}

fn the_host_may_wait_for_an_event_of_another_device() -> Result {
    let first = Device::open(0)?;
    let (stream, event) = (cuda::stream(NON_BLOCKING)?, cuda::event()?);
    first.busy(stream)?;
    cuda::record(event, stream)?;
    let second = Device::open(1)?;
    cuda::synchronize_event(event)?;
    cuda::query_event(event)?;
    second.close()?;
    cuda::set_current(first.context)?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(stream)?;
    first.close()
}
