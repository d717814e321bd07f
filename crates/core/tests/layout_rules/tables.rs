//! Layouts against shapes and buffer tables.

use super::*;

#[test]
fn g6_no_rank_above_64() {
    assert_eq!(fits(&Layout::RowMajor, &[1; 64]), "accepted");
    assert_eq!(fits(&Layout::RowMajor, &[1; 65]), "G6");
    assert_eq!(judge(Layout::RowMajor, &[1; 65], &[1]), "G6");
}

#[test]
fn g7_dimensions_that_are_not_known_give_no_tensor_size_or_address() {
    let shape = [2, DYNAMIC];
    for layout in [
        Layout::RowMajor,
        Layout::ColumnMajor,
        strided(&[1, 1]),
        tiled(&[2, 2]),
        morton(&[1, 1]),
        coo(0),
        private(),
    ] {
        let own = layout.buffer_count(2).unwrap_or(1);
        assert_eq!(fits(&layout, &shape), "accepted", "{}", layout.name());
        assert_eq!(
            judge(layout.clone(), &shape, &vec![1 << 20; own]),
            "G7",
            "{}",
            layout.name()
        );
        if layout.is_dense() {
            let error = LayoutError::DynamicDimension { dimension: 1 };
            assert_eq!(layout.extent(&shape), Err(error.clone()));
            assert_eq!(layout.element_offset(&shape, &[0, 0]), Err(error));
        }
    }
    assert_eq!(fits(&hilbert(1, 2), &shape), "accepted");
    assert_eq!(element_count(&shape), None);
    assert_eq!(element_count(&[DYNAMIC, 0]), None);
    let error = LayoutError::DynamicDimension { dimension: 1 };
    assert_eq!(row_major_strides(&shape), Err(error.clone()));
    assert_eq!(strided_extent(&shape, &[1, 1]), Err(error));
    // A head owns no bytes.
    assert_eq!(judge(head(CompositionRule::Group), &shape, &[]), "accepted");
}

#[test]
fn g8_a_scalar_is_row_major() {
    assert_eq!(judge(Layout::RowMajor, &[], &[1]), "accepted");
    assert_eq!(judge(Layout::ColumnMajor, &[], &[1]), "G8");
    // Heads and private layouts are free.
    assert_eq!(judge(private(), &[], &[1]), "accepted");
    assert_eq!(
        judge(head(CompositionRule::Partition), &[], &[]),
        "accepted"
    );
}

#[test]
fn b1_only_a_head_has_no_buffers() {
    assert_eq!(judge(Layout::RowMajor, &[0], &[]), "B1");
    assert_eq!(judge(private(), &[1], &[]), "B1");
    assert_eq!(judge(private(), &[1], &[0]), "accepted");
    assert_eq!(judge(private(), &[1], &[0; 255]), "accepted");
}

#[test]
fn b2_s10_a_layout_has_its_buffers() {
    for (layout, shape, needed) in [
        (Layout::RowMajor, &[1, 1, 1][..], 1),
        (coo(0), &[1, 1, 1], 2),
        (Layout::Csr { nnz: 0 }, &[1, 1], 3),
        (Layout::Csc { nnz: 0 }, &[1, 1], 3),
        (csf(0, &[0, 1, 2]), &[1, 1, 1], 7),
        (Layout::BlockPaged(paged()), &[0, 1, 1], 3),
    ] {
        assert_eq!(layout.buffer_count(shape.len()), Some(needed));
        for count in [needed - 1, needed + 1] {
            let expected = if count == 0 { "B1" } else { "B2" };
            let judged = judge(layout.clone(), shape, &vec![1024; count]);
            assert_eq!(judged, expected, "{} {count}", layout.name());
        }
        assert_eq!(judge(layout, shape, &vec![1024; needed]), "accepted");
    }
}

