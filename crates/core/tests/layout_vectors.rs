//! The golden layouts: every element where its address says, every buffer what the plan says, every malformed one refused for its rule.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what a test's own functions cannot do fails the test"
)]

#[expect(dead_code, reason = "the properties are another test's")]
mod vectors;

use hurray_core::composite::{Assembler, Composite};
use hurray_core::{
    CompositeError, Error, Layout, StorageWidth, TensorDescriptor, validate_contents,
};
use serde_json::Value;
use vectors::{bytes, hex, manifest, text};

fn buffers(vector: &Value) -> Option<Vec<Vec<u8>>> {
    let buffers = vector["buffers"].as_array()?;
    Some(buffers.iter().map(|b| hex(b.as_str().unwrap())).collect())
}

/// The number of the `width` bits at `bit` of `bytes`.
fn read(bytes: &[u8], shift: u32, width: StorageWidth) -> u128 {
    let mut number = [0; 16];
    number[..bytes.len()].copy_from_slice(bytes);
    let mask = u128::MAX >> (128 - width.bits());
    (u128::from_le_bytes(number) >> shift) & mask
}

/// The elements of a dense tensor, packed in row-major order.
fn gather(descriptor: &TensorDescriptor, data: &[u8]) -> Vec<u8> {
    let width = descriptor.element_width().unwrap();
    let shape = &descriptor.shape;
    let count: u64 = shape.iter().product();
    let mut packed = vec![0; usize::try_from(width.byte_size(count).unwrap()).unwrap()];
    let mut index = vec![0; shape.len()];
    for element in 0..count {
        let mut rest = element;
        for (place, dim) in index.iter_mut().zip(shape).rev() {
            *place = rest % dim;
            rest /= dim;
        }
        let address = descriptor.element_address(&index).unwrap();
        let start = usize::try_from(address.byte).unwrap();
        let length = usize::try_from(address.length).unwrap();
        let value = read(&data[start..start + length], address.bit_shift, width);
        let target = width.position(i64::try_from(element).unwrap());
        let start = usize::try_from(target.byte).unwrap();
        let value = (value << target.bit_shift).to_le_bytes();
        for (to, from) in packed[start..start + length].iter_mut().zip(value) {
            *to |= from;
        }
    }
    packed
}

fn decode(file: &str) -> (TensorDescriptor, Vec<u8>) {
    let bytes = bytes(&format!("layouts/{file}"));
    let (descriptor, length) = TensorDescriptor::decode(&bytes).unwrap();
    (descriptor, bytes[length..].to_vec())
}

#[test]
fn golden_layouts_validate() {
    for vector in manifest("layouts/layouts.json", "vectors") {
        let (descriptor, _) = decode(text(&vector, "file"));
        assert_eq!(descriptor.validate(), Ok(()), "{vector}");
    }
}

#[test]
fn golden_contents_validate() {
    let mut scanned = 0;
    for vector in manifest("layouts/layouts.json", "vectors") {
        let (descriptor, _) = decode(text(&vector, "file"));
        let Some(buffers) = buffers(&vector) else {
            continue;
        };
        let slices: Vec<_> = buffers.iter().map(Vec::as_slice).collect();
        assert_eq!(validate_contents(&descriptor, &slices), Ok(()), "{vector}");
        // At odd addresses too.
        let shifted: Vec<Vec<u8>> = buffers.iter().map(|b| [&[0xFF], &**b].concat()).collect();
        let slices: Vec<_> = shifted.iter().map(|b| &b[1..]).collect();
        assert_eq!(validate_contents(&descriptor, &slices), Ok(()), "{vector}");
        scanned += 1;
    }
    assert!(scanned > 80);
}

