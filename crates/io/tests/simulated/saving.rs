//! Saving from a device, and writing streams from one.

use std::ops::ControlFlow;

use hurray_core::{
    CompositionRule, DeviceTag, ElementType, Layout, MemoryClass, Stream, SyncMode,
    TensorDescriptor,
};
use hurray_cuda_programs::cuda;
use hurray_ffi::{Buffer, Composite, Item, Place, Tensor};
use hurray_io::{
    FileError, FileOptions, FileReader, FileWriter, StreamError, StreamLimits, StreamReader,
    StreamWriter, save,
};
use libtest_mimic::Trial;

use crate::CUDA;
use crate::device::{call, finish, handle, host_waits, make_current, stream};
use crate::harness::{Done, Scenario, clean, clean_on, sweep};
use crate::loading::every_driver_error;
use crate::tensors::{bytes_of, head};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("a_stream_takes_what_is_still_being_written", || {
        a_stream_takes_what_is_still_being_written(6)
    }),
    ("large_tensors_are_saved", large_tensors_are_saved),
    ("two_devices_in_one_stream", two_devices_in_one_stream),
    ("a_full_sink_leaves_nothing", a_full_sink_leaves_nothing),
    (
        "pinned_and_unified_memory_is_saved",
        pinned_and_unified_memory_is_saved,
    ),
];

/// When the writer returns, the host has waited for every copy, and so for what the copy has waited for.
const NEEDLESS: &[(&str, u64)] = &[
    // What frees a tensor waits for its producer and for the copy.
    ("cuStreamWaitEvent", 7),
    ("cuStreamWaitEvent", 8),
    ("cuStreamWaitEvent", 9),
    ("cuStreamWaitEvent", 10),
    ("cuStreamWaitEvent", 11),
    ("cuStreamWaitEvent", 12),
    ("cuStreamWaitEvent", 13),
    ("cuStreamWaitEvent", 14),
    ("cuStreamWaitEvent", 15),
    ("cuStreamWaitEvent", 16),
    ("cuStreamWaitEvent", 17),
    ("cuStreamWaitEvent", 18),
    // Each tensor has two on its producer's stream, of which the second says when it can be read; each copy has one for its chunk, and one for the
    // tensor.
    ("cuEventRecord", 1),
    ("cuEventRecord", 3),
    ("cuEventRecord", 5),
    ("cuEventRecord", 7),
    ("cuEventRecord", 9),
    ("cuEventRecord", 11),
    ("cuEventRecord", 14),
    ("cuEventRecord", 16),
    ("cuEventRecord", 18),
    ("cuEventRecord", 20),
    ("cuEventRecord", 22),
    ("cuEventRecord", 24),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("a_stream_takes_what_is_still_being_written"),
        clean_on("a_stream_takes_what_is_still_being_written", |run| {
            run.pools(false)
        }),
        sweep("a_stream_takes_what_is_still_being_written", NEEDLESS),
        Trial::test("every_driver_error_while_saving_is_an_error_value", || {
            every_driver_error("a_stream_takes_what_is_still_being_written")
        }),
        clean("large_tensors_are_saved"),
        clean_on("two_devices_in_one_stream", |run| run.devices(2)),
        clean("a_full_sink_leaves_nothing"),
        clean("pinned_and_unified_memory_is_saved"),
    ]
}

type Made<T> = Result<T, Box<dyn std::error::Error>>;

/// A tensor at `place` that is being filled with `byte` on `producer`.
fn being_filled(place: Place, len: usize, byte: u8, producer: &Stream) -> Made<Tensor> {
    let buffer = Buffer::allocate(place, len, false, producer)?;
    let address = buffer.as_ptr().addr() as u64;
    let rows = [buffer.handle()];
    let shape = [len as u64];
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, shape.as_slice(), Layout::RowMajor, rows);
    let tensor = Tensor::new(descriptor, vec![buffer])?;
    let out = tensor.order(producer)?;
    call(cuda::fill(address, byte, len, handle(producer)))?;
    drop(out);
    Ok(tensor.record(producer)?)
}

fn group(members: Vec<Item>) -> Composite {
    let head = head(CompositionRule::Group, &[], members.len() as u32);
    Composite::new(head, members).unwrap()
}

/// A composite whose members are written on the producer's stream still, more of them than a ring has chunks. Its last holder lets it go before
/// anybody waits.
fn a_stream_takes_what_is_still_being_written(count: usize) -> Done {
    make_current(0)?;
    let producer = stream()?;
    let members: Made<Vec<_>> = (0..count)
        .map(|number| {
            let tensor = being_filled(CUDA, 4096, number as u8 + 1, producer.stream());
            Ok(Item::Tensor(tensor?))
        })
        .collect();
    let item = Item::Composite(group(members?));
    let mut writer = StreamWriter::new(Vec::new(), StreamLimits::default());
    let before = host_waits();
    writer.write_item(&item)?;
    // One for each chunk.
    assert_eq!(host_waits() - before, count as u64);
    drop(item);
    let bytes = writer.finish()?;
    let read = StreamReader::new(bytes.as_slice(), StreamLimits::default()).next_item()?;
    let Some(Item::Composite(composite)) = read else {
        panic!("a composite");
    };
    for (number, member) in composite.members().iter().enumerate() {
        let Item::Tensor(member) = member else {
            panic!("a tensor");
        };
        let row = member.descriptor().buffers[0];
        assert_eq!(row.device, DeviceTag::Cpu);
        assert_eq!(row.sync_mode, SyncMode::ProducerSynced);
        assert_eq!(row.memory_class, MemoryClass::Standard);
        assert_eq!(bytes_of(member, 0), [number as u8 + 1; 4096]);
    }
    drop(producer);
    finish()
}

