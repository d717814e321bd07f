//! What a reader gives out, mapped and not: bytes that are asked for, and no others.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod counting;
mod tensors;
mod vectors;

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use hurray_core::{
    CompositionRule, DeviceTag, ElementType, Layout, MemoryClass, Shard, Statistics, SyncMode,
    TensorDescriptor,
};
use hurray_ffi::access::Reach;
use hurray_ffi::{Buffer, Item, Tensor};
use hurray_io::{FileError, FileOptions, FileReader, FileWriter, SliceError, Target};
use proptest::prelude::*;
use tempfile::TempDir;
use tensors::{bytes_of, bytes_tensor, head, memory, row, rows_partition};

const UNWATCHED: fn(u64, u64) -> ControlFlow<()> = |_, _| ControlFlow::Continue(());

/// A file of these items in a folder of its own.
fn file(items: &[(&str, Item)]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    let mut writer = FileWriter::new(File::create(&path).unwrap(), FileOptions::default()).unwrap();
    for (name, item) in items {
        writer.write_item(name, item).unwrap();
    }
    writer.finish().unwrap();
    (folder, path)
}

fn both(path: &Path) -> [FileReader; 2] {
    [
        FileReader::open(path).unwrap(),
        FileReader::open_unmapped(path).unwrap(),
    ]
}

/// All bytes of an item, and its rows.
fn contents(item: &Item, into: &mut Vec<u8>) {
    match item {
        Item::Tensor(tensor) => {
            let mut descriptor = TensorDescriptor::clone(tensor.descriptor());
            for row in &mut descriptor.buffers {
                // What the memory has is another thing (decision 15).
                row.alignment = 64;
            }
            into.extend(format!("{descriptor:?}").bytes());
            for index in 0..tensor.buffers().len() {
                into.extend(bytes_of(tensor, index));
            }
        }
        Item::Composite(composite) => {
            into.extend(format!("{:?}", composite.head()).bytes());
            for member in composite.members() {
                contents(member, into);
            }
        }
    }
}

/// The golden files, and the malformed ones: what the map gives is what reading gives, errors too.
#[test]
fn reading_gives_what_the_map_gives() {
    let mut read = 0;
    for entry in fs::read_dir(vectors::path("files")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "hrry") {
            continue;
        }
        let load = |reader: Result<FileReader, FileError>| {
            let reader = reader?;
            let roots = reader.roots()?;
            let items = reader.items(&roots, Target::Declared, &mut { UNWATCHED })?;
            let mut bytes = Vec::new();
            items.iter().for_each(|item| contents(item, &mut bytes));
            Ok(bytes)
        };
        let mapped = load(FileReader::open(&path)).map_err(|error: FileError| error.to_string());
        let unmapped = load(FileReader::open_unmapped(&path));
        let unmapped = unmapped.map_err(|error: FileError| error.to_string());
        assert!(mapped == unmapped, "{path:?}: {mapped:?} {unmapped:?}");
        read += usize::from(mapped.is_ok());
    }
    assert!(read >= 17, "{read}");
}

