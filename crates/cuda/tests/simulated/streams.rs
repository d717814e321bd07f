//! Streams: bringing bytes onto one.

use std::thread;

use hurray_core::{Dependency, DeviceLayer, Stream};
use hurray_cuda::{CudaEvent, LAYER};
use hurray_cuda_programs::cuda;
use libtest_mimic::Trial;

use crate::harness::{Done, Scenario, clean, clean_on, sweep, sweep_on};
use crate::scene::{
    Buffer, SMALL, call, calls, consume, default_stream, filled, finish, foreign, foreign_stream,
    hand_out, handle, is_gone, live, make_current, read, standard, stream,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("an_event_is_waited_for", an_event_is_waited_for),
    ("a_users_event_is_waited_for", a_users_event_is_waited_for),
    ("another_stream_is_waited_for", another_stream_is_waited_for),
    (
        "the_legacy_stream_is_waited_for",
        the_legacy_stream_is_waited_for,
    ),
    (
        "a_foreign_stream_is_waited_for",
        a_foreign_stream_is_waited_for,
    ),
    (
        "each_buffer_goes_by_its_own_mode",
        each_buffer_goes_by_its_own_mode,
    ),
    (
        "equal_streams_and_ready_bytes_need_no_call",
        equal_streams_and_ready_bytes_need_no_call,
    ),
    (
        "one_event_serves_all_buffers_that_share_it",
        one_event_serves_all_buffers_that_share_it,
    ),
    (
        "the_next_consumer_waits_for_the_writes_only",
        the_next_consumer_waits_for_the_writes_only,
    ),
    (
        "a_per_thread_stream_yields_an_event",
        a_per_thread_stream_yields_an_event,
    ),
    ("events_are_pooled", events_are_pooled),
    (
        "the_current_context_is_restored",
        the_current_context_is_restored,
    ),
    (
        "another_devices_stream_is_waited_for",
        another_devices_stream_is_waited_for,
    ),
    (
        "the_host_waits_for_events_and_streams",
        the_host_waits_for_events_and_streams,
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("an_event_is_waited_for"),
        sweep("an_event_is_waited_for", &[]),
        clean("a_users_event_is_waited_for"),
        sweep("a_users_event_is_waited_for", &[]),
        clean("another_stream_is_waited_for"),
        sweep("another_stream_is_waited_for", &[]),
        clean("the_legacy_stream_is_waited_for"),
        sweep("the_legacy_stream_is_waited_for", &[]),
        clean("a_foreign_stream_is_waited_for"),
        sweep("a_foreign_stream_is_waited_for", &[]),
        clean("each_buffer_goes_by_its_own_mode"),
        sweep("each_buffer_goes_by_its_own_mode", &[]),
        clean("equal_streams_and_ready_bytes_need_no_call"),
        clean("one_event_serves_all_buffers_that_share_it"),
        clean("the_next_consumer_waits_for_the_writes_only"),
        sweep("the_next_consumer_waits_for_the_writes_only", &[]),
        clean("a_per_thread_stream_yields_an_event"),
        // An event for an order or an allocation that nothing here waits for (3, 5), one whose old state was as good (2); and what came back on this
        // thread's stream is waited for again on the legacy stream, which waits for every per-thread one.
        sweep(
            "a_per_thread_stream_yields_an_event",
            &[
                ("cuStreamWaitEvent", 3),
                ("cuEventRecord", 2),
                ("cuEventRecord", 3),
                ("cuEventRecord", 4),
                ("cuEventRecord", 5),
            ],
        ),
        clean("events_are_pooled"),
        clean("the_current_context_is_restored"),
        clean_on("another_devices_stream_is_waited_for", |run| run.devices(2)),
        sweep_on("another_devices_stream_is_waited_for", &[], |run| {
            run.devices(2)
        }),
        clean("the_host_waits_for_events_and_streams"),
        // The release's own record: that the host has waited is not noted.
        sweep(
            "the_host_waits_for_events_and_streams",
            &[("cuEventRecord", 2), ("cuEventRecord", 4)],
        ),
    ]
}

/// Mode `event`: every stream that will touch the bytes waits for the event.
fn an_event_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let mut buffer = filled(SMALL, 1, writer.stream())?;
    buffer.dependency = Some(Dependency::Event(LAYER.record(writer.stream())?));
    hand_out(&[&buffer], reader.stream())?;
    let target = consume(&buffer, reader.stream())?;
    buffer.leave(reader.stream());
    drop((buffer, target));
    drop((writer, reader));
    finish()
}

/// The same with an event that a user holds and records again.
fn a_users_event_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let event = CudaEvent::new(0)?;
    let mut buffer = filled(SMALL, 1, writer.stream())?;
    event.record(writer.stream())?;
    buffer.dependency = Some(Dependency::Event(event.event()));
    hand_out(&[&buffer], reader.stream())?;
    drop(consume(&buffer, reader.stream())?);
    buffer.leave(reader.stream());
    drop((buffer, event, writer, reader));
    finish()
}

