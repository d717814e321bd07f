//! Lists between libraries: the C program's, and ours in its hands.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hurray_core::memory::AlignedBytes;
use hurray_core::{PointerError, Stream, SyncMode};
use hurray_cuda::CudaStream;
use hurray_cuda_programs::cuda;
use hurray_ffi::abi::*;
use hurray_ffi::{
    Buffer, BufferError, ConsumeError, Item, Readiness, Tensor, TensorError, consume,
};
use libtest_mimic::Trial;

use crate::c_program::{self, How, List, Producer, last_error, ordered_releases};
use crate::device::{call, calls, finish, handle, host_waits, make_current, stream};
use crate::harness::{Done, Scenario, assert_clean, assert_handled, child, clean, clean_on, sweep};
use crate::producer;
use crate::scene::{
    Made, foreign, group, orders_of, plain, pooled, quantized, read_all, write_all,
};
use crate::tensors::{self, SIZES, cuda_row};

const EVENT: SyncMode = SyncMode::Event;
const STREAM: SyncMode = SyncMode::ConsumerStream;
const READY: SyncMode = SyncMode::ProducerSynced;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("we_read_a_c_list_of_events", || {
        we_read_a_c_list(Producer::Table, [EVENT; 3])
    }),
    ("we_read_a_c_list_of_a_stream", || {
        we_read_a_c_list(Producer::Table, [STREAM; 3])
    }),
    ("we_read_a_c_list_of_three_modes", || {
        we_read_a_c_list(Producer::Table, [EVENT, STREAM, READY])
    }),
    ("we_read_callback_buffers", || {
        we_read_a_c_list(Producer::Callback, [EVENT, STREAM, EVENT])
    }),
    ("we_read_ordered_callback_buffers", || {
        we_read_a_c_list(Producer::Ordered, [EVENT, STREAM, EVENT])
    }),
    ("a_c_program_reads_our_events", || {
        a_c_program_reads([EVENT; 3])
    }),
    ("a_c_program_reads_our_stream", || {
        a_c_program_reads([STREAM; 3])
    }),
    ("a_c_program_reads_our_three_modes", || {
        a_c_program_reads([EVENT, STREAM, READY])
    }),
    ("a_c_list_is_relayed_to_a_c_program", || {
        a_c_list_is_relayed(Producer::Table)
    }),
    ("callback_buffers_are_relayed_to_a_c_program", || {
        a_c_list_is_relayed(Producer::Callback)
    }),
    (
        "ordered_callback_buffers_are_relayed_to_a_c_program",
        || a_c_list_is_relayed(Producer::Ordered),
    ),
    ("a_c_list_has_two_readers", a_c_list_has_two_readers),
    (
        "buffers_go_back_in_every_order",
        buffers_go_back_in_every_order,
    ),
    (
        "events_go_back_before_their_bytes",
        events_go_back_before_their_bytes,
    ),
    (
        "a_producers_stream_outlives_what_depends_on_it",
        a_producers_stream_outlives_what_depends_on_it,
    ),
    (
        "a_producers_per_thread_stream_is_waited_for",
        a_producers_per_thread_stream_is_waited_for,
    ),
    (
        "an_export_on_a_stream_is_released_on_another",
        an_export_on_a_stream_is_released_on_another,
    ),
    (
        "unread_pool_memory_is_released_on_another_stream",
        unread_pool_memory_is_released_on_another_stream,
    ),
    ("bad_arguments_change_nothing", bad_arguments_change_nothing),
    (
        "streams_of_another_device_are_refused",
        streams_of_another_device_are_refused,
    ),
    (
        "buffers_go_back_at_the_same_time",
        buffers_go_back_at_the_same_time,
    ),
    (
        "a_list_that_lies_about_its_memory_is_refused",
        a_list_that_lies_about_its_memory_is_refused,
    ),
    (
        "a_producer_that_knows_no_stream_is_waited_for",
        a_producer_that_knows_no_stream_is_waited_for,
    ),
    (
        "a_driver_error_leaves_the_buffer_held",
        a_driver_error_leaves_the_buffer_held,
    ),
    (
        "a_forked_child_lets_nothing_go",
        a_forked_child_lets_nothing_go,
    ),
    ("chains_of_8_tensors", chains_of_8_tensors),
    (
        "without_a_device_nothing_waits",
        without_a_device_nothing_waits,
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("we_read_a_c_list_of_events"),
        sweep("we_read_a_c_list_of_events", &[]),
        clean("we_read_a_c_list_of_a_stream"),
        sweep("we_read_a_c_list_of_a_stream", &[]),
        clean("we_read_a_c_list_of_three_modes"),
        clean("we_read_callback_buffers"),
        sweep("we_read_callback_buffers", &[]),
        clean("we_read_ordered_callback_buffers"),
        // One event of the pool serves the three callbacks, recorded anew each time, and nothing was queued in between.
        sweep(
            "we_read_ordered_callback_buffers",
            &[("cuEventRecord", 5), ("cuEventRecord", 6)],
        ),
        clean("a_c_program_reads_our_events"),
        sweep("a_c_program_reads_our_events", &[]),
        clean("a_c_program_reads_our_stream"),
        sweep("a_c_program_reads_our_stream", &[]),
        clean("a_c_program_reads_our_three_modes"),
        sweep("a_c_program_reads_our_three_modes", &[]),
        clean("a_c_list_is_relayed_to_a_c_program"),
        sweep("a_c_list_is_relayed_to_a_c_program", &[]),
        clean("callback_buffers_are_relayed_to_a_c_program"),
        // Let go one by one, with nothing queued in between: the reclaimer has waited for the first event by the time it sees the others.
        sweep(
            "callback_buffers_are_relayed_to_a_c_program",
            &[("cuEventRecord", 5), ("cuEventRecord", 6)],
        ),
        clean("ordered_callback_buffers_are_relayed_to_a_c_program"),
        // As for those that we read.
        sweep(
            "ordered_callback_buffers_are_relayed_to_a_c_program",
            &[
                ("cuEventRecord", 5),
                ("cuEventRecord", 6),
                ("cuEventRecord", 11),
                ("cuEventRecord", 12),
            ],
        ),
        clean("a_c_list_has_two_readers"),
        sweep("a_c_list_has_two_readers", &[]),
        clean("buffers_go_back_in_every_order"),
        clean("events_go_back_before_their_bytes"),
        clean("a_producers_stream_outlives_what_depends_on_it"),
        clean("a_producers_per_thread_stream_is_waited_for"),
        clean("an_export_on_a_stream_is_released_on_another"),
        // The C program waits for each of three buffers of one stream; and the release follows the first reader too, for whom the second has waited.
        sweep(
            "an_export_on_a_stream_is_released_on_another",
            &[
                ("cuStreamWaitEvent", 5),
                ("cuStreamWaitEvent", 6),
                ("cuStreamWaitEvent", 7),
                ("cuEventRecord", 5),
                ("cuEventRecord", 6),
                ("cuEventRecord", 7),
            ],
        ),
        clean("unread_pool_memory_is_released_on_another_stream"),
        sweep("unread_pool_memory_is_released_on_another_stream", &[]),
        clean("bad_arguments_change_nothing"),
        clean_on("streams_of_another_device_are_refused", |run| {
            run.devices(2)
        }),
        clean("buffers_go_back_at_the_same_time"),
        clean("a_list_that_lies_about_its_memory_is_refused"),
        clean("a_producer_that_knows_no_stream_is_waited_for"),
        Trial::test("a_driver_error_leaves_the_buffer_held", || {
            let [record, wait] = ["cuEventRecord", "cuStreamWaitEvent"];
            for (function, n) in [(record, 1), (record, 2), (wait, 1), (wait, 2)] {
                let child = child("a_driver_error_leaves_the_buffer_held");
                assert_clean(&child.fail(function, n, 999).run());
            }
            Ok(())
        }),
        clean("a_forked_child_lets_nothing_go"),
        clean("chains_of_8_tensors"),
        Trial::test("every_driver_error_in_a_chain_is_an_error_value", || {
            let sound = child("chains_of_8_tensors").logged().run();
            assert_clean(&sound);
            for n in 1..=sound.log.len() as u64 {
                let outcome = child("chains_of_8_tensors").fail("*", n, 999).run();
                assert_handled(&outcome, &format!("call {n}"));
            }
            Ok(())
        }),
        clean_on("without_a_device_nothing_waits", |run| run.devices(0)),
    ]
}