/// NumPy and torch write to what they are given.
#[test]
#[expect(unsafe_code, reason = "writes to a tensor as NumPy would")]
fn what_is_written_to_a_mapped_tensor_stays_in_it() {
    let (_folder, path) = file(&[("w", Item::Tensor(bytes_tensor(&[1; 5000])))]);
    let before = fs::read(&path).unwrap();
    let [reader, unmapped] = both(&path);
    let tensor = reader.tensor("w").unwrap();
    let buffer = &tensor.buffers()[0];
    assert!(buffer.flags().is_empty());
    // SAFETY: 5000 writable bytes, which nothing else uses at the moment.
    unsafe { buffer.as_ptr().write_bytes(2, 3) };
    assert_eq!(bytes_of(&tensor, 0)[..4], [2, 2, 2, 1]);
    // A view of the same map sees it, other maps and the file do not.
    assert_eq!(bytes_of(&reader.tensor("w").unwrap(), 0)[0], 2);
    let other = FileReader::open(&path).unwrap();
    assert_eq!(bytes_of(&other.tensor("w").unwrap(), 0)[0], 1);
    assert_eq!(bytes_of(&unmapped.tensor("w").unwrap(), 0)[0], 1);
    drop((reader, tensor));
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_truncated_file_is_refused_before_it_is_mapped_and_an_unmapped_one_after() {
    let (_folder, path) = file(&[("w", Item::Tensor(bytes_tensor(&[1; 50_000])))]);
    let reader = FileReader::open_unmapped(&path).unwrap();
    let len = fs::metadata(&path).unwrap().len();
    for keep in [len - 1, len - 40, 20_000, 4096, 104, 103, 64, 63, 1, 0] {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(keep)
            .unwrap();
        let error = FileReader::open(&path).map(drop).unwrap_err();
        assert!(
            ["FC1", "FC5", "FC6"].contains(&error.rule()),
            "{keep}: {error}"
        );
        if keep < 54_096 {
            let error = reader.tensor("w").map(drop).unwrap_err();
            let FileError::Io(error) = error else {
                panic!("{error}");
            };
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}

/// Names in any order, composites with all their members, members on their own.
#[test]
fn items_are_those_that_were_named() {
    let items = [
        ("a", Item::Tensor(bytes_tensor(&[1; 10]))),
        ("p", Item::Composite(rows_partition(3))),
        ("b", Item::Tensor(bytes_tensor(&[2; 10]))),
    ];
    let (_folder, path) = file(&items);
    for reader in both(&path) {
        let wanted = ["p", "b", "p.1", "b"];
        let found = reader
            .items(&wanted, Target::Declared, &mut { UNWATCHED })
            .unwrap();
        assert_eq!(found.len(), 4);
        let Item::Composite(composite) = &found[0] else {
            panic!("a composite");
        };
        for (number, member) in composite.members().iter().enumerate() {
            let Item::Tensor(member) = member else {
                panic!("a tensor");
            };
            assert_eq!(bytes_of(member, 0), [number as u8; 4]);
        }
        for (item, expected) in found[1..].iter().zip([&[2; 10][..], &[1; 4], &[2; 10]]) {
            let Item::Tensor(tensor) = item else {
                panic!("a tensor");
            };
            assert_eq!(bytes_of(tensor, 0), expected);
        }
        let error = reader.items(&["a", "c"], Target::Declared, &mut { UNWATCHED });
        assert_eq!(error.map(drop).unwrap_err().rule(), "FC42");
        assert!(
            reader
                .items(&[], Target::Declared, &mut { UNWATCHED })
                .unwrap()
                .is_empty()
        );
    }
}

/// `sync.md`: `load(device="cpu")` brings rows and bytes together, `device=None` leaves the rows.
#[test]
fn rows_of_other_memory_are_kept_or_become_the_hosts() {
    let mut rows = [row(100)];
    rows[0].device = DeviceTag::Cuda;
    rows[0].sync_mode = SyncMode::Event;
    let shape = [100];
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, shape.as_slice(), Layout::RowMajor, rows);
    let tensor = Tensor::new(descriptor, vec![memory(&[6; 100]).declared()]).unwrap();
    let group = hurray_ffi::Composite::new(
        head(CompositionRule::Group, &[], 1),
        [Item::Tensor(tensor.clone())],
    );
    let (_folder, path) = file(&[
        ("d", Item::Tensor(tensor)),
        ("g", Item::Composite(group.unwrap())),
    ]);
    for reader in both(&path) {
        for (target, device) in [
            (Target::Declared, DeviceTag::Cuda),
            (Target::Host, DeviceTag::Cpu),
        ] {
            let items = reader
                .items(&["d", "g"], target, &mut { UNWATCHED })
                .unwrap();
            let [Item::Tensor(tensor), Item::Composite(group)] = items.as_slice() else {
                panic!("a tensor and a group");
            };
            let Item::Tensor(member) = &group.members()[0] else {
                panic!("a tensor");
            };
            for tensor in [tensor, member] {
                let row = tensor.descriptor().buffers[0];
                assert_eq!(row.device, device);
                assert_eq!(
                    row.sync_mode == SyncMode::ProducerSynced,
                    target == Target::Host
                );
                assert_eq!(row.memory_class, MemoryClass::Standard);
                assert_eq!(
                    tensor.check_access(Reach::Host).is_ok(),
                    target == Target::Host
                );
                assert_eq!(bytes_of(tensor, 0), [6; 100]);
            }
        }
    }
}

#[test]
fn reading_tells_how_far_it_is_and_can_be_stopped() {
    const LEN: usize = 30 << 20;
    let bytes: Vec<u8> = (0..LEN).map(|at| (at / 4099) as u8).collect();
    let (_folder, path) = file(&[
        ("w", Item::Tensor(bytes_tensor(&bytes))),
        ("x", Item::Tensor(bytes_tensor(&[3; 100]))),
    ]);
    let reader = FileReader::open_unmapped(&path).unwrap();
    let total = LEN as u64 + 100;
    let mut told = Vec::new();
    let (peak, items) = counting::peak(|| {
        reader.items(&["x", "w"], Target::Host, &mut |done, total| {
            told.push((done, total));
            ControlFlow::Continue(())
        })
    });
    assert!(peak < LEN + (1 << 16), "{peak}");
    let [Item::Tensor(small), Item::Tensor(large)] = &items.unwrap()[..] else {
        panic!("two tensors");
    };
    assert_eq!(bytes_of(small, 0), [3; 100]);
    assert!(bytes_of(large, 0) == bytes);
    for tensor in [small, large] {
        assert_eq!(tensor.buffers()[0].as_ptr().addr() % 64, 0);
    }
    assert!(!told.is_empty());
    assert!(told.iter().all(|&(done, of)| done <= of && of == total));
    assert!(told.is_sorted());
    assert_eq!(told.last(), Some(&(total, total)));

    let result = reader.items(&["w"], Target::Host, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(result, Err(FileError::Stopped)));
}

#[test]
fn two_threads_may_read_one_file() {
    let names: Vec<_> = (0..20).map(|number| format!("t{number}")).collect();
    let items: Vec<_> = names
        .iter()
        .zip(0..)
        .map(|(name, byte)| (name.as_str(), Item::Tensor(bytes_tensor(&[byte; 10_000]))))
        .collect();
    let (_folder, path) = file(&items);
    for reader in both(&path) {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (name, byte) in names.iter().zip(0..) {
                        let tensor = reader.tensor(name).unwrap();
                        assert_eq!(bytes_of(&tensor, 0), [byte; 10_000]);
                    }
                });
            }
        });
    }
}

