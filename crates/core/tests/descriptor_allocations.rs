//! Nothing is allocated for a number on the wire before as many bytes are at hand.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod counting;
#[allow(dead_code, reason = "each test reads its part of the vectors")]
mod vectors;

use counting::allocated;
use hurray_core::TensorDescriptor;

/// What a decoder may allocate for `length` bytes: the descriptor's own lists, which hold a wire byte in at most a few of memory.
fn allowance(length: usize) -> usize {
    4 * length + 1024
}

#[test]
fn the_allocator_counts() {
    let (calls, bytes, list) = allocated(|| vec![0_u8; 1000]);
    assert_eq!((calls, bytes, list.len()), (1, 1000, 1000));
}

#[test]
fn huge_claims_in_small_inputs_allocate_nothing() {
    let base = vectors::bytes("descriptors/type_float16_3x7.bin");
    let claim = |edits: &[(usize, &[u8])]| {
        let mut bytes = base.clone();
        for &(at, edit) in edits {
            bytes[at..at + edit.len()].copy_from_slice(edit);
        }
        bytes
    };
    let huge = &[0xFF; 4];
    let private_layout = [0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
    let claims = [
        ("descriptor_length", claim(&[(6, huge)])),
        ("rank", claim(&[(16, huge)])),
        ("rank 64", claim(&[(16, &[64, 0, 0, 0])])),
        (
            "rank 64 of a later minor",
            claim(&[(5, &[1]), (6, huge), (16, &[64, 0, 0, 0])]),
        ),
        ("buffer_count", claim(&[(6, huge), (44, &[255])])),
        (
            "private layout",
            claim(&[(6, huge), (15, &[0xF0]), (44, &private_layout)]),
        ),
        ("quantization_length", {
            let mut bytes = claim(&[(6, huge), (10, &[1])]);
            bytes.extend_from_slice(huge);
            bytes
        }),
        ("length of a later minor", claim(&[(5, &[9]), (6, huge)])),
    ];
    for (what, bytes) in claims {
        let (_, allocated, result) = allocated(|| TensorDescriptor::decode(&bytes));
        assert!(result.is_err(), "{what}");
        assert!(
            allocated <= allowance(bytes.len()),
            "{what}: {allocated} bytes"
        );
    }
}

#[test]
fn vectors_allocate_no_more_than_they_hold() {
    for list in [
        "descriptors",
        "descriptors_malformed",
        "descriptors_lenient",
    ] {
        for vector in vectors::manifest(&format!("{list}.json"), "vectors") {
            let bytes = vectors::bytes(vectors::text(&vector, "file"));
            let (_, allocated, result) = allocated(|| TensorDescriptor::decode(&bytes));
            let name = vectors::text(&vector, "name");
            assert!(
                allocated <= allowance(bytes.len()),
                "{name}: {allocated} bytes"
            );
            drop(result);
        }
    }
}

/// The common tensors are decoded and validated without an allocation, and encoded with one.
#[test]
fn a_quantized_tensor_of_three_buffers_is_inline() {
    let bytes = vectors::bytes("quantization/25-pb-uint4-bf16.desc.bin");
    let (calls, _, decoded) = allocated(|| TensorDescriptor::decode(&bytes));
    let (descriptor, _) = decoded.unwrap();
    assert_eq!((calls, descriptor.buffers.len()), (0, 3));
    let (calls, _, verdict) = allocated(|| descriptor.validate());
    assert_eq!((calls, verdict), (0, Ok(())));
    let (calls, allocated_bytes, encoded) = allocated(|| descriptor.encode());
    assert_eq!((calls, allocated_bytes), (1, bytes.len()));
    assert_eq!(encoded.unwrap(), bytes);
    let mut space = vec![0; bytes.len()];
    let (calls, _, result) = allocated(|| descriptor.encode_to_slice(&mut space));
    result.unwrap();
    assert_eq!(calls, 0);
}