fn taken((list, context): List) -> Made<Tensor> {
    match unsafe { consume(list, context) }? {
        Item::Tensor(tensor) => Ok(tensor),
        Item::Composite(_) => panic!("a composite"),
    }
}

fn exported(tensor: &Tensor) -> Made<List> {
    let list = tensor.export()?;
    let context = list.context().as_ptr().cast_const();
    Ok((list.into_raw().as_ptr(), context))
}

/// Nothing of the C program's is left, once the reclaimer has nothing left to do.
fn ended() -> Done {
    hurray_cuda::flush();
    match c_program::live() {
        [0, 0, 0] => Ok(()),
        // Where an error was planted under the C program's own free.
        live => Err(format!("{live:?} are left of the C program's").into()),
    }
}

fn we_read_a_c_list(producer: Producer, modes: [SyncMode; 3]) -> Done {
    make_current(0)?;
    let (writers, reader) = (writers()?, stream()?);
    let tensor = taken(c_program::make(producer, modes, &writers.0)?)?;
    let before = host_waits();
    assert_eq!(
        tensor
            .buffers()
            .iter()
            .map(|buffer| buffer.mode())
            .collect::<Vec<_>>(),
        modes
    );
    let out = tensor.order(reader.stream())?;
    read_all(&out, reader.stream())?;
    drop(tensor);
    // The events are not needed any more, and have gone back already.
    assert_eq!(c_program::live()[2], 0);
    assert_eq!(c_program::live()[1], 3);
    drop(out);
    assert_eq!(host_waits(), before);
    match producer {
        // With the stream of the last consumer, and no event of ours.
        Producer::Table => {
            let number = reader.stream().number().get();
            assert_eq!(ordered_releases(), (3, number));
        }
        Producer::Ordered => assert_eq!(ordered_releases().0, 3),
        Producer::Callback => assert_eq!(ordered_releases().0, 0),
    }
    ended()?;
    drop((writers, reader));
    finish()
}

