//! The golden streams, read and rewritten, and the malformed ones, each refused by its rule with bounded memory.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod counting;
mod tensors;
mod vectors;

use hurray_ffi::Item;
use hurray_io::{StreamError, StreamLimits, StreamReader, StreamWriter};
use serde_json::Value as Json;

fn stream(vector: &Json) -> Vec<u8> {
    vectors::bytes(&format!("streams/{}", vectors::text(vector, "file")))
}

fn limits(vector: &Json) -> StreamLimits {
    let mut limits = StreamLimits::default();
    for (name, value) in vector["options"].as_object().into_iter().flatten() {
        let number = value.as_u64().unwrap_or_default();
        match name.as_str() {
            "max_descriptor_bytes" => limits.max_descriptor_bytes = number as u32,
            "max_buffer_bytes" => limits.max_buffer_bytes = number,
            "max_composite_depth" => limits.max_composite_depth = number as usize,
            "cross_machine" => limits.cross_machine = value.as_bool().unwrap(),
            other => panic!("{other}"),
        }
    }
    limits
}

/// The items before the first error, and it.
fn read(bytes: &[u8], limits: StreamLimits) -> (Vec<Item>, Option<StreamError>) {
    let mut items = Vec::new();
    for item in StreamReader::new(bytes, limits) {
        match item {
            Ok(item) => items.push(item),
            Err(error) => return (items, Some(error)),
        }
    }
    (items, None)
}

fn write(items: &[Item]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), StreamLimits::default());
    for item in items {
        writer.write_item(item).unwrap();
    }
    writer.finish().unwrap()
}

/// What the manifest says of an item, but for the hashes of its bytes, which the whole stream's equality covers.
fn check(item: &Item, expected: &Json, id: &str) {
    let (descriptor, stored) = match item {
        Item::Tensor(tensor) => {
            let buffers = expected["buffers"].as_array().unwrap();
            assert_eq!(tensor.buffers().len(), buffers.len(), "{id}");
            for (buffer, expected) in tensor.buffers().iter().zip(buffers) {
                assert_eq!(buffer.len(), expected["bytes"], "{id}");
            }
            (tensor.descriptor(), "descriptor")
        }
        Item::Composite(composite) => {
            let members = expected["members"].as_array().unwrap();
            assert_eq!(composite.members().len(), members.len(), "{id}");
            for (member, expected) in composite.members().iter().zip(members) {
                check(member, expected, id);
            }
            (composite.head(), "head")
        }
    };
    let stored = vectors::hex(vectors::text(expected, stored));
    let (stored, _) = hurray_core::TensorDescriptor::decode(&stored).unwrap();
    let mut descriptor = (**descriptor).clone();
    // Alignment is exempt from every round trip (decision 15).
    for (row, stored) in descriptor.buffers.iter_mut().zip(&stored.buffers) {
        row.alignment = stored.alignment;
    }
    // NaN bounds are no number, and equal as text.
    assert_eq!(format!("{descriptor:?}"), format!("{stored:?}"), "{id}");
}

#[test]
fn good_streams_are_read_and_rewritten_byte_for_byte() {
    for vector in vectors::manifest("streams", "good") {
        let id = vectors::text(&vector, "id");
        let bytes = stream(&vector);
        let (items, error) = read(&bytes, StreamLimits::default());
        assert!(error.is_none(), "{id}: {error:?}");
        let expected = vector["items"].as_array().unwrap();
        assert_eq!(items.len(), expected.len(), "{id}");
        for (item, expected) in items.iter().zip(expected) {
            check(item, expected, id);
        }
        assert_eq!(vector["rewrite_is_byte_equal"], true, "{id}");
        assert!(write(&items) == bytes, "{id}");
    }
}

/// ST1, ST7: wherever a stream is cut but between items, between two buffers of a tensor too.
#[test]
fn every_cut_of_a_good_stream_is_found() {
    let mut between_items = 0;
    for vector in vectors::manifest("streams", "good") {
        let id = vectors::text(&vector, "id");
        let bytes = stream(&vector);
        for cut in 0..bytes.len() {
            match read(&bytes[..cut], StreamLimits::default()) {
                (items, None) => {
                    assert!(write(&items) == bytes[..cut], "{id} at {cut}");
                    between_items += 1;
                }
                (_, Some(error)) => {
                    assert!(
                        ["ST1", "ST7"].contains(&error.rule()),
                        "{id} at {cut}: {error}"
                    );
                }
            }
        }
    }
    let items = vectors::manifest("streams", "good");
    let items = items.iter().filter_map(|vector| vector["items"].as_array());
    assert_eq!(between_items, items.map(Vec::len).sum::<usize>());
}

#[test]
fn foreign_streams_are_read() {
    for vector in vectors::manifest("streams", "foreign") {
        let id = vectors::text(&vector, "id");
        let bytes = stream(&vector);
        let (items, error) = read(&bytes, limits(&vector));
        // The manifest takes major version 0, and decision 1 refuses it.
        if id == "f02-major-0" {
            assert_eq!(error.unwrap().rule(), "ST4");
            continue;
        }
        assert!(error.is_none(), "{id}: {error:?}");
        let expected = vector["items"].as_array().unwrap();
        assert_eq!(items.len(), expected.len(), "{id}");
        for (item, expected) in items.iter().zip(expected) {
            check(item, expected, id);
        }
        // What is not known is relayed, and an alignment becomes 64.
        if id != "f06-page-aligned" {
            assert!(write(&items) == bytes, "{id}");
        }
    }
}

/// Its tensor has a buffer that neither layout nor quantization names, which is refused before the bytes end (decision 1, S10).
const ALSO: [(&str, &str); 1] = [("cut-between-buffers", "ST10")];

/// The malformed streams of one rule.
fn refused_by(rule: &str) {
    let mut found = 0;
    for vector in vectors::manifest("streams", "bad") {
        if vectors::text(&vector, "rule") != rule {
            continue;
        }
        found += 1;
        let id = vectors::text(&vector, "id");
        let bytes = stream(&vector);
        let (peak, (items, error)) = counting::peak(|| read(&bytes, limits(&vector)));
        let error = error.unwrap_or_else(|| panic!("{id} was read"));
        let expected = match ALSO.iter().find(|(also, _)| *also == id) {
            Some((_, rule)) => rule,
            None => rule,
        };
        assert_eq!(error.rule(), expected, "{id}: {error}");
        assert_eq!(items.len(), vector["items_before"], "{id}");
        assert!(!error.to_string().is_empty());
        // A first step of a buffer is 64 KiB.
        let allowance = 16 * bytes.len() + (1 << 16) + 4096;
        assert!(
            peak <= allowance,
            "{id}: {peak} bytes held for {}",
            bytes.len()
        );
    }
    assert!(found > 0, "no vector breaks {rule}");
}

macro_rules! rules {
    ($($test:ident $rule:literal,)*) => {
        $(#[test]
        fn $test() {
            refused_by($rule);
        })*

        #[test]
        fn every_rule_of_the_vectors_is_tested() {
            let rules = [$($rule),*];
            for vector in vectors::manifest("streams", "bad") {
                let rule = vectors::text(&vector, "rule");
                assert!(rules.contains(&rule), "{rule}");
            }
            assert_eq!(rules.len(), 10);
        }
    };
}

rules! {
    st1 "ST1", st2 "ST2", st3 "ST3", st4 "ST4", st5 "ST5", st6 "ST6", st7 "ST7", st8 "ST8", st9 "ST9", st10 "ST10",
}
