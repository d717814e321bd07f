//! Loading to a device.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use hurray_core::{CopyRequest, DeviceLayer, DeviceTag, MemoryClass, Stream, SyncMode};
use hurray_cuda::LAYER;
use hurray_cuda_programs::cuda;
use hurray_ffi::access::Reach;
use hurray_ffi::{Buffer, Item, Place, Tensor};
use hurray_io::{FileError, FileOptions, FileReader, FileWriter, Target};
use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::CUDA;
use crate::device::{call, finish, handle, host_waits, make_current, stream};
use crate::harness::{Done, Scenario, assert_clean, assert_handled, child, clean, clean_on, sweep};
use crate::tensors::{bytes_tensor, rows_partition};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("everything_in_a_file_arrives", everything_in_a_file_arrives),
    ("a_few_small_tensors_arrive", a_few_small_tensors_arrive),
    (
        "a_tensor_of_many_chunks_is_waited_for_as_a_whole",
        a_tensor_of_many_chunks_is_waited_for_as_a_whole,
    ),
    (
        "many_chunks_on_several_threads",
        many_chunks_on_several_threads,
    ),
    ("pinned_memory_is_filled_too", pinned_memory_is_filled_too),
    ("another_device_is_filled", another_device_is_filled),
    ("what_fails_leaves_nothing", what_fails_leaves_nothing),
];

/// The host has waited for the copies of the first three tensors, since their chunks were used again.
const NEEDLESS: &[(&str, u64)] = &[
    ("cuStreamWaitEvent", 1),
    ("cuStreamWaitEvent", 2),
    ("cuStreamWaitEvent", 3),
    // Each tensor has two: when its chunk is free and when it can be read. So the second of the first three, and the first of those whose chunks
    // are not used again; the last one covers them when the memory of the ring is freed.
    ("cuEventRecord", 2),
    ("cuEventRecord", 4),
    ("cuEventRecord", 6),
    ("cuEventRecord", 7),
    ("cuEventRecord", 9),
    ("cuEventRecord", 11),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("everything_in_a_file_arrives"),
        clean_on("everything_in_a_file_arrives", |run| run.pools(false)),
        clean("a_few_small_tensors_arrive"),
        sweep("a_few_small_tensors_arrive", NEEDLESS),
        Trial::test("every_driver_error_while_loading_is_an_error_value", || {
            every_driver_error("a_few_small_tensors_arrive")
        }),
        clean("a_tensor_of_many_chunks_is_waited_for_as_a_whole"),
        clean("many_chunks_on_several_threads"),
        clean("pinned_memory_is_filled_too"),
        clean_on("another_device_is_filled", |run| run.devices(2)),
        clean("what_fails_leaves_nothing"),
    ]
}

/// That wherever the driver fails, the run ends in success or an error value, and nothing is handed out or freed early.
pub(crate) fn every_driver_error(name: &'static str) -> Result<(), Failed> {
    const UNKNOWN: u32 = 999;
    let sound = child(name).logged().run();
    assert_clean(&sound);
    let total = sound.log.len() as u64;
    assert!(total > 50, "{total}");
    for n in 1..=total {
        let outcome = child(name).fail("*", n, UNKNOWN).run();
        assert_handled(&outcome, &format!("call {n} of {total}"));
    }
    Ok(())
}

/// A pattern that shows which byte of which tensor it is.
pub(crate) fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 251 * 7 + at + number * 31) as u8)
        .collect()
}

/// A file of tensors of these sizes.
fn file(sizes: &[usize], alignment: u32) -> (TempDir, PathBuf, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    let mut options = FileOptions::default();
    options.alignment = alignment;
    let mut writer = FileWriter::new(File::create(&path).unwrap(), options).unwrap();
    let mut names = Vec::new();
    for (number, &len) in sizes.iter().enumerate() {
        let name = format!("t{number}");
        let item = Item::Tensor(bytes_tensor(&pattern(number, len)));
        writer.write_item(&name, &item).unwrap();
        names.push(name);
    }
    writer.finish().unwrap();
    (folder, path, names)
}

