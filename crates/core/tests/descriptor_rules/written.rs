//! The S rules that are the codec's, what a writer owes (W3, W9), and later minor versions.

use super::*;

#[test]
fn s1_major_version_0() {
    refuse_patched("S1", &tensor(), 4, &[0], E::MajorVersion { major: 0 });
    let version_0 = TensorDescriptor {
        version: Version { major: 0, minor: 0 },
        ..tensor()
    };
    refuse_to_write("S1", &version_0, E::MajorVersion { major: 0 });
}

#[test]
fn s2_length_past_the_data_at_a_later_minor_version() {
    let later = TensorDescriptor {
        version: Version { major: 1, minor: 3 },
        skipped: vec![1, 2, 3],
        ..tensor()
    };
    let bytes = later.encode().unwrap();
    for cut in 1..=3 {
        let available = bytes.len() - cut;
        let declared = u32::try_from(bytes.len()).unwrap();
        let expected = E::LengthPastEnd {
            declared,
            available,
        };
        refuse("S2", &bytes[..available], expected);
    }
}

#[test]
fn s12_shard_of_a_dynamic_parent() {
    let expected = E::ShardDynamic { dimension: 1 };
    let mut descriptor = sharded();
    descriptor.shard.as_mut().unwrap().parent_shape[1] = DYNAMIC;
    refuse_patched(
        "S12",
        &sharded(),
        ROW + 16 + 8,
        &[0xFF; 8],
        expected.clone(),
    );
    refuse_to_write("S12", &descriptor, expected);
}

/// The release saturates the sum at 2^64 − 1, which then fits the parent 2^64 − 1. No known parent is that large, so that S12 refuses it;
/// below it, the sum is exact.
#[test]
fn s13_the_shards_end_is_exact() {
    let mut descriptor = sharded();
    let shard = descriptor.shard.as_mut().unwrap();
    shard.offset[0] = DYNAMIC - 1;
    shard.parent_shape[0] = DYNAMIC;
    refuse_to_write("S12", &descriptor, E::ShardDynamic { dimension: 0 });
    descriptor.shard.as_mut().unwrap().parent_shape[0] = DYNAMIC - 1;
    let expected = E::ShardOutOfBounds {
        dimension: 0,
        offset: DYNAMIC - 1,
        extent: 3,
        parent: DYNAMIC - 1,
    };
    refuse_to_write("R43", &descriptor, expected);
    descriptor.shard.as_mut().unwrap().offset[0] = DYNAMIC - 4;
    assert!(descriptor.encode().is_ok());
}

#[test]
fn s14_any_non_zero_boolean_is_true() {
    let coo = with_layout(Layout::Coo(Coo {
        nnz: 1,
        is_sorted: true,
    }));
    let statistics = with_statistics(Statistics::default().with_non_finite(true, true));
    let mut extension = private_type(8);
    extension.extension_type = Some(ExtensionType {
        is_float: true,
        is_signed: true,
        has_nan: true,
        has_inf: true,
        ..extension.extension_type.unwrap()
    });
    let section = ROW + 16;
    for (descriptor, offset) in [
        (&coo, PARAMETERS + 8),
        (&statistics, section + 66),
        (&statistics, section + 67),
        (&extension, section + 5),
        (&extension, section + 6),
        (&extension, section + 16),
        (&extension, section + 17),
    ] {
        for byte in [2, 0x80, 0xFF] {
            let bytes = patched(descriptor, offset, &[byte]);
            let (decoded, _) = TensorDescriptor::decode(&bytes).unwrap();
            assert_eq!(&decoded, descriptor);
            assert_eq!(decoded.encode().unwrap()[offset], 1);
        }
    }
}

#[test]
fn s15_statistics_that_are_never_written() {
    let unknown = Statistics::default();
    for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let error = unknown.with_sparsity_ratio(ratio).unwrap_err();
        assert!(matches!(error, E::SparsityRatio { .. }));
        assert_eq!(error.rule(), "S15");
    }
    for stddev in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        let error = unknown.with_moments(0.0, stddev).unwrap_err();
        assert!(matches!(error, E::Deviation { .. }));
        assert_eq!(error.rule(), "S15");
    }
    let error = unknown.with_sparsity_pattern(5, 4).unwrap_err();
    assert_eq!(error, E::SparsityPattern { n: 5, m: 4 });
    assert_eq!(error.rule(), "S15");
}