#[test]
fn b4_every_buffer_holds_what_it_must() {
    // Shape, layout and the least size of each buffer.
    let cases: [(&[u64], Layout, &[u64]); 12] = [
        (&[3, 4], Layout::RowMajor, &[12]),
        (&[3, 4], Layout::ColumnMajor, &[12]),
        (&[3, 4], strided(&[10, 2]), &[27]),
        (&[3, 4], strided(&[0, 0]), &[1]),
        (&[5, 7], tiled(&[2, 3]), &[54]),
        // Bit 4 is a hole (decision 11).
        (&[4, 8], morton(&[2, 3]), &[48]),
        (&[4, 4], hilbert(2, 2), &[16]),
        (&[9, 9], coo(2), &[2, 32]),
        (&[4, 3], Layout::Csr { nnz: 2 }, &[2, 16, 40]),
        (&[4, 3], Layout::Csc { nnz: 2 }, &[2, 16, 32]),
        // The sizes of inner levels are in the pointers.
        (&[2, 2, 2], csf(2, &[2, 0, 1]), &[2, 16, 0, 8, 0, 8, 16]),
        (&[5, 2, 3], Layout::BlockPaged(paged()), &[72, 0, 12]),
    ];
    for (shape, layout, least) in cases {
        assert_eq!(
            judge(layout.clone(), shape, least),
            "accepted",
            "{layout:?}"
        );
        let larger: Vec<_> = least.iter().map(|size| size + 1).collect();
        assert_eq!(judge(layout.clone(), shape, &larger), "accepted");
        for buffer in 0..least.len() {
            let mut sizes = least.to_vec();
            let Some(less) = sizes[buffer].checked_sub(1) else {
                continue;
            };
            sizes[buffer] = less;
            assert_eq!(judge(layout.clone(), shape, &sizes), "B4", "{layout:?}");
        }
    }
    let error = tensor(Layout::Csr { nnz: 2 }, &[4, 3], &[2, 16, 39])
        .validate()
        .unwrap_err();
    let expected = BufferTableError::TooSmall {
        buffer: 2,
        name: BufferName::RowPtr,
        needed: 40,
        byte_size: 39,
    };
    assert_eq!(error, expected.into());
}

#[test]
fn b4_sizes_that_do_not_fit_64_bits_are_refused() {
    let most = u64::MAX - 1;
    let full = u64::MAX;
    for (layout, shape) in [
        (Layout::RowMajor, &[1 << 40, 1 << 40][..]),
        (Layout::ColumnMajor, &[most, most]),
        (strided(&[i64::MAX, i64::MAX]), &[most, most]),
        (strided(&[i64::MIN, 1]), &[3, 3]),
        (tiled(&[1 << 62, 1 << 62]), &[2, 2]),
        (tiled(&[3, 3]), &[most, most]),
        (coo(most), &[3, 3]),
        (Layout::Csr { nnz: most }, &[3, 3]),
        (Layout::Csc { nnz: 1 }, &[3, most]),
        (csf(most, &[0, 1, 2]), &[3, 3, 3]),
        (
            Layout::BlockPaged(BlockPaged {
                num_pages: most,
                ..paged()
            }),
            &[3, 3, 3],
        ),
    ] {
        let own = layout.buffer_count(shape.len()).unwrap();
        let mut descriptor = tensor(layout, shape, &vec![full; own]);
        descriptor.element_type = ElementType::Complex128;
        assert_eq!(rule(&descriptor), "B4", "{descriptor:?}");
    }
    // A product that overflows is no size, unless a dimension is 0.
    assert_eq!(
        judge(Layout::RowMajor, &[1 << 40, 1 << 40, 0], &[0]),
        "accepted"
    );
}

#[test]
fn b5_s8_byte_offset_is_zero_without_an_element_to_point_at() {
    for (layout, shape, sizes) in [
        (coo(1), &[4][..], &[1, 8][..]),
        (Layout::Csr { nnz: 0 }, &[1, 1], &[9, 9, 16]),
        (Layout::Csc { nnz: 0 }, &[1, 1], &[9, 9, 16]),
        (csf(0, &[0, 1, 2]), &[1, 1, 1], &[16; 7]),
        (Layout::BlockPaged(paged()), &[0, 1, 1], &[16; 3]),
    ] {
        let mut descriptor = tensor(layout, shape, sizes);
        assert_eq!(rule(&descriptor), "accepted");
        descriptor.byte_offset = 1;
        assert_eq!(rule(&descriptor), "B5");
    }
}

#[test]
fn b6_s7_byte_offset_is_not_past_the_end() {
    let mut descriptor = tensor(Layout::RowMajor, &[4], &[8]);
    for (byte_offset, expected) in [(4, "accepted"), (5, "B4"), (8, "B4"), (9, "B6")] {
        descriptor.byte_offset = byte_offset;
        assert_eq!(rule(&descriptor), expected);
    }
    descriptor.shape = smallvec![0];
    for (byte_offset, expected) in [(8, "accepted"), (9, "B6"), (u64::MAX, "B6")] {
        descriptor.byte_offset = byte_offset;
        assert_eq!(rule(&descriptor), expected);
    }
}

