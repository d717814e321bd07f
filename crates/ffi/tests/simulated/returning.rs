//! How bytes come back: in any order, from any thread, and not before the device is done with them.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use hurray_core::{DeviceError, MemoryClass, Stream, SyncMode};
use hurray_cuda::CudaStream;
use hurray_cuda_programs::cuda::{self, CUstreamCaptureMode};

use hurray_ffi::{Buffer, OrderError, Place, Readiness, Tensor};
use libtest_mimic::{Failed, Trial};

use crate::device::{
    call, default_stream, finish, foreign_stream, handle, host_waits, live, make_current,
    peak_bytes, stream,
};
use crate::harness::{Done, Scenario, assert_clean, assert_handled, child, clean, clean_on, sweep};
use crate::scene::{
    CUDA, Made, SIZES, foreign, orders_of, plain, pooled, pooled_tensor, quantized, read, read_all,
    write, write_all,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    (
        "buffers_come_back_in_any_order",
        buffers_come_back_in_any_order,
    ),
    (
        "a_weight_lent_ten_thousand_times_holds_one_event",
        a_weight_lent_ten_thousand_times_holds_one_event,
    ),
    (
        "a_dlpack_tensor_comes_back_from_another_thread",
        a_dlpack_tensor_comes_back_from_another_thread,
    ),
    (
        "bytes_are_overwritten_after_their_readers",
        bytes_are_overwritten_after_their_readers,
    ),
    (
        "a_recorded_stream_is_waited_for",
        a_recorded_stream_is_waited_for,
    ),
    (
        "a_stream_that_is_recorded_on_is_waited_for",
        a_stream_that_is_recorded_on_is_waited_for,
    ),
    (
        "pinned_memory_is_freed_after_its_readers",
        pinned_memory_is_freed_after_its_readers,
    ),
    ("slices_share_one_use", slices_share_one_use),
    ("a_graph_keeps_what_it_reads", a_graph_keeps_what_it_reads),
    (
        "per_thread_uses_come_back_crosswise",
        per_thread_uses_come_back_crosswise,
    ),
    (
        "a_streams_handle_is_given_out_again",
        a_streams_handle_is_given_out_again,
    ),
    (
        "a_weight_lent_on_a_thousand_streams_forgets_them",
        a_weight_lent_on_a_thousand_streams_forgets_them,
    ),
    (
        "graphs_name_no_stream_that_is_gone",
        graphs_name_no_stream_that_is_gone,
    ),
    ("a_pipeline_of_8_tensors", || pipeline(8)),
    ("a_pipeline_of_20_tensors", || pipeline(20)),
    ("a_pipeline_of_10000_tensors", a_pipeline_of_10000_tensors),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("buffers_come_back_in_any_order"),
        sweep("buffers_come_back_in_any_order", &[]),
        clean("a_weight_lent_ten_thousand_times_holds_one_event"),
        clean("a_dlpack_tensor_comes_back_from_another_thread"),
        sweep("a_dlpack_tensor_comes_back_from_another_thread", &[]),
        clean("bytes_are_overwritten_after_their_readers"),
        // The release waits for the readers too: that the writer has waited for them is not noted.
        sweep(
            "bytes_are_overwritten_after_their_readers",
            &[("cuStreamWaitEvent", 6), ("cuStreamWaitEvent", 7)],
        ),
        clean("a_recorded_stream_is_waited_for"),
        sweep("a_recorded_stream_is_waited_for", &[]),
        clean("a_stream_that_is_recorded_on_is_waited_for"),
        clean("pinned_memory_is_freed_after_its_readers"),
        sweep("pinned_memory_is_freed_after_its_readers", &[]),
        clean("slices_share_one_use"),
        clean("a_graph_keeps_what_it_reads"),
        clean("per_thread_uses_come_back_crosswise"),
        clean("a_streams_handle_is_given_out_again"),
        clean("a_weight_lent_on_a_thousand_streams_forgets_them"),
        clean("graphs_name_no_stream_that_is_gone"),
        clean("a_pipeline_of_20_tensors"),
        clean_on("a_pipeline_of_20_tensors", |run| run.pools(false)),
        sweep("a_pipeline_of_20_tensors", &[]),
        clean("a_pipeline_of_10000_tensors"),
        Trial::test("every_driver_error_in_a_pipeline_is_an_error_value", || {
            every_driver_error("a_pipeline_of_8_tensors")
        }),
    ]
}

