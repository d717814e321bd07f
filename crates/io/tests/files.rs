//! Files that our writer makes, and what it refuses.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod counting;
mod tensors;

use hurray_core::{
    CompositionRule, DeviceTag, ElementType, Layout, MemoryClass, SyncMode, TensorDescriptor,
};
use hurray_ffi::access::AccessError;
use hurray_ffi::{Buffer, Callback, Composite, Item, Owner, Place, Readiness, Tensor, TensorError};
use hurray_io::{Array, FileError, FileOptions, FileReader, FileWriter, OutgoingError, Value};
use tensors::{bytes_of, bytes_tensor, head, memory, row};

fn written(items: &[(&str, Item)], options: FileOptions) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), options).unwrap();
    for (name, item) in items {
        writer.write_item(name, item).unwrap();
    }
    writer.finish().unwrap()
}

fn file(items: &[(&str, Item)]) -> Vec<u8> {
    written(items, FileOptions::default())
}

fn read(bytes: &[u8]) -> FileReader {
    FileReader::new(memory(bytes)).unwrap()
}

#[test]
fn an_empty_file_has_112_bytes() {
    assert_eq!(file(&[]).len(), 112);
}

#[test]
fn fc42_a_name_that_the_file_lacks() {
    let reader = read(&file(&[("a", Item::Tensor(bytes_tensor(&[1])))]));
    for error in [
        reader.tensor("b").map(drop).unwrap_err(),
        reader.item("").map(drop).unwrap_err(),
        reader.descriptor("aa").map(drop).unwrap_err(),
    ] {
        assert_eq!(error.rule(), "FC42", "{error}");
    }
}

/// I1: every buffer begins on the file's alignment, whatever lies before it, so a mapped one satisfies any consumer.
#[test]
fn i1_every_mapped_buffer_is_aligned() {
    for alignment in [4096, 65536, 1 << 21] {
        let mut options = FileOptions::default();
        options.alignment = alignment;
        let odd: Vec<_> = [3, 5, 0, 4097]
            .iter()
            .map(|&len| Item::Tensor(bytes_tensor(&vec![7; len])))
            .collect();
        let names = ["a", "b", "c", "d"];
        let items: Vec<_> = names.into_iter().zip(odd).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd.hrry");
        std::fs::write(&path, written(&items, options)).unwrap();
        let reader = FileReader::open(&path).unwrap();
        assert_eq!(reader.container().alignment(), alignment);
        for (entry, (name, item)) in reader.container().entries().iter().zip(&items) {
            assert_eq!(entry.data_offset % u64::from(alignment), 0);
            let tensor = reader.tensor(name).unwrap();
            let Item::Tensor(original) = item else {
                continue;
            };
            assert_eq!(bytes_of(&tensor, 0), bytes_of(original, 0));
            if !tensor.buffers()[0].is_empty() {
                assert_eq!(tensor.buffers()[0].as_ptr().addr() % 4096, 0);
                assert_eq!(tensor.descriptor().buffers[0].alignment, 4096);
            }
        }
    }
}