/// Streams of the C program's, which live until its buffers have been let go.
struct Writers([CudaStream; 3]);

impl Drop for Writers {
    fn drop(&mut self) {
        hurray_cuda::flush();
    }
}

fn writers() -> Made<Writers> {
    Ok(Writers([stream()?, stream()?, stream()?]))
}

/// A tensor of ours, whose buffers are in these modes, each written on its own stream.
fn ours(modes: [SyncMode; 3], streams: &Writers) -> Made<Tensor> {
    let make = |index: usize| -> Made<Buffer> {
        let (len, stream) = (SIZES[index], streams.0[index].stream());
        match modes[index] {
            READY => Ok(foreign(len, Readiness::Ready)?.0),
            STREAM => pooled(len, stream),
            EVENT => {
                let recorded = plain(pooled(len, stream)?)?.record(stream)?;
                Ok(recorded.buffers()[0].clone())
            }
        }
    };
    quantized([make(0)?, make(1)?, make(2)?])
}

/// Each way to give back, the last holder being the C program or not: a release that carries the consumer's stream (dmlc/dlpack#176,
/// pytorch/pytorch#181191).
fn a_c_program_reads(modes: [SyncMode; 3]) -> Done {
    make_current(0)?;
    for how in [How::Each, How::After] {
        let (writers, reader) = (writers()?, stream()?);
        let tensor = ours(modes, &writers)?;
        let list = exported(&tensor)?;
        drop(tensor);
        c_program::consume(list, reader.stream(), how)?;
        drop((writers, reader));
    }
    assert_eq!(host_waits(), 0);
    let (writers, reader) = (writers()?, stream()?);
    let tensor = ours(modes, &writers)?;
    c_program::consume(exported(&tensor)?, reader.stream(), How::Own)?;
    assert_eq!(host_waits(), 1, "the C program's own");
    drop((tensor, writers, reader));
    finish()
}

fn a_c_list_is_relayed(producer: Producer) -> Done {
    make_current(0)?;
    for how in [How::Each, How::After] {
        let (writers, reader) = (writers()?, stream()?);
        let made = c_program::make(producer, [EVENT, STREAM, EVENT], &writers.0)?;
        let tensor = taken(made)?;
        let list = exported(&tensor)?;
        drop(tensor);
        let before = ordered_releases().0;
        c_program::consume(list, reader.stream(), how)?;
        let (after, last) = ordered_releases();
        match producer {
            Producer::Table => {
                assert_eq!((after - before, last), (3, reader.stream().number().get()));
            }
            Producer::Ordered => assert_eq!(after - before, 3),
            Producer::Callback => assert_eq!(after, 0),
        }
        ended()?;
        drop((writers, reader));
    }
    assert_eq!(host_waits(), 0);
    finish()
}

