//! Bringing tensors onto streams.

use std::sync::Arc;

use hurray_core::{
    DeviceError, DeviceLayer, DeviceTag, MemoryClass, PointerError, Stream, SyncMode,
};
use hurray_cuda::{CudaStream, LAYER};
use hurray_cuda_programs::cuda;
use hurray_ffi::abi::{
    HURRAY_ERR_UNSUPPORTED, HURRAY_OK, hurray_buffer_list_destroy, hurray_buffer_list_release_after,
};
use hurray_ffi::access::{AccessError, Reach};
use hurray_ffi::{
    Buffer, BufferError, BufferFlags, Item, OrderError, Owner, Place, Readiness, Tensor,
};
use libtest_mimic::Trial;

use crate::device::{call, default_stream, finish, host_waits, live, make_current, stream};
use crate::harness::{Done, Scenario, clean, clean_on, sweep};
use crate::scene::{
    CUDA, SIZES, foreign, group, orders, orders_of, plain, pooled, pooled_tensor, quantized, read,
    read_all, write, write_all,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("a_stream_tensor_is_ordered", a_stream_tensor_is_ordered),
    ("an_event_tensor_is_ordered", an_event_tensor_is_ordered),
    ("mixed_modes_take_one_stream", mixed_modes_take_one_stream),
    ("equal_streams_need_nothing", equal_streams_need_nothing),
    ("ready_bytes_stay_ready", ready_bytes_stay_ready),
    (
        "the_per_thread_stream_is_never_kept",
        the_per_thread_stream_is_never_kept,
    ),
    (
        "synchronize_waits_on_the_host",
        synchronize_waits_on_the_host,
    ),
    (
        "written_views_are_seen_after_record",
        written_views_are_seen_after_record,
    ),
    ("a_composite_is_ordered_whole", a_composite_is_ordered_whole),
    (
        "a_stream_of_another_device_is_refused",
        a_stream_of_another_device_is_refused,
    ),
    (
        "a_stream_is_for_one_kind_of_device",
        a_stream_is_for_one_kind_of_device,
    ),
    ("a_closed_stream_is_refused", a_closed_stream_is_refused),
    (
        "pointers_are_what_they_are_said_to_be",
        pointers_are_what_they_are_said_to_be,
    ),
    ("memory_of_the_cpu_waits_too", memory_of_the_cpu_waits_too),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("a_stream_tensor_is_ordered"),
        sweep("a_stream_tensor_is_ordered", &[]),
        clean("an_event_tensor_is_ordered"),
        sweep("an_event_tensor_is_ordered", &[]),
        clean("mixed_modes_take_one_stream"),
        sweep("mixed_modes_take_one_stream", &[]),
        clean("equal_streams_need_nothing"),
        // What comes back first is covered by what comes back last.
        sweep("equal_streams_need_nothing", &[("cuEventRecord", 1)]),
        clean("ready_bytes_stay_ready"),
        sweep("ready_bytes_stay_ready", &[]),
        clean("the_per_thread_stream_is_never_kept"),
        clean("synchronize_waits_on_the_host"),
        clean("written_views_are_seen_after_record"),
        // The release follows the writer too: that the reader has waited for it is not noted.
        sweep(
            "written_views_are_seen_after_record",
            &[("cuStreamWaitEvent", 3), ("cuEventRecord", 3)],
        ),
        clean("a_composite_is_ordered_whole"),
        sweep("a_composite_is_ordered_whole", &[]),
        clean_on("a_stream_of_another_device_is_refused", |run| {
            run.devices(2)
        }),
        clean("a_stream_is_for_one_kind_of_device"),
        clean("a_closed_stream_is_refused"),
        clean("pointers_are_what_they_are_said_to_be"),
        clean("memory_of_the_cpu_waits_too"),
    ]
}

fn modes(tensor: &Tensor) -> Vec<SyncMode> {
    let rows = tensor.descriptor().buffers.iter();
    let modes: Vec<_> = rows.map(|row| row.sync_mode).collect();
    let held: Vec<_> = tensor.buffers().iter().map(Buffer::mode).collect();
    assert_eq!(modes, held, "rows say what buffers are");
    modes
}

fn a_stream_tensor_is_ordered() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let tensor = pooled_tensor(writer.stream())?;
    assert_eq!(modes(&tensor), [SyncMode::ConsumerStream; 3]);
    let (calls, ordered) = orders_of(|| tensor.order(reader.stream()));
    let ordered = ordered?;
    assert_eq!(calls, [1, 1], "one record and one wait for three buffers");
    assert_eq!(modes(&ordered), [SyncMode::ConsumerStream; 3]);
    read_all(&ordered, reader.stream())?;
    // Nobody else holds the bytes: they go back on the reader's stream.
    drop(tensor);
    let (calls, ()) = orders_of(|| drop(ordered));
    assert_eq!(calls, [0, 0]);
    assert_eq!(host_waits(), 0);
    drop((writer, reader));
    finish()
}