#[test]
fn golden_layouts_have_the_plan_of_the_manifest() {
    for vector in manifest("layouts/layouts.json", "vectors") {
        let (descriptor, _) = decode(text(&vector, "file"));
        let Some(expected) = vector["buffer_plan"].as_array() else {
            continue;
        };
        if let Layout::Private(_) = descriptor.layout {
            continue;
        }
        let plan = descriptor.buffer_plan().unwrap();
        let own = descriptor
            .layout
            .buffer_count(descriptor.shape.len())
            .unwrap();
        assert_eq!(own, expected.len(), "{vector}");
        assert_eq!(plan.len(), descriptor.buffers.len(), "{vector}");
        for (planned, expected) in plan.iter().zip(expected) {
            assert_eq!(planned.name.to_string(), expected["name"], "{vector}");
            let tag = planned.element_type.unwrap().tag();
            assert_eq!(tag, expected["type"], "{vector}");
            match planned.count {
                Some(count) => {
                    assert_eq!(count, expected["count"], "{vector}");
                    assert_eq!(planned.byte_size, expected["bytes"], "{vector}");
                }
                // What only other buffers' contents say.
                None => assert!(
                    planned.byte_size <= expected["bytes"].as_u64().unwrap(),
                    "{vector}"
                ),
            }
        }
    }
}

#[test]
fn golden_elements_are_at_their_addresses() {
    let mut gathered = 0;
    for vector in manifest("layouts/layouts.json", "vectors") {
        let (descriptor, _) = decode(text(&vector, "file"));
        if !descriptor.layout.is_dense() {
            continue;
        }
        let (Some(buffers), Some(expected)) = (buffers(&vector), vector["dense_hex"].as_str())
        else {
            continue;
        };
        assert_eq!(gather(&descriptor, &buffers[0]), hex(expected), "{vector}");
        gathered += 1;
    }
    assert!(gathered > 45);
}

/// What a stream of a composite gives: the composite and each member's buffers, or the first error.
fn read_stream(mut bytes: &[u8]) -> Result<(Composite, Vec<Vec<u8>>), Error> {
    let mut assembler = Assembler::new();
    let mut buffers = Vec::new();
    while !assembler.is_complete() {
        if bytes.is_empty() {
            assembler.finish()?;
            panic!("an incomplete composite is finished");
        }
        let (descriptor, length) = TensorDescriptor::decode(bytes)?;
        descriptor.validate()?;
        bytes = &bytes[length..];
        assembler.push(&descriptor)?;
        for row in &descriptor.buffers {
            let Some((buffer, rest)) =
                bytes.split_at_checked(usize::try_from(row.byte_size).unwrap())
            else {
                // A stream that ends inside a buffer never has the next item.
                return Err(CompositeError::Torn {
                    head: 0,
                    declared: 0,
                    found: 0,
                }
                .into());
            };
            buffers.push(buffer.to_vec());
            bytes = rest;
        }
    }
    Ok((assembler.finish()?, buffers))
}

#[test]
fn golden_composites_assemble() {
    let mut streams = 0;
    for vector in manifest("layouts/layouts.json", "vectors") {
        if text(&vector, "kind") != "stream" {
            continue;
        }
        let file = bytes(&format!("layouts/{}", text(&vector, "file")));
        let (composite, buffers) = read_stream(&file).unwrap();
        assert_eq!(composite.buffer_count(), buffers.len(), "{vector}");
        let expected = vector["members"].as_array().unwrap();
        let members: Vec<_> = composite.members(0).collect();
        assert_eq!(members.len(), expected.len(), "{vector}");
        for (member, expected) in members.into_iter().zip(expected) {
            let item = &composite.items()[member];
            assert_eq!(item.head, Some(0));
            assert_eq!(item.depth, 1);
            assert_eq!(item.is_head, expected["buffers"].is_null());
            if let Some(expected) = self::buffers(expected) {
                assert_eq!(buffers[item.buffers.clone()], expected, "{vector}");
            }
        }
        streams += 1;
    }
    assert_eq!(streams, 10);
}

/// The rule of `layouts.md` by which `error` refuses; other documents number some of them otherwise.
fn layout_rule(error: &Error) -> &'static str {
    match error {
        Error::Descriptor(error) => error.layout_rule().unwrap_or(error.rule()),
        other => match other.rule() {
            "Q21" | "Q22" => "B3",
            "S3" | "S4" => "B8",
            rule => rule,
        },
    }
}