/// Two consumers on two streams: the list's producer is given a stream that follows both.
fn a_c_list_has_two_readers() -> Done {
    make_current(0)?;
    let (writers, first, second) = (writers()?, stream()?, stream()?);
    let tensor = taken(c_program::make(Producer::Table, [EVENT; 3], &writers.0)?)?;
    let lists = [exported(&tensor)?, exported(&tensor)?];
    drop(tensor);
    for (list, reader) in lists.into_iter().zip([&first, &second]) {
        c_program::consume(list, reader.stream(), How::After)?;
    }
    assert_eq!(ordered_releases().0, 3);
    assert_eq!(host_waits(), 0);
    ended()?;
    drop((writers, first, second));
    finish()
}

/// In every order, each with a stream or without, from threads.
fn buffers_go_back_in_every_order() -> Done {
    make_current(0)?;
    let (writers, reader) = (writers()?, stream()?);
    let number = reader.stream().number().get();
    let mut round = 0;
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        for producer in [Producer::Table, Producer::Callback, Producer::Ordered] {
            round += 1;
            let made = c_program::make(producer, [EVENT, STREAM, EVENT], &writers.0)?;
            let tensor = taken(made)?;
            let (mut list, _) = exported(&tensor)?;
            let out = tensor.order(reader.stream())?;
            read_all(&out, reader.stream())?;
            drop((tensor, out));
            for (place, index) in order.into_iter().enumerate() {
                let stream = if (round + place) % 2 == 0 {
                    HURRAY_NO_STREAM
                } else {
                    number
                };
                let address = list.expose_provenance();
                let release = move || {
                    let list = ptr::with_exposed_provenance_mut(address);
                    let status = unsafe { hurray_buffer_list_release(list, index, stream) };
                    assert_eq!(status, HURRAY_OK, "{}", last_error());
                };
                std::thread::spawn(release).join().unwrap();
                let status = unsafe { hurray_buffer_list_release(list, index, stream) };
                assert_eq!(status, HURRAY_ERR_RELEASED);
                hurray_cuda::flush();
                assert_eq!(c_program::live()[1], 2 - place as u64);
            }
            assert_eq!(
                c_program::live(),
                [0, 0, 0],
                "the list that was taken is gone"
            );
            assert_eq!(
                unsafe { hurray_buffer_list_destroy(&raw mut list) },
                HURRAY_OK
            );
        }
    }
    ended()?;
    drop((writers, reader));
    finish()
}

fn events_go_back_before_their_bytes() -> Done {
    make_current(0)?;
    let (writers, reader) = (writers()?, stream()?);
    for producer in [Producer::Table, Producer::Callback] {
        let tensor = taken(c_program::make(producer, [EVENT; 3], &writers.0)?)?;
        let (mut list, _) = exported(&tensor)?;
        let out = tensor.order(reader.stream())?;
        drop(tensor);
        // Lent on: it goes back when the last export has released it.
        assert_eq!(c_program::live()[1..], [3, 3]);
        let mut buffer = ptr::null();
        assert_eq!(
            unsafe { hurray_buffer_list_get(list, 1, &raw mut buffer) },
            HURRAY_OK
        );
        assert_eq!(unsafe { hurray_event_release(list, 1) }, HURRAY_OK);
        assert_eq!(
            unsafe { hurray_event_release(list, 1) },
            HURRAY_ERR_RELEASED
        );
        assert_eq!(c_program::live()[1..], [3, 2]);
        let number = reader.stream().number().get();
        assert_eq!(
            unsafe { hurray_buffer_wait(buffer, number) },
            HURRAY_ERR_RELEASED
        );
        assert_eq!(
            unsafe { hurray_buffer_list_destroy(&raw mut list) },
            HURRAY_OK
        );
        assert_eq!(c_program::live()[1..], [3, 0]);
        drop(out);
        hurray_cuda::flush();
        assert_eq!(c_program::live(), [0, 0, 0]);
    }
    ended()?;
    drop((writers, reader));
    finish()
}

