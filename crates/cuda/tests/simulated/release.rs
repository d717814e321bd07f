//! Release: nothing is freed before the device is done with it, and nobody waits for that.

use std::ffi::c_void;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use hurray_core::{CopyRequest, DeviceLayer, MemoryClass};
use hurray_cuda::LAYER;
use hurray_cuda_programs::cuda;
use libtest_mimic::Trial;

use crate::harness::{Done, Scenario, assert_clean, child, clean, reports, sweep};
use crate::scene::{
    Buffer, SMALL, call, consume, filled, finish, foreign, hand_out, handle, host_waits, is_gone,
    live, make_current, standard, stream, token,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    (
        "pool_memory_is_freed_after_its_readers",
        pool_memory_is_freed_after_its_readers,
    ),
    (
        "pool_memory_that_nobody_read_is_freed_on_its_stream",
        pool_memory_that_nobody_read_is_freed_on_its_stream,
    ),
    (
        "a_reader_that_never_comes_back_is_waited_for",
        a_reader_that_never_comes_back_is_waited_for,
    ),
    (
        "a_foreign_owner_is_released_after_its_readers",
        a_foreign_owner_is_released_after_its_readers,
    ),
    (
        "an_owner_without_streams_is_released_at_once",
        an_owner_without_streams_is_released_at_once,
    ),
    (
        "host_memory_waits_for_our_copies",
        host_memory_waits_for_our_copies,
    ),
    (
        "a_stream_that_came_back_holds_one_event",
        a_stream_that_came_back_holds_one_event,
    ),
    (
        "no_free_waits_behind_another_consumers",
        no_free_waits_behind_another_consumers,
    ),
    (
        "a_writer_waits_for_the_readers",
        a_writer_waits_for_the_readers,
    ),
    (
        "a_release_in_a_host_function_is_left_to_the_reclaimer",
        a_release_in_a_host_function_is_left_to_the_reclaimer,
    ),
    (
        "memory_outside_the_pool_is_freed_by_the_reclaimer",
        memory_outside_the_pool_is_freed_by_the_reclaimer,
    ),
    (
        "a_stream_lives_until_its_readers_are_released",
        a_stream_lives_until_its_readers_are_released,
    ),
    ("exit_with_releases_pending", exit_with_releases_pending),
    (
        "an_owner_that_nobody_can_tell_of_is_kept",
        an_owner_that_nobody_can_tell_of_is_kept,
    ),
    (
        "a_panic_of_an_owner_ends_nothing",
        a_panic_of_an_owner_ends_nothing,
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("pool_memory_is_freed_after_its_readers"),
        sweep("pool_memory_is_freed_after_its_readers", &[]),
        clean("pool_memory_that_nobody_read_is_freed_on_its_stream"),
        sweep("pool_memory_that_nobody_read_is_freed_on_its_stream", &[]),
        clean("a_reader_that_never_comes_back_is_waited_for"),
        sweep("a_reader_that_never_comes_back_is_waited_for", &[]),
        clean("a_foreign_owner_is_released_after_its_readers"),
        sweep("a_foreign_owner_is_released_after_its_readers", &[]),
        clean("an_owner_without_streams_is_released_at_once"),
        clean("host_memory_waits_for_our_copies"),
        sweep("host_memory_waits_for_our_copies", &[]),
        clean("a_stream_that_came_back_holds_one_event"),
        clean("no_free_waits_behind_another_consumers"),
        sweep("no_free_waits_behind_another_consumers", &[]),
        Trial::test(
            "each_set_of_readers_has_its_lane",
            each_set_of_readers_has_its_lane,
        ),
        clean("a_writer_waits_for_the_readers"),
        // The release waits for the readers too: that the writer has waited for them is not noted.
        sweep(
            "a_writer_waits_for_the_readers",
            &[("cuStreamWaitEvent", 6), ("cuStreamWaitEvent", 7)],
        ),
        Trial::test(
            "a_release_in_a_host_function_is_left_to_the_reclaimer",
            released_in_a_host_function,
        ),
        clean("memory_outside_the_pool_is_freed_by_the_reclaimer"),
        // The record when the writer is done: that the reader has waited for it is not noted.
        sweep(
            "memory_outside_the_pool_is_freed_by_the_reclaimer",
            &[("cuEventRecord", 1), ("cuEventRecord", 4)],
        ),
        clean("a_stream_lives_until_its_readers_are_released"),
        Trial::test("exit_with_releases_pending", exits_with_status_0),
        Trial::test(
            "failed_records_and_waits_release_late_or_never",
            failed_records_and_waits,
        ),
        clean("a_panic_of_an_owner_ends_nothing"),
    ]
}