#[test]
fn statistics_know_what_they_were_given() {
    let statistics = Statistics::default();
    assert_eq!(statistics.computed_mask(), 0);
    assert_eq!(
        (statistics.nnz(), statistics.nm_n(), statistics.has_nan()),
        (None, None, None)
    );
    let statistics = statistics.with_nnz(7);
    assert_eq!(
        (statistics.computed_mask(), statistics.nnz()),
        (0b1, Some(7))
    );
    let statistics = statistics.with_sparsity_ratio(0.25).unwrap();
    assert_eq!(
        (statistics.computed_mask(), statistics.sparsity_ratio()),
        (0b11, Some(0.25))
    );
    assert_eq!(statistics.value_min(), None);
    let statistics = statistics.with_value_range(-2.0, 1.0, 2.0);
    assert_eq!(statistics.computed_mask(), 0b111);
    let range = (
        statistics.value_min(),
        statistics.value_max(),
        statistics.value_abs_max(),
    );
    assert_eq!(range, (Some(-2.0), Some(1.0), Some(2.0)));
    let statistics = statistics.with_moments(-0.5, 3.0).unwrap();
    assert_eq!(statistics.computed_mask(), 0b1111);
    let moments = (statistics.value_mean(), statistics.value_stddev());
    assert_eq!(moments, (Some(-0.5), Some(3.0)));
    let statistics = statistics.with_sparsity_pattern(2, 4).unwrap();
    assert_eq!(statistics.computed_mask(), 0b1_1111);
    assert_eq!((statistics.nm_n(), statistics.nm_m()), (Some(2), Some(4)));
    let statistics = statistics.with_non_finite(true, false);
    assert_eq!(statistics.computed_mask(), 0b11_1111);
    assert_eq!(
        (statistics.has_nan(), statistics.has_inf()),
        (Some(true), Some(false))
    );
    let bytes = with_statistics(statistics).encode().unwrap();
    let (decoded, _) = TensorDescriptor::decode(&bytes).unwrap();
    assert_eq!(decoded.statistics, Some(statistics));
}

#[test]
fn s16_extension_fields_fit_their_family() {
    let float = ExtensionType {
        bit_width: 16,
        is_float: true,
        sign_bits: 1,
        exponent_bits: 8,
        mantissa_bits: 7,
        exponent_bias: 127,
        has_nan: true,
        has_inf: true,
        is_signed: false,
    };
    let integer = ExtensionType {
        bit_width: 4,
        is_signed: true,
        ..ExtensionType::default()
    };
    float.validate().unwrap();
    integer.validate().unwrap();
    let broken = [
        (
            ExtensionType {
                is_signed: true,
                ..float
            },
            "is_signed",
            1,
        ),
        (
            ExtensionType {
                sign_bits: 2,
                ..float
            },
            "sign_bits",
            2,
        ),
        (
            ExtensionType {
                sign_bits: 1,
                ..integer
            },
            "sign_bits",
            1,
        ),
        (
            ExtensionType {
                exponent_bits: 5,
                ..integer
            },
            "exponent_bits",
            5,
        ),
        (
            ExtensionType {
                mantissa_bits: 3,
                ..integer
            },
            "mantissa_bits",
            3,
        ),
        (
            ExtensionType {
                exponent_bias: 9,
                ..integer
            },
            "exponent_bias",
            9,
        ),
        (
            ExtensionType {
                has_nan: true,
                ..integer
            },
            "has_nan",
            1,
        ),
        (
            ExtensionType {
                has_inf: true,
                ..integer
            },
            "has_inf",
            1,
        ),
    ];
    for (extension_type, field, value) in broken {
        let error = extension_type.validate().unwrap_err();
        let is_float = extension_type.is_float;
        assert_eq!(
            error,
            E::ExtensionField {
                field,
                value,
                is_float
            }
        );
        assert_eq!(error.rule(), "S16");
        // Kept when it was read.
        let relayed = TensorDescriptor {
            extension_type: Some(extension_type),
            ..private_type(8)
        };
        let bytes = relayed.encode().unwrap();
        assert_eq!(TensorDescriptor::decode(&bytes).unwrap().0, relayed);
    }
}