fn an_event_tensor_is_ordered() -> Done {
    make_current(0)?;
    let (writer, first, second) = (stream()?, stream()?, stream()?);
    let tensor = pooled_tensor(writer.stream())?.record(writer.stream())?;
    assert_eq!(modes(&tensor), [SyncMode::Event; 3]);
    let access = tensor.check_access(Reach::Device).unwrap_err();
    assert!(matches!(access, AccessError::NotReady { buffer: 0, .. }));
    let (calls, ordered) = orders_of(|| tensor.order(first.stream()));
    let first_read = ordered?;
    assert_eq!(calls, [0, 1], "one wait for three buffers");
    // The tensor keeps its event: the next consumer waits for the writes.
    assert_eq!(modes(&tensor), [SyncMode::Event; 3]);
    let (calls, ordered) = orders_of(|| tensor.order(second.stream()));
    let second_read = ordered?;
    assert_eq!(calls, [0, 1]);
    read_all(&first_read, first.stream())?;
    read_all(&second_read, second.stream())?;
    drop(tensor);
    let (calls, ()) = orders_of(|| drop(first_read));
    assert_eq!(calls, [1, 0], "one event for three buffers that come back");
    drop(second_read);
    assert_eq!(host_waits(), 0);
    drop((writer, first, second));
    finish()
}

/// ADR-030's open question: one stream for buffers of three modes, written on two (dmlc/dlpack#176).
fn mixed_modes_take_one_stream() -> Done {
    make_current(0)?;
    let (writer, other, reader) = (stream()?, stream()?, stream()?);
    let (ready, _) = foreign(SIZES[2], Readiness::Ready)?;
    let event = plain(pooled(SIZES[0], writer.stream())?)?.record(writer.stream())?;
    let (_, mut event) = event.into_parts();
    let buffers = [event.remove(0), pooled(SIZES[1], other.stream())?, ready];
    let tensor = quantized(buffers)?;
    let (event, stream, ready) = (
        SyncMode::Event,
        SyncMode::ConsumerStream,
        SyncMode::ProducerSynced,
    );
    assert_eq!(modes(&tensor), [event, stream, ready]);
    let (calls, ordered) = orders_of(|| tensor.order(reader.stream()));
    let ordered = ordered?;
    assert_eq!(calls, [1, 2], "each by its own mode");
    assert_eq!(modes(&ordered), [stream, stream, ready]);
    for buffer in &ordered.buffers()[..2] {
        read(buffer, reader.stream())?;
    }
    write(&ordered.buffers()[2], 2, reader.stream())?;
    drop((tensor, ordered));
    assert_eq!(host_waits(), 0);
    drop((writer, other, reader));
    finish()
}

fn equal_streams_need_nothing() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let tensor = pooled_tensor(stream.stream())?;
    let (calls, ordered) = orders_of(|| tensor.order(stream.stream()));
    assert_eq!(calls, [0, 0]);
    let ordered = ordered?;
    read_all(&ordered, stream.stream())?;
    drop(tensor);
    let again = ordered.order(stream.stream())?;
    drop(ordered);
    read_all(&again, stream.stream())?;
    drop(again);
    drop(stream);
    finish()
}

fn ready_bytes_stay_ready() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let [a, b, c] = SIZES.map(|len| foreign(len, Readiness::Ready));
    let (a, b, c) = (a?.0, b?.0, c?.0);
    let tensor = quantized([a, b, c])?;
    assert!(tensor.check_access(Reach::Device).is_ok());
    let (calls, ordered) = orders_of(|| tensor.order(stream.stream()));
    let ordered = ordered?;
    assert_eq!(calls, [0, 0]);
    assert_eq!(modes(&ordered), [SyncMode::ProducerSynced; 3]);
    assert!(Arc::ptr_eq(tensor.descriptor(), ordered.descriptor()));
    // Handed out on a stream all the same: the memory stays until the work is done.
    write_all(&ordered, 3, stream.stream())?;
    drop(tensor);
    let (calls, ()) = orders_of(|| drop(ordered));
    assert_eq!(calls, [1, 0], "one event for all that come back");
    assert_eq!(host_waits(), 0);
    drop(stream);
    finish()
}

fn the_per_thread_stream_is_never_kept() -> Done {
    make_current(0)?;
    let writer = stream()?;
    let own = default_stream(Stream::PER_THREAD)?;
    let tensor = pooled_tensor(writer.stream())?;
    let ordered = tensor.order(&own)?;
    assert_eq!(modes(&ordered), [SyncMode::Event; 3]);
    read_all(&ordered, &own)?;
    drop(tensor);
    // In another thread the number means another stream.
    std::thread::spawn(|| drop(ordered)).join().unwrap();
    assert_eq!(host_waits(), 0);
    drop(writer);
    finish()
}

