//! Q1–Q14 over the golden sections: read to the manifest's fields and written to the same bytes, or refused for their rule.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

#[allow(dead_code, reason = "each test reads its part of the vectors")]
mod vectors;

use hurray_core::{
    BlockAffine, ChannelAffine, Mxfp, Nf4, QuantizationError, QuantizationScheme,
    QuantizationSection, ScaleType, TensorAffine, TensorDescriptor,
};
use serde_json::{Value, json};
use vectors::{bytes, hex, manifest, text};

const MANIFEST: &str = "quantization/manifest.json";

fn fields(scheme: &QuantizationScheme) -> Value {
    let mut fields = match *scheme {
        QuantizationScheme::TensorAffine(TensorAffine { scale, zero_point }) => {
            json!({ "scale": scale, "zero_point": zero_point })
        }
        QuantizationScheme::ChannelAffine(ChannelAffine {
            axis,
            scale_buffer,
            zero_point_buffer,
        }) => json!({
            "axis": axis,
            "scale_buffer": scale_buffer,
            "zero_point_buffer": zero_point_buffer,
            "scale_type": 3,
        }),
        QuantizationScheme::BlockAffine(BlockAffine {
            axis,
            block_size,
            scale_buffer,
            zero_point_buffer,
            scale_type,
        }) => json!({
            "axis": axis,
            "block_size": block_size,
            "scale_buffer": scale_buffer,
            "zero_point_buffer": zero_point_buffer,
            "scale_type": match scale_type {
                ScaleType::Float16 => 1,
                ScaleType::Bfloat16 => 2,
                ScaleType::Float32 => 3,
            },
        }),
        QuantizationScheme::Nf4(Nf4 {
            axis,
            block_size,
            scale_buffer,
        })
        | QuantizationScheme::Mxfp(Mxfp {
            axis,
            block_size,
            scale_buffer,
        }) => json!({ "axis": axis, "block_size": block_size, "scale_buffer": scale_buffer }),
    };
    fields["version"] = json!(1);
    fields
}

/// The manifest's word for the cause.
fn kind(error: &QuantizationError) -> &'static str {
    match error {
        QuantizationError::HeaderTruncated { .. } | QuantizationError::SchemeTruncated { .. } => {
            "too_short"
        }
        QuantizationError::InvalidTag { .. } => "tag_invalid",
        QuantizationError::ReservedTag { .. } => "tag_reserved",
        QuantizationError::PrivateScheme { .. } => "tag_private",
        QuantizationError::UnassignedTag { .. } => "tag_unknown",
        QuantizationError::SchemeVersion { .. } => "version",
        QuantizationError::UndefinedFlags { .. } => "flags",
        QuantizationError::SectionReserved { .. } => "reserved",
        QuantizationError::Scale { .. } => "scale",
        QuantizationError::BlockSize { .. } => "block_size",
        QuantizationError::ScaleType { .. } => "scale_type",
        QuantizationError::Symmetry { .. } => "symmetric_mismatch",
        QuantizationError::NoScaleBuffer => "scale_index",
        other => panic!("{other} is not about a section"),
    }
}

#[test]
fn sections_have_the_fields_of_the_manifest() {
    for case in manifest(MANIFEST, "cases") {
        let id = text(&case, "id");
        let section = hex(text(&case, "section"));
        let scheme = QuantizationScheme::decode(&section).unwrap();
        let mut expected = case["fields"].clone();
        let actual = fields(&scheme);
        if let QuantizationScheme::TensorAffine(tensor) = scheme {
            let scale = expected["scale"].take().as_f64().unwrap();
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the manifest prints a float32"
            )]
            let scale = scale as f32;
            assert_eq!(scale.to_bits(), tensor.scale.to_bits(), "{id}");
            expected["scale"] = actual["scale"].clone();
        }
        assert_eq!(actual, expected, "{id}");
        scheme.validate_parameters().unwrap();
        assert_eq!(scheme.encode().as_bytes(), section, "{id}");
    }
}

#[test]
fn tensors_carry_the_sections_of_the_manifest() {
    for case in manifest(MANIFEST, "cases") {
        let id = text(&case, "id");
        let file = bytes(&format!("quantization/{}", text(&case, "descriptor")));
        let (descriptor, _) = TensorDescriptor::decode(&file).unwrap();
        let section = descriptor.quantization.as_ref().unwrap();
        assert_eq!(section.as_bytes(), hex(text(&case, "section")), "{id}");
        assert_eq!(descriptor.element_type.tag(), case["type_tag"], "{id}");
        assert_eq!(json!(descriptor.shape.as_slice()), case["shape"], "{id}");
        assert_eq!(descriptor.layout.tag(), case["layout_tag"], "{id}");
        let sizes: Vec<_> = descriptor.buffers.iter().map(|row| row.byte_size).collect();
        let buffers = case["buffers"].as_array().unwrap();
        let expected: Vec<_> = buffers
            .iter()
            .map(|b| b["bytes"].as_u64().unwrap())
            .collect();
        assert_eq!(sizes, expected, "{id}");
        assert_eq!(descriptor.encode().unwrap(), file, "{id}");
    }
}