/// Each buffer of a tensor in each place of the order, every other one from another thread.
fn buffers_come_back_in_any_order() -> Done {
    make_current(0)?;
    let reader = stream()?;
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut owners = Vec::new();
        let mut made = Vec::new();
        for len in SIZES {
            let (buffer, gone) = foreign(len, Readiness::Ready)?;
            owners.push(gone);
            made.push(buffer);
        }
        let made: [Buffer; 3] = made.try_into().map_err(|_| "three buffers")?;
        let out = quantized(made)?.order(reader.stream())?;
        let (_, buffers) = out.into_parts();
        let mut buffers: Vec<_> = buffers.into_iter().map(Some).collect();
        for (number, index) in order.into_iter().enumerate() {
            let buffer = buffers[index].take();
            write(buffer.as_ref().unwrap(), 1, reader.stream())?;
            if number % 2 == 0 {
                thread::spawn(move || drop(buffer)).join().unwrap();
            } else {
                drop(buffer);
            }
            hurray_cuda::flush();
            for (number, owner) in owners.iter().enumerate() {
                assert_eq!(owner.load(Ordering::SeqCst), buffers[number].is_none());
            }
        }
    }
    assert_eq!(host_waits(), 0);
    drop(reader);
    finish()
}

fn a_weight_lent_ten_thousand_times_holds_one_event() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let weight = pooled_tensor(writer.stream())?.record(writer.stream())?;
    for _ in 0..10_000 {
        let out = weight.order(reader.stream())?;
        let list = out.export()?;
        drop((out, list));
    }
    // The writes' own, what came back last, and the one that it replaced.
    assert!(live(c"event") <= 3, "{}", live(c"event"));
    assert_eq!(host_waits(), 0);
    drop((weight, writer, reader));
    finish()
}

fn a_dlpack_tensor_comes_back_from_another_thread() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let tensor = plain(pooled(4096, writer.stream())?)?;
    let out = tensor.order(reader.stream())?;
    read_all(&out, reader.stream())?;
    // As long as DLPack relays ready bytes only, the owner is what is tried here.
    let ready = out.buffers()[0].clone();
    drop((tensor, out));
    let (calls, ()) = orders_of(|| thread::spawn(move || drop(ready)).join().unwrap());
    assert_eq!(calls, [0, 0]);
    drop((writer, reader));
    finish()
}

/// A paged buffer: consumers read it on their streams and give it back; then it is written again.
fn bytes_are_overwritten_after_their_readers() -> Done {
    make_current(0)?;
    let (writer, first, second) = (stream()?, stream()?, stream()?);
    let tensor = pooled_tensor(writer.stream())?;
    for reader in [&first, &second] {
        let out = tensor.order(reader.stream())?;
        read_all(&out, reader.stream())?;
        drop(out);
    }
    let (calls, ordered) = orders_of(|| tensor.order_after_readers(writer.stream()));
    ordered?;
    assert_eq!(calls, [0, 2], "one wait for each stream that gave back");
    write_all(&tensor, 2, writer.stream())?;
    // The writer is done last, and says so.
    let out = tensor.order(writer.stream())?;
    drop(tensor);
    drop(out);
    assert_eq!(host_waits(), 0);
    drop((writer, first, second));
    finish()
}

fn a_recorded_stream_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, user) = (stream()?, stream()?);
    let tensor = pooled_tensor(writer.stream())?;
    tensor.record_stream(user.stream())?;
    // Nobody is told of this use, which began after the stream was named.
    read_all(&tensor, user.stream())?;
    drop(tensor);
    let tensor = plain(foreign(4096, Readiness::Ready)?.0)?;
    tensor.record_stream(user.stream())?;
    write_all(&tensor, 1, user.stream())?;
    drop(tensor);
    assert_eq!(host_waits(), 0);
    drop((writer, user));
    finish()
}

/// Somebody who wrote on a stream, through an address, names it afterwards.
fn a_stream_that_is_recorded_on_is_waited_for() -> Done {
    make_current(0)?;
    let (writer, other) = (stream()?, stream()?);
    let tensor = pooled_tensor(writer.stream())?;
    drop(tensor.order(other.stream())?);
    write_all(&tensor, 2, other.stream())?;
    drop(tensor.record(other.stream())?);
    drop(tensor);
    assert_eq!(host_waits(), 0);
    drop((writer, other));
    finish()
}

fn pinned_memory_is_freed_after_its_readers() -> Done {
    make_current(0)?;
    let reader = stream()?;
    for memory_class in [MemoryClass::HostPinned, MemoryClass::Unified] {
        let place = Place {
            memory_class,
            ..CUDA
        };
        let tensor = plain(Buffer::allocate(place, 4096, false, reader.stream())?)?;
        assert_eq!(tensor.buffers()[0].mode(), SyncMode::ProducerSynced);
        let out = tensor.order(reader.stream())?;
        read_all(&out, reader.stream())?;
        drop((tensor, out));
    }
    assert_eq!(host_waits(), 0);
    drop(reader);
    finish()
}