/// On a stream that waits for them, without a host wait.
fn pool_memory_is_freed_after_its_readers() -> Done {
    make_current(0)?;
    let (writer, a, b) = (stream()?, stream()?, stream()?);
    let buffer = filled(SMALL, 1, writer.stream())?;
    for reader in [&a, &b] {
        hand_out(&[&buffer], reader.stream())?;
        drop(consume(&buffer, reader.stream())?);
        buffer.leave(reader.stream());
    }
    drop(buffer);
    assert_eq!(host_waits(), 0);
    // The pool gives the block out again.
    drop(filled(SMALL, 2, writer.stream())?);
    drop((writer, a, b));
    finish()
}

fn pool_memory_that_nobody_read_is_freed_on_its_stream() -> Done {
    make_current(0)?;
    let writer = stream()?;
    drop(filled(SMALL, 1, writer.stream())?);
    assert_eq!(crate::scene::calls(c"cuEventRecord"), 0);
    drop(writer);
    finish()
}

/// Exports that never come back: an array interface. The stream gets an event when the last reference goes.
fn a_reader_that_never_comes_back_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let pooled = filled(SMALL, 1, writer.stream())?;
    let (mut outside, gone) = foreign(SMALL)?;
    call(cuda::fill(
        outside.address as u64,
        2,
        SMALL,
        handle(writer.stream()),
    ))?;
    outside.dependency = pooled.dependency.clone();
    hand_out(&[&pooled, &outside], reader.stream())?;
    drop(consume(&pooled, reader.stream())?);
    drop(consume(&outside, reader.stream())?);
    drop((pooled, outside));
    assert_eq!(host_waits(), 0);
    hurray_cuda::flush();
    assert!(is_gone(&gone));
    drop((writer, reader));
    finish()
}

/// Held by the reclaimer until its readers are done.
fn a_foreign_owner_is_released_after_its_readers() -> Done {
    make_current(0)?;
    let (writer, a, b) = (stream()?, stream()?, stream()?);
    let (mut buffer, gone) = foreign(SMALL)?;
    call(cuda::fill(
        buffer.address as u64,
        2,
        SMALL,
        handle(writer.stream()),
    ))?;
    buffer.dependency = Some(hurray_core::Dependency::Stream(writer.stream().clone()));
    for reader in [&a, &b] {
        hand_out(&[&buffer], reader.stream())?;
        drop(consume(&buffer, reader.stream())?);
        buffer.leave(reader.stream());
    }
    drop(buffer);
    assert_eq!(host_waits(), 0);
    hurray_cuda::flush();
    assert!(is_gone(&gone));
    drop((writer, a, b));
    finish()
}

/// `stream=-1`, a relay and a raw address name no stream: letting go says that the work is done.
fn an_owner_without_streams_is_released_at_once() -> Done {
    let (owner, gone) = token()?;
    drop(owner);
    assert!(is_gone(&gone));
    finish()
}

