//! Graph capture: nobody's capture is broken, and what a graph reads lives as long as the graph.

use std::thread;

use hurray_core::{Dependency, DeviceError, DeviceLayer, MemoryClass, Stream};
use hurray_cuda::LAYER;
use hurray_cuda_programs::cuda::{self, CUstreamCaptureMode, CUstreamCaptureStatus};
use libtest_mimic::Trial;

use crate::harness::{Done, Scenario, clean, sweep};
use crate::scene::{
    Buffer, SMALL, call, calls, default_stream, filled, finish, foreign, handle, is_gone,
    make_current, standard, stream,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    (
        "calls_from_other_threads_break_no_capture",
        calls_from_other_threads_break_no_capture,
    ),
    (
        "our_calls_break_no_capture_of_the_same_thread",
        our_calls_break_no_capture_of_the_same_thread,
    ),
    (
        "streams_of_one_capture_are_ordered_in_it",
        streams_of_one_capture_are_ordered_in_it,
    ),
    (
        "an_event_of_the_capture_is_waited_for_in_it",
        an_event_of_the_capture_is_waited_for_in_it,
    ),
    (
        "a_capture_needs_no_order_for_equal_streams_and_complete_events",
        a_capture_needs_no_order_for_equal_streams_and_complete_events,
    ),
    (
        "orders_across_captures_are_refused",
        orders_across_captures_are_refused,
    ),
    (
        "what_a_graph_reads_lives_as_long_as_the_graph",
        what_a_graph_reads_lives_as_long_as_the_graph,
    ),
    (
        "what_comes_back_after_the_capture_is_the_graphs_too",
        what_comes_back_after_the_capture_is_the_graphs_too,
    ),
    (
        "what_was_read_before_the_capture_is_waited_for",
        what_was_read_before_the_capture_is_waited_for,
    ),
    (
        "a_broken_capture_holds_nothing_for_good",
        a_broken_capture_holds_nothing_for_good,
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("calls_from_other_threads_break_no_capture"),
        clean("our_calls_break_no_capture_of_the_same_thread"),
        clean("streams_of_one_capture_are_ordered_in_it"),
        sweep("streams_of_one_capture_are_ordered_in_it", &[]),
        clean("an_event_of_the_capture_is_waited_for_in_it"),
        sweep("an_event_of_the_capture_is_waited_for_in_it", &[]),
        clean("a_capture_needs_no_order_for_equal_streams_and_complete_events"),
        clean("orders_across_captures_are_refused"),
        clean("what_a_graph_reads_lives_as_long_as_the_graph"),
        sweep("what_a_graph_reads_lives_as_long_as_the_graph", &[]),
        clean("what_comes_back_after_the_capture_is_the_graphs_too"),
        // The record when it comes back: nobody can know that all of its use is in the graph.
        sweep(
            "what_comes_back_after_the_capture_is_the_graphs_too",
            &[("cuEventRecord", 1)],
        ),
        clean("what_was_read_before_the_capture_is_waited_for"),
        sweep("what_was_read_before_the_capture_is_waited_for", &[]),
        clean("a_broken_capture_holds_nothing_for_good"),
        sweep("a_broken_capture_holds_nothing_for_good", &[]),
    ]
}

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn begin(stream: &Stream) -> Done {
    call(cuda::begin_capture(handle(stream), GLOBAL))
}

/// That the capture is whole.
fn assert_capturing(stream: &Stream) {
    assert_eq!(
        cuda::capturing(handle(stream)),
        Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
    );
}

/// Everything of ours that is not stream-ordered.
fn everything() -> Done {
    let own = stream()?;
    let event = LAYER.record(own.stream())?;
    LAYER.wait(&[
        &Dependency::Event(event),
        &Dependency::Stream(own.stream().clone()),
    ])?;
    for memory_class in [
        MemoryClass::Standard,
        MemoryClass::HostPinned,
        MemoryClass::Unified,
    ] {
        let request = hurray_core::AllocationRequest {
            memory_class,
            shareable: true,
            ..standard(SMALL)
        };
        let buffer = Buffer::from(LAYER.allocate(request, own.stream())?);
        LAYER.pointer_facts(buffer.address)?;
        buffer.enter(own.stream())?;
    }
    let pooled = filled(SMALL, 1, own.stream())?;
    let _bytes = crate::scene::read(&pooled)?;
    drop((pooled, own));
    // The reclaimer asks, sleeps and frees meanwhile.
    hurray_cuda::flush();
    Ok(())
}

