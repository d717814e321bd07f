//! R11–R31: the layout's parameters.

use super::*;

#[test]
fn r11_r12_layout_tags() {
    for tag in [0x00, 0xFF] {
        refuse_patched("R11", &tensor(), 15, &[tag], E::InvalidLayoutTag { tag });
    }
    for tag in (0x0C..=0x3F).chain(0x41..=0xEF) {
        refuse_patched("R12", &tensor(), 15, &[tag], E::ReservedLayoutTag { tag });
    }
    // After shape and byte_offset were read.
    let bytes = patched(&tensor(), 15, &[0xFF]);
    let error = TensorDescriptor::decode(&bytes[..43]).unwrap_err();
    assert_eq!(error.rule(), "R5");
}

#[test]
fn r13_reserved_bytes_of_a_layout() {
    let coo = Layout::Coo(Coo {
        nnz: 3,
        is_sorted: true,
    });
    let after_rank_3 = PARAMETERS + 8;
    for (descriptor, reserved) in [
        (tiled(tile(&[2, 2])), PARAMETERS + 18..PARAMETERS + 20),
        (with_layout(coo), PARAMETERS + 9..PARAMETERS + 16),
        (
            with_layout(Layout::Csr { nnz: 3 }),
            PARAMETERS + 8..PARAMETERS + 16,
        ),
        (
            with_layout(Layout::Csc { nnz: 3 }),
            PARAMETERS + 8..PARAMETERS + 16,
        ),
        (csf(&[2, 0, 1]), after_rank_3 + 20..after_rank_3 + 28),
        (paged(), after_rank_3 + 26..after_rank_3 + 32),
        (head(), PARAMETERS + 2..PARAMETERS + 4),
    ] {
        for at in reserved.clone() {
            let expected = E::LayoutReserved {
                offset: reserved.start,
            };
            refuse_patched("R13", &descriptor, at, &[0x80], expected);
        }
    }
}

#[test]
fn r14_tiled_scalar() {
    let mut bytes = scalar(Layout::RowMajor).encode().unwrap();
    bytes[15] = 0x04;
    bytes.splice(28..28, [1, 1, 0, 0]);
    refuse("R14", &sized(bytes), E::TiledScalar);
    let scalar = scalar(Layout::Tiled(Box::new(tile(&[]))));
    refuse_to_write("R14", &scalar, E::TiledScalar);
}

#[test]
fn r15_zero_tile() {
    let expected = E::ZeroTile { dimension: 1 };
    refuse_patched(
        "R15",
        &tiled(tile(&[2, 2])),
        PARAMETERS + 8,
        &[0],
        expected.clone(),
    );
    // At any level: 20 bytes take the one to the next.
    refuse_patched(
        "R15",
        &nested(8),
        PARAMETERS + 7 * 20 + 8,
        &[0],
        expected.clone(),
    );
    refuse_to_write("R15", &tiled(tile(&[2, 0])), expected);
}

#[test]
fn r16_outer_layout() {
    for value in [0, 4, 5, 0x40, 0xFF] {
        let level = tiled(tile(&[2, 2]));
        refuse_patched(
            "R16",
            &level,
            PARAMETERS + 16,
            &[value],
            E::OuterLayout { value },
        );
    }
}

#[test]
fn r17_inner_layout() {
    for value in [0, 5, 0x40, 0xFF] {
        let level = tiled(tile(&[2, 2]));
        refuse_patched(
            "R17",
            &level,
            PARAMETERS + 17,
            &[value],
            E::InnerLayout { value },
        );
    }
}

#[test]
fn r15_to_r17_judge_the_innermost_level_first() {
    let mut bytes = nested(2).encode().unwrap();
    bytes[PARAMETERS + 16] = 9;
    bytes[PARAMETERS + 20 + 17] = 9;
    refuse("R17", &bytes, E::InnerLayout { value: 9 });
}

#[test]
fn r18_a_ninth_level() {
    let bytes = nested(8).encode().unwrap();
    assert_eq!(TensorDescriptor::decode(&bytes).unwrap().0, nested(8));
    // It begins where the eighth says so, whatever follows.
    refuse_patched(
        "R18",
        &nested(8),
        PARAMETERS + 7 * 20 + 17,
        &[4],
        E::TilingDepth,
    );
    refuse_to_write("R18", &nested(9), E::TilingDepth);
    refuse_to_write("R18", &nested(200), E::TilingDepth);
}

#[test]
fn r19_morton_scalar() {
    let mut bytes = scalar(Layout::RowMajor).encode().unwrap();
    bytes[15] = 0x05;
    refuse("R19", &bytes, E::MortonScalar);
    let scalar = scalar(Layout::Morton(Morton { bits: smallvec![] }));
    refuse_to_write("R19", &scalar, E::MortonScalar);
}