/// Host memory that a copy of ours reads waits for that copy.
fn host_memory_waits_for_our_copies() -> Done {
    make_current(0)?;
    let (a, b) = (stream()?, stream()?);
    let request = hurray_core::AllocationRequest {
        memory_class: MemoryClass::HostPinned,
        ..standard(SMALL)
    };
    let host = Buffer::from(LAYER.allocate(request, a.stream())?);
    let bytes = std::ptr::with_exposed_provenance_mut::<u8>(host.address);
    // SAFETY: pinned memory of that length, which nobody else uses yet.
    unsafe { bytes.write_bytes(5, SMALL) };
    let mut targets = Vec::new();
    for stream in [&a, &b] {
        let target = Buffer::from(LAYER.allocate(standard(SMALL), stream.stream())?);
        host.enter(stream.stream())?;
        let copy = CopyRequest::contiguous((host.address, None), (target.address, Some(0)), SMALL);
        // SAFETY: both are as they say, and ordered on the stream.
        unsafe { LAYER.copy(&[copy], stream.stream()) }?;
        targets.push(target);
    }
    drop(host);
    assert_eq!(host_waits(), 0);
    hurray_cuda::flush();
    drop((targets, a, b));
    finish()
}

/// A weight that is exported ten thousand times on one stream holds one event.
fn a_stream_that_came_back_holds_one_event() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let weight = filled(SMALL, 1, writer.stream())?;
    hand_out(&[&weight], reader.stream())?;
    weight.leave(reader.stream());
    for _ in 0..10_000 {
        weight.enter(reader.stream())?;
        weight.leave(reader.stream());
    }
    // And the pool one more, to record while that one is held.
    assert!(live(c"event") <= 2, "{}", live(c"event"));
    drop((weight, writer, reader));
    finish()
}

fn no_free_waits_behind_another_consumers() -> Done {
    make_current(0)?;
    let (writer, fast, slow) = (stream()?, stream()?, stream()?);
    let kernels = call(cuda::load_kernels())?;
    let delay = call(cuda::function(kernels, c"hurray_sim_delay"))?;
    for reader in [&slow, &fast, &slow, &fast] {
        let buffer = filled(SMALL, 1, writer.stream())?;
        hand_out(&[&buffer], reader.stream())?;
        if std::ptr::eq(reader, &slow) {
            call(cuda::delay(delay, 1000, handle(reader.stream())))?;
        }
        drop(consume(&buffer, reader.stream())?);
        buffer.leave(reader.stream());
        drop(buffer);
    }
    drop((writer, fast, slow));
    call(cuda::unload(kernels))?;
    finish()
}

/// Two consumers, two lanes; the second free of each goes on its own.
fn each_set_of_readers_has_its_lane() -> Result<(), libtest_mimic::Failed> {
    let outcome = child("no_free_waits_behind_another_consumers")
        .logged()
        .run();
    assert_clean(&outcome);
    let stream = |arguments: &str| {
        let streams = arguments
            .split(' ')
            .filter(|argument| argument.contains("tream"));
        streams.map(str::to_owned).next_back().expect("a stream")
    };
    // The frees of what was read, in order; those of the copies are on the consumers' streams.
    let program = outcome.log.iter().filter(|call| call.who == "program");
    let frees: Vec<String> = program
        .filter(|call| call.function == "cuMemFreeAsync")
        .map(|call| stream(&call.arguments))
        .collect();
    let [_, slow, _, fast, _, slow_again, _, fast_again] = frees.as_slice() else {
        panic!("{frees:?}");
    };
    assert_eq!((slow, fast), (slow_again, fast_again));
    assert_ne!(slow, fast);
    Ok(())
}

/// `order_after_readers`: before bytes are overwritten in place.
fn a_writer_waits_for_the_readers() -> Done {
    make_current(0)?;
    let (writer, a, b) = (stream()?, stream()?, stream()?);
    let buffer = filled(SMALL, 1, writer.stream())?;
    let mut copies = Vec::new();
    for reader in [&a, &b] {
        hand_out(&[&buffer], reader.stream())?;
        copies.push(consume(&buffer, reader.stream())?);
        buffer.leave(reader.stream());
    }
    buffer.order_after_readers(writer.stream())?;
    call(cuda::fill(
        buffer.address as u64,
        2,
        SMALL,
        handle(writer.stream()),
    ))?;
    buffer.enter(writer.stream())?;
    buffer.leave(writer.stream());
    drop((buffer, copies));
    drop((writer, a, b));
    finish()
}