/// In global mode a call that is not stream-ordered breaks a capture of any thread.
fn calls_from_other_threads_break_no_capture() -> Done {
    make_current(0)?;
    let capturing = stream()?;
    begin(capturing.stream())?;
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            make_current(0)
                .and_then(|()| everything())
                .map_err(|error| error.to_string())
        });
        other.join().expect("joined")
    })?;
    assert_capturing(capturing.stream());
    let graph = call(cuda::end_capture(handle(capturing.stream())))?;
    call(cuda::destroy_graph(graph))?;
    drop(capturing);
    finish()
}

fn our_calls_break_no_capture_of_the_same_thread() -> Done {
    make_current(0)?;
    let capturing = stream()?;
    begin(capturing.stream())?;
    everything()?;
    assert_capturing(capturing.stream());
    let graph = call(cuda::end_capture(handle(capturing.stream())))?;
    call(cuda::destroy_graph(graph))?;
    drop(capturing);
    finish()
}

/// Runs a graph twice, and waits for it.
fn replay(graph: cuda::CUgraph, stream: &Stream) -> Done {
    let exec = call(cuda::instantiate(graph))?;
    for _ in 0..2 {
        call(cuda::launch_graph(exec, handle(stream)))?;
    }
    call(cuda::destroy_graph(graph))?;
    call(cuda::destroy_exec(exec))?;
    call(cuda::synchronize_stream(handle(stream)))
}

/// The same capture: ordered inside it.
fn streams_of_one_capture_are_ordered_in_it() -> Done {
    make_current(0)?;
    let (a, b) = (stream()?, stream()?);
    let source = filled(SMALL, 1, a.stream())?;
    let target = filled(SMALL, 2, a.stream())?;
    begin(a.stream())?;
    call(cuda::fill(
        source.address as u64,
        3,
        SMALL,
        handle(a.stream()),
    ))?;
    // `b` joins, and `a` waits for it at the end.
    let on_a = Dependency::Stream(a.stream().clone());
    let fork = join(a.stream(), b.stream())?;
    call(cuda::fill(
        source.address as u64,
        4,
        SMALL,
        handle(a.stream()),
    ))?;
    let then = LAYER.order(&[&on_a], b.stream())?.ok_or("a dependency")?;
    call(cuda::copy(
        target.address as u64,
        source.address as u64,
        SMALL,
        handle(b.stream()),
    ))?;
    LAYER.order(&[&then], a.stream())?;
    call(cuda::fill(
        target.address as u64,
        5,
        SMALL,
        handle(a.stream()),
    ))?;
    let graph = call(cuda::end_capture(handle(a.stream())))?;
    replay(graph, a.stream())?;
    call(cuda::destroy_event(fork))?;
    assert_eq!(
        call(cuda::download_now(target.address as u64, SMALL))?,
        [5; SMALL]
    );
    drop((on_a, then, source, target, a, b));
    finish()
}

fn an_event_of_the_capture_is_waited_for_in_it() -> Done {
    make_current(0)?;
    let (a, b) = (stream()?, stream()?);
    let source = filled(SMALL, 1, a.stream())?;
    let target = filled(SMALL, 2, a.stream())?;
    begin(a.stream())?;
    let fork = join(a.stream(), b.stream())?;
    call(cuda::fill(
        source.address as u64,
        3,
        SMALL,
        handle(a.stream()),
    ))?;
    let event = Dependency::Event(LAYER.record(a.stream())?);
    let refused = LAYER.wait(&[&event]);
    assert!(
        matches!(refused, Err(DeviceError::Capturing { .. })),
        "{refused:?}"
    );
    // Known to be of this capture, so that it is no reason to refuse.
    let then = LAYER.order(&[&event], b.stream())?.ok_or("a dependency")?;
    call(cuda::copy(
        target.address as u64,
        source.address as u64,
        SMALL,
        handle(b.stream()),
    ))?;
    let end = Dependency::Event(LAYER.record(b.stream())?);
    LAYER.order(&[&end], a.stream())?;
    let graph = call(cuda::end_capture(handle(a.stream())))?;
    // Its capture is over, and nothing can wait for it any more.
    let refused = LAYER.order(&[&event], b.stream());
    assert!(
        matches!(refused, Err(DeviceError::Capturing { .. })),
        "{refused:?}"
    );
    replay(graph, a.stream())?;
    call(cuda::destroy_event(fork))?;
    drop((event, then, end, source, target, a, b));
    finish()
}