fn synchronize_waits_on_the_host() -> Done {
    make_current(0)?;
    let writer = stream()?;
    let place = Place {
        memory_class: MemoryClass::HostPinned,
        ..CUDA
    };
    let buffer = Buffer::allocate(place, 4096, false, writer.stream())?;
    let tensor = plain(buffer)?;
    let ready = tensor.synchronize()?;
    assert_eq!(host_waits(), 0, "there was nothing to wait for");
    drop(tensor);
    let view = ready.order(writer.stream())?;
    write_all(&view, 7, writer.stream())?;
    let written = ready.record(writer.stream())?;
    assert!(written.check_access(Reach::Host).is_err());
    drop((ready, view));
    let read = written.synchronize()?;
    assert_eq!(host_waits(), 1);
    assert_eq!(modes(&read), [SyncMode::ProducerSynced]);
    assert!(read.check_access(Reach::Host).is_ok());
    let bytes = unsafe { std::slice::from_raw_parts(read.buffers()[0].as_ptr(), 4096) };
    assert!(bytes.iter().all(|byte| *byte == 7));
    drop((written, read, writer));
    finish()
}

fn written_views_are_seen_after_record() -> Done {
    make_current(0)?;
    let (first, second, third) = (stream()?, stream()?, stream()?);
    let tensor = pooled_tensor(first.stream())?;
    let view = tensor.order(second.stream())?;
    write_all(&view, 9, second.stream())?;
    let (calls, written) = orders_of(|| view.record(second.stream()));
    let written = written?;
    assert_eq!(calls, [1, 0]);
    drop(view);
    drop(tensor);
    let ordered = written.order(third.stream())?;
    read_all(&ordered, third.stream())?;
    drop((written, ordered));
    assert_eq!(host_waits(), 0);
    drop((first, second, third));
    finish()
}

fn a_composite_is_ordered_whole() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    let member = |stream: &CudaStream| pooled_tensor(stream.stream()).map(Item::Tensor);
    let [a, b, c] = SIZES.map(|len| foreign(len, Readiness::Ready));
    let foreign = quantized([a?.0, b?.0, c?.0])?;
    let members = vec![member(&writer)?, member(&writer)?, Item::Tensor(foreign)];
    let composite = group(members)?;
    let (calls, ordered) = orders_of(|| composite.order(reader.stream()));
    let ordered = ordered?;
    assert_eq!(calls, [1, 1], "one record and one wait for all members");
    for member in ordered.members() {
        let Item::Tensor(tensor) = member else {
            panic!("a composite")
        };
        write_all(tensor, 5, reader.stream())?;
    }
    drop(composite);
    // The pool's memory goes back on the stream itself, and the rest with one event.
    let (calls, ()) = orders_of(|| drop(ordered));
    assert_eq!(calls, [1, 0]);
    assert_eq!(host_waits(), 0);
    drop((writer, reader));
    finish()
}

fn a_stream_of_another_device_is_refused() -> Done {
    make_current(0)?;
    let (writer, other) = (stream()?, CudaStream::new(1)?);
    let tensor = pooled_tensor(writer.stream())?;
    let before = orders();
    for refused in [
        tensor.order(other.stream()).map(drop),
        tensor.record(other.stream()).map(drop),
        tensor.record_stream(other.stream()),
        tensor.order_after_readers(other.stream()),
    ] {
        let OrderError::Device(error) = refused.unwrap_err() else {
            panic!("a stream of another device")
        };
        assert_eq!(
            error,
            DeviceError::OtherDevice {
                bytes: 0,
                stream: 1
            }
        );
    }
    assert_eq!(orders(), before);
    drop((tensor, writer, other));
    finish()
}