/// I6: bytes that a transport has moved off their alignment are refused, not handed out.
#[test]
fn i6_every_offset_that_is_no_multiple_of_64_is_refused() {
    let bytes = file(&[("w", Item::Tensor(bytes_tensor(&[7; 100])))]);
    for offset in 0..128 {
        let moved = memory(&[vec![0; offset], bytes.clone()].concat());
        let reader = FileReader::new(moved.slice(offset, bytes.len()).unwrap()).unwrap();
        match reader.tensor("w") {
            Ok(tensor) => {
                assert_eq!(offset % 64, 0);
                assert_eq!(bytes_of(&tensor, 0), [7; 100]);
            }
            Err(FileError::Tensor { source, .. }) => {
                assert_ne!(offset % 64, 0);
                assert!(matches!(source, TensorError::UnderAligned { .. }));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_map_lives_as_long_as_a_tensor_and_the_path_may_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    std::fs::write(
        &path,
        file(&[("w", Item::Tensor(bytes_tensor(&[9; 5000])))]),
    )
    .unwrap();
    let tensor = FileReader::open(&path).unwrap().tensor("w").unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, file(&[])).unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert!(bytes_of(&tensor, 0).iter().all(|&byte| byte == 9));
    assert!(matches!(tensor.buffers()[0].owner(), Owner::Map(_)));
}

/// Decision 15: equal tensors make equal files, wherever their bytes are.
#[test]
fn rows_say_what_the_bytes_in_the_file_are() {
    let plain = bytes_tensor(&[5; 100]);
    let descriptor = |row| {
        TensorDescriptor::new(
            ElementType::Uint8,
            [100].as_slice(),
            Layout::RowMajor,
            [row],
        )
    };
    let mut page = row(100);
    page.alignment = 4096;
    let aligned =
        hurray_core::memory::AlignedBytes::zeroed_with_alignment(100, 4096).map(|mut bytes| {
            bytes.fill(5);
            Buffer::from(bytes)
        });
    let aligned = Tensor::new(descriptor(page), vec![aligned.unwrap()]).unwrap();
    let mut pinned = row(100);
    pinned.device = DeviceTag::Cuda;
    pinned.memory_class = MemoryClass::HostPinned;
    let place = Place {
        device: DeviceTag::Cuda,
        device_id: 3,
        memory_class: MemoryClass::HostPinned,
    };
    let pinned = Tensor::new(descriptor(pinned), vec![elsewhere(place, Readiness::Ready)]).unwrap();
    let expected = file(&[("w", Item::Tensor(plain))]);
    for tensor in [aligned, pinned] {
        assert!(file(&[("w", Item::Tensor(tensor))]) == expected);
    }
    let reader = read(&expected);
    assert_eq!(
        reader.descriptor("w").unwrap().buffers[0].device,
        DeviceTag::Cpu
    );
}

/// 100 bytes of 5 that are said to be at `place`.
#[expect(unsafe_code, reason = "puts host memory where no memory is")]
fn elsewhere(place: Place, readiness: Readiness) -> Buffer {
    let mut bytes = hurray_core::memory::AlignedBytes::zeroed(100).unwrap();
    bytes.fill(5);
    let address = bytes.as_mut_ptr();
    let owner = Owner::Rust(Box::new(bytes));
    // SAFETY: the owner is the memory, and nobody else has it.
    unsafe { Buffer::from_owner(address, 100, place, readiness, Default::default(), owner) }
        .unwrap()
}

#[test]
fn bytes_that_may_not_be_read_are_not_written() {
    for (memory_class, mode) in [
        (MemoryClass::Standard, SyncMode::ProducerSynced),
        (MemoryClass::HostPinned, SyncMode::Event),
    ] {
        let place = Place {
            device: DeviceTag::Cuda,
            device_id: 0,
            memory_class,
        };
        let buffer = elsewhere(place, mode.into());
        let rows = [buffer.handle()];
        let descriptor =
            TensorDescriptor::new(ElementType::Uint8, [100].as_slice(), Layout::RowMajor, rows);
        let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
        let error = writer
            .write_tensor("w", descriptor, vec![buffer])
            .unwrap_err();
        let FileError::Unwritable { source, .. } = error else {
            panic!("{error}");
        };
        let is_right = match source {
            OutgoingError::Access(AccessError::NothingToWaitFor { .. }) => mode == SyncMode::Event,
            OutgoingError::Access(AccessError::NotOnHost { .. }) => mode != SyncMode::Event,
            _ => false,
        };
        assert!(is_right, "{mode}: {source}");
        // Nothing of it was written.
        assert_eq!(writer.finish().unwrap(), file(&[]));
    }
}

/// Decision 15 and `sync.md`: a declared tensor keeps its rows and bytes from file to file, and its bytes are refused.
#[test]
fn declared_tensors_are_repeated_unchanged() {
    let mut rows = [row(100)];
    rows[0].device = DeviceTag::Cuda;
    rows[0].sync_mode = SyncMode::Event;
    rows[0].alignment = 256;
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, [100].as_slice(), Layout::RowMajor, rows);
    let mut aligned = hurray_core::memory::AlignedBytes::zeroed_with_alignment(100, 4096).unwrap();
    aligned.fill(6);
    let buffer = Buffer::from(aligned).declared();
    let tensor = Tensor::new(descriptor.clone(), vec![buffer]).unwrap();
    let bytes = file(&[("d", Item::Tensor(tensor))]);
    let reader = read(&bytes);
    let tensor = reader.tensor("d").unwrap();
    assert_eq!(**tensor.descriptor(), descriptor);
    assert_eq!(bytes_of(&tensor, 0), [6; 100]);
    assert!(matches!(
        tensor.check_access(hurray_ffi::access::Reach::Host),
        Err(AccessError::Declared { .. })
    ));
    assert!(file(&[("d", Item::Tensor(tensor))]) == bytes);
}

/// Decision 19: what lies before the first element stays in the process.
#[test]
fn nothing_before_the_first_element_is_written() {
    let secret = [b"secret".repeat(10).as_slice(), &[0; 4], &[1, 2, 3, 4]].concat();
    let cases: [(&[u64], Layout, u64, u64); 3] = [
        (&[4], Layout::RowMajor, 64, 0),
        (&[0], Layout::RowMajor, 64, 0),
        // The lowest element is three below the first.
        (&[4], Layout::Strided([-1].as_slice().into()), 67, 3),
    ];
    for (shape, layout, byte_offset, rebased) in cases {
        let mut descriptor =
            TensorDescriptor::new(ElementType::Uint8, shape, layout, [row(secret.len())]);
        descriptor.byte_offset = byte_offset;
        let tensor = Tensor::new(descriptor, vec![memory(&secret)]).unwrap();
        let bytes = file(&[("w", Item::Tensor(tensor))]);
        assert!(!bytes.windows(6).any(|window| window == b"secret"));
        let reader = read(&bytes);
        let tensor = reader.tensor("w").unwrap();
        assert_eq!(tensor.descriptor().byte_offset, rebased);
        assert_eq!(bytes_of(&tensor, 0), [1, 2, 3, 4]);
    }
}

#[test]
fn bytes_at_any_address_make_the_same_file_as_a_tensor() {
    let memory = [0, 1, 2, 3, 4, 5];
    let mut descriptor = TensorDescriptor::new(
        ElementType::Uint8,
        [5].as_slice(),
        Layout::RowMajor,
        [row(5)],
    );
    // Rows are written as the bytes in the file have it.
    descriptor.buffers[0].alignment = 4096;
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    writer
        .write_bytes("w", descriptor.clone(), &[&memory[1..]])
        .unwrap();
    let tensor = Item::Tensor(bytes_tensor(&[1, 2, 3, 4, 5]));
    assert_eq!(writer.finish().unwrap(), file(&[("w", tensor)]));

    let refused = |bytes: &[&[u8]]| {
        let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
        match writer.write_bytes("w", descriptor.clone(), bytes) {
            Err(FileError::Tensor { source, .. }) => source,
            other => panic!("{other:?}"),
        }
    };
    let (row, found) = (5, 6);
    assert_eq!(
        refused(&[&memory]),
        TensorError::TooSmall {
            buffer: 0,
            row,
            found
        }
    );
    let (rows, buffers) = (1, 0);
    assert_eq!(refused(&[]), TensorError::BufferCount { rows, buffers });
}

/// Private and unknown quantization sections, private layouts and what a later minor version appends are relayed.
#[test]
fn what_is_not_known_is_relayed() {
    for name in ["f01-minor-1", "f05-quant-private", "14-private-layout"] {
        let path = format!(
            "{}/../../tests/vectors/streams/{name}.bin",
            env!("CARGO_MANIFEST_DIR")
        );
        let stream = std::fs::read(path).unwrap();
        let (descriptor, len) = TensorDescriptor::decode(&stream).unwrap();
        let tensor = Tensor::new(descriptor, vec![memory(&stream[len..])]).unwrap();
        let bytes = file(&[("t", Item::Tensor(tensor))]);
        assert_eq!(&bytes[64..64 + len], &stream[..len], "{name}");
        let again = read(&bytes).tensor("t").unwrap();
        assert!(file(&[("t", Item::Tensor(again))]) == bytes, "{name}");
    }
}

#[test]
fn names_and_keys_are_checked_before_anything_is_written() {
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    let item = Item::Tensor(bytes_tensor(&[1]));
    let long = "n".repeat(65536);
    for name in ["", &long] {
        let error = writer.write_item(name, &item).unwrap_err();
        assert!(matches!(error, FileError::NameLength { len } if len == name.len()));
    }
    writer.write_item(&long[1..], &item).unwrap();
    let error = writer.write_item(&long[1..], &item).unwrap_err();
    assert_eq!(error.rule(), "FC12");
    let reader = read(&writer.finish().unwrap());
    assert_eq!(reader.container().entries().len(), 1);

    let finish = |pairs: &[(&str, Value)]| {
        let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
        for (key, value) in pairs {
            writer.push_metadata(*key, value.clone());
        }
        writer.finish()
    };
    let one = Value::Int64(1);
    let empty = Value::Array(Array::Bool(Vec::new()));
    assert!(matches!(
        finish(&[("", one.clone())]),
        Err(FileError::KeyLength { len: 0 })
    ));
    assert!(matches!(
        finish(&[("k", empty)]),
        Err(FileError::EmptyArray { .. })
    ));
    let twice = finish(&[("k", one.clone()), ("k", one)]).unwrap_err();
    assert_eq!(twice.rule(), "FC17");
}

#[test]
fn options_that_are_not_offered_are_refused() {
    for alignment in [0, 1, 64, 2048, 4097, 1 << 22] {
        let mut options = FileOptions::default();
        options.alignment = alignment;
        let error = FileWriter::new(Vec::new(), options).map(drop).unwrap_err();
        assert_eq!(error.rule(), "FC29");
    }
}

#[test]
fn a_composite_that_misses_members_or_has_a_wrong_one_is_not_finished() {
    let group = || head(CompositionRule::Group, &[], 2);
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    writer.write_tensor("g", group(), Vec::new()).unwrap();
    let item = Item::Tensor(bytes_tensor(&[1]));
    writer.write_item("m", &item).unwrap();
    assert!(matches!(writer.finish(), Err(FileError::Unfinished)));

    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    let partition = head(CompositionRule::Partition, &[1], 1);
    writer.write_tensor("p", partition, Vec::new()).unwrap();
    let error = writer.write_item("m", &item).unwrap_err();
    assert_eq!(error.rule(), "FC26");
    assert!(matches!(
        writer.write_item("n", &item),
        Err(FileError::Unfinished)
    ));
    assert!(matches!(writer.finish(), Err(FileError::Unfinished)));
}

/// What was counted in for a composite is not in the file when a later member is refused: whatever came next would lie elsewhere than it says.
#[test]
fn a_composite_with_a_member_that_is_refused_is_not_finished() {
    let place = Place {
        device: DeviceTag::Cuda,
        device_id: 0,
        memory_class: MemoryClass::Standard,
    };
    let buffer = elsewhere(place, Readiness::Ready);
    let rows = [buffer.handle()];
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, [100].as_slice(), Layout::RowMajor, rows);
    let fine = Item::Tensor(bytes_tensor(&[1]));
    let refused = Item::Tensor(Tensor::new(descriptor, vec![buffer]).unwrap());
    let members = vec![fine.clone(), refused];
    let group = Composite::new(head(CompositionRule::Group, &[], 2), members).unwrap();
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    let error = writer.write_item("g", &Item::Composite(group)).unwrap_err();
    assert!(matches!(error, FileError::Unwritable { .. }), "{error}");
    assert!(matches!(
        writer.write_item("w", &fine),
        Err(FileError::Unfinished)
    ));
    assert!(matches!(writer.finish(), Err(FileError::Unfinished)));
}