/// Takes a second stream into a capture, as programs do.
fn join(capturing: &Stream, other: &Stream) -> Result<cuda::CUevent, Box<dyn std::error::Error>> {
    let fork = call(cuda::event())?;
    call(cuda::record(fork, handle(capturing)))?;
    call(cuda::wait(handle(other), fork))?;
    Ok(fork)
}

fn a_capture_needs_no_order_for_equal_streams_and_complete_events() -> Done {
    make_current(0)?;
    let (a, b) = (stream()?, stream()?);
    let source = filled(SMALL, 1, b.stream())?;
    let event = Dependency::Event(LAYER.record(b.stream())?);
    LAYER.wait(&[&event])?;
    begin(a.stream())?;
    let on_a = Dependency::Stream(a.stream().clone());
    let waits = calls(c"cuStreamWaitEvent");
    LAYER.order(&[&on_a, &event], a.stream())?;
    assert_eq!(calls(c"cuStreamWaitEvent"), waits);
    assert_capturing(a.stream());
    let graph = call(cuda::end_capture(handle(a.stream())))?;
    call(cuda::destroy_graph(graph))?;
    drop((on_a, event, source, a, b));
    finish()
}

/// Before any driver call that could break the capture.
fn orders_across_captures_are_refused() -> Done {
    make_current(0)?;
    let (a, b, c) = (stream()?, stream()?, stream()?);
    let source = filled(SMALL, 1, b.stream())?;
    let pending = Dependency::Event(LAYER.record(b.stream())?);
    let on = |stream: &hurray_cuda::CudaStream| Dependency::Stream(stream.stream().clone());
    begin(a.stream())?;
    begin(c.stream())?;
    let (records, waits) = (calls(c"cuEventRecord"), calls(c"cuStreamWaitEvent"));
    let legacy = default_stream(Stream::LEGACY)?;
    for (dependency, stream) in [
        // What runs, into a capture; what is captured, out of it; from one capture into another.
        (&on(&b), a.stream()),
        (&pending, a.stream()),
        (&on(&a), b.stream()),
        (&on(&c), a.stream()),
    ] {
        let refused = LAYER.order(&[dependency], stream);
        let Err(DeviceError::Capturing { .. }) = &refused else {
            panic!("{dependency:?} on {stream:?}: {refused:?}");
        };
        let text = refused.expect_err("refused").to_string();
        assert!(
            text.contains(".synchronize()") && text.contains("stream="),
            "{text}"
        );
    }
    assert!(matches!(
        LAYER.wait(&[&on(&a)]),
        Err(DeviceError::Capturing { .. })
    ));
    let refused = LAYER.allocate(standard(SMALL), a.stream());
    assert!(matches!(refused, Err(DeviceError::Capturing { .. })));
    assert_eq!(
        (records, waits),
        (calls(c"cuEventRecord"), calls(c"cuStreamWaitEvent"))
    );
    // Non-blocking streams leave the legacy stream alone.
    LAYER.order(&[&pending], &legacy)?;
    for stream in [&a, &c] {
        assert_capturing(stream.stream());
        let graph = call(cuda::end_capture(handle(stream.stream())))?;
        call(cuda::destroy_graph(graph))?;
    }
    drop((source, pending, a, b, c));
    finish()
}

