//! Any bytes through everything that reads them: nothing panics, overflows, loops with a number that they state or allocates for one.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod arbitrary;
mod counting;
#[allow(dead_code, reason = "each test reads its part of the vectors")]
mod vectors;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use counting::allocated;
use hurray_core::composite::assemble;
use hurray_core::{
    DYNAMIC, ElementAddress, Layout, MemberRole, Shard, TensorDescriptor, validate_contents,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Every golden file that begins with a descriptor, and the bytes of the buffers behind it.
static GOLDEN: LazyLock<Vec<(Vec<u8>, Vec<u8>)>> = LazyLock::new(|| {
    let list = |file: &str, list: &str, field: &str| {
        let files = vectors::manifest(file, list);
        files
            .iter()
            .map(|vector| vectors::bytes(vectors::text(vector, field)))
            .collect::<Vec<_>>()
    };
    let mut files = Vec::new();
    for name in [
        "descriptors",
        "descriptors_malformed",
        "descriptors_lenient",
    ] {
        files.extend(list(&format!("{name}.json"), "vectors", "file"));
    }
    for name in ["layouts", "layouts_malformed"] {
        for vector in vectors::manifest(&format!("layouts/{name}.json"), "vectors") {
            let file = vectors::text(&vector, "file");
            files.push(vectors::bytes(&format!("layouts/{file}")));
        }
    }
    files
        .into_iter()
        .map(|bytes| {
            let length = bytes.get(6..10).map_or(0, |length| {
                u32::from_le_bytes(length.try_into().unwrap()) as usize
            });
            let (descriptor, data) = bytes.split_at(length.min(bytes.len()));
            (descriptor.to_vec(), data.to_vec())
        })
        .collect()
});

/// Numbers at which arithmetic breaks.
fn edge() -> impl Strategy<Value = u64> {
    select(vec![
        0,
        1,
        2,
        3,
        7,
        63,
        64,
        65,
        255,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        1 << 58,
        1 << 61,
        1 << 62,
        (1 << 63) - 1,
        1 << 63,
        (1 << 63) + 1,
        u64::MAX - 64,
        u64::MAX - 1,
        u64::MAX,
    ])
}

#[derive(Clone, Debug)]
enum Change {
    Byte(Index, u8),
    Half(Index, u64),
    Word(Index, u64),
    Cut(Index),
    Extend(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Change::Byte(at, value)),
        3 => (any::<Index>(), edge()).prop_map(|(at, value)| Change::Half(at, value)),
        6 => (any::<Index>(), edge()).prop_map(|(at, value)| Change::Word(at, value)),
        1 => any::<Index>().prop_map(Change::Cut),
        1 => vec(any::<u8>(), 0..40).prop_map(Change::Extend),
    ]
}