fn load(reader: &FileReader, names: &[String], place: Place) -> Result<Vec<Item>, FileError> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    reader.items(&names, Target::Device(place), &mut |_, _| {
        ControlFlow::Continue(())
    })
}

/// Brings a tensor's buffer onto a stream and its bytes to the host.
pub(crate) fn read(
    tensor: &Tensor,
    index: usize,
    stream: &Stream,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let ordered = tensor.order(stream)?;
    let buffer = &ordered.buffers()[index];
    let mut bytes = vec![0; buffer.len()];
    let place = buffer.place();
    let device_id = (!place.is_host_accessible()).then_some(place.device_id);
    let copy = CopyRequest::contiguous(
        (buffer.as_ptr().addr(), device_id),
        (bytes.as_mut_ptr().expose_provenance(), None),
        buffer.len(),
    );
    // SAFETY: the source is out on the stream, and the target is not looked at before it has arrived.
    unsafe { LAYER.copy(&[copy], stream) }?;
    Ok(bytes)
}

fn tensor(item: &Item) -> &Tensor {
    match item {
        Item::Tensor(tensor) => tensor,
        Item::Composite(_) => panic!("a tensor"),
    }
}

/// Odd sizes, none, a composite, more than a chunk: mapped, not mapped, and in memory.
fn everything_in_a_file_arrives() -> Done {
    let (_folder, path, mut names) = file(&[1, 4096, 100, 0, 5 << 20, 3_098_112, 77], 4096);
    let copy = path.with_extension("composite");
    let mut writer = FileWriter::new(File::create(&copy)?, FileOptions::default())?;
    let reader = FileReader::open(&path)?;
    for name in &names {
        writer.write_item(name, &Item::Tensor(reader.tensor(name)?))?;
    }
    writer.write_item("p", &Item::Composite(rows_partition(5)))?;
    writer.finish()?;
    names.reverse();
    names.push("p".to_owned());
    let consumer = stream()?;
    let in_memory = crate::tensors::memory(&std::fs::read(&copy)?);
    let opened = [
        FileReader::open(&copy)?,
        FileReader::open_unmapped(&copy)?,
        FileReader::new(in_memory)?,
    ];
    for reader in opened {
        let items = load(&reader, &names, CUDA)?;
        drop(reader);
        for (item, name) in items.iter().zip(&names) {
            let Item::Tensor(tensor) = item else {
                continue;
            };
            let row = tensor.descriptor().buffers[0];
            assert_eq!(
                (row.device, row.sync_mode),
                (DeviceTag::Cuda, SyncMode::Event)
            );
            assert!(tensor.check_access(Reach::Device).is_err());
            let number: usize = name[1..].parse()?;
            let len = tensor.buffers()[0].len();
            assert!(
                read(tensor, 0, consumer.stream())? == pattern(number, len),
                "{name}"
            );
        }
        let Some(Item::Composite(composite)) = items.last() else {
            panic!("a composite");
        };
        for (number, member) in composite.members().iter().enumerate() {
            let member = tensor(member);
            assert_eq!(member.descriptor().buffers[0].sync_mode, SyncMode::Event);
            assert_eq!(read(member, 0, consumer.stream())?, [number as u8; 4]);
        }
    }
    drop(consumer);
    finish()
}

/// Each in a chunk of its own, so that chunks are used again: the host waits for those and for nothing else, and readers on another stream for their
/// tensors only.
fn a_few_small_tensors_arrive() -> Done {
    const COUNT: usize = 7;
    make_current(0)?;
    let (_folder, path, names) = file(&[4096; COUNT], 1 << 17);
    let consumer = stream()?;
    let reader = FileReader::open_unmapped(&path)?;
    let before = host_waits();
    let items = load(&reader, &names, CUDA)?;
    // A ring has four chunks.
    assert_eq!(host_waits() - before, COUNT as u64 - 4);
    for item in &items {
        let ordered = tensor(item).order(consumer.stream())?;
        consume(&ordered.buffers()[0], consumer.stream())?;
    }
    assert_eq!(host_waits() - before, COUNT as u64 - 4);
    drop(items);
    drop(consumer);
    finish()
}