fn large_tensors_are_saved() -> Done {
    let producer = stream()?;
    let sizes = [(21 << 20) + 5, 100, 0, 4 << 20];
    let items: Made<Vec<_>> = sizes
        .iter()
        .enumerate()
        .map(|(number, &len)| {
            let tensor = being_filled(CUDA, len, number as u8 + 1, producer.stream())?;
            Ok((format!("t{number}"), Item::Tensor(tensor)))
        })
        .collect();
    let items = items?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("w.hrry");
    let mut last = (0, 0);
    let borrowed = items.iter().map(|(name, item)| (name.as_str(), item));
    save(
        &path,
        borrowed,
        &[],
        FileOptions::default(),
        &mut |done, total| {
            last = (done, total);
            ControlFlow::Continue(())
        },
    )?;
    let len = std::fs::metadata(&path)?.len();
    assert_eq!(last, (len, len));
    drop(items);
    let reader = FileReader::open(&path)?;
    for (number, &len) in sizes.iter().enumerate() {
        let tensor = reader.tensor(&format!("t{number}"))?;
        assert_eq!(tensor.descriptor().buffers[0].device, DeviceTag::Cpu);
        assert!(
            bytes_of(&tensor, 0) == vec![number as u8 + 1; len],
            "{number}"
        );
    }
    drop(producer);
    finish()
}

fn two_devices_in_one_stream() -> Done {
    let producers = [
        hurray_cuda::CudaStream::new(0)?,
        hurray_cuda::CudaStream::new(1)?,
    ];
    let members: Made<Vec<_>> = (0..9)
        .map(|number| {
            let device_id = number % 2;
            let place = Place { device_id, ..CUDA };
            make_current(device_id.cast_signed())?;
            let producer = producers[device_id as usize].stream();
            let tensor = being_filled(place, 5000, number as u8 + 1, producer)?;
            Ok(Item::Tensor(tensor))
        })
        .collect();
    let item = Item::Composite(group(members?));
    let mut writer = StreamWriter::new(Vec::new(), StreamLimits::default());
    writer.write_item(&item)?;
    drop(item);
    let bytes = writer.finish()?;
    let read = StreamReader::new(bytes.as_slice(), StreamLimits::default()).next_item()?;
    let Some(Item::Composite(composite)) = read else {
        panic!("a composite");
    };
    for (number, member) in composite.members().iter().enumerate() {
        let Item::Tensor(member) = member else {
            panic!("a tensor");
        };
        assert_eq!(bytes_of(member, 0), [number as u8 + 1; 5000]);
    }
    drop(producers);
    finish()
}

fn a_full_sink_leaves_nothing() -> Done {
    let producer = stream()?;
    let tensor = being_filled(CUDA, 18 << 20, 3, producer.stream())?;
    let item = Item::Tensor(tensor);
    for room in [100, 5000, 5 << 20, (18 << 20) + 4000] {
        let mut space = vec![0; room];
        let mut writer = FileWriter::new(space.as_mut_slice(), FileOptions::default())?;
        let error = writer.write_item("w", &item).unwrap_err();
        assert!(matches!(error, FileError::Io(_)), "{error}");
        space.truncate(17 << 20);
        let mut writer = StreamWriter::new(space.as_mut_slice(), StreamLimits::default());
        let error = writer.write_item(&item).unwrap_err();
        assert!(matches!(error, StreamError::Io(_)), "{error}");
    }
    assert_eq!(hurray_cuda::kept(), 0);
    drop((item, producer));
    finish()
}

/// The host reaches it, and waits for it as a device would.
fn pinned_and_unified_memory_is_saved() -> Done {
    let producer = stream()?;
    for memory_class in [MemoryClass::HostPinned, MemoryClass::Unified] {
        let place = Place {
            memory_class,
            ..CUDA
        };
        let tensor = being_filled(place, 10_000, 9, producer.stream())?;
        let mut writer = FileWriter::new(Vec::new(), FileOptions::default())?;
        writer.write_item("w", &Item::Tensor(tensor))?;
        let file = writer.finish()?;
        let reader = FileReader::new(crate::tensors::memory(&file))?;
        assert_eq!(bytes_of(&reader.tensor("w")?, 0), [9; 10_000]);
    }
    drop(producer);
    finish()
}