/// Mode `consumer_stream`: an event on the stream, and the other stream waits for it.
fn another_stream_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let buffer = filled(SMALL, 1, writer.stream())?;
    let then = hand_out(&[&buffer], reader.stream())?;
    assert!(matches!(then, Some(Dependency::Stream(stream)) if stream == *reader.stream()));
    drop(consume(&buffer, reader.stream())?);
    buffer.leave(reader.stream());
    drop((buffer, writer, reader));
    finish()
}

/// Stream 1 is the legacy default stream.
fn the_legacy_stream_is_waited_for() -> Done {
    make_current(0)?;
    let writer = default_stream(Stream::LEGACY)?;
    let reader = stream()?;
    let buffer = filled(SMALL, 1, &writer)?;
    hand_out(&[&buffer], reader.stream())?;
    drop(consume(&buffer, reader.stream())?);
    buffer.leave(reader.stream());
    drop((buffer, reader));
    finish()
}

/// A stream of another library, by its number.
fn a_foreign_stream_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, reader) = (foreign_stream(0)?, foreign_stream(0)?);
    let buffer = filled(SMALL, 1, &writer)?;
    hand_out(&[&buffer], &reader)?;
    drop(consume(&buffer, &reader)?);
    buffer.leave(&reader);
    drop(buffer);
    finish()?;
    call(cuda::destroy_stream(handle(&writer)))?;
    call(cuda::destroy_stream(handle(&reader)))
}

/// E9: two inputs of two streams, ordered each by its own mode.
fn each_buffer_goes_by_its_own_mode() -> Done {
    make_current(0)?;
    let (x, y, reader) = (stream()?, stream()?, stream()?);
    let of_x = filled(SMALL, 1, x.stream())?;
    let mut of_y = filled(SMALL, 2, y.stream())?;
    of_y.dependency = Some(Dependency::Event(LAYER.record(y.stream())?));
    hand_out(&[&of_x, &of_y], reader.stream())?;
    assert_eq!(calls(c"cuStreamWaitEvent"), 2);
    for buffer in [of_x, of_y] {
        drop(consume(&buffer, reader.stream())?);
        buffer.leave(reader.stream());
    }
    drop((x, y, reader));
    finish()
}

/// Equal streams, and bytes that are ready.
fn equal_streams_and_ready_bytes_need_no_call() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let buffer = filled(SMALL, 1, stream.stream())?;
    let dependency = buffer.dependency.as_ref().ok_or("from the pool")?;
    let then = LAYER.order(&[dependency, dependency], stream.stream())?;
    assert!(matches!(then, Some(Dependency::Stream(_))));
    assert!(LAYER.order(&[], stream.stream())?.is_none());
    LAYER.wait(&[])?;
    for function in [
        c"cuEventRecord",
        c"cuStreamWaitEvent",
        c"cuStreamGetCaptureInfo_v3",
    ] {
        // The allocation asks for captures, once.
        assert_eq!(
            calls(function),
            u64::from(function == c"cuStreamGetCaptureInfo_v3")
        );
    }
    drop((buffer, stream));
    finish()
}

/// At most one record and one wait for a tensor whose buffers share an event, or a stream.
fn one_event_serves_all_buffers_that_share_it() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let buffers = [(); 4].map(|()| filled(SMALL, 1, writer.stream()));
    let mut buffers = buffers.into_iter().collect::<Result<Vec<_>, _>>()?;
    hand_out(&buffers.iter().collect::<Vec<_>>(), reader.stream())?;
    assert_eq!(
        (calls(c"cuEventRecord"), calls(c"cuStreamWaitEvent")),
        (1, 1)
    );
    let event = LAYER.record(writer.stream())?;
    for buffer in &mut buffers {
        buffer.dependency = Some(Dependency::Event(event.clone()));
    }
    let other = stream()?;
    hand_out(&buffers.iter().collect::<Vec<_>>(), other.stream())?;
    assert_eq!(
        (calls(c"cuEventRecord"), calls(c"cuStreamWaitEvent")),
        (2, 2)
    );
    drop((buffers, event, writer, reader, other));
    finish()
}

/// The tensor keeps its own stream: the next consumer never waits for this consumer's work.
fn the_next_consumer_waits_for_the_writes_only() -> Done {
    make_current(0)?;
    let (writer, first, second) = (stream()?, stream()?, stream()?);
    let buffer = filled(SMALL, 1, writer.stream())?;
    for reader in [&first, &second] {
        hand_out(&[&buffer], reader.stream())?;
        drop(consume(&buffer, reader.stream())?);
        buffer.leave(reader.stream());
    }
    // One wait each, for the writer.
    assert_eq!(calls(c"cuStreamWaitEvent"), 2);
    drop((buffer, writer, first, second));
    finish()
}