static OPENED: AtomicBool = AtomicBool::new(false);

/// Keeps a stream busy.
unsafe extern "C" fn until_opened(_: *mut c_void) {
    while !OPENED.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

/// While somebody holds a producer's stream, the buffer that it came with is not given back, and then not before its readers are done.
fn a_producers_stream_outlives_what_depends_on_it() -> Done {
    make_current(0)?;
    let (writers, reader) = (writers()?, stream()?);
    let tensor = taken(c_program::make(Producer::Table, [STREAM; 3], &writers.0)?)?;
    let dependency = tensor.buffers()[0].dependency().cloned();
    let out = tensor.order(reader.stream())?;
    call(cuda::launch_host(
        handle(reader.stream()),
        Some(until_opened),
        ptr::null_mut(),
    ))?;
    read_all(&out, reader.stream())?;
    drop((tensor, out));
    assert_eq!(ordered_releases().0, 2);
    assert_eq!(c_program::live()[..2], [1, 1]);
    drop(dependency);
    OPENED.store(true, Ordering::SeqCst);
    hurray_cuda::flush();
    assert_eq!(c_program::live(), [0, 0, 0]);
    ended()?;
    drop((writers, reader));
    finish()
}

/// The number names another stream in the thread that consumes.
fn a_producers_per_thread_stream_is_waited_for() -> Done {
    make_current(0)?;
    let reader = stream()?;
    let numbers = [Stream::PER_THREAD.get(); 3];
    for producer in [Producer::Table, Producer::Callback] {
        let (list, context) = c_program::make_on(producer, [STREAM; 3], numbers)?;
        let addresses = (list.expose_provenance(), context.expose_provenance());
        let read = || -> Made<()> {
            let list = ptr::with_exposed_provenance_mut(addresses.0);
            let context = ptr::with_exposed_provenance(addresses.1);
            let tensor = taken((list, context))?;
            let out = tensor.order(reader.stream())?;
            read_all(&out, reader.stream())
        };
        let failed = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                make_current(0)
                    .and_then(|()| read())
                    .map_err(|error| error.to_string())
            });
            thread.join().unwrap()
        });
        failed?;
    }
    assert_eq!(host_waits(), 0);
    ended()?;
    drop(reader);
    finish()
}

fn an_export_on_a_stream_is_released_on_another() -> Done {
    make_current(0)?;
    let (writers, first, second) = (writers()?, stream()?, stream()?);
    let tensor = ours([STREAM; 3], &writers)?;
    let out = tensor.order(first.stream())?;
    drop(tensor);
    read_all(&out, first.stream())?;
    let list = exported(&out)?;
    drop(out);
    c_program::consume(list, second.stream(), How::After)?;
    assert_eq!(host_waits(), 0);
    drop((writers, first, second));
    finish()
}

/// A consumer that lets go on a stream which waited for nothing.
fn unread_pool_memory_is_released_on_another_stream() -> Done {
    make_current(0)?;
    let (writers, other) = (writers()?, stream()?);
    let tensor = ours([STREAM; 3], &writers)?;
    let (mut list, _) = exported(&tensor)?;
    drop(tensor);
    let number = other.stream().number().get();
    let release = || unsafe { hurray_buffer_list_release_after(&raw mut list, number) };
    let (calls, status) = orders_of(release);
    assert_eq!((calls, status), ([3, 3], HURRAY_OK), "{}", last_error());
    assert_eq!(host_waits(), 0);
    drop((writers, other));
    finish()
}

