//! R42–R60: the sections, and which may stand together.

use super::*;

#[test]
fn r42_quantization_longer_than_what_is_left() {
    let descriptor = quantized(tensor(), &[1, 2, 3]);
    for (declared, patch) in [(4, [4, 0, 0, 0]), (u32::MAX, [0xFF; 4])] {
        let expected = E::QuantizationTruncated { declared, left: 3 };
        refuse_patched("R42", &descriptor, ROW + 16, &patch, expected);
    }
}

#[test]
fn r43_shard_outside_its_parent() {
    let expected = E::ShardOutOfBounds {
        dimension: 0,
        offset: 4,
        extent: 3,
        parent: 6,
    };
    refuse_patched("R43", &sharded(), ROW + 16 + 16, &[4], expected.clone());
    let mut descriptor = sharded();
    descriptor.shard.as_mut().unwrap().offset[0] = 4;
    refuse_to_write("R43", &descriptor, expected);
    // A dynamic extent in a parent that is known ends outside it, and so does an empty one that begins past its end.
    for (extent, offset) in [(DYNAMIC, 0), (0, 7), (3, DYNAMIC)] {
        descriptor.shape[0] = extent;
        descriptor.shard.as_mut().unwrap().offset[0] = offset;
        let expected = E::ShardOutOfBounds {
            dimension: 0,
            offset,
            extent,
            parent: 6,
        };
        refuse_to_write("R43", &descriptor, expected);
    }
}

#[test]
fn r44_reserved_bits_of_the_mask() {
    let at = ROW + 16;
    for bit in 6..32 {
        let mask = 1_u32 << bit;
        let descriptor = with_statistics(Statistics::default());
        let patch = mask.to_le_bytes();
        refuse_patched("R44", &descriptor, at, &patch, E::StatisticsMask { mask });
    }
}

#[test]
fn r45_reserved_bytes_of_the_statistics() {
    let at = ROW + 16;
    let descriptor = with_statistics(Statistics::default().with_nnz(3));
    for offset in [4, 68] {
        for byte in offset..offset + 4 {
            let expected = E::StatisticsReserved { offset };
            refuse_patched("R45", &descriptor, at + byte, &[1], expected);
        }
    }
}

#[test]
fn r46_extension_type_without_bits() {
    refuse_patched(
        "R46",
        &private_type(8),
        ROW + 16,
        &[0],
        E::ExtensionWidthZero,
    );
    refuse_to_write("R46", &private_type(0), E::ExtensionWidthZero);
}

#[test]
fn r47_r49_packing_factor() {
    for (rule, bit_width, expected) in [
        ("R47", 8, 1),
        ("R47", 255, 1),
        ("R49", 1, 8),
        ("R49", 2, 4),
        ("R49", 4, 2),
    ] {
        for packing_factor in [0, 1, 2, 4, 8, 255] {
            let bytes = patched(&private_type(bit_width), ROW + 16 + 4, &[packing_factor]);
            if packing_factor == expected {
                assert!(TensorDescriptor::decode(&bytes).is_ok());
                continue;
            }
            let error = E::PackingFactor {
                bit_width,
                packing_factor,
                expected,
            };
            refuse(rule, &bytes, error);
        }
    }
}

#[test]
fn r48_extension_widths() {
    for bit_width in [3, 5, 6, 7] {
        let expected = E::ExtensionWidth { bit_width };
        let patch = bit_width.to_le_bytes();
        refuse_patched("R48", &private_type(8), ROW + 16, &patch, expected.clone());
        refuse_to_write("R48", &private_type(bit_width), expected);
        assert_eq!(
            private_type(bit_width)
                .extension_type
                .unwrap()
                .storage_width(),
            None
        );
    }
}

#[test]
fn r50_reserved_bytes_of_the_extension_type() {
    for offset in [10, 18] {
        for byte in offset..offset + 2 {
            let expected = E::ExtensionReserved { offset };
            refuse_patched("R50", &private_type(8), ROW + 16 + byte, &[1], expected);
        }
    }
    // After the packing.
    let mut bytes = patched(&private_type(8), ROW + 16 + 10, &[1]);
    bytes[ROW + 16 + 4] = 0;
    assert_eq!(TensorDescriptor::decode(&bytes).unwrap_err().rule(), "R47");
}

#[test]
fn r51_member_role() {
    for value in 2..=0xFF {
        refuse_patched(
            "R51",
            &member(),
            ROW + 16,
            &[value],
            E::MemberRole { value },
        );
    }
}

#[test]
fn r52_reserved_bytes_of_the_member_section() {
    for byte in 1..16 {
        refuse_patched("R52", &member(), ROW + 16 + byte, &[1], E::MemberReserved);
    }
}

#[test]
fn r53_length_is_what_the_sections_take() {
    let bytes = tensor().encode().unwrap();
    let length = bytes.len();
    for (bytes, declared) in [
        (patched(&tensor(), 6, &[62]), 62),
        (patched(&tensor(), 6, &[0xFF; 4]), u32::MAX),
        (sized([bytes, vec![0; 3]].concat()), 64),
    ] {
        let consumed = length;
        refuse("R53", &bytes, E::Length { declared, consumed });
    }
    let appended = TensorDescriptor {
        skipped: vec![1, 2],
        ..tensor()
    };
    refuse_to_write("R53", &appended, E::SkippedBytes { length: 2 });
}