/// Stream 2 is another stream in every thread and never kept. A release for it records on 2 in the thread that handed out, and on the legacy stream in
/// any other.
fn a_per_thread_stream_yields_an_event() -> Done {
    make_current(0)?;
    let (writer, per_thread) = (stream()?, default_stream(Stream::PER_THREAD)?);
    let mut buffer = filled(SMALL, 1, writer.stream())?;
    let then = hand_out(&[&buffer], &per_thread)?;
    assert!(matches!(then, Some(Dependency::Event(_))));
    let target = consume(&buffer, &per_thread)?;
    assert!(matches!(target.dependency, Some(Dependency::Event(_))));
    buffer.leave(&per_thread);
    // Another thread reads on its own stream 2 what was ordered on this one's, and this thread lets go.
    buffer.dependency = then;
    let (outside, gone) = foreign(SMALL)?;
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let read = || -> Done {
                make_current(0)?;
                let own = default_stream(Stream::PER_THREAD)?;
                hand_out(&[&buffer, &outside], &own)?;
                call(cuda::copy(
                    outside.address as u64,
                    buffer.address as u64,
                    SMALL,
                    handle(&own),
                ))
            };
            read().map_err(|error| error.to_string())
        });
        other.join().expect("joined")
    })?;
    drop((buffer, outside, target));
    hurray_cuda::flush();
    assert!(is_gone(&gone));
    drop(writer);
    finish()
}

/// Back in the pool when nobody holds them, and not before.
fn events_are_pooled() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let held = LAYER.record(writer.stream())?;
    let dependency = Dependency::Stream(writer.stream().clone());
    for _ in 0..100 {
        LAYER.order(&[&dependency], reader.stream())?;
    }
    // One is held, the other one goes round.
    assert_eq!(live(c"event"), 2);
    assert_ne!(LAYER.record(writer.stream())?.handle(), held.handle());
    drop((held, writer, reader, dependency));
    finish()?;
    assert_eq!(live(c"event"), 0);
    Ok(())
}

/// Whatever is current stays so, nothing included.
fn the_current_context_is_restored() -> Done {
    let (writer, reader) = (stream()?, stream()?);
    let context = |expected: *mut _| {
        assert_eq!(cuda::current(), Ok(expected));
    };
    context(std::ptr::null_mut());
    let buffer = Buffer::from(LAYER.allocate(standard(SMALL), writer.stream())?);
    hand_out(&[&buffer], reader.stream())?;
    let _bytes = read(&buffer)?;
    buffer.leave(reader.stream());
    LAYER.pointer_facts(buffer.address)?;
    LAYER.record(&default_stream(Stream::LEGACY)?)?;
    drop(buffer);
    context(std::ptr::null_mut());
    make_current(0)?;
    let current = call(cuda::current())?;
    LAYER.record(&default_stream(Stream::LEGACY)?)?;
    context(current);
    drop((writer, reader));
    finish()
}

/// Copies wait across devices.
fn another_devices_stream_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, hurray_cuda::CudaStream::new(1)?);
    let buffer = filled(SMALL, 7, writer.stream())?;
    hand_out(&[&buffer], reader.stream())?;
    let request = hurray_core::AllocationRequest {
        device_id: 1,
        ..standard(SMALL)
    };
    let target = LAYER.allocate(request, reader.stream())?;
    let copy = hurray_core::CopyRequest::contiguous(
        (buffer.address, Some(0)),
        (target.address, Some(1)),
        SMALL,
    );
    // SAFETY: both are as they say, and ordered on the stream.
    unsafe { LAYER.copy(&[copy], reader.stream()) }?;
    buffer.leave(reader.stream());
    drop((buffer, target, writer, reader));
    finish()
}

/// `wait` is the one call that blocks.
fn the_host_waits_for_events_and_streams() -> Done {
    make_current(0)?;
    let (x, y) = (stream()?, stream()?);
    let pinned = hurray_core::AllocationRequest {
        memory_class: hurray_core::MemoryClass::HostPinned,
        ..standard(SMALL)
    };
    for by_event in [false, true] {
        let source = filled(SMALL, 9, x.stream())?;
        let target = Buffer::from(LAYER.allocate(pinned, x.stream())?);
        assert!(target.dependency.is_none());
        let copy = hurray_core::CopyRequest::contiguous(
            (source.address, Some(0)),
            (target.address, None),
            SMALL,
        );
        target.enter(x.stream())?;
        // SAFETY: both are as they say, and ordered on the stream.
        unsafe { LAYER.copy(&[copy], x.stream()) }?;
        let dependency = if by_event {
            Dependency::Event(LAYER.record(x.stream())?)
        } else {
            Dependency::Stream(x.stream().clone())
        };
        LAYER.wait(&[&dependency])?;
        let bytes = std::ptr::with_exposed_provenance::<u8>(target.address);
        // SAFETY: pinned memory of that length, and the copy is done.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, SMALL) };
        assert!(bytes.iter().all(|byte| *byte == 9));
    }
    drop((x, y));
    finish()
}