/// What a deleter is called with that runs in a host function.
static LET_GO: Mutex<Option<Buffer>> = Mutex::new(None);

unsafe extern "C" fn deleter(_: *mut c_void) {
    drop(LET_GO.lock().expect("locked").take());
}

/// A driver call that is not permitted where it is made is left to the reclaimer, which records later.
fn a_release_in_a_host_function_is_left_to_the_reclaimer() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let (mut outside, gone) = foreign(SMALL)?;
    call(cuda::fill(
        outside.address as u64,
        2,
        SMALL,
        handle(writer.stream()),
    ))?;
    outside.dependency = Some(hurray_core::Dependency::Stream(writer.stream().clone()));
    for (buffer, is_foreign) in [(filled(SMALL, 1, writer.stream())?, false), (outside, true)] {
        hand_out(&[&buffer], reader.stream())?;
        drop(consume(&buffer, reader.stream())?);
        *LET_GO.lock().expect("locked") = Some(buffer);
        call(cuda::launch_host(
            handle(reader.stream()),
            Some(deleter),
            std::ptr::null_mut(),
        ))?;
        call(cuda::synchronize_stream(handle(reader.stream())))?;
        assert!(
            LET_GO.lock().expect("locked").is_none(),
            "the host function ran"
        );
        hurray_cuda::flush();
        assert_eq!(is_gone(&gone), is_foreign);
    }
    assert_eq!(hurray_cuda::kept(), 0);
    drop((writer, reader));
    finish()
}

/// The first call tells that none is permitted, and no other is tried.
fn released_in_a_host_function() -> Result<(), libtest_mimic::Failed> {
    let outcome = child("a_release_in_a_host_function_is_left_to_the_reclaimer").run();
    assert!(outcome.succeeded(), "{outcome:#?}");
    let reports = reports(&outcome);
    let is_the_first = |report: &&hurray_cuda_programs::Report| {
        report.kind == "host-function-call" && report.text.starts_with("cuCtxGetCurrent ")
    };
    assert!(
        reports.len() == 2 && reports.iter().all(is_the_first),
        "{reports:#?}"
    );
    Ok(())
}

/// `cuMemFree` blocks, so that the thread that lets go does not call it.
fn memory_outside_the_pool_is_freed_by_the_reclaimer() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    for memory_class in [MemoryClass::Standard, MemoryClass::Unified] {
        let request = hurray_core::AllocationRequest {
            shareable: true,
            memory_class,
            ..standard(SMALL)
        };
        let mut buffer = Buffer::from(LAYER.allocate(request, writer.stream())?);
        buffer.enter(writer.stream())?;
        call(cuda::fill(
            buffer.address as u64,
            2,
            SMALL,
            handle(writer.stream()),
        ))?;
        buffer.leave(writer.stream());
        buffer.dependency = Some(hurray_core::Dependency::Stream(writer.stream().clone()));
        hand_out(&[&buffer], reader.stream())?;
        drop(consume(&buffer, reader.stream())?);
        buffer.leave(reader.stream());
        let free = crate::scene::calls(c"cuMemFree_v2");
        drop(buffer);
        assert_eq!(crate::scene::calls(c"cuMemFree_v2"), free);
    }
    assert_eq!(host_waits(), 0);
    drop((writer, reader));
    finish()
}

/// Streams are kept alive while in use: the last record needs them.
fn a_stream_lives_until_its_readers_are_released() -> Done {
    make_current(0)?;
    let writer = stream()?;
    let buffer = filled(SMALL, 1, writer.stream())?;
    let reader = stream()?;
    hand_out(&[&buffer], reader.stream())?;
    drop(consume(&buffer, reader.stream())?);
    assert_eq!(live(c"stream"), 2);
    reader.close();
    drop(reader);
    assert_eq!(live(c"stream"), 2);
    drop((buffer, writer));
    finish()?;
    assert_eq!(live(c"stream"), 0);
    Ok(())
}

