//! Streams that our writer makes, and what it refuses.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod counting;
mod tensors;

use std::io::{self, Read};

use hurray_core::{DeviceTag, ElementType, Layout, SyncMode, TensorDescriptor};
use hurray_ffi::access::{AccessError, Reach};
use hurray_ffi::{Item, Tensor};
use hurray_io::{StreamError, StreamLimits, StreamParser, StreamReader, StreamWriter};
use tensors::{bytes_of, bytes_tensor, memory, nested, row, rows_partition};

fn write(items: &[Item]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), StreamLimits::default());
    for item in items {
        writer.write_item(item).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Item>, StreamError> {
    StreamReader::new(bytes, StreamLimits::default()).collect()
}

fn mixture() -> Vec<Item> {
    vec![
        Item::Tensor(bytes_tensor(&[1; 300_000])),
        Item::Composite(rows_partition(5)),
        Item::Composite(nested(64)),
        Item::Tensor(bytes_tensor(&[])),
        Item::Tensor(bytes_tensor(&[2])),
    ]
}

/// Gives at most `step` bytes at a time, and between them fails as a signal makes it fail.
struct Halting<'a> {
    bytes: &'a [u8],
    step: usize,
    interrupt: bool,
}

impl Read for Halting<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let step = self.step.min(space.len());
        self.bytes.read(&mut space[..step])
    }
}

#[test]
fn an_interrupted_reader_goes_on_where_it_was() {
    let bytes = write(&mixture());
    for step in [1, 7, 100_000] {
        let source = Halting {
            bytes: &bytes,
            step,
            interrupt: false,
        };
        let mut reader = StreamReader::new(source, StreamLimits::default());
        let mut items = Vec::new();
        loop {
            match reader.next_item() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(StreamError::Io(error)) => {
                    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(reader.position(), bytes.len() as u64);
        assert!(write(&items) == bytes);
    }
}

/// ST1, ST7: a stream that ends anywhere but between items is refused, and what came before is given.
#[test]
fn every_cut_is_found() {
    let bytes = write(&[
        Item::Tensor(bytes_tensor(&[1; 9])),
        Item::Composite(rows_partition(2)),
    ]);
    let boundaries = [0, 53 + 9, bytes.len()];
    for cut in 0..=bytes.len() {
        let mut items = 0;
        let mut error = None;
        for item in StreamReader::new(&bytes[..cut], StreamLimits::default()) {
            match item {
                Ok(_) => items += 1,
                Err(found) => error = Some(found),
            }
        }
        assert_eq!(
            items,
            boundaries[1..].iter().filter(|&&end| end <= cut).count()
        );
        match error {
            None => assert!(boundaries.contains(&cut), "{cut}"),
            Some(error) => {
                assert!(["ST1", "ST7"].contains(&error.rule()), "{cut}: {error}");
                assert!(error.to_string().contains(&format!("byte {cut}")));
            }
        }
    }
}

#[test]
fn nothing_is_read_past_an_item() {
    let bytes = write(&[Item::Tensor(bytes_tensor(&[1; 9]))]);
    let source = [bytes.as_slice(), b"rest"].concat();
    let mut reader = StreamReader::new(source.as_slice(), StreamLimits::default());
    assert!(reader.next_item().unwrap().is_some());
    assert_eq!(reader.into_inner(), b"rest");
}

/// ST10 and decision 9: memory follows the bytes that came, not those that were declared.
#[test]
fn memory_grows_with_the_bytes_that_come() {
    let mut rows = [row(1 << 40)];
    rows[0].byte_size = 1 << 40;
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, [4].as_slice(), Layout::RowMajor, rows);
    let start = descriptor.encode().unwrap();
    for came in [0, 1, 65_535, 65_536, 65_537, 1 << 20, 3 << 20] {
        let bytes = [start.as_slice(), &vec![7; came]].concat();
        let (peak, result) = counting::peak(|| read(&bytes).map(drop));
        assert_eq!(result.unwrap_err().rule(), "ST1");
        // A block of 4 times what came, and the one before it while it moves.
        assert!(
            peak <= 5 * came + (5 << 16) + 8192,
            "{peak} bytes held for {came}"
        );
    }
}

#[test]
fn a_large_buffer_is_whole_and_of_its_size() {
    for len in [65_535, 65_536, 65_537, 262_144, 262_145, 5_000_000] {
        let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let items = read(&write(&[Item::Tensor(bytes_tensor(&data))])).unwrap();
        let [Item::Tensor(tensor)] = items.as_slice() else {
            panic!("one tensor")
        };
        assert!(bytes_of(tensor, 0) == data);
        assert_eq!(
            tensor.descriptor().buffers[0].alignment,
            tensor.buffers()[0].alignment()
        );
        assert!(tensor.check_access(Reach::Host).is_ok());
    }
}

#[test]
fn composites_cost_linear_time() {
    let start = std::time::Instant::now();
    let composite = Item::Composite(rows_partition(100_000));
    let bytes = write(&[composite]);
    let items = read(&bytes).unwrap();
    let [Item::Composite(composite)] = items.as_slice() else {
        panic!("one composite")
    };
    assert_eq!(composite.members().len(), 100_000);
    // Seconds in a debug build; a quadratic step would take hours.
    assert!(start.elapsed().as_secs() < 120);
}

/// ST9 and the limits of the writer: what a reader would refuse is refused before its first byte.
#[test]
fn the_writer_keeps_the_limits() {
    let mut limits = StreamLimits::default();
    limits.max_composite_depth = 3;
    let mut writer = StreamWriter::new(Vec::new(), limits);
    writer.write_item(&Item::Composite(nested(3))).unwrap();
    let error = writer.write_item(&Item::Composite(nested(4))).unwrap_err();
    assert_eq!(error.rule(), "ST9");
    assert!(writer.finish().unwrap() == write(&[Item::Composite(nested(3))]));

    let declared = declared_tensor();
    limits.cross_machine = true;
    let mut writer = StreamWriter::new(Vec::new(), limits);
    let error = writer.write_tensor(&declared).unwrap_err();
    assert_eq!(error.rule(), "ST6");
    assert!(writer.finish().unwrap().is_empty());
}

fn declared_tensor() -> Tensor {
    let mut rows = [row(100)];
    rows[0].device = DeviceTag::Cuda;
    rows[0].sync_mode = SyncMode::Event;
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, [100].as_slice(), Layout::RowMajor, rows);
    Tensor::new(descriptor, vec![memory(&[6; 100]).declared()]).unwrap()
}