#[test]
fn bad_sections_are_refused_for_their_rule_and_kind() {
    let mut rules = std::collections::BTreeSet::new();
    for bad in manifest(MANIFEST, "bad_sections") {
        let id = text(&bad, "id");
        let error = match QuantizationScheme::decode(&hex(text(&bad, "section"))) {
            Ok(scheme) => panic!("{id} decodes: {scheme:?}"),
            Err(error) => error,
        };
        assert_eq!(error.rule(), text(&bad, "rule"), "{id}: {error}");
        assert_eq!(kind(&error), text(&bad, "kind_strict"), "{id}: {error}");
        rules.insert(error.rule());
    }
    assert_eq!(rules.len(), 14, "{rules:?}");
}

/// S18: a section that cannot be read is still relayed.
#[test]
fn s18_bad_sections_survive_in_a_descriptor() {
    let file = bytes("quantization/01-pt-int8.desc.bin");
    let (descriptor, _) = TensorDescriptor::decode(&file).unwrap();
    for bad in manifest(MANIFEST, "bad_sections") {
        let section = hex(text(&bad, "section"));
        let mut relayed = descriptor.clone();
        relayed.quantization = Some(QuantizationSection::from_bytes(&section));
        let (decoded, _) = TensorDescriptor::decode(&relayed.encode().unwrap()).unwrap();
        let decoded = decoded.quantization.unwrap();
        assert_eq!(decoded.as_bytes(), section);
        assert!(decoded.scheme().is_err());
    }
}

/// Order inside a section: the tag is judged before the header's length, the scheme's length before its flags.
#[test]
fn the_first_failure_is_reported() {
    let rule = |section: &[u8]| QuantizationScheme::decode(section).unwrap_err().rule();
    assert_eq!(rule(&[0x00]), "Q2");
    assert_eq!(rule(&[0x60]), "Q3");
    assert_eq!(rule(&[0xF3]), "Q4");
    assert_eq!(rule(&[0x3F, 2, 0xFF]), "Q5");
    assert_eq!(rule(&[0x01, 2, 0xFF]), "Q1");
    assert_eq!(rule(&[0x01, 2, 0xFF, 0xFF]), "Q6");
    assert_eq!(rule(&[0x01, 1, 0xFF, 0xFF]), "Q7");
    assert_eq!(rule(&hex("0101ff00000000000300000000000001")), "Q8");
    assert_eq!(rule(&hex("01010000000000000300000000000001")), "Q9");
}

/// Bytes past the scheme's own are permitted and ignored.
#[test]
fn bytes_past_the_scheme_are_ignored() {
    let section = hex("010100000000003f0300000000000000abcd");
    let scheme = QuantizationScheme::decode(&section).unwrap();
    assert_eq!(scheme.encode().as_bytes(), &section[..16]);
}

#[test]
fn parameters_that_decode_refuses_are_refused_in_memory() {
    let block = BlockAffine {
        axis: 0,
        block_size: 32,
        scale_buffer: 1,
        zero_point_buffer: Some(2),
        scale_type: ScaleType::Float16,
    };
    let nf4 = Nf4 {
        axis: 0,
        block_size: 64,
        scale_buffer: 1,
    };
    let mxfp = Mxfp {
        axis: 0,
        block_size: 32,
        scale_buffer: 1,
    };
    let channel = ChannelAffine {
        axis: 0,
        scale_buffer: 1,
        zero_point_buffer: None,
    };
    let tensor = |scale| {
        QuantizationScheme::TensorAffine(TensorAffine {
            scale,
            zero_point: 0,
        })
    };
    let none = u32::MAX;
    let cases = [
        ("Q10", tensor(0.0)),
        ("Q10", tensor(-0.0)),
        ("Q10", tensor(f32::NAN)),
        ("Q10", tensor(f32::NEG_INFINITY)),
        (
            "Q11",
            QuantizationScheme::BlockAffine(BlockAffine {
                block_size: 1,
                ..block
            }),
        ),
        (
            "Q11",
            QuantizationScheme::BlockAffine(BlockAffine {
                block_size: 33,
                ..block
            }),
        ),
        (
            "Q11",
            QuantizationScheme::Nf4(Nf4 {
                block_size: 4,
                ..nf4
            }),
        ),
        (
            "Q11",
            QuantizationScheme::Mxfp(Mxfp {
                block_size: 8,
                ..mxfp
            }),
        ),
        (
            "Q11",
            QuantizationScheme::Mxfp(Mxfp {
                block_size: 4096,
                ..mxfp
            }),
        ),
        (
            "Q13",
            QuantizationScheme::ChannelAffine(ChannelAffine {
                zero_point_buffer: Some(none),
                ..channel
            }),
        ),
        (
            "Q13",
            QuantizationScheme::BlockAffine(BlockAffine {
                zero_point_buffer: Some(none),
                ..block
            }),
        ),
        (
            "Q14",
            QuantizationScheme::ChannelAffine(ChannelAffine {
                scale_buffer: none,
                ..channel
            }),
        ),
        (
            "Q14",
            QuantizationScheme::BlockAffine(BlockAffine {
                scale_buffer: none,
                ..block
            }),
        ),
        (
            "Q14",
            QuantizationScheme::Nf4(Nf4 {
                scale_buffer: none,
                ..nf4
            }),
        ),
        (
            "Q14",
            QuantizationScheme::Mxfp(Mxfp {
                scale_buffer: none,
                ..mxfp
            }),
        ),
    ];
    for (rule, scheme) in cases {
        assert_eq!(
            scheme.validate_parameters().unwrap_err().rule(),
            rule,
            "{scheme:?}"
        );
        assert_eq!(
            scheme.encode().scheme().unwrap_err().rule(),
            rule,
            "{scheme:?}"
        );
    }
}