#[test]
fn b7_statistics_count_what_is_stored() {
    let with = |layout, shape: &[u64], sizes: &[u64], nnz: Option<u64>| {
        let statistics = nnz.map_or_else(Statistics::default, |nnz| {
            Statistics::default().with_nnz(nnz)
        });
        let mut descriptor = tensor(layout, shape, sizes);
        descriptor.statistics = Some(statistics);
        rule(&descriptor)
    };
    assert_eq!(with(coo(1), &[4], &[1, 8], Some(1)), "accepted");
    assert_eq!(with(coo(1), &[4], &[1, 8], Some(2)), "B7");
    assert_eq!(with(coo(1), &[4], &[1, 8], None), "accepted");
    // A dense tensor may have zeros.
    assert_eq!(with(Layout::RowMajor, &[4], &[4], Some(2)), "accepted");
}

#[test]
fn b8_s3_s4_all_rows_are_in_one_place() {
    let mut rows = [row(1), row(0), row(1)];
    assert_eq!(validate_colocation(&rows), Ok(()));
    assert_eq!(validate_colocation(&[]), Ok(()));
    rows[1].memory_class = MemoryClass::Unified;
    let class = BufferTableError::MemoryClass {
        buffer: 1,
        class: MemoryClass::Unified,
        first: MemoryClass::Standard,
    };
    assert_eq!(class.rule(), "S4");
    assert_eq!(validate_colocation(&rows), Err(class));
    rows[1].device = DeviceTag::Cuda;
    let device = BufferTableError::Device {
        buffer: 1,
        device: DeviceTag::Cuda,
        first: DeviceTag::Cpu,
    };
    assert_eq!(device.rule(), "S3");
    assert_eq!(validate_colocation(&rows), Err(device));
    // Sync modes may differ.
    let mut rows = [row(1), row(1)].map(|row| BufferHandle {
        device: DeviceTag::Cuda,
        ..row
    });
    rows[1].sync_mode = SyncMode::Event;
    assert_eq!(validate_colocation(&rows), Ok(()));
}

#[test]
fn s5_s6_memory_classes_exist_on_their_devices() {
    let private = PrivateTag::new(0xF0).unwrap();
    for (device, class, expected) in [
        (DeviceTag::Cpu, MemoryClass::HostPinned, "accepted"),
        (DeviceTag::Cpu, MemoryClass::Peer, "S5"),
        (DeviceTag::WebGpu, MemoryClass::Unified, "S5"),
        (DeviceTag::Cuda, MemoryClass::Peer, "accepted"),
        (DeviceTag::Cuda, MemoryClass::Private(private), "S6"),
        (DeviceTag::Private(private), MemoryClass::Unified, "S6"),
        (
            DeviceTag::Private(private),
            MemoryClass::Private(private),
            "accepted",
        ),
    ] {
        let mut descriptor = tensor(Layout::RowMajor, &[1], &[1]);
        descriptor.buffers[0].device = device;
        descriptor.buffers[0].memory_class = class;
        assert_eq!(rule(&descriptor), expected, "{device} {class}");
    }
}

#[test]
fn s17_a_type_without_a_size_has_no_tensor() {
    let of_width = |bit_width, size| {
        let mut descriptor = tensor(Layout::RowMajor, &[3], &[size]);
        descriptor.element_type = ElementType::Private(PrivateTag::new(0xF1).unwrap());
        descriptor.extension_type = Some(ExtensionType {
            bit_width,
            ..ExtensionType::default()
        });
        rule(&descriptor)
    };
    assert_eq!(of_width(1, 1), "accepted");
    assert_eq!(of_width(4, 2), "accepted");
    assert_eq!(of_width(24, 9), "accepted");
    assert_eq!(of_width(24, 8), "B4");
    assert_eq!(of_width(12, 9), "S17");
    assert_eq!(of_width(u32::MAX, 9), "S17");
}

#[test]
fn s1_strided_has_a_rank() {
    assert_eq!(fits(&strided(&[]), &[]), "S1");
}