/// A tensor of 16-bit elements whose values are their indices, row by row.
fn numbered(shape: &[u64], layout: Layout, count: u64) -> Tensor {
    let bytes: Vec<u8> = (0..count as u16).flat_map(u16::to_le_bytes).collect();
    let rows = [row(bytes.len())];
    let descriptor = TensorDescriptor::new(ElementType::Uint16, shape, layout, rows);
    Tensor::new(descriptor, vec![memory(&bytes)]).unwrap()
}

/// The bytes of the elements in the order of their indices.
fn elements(tensor: &Tensor) -> Vec<u8> {
    let descriptor = tensor.descriptor();
    let shape = &descriptor.shape;
    let count: u64 = shape.iter().product();
    let mut found = Vec::new();
    for linear in 0..count {
        let mut rest = linear;
        let mut index: Vec<_> = shape
            .iter()
            .rev()
            .map(|&n| {
                let at = rest % n;
                rest /= n;
                at
            })
            .collect();
        index.reverse();
        let address = descriptor.element_address(&index).unwrap();
        let (at, len) = (address.byte as usize, address.length as usize);
        found.extend(&bytes_of(tensor, 0)[at..at + len]);
    }
    found
}

proptest! {
    /// A slice has the elements that the whole tensor has there, for any shape and strides.
    #[test]
    fn a_slice_is_a_part_of_the_tensor(
        dimensions in prop::collection::vec((1_u64..7, -9_i64..10), 1..4),
        kind in 0..3,
        ends: (prop::sample::Index, prop::sample::Index),
    ) {
        let (shape, strides): (Vec<u64>, Vec<i64>) = dimensions.into_iter().unzip();
        let reach = |wanted: fn(i64) -> bool| -> i64 {
            let steps = shape.iter().zip(&strides).map(|(&n, &s)| s * (n as i64 - 1));
            steps.filter(|&step| wanted(step)).sum()
        };
        let dense: u64 = shape.iter().product();
        let (layout, before, count) = match kind {
            0 => (Layout::RowMajor, 0, dense),
            1 => (Layout::ColumnMajor, 0, dense),
            _ => {
                let before = -reach(|step| step < 0);
                let count = before + reach(|step| step > 0) + 1;
                (Layout::Strided(strides.as_slice().into()), before as u64, count as u64)
            }
        };
        let (descriptor, buffers) = numbered(&[count], Layout::RowMajor, count).into_parts();
        let mut descriptor = TensorDescriptor::clone(&descriptor);
        descriptor.shape = shape.as_slice().into();
        descriptor.layout = layout;
        descriptor.byte_offset = before * 2;
        let tensor = Tensor::new(descriptor, buffers).unwrap();
        let (_folder, path) = file(&[("w", Item::Tensor(tensor.clone()))]);
        let whole = elements(&tensor);
        let (a, b) = (ends.0.index(shape[0] as usize + 1), ends.1.index(shape[0] as usize + 1));
        let (start, end) = (a.min(b), a.max(b));
        let row = whole.len() / shape[0] as usize;
        for reader in both(&path) {
            let slice = reader.slice("w", start as u64..end as u64, Target::Declared).unwrap();
            prop_assert_eq!(slice.descriptor().shape[0], (end - start) as u64);
            prop_assert!(elements(&slice) == whole[start * row..end * row]);
            prop_assert_eq!(slice.buffers()[0].as_ptr().addr() % 64, 0);
            prop_assert!(slice.descriptor().byte_offset < 64 + 2 * before.max(count));
        }
    }
}