fn bad_arguments_change_nothing() -> Done {
    make_current(0)?;
    let (writers, reader) = (writers()?, stream()?);
    let tensor = taken(c_program::make(Producer::Table, [EVENT; 3], &writers.0)?)?;
    let (mut list, _) = exported(&tensor)?;
    drop(tensor);
    let mut buffer = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_get(list, 0, &raw mut buffer) },
        HURRAY_OK
    );
    let before = [c"cuEventRecord", c"cuStreamWaitEvent"].map(calls);
    let lent = list;
    let release = |index, stream| unsafe { hurray_buffer_list_release(lent, index, stream) };
    let wait = |stream| unsafe { hurray_buffer_wait(buffer, stream) };
    assert_eq!(wait(0), HURRAY_ERR_INVALID_STREAM);
    assert!(
        last_error().contains("1 is the legacy default stream"),
        "{}",
        last_error()
    );
    assert_eq!(wait(HURRAY_NO_STREAM), HURRAY_ERR_INVALID_STREAM);
    assert_eq!(release(0, 0), HURRAY_ERR_INVALID_STREAM);
    assert_eq!(release(3, 1), HURRAY_ERR_INDEX_OUT_OF_BOUNDS);
    let status = unsafe { hurray_buffer_list_release_after(&raw mut list, 0) };
    assert_eq!(status, HURRAY_ERR_INVALID_STREAM);
    assert_eq!([c"cuEventRecord", c"cuStreamWaitEvent"].map(calls), before);
    hurray_cuda::flush();
    assert_eq!(c_program::live(), [1, 3, 3]);
    // Streams 1 and 2 are streams.
    assert_eq!(wait(1), HURRAY_OK, "{}", last_error());
    assert_eq!(wait(2), HURRAY_OK, "{}", last_error());
    assert_eq!(wait(reader.stream().number().get()), HURRAY_OK);
    assert_eq!(unsafe { hurray_buffer_wait_host(buffer) }, HURRAY_OK);
    assert_eq!(release(0, 1), HURRAY_OK, "{}", last_error());
    assert_eq!(release(1, 2), HURRAY_OK, "{}", last_error());
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    ended()?;
    drop((writers, reader));
    finish()
}

fn streams_of_another_device_are_refused() -> Done {
    make_current(0)?;
    let (writers, other) = (writers()?, CudaStream::new(1)?);
    let tensor = ours([STREAM; 3], &writers)?;
    let (mut list, _) = exported(&tensor)?;
    drop(tensor);
    let mut buffer = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_get(list, 0, &raw mut buffer) },
        HURRAY_OK
    );
    let number = other.stream().number().get();
    for status in [
        unsafe { hurray_buffer_wait(buffer, number) },
        unsafe { hurray_buffer_list_release(list, 0, number) },
        unsafe { hurray_buffer_list_release_after(&raw mut list, number) },
    ] {
        assert_eq!(status, HURRAY_ERR_INVALID_STREAM);
        let text = last_error();
        assert!(
            text.contains("device 0") && text.contains("device 1"),
            "{text}"
        );
    }
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    // To its member on the host that stream may do something, to the other one it may not.
    let host = plain(Buffer::from(AlignedBytes::zeroed(64)?))?;
    let members = [host, ours([STREAM; 3], &writers)?].map(Item::Tensor);
    let composite = group(members.to_vec())?;
    let list = composite.export()?;
    drop((composite, members));
    let mut list = list.into_raw().as_ptr();
    let release = |list, number| unsafe { hurray_buffer_list_release_after(list, number) };
    assert_eq!(release(&raw mut list, number), HURRAY_ERR_INVALID_STREAM);
    assert!(!list.is_null());
    let number = writers.0[0].stream().number().get();
    assert_eq!(
        release(&raw mut list, number),
        HURRAY_OK,
        "{}",
        last_error()
    );
    drop((writers, other));
    finish()
}

/// From a thread each, with an event let go meanwhile.
fn buffers_go_back_at_the_same_time() -> Done {
    make_current(0)?;
    let (writers, reader) = (writers()?, stream()?);
    let number = reader.stream().number().get();
    for round in 0..50 {
        let producer = [Producer::Table, Producer::Callback, Producer::Ordered][round % 3];
        let tensor = taken(c_program::make(producer, [EVENT; 3], &writers.0)?)?;
        let (mut list, _) = exported(&tensor)?;
        let out = tensor.order(reader.stream())?;
        drop(tensor);
        read_all(&out, reader.stream())?;
        drop(out);
        let address = list.expose_provenance();
        std::thread::scope(|scope| {
            for index in 0..3 {
                scope.spawn(move || {
                    let list = ptr::with_exposed_provenance_mut(address);
                    assert_eq!(unsafe { hurray_event_release(list, index) }, HURRAY_OK);
                    let status = unsafe { hurray_buffer_list_release(list, index, number) };
                    assert_eq!(status, HURRAY_OK, "{}", last_error());
                });
            }
        });
        assert_eq!(
            unsafe { hurray_buffer_list_destroy(&raw mut list) },
            HURRAY_OK
        );
    }
    ended()?;
    drop((writers, reader));
    finish()
}

