//! Faults: an error value, and nothing handed out.

use std::process::Command;

use hurray_core::{Dependency, DeviceError, DeviceLayer, Stream};
use hurray_cuda::{CudaEvent, CudaStream, LAYER};
use hurray_cuda_programs::cuda;
use libtest_mimic::Trial;

use crate::harness::{Done, Scenario, assert_clean, child, clean, clean_on, reports};
use crate::scene::{
    SMALL, call, calls, default_stream, filled, finish, hand_out, make_current, stream, token,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    (
        "an_order_that_fails_hands_nothing_out",
        an_order_that_fails_hands_nothing_out,
    ),
    (
        "closed_and_unrecorded_are_refused_before_the_driver",
        closed_and_unrecorded_are_refused_before_the_driver,
    ),
    (
        "a_stream_of_another_device_is_refused",
        a_stream_of_another_device_is_refused,
    ),
    (
        "a_fork_before_the_driver_starts_is_free",
        a_fork_before_the_driver_starts_is_free,
    ),
    (
        "a_forked_child_raises_and_leaks",
        a_forked_child_raises_and_leaks,
    ),
    (
        "a_lost_context_counts_as_complete",
        a_lost_context_counts_as_complete,
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        Trial::test(
            "a_failed_record_or_wait_names_error_and_operation",
            failed_orders,
        ),
        clean("closed_and_unrecorded_are_refused_before_the_driver"),
        clean_on("a_stream_of_another_device_is_refused", |run| {
            run.devices(2)
        }),
        clean("a_fork_before_the_driver_starts_is_free"),
        clean("a_forked_child_raises_and_leaks"),
        Trial::test("a_lost_context_counts_as_complete", a_lost_context),
    ]
}

fn an_order_that_fails_hands_nothing_out() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let buffer = filled(SMALL, 1, writer.stream())?;
    match hand_out(&[&buffer], reader.stream()) {
        Err(error @ DeviceError::Driver { .. }) => println!("{error}"),
        other => panic!("{other:?}"),
    }
    drop((buffer, writer, reader));
    finish()
}

fn failed_orders() -> Result<(), libtest_mimic::Failed> {
    for function in [
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuStreamGetCaptureInfo_v3",
    ] {
        // The allocation asks for captures first.
        let nth = if function == "cuStreamGetCaptureInfo_v3" {
            2
        } else {
            1
        };
        for (code, name) in [
            (2, "CUDA_ERROR_OUT_OF_MEMORY"),
            (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
        ] {
            let outcome = child("an_order_that_fails_hands_nothing_out")
                .fail(function, nth, code)
                .run();
            assert_clean(&outcome);
            assert_eq!(outcome.stdout.trim(), format!("{function} failed: {name}"));
        }
    }
    Ok(())
}

/// Our own stream or event.
fn closed_and_unrecorded_are_refused_before_the_driver() -> Done {
    make_current(0)?;
    let (open, closed) = (stream()?, stream()?);
    closed.close();
    let closed_event = CudaEvent::new(0)?;
    closed_event.record(open.stream())?;
    closed_event.close();
    let unrecorded = CudaEvent::new(0)?;
    let (owner, _gone) = token()?;
    let before = (
        calls(c"cuEventRecord"),
        calls(c"cuStreamWaitEvent"),
        calls(c"cuStreamGetCaptureInfo_v3"),
    );
    let on = |stream: &CudaStream| Dependency::Stream(stream.stream().clone());
    let closed_stream = Err(DeviceError::Closed { object: "stream" });
    let is_closed = |answer: Result<(), DeviceError>| assert_eq!(answer, closed_stream);
    is_closed(LAYER.order(&[&on(&open)], closed.stream()).map(|_| ()));
    is_closed(LAYER.order(&[&on(&closed)], open.stream()).map(|_| ()));
    is_closed(LAYER.wait(&[&on(&closed)]));
    is_closed(LAYER.record(closed.stream()).map(|_| ()));
    is_closed(
        LAYER
            .allocate(crate::scene::standard(SMALL), closed.stream())
            .map(|_| ()),
    );
    is_closed(owner.enter(closed.stream()));
    is_closed(owner.order_after_readers(closed.stream()));
    is_closed(unrecorded.record(closed.stream()));
    // SAFETY: nothing is copied.
    is_closed(unsafe { LAYER.copy(&[], closed.stream()) });
    let closed_event_error = Err(DeviceError::Closed { object: "event" });
    let event = Dependency::Event(closed_event.event());
    assert_eq!(
        LAYER.order(&[&event], open.stream()).map(|_| ()),
        closed_event_error
    );
    assert_eq!(LAYER.wait(&[&event]), closed_event_error);
    assert_eq!(closed_event.record(open.stream()), closed_event_error);
    let event = Dependency::Event(unrecorded.event());
    assert_eq!(
        LAYER.order(&[&event], open.stream()).map(|_| ()),
        Err(DeviceError::NotRecorded)
    );
    assert_eq!(LAYER.wait(&[&event]), Err(DeviceError::NotRecorded));
    assert_eq!(
        before,
        (
            calls(c"cuEventRecord"),
            calls(c"cuStreamWaitEvent"),
            calls(c"cuStreamGetCaptureInfo_v3")
        )
    );
    drop((event, open, closed, closed_event, unrecorded, owner));
    finish()
}

/// Naming both; a number that is another device's, too; and E13, an event recorded on another device's stream.
fn a_stream_of_another_device_is_refused() -> Done {
    let (zero, one) = (stream()?, CudaStream::new(1)?);
    let refused = one.stream().require_device(0).expect_err("refused");
    assert_eq!(
        refused,
        DeviceError::OtherDevice {
            bytes: 0,
            stream: 1
        }
    );
    let text = refused.to_string();
    assert!(
        text.contains("device 0") && text.contains("device 1"),
        "{text}"
    );
    // SAFETY: the stream lives as long as `one`.
    let named = unsafe { LAYER.stream(0, one.stream().number(), None) };
    assert_eq!(named.map(|_| ()), Err(refused.clone()));
    // SAFETY: as above.
    assert!(unsafe { LAYER.stream(1, one.stream().number(), None) }.is_ok());
    let event = CudaEvent::new(0)?;
    assert_eq!(event.record(one.stream()), Err(refused.clone()));
    let request = crate::scene::standard(SMALL);
    assert_eq!(
        LAYER.allocate(request, one.stream()).map(|_| ()),
        Err(refused)
    );
    drop((zero, one, event));
    finish()
}

fn fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only runs `child` and leaves without running exit handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let is_well =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = -1;
    // SAFETY: the child is this process's.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status == 0
}