/// Copies the bytes to memory that is let go at once.
fn consume(buffer: &Buffer, stream: &Stream) -> Done {
    let target = Buffer::allocate(CUDA, buffer.len(), false, stream)?;
    let [from, to] = [buffer, &target].map(|buffer| buffer.as_ptr().addr() as u64);
    call(cuda::copy(to, from, buffer.len(), handle(stream)))
}

/// By one thread and by several, and read before the host knows anything of it.
fn a_tensor_of_many_chunks_is_waited_for_as_a_whole() -> Done {
    make_current(0)?;
    for len in [5 << 20, 17 << 20] {
        let (_folder, path, names) = file(&[len], 4096);
        let consumer = stream()?;
        let items = load(&FileReader::open_unmapped(&path)?, &names, CUDA)?;
        let ordered = tensor(&items[0]).order(consumer.stream())?;
        consume(&ordered.buffers()[0], consumer.stream())?;
    }
    finish()
}

fn many_chunks_on_several_threads() -> Done {
    let mut sizes = vec![11 << 20, 9 << 20, 6_000_001];
    sizes.extend([1000; 300]);
    let (_folder, path, names) = file(&sizes, 4096);
    let consumer = stream()?;
    let reader = FileReader::open_unmapped(&path)?;
    // The stand-in driver's device memory is no memory that is counted here.
    let (peak, items) = crate::counting::peak(|| load(&reader, &names, CUDA));
    assert!(peak < 1 << 20, "{peak}");
    let items = items?;
    for (number, item) in items.iter().enumerate() {
        let expected = pattern(number, sizes[number]);
        assert!(
            read(tensor(item), 0, consumer.stream())? == expected,
            "{number}"
        );
    }
    drop((items, consumer));
    finish()
}

fn pinned_memory_is_filled_too() -> Done {
    let place = Place {
        memory_class: MemoryClass::HostPinned,
        ..CUDA
    };
    let (_folder, path, names) = file(&[5000, 4096], 4096);
    let items = load(&FileReader::open_unmapped(&path)?, &names, place)?;
    for (number, item) in items.iter().enumerate() {
        let ready = tensor(item).synchronize()?;
        ready.check_access(Reach::Host)?;
        let expected = pattern(number, ready.buffers()[0].len());
        assert_eq!(crate::tensors::bytes_of(&ready, 0), expected);
    }
    drop(items);
    finish()
}

fn another_device_is_filled() -> Done {
    let place = Place {
        device_id: 1,
        ..CUDA
    };
    let (_folder, path, names) = file(&[5000, 4096], 4096);
    let items = load(&FileReader::open_unmapped(&path)?, &names, place)?;
    let consumer = hurray_cuda::CudaStream::new(1)?;
    for (number, item) in items.iter().enumerate() {
        let tensor = tensor(item);
        assert_eq!(tensor.buffers()[0].place(), place);
        let expected = pattern(number, tensor.buffers()[0].len());
        assert_eq!(read(tensor, 0, consumer.stream())?, expected);
    }
    drop((items, consumer));
    finish()
}

/// A file that is cut while it is read, a stop, a device that is not there: nothing is kept, and the next load goes well.
fn what_fails_leaves_nothing() -> Done {
    let sizes = [6 << 20, 6 << 20, 100];
    let (_folder, path, names) = file(&sizes, 4096);
    let reader = FileReader::open_unmapped(&path)?;
    let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    for stop in 1..3 {
        let mut told = 0;
        let result = reader.items(&wanted, Target::Device(CUDA), &mut |_, _| {
            told += 1;
            if told == stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        // Told at least once; a second time where other threads leave it something.
        assert!(matches!(result, Err(FileError::Stopped)) || told < stop);
    }
    drop(load(&reader, &names, CUDA)?);
    let missing = Place {
        device_id: 7,
        ..CUDA
    };
    assert!(matches!(
        load(&reader, &names, missing),
        Err(FileError::Device(_))
    ));
    cut(&path, 8 << 20);
    assert!(matches!(load(&reader, &names, CUDA), Err(FileError::Io(_))));
    assert_eq!(hurray_cuda::kept(), 0);
    finish()
}

fn cut(path: &Path, len: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}
