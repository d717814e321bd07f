//! One test per rule of `descriptor.md`: the bytes that break it are refused for it, with their numbers, and so is the descriptor in memory
//! where one can hold it. S3–S11 are not the codec's: it relays what breaks them.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

use hurray_core::{
    BlockAffine, BlockPaged, BufferHandle, ChannelAffine, CombineOp, CompositeHead,
    CompositionRule, Coo, Csf, DYNAMIC, DescriptorError as E, DeviceTag, ElementType, Error,
    ExtensionType, Hilbert, IndexType, InnerOrder, KvRole, Layout, MemberRole, MemoryClass, Morton,
    PrivateLayout, PrivateTag, QuantizationError, QuantizationScheme, QuantizationSection,
    ScaleType, Shard, Statistics, SyncMode, TensorAffine, TensorDescriptor, TileLevel, TileOrder,
    Version,
};
use smallvec::smallvec;

/// A rank-2 float32 tensor in one host buffer: the layout's parameters begin at byte 44, the buffer table after them.
fn tensor() -> TensorDescriptor {
    TensorDescriptor::new(
        ElementType::Float32,
        [3, 7].as_slice(),
        Layout::RowMajor,
        [BufferHandle {
            byte_size: 84,
            alignment: 64,
            device: DeviceTag::Cpu,
            sync_mode: SyncMode::ProducerSynced,
            memory_class: MemoryClass::Standard,
        }],
    )
}

const PARAMETERS: usize = 44;
const ROW: usize = PARAMETERS + 1;

fn with_layout(layout: Layout) -> TensorDescriptor {
    TensorDescriptor { layout, ..tensor() }
}

fn scalar(layout: Layout) -> TensorDescriptor {
    TensorDescriptor {
        shape: smallvec![],
        layout,
        ..tensor()
    }
}

fn head() -> TensorDescriptor {
    TensorDescriptor {
        buffers: smallvec![],
        ..with_layout(Layout::Composite(CompositeHead {
            rule: CompositionRule::Overlay(CombineOp::Add),
            member_count: 2,
        }))
    }
}

fn paged() -> TensorDescriptor {
    TensorDescriptor {
        shape: smallvec![9, 2, 8],
        ..with_layout(Layout::BlockPaged(BlockPaged {
            page_size: 4,
            num_pages: 5,
            paged_axis: 0,
            num_seqs: 2,
            kv_role: KvRole::Value,
            layer_index: Some(3),
            index_type: IndexType::Uint64,
        }))
    }
}

fn csf(mode_order: &[u32]) -> TensorDescriptor {
    TensorDescriptor {
        shape: mode_order.iter().map(|_| 4).collect(),
        ..with_layout(Layout::Csf(Csf {
            nnz: 2,
            mode_order: mode_order.into(),
        }))
    }
}

fn tile(tile_shape: &[u64]) -> TileLevel {
    TileLevel {
        tile_shape: tile_shape.into(),
        outer: TileOrder::RowMajor,
        inner: InnerOrder::ColumnMajor,
    }
}

fn tiled(level: TileLevel) -> TensorDescriptor {
    with_layout(Layout::Tiled(Box::new(level)))
}

fn nested(levels: usize) -> TensorDescriptor {
    let mut level = tile(&[2, 2]);
    for _ in 1..levels {
        level = TileLevel {
            inner: InnerOrder::Tiled(Box::new(level)),
            ..tile(&[2, 2])
        };
    }
    tiled(level)
}

fn sharded() -> TensorDescriptor {
    TensorDescriptor {
        shard: Some(Shard {
            parent_shape: smallvec![6, 7],
            offset: smallvec![3, 0],
        }),
        ..tensor()
    }
}

fn private_type(bit_width: u32) -> TensorDescriptor {
    TensorDescriptor {
        element_type: ElementType::Private(PrivateTag::new(0xF1).unwrap()),
        extension_type: Some(ExtensionType {
            bit_width,
            ..ExtensionType::default()
        }),
        ..tensor()
    }
}

fn with_statistics(statistics: Statistics) -> TensorDescriptor {
    TensorDescriptor {
        statistics: Some(statistics),
        ..tensor()
    }
}

fn member() -> TensorDescriptor {
    TensorDescriptor {
        member: Some(MemberRole::Base),
        ..tensor()
    }
}

fn quantized(mut descriptor: TensorDescriptor, payload: &[u8]) -> TensorDescriptor {
    descriptor.quantization = Some(QuantizationSection::from_bytes(payload));
    descriptor
}

/// The bytes of a descriptor that can be written, with `patch` at `offset`.
fn patched(descriptor: &TensorDescriptor, offset: usize, patch: &[u8]) -> Vec<u8> {
    let mut bytes = descriptor.encode().unwrap();
    assert_eq!(
        TensorDescriptor::decode(&bytes).as_ref(),
        Ok(&(descriptor.clone(), bytes.len()))
    );
    bytes[offset..offset + patch.len()].copy_from_slice(patch);
    bytes
}