#[test]
fn r20_zero_morton_bits() {
    let morton = |bits: &[u32]| with_layout(Layout::Morton(Morton { bits: bits.into() }));
    let expected = E::ZeroMortonBits { dimension: 1 };
    refuse_patched(
        "R20",
        &morton(&[2, 3]),
        PARAMETERS + 4,
        &[0],
        expected.clone(),
    );
    refuse_to_write("R20", &morton(&[2, 0]), expected);
}

#[test]
fn r21_mode_order_is_a_permutation() {
    for (order, level) in [
        ([2, 0, 2], 2),
        ([0, 3, 1], 1),
        ([u32::MAX, 0, 1], 0),
        ([0, 64, 1], 1),
    ] {
        let expected = E::ModeOrder {
            level,
            dimension: order[level],
            rank: 3,
        };
        let words: Vec<u8> = order.iter().flat_map(|mode| mode.to_le_bytes()).collect();
        let modes = PARAMETERS + 8 + 8;
        refuse_patched("R21", &csf(&[2, 0, 1]), modes, &words, expected.clone());
        refuse_to_write("R21", &csf(&order), expected);
    }
    // All 64 dimensions, the last first.
    let order: Vec<u32> = (0..64).rev().collect();
    let bytes = csf(&order).encode().unwrap();
    assert_eq!(TensorDescriptor::decode(&bytes).unwrap().0, csf(&order));
}

#[test]
fn r22_kv_role() {
    for value in [3, 0xFF] {
        refuse_patched(
            "R22",
            &paged(),
            PARAMETERS + 8 + 20,
            &[value],
            E::KvRole { value },
        );
    }
}

#[test]
fn r23_index_type() {
    for value in [2, 0xFF] {
        refuse_patched(
            "R23",
            &paged(),
            PARAMETERS + 8 + 25,
            &[value],
            E::IndexType { value },
        );
    }
}

#[test]
fn r24_r25_r26_composition_rules() {
    for value in 0..=0xFF {
        let (rule, expected) = match value {
            1..=3 => continue,
            0xFF => ("R25", E::InvalidCompositionRule),
            0xF0.. => ("R26", E::PrivateCompositionRule { value }),
            _ => ("R24", E::ReservedCompositionRule { value }),
        };
        refuse_patched(rule, &head(), PARAMETERS, &[value], expected);
    }
}

#[test]
fn r27_combine_op() {
    for rule in 1..=3_u8 {
        for combine_op in [0, 1, 2, 3, 0xFF] {
            let legal = if rule == 2 { 1..=2 } else { 0..=0 };
            let bytes = patched(&head(), PARAMETERS, &[rule, combine_op]);
            if legal.contains(&combine_op) {
                assert!(TensorDescriptor::decode(&bytes).is_ok());
            } else {
                refuse("R27", &bytes, E::CombineOp { rule, combine_op });
            }
        }
    }
}

#[test]
fn r28_open_composite() {
    refuse_patched("R28", &head(), PARAMETERS + 4, &[0xFF; 4], E::OpenComposite);
    let open = TensorDescriptor {
        layout: Layout::Composite(CompositeHead {
            rule: CompositionRule::Group,
            member_count: u32::MAX,
        }),
        ..head()
    };
    refuse_to_write("R28", &open, E::OpenComposite);
}

#[test]
fn r29_hilbert_order() {
    let hilbert = |order, rank| with_layout(Layout::Hilbert(Hilbert { order, rank }));
    refuse_patched("R29", &hilbert(2, 2), PARAMETERS, &[0], E::HilbertOrder);
    refuse_to_write("R29", &hilbert(0, 2), E::HilbertOrder);
}

#[test]
fn r30_hilbert_rank() {
    let hilbert = |order, rank| with_layout(Layout::Hilbert(Hilbert { order, rank }));
    for rank in [0_u32, 1] {
        let patch = rank.to_le_bytes();
        refuse_patched(
            "R30",
            &hilbert(2, 2),
            PARAMETERS + 4,
            &patch,
            E::HilbertRank { rank },
        );
        refuse_to_write("R30", &hilbert(2, rank), E::HilbertRank { rank });
    }
}

#[test]
fn r31_extension_type_presence() {
    let absent = E::ExtensionTypePresence {
        tag: 0xF1,
        present: false,
    };
    refuse_patched("R31", &tensor(), 14, &[0xF1], absent.clone());
    let without = TensorDescriptor {
        extension_type: None,
        ..private_type(8)
    };
    refuse_to_write("R31", &without, absent);
    let present = E::ExtensionTypePresence {
        tag: 0x03,
        present: true,
    };
    refuse_patched("R31", &tensor(), 10, &[0b100], present.clone());
    let with = TensorDescriptor {
        element_type: ElementType::Float32,
        ..private_type(8)
    };
    refuse_to_write("R31", &with, present);
}