/// `sync.md`: device rows come and go unchanged, with a page's alignment if they ask for it, alone and in a composite.
#[test]
fn declared_tensors_are_repeated_unchanged() {
    let (descriptor, _) = declared_tensor().into_parts();
    let mut descriptor = TensorDescriptor::clone(&descriptor);
    descriptor.buffers[0].alignment = 4096;
    let head = tensors::head(hurray_core::CompositionRule::Group, &[], 1);
    let alone = [descriptor.encode().unwrap(), vec![6; 100]].concat();
    let grouped = [head.encode().unwrap(), alone.clone()].concat();
    for bytes in [alone, grouped] {
        let items = read(&bytes).unwrap();
        let tensor = match &items[0] {
            Item::Tensor(tensor) => tensor,
            Item::Composite(composite) => match &composite.members()[0] {
                Item::Tensor(tensor) => tensor,
                Item::Composite(_) => panic!("a tensor"),
            },
        };
        assert_eq!(**tensor.descriptor(), descriptor);
        assert!(matches!(
            tensor.check_access(Reach::Host),
            Err(AccessError::Declared { .. })
        ));
        assert!(write(&items) == bytes);
    }
}

#[test]
fn a_parser_that_failed_or_was_given_too_much_is_used_no_further() {
    let mut parser = StreamParser::new(StreamLimits::default());
    assert_eq!(parser.space().len(), 10);
    assert!(matches!(parser.advance(11), Err(StreamError::Failed)));
    assert!(parser.space().is_empty());
    assert!(matches!(parser.advance(0), Err(StreamError::Failed)));
    assert!(matches!(parser.end(), Err(StreamError::Failed)));

    let mut reader = StreamReader::new(b"nonsense, and more".as_slice(), StreamLimits::default());
    assert_eq!(reader.next_item().map(drop).unwrap_err().rule(), "ST4");
    assert!(matches!(reader.next_item(), Err(StreamError::Failed)));
}

#[test]
fn after_an_error_of_the_sink_the_writer_refuses() {
    let item = Item::Tensor(bytes_tensor(&[1; 9]));
    for room in 0..53 + 9 {
        let mut space = vec![0; room];
        let mut writer = StreamWriter::new(space.as_mut_slice(), StreamLimits::default());
        assert!(matches!(writer.write_item(&item), Err(StreamError::Io(_))));
        assert!(matches!(writer.write_item(&item), Err(StreamError::Failed)));
        assert!(matches!(writer.finish(), Err(StreamError::Failed)));
    }
}