#[test]
fn a_full_sink_is_an_error_and_the_file_is_never_finished() {
    let item = Item::Tensor(bytes_tensor(&[1; 100]));
    let whole = file(&[("w", item.clone())]).len();
    for room in 0..whole {
        let mut space = vec![0; room];
        let writer = FileWriter::new(space.as_mut_slice(), FileOptions::default());
        let result = writer.and_then(|mut writer| {
            let _unchecked = writer.write_item("w", &item);
            writer.finish().map(drop)
        });
        assert!(result.is_err(), "{room}");
    }
}

#[test]
fn opening_holds_no_data_and_no_more_than_a_few_times_the_index() {
    let items: Vec<_> = (0..50)
        .map(|number| {
            (
                format!("t{number}"),
                Item::Tensor(bytes_tensor(&[3; 20_000])),
            )
        })
        .collect();
    let items: Vec<_> = items
        .iter()
        .map(|(name, item)| (name.as_str(), item.clone()))
        .collect();
    let memory = memory(&file(&items));
    let (peak, reader) = counting::peak(|| FileReader::new(memory).unwrap());
    assert!(peak < 10 * 50 * 40, "{peak}");
    let (peak, tensor) = counting::peak(|| reader.tensor("t7").unwrap());
    assert!(peak < 2048, "{peak}");
    assert_eq!(bytes_of(&tensor, 0), [3; 20_000]);
}

#[test]
#[expect(unsafe_code, reason = "a buffer of a C producer")]
fn an_empty_buffer_is_no_file() {
    let nowhere = std::ptr::null_mut();
    // SAFETY: without a function nothing is called.
    let owner = Owner::Callback(unsafe { Callback::new(nowhere, nowhere, None) });
    let flags = Default::default();
    // SAFETY: there are no bytes.
    let buffer = unsafe {
        Buffer::from_owner(
            nowhere.cast(),
            0,
            Place::HOST,
            Readiness::Ready,
            flags,
            owner,
        )
    };
    let error = FileReader::new(buffer.unwrap()).map(drop).unwrap_err();
    assert_eq!(error.rule(), "FC1");
    let path = tempfile::NamedTempFile::new().unwrap();
    let error = FileReader::open(path.path()).map(drop).unwrap_err();
    assert_eq!(error.rule(), "FC1");
}