/// The bytes with the change. Numbers mostly go where descriptors of this format have them: from the rank on in steps of four bytes.
fn apply(mut bytes: Vec<u8>, change: &Change) -> Vec<u8> {
    let put = |bytes: &mut Vec<u8>, at: &Index, value: &[u8]| {
        let places = bytes.len().saturating_sub(16) / 4;
        if places > 0 {
            let at = 16 + 4 * at.index(places);
            let end = bytes.len().min(at + value.len());
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
    };
    match change {
        Change::Byte(at, value) if !bytes.is_empty() => {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        Change::Byte(..) => {}
        Change::Half(at, value) => put(&mut bytes, at, &value.to_le_bytes()[..4]),
        Change::Word(at, value) => put(&mut bytes, at, &value.to_le_bytes()),
        Change::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
        Change::Extend(more) => bytes.extend(more),
    }
    bytes
}

/// With the length that the bytes have, so that they are read to their end.
fn sized(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    if let Some(field) = bytes.get_mut(6..10) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    bytes
}

/// As a member of a composite of the one head that could have it.
fn composed(descriptor: &TensorDescriptor, rule: u8) {
    let mut head = descriptor.clone();
    head.layout = Layout::Composite(hurray_core::CompositeHead {
        rule: match rule % 3 {
            0 => hurray_core::CompositionRule::Partition,
            1 => hurray_core::CompositionRule::Overlay(hurray_core::CombineOp::Add),
            _ => hurray_core::CompositionRule::Group,
        },
        member_count: 2,
    });
    if let Some(shard) = &descriptor.shard {
        head.shape = shard.parent_shape.clone();
    }
    let mut member = descriptor.clone();
    member.member = (rule % 3 == 1).then_some(MemberRole::Base);
    member.shard.get_or_insert_with(|| Shard {
        parent_shape: descriptor.shape.clone(),
        offset: descriptor.shape.iter().map(|_| 0).collect(),
    });
    let _ = assemble([descriptor]);
    let _ = assemble([&head, descriptor, descriptor]);
    let _ = assemble([&head, &member, &member]);
}

/// Reads `bytes` as a descriptor and follows every number in it, over buffers of `contents`.
fn follow(bytes: &[u8], contents: &[&[u8]], index: &[u64], rule: u8) {
    let Ok((descriptor, length)) = TensorDescriptor::decode(bytes) else {
        return;
    };
    assert!(length <= bytes.len());
    assert_eq!(descriptor.encode().unwrap().len(), length);
    let is_valid = descriptor.validate().is_ok();
    let plan = descriptor.buffer_plan();
    if is_valid && !descriptor.layout.is_virtual() {
        for (planned, row) in plan.unwrap().iter().zip(&descriptor.buffers) {
            assert!(planned.byte_size <= row.byte_size, "{descriptor:?}");
        }
    }
    let _ = descriptor.layout.validate(&descriptor.shape);
    let _ = descriptor.layout.extent(&descriptor.shape);
    if let Some(section) = &descriptor.quantization
        && let Ok(scheme) = section.scheme()
    {
        let _ = scheme.validate(descriptor.element_type, &descriptor.shape);
        let _ = scheme.parameter_count(&descriptor.shape, &descriptor.layout);
    }
    let inside: Vec<u64> = index
        .iter()
        .zip(&descriptor.shape)
        .map(|(&at, &dim)| at.checked_rem(dim).unwrap_or(0))
        .collect();
    let last: Vec<u64> = descriptor
        .shape
        .iter()
        .map(|dim| dim.saturating_sub(1))
        .collect();
    for index in [&inside[..], &last, index] {
        let address = descriptor.element_address(index);
        if is_valid && descriptor.layout.is_dense() && !descriptor.shape.contains(&0) {
            let is_inside = index.len() == descriptor.shape.len()
                && index
                    .iter()
                    .zip(&descriptor.shape)
                    .all(|(&at, &dim)| at < dim && dim != DYNAMIC);
            assert_eq!(address.is_ok(), is_inside, "{descriptor:?} {index:?}");
        }
        if let Ok(ElementAddress { byte, length, .. }) = address {
            assert!(byte + u64::from(length) <= descriptor.buffers[0].byte_size);
        }
    }
    let _ = validate_contents(&descriptor, contents);
    composed(&descriptor, rule);
}

/// What following `bytes` may allocate, whatever they say: the descriptors and their copies above, errors, and a sort of the coordinates.
fn allowance(bytes: &[u8], contents: &[&[u8]]) -> usize {
    let contents: usize = contents.iter().map(|bytes| bytes.len()).sum();
    64 * bytes.len() + 8 * contents + 16 * 1024
}

fn check(bytes: &[u8], contents: &[Vec<u8>], index: &[u64], rule: u8) -> Result<(), TestCaseError> {
    let contents: Vec<&[u8]> = contents.iter().map(|bytes| &**bytes).collect();
    let start = Instant::now();
    let (_, allocated, ()) = allocated(|| follow(bytes, &contents, index, rule));
    prop_assert!(start.elapsed() < Duration::from_secs(5));
    let allowance = allowance(bytes, &contents);
    prop_assert!(allocated <= allowance, "{allocated} of {allowance} bytes");
    Ok(())
}

/// The data of the rows as far as there are any, cut where `sizes` says, and otherwise `fill`.
fn buffers(bytes: &[u8], data: &[u8], fill: &[u8]) -> Vec<Vec<u8>> {
    let rows = match TensorDescriptor::decode(bytes) {
        Ok((descriptor, _)) => descriptor.buffers,
        Err(_) => return Vec::new(),
    };
    let mut rest = data;
    rows.iter()
        .map(|row| {
            let len = usize::try_from(row.byte_size).unwrap_or(usize::MAX);
            match rest.split_off(..len) {
                Some(own) => own.to_vec(),
                None => fill[..len.min(fill.len())].to_vec(),
            }
        })
        .collect()
}

/// Words as index buffers hold them: small ones, and a few of the edges.
fn words() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![6 => 0..6_u64, 1 => edge()], 0..40).prop_map(|words| {
        words
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect::<Vec<u8>>()
    })
}

fn index() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![0..9_u64, edge()], 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn changed_golden_bytes_are_followed_safely(
        (golden, data) in select(&**GOLDEN),
        changes in vec(change(), 0..4),
        resized: bool,
        index in index(),
        fill in words(),
        rule: u8,
    ) {
        let bytes = changes.iter().fold(golden, apply);
        let bytes = if resized { sized(bytes) } else { bytes };
        check(&bytes, &buffers(&bytes, &data, &fill), &index, rule)?;
    }

    #[test]
    fn contents_that_were_changed_are_judged_safely(
        (golden, data) in select(&**GOLDEN),
        changes in vec(change(), 1..4),
        index in index(),
        fill in words(),
        rule: u8,
    ) {
        let data = changes.iter().fold(data, apply);
        check(&golden, &buffers(&golden, &data, &fill), &index, rule)?;
    }

    #[test]
    fn any_descriptor_is_followed_safely(
        descriptor in arbitrary::descriptor(),
        changes in vec(change(), 0..3),
        index in index(),
        fill in words(),
        rule: u8,
    ) {
        let bytes = changes.iter().fold(descriptor.encode().unwrap(), apply);
        check(&bytes, &buffers(&bytes, &[], &fill), &index, rule)?;
    }
}