/// Host bytes called CUDA: refused before any use, and the list stays its capsule's.
fn a_list_that_lies_about_its_memory_is_refused() -> Done {
    let rows = SIZES.map(|size| cuda_row(size, READY));
    let made = producer::List::new(&[&tensors::quantized(rows)]);
    let log = Arc::clone(&made.log);
    let (list, context) = made.into_capsule();
    let error = unsafe { consume(list, context) }.unwrap_err();
    let ConsumeError::Tensor(TensorError::Buffer { buffer: 0, source }) = error else {
        panic!("{error}")
    };
    let unknown = matches!(
        source,
        BufferError::Pointer(PointerError::Unknown { device_id: 0, .. })
    );
    assert!(unknown, "{source}");
    assert_eq!(log.counts(), [0, 0, 0]);
    producer::destroy(list);
    assert_eq!(log.counts(), [1, 1, 1]);
    finish()
}

/// It refuses a release with a stream, and gets its bytes back once the device is done.
fn a_producer_that_knows_no_stream_is_waited_for() -> Done {
    make_current(0)?;
    let reader = stream()?;
    let rows = SIZES.map(|size| cuda_row(size, READY));
    let mut made = producer::List::new(&[&tensors::quantized(rows)]);
    made.refuses_streams = true;
    let memory = SIZES.map(|size| call(cuda::alloc(size)));
    for (buffer, address) in made.buffers.iter_mut().zip(&memory) {
        let address = *address.as_ref().map_err(ToString::to_string)?;
        buffer.info.data = ptr::with_exposed_provenance_mut(address as usize);
    }
    let log = Arc::clone(&made.log);
    let tensor = taken(made.into_capsule())?;
    let out = tensor.order(reader.stream())?;
    write_all(&out, 1, reader.stream())?;
    drop((tensor, out));
    assert_eq!(host_waits(), 0);
    hurray_cuda::flush();
    assert_eq!(log.counts(), [1, 1, 1]);
    assert_eq!(log.destroyed(), 1);
    // That the reclaimer has waited the program can't know, as the stand-in driver sees it.
    call(cuda::synchronize_stream(handle(reader.stream())))?;
    for address in memory {
        call(cuda::free(address?))?;
    }
    drop(reader);
    finish()
}

/// A wait and a release, of which one fails: done again, it works.
fn a_driver_error_leaves_the_buffer_held() -> Done {
    make_current(0)?;
    let (writers, reader) = (writers()?, stream()?);
    let tensor = ours([STREAM; 3], &writers)?;
    let (mut list, _) = exported(&tensor)?;
    drop(tensor);
    let number = reader.stream().number().get();
    let mut buffer = ptr::null();
    let mut failures = 0;
    let mut again = |call: &mut dyn FnMut() -> i32| {
        let mut status = call();
        if status == HURRAY_ERR_DEVICE {
            failures += 1;
            assert!(last_error().contains("CUDA_ERROR_UNKNOWN"));
            assert_eq!(
                unsafe { hurray_buffer_list_get(list, 0, &raw mut buffer) },
                HURRAY_OK
            );
            status = call();
        }
        assert_eq!(status, HURRAY_OK, "{}", last_error());
    };
    again(&mut || {
        let mut buffer = ptr::null();
        unsafe { hurray_buffer_list_get(list, 1, &raw mut buffer) };
        unsafe { hurray_buffer_wait(buffer, number) }
    });
    again(&mut || unsafe { hurray_buffer_list_release(list, 0, number) });
    assert_eq!(failures, 1);
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    drop((writers, reader));
    finish()
}