fn judge(vector: &Value) -> Result<(), Error> {
    let file = bytes(&format!("layouts/{}", text(vector, "file")));
    if text(vector, "kind") == "stream" {
        return read_stream(&file).map(|_| ());
    }
    let (descriptor, _) = TensorDescriptor::decode(&file)?;
    descriptor.validate()?;
    if descriptor.layout.is_virtual() {
        let mut assembler = Assembler::new();
        assembler.push(&descriptor)?;
    }
    let buffers = buffers(vector).unwrap_or_default();
    let slices: Vec<_> = buffers.iter().map(Vec::as_slice).collect();
    validate_contents(&descriptor, &slices)
}

#[test]
fn malformed_layouts_are_refused_for_their_rule() {
    for vector in manifest("layouts/layouts_malformed.json", "vectors") {
        let name = text(&vector, "file");
        let result = judge(&vector);
        match name {
            // decisions.md 1: any non-zero boolean reads as true, and 64 levels are read.
            "coo_is_sorted_2.bin" | "s_nested_9.bin" => assert_eq!(result, Ok(()), "{name}"),
            _ => {
                let error = result.err().unwrap_or_else(|| panic!("{name} is accepted"));
                assert_eq!(
                    layout_rule(&error),
                    text(&vector, "rule"),
                    "{name}: {error}"
                );
            }
        }
    }
}

/// decisions.md 1: what guards memory is refused before a tensor exists; booleans, hints, families and unreadable schemes are kept.
#[test]
fn lenient_descriptors_are_refused_or_kept_by_their_rule() {
    for vector in manifest("descriptors_lenient.json", "vectors") {
        let name = text(&vector, "name");
        let rule = text(&vector, "rule");
        let Ok((descriptor, _)) = TensorDescriptor::decode(&bytes(text(&vector, "file"))) else {
            assert!(["S1", "S2", "S12", "S13"].contains(&rule), "{name}");
            continue;
        };
        match (rule, descriptor.validate()) {
            ("S14" | "S15" | "S16" | "S18", result) => assert_eq!(result, Ok(()), "{name}"),
            (rule, Ok(())) => panic!("{name} ({rule}) is accepted"),
            (rule, Err(error)) => {
                let expected: &[&str] = match rule {
                    "S7" => &["B6"],
                    "S8" => &["B5"],
                    "S9" => &["G8", "S1", "O1", "H3"],
                    "S10" => &["B2"],
                    "S11" => &["R1", "F1", "P1", "P2", "P3", "H3", "H4", "M3", "C10"],
                    rule => &[rule],
                };
                assert!(expected.contains(&error.rule()), "{name} ({rule}): {error}");
            }
        }
    }
}

/// Descriptors that the release writes; those without sizes that a tensor could have are refused for that reason.
#[test]
fn golden_descriptors_validate_or_have_no_tensor() {
    let mut refused = Vec::new();
    for vector in manifest("descriptors.json", "vectors") {
        let name = text(&vector, "name");
        let (descriptor, _) = TensorDescriptor::decode(&bytes(text(&vector, "file"))).unwrap();
        if let Err(error) = descriptor.validate() {
            refused.push(format!("{name} {}", error.rule()));
        }
    }
    let expected = [
        // Dimensions that are not known.
        "dynamic_all G7",
        "dynamic_first G7",
        "dynamic_and_zero G7",
        "dynamic_middle_empty_buffer G7",
        // 16 bytes for 4 float16 and 2 float32 scales.
        "quant_per_block Q24",
        "quant_nf4 Q24",
        // Affine codes of a private type.
        "flags_all Q15",
        "flagset_05 Q15",
        "flagset_07 Q15",
        "flagset_13 Q15",
        "flagset_15 Q15",
        "flagset_21 Q15",
        "flagset_23 Q15",
        "flagset_29 Q15",
        "flagset_31 Q15",
    ];
    assert_eq!(refused, expected);
}