fn slices_share_one_use() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let (block, gone) = foreign(4096 * 3, Readiness::Ready)?;
    let parts = [0, 1, 2].map(|part| block.slice(part * 4096, SIZES[part]));
    drop(block);
    let [a, b, c] = parts;
    let tensor = quantized([a?, b?, c?])?.order(writer.stream())?;
    write_all(&tensor, 1, writer.stream())?;
    let view = tensor.buffers()[1].slice(4, 8)?;
    let (calls, ()) = orders_of(|| drop(tensor));
    assert_eq!(calls, [0, 0], "a view of the export is out still");
    let (calls, ()) = orders_of(|| drop(view));
    assert_eq!(calls, [1, 0]);
    hurray_cuda::flush();
    assert!(gone.load(Ordering::SeqCst));
    drop((writer, reader));
    finish()
}

/// What is let go while its stream captures the graph keeps alive, as long as it lives; what would break the capture is refused.
fn a_graph_keeps_what_it_reads() -> Done {
    make_current(0)?;
    let (captured, other) = (stream()?, stream()?);
    let stream = handle(captured.stream());
    let target = pooled(4096, captured.stream())?;
    let (outside, gone) = foreign(4096, Readiness::Ready)?;
    write(&outside, 9, captured.stream())?;
    let read = [plain(pooled(4096, captured.stream())?)?, plain(outside)?];
    let elsewhere = plain(pooled(4096, other.stream())?)?;
    call(cuda::synchronize_stream(stream))?;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    call(cuda::begin_capture(stream, mode))?;
    let refused = elsewhere.order(captured.stream()).unwrap_err();
    let breaks = matches!(refused, OrderError::Device(DeviceError::Capturing { .. }));
    assert!(breaks, "{refused}");
    for tensor in read {
        let out = tensor.order(captured.stream())?;
        drop(tensor);
        let [to, from] = [&target, &out.buffers()[0]].map(|at| at.as_ptr().expose_provenance());
        call(cuda::copy(to as u64, from as u64, 4096, stream))?;
        drop(out);
    }
    let graph = call(cuda::end_capture(stream))?;
    let exec = call(cuda::instantiate(graph))?;
    call(cuda::destroy_graph(graph))?;
    for _ in 0..2 {
        call(cuda::launch_graph(exec, stream))?;
    }
    hurray_cuda::flush();
    assert!(!gone.load(Ordering::SeqCst));
    call(cuda::destroy_exec(exec))?;
    call(cuda::synchronize_stream(stream))?;
    while !gone.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    drop((target, elsewhere, captured, other));
    finish()
}

/// Two threads are handed the same bytes on their own default streams, and each lets the other's use go.
fn per_thread_uses_come_back_crosswise() -> Done {
    make_current(0)?;
    let own = default_stream(Stream::PER_THREAD)?;
    let tensor = plain(foreign(4096, Readiness::Ready)?.0)?;
    let mine = tensor.order(&own)?;
    let (give, take) = mpsc::channel();
    let (give_back, take_back) = mpsc::channel::<Tensor>();
    let shared = tensor.clone();
    let theirs = own.clone();
    let other = thread::spawn(move || {
        give.send(shared.order(&theirs).unwrap()).unwrap();
        drop(shared);
        drop(take_back.recv().unwrap());
    });
    drop(take.recv()?);
    write_all(&mine, 1, &own)?;
    give_back.send(mine)?;
    other.join().unwrap();
    drop(tensor);
    finish()
}

/// What was queued on a stream that is destroyed is still under way when the next stream gets its handle.
fn a_streams_handle_is_given_out_again() -> Done {
    make_current(0)?;
    let writer = stream()?;
    let pooled = plain(pooled(4096, writer.stream())?)?.synchronize()?;
    for tensor in [plain(foreign(4096, Readiness::Ready)?.0)?, pooled] {
        let user = foreign_stream(0)?;
        let out = tensor.order(&user)?;
        read_all(&out, &user)?;
        drop(out);
        call(cuda::destroy_stream(handle(&user)))?;
        let next = foreign_stream(0)?;
        assert_eq!(next.number(), user.number());
        let out = tensor.order(&next)?;
        read_all(&out, &next)?;
        drop(tensor);
        drop(out);
        call(cuda::destroy_stream(handle(&next)))?;
    }
    drop(writer);
    finish()
}

fn a_weight_lent_on_a_thousand_streams_forgets_them() -> Done {
    make_current(0)?;
    let weight = plain(foreign(4096, Readiness::Ready)?.0)?;
    for _ in 0..1000 {
        let user = stream()?;
        drop(weight.order(user.stream())?);
        call(cuda::synchronize_stream(handle(user.stream())))?;
        drop(user);
        assert!(live(c"event") <= 16 && live(c"stream") <= 16);
    }
    drop(weight);
    finish()
}