#[test]
fn s17_widths_that_are_no_whole_bytes() {
    for bit_width in [9, 12, u32::MAX] {
        let descriptor = private_type(bit_width);
        let extension_type = descriptor.extension_type.unwrap();
        let error = extension_type.validate().unwrap_err();
        assert_eq!(error, E::ExtensionPartialByte { bit_width });
        assert_eq!(error.rule(), "S17");
        assert_eq!(extension_type.storage_width(), None);
        let bytes = descriptor.encode().unwrap();
        assert_eq!(TensorDescriptor::decode(&bytes).unwrap().0, descriptor);
    }
    for bit_width in [1, 2, 4, 8, 24, 4096] {
        let extension_type = private_type(bit_width).extension_type.unwrap();
        extension_type.validate().unwrap();
        let width = extension_type.storage_width().unwrap();
        assert_eq!(width.bits(), bit_width);
    }
}

#[test]
fn s18_an_unreadable_scheme_is_relayed() {
    for payload in [&[][..], &[0xF4, 9, 9], &[0xFF; 40]] {
        let descriptor = quantized(tensor(), payload);
        let bytes = descriptor.encode().unwrap();
        let (decoded, _) = TensorDescriptor::decode(&bytes).unwrap();
        assert_eq!(decoded, descriptor);
        assert!(decoded.quantization.unwrap().scheme().is_err());
    }
}

/// W3: what no bytes can say, or only bytes that would be read as something else.
#[test]
fn w3_lists_have_as_many_entries_as_the_rank() {
    let strided = TileLevel {
        outer: TileOrder::Strided(smallvec![1]),
        ..tile(&[2, 2])
    };
    let inner = TileLevel {
        inner: InnerOrder::Strided(smallvec![1, 2, 3]),
        ..tile(&[2, 2])
    };
    let morton = Morton {
        bits: smallvec![1, 1, 1],
    };
    let mut parent = sharded();
    parent.shard.as_mut().unwrap().parent_shape.push(1);
    let mut offset = sharded();
    offset.shard.as_mut().unwrap().offset.pop();
    let mut order = csf(&[0, 1, 2]);
    order.shape.pop();
    for (descriptor, parameter, length) in [
        (with_layout(Layout::Strided(smallvec![1])), "strides", 1),
        (tiled(tile(&[2])), "tile_shape", 1),
        (tiled(strided), "outer_strides", 1),
        (tiled(inner), "inner_strides", 3),
        (with_layout(Layout::Morton(morton)), "morton_bits", 3),
        (order, "mode_order", 3),
        (parent, "parent_shape", 3),
        (offset, "shard_offset", 1),
    ] {
        let expected = E::ParameterLength {
            parameter,
            length,
            rank: 2,
        };
        refuse_to_write("W3", &descriptor, expected);
    }
}

#[test]
fn w3_a_layer_index_that_stands_for_none() {
    let mut descriptor = paged();
    if let Layout::BlockPaged(paged) = &mut descriptor.layout {
        paged.layer_index = Some(u32::MAX);
    }
    refuse_to_write("W3", &descriptor, E::LayerIndex);
}

#[test]
fn w9_at_most_255_buffers() {
    let mut descriptor = tensor();
    let row = descriptor.buffers[0];
    descriptor.buffers.resize(255, row);
    let bytes = descriptor.encode().unwrap();
    assert_eq!(TensorDescriptor::decode(&bytes).unwrap().0, descriptor);
    descriptor.buffers.push(row);
    refuse_to_write("W9", &descriptor, E::TooManyBuffers { count: 256 });
}

/// decisions.md 10: a relay forwards what it skipped.
#[test]
fn later_minor_versions_keep_what_they_append() {
    for appended in [&[][..], &[0], &[1, 2, 3, 4, 5]] {
        let descriptor = TensorDescriptor {
            version: Version {
                major: 1,
                minor: 200,
            },
            skipped: appended.to_vec(),
            ..member()
        };
        let bytes = descriptor.encode().unwrap();
        assert!(bytes.ends_with(appended));
        let (decoded, length) = TensorDescriptor::decode(&bytes).unwrap();
        assert_eq!((&decoded, length), (&descriptor, bytes.len()));
        assert_eq!(decoded.encode().unwrap(), bytes);
    }
}