#[test]
fn a_slice_costs_its_own_bytes() {
    const ROWS: u64 = 10_000;
    let (descriptor, buffers) = bytes_tensor(&vec![7; 1000 * ROWS as usize]).into_parts();
    let mut descriptor = TensorDescriptor::clone(&descriptor);
    descriptor.shape = [ROWS, 1000].as_slice().into();
    let tensor = Tensor::new(descriptor, buffers).unwrap();
    let (_folder, path) = file(&[("w", Item::Tensor(tensor))]);
    let [mapped, unmapped] = both(&path);
    let (peak, slice) =
        counting::peak(|| unmapped.slice("w", 5001..5011, Target::Declared).unwrap());
    assert!(peak < 3 * 10_000, "{peak}");
    // On the boundary before the first of its bytes.
    assert_eq!(slice.descriptor().byte_offset, 40);
    assert_eq!(slice.buffers()[0].len(), 10_040);
    let (peak, slice) = counting::peak(|| mapped.slice("w", 1..ROWS, Target::Declared).unwrap());
    assert!(peak < 4096, "{peak}");
    // A view of the map.
    let whole = mapped.tensor("w").unwrap();
    let begin = whole.buffers()[0].as_ptr().addr();
    assert_eq!(slice.buffers()[0].as_ptr().addr(), begin + 960);
    assert_eq!(slice.descriptor().byte_offset, 40);
    assert_eq!(slice.descriptor().layout, Layout::RowMajor);
}

#[test]
fn slices_of_packed_elements_begin_on_a_byte() {
    let rows = [row(12)];
    let mut descriptor = TensorDescriptor::new(
        ElementType::Uint4,
        [8, 3].as_slice(),
        Layout::RowMajor,
        rows,
    );
    descriptor.shard = Some(Shard {
        parent_shape: [100, 3].as_slice().into(),
        offset: [10, 0].as_slice().into(),
    });
    descriptor.statistics = Some(Statistics::default().with_nnz(23));
    let bytes: Vec<u8> = (0..12).collect();
    let tensor = Tensor::new(descriptor, vec![memory(&bytes)]).unwrap();
    let (_folder, path) = file(&[("w", Item::Tensor(tensor))]);
    for reader in both(&path) {
        let slice = reader.slice("w", 2..5, Target::Declared).unwrap();
        assert_eq!(slice.descriptor().byte_offset, 3);
        // 9 elements of 4 bits.
        assert_eq!(bytes_of(&slice, 0)[3..], [3, 4, 5, 6, 7]);
        // What is known of all elements is not known of some.
        assert_eq!(slice.descriptor().statistics, None);
        // Where it is in the parent.
        let shard = slice.descriptor().shard.as_ref().unwrap();
        assert_eq!(shard.offset.as_slice(), [12, 0]);
        let error = reader.slice("w", 1..5, Target::Declared).unwrap_err();
        let FileError::Slice { source, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(source, SliceError::Packed { start: 1, bits: 4 });
    }
}

#[test]
fn what_has_no_slices_says_so() {
    let quantized = vectors::path("files/06-quantized.hrry");
    let sparse = vectors::path("files/08-csr.hrry");
    let scalar = vectors::path("files/13-scalar.hrry");
    let composite = vectors::path("files/09-composite-partition.hrry");
    let first = |path: &Path| {
        let reader = FileReader::open(path).unwrap();
        let name = reader.roots().unwrap()[0].to_owned();
        reader
            .slice(&name, 0..1, Target::Declared)
            .map(drop)
            .unwrap_err()
    };
    let cause = |path| match first(path) {
        FileError::Slice { source, .. } => source,
        error => panic!("{error}"),
    };
    assert_eq!(cause(&quantized), SliceError::Quantized);
    assert_eq!(cause(&sparse), SliceError::Layout { layout: "csr" });
    assert_eq!(cause(&scalar), SliceError::Scalar);
    assert!(matches!(
        cause(&composite),
        SliceError::Layout {
            layout: "composite"
        }
    ));
    let (_folder, path) = file(&[("w", Item::Tensor(bytes_tensor(&[1; 10])))]);
    let reader = FileReader::open(&path).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "one of those that are wrong")]
    for rows in [0..11, 11..11, 5..4, 0..u64::MAX] {
        let error = reader
            .slice("w", rows.clone(), Target::Declared)
            .unwrap_err();
        let FileError::Slice { source, .. } = error else {
            panic!("{error}");
        };
        let (start, end) = (rows.start, rows.end);
        assert_eq!(
            source,
            SliceError::Range {
                start,
                end,
                len: 10
            }
        );
    }
    assert_eq!(
        reader
            .slice("v", 0..1, Target::Declared)
            .map(drop)
            .unwrap_err()
            .rule(),
        "FC42"
    );
}