/// Bytes that a graph keeps were used outside it too, on streams that the program destroys once it has let go, whichever use it was.
fn graphs_name_no_stream_that_is_gone() -> Done {
    #[derive(PartialEq)]
    enum Use {
        Birth,
        Export,
        Recorded,
        BesideACapture,
    }
    make_current(0)?;
    let captured = stream()?;
    let capturing = handle(captured.stream());
    let target = pooled(4096, captured.stream())?;
    let copied = |out: &Tensor| {
        let [to, from] = [&target, &out.buffers()[0]].map(|at| at.as_ptr().expose_provenance());
        call(cuda::copy(to as u64, from as u64, 4096, capturing))
    };
    for used in [Use::Birth, Use::Export, Use::Recorded, Use::BesideACapture] {
        let held = live(c"memory");
        let (user, birth) = (foreign_stream(0)?, foreign_stream(0)?);
        let tensor = plain(pooled(4096, &birth)?)?.synchronize()?;
        if matches!(used, Use::Recorded | Use::BesideACapture) {
            tensor.record_stream(&user)?;
            read_all(&tensor, &user)?;
        }
        tensor.record_stream(captured.stream())?;
        copied(&tensor)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        call(cuda::begin_capture(capturing, mode))?;
        let tensor = if used == Use::BesideACapture {
            drop(tensor);
            None
        } else {
            let out = tensor.order(captured.stream())?;
            copied(&out)?;
            Some(tensor)
        };
        let graph = call(cuda::end_capture(capturing))?;
        if let (Some(tensor), Use::Export) = (tensor, &used) {
            let out = tensor.order(&user)?;
            read_all(&out, &user)?;
            drop(tensor);
            drop(out);
        }
        for stream in [&user, &birth] {
            call(cuda::destroy_stream(handle(stream)))?;
        }
        call(cuda::destroy_graph(graph))?;
        // The driver tells when it gets to it.
        while live(c"memory") > held {
            hurray_cuda::flush();
            thread::yield_now();
        }
    }
    drop((target, captured));
    finish()
}

/// Three stages on three streams, through lists: the second and the third read what they are handed, and hand on what they made of it.
fn pipeline(tensors: usize) -> Done {
    make_current(0)?;
    let stages = [stream()?, stream()?, stream()?];
    let [first, second, third] = stages.each_ref();
    for number in 0..tensors {
        let made = match number % 2 {
            0 => pooled_tensor(first.stream())?,
            _ => plain(pooled(4096, first.stream())?)?,
        };
        let made = stage(made, second)?;
        drop(stage(made, third)?);
    }
    drop(stages);
    finish()
}

fn stage(given: Tensor, stream: &CudaStream) -> Made<Tensor> {
    let tensor = through_a_list(&given.order(stream.stream())?)?;
    drop(given);
    let made: Vec<Buffer> = tensor
        .buffers()
        .iter()
        .map(|buffer| {
            read(buffer, stream.stream())?;
            pooled(buffer.len(), stream.stream())
        })
        .collect::<Result<_, _>>()?;
    drop(tensor);
    // Finished after what it was made of has come back.
    for buffer in &made {
        write(buffer, 2, stream.stream())?;
    }
    match made.try_into() {
        Ok(three) => quantized(three),
        Err(mut one) => plain(one.remove(0)),
    }
}

fn through_a_list(tensor: &Tensor) -> Made<Tensor> {
    let list = tensor.export()?;
    let context = list.context();
    match unsafe { hurray_ffi::consume(list.into_raw().as_ptr(), context.as_ptr()) }? {
        hurray_ffi::Item::Tensor(tensor) => Ok(tensor),
        hurray_ffi::Item::Composite(_) => panic!("a composite"),
    }
}

fn a_pipeline_of_10000_tensors() -> Done {
    pipeline(10_000)?;
    assert_eq!(host_waits(), 0);
    assert!(peak_bytes() <= 4 << 20, "{}", peak_bytes());
    assert_eq!(
        (live(c"memory"), live(c"event"), live(c"stream")),
        (0, 0, 0)
    );
    Ok(())
}

/// At every call: the run ends in success or an error value, nothing hung, nothing handed out or freed early.
fn every_driver_error(name: &'static str) -> Result<(), Failed> {
    const UNKNOWN: u32 = 999;
    let sound = child(name).logged().run();
    assert_clean(&sound);
    let total = sound.log.len() as u64;
    assert!(total > 100, "{total}");
    for n in 1..=total {
        let outcome = child(name).fail("*", n, UNKNOWN).run();
        assert_handled(&outcome, &format!("call {n} of {total}"));
    }
    Ok(())
}