/// A consumer reads a foreign buffer in a capture and lets go there: the graph keeps it, as long as it can be launched.
fn what_a_graph_reads_lives_as_long_as_the_graph() -> Done {
    make_current(0)?;
    let a = stream()?;
    let target = filled(SMALL, 2, a.stream())?;
    let (outside, gone) = foreign(SMALL)?;
    call(cuda::fill(
        outside.address as u64,
        9,
        SMALL,
        handle(a.stream()),
    ))?;
    let pooled = filled(SMALL, 3, a.stream())?;
    call(cuda::synchronize_stream(handle(a.stream())))?;
    begin(a.stream())?;
    for buffer in [pooled, outside] {
        buffer.enter(a.stream())?;
        call(cuda::copy(
            target.address as u64,
            buffer.address as u64,
            SMALL,
            handle(a.stream()),
        ))?;
        buffer.leave(a.stream());
        drop(buffer);
    }
    assert_capturing(a.stream());
    let graph = call(cuda::end_capture(handle(a.stream())))?;
    let exec = call(cuda::instantiate(graph))?;
    call(cuda::destroy_graph(graph))?;
    hurray_cuda::flush();
    for _ in 0..2 {
        call(cuda::launch_graph(exec, handle(a.stream())))?;
        call(cuda::synchronize_stream(handle(a.stream())))?;
    }
    assert!(!is_gone(&gone));
    assert_eq!(
        call(cuda::download_now(target.address as u64, SMALL))?,
        [9; SMALL]
    );
    call(cuda::launch_graph(exec, handle(a.stream())))?;
    call(cuda::destroy_exec(exec))?;
    call(cuda::synchronize_stream(handle(a.stream())))?;
    until(&gone);
    drop((target, a));
    finish()
}

/// A graph lets go when the driver gets to it, and the reclaimer then.
fn until(gone: &std::sync::atomic::AtomicBool) {
    for _ in 0..1000 {
        hurray_cuda::flush();
        if is_gone(gone) {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("never released");
}

/// Handed out in the capture, back after it.
fn what_comes_back_after_the_capture_is_the_graphs_too() -> Done {
    make_current(0)?;
    let a = stream()?;
    let target = filled(SMALL, 2, a.stream())?;
    let (outside, gone) = foreign(SMALL)?;
    call(cuda::fill(
        outside.address as u64,
        9,
        SMALL,
        handle(a.stream()),
    ))?;
    call(cuda::synchronize_stream(handle(a.stream())))?;
    begin(a.stream())?;
    outside.enter(a.stream())?;
    call(cuda::copy(
        target.address as u64,
        outside.address as u64,
        SMALL,
        handle(a.stream()),
    ))?;
    let graph = call(cuda::end_capture(handle(a.stream())))?;
    outside.leave(a.stream());
    drop(outside);
    hurray_cuda::flush();
    assert!(!is_gone(&gone));
    replay(graph, a.stream())?;
    until(&gone);
    drop((target, a));
    finish()
}

/// Work that was queued before the capture began is in no graph.
fn what_was_read_before_the_capture_is_waited_for() -> Done {
    make_current(0)?;
    let a = stream()?;
    let target = filled(SMALL, 2, a.stream())?;
    let (outside, gone) = foreign(SMALL)?;
    outside.enter(a.stream())?;
    call(cuda::fill(
        outside.address as u64,
        9,
        SMALL,
        handle(a.stream()),
    ))?;
    call(cuda::copy(
        target.address as u64,
        outside.address as u64,
        SMALL,
        handle(a.stream()),
    ))?;
    begin(a.stream())?;
    outside.leave(a.stream());
    drop(outside);
    assert_capturing(a.stream());
    let graph = call(cuda::end_capture(handle(a.stream())))?;
    call(cuda::destroy_graph(graph))?;
    until(&gone);
    drop((target, a));
    finish()
}

/// A capture that the user breaks gives no graph: what was let go in it is released once it is ended.
fn a_broken_capture_holds_nothing_for_good() -> Done {
    make_current(0)?;
    let a = stream()?;
    let (outside, gone) = foreign(SMALL)?;
    outside.enter(a.stream())?;
    call(cuda::fill(
        outside.address as u64,
        9,
        SMALL,
        handle(a.stream()),
    ))?;
    begin(a.stream())?;
    // Not allowed in a capture, which it breaks.
    assert!(cuda::synchronize_stream(handle(a.stream())).is_err());
    outside.leave(a.stream());
    drop(outside);
    assert!(cuda::end_capture(handle(a.stream())).is_err());
    until(&gone);
    drop(a);
    finish()
}