/// A member on another vendor's device 0 is not CUDA's, whichever comes first.
fn a_stream_is_for_one_kind_of_device() -> Done {
    make_current(0)?;
    let writer = stream()?;
    let place = Place {
        device: DeviceTag::Rocm,
        ..CUDA
    };
    let nowhere = std::ptr::without_provenance_mut(64);
    let (flags, owner) = (BufferFlags::empty(), Owner::Rust(Box::new(())));
    let theirs = unsafe { Buffer::from_owner(nowhere, 64, place, Readiness::Ready, flags, owner) }?;
    let theirs = plain(theirs)?;
    for is_first in [true, false] {
        let mut members = vec![pooled_tensor(writer.stream())?, theirs.clone()];
        if is_first {
            members.reverse();
        }
        let composite = group(members.into_iter().map(Item::Tensor).collect())?;
        let before = orders();
        let refused = composite.order(writer.stream()).unwrap_err();
        assert!(
            matches!(
                &refused,
                OrderError::Device(DeviceError::Unavailable { .. })
            ),
            "{refused}"
        );
        let mut list = composite.export()?.into_raw().as_ptr();
        let number = writer.stream().number().get();
        let status = unsafe { hurray_buffer_list_release_after(&raw mut list, number) };
        assert_eq!(status, HURRAY_ERR_UNSUPPORTED);
        assert_eq!(
            unsafe { hurray_buffer_list_destroy(&raw mut list) },
            HURRAY_OK
        );
        assert_eq!(orders(), before);
        for member in composite.synchronize()?.members() {
            let Item::Tensor(tensor) = member else {
                panic!("a composite")
            };
            assert_eq!(tensor.check_access(Reach::Device), Ok(()));
        }
    }
    drop(writer);
    finish()
}

fn a_closed_stream_is_refused() -> Done {
    make_current(0)?;
    let (writer, closed) = (stream()?, stream()?);
    let tensor = pooled_tensor(writer.stream())?;
    closed.close();
    let error = tensor.order(closed.stream()).unwrap_err();
    let is_closed = matches!(
        error,
        OrderError::Device(DeviceError::Closed { object: "stream" })
    );
    assert!(is_closed, "{error}");
    assert_eq!(orders(), [0, 0]);
    drop((tensor, writer, closed));
    finish()
}

fn pointers_are_what_they_are_said_to_be() -> Done {
    make_current(0)?;
    let claim = |address: usize, len, place| {
        let pointer = std::ptr::with_exposed_provenance_mut(address);
        let owner = Owner::Rust(Box::new(()));
        let (ready, flags) = (Readiness::Ready, BufferFlags::empty());
        unsafe { Buffer::from_owner(pointer, len, place, ready, flags, owner) }.map(drop)
    };
    let mut bytes = vec![0_u8; 4096];
    let host = bytes.as_mut_ptr().expose_provenance();
    let error = claim(host, 64, CUDA).unwrap_err();
    let unknown = BufferError::Pointer(PointerError::Unknown {
        address: host,
        device_id: 0,
    });
    assert_eq!(error, unknown);
    let device = call(cuda::alloc(4096))?;
    let address = device as usize;
    assert_eq!(claim(address, 4096, CUDA), Ok(()));
    let error = claim(address, 8192, CUDA).unwrap_err();
    let short = matches!(error, BufferError::Pointer(PointerError::Short { .. }));
    assert!(short, "{error}");
    let pinned = Place {
        memory_class: MemoryClass::HostPinned,
        ..CUDA
    };
    let error = claim(address, 4096, pinned).unwrap_err();
    let other = matches!(error, BufferError::Pointer(PointerError::OtherClass { .. }));
    assert!(other, "{error}");
    call(cuda::free(device))?;
    finish()
}

fn memory_of_the_cpu_waits_too() -> Done {
    use std::sync::atomic::{AtomicBool, Ordering};
    struct Gone(Arc<AtomicBool>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    make_current(0)?;
    let stream = stream()?;
    let gone = Arc::new(AtomicBool::new(false));
    let mut bytes = hurray_core::memory::AlignedBytes::zeroed(4096)?;
    let pointer = bytes.as_mut_ptr();
    let owner = Owner::Rust(Box::new((bytes, Gone(Arc::clone(&gone)))));
    let (ready, flags) = (Readiness::Ready, BufferFlags::empty());
    let buffer = unsafe { Buffer::from_owner(pointer, 4096, Place::HOST, ready, flags, owner) }?;
    let tensor = plain(buffer)?;
    let ordered = tensor.order(stream.stream())?;
    assert_eq!(modes(&ordered), [SyncMode::ProducerSynced]);
    assert!(ordered.check_access(Reach::Host).is_ok());
    for refused in [
        tensor.record(stream.stream()).map(drop),
        tensor.record_stream(stream.stream()),
        tensor.order_after_readers(stream.stream()),
    ] {
        let error = refused.unwrap_err();
        let is_host = matches!(
            error,
            OrderError::Access(AccessError::HostMemory { buffer: 0 })
        );
        assert!(is_host, "{error}");
    }
    // Something that isn't done by the time the bytes are let go.
    let target = pooled(4096, stream.stream())?;
    write(&target, 1, stream.stream())?;
    drop(tensor);
    let (calls, ()) = orders_of(|| drop(ordered));
    assert_eq!(calls, [1, 0]);
    hurray_cuda::flush();
    assert!(gone.load(Ordering::SeqCst));
    assert_eq!(LAYER.device_count(), Ok(1));
    assert_eq!(live(c"event"), 1, "back in the pool");
    drop((target, stream));
    finish()
}