#[test]
fn s2_no_element_lies_before_the_buffer() {
    let mut descriptor = tensor(strided(&[-4, 1]), &[3, 4], &[12]);
    for (byte_offset, expected) in [(8, "accepted"), (7, "S2"), (9, "B4")] {
        descriptor.byte_offset = byte_offset;
        assert_eq!(rule(&descriptor), expected);
    }
    // Half bytes: the elements −1 and −2 share the byte below.
    let mut descriptor = tensor(strided(&[-1]), &[3], &[2]);
    descriptor.element_type = ElementType::Uint4;
    assert_eq!(rule(&descriptor), "S2");
    descriptor.byte_offset = 1;
    assert_eq!(rule(&descriptor), "accepted");
    descriptor.shape = smallvec![4];
    assert_eq!(rule(&descriptor), "S2");
    // Tiles backwards.
    let mut level = level(&[2], InnerOrder::Strided(smallvec![-1]));
    level.outer = TileOrder::Strided(smallvec![-1]);
    let mut descriptor = tensor(Layout::Tiled(Box::new(level)), &[4], &[4]);
    assert_eq!(rule(&descriptor), "S2");
    descriptor.byte_offset = 3;
    assert_eq!(rule(&descriptor), "accepted");
}

#[test]
fn t1_to_t5_tiles_are_tiles() {
    assert_eq!(fits(&tiled(&[0, 1]), &[2, 2]), "T1");
    assert_eq!(fits(&tiled(&[]), &[]), "T2");
    assert_eq!(fits(&tiled(&[1]), &[2, 2]), "W3");
    assert_eq!(fits(&nested(&[&[2][..]; 8]), &[2]), "accepted");
    assert_eq!(fits(&nested(&[&[2][..]; 9]), &[2]), "T5");
    // Far deeper than any check could recurse.
    let deep = nested(&vec![&[2][..]; 5_000]);
    assert_eq!(fits(&deep, &[2]), "T5");
    assert!(deep.extent(&[2]).is_ok());
    assert!(deep.element_offset(&[2], &[1]).is_ok());
}

#[test]
fn t6_nested_tiles_divide_the_tile_around_them() {
    assert_eq!(fits(&nested(&[&[4, 6], &[2, 3]]), &[5, 5]), "accepted");
    assert_eq!(fits(&nested(&[&[3, 3], &[2, 2]]), &[3, 3]), "T6");
    assert_eq!(fits(&nested(&[&[4, 4], &[2, 2], &[4, 1]]), &[4, 4]), "T6");
    // The outermost need not divide the shape.
    assert_eq!(fits(&nested(&[&[4, 4]]), &[5, 3]), "accepted");
}

#[test]
fn m1_to_m4_morton_codes_fit() {
    assert_eq!(fits(&morton(&[]), &[]), "M1");
    assert_eq!(fits(&morton(&[1, 0]), &[1, 1]), "M2");
    assert_eq!(fits(&morton(&[2, 2]), &[4, 4]), "accepted");
    assert_eq!(fits(&morton(&[2, 2]), &[4, 5]), "M3");
    assert_eq!(fits(&morton(&[64]), &[u64::MAX - 1]), "accepted");
    assert_eq!(fits(&morton(&[65]), &[1]), "M4");
    assert_eq!(fits(&morton(&[u32::MAX; 64]), &[1; 64]), "M4");
    // 34 bits in all, and the highest at 2·32 + 1.
    assert_eq!(fits(&morton(&[1, 33]), &[1, 1]), "M4");
    assert_eq!(fits(&morton(&[32, 32]), &[1, 1]), "accepted");
}

#[test]
fn h1_to_h5_hilbert_curves_fit() {
    assert_eq!(fits(&hilbert(0, 2), &[1, 1]), "H1");
    assert_eq!(fits(&hilbert(1, 1), &[2]), "H2");
    assert_eq!(fits(&hilbert(2, 2), &[4, 4]), "accepted");
    assert_eq!(fits(&hilbert(2, 3), &[4, 4]), "H3");
    assert_eq!(fits(&hilbert(2, 2), &[4, 5]), "H4");
    assert_eq!(fits(&hilbert(64, 2), &[4, 4]), "H4");
    assert_eq!(fits(&hilbert(u32::MAX, 2), &[4, 4]), "H4");
    assert_eq!(fits(&hilbert(32, 2), &[1 << 32, 1 << 32]), "accepted");
    assert_eq!(fits(&hilbert(33, 2), &[1 << 33, 1 << 33]), "H5");
    assert_eq!(fits(&hilbert(1, 64), &[2; 64]), "accepted");
    assert_eq!(fits(&hilbert(2, 64), &[4; 64]), "H5");
    assert_eq!(fits(&hilbert(13, 5), &[1 << 13; 5]), "H5");
    // An order that no curve has costs no time, checked or not.
    for rank in [0, 1] {
        let curve = hilbert(u32::MAX, rank);
        let point = vec![1; rank as usize];
        assert!(curve.element_offset(&point, &vec![0; point.len()]).is_err());
        assert!(curve.extent(&point).is_err());
    }
}