fn exit_with_releases_pending() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    for _ in 0..16 {
        let (buffer, _) = foreign(SMALL)?;
        buffer.enter(reader.stream())?;
        call(cuda::fill(
            buffer.address as u64,
            2,
            SMALL,
            handle(reader.stream()),
        ))?;
        let pooled = filled(SMALL, 1, writer.stream())?;
        hand_out(&[&pooled], reader.stream())?;
        drop(buffer);
    }
    Ok(())
}

/// With status 0, and nothing freed early; what is pending is not freed at all.
fn exits_with_status_0() -> Result<(), libtest_mimic::Failed> {
    for seed in 0..8 {
        let outcome = child("exit_with_releases_pending").seed(seed).run();
        assert!(outcome.succeeded(), "{outcome:?}");
        let defects: Vec<_> = reports(&outcome)
            .into_iter()
            .filter(|report| !report.kind.starts_with("leak"))
            .collect();
        assert!(defects.is_empty(), "{defects:?}");
    }
    Ok(())
}

fn an_owner_that_nobody_can_tell_of_is_kept() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let (mut buffer, gone) = foreign(SMALL)?;
    call(cuda::fill(
        buffer.address as u64,
        2,
        SMALL,
        handle(writer.stream()),
    ))?;
    buffer.dependency = Some(hurray_core::Dependency::Stream(writer.stream().clone()));
    hand_out(&[&buffer], reader.stream())?;
    drop(consume(&buffer, reader.stream())?);
    drop(buffer);
    hurray_cuda::flush();
    println!("gone {} kept {}", is_gone(&gone), hurray_cuda::kept());
    Ok(())
}

/// A record that fails is left to the reclaimer; if its record fails too it waits for the stream; if that fails, the owner is kept and counted; a lost
/// context is as good as done.
fn failed_records_and_waits() -> Result<(), libtest_mimic::Failed> {
    const UNKNOWN: u32 = 999;
    let run = |faults: &[(&str, &str, u32)]| {
        let mut run = child("an_owner_that_nobody_can_tell_of_is_kept");
        for (function, nth, code) in faults {
            run = run.fail(function, nth, *code);
        }
        let outcome = run.run();
        assert!(
            outcome.succeeded() && crate::harness::defects(&outcome).is_empty(),
            "{faults:?}: {outcome:#?}"
        );
        outcome.stdout.trim().to_owned()
    };
    let released = "gone true kept 0";
    assert_eq!(run(&[]), released);
    // The first record orders, the second one is the release's.
    assert_eq!(run(&[("cuEventRecord", "2", UNKNOWN)]), released);
    assert_eq!(run(&[("cuEventRecord", "2+", UNKNOWN)]), released);
    assert_eq!(run(&[("cuEventSynchronize", "1+", UNKNOWN)]), released);
    assert_eq!(
        run(&[
            ("cuEventSynchronize", "1+", UNKNOWN),
            ("cuEventQuery", "1+", UNKNOWN)
        ]),
        released
    );
    assert_eq!(
        run(&[
            ("cuEventRecord", "2+", UNKNOWN),
            ("cuStreamSynchronize", "1+", UNKNOWN)
        ]),
        "gone false kept 1"
    );
    assert_eq!(
        run(&[
            ("cuEventSynchronize", "1+", UNKNOWN),
            ("cuEventQuery", "1+", UNKNOWN),
            ("cuStreamSynchronize", "1+", UNKNOWN)
        ]),
        "gone false kept 1"
    );
    Ok(())
}

/// A foreign owner may panic; the reclaimer goes on.
fn a_panic_of_an_owner_ends_nothing() -> Done {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as planned");
        }
    }
    make_current(0)?;
    let reader = stream()?;
    let owner = LAYER.own(Box::new(Panics))?;
    LAYER.enter(&[&*owner], reader.stream())?;
    drop(owner);
    let (owner, gone) = token()?;
    owner.enter(reader.stream())?;
    drop(owner);
    hurray_cuda::flush();
    assert!(is_gone(&gone));
    thread::sleep(Duration::ZERO);
    drop(reader);
    finish()
}