#[test]
fn r54_head_with_buffers() {
    let mut bytes = head().encode().unwrap();
    bytes[PARAMETERS + 8] = 1;
    bytes.extend_from_slice(&tensor().encode().unwrap()[ROW..]);
    refuse("R54", &sized(bytes), E::HeadBuffers { count: 1 });
    let with_buffer = TensorDescriptor {
        buffers: tensor().buffers,
        ..head()
    };
    refuse_to_write("R54", &with_buffer, E::HeadBuffers { count: 1 });
}

#[test]
fn r55_head_with_byte_offset() {
    let expected = E::HeadByteOffset { byte_offset: 64 };
    refuse_patched("R55", &head(), 36, &[64], expected.clone());
    let with_offset = TensorDescriptor {
        byte_offset: 64,
        ..head()
    };
    refuse_to_write("R55", &with_offset, expected);
}

#[test]
fn r56_head_with_quantization() {
    let mut bytes = head().encode().unwrap();
    bytes[10] = 0b1;
    bytes.extend_from_slice(&[0; 4]);
    refuse("R56", &sized(bytes), E::HeadQuantization);
    refuse_to_write("R56", &quantized(head(), &[]), E::HeadQuantization);
}

#[test]
fn r57_head_with_member_section() {
    let mut bytes = head().encode().unwrap();
    bytes[10] = 0b10000;
    bytes.extend_from_slice(&[0; 16]);
    refuse("R57", &sized(bytes), E::HeadMember);
    let with_member = TensorDescriptor {
        member: Some(MemberRole::Correction),
        ..head()
    };
    refuse_to_write("R57", &with_member, E::HeadMember);
}

/// A descriptor with a shard section that covers its parent.
fn whole(descriptor: TensorDescriptor) -> TensorDescriptor {
    let shape = descriptor.shape.clone();
    TensorDescriptor {
        shard: Some(Shard {
            offset: shape.iter().map(|_| 0).collect(),
            parent_shape: shape,
        }),
        ..descriptor
    }
}

/// The bytes of `descriptor` with that section.
fn whole_bytes(descriptor: &TensorDescriptor) -> Vec<u8> {
    let mut bytes = descriptor.encode().unwrap();
    bytes[10] |= 0b10;
    for &extent in &descriptor.shape {
        bytes.extend_from_slice(&extent.to_le_bytes());
    }
    bytes.extend(vec![0; 8 * descriptor.shape.len()]);
    sized(bytes)
}

#[test]
fn r58_paged_shard() {
    refuse("R58", &whole_bytes(&paged()), E::PagedShard);
    refuse_to_write("R58", &whole(paged()), E::PagedShard);
}

#[test]
fn r59_csf_shard() {
    let csf = csf(&[2, 0, 1]);
    refuse("R59", &whole_bytes(&csf), E::CsfShard);
    refuse_to_write("R59", &whole(csf), E::CsfShard);
}

#[test]
fn r60_paged_quantization() {
    let channel = |axis| {
        QuantizationScheme::ChannelAffine(ChannelAffine {
            axis,
            scale_buffer: 3,
            zero_point_buffer: None,
        })
    };
    let block = |axis, block_size| {
        QuantizationScheme::BlockAffine(BlockAffine {
            axis,
            block_size,
            scale_buffer: 3,
            zero_point_buffer: None,
            scale_type: ScaleType::Float16,
        })
    };
    let affine = QuantizationScheme::TensorAffine(TensorAffine {
        scale: 0.5,
        zero_point: 0,
    });
    for scheme in [channel(1), block(0, 4), affine] {
        let descriptor = quantized(paged(), scheme.encode().as_bytes());
        let bytes = descriptor.encode().unwrap();
        assert_eq!(TensorDescriptor::decode(&bytes).unwrap().0, descriptor);
    }
    let blocks = |axis, block_size| E::PagedBlocks {
        axis,
        block_size,
        page_size: 4,
    };
    let unreadable = E::PagedQuantization(QuantizationError::HeaderTruncated { length: 0 });
    for (payload, expected, layout_rule) in [
        (channel(0).encode(), E::PagedChannelAxis, "P7"),
        (block(1, 4).encode(), blocks(1, 4), "P8"),
        (block(0, 8).encode(), blocks(0, 8), "P8"),
        (QuantizationSection::from_bytes(&[]), unreadable, "P9"),
    ] {
        assert_eq!(expected.layout_rule(), Some(layout_rule));
        let payload = payload.as_bytes();
        refuse_to_write("R60", &quantized(paged(), payload), expected.clone());
        let mut bytes = paged().encode().unwrap();
        bytes[10] = 0b1;
        bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(payload);
        refuse("R60", &sized(bytes), expected);
    }
}

/// R54–R60 run after R53.
#[test]
fn r53_comes_before_what_sections_may_stand_together() {
    let mut bytes = whole_bytes(&paged());
    bytes.push(0);
    assert_eq!(
        TensorDescriptor::decode(&sized(bytes)).unwrap_err().rule(),
        "R53"
    );
}