/// Neither bytes nor an event of another library's, whose driver is the parent's.
fn a_forked_child_lets_nothing_go() -> Done {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn release(_: *mut c_void, _: *mut c_void) {
        RELEASED.fetch_add(1, Ordering::SeqCst);
    }
    make_current(0)?;
    let address = call(cuda::alloc(4096))?;
    let event = call(cuda::event())?;
    let own = stream()?;
    call(cuda::record(event, handle(own.stream())))?;
    let desc = HurrayBufferDesc {
        struct_size: size_of::<HurrayBufferDesc>() as u32,
        flags: 0,
        data: ptr::with_exposed_provenance_mut(address as usize),
        byte_size: 4096,
        device_id: 0,
        device_tag: 1,
        memory_class: 0,
        sync_mode: 1,
        reserved: 0,
        event: event.cast(),
        stream: 0,
        release: Some(release),
        release_context: ptr::null_mut(),
        event_release: Some(release),
        event_context: ptr::null_mut(),
        release_after: None,
    };
    let mut buffer = ptr::null_mut();
    assert_eq!(
        unsafe { hurray_buffer_from_ptr(&raw const desc, &raw mut buffer) },
        HURRAY_OK
    );
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = unsafe { hurray_buffer_destroy(&raw mut buffer) };
        let is_well = status == HURRAY_OK && RELEASED.load(Ordering::SeqCst) == 0;
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert_eq!(unsafe { hurray_buffer_destroy(&raw mut buffer) }, HURRAY_OK);
    hurray_cuda::flush();
    assert_eq!(RELEASED.load(Ordering::SeqCst), 2);
    call(cuda::synchronize_stream(handle(own.stream())))?;
    call(cuda::destroy_event(event))?;
    call(cuda::free(address))?;
    drop(own);
    finish()
}

/// The C program makes a list, we take it, order it, and lend it back; then it reads one of ours.
fn chains_of_8_tensors() -> Done {
    make_current(0)?;
    let (writers, middle, reader) = (writers()?, stream()?, stream()?);
    for number in 0..8 {
        let producer = [Producer::Table, Producer::Callback, Producer::Ordered][number % 3];
        let modes = [[EVENT; 3], [STREAM; 3], [EVENT, STREAM, EVENT]][number % 3];
        let tensor = taken(c_program::make(producer, modes, &writers.0)?)?;
        let out = tensor.order(middle.stream())?;
        drop(tensor);
        read_all(&out, middle.stream())?;
        let how = if number % 2 == 0 {
            How::Each
        } else {
            How::After
        };
        let list = exported(&out)?;
        drop(out);
        c_program::consume(list, reader.stream(), how)?;
    }
    if host_waits() > 0 {
        // Where an error was planted under the C program's own wait.
        return Err("the host has waited".into());
    }
    ended()?;
    drop((writers, middle, reader));
    finish()
}

/// The text says why, and nothing has happened.
fn without_a_device_nothing_waits() -> Done {
    unsafe extern "C" fn release_event(_: *mut c_void, count: *mut c_void) {
        unsafe { *count.cast::<u32>() += 1 };
    }
    let mut released = 0_u32;
    let desc = HurrayBufferDesc {
        struct_size: size_of::<HurrayBufferDesc>() as u32,
        flags: 0,
        data: ptr::without_provenance_mut(0x1000),
        byte_size: 64,
        device_id: 0,
        device_tag: 1,
        memory_class: 0,
        sync_mode: 1,
        reserved: 0,
        event: ptr::without_provenance_mut(0x40),
        stream: 0,
        release: None,
        release_context: ptr::null_mut(),
        event_release: Some(release_event),
        event_context: (&raw mut released).cast(),
        release_after: None,
    };
    let mut buffer = ptr::null_mut();
    assert_eq!(
        unsafe { hurray_buffer_from_ptr(&raw const desc, &raw mut buffer) },
        HURRAY_OK
    );
    let mut list = ptr::null_mut();
    let status =
        unsafe { hurray_buffer_list_new(&raw mut buffer, 1, ptr::null(), 0, &raw mut list) };
    assert_eq!(status, HURRAY_OK, "{}", last_error());
    let mut borrowed = ptr::null();
    assert_eq!(
        unsafe { hurray_buffer_list_get(list, 0, &raw mut borrowed) },
        HURRAY_OK
    );
    for status in [
        unsafe { hurray_buffer_wait(borrowed, 1) },
        unsafe { hurray_buffer_wait_host(borrowed) },
        unsafe { hurray_buffer_list_release(list, 0, 1) },
        unsafe { hurray_buffer_list_release_after(&raw mut list, 1) },
    ] {
        assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
        assert!(last_error().contains("finds no device"), "{}", last_error());
    }
    assert_eq!(released, 0);
    assert_eq!(
        unsafe { hurray_buffer_list_destroy(&raw mut list) },
        HURRAY_OK
    );
    assert_eq!(released, 1);
    Ok(())
}