/// Nothing calls `cuInit` before a device is asked for: naming the layer does not.
fn a_fork_before_the_driver_starts_is_free() -> Done {
    assert_eq!(LAYER.device(), hurray_core::DeviceTag::Cuda);
    hurray_cuda::flush();
    assert_eq!(hurray_cuda::kept(), 0);
    assert!(fork(|| LAYER.device_count() == Ok(1)));
    assert_eq!(LAYER.device_count(), Ok(1));
    Ok(())
}

/// In the child device paths raise and drops of device owners leak, both before any lock; the parent goes on.
fn a_forked_child_raises_and_leaks() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let buffer = filled(SMALL, 1, writer.stream())?;
    hand_out(&[&buffer], reader.stream())?;
    let event = LAYER.record(writer.stream())?;
    let user_event = CudaEvent::new(0)?;
    let (owner, gone) = token()?;
    owner.enter(reader.stream())?;
    let mut given = Some((buffer, event, user_event, owner, writer, reader));
    let is_well = fork(|| {
        let Some((buffer, event, user_event, owner, writer, reader)) = given.take() else {
            return false;
        };
        let forked = Err(DeviceError::Forked);
        let dependency = Dependency::Event(event.clone());
        let raised = LAYER.device_count().map(|_| ()) == forked
            && LAYER.order(&[&dependency], reader.stream()).map(|_| ()) == forked
            && LAYER.wait(&[&dependency]) == forked
            && LAYER.record(writer.stream()).map(|_| ()) == forked
            && LAYER.own(Box::new(())).map(|_| ()) == forked
            && LAYER.pointer_facts(4096).map(|_| ()) == forked
            && CudaStream::new(0).map(|_| ()) == forked
            && owner.enter(reader.stream()) == forked;
        owner.leave(reader.stream());
        drop((dependency, buffer, event, user_event, owner, writer, reader));
        hurray_cuda::flush();
        hurray_cuda::empty_cache();
        raised && !crate::scene::is_gone(&gone)
    });
    assert!(is_well);
    drop(given);
    finish()?;
    assert!(crate::scene::is_gone(&gone));
    // A process that is started anew is nobody's child in this sense.
    assert!(Command::new("true").status()?.success());
    Ok(())
}

/// A kernel faults; what it read is released, since nothing runs any more.
fn a_lost_context_counts_as_complete() -> Done {
    make_current(0)?;
    let reader = stream()?;
    let (owner, gone) = token()?;
    owner.enter(reader.stream())?;
    let kernels = call(cuda::load_kernels())?;
    let add = call(cuda::function(kernels, c"hurray_sim_add"))?;
    let nowhere = 64;
    call(cuda::add(
        add,
        nowhere,
        nowhere,
        SMALL,
        1,
        crate::scene::handle(reader.stream()),
    ))?;
    drop(owner);
    hurray_cuda::flush();
    assert!(crate::scene::is_gone(&gone));
    assert_eq!(hurray_cuda::kept(), 0);
    let refused = LAYER.record(&default_stream(Stream::LEGACY)?);
    assert!(
        matches!(refused, Err(DeviceError::Driver { .. })),
        "{refused:?}"
    );
    Ok(())
}

fn a_lost_context() -> Result<(), libtest_mimic::Failed> {
    let outcome = child("a_lost_context_counts_as_complete").run();
    assert!(outcome.succeeded(), "{outcome:#?}");
    // The kernel's own fault is what is reported, and what the context held.
    let others: Vec<_> = reports(&outcome)
        .into_iter()
        .filter(|report| !report.kind.starts_with("leak") && report.kind != "unknown-address")
        .collect();
    assert!(others.is_empty(), "{others:?}");
    Ok(())
}