/// A file whose zeros are holes, and how often it was written to.
struct Sparse {
    file: File,
    writes: usize,
}

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes += 1;
        if bytes.iter().all(|&byte| byte == 0) {
            self.file.seek(SeekFrom::Current(bytes.len() as i64))?;
            return Ok(bytes.len());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `count` tensors cost to write, and to read all of them: bytes of memory that are asked for, and writes.
fn costs(count: u32, path: &Path) -> [usize; 4] {
    let file = File::create(path).unwrap();
    let member = bytes_tensor(&[1; 100]);
    let (writing, writes) = counting::asked(|| {
        let sink = Sparse { file, writes: 0 };
        let mut writer = FileWriter::new(sink, FileOptions::default()).unwrap();
        let group = head(CompositionRule::Group, &[], count / 2);
        writer.write_tensor("g", group, Vec::new()).unwrap();
        for number in 1..count {
            let (descriptor, buffers) = member.clone().into_parts();
            writer
                .write_tensor(&format!("t{number}"), descriptor, buffers)
                .unwrap();
        }
        writer.finish().unwrap().writes
    });
    let [mapped, unmapped] = [FileReader::open, FileReader::open_unmapped].map(|open| {
        let (asked, ()) = counting::asked(|| {
            let reader = open(path).unwrap();
            let roots = reader.roots().unwrap();
            assert_eq!(roots.len() as u32, count - count / 2);
            let items = reader
                .items(&roots, Target::Host, &mut { UNWATCHED })
                .unwrap();
            assert_eq!(items.len(), roots.len());
        });
        asked
    });
    [writing, writes, mapped, unmapped]
}

/// Counted, not timed: eight times as many tensors, a half of them members of one composite, cost eight times as much.
#[test]
fn a_hundred_thousand_tensors_cost_linear_memory_and_calls() {
    let folder = tempfile::tempdir().unwrap();
    let few = costs(12_500, &folder.path().join("few"));
    let many = costs(100_000, &folder.path().join("many"));
    for (few, many) in few.into_iter().zip(many) {
        assert!(many < 9 * few, "{few} {many}");
    }
    // The file's names, entries and descriptors take some hundred bytes a tensor.
    assert!(many[0] < 100_000 * 2000, "{many:?}");
}

#[test]
fn a_buffer_is_a_file_too() {
    let (_folder, path) = file(&[("w", Item::Tensor(bytes_tensor(&[4; 100])))]);
    let bytes: Buffer = memory(&fs::read(&path).unwrap());
    let reader = FileReader::new(bytes.read_only()).unwrap();
    let tensor = reader.tensor("w").unwrap();
    assert!(
        tensor.buffers()[0]
            .flags()
            .contains(hurray_ffi::BufferFlags::READ_ONLY)
    );
}

const HUGE: &str = "HURRAY_TEST_OPEN_HUGE";

/// Not a test of its own: the process that is short of memory below.
#[test]
fn child_that_opens_a_huge_index() {
    if let Some(path) = std::env::var_os(HUGE) {
        let error = FileReader::open(path).unwrap_err();
        assert!(matches!(error, FileError::Memory(_)), "{error}");
    }
}

/// A file that is mostly a hole can have an index of any size: where there is no memory for it that is an error, and the process goes on.
#[test]
fn an_index_that_no_memory_holds_is_an_error() {
    const SIZE: u64 = 4 << 30;
    let (_folder, path) = file(&[]);
    let mut trailer = fs::read(&path).unwrap()[72..].to_vec();
    trailer[8..16].copy_from_slice(&(SIZE - 64 - 40).to_le_bytes());
    let mut hole = File::options().write(true).open(&path).unwrap();
    hole.set_len(SIZE).unwrap();
    hole.seek(SeekFrom::End(-40)).unwrap();
    hole.write_all(&trailer).unwrap();
    let child = Command::new("sh")
        .args(["-c", r#"ulimit -v 1000000 && exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_opens_a_huge_index"])
        .env(HUGE, &path)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
}