#[test]
fn o1_r1_k1_f1_f2_p1_sparse_and_paged_layouts_have_their_rank() {
    assert_eq!(fits(&coo(0), &[]), "O1");
    for rank in [0, 1, 3] {
        let shape = vec![1; rank];
        assert_eq!(fits(&Layout::Csr { nnz: 0 }, &shape), "R1");
        assert_eq!(fits(&Layout::Csc { nnz: 0 }, &shape), "K1");
    }
    assert_eq!(fits(&csf(0, &[0, 1]), &[1, 1]), "F1");
    assert_eq!(fits(&csf(0, &[0, 1, 1]), &[1, 1, 1]), "F2");
    assert_eq!(fits(&csf(0, &[0, 1, 3]), &[1, 1, 1]), "F2");
    assert_eq!(fits(&csf(0, &[2, 0, 1]), &[1, 1, 1]), "accepted");
    assert_eq!(fits(&Layout::BlockPaged(paged()), &[1, 1]), "P1");
    assert_eq!(fits(&Layout::BlockPaged(paged()), &[1, 1, 1, 1]), "P1");
}

#[test]
fn p2_p3_pages_have_tokens_of_axis_0() {
    let shape = [1, 1, 1];
    let of = |page_size, paged_axis| {
        Layout::BlockPaged(BlockPaged {
            page_size,
            paged_axis,
            ..paged()
        })
    };
    assert_eq!(fits(&of(1, 0), &shape), "accepted");
    assert_eq!(fits(&of(0, 0), &shape), "P2");
    assert_eq!(fits(&of(1, 1), &shape), "P3");
}

#[test]
fn f3_p6_a3_shards() {
    let shard = |layout, shape: &[u64], sizes: &[u64], parent: u64| {
        let mut descriptor = tensor(layout, shape, sizes);
        descriptor.shard = Some(Shard {
            parent_shape: smallvec![parent; shape.len()],
            offset: smallvec![1; shape.len()],
        });
        rule(&descriptor)
    };
    assert_eq!(shard(Layout::RowMajor, &[4], &[4], 5), "accepted");
    assert_eq!(shard(Layout::RowMajor, &[4], &[4], 4), "A3");
    assert_eq!(shard(csf(0, &[0, 1, 2]), &[1, 1, 1], &[16; 7], 5), "F3");
    let layout = Layout::BlockPaged(paged());
    assert_eq!(shard(layout, &[0, 1, 1], &[16; 3], 5), "P6");
}

#[test]
fn c5_to_c10_heads_are_heads() {
    let plain = tensor(head(CompositionRule::Partition), &[4], &[]);
    assert_eq!(rule(&plain), "accepted");
    let mut open = plain.clone();
    open.layout = Layout::Composite(CompositeHead {
        rule: CompositionRule::Group,
        member_count: u32::MAX,
    });
    assert_eq!(rule(&open), "C5");
    let mut with_buffer = plain.clone();
    with_buffer.buffers.push(row(4));
    assert_eq!(rule(&with_buffer), "C6");
    let mut offset = plain.clone();
    offset.byte_offset = 1;
    assert_eq!(rule(&offset), "C7");
    let mut quantized = plain.clone();
    quantized.quantization = Some(hurray_core::QuantizationSection::from_bytes(&[]));
    // Q27 says the same.
    assert_eq!(rule(&quantized), "C8");
    let mut member = plain;
    member.member = Some(hurray_core::MemberRole::Base);
    assert_eq!(rule(&member), "C9");
    for composition in [
        CompositionRule::Partition,
        CompositionRule::Overlay(CombineOp::Add),
    ] {
        assert_eq!(fits(&head(composition), &[1, DYNAMIC]), "C10");
    }
}
