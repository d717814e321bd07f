//! Streams.

use fastrand::Rng;
use hurray_ffi::Item;
use hurray_io::{StreamError, StreamLimits, StreamParser, StreamReader, StreamWriter};

use crate::tensors::{assert_equal, check, each_tensor};
use crate::{Reached, allowance, numbers_of, within};

pub(crate) fn read(input: &[u8]) -> Reached {
    let mut rng = numbers_of(input);
    let limits = limits(&mut rng);
    // A buffer's first step is 64 KiB.
    let allowance = allowance(input) + (1 << 16);
    let (reached, error) = within(allowance, || feed(input, limits, &mut rng));
    let (items, whole) = within(2 * allowance, || read_whole(input, limits));
    assert_eq!(items.len(), reached.items);
    assert_eq!(whole, error, "how the bytes are cut makes a difference");
    if !items.is_empty() {
        check_rewritten(&items);
    }
    reached
}

/// Mostly none, so that most is read.
fn limits(rng: &mut Rng) -> StreamLimits {
    let mut limits = StreamLimits::default();
    if rng.u8(..8) == 0 {
        limits.max_descriptor_bytes = rng.u32(40..400);
        limits.max_buffer_bytes = rng.u64(..200);
        limits.max_composite_depth = rng.usize(..5);
        limits.cross_machine = rng.bool();
    }
    limits
}

/// Reads a stream that comes in pieces.
fn feed(input: &[u8], limits: StreamLimits, rng: &mut Rng) -> (Reached, Option<String>) {
    let mut reached = Reached::default();
    let mut parser = StreamParser::new(limits);
    let mut rest = input;
    let longest = 1 + rng.usize(..300);
    loop {
        let space = parser.space();
        assert!(!space.is_empty());
        let piece = rng.usize(1..=longest).min(space.len()).min(rest.len());
        let result = if piece == 0 {
            parser.end().map(|()| None)
        } else {
            let piece = rest.split_off(..piece).unwrap_or_default();
            space[..piece.len()].copy_from_slice(piece);
            parser.advance(piece.len())
        };
        match result {
            Ok(Some(item)) => {
                reached.is_open = true;
                reached.items += 1;
                each_tensor(&item, &mut |tensor| check(tensor));
            }
            Ok(None) if piece == 0 => return (reached, None),
            Ok(None) => {}
            Err(error) => {
                assert!(piece == 0 || matches!(parser.end(), Err(StreamError::Failed)));
                reached.is_open |= !matches!(error.rule(), "ST1" | "ST2" | "ST3" | "ST4");
                reached.refused(error.rule(), &error);
                return (reached, Some(error.to_string()));
            }
        }
        assert_eq!(parser.position(), (input.len() - rest.len()) as u64);
    }
}

fn read_whole(input: &[u8], limits: StreamLimits) -> (Vec<Item>, Option<String>) {
    let mut items = Vec::new();
    for item in StreamReader::new(input, limits) {
        match item {
            Ok(item) => items.push(item),
            Err(error) => return (items, Some(error.to_string())),
        }
    }
    (items, None)
}

/// What can be read can be written, and is then read as it was.
fn check_rewritten(items: &[Item]) {
    let written = write(items);
    let (again, error) = read_whole(&written, StreamLimits::default());
    assert_eq!((again.len(), error), (items.len(), None));
    for (item, again) in items.iter().zip(&again) {
        assert_equal(item, again);
    }
    assert!(write(&again) == written);
}

fn write(items: &[Item]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), StreamLimits::default());
    for item in items {
        writer
            .write_item(item)
            .expect("what was read can be written");
    }
    writer.finish().expect("a whole stream")
}
