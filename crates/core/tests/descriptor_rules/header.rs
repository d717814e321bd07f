//! R1–R10: up to the shape.

use super::*;

#[test]
fn r1_fewer_than_ten_bytes() {
    refuse("R1", &[], E::TooShort { available: 0 });
    // Before the magic.
    refuse(
        "R1",
        b"xxxx\x02\x00\x00\x00\x00",
        E::TooShort { available: 9 },
    );
}

#[test]
fn r2_magic() {
    refuse_patched("R2", &tensor(), 0, b"HRRZ", E::Magic { magic: *b"HRRZ" });
}

#[test]
fn r3_major_version() {
    for major in [2, 255] {
        refuse_patched("R3", &tensor(), 4, &[major], E::MajorVersion { major });
        let later = TensorDescriptor {
            version: Version { major, minor: 0 },
            ..tensor()
        };
        refuse_to_write("R3", &later, E::MajorVersion { major });
    }
}

#[test]
fn r4_length_below_the_header() {
    for declared in [0, 19] {
        let bytes = patched(&tensor(), 6, &[declared, 0, 0, 0]);
        let declared = declared.into();
        refuse("R4", &bytes, E::LengthBelowHeader { declared });
    }
}

#[test]
fn r5_a_field_past_the_limit() {
    let bytes = tensor().encode().unwrap();
    // The limit is the lesser of the declared length and the bytes at hand.
    let expected = |limit| E::Truncated {
        field: "shape",
        offset: 20,
        length: 16,
        limit,
    };
    refuse("R5", &bytes[..35], expected(35));
    refuse("R5", &patched(&tensor(), 6, &[30]), expected(30));
    for length in 10..bytes.len() {
        let error = TensorDescriptor::decode(&bytes[..length]).unwrap_err();
        assert_eq!(error.rule(), "R5", "{length}: {error}");
    }
}

#[test]
fn r6_reserved_flags() {
    for bit in 5..32 {
        let flags = 1_u32 << bit;
        let bytes = patched(&tensor(), 10, &flags.to_le_bytes());
        refuse("R6", &bytes, E::ReservedFlags { flags });
    }
}

#[test]
fn r7_r8_r9_type_tags() {
    for tag in 0..=0xEF_u8 {
        let (rule, expected) = match tag {
            0x00 => ("R7", E::InvalidTypeTag { tag }),
            0x47 | 0x80.. => ("R8", E::ReservedTypeTag { tag }),
            0x01..=0x04 | 0x10..=0x17 | 0x20 | 0x40..=0x46 | 0x48..=0x4B | 0x50..=0x51 => {
                let (descriptor, _) =
                    TensorDescriptor::decode(&patched(&tensor(), 14, &[tag])).unwrap();
                assert_eq!(descriptor.element_type.tag(), tag);
                continue;
            }
            _ => ("R9", E::UnassignedTypeTag { tag }),
        };
        refuse_patched(rule, &tensor(), 14, &[tag], expected);
    }
    refuse_patched(
        "R7",
        &tensor(),
        14,
        &[0xFF],
        E::InvalidTypeTag { tag: 0xFF },
    );
}

#[test]
fn r10_rank_above_64() {
    refuse_patched("R10", &tensor(), 16, &[65], E::Rank { rank: 65 });
    let highest = E::Rank {
        rank: u32::MAX as usize,
    };
    refuse_patched("R10", &tensor(), 16, &[0xFF; 4], highest);
    let wide = TensorDescriptor {
        shape: smallvec![1; 65],
        ..tensor()
    };
    refuse_to_write("R10", &wide, E::Rank { rank: 65 });
    let widest = TensorDescriptor {
        shape: smallvec![1; 64],
        ..tensor()
    };
    let bytes = widest.encode().unwrap();
    assert_eq!(TensorDescriptor::decode(&bytes).unwrap().0, widest);
}