/// `bytes` with a `descriptor_length` of their number.
fn sized(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[6..10].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[track_caller]
fn refuse(rule: &str, bytes: &[u8], expected: E) {
    let error = TensorDescriptor::decode(bytes).unwrap_err();
    assert_eq!(error, Error::Descriptor(expected));
    assert_eq!(error.rule(), rule);
    assert!(!error.to_string().is_empty());
}

/// What `patch` at `offset` makes of the descriptor is refused.
#[track_caller]
fn refuse_patched(
    rule: &str,
    descriptor: &TensorDescriptor,
    offset: usize,
    patch: &[u8],
    expected: E,
) {
    refuse(rule, &patched(descriptor, offset, patch), expected);
}

/// The descriptor in memory is not written.
#[track_caller]
fn refuse_to_write(rule: &str, descriptor: &TensorDescriptor, expected: E) {
    let error = descriptor.encode().unwrap_err();
    assert_eq!(error, Error::Descriptor(expected));
    assert_eq!(error.rule(), rule);
    let mut bytes = vec![7];
    assert!(descriptor.encode_into(&mut bytes).is_err());
    assert_eq!(bytes, [7], "an error appends nothing");
}

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

#[test]
fn r32_no_buffers() {
    refuse_patched("R32", &tensor(), PARAMETERS, &[0], E::NoBuffers);
    let private = Layout::Private(PrivateLayout {
        tag: PrivateTag::new(0xF0).unwrap(),
        id: 9,
        data: vec![1, 2, 3],
    });
    for layout in [Layout::RowMajor, private] {
        let empty = TensorDescriptor {
            buffers: smallvec![],
            ..with_layout(layout)
        };
        refuse_to_write("R32", &empty, E::NoBuffers);
    }
    assert!(head().encode().is_ok());
}

/// A second row, so that errors name the row.
fn two_rows() -> TensorDescriptor {
    let mut descriptor = tensor();
    descriptor.buffers.push(BufferHandle {
        device: DeviceTag::Cuda,
        ..descriptor.buffers[0]
    });
    descriptor
}

fn patch_row(rule: &str, offset: usize, patch: &[u8], expected: E) {
    refuse_patched(rule, &two_rows(), ROW + 16 + offset, patch, expected);
}

#[test]
fn r33_reserved_byte_of_a_row() {
    patch_row(
        "R33",
        15,
        &[0x80],
        E::RowReserved {
            row: 1,
            value: 0x80,
        },
    );
}

#[test]
fn r34_r35_device_tags() {
    for tag in 0x09..=0xEF {
        patch_row("R34", 12, &[tag], E::ReservedDevice { row: 1, tag });
    }
    patch_row("R35", 12, &[0xFF], E::InvalidDevice { row: 1 });
}

#[test]
fn r36_sync_mode() {
    for value in 0x03..=0xFF {
        patch_row("R36", 13, &[value], E::SyncMode { row: 1, value });
    }
}

#[test]
fn r37_r38_memory_classes() {
    for value in 0x04..=0xEF {
        patch_row(
            "R37",
            14,
            &[value],
            E::ReservedMemoryClass { row: 1, value },
        );
    }
    patch_row("R38", 14, &[0xFF], E::InvalidMemoryClass { row: 1 });
}

#[test]
fn r39_alignment_is_a_power_of_two() {
    for (byte_size, alignment) in [(84, 0), (84, 65), (84, u32::MAX), (0, 0), (0, 12)] {
        let expected = E::Alignment { row: 1, alignment };
        let mut descriptor = two_rows();
        descriptor.buffers[1].byte_size = byte_size;
        let patch = alignment.to_le_bytes();
        refuse_patched("R39", &descriptor, ROW + 16 + 8, &patch, expected.clone());
        descriptor.buffers[1].alignment = alignment;
        refuse_to_write("R39", &descriptor, expected);
    }
}

#[test]
fn r40_alignment_of_bytes_is_64() {
    for shift in 0..32 {
        let alignment = 1_u32 << shift;
        let mut descriptor = two_rows();
        descriptor.buffers[1].alignment = alignment;
        if alignment >= 64 {
            assert!(descriptor.encode().is_ok());
        } else {
            let expected = E::AlignmentBelowMinimum {
                row: 1,
                byte_size: 84,
                alignment,
            };
            patch_row("R40", 8, &alignment.to_le_bytes(), expected.clone());
            refuse_to_write("R40", &descriptor, expected);
        }
        descriptor.buffers[1].byte_size = 0;
        assert!(
            descriptor.encode().is_ok(),
            "an empty buffer of {alignment}"
        );
    }
}

#[test]
fn r41_host_memory_is_synchronised() {
    for byte_size in [84, 0] {
        for mode in [SyncMode::Event, SyncMode::ConsumerStream] {
            let expected = E::HostSyncMode { row: 0, mode };
            let mut descriptor = tensor();
            descriptor.buffers[0].byte_size = byte_size;
            let patch = [mode.to_byte()];
            refuse_patched("R41", &descriptor, ROW + 13, &patch, expected.clone());
            descriptor.buffers[0].sync_mode = mode;
            refuse_to_write("R41", &descriptor, expected);
        }
    }
}

/// A row is read in full, then judged R33, device, sync, class, R39, R40, R41.
#[test]
fn r33_to_r41_are_judged_in_order() {
    let bad = [3, 0, 0, 0, 0xFF, 0xFF, 0xFF, 1];
    let mut bytes = patched(&tensor(), ROW + 8, &bad);
    for (rule, offset, repaired) in [
        ("R33", 15, &[0][..]),
        ("R35", 12, &[0]),
        ("R36", 13, &[1]),
        ("R38", 14, &[0]),
        ("R39", 8, &[32]),
        ("R40", 8, &[64]),
        ("R41", 13, &[0]),
    ] {
        assert_eq!(TensorDescriptor::decode(&bytes).unwrap_err().rule(), rule);
        let at = ROW + offset;
        bytes[at..at + repaired.len()].copy_from_slice(repaired);
    }
    assert!(TensorDescriptor::decode(&bytes).is_ok());
}

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
