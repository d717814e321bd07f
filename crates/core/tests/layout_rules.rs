//! One test per rule of layouts against shapes, buffer tables and index bytes (`layouts.md` § 11, S3–S11 and S17 of `descriptor.md`).
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

use hurray_core::{
    BlockPaged, BufferHandle, BufferName, BufferTableError, CombineOp, CompositeHead,
    CompositionRule, Coo, Csf, DYNAMIC, DeviceTag, ElementType, Error, ExtensionType, Extent,
    Hilbert, IndexType, InnerOrder, KvRole, Layout, LayoutError, MemoryClass, Morton,
    PrivateLayout, PrivateTag, Shard, Statistics, StorageWidth, SyncMode, TensorDescriptor,
    TileLevel, TileOrder, column_major_strides, element_count, is_column_major, is_row_major,
    row_major_strides, strided_extent, validate_colocation, validate_contents,
};
use smallvec::{SmallVec, smallvec};

fn row(byte_size: u64) -> BufferHandle {
    BufferHandle {
        byte_size,
        alignment: 64,
        device: DeviceTag::Cpu,
        sync_mode: SyncMode::ProducerSynced,
        memory_class: MemoryClass::Standard,
    }
}

/// A tensor of bytes, so that sizes are counts.
fn tensor(layout: Layout, shape: &[u64], sizes: &[u64]) -> TensorDescriptor {
    TensorDescriptor::new(
        ElementType::Uint8,
        shape,
        layout,
        sizes.iter().map(|&size| row(size)),
    )
}

/// The number that `layouts.md` gives the rule that refuses, where it has one.
fn rule_of(result: Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "accepted",
        Err(Error::Descriptor(error)) => error.layout_rule().unwrap_or(error.rule()),
        Err(error) => error.rule(),
    }
}

fn rule(descriptor: &TensorDescriptor) -> &'static str {
    rule_of(descriptor.validate())
}

fn judge(layout: Layout, shape: &[u64], sizes: &[u64]) -> &'static str {
    rule(&tensor(layout, shape, sizes))
}

fn fits(layout: &Layout, shape: &[u64]) -> &'static str {
    rule_of(layout.validate(shape))
}

fn coo(nnz: u64) -> Layout {
    Layout::Coo(Coo {
        nnz,
        is_sorted: false,
    })
}

fn csf(nnz: u64, mode_order: &[u32]) -> Layout {
    Layout::Csf(Csf {
        nnz,
        mode_order: mode_order.into(),
    })
}

fn morton(bits: &[u32]) -> Layout {
    Layout::Morton(Morton { bits: bits.into() })
}

fn hilbert(order: u32, rank: u32) -> Layout {
    Layout::Hilbert(Hilbert { order, rank })
}

fn strided(strides: &[i64]) -> Layout {
    Layout::Strided(strides.into())
}

fn level(tile_shape: &[u64], inner: InnerOrder) -> TileLevel {
    TileLevel {
        tile_shape: tile_shape.into(),
        outer: TileOrder::RowMajor,
        inner,
    }
}

fn tiled(tile_shape: &[u64]) -> Layout {
    Layout::Tiled(Box::new(level(tile_shape, InnerOrder::RowMajor)))
}

/// Tiles inside each other, the outermost first.
fn nested(tiles: &[&[u64]]) -> Layout {
    let (last, before) = tiles.split_last().unwrap();
    let innermost = level(last, InnerOrder::RowMajor);
    Layout::Tiled(Box::new(
        before.iter().rev().fold(innermost, |inner, tile| {
            level(tile, InnerOrder::Tiled(Box::new(inner)))
        }),
    ))
}

fn paged() -> BlockPaged {
    BlockPaged {
        page_size: 4,
        num_pages: 3,
        paged_axis: 0,
        num_seqs: 2,
        kv_role: KvRole::Key,
        layer_index: None,
        index_type: IndexType::Uint32,
    }
}

fn private() -> Layout {
    Layout::Private(PrivateLayout {
        tag: PrivateTag::new(0xF7).unwrap(),
        id: 7,
        data: vec![1, 2, 3],
    })
}

fn head(rule: CompositionRule) -> Layout {
    Layout::Composite(CompositeHead {
        rule,
        member_count: 2,
    })
}

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

/// Numbers as a `uint64` buffer.
fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn contents(layout: Layout, shape: &[u64], buffers: &[Vec<u8>]) -> &'static str {
    let sizes: Vec<_> = buffers.iter().map(|b| b.len() as u64).collect();
    let descriptor = tensor(layout, shape, &sizes);
    assert_eq!(rule(&descriptor), "accepted");
    let slices: Vec<_> = buffers.iter().map(Vec::as_slice).collect();
    rule_of(validate_contents(&descriptor, &slices))
}

#[test]
fn o3_o4_o5_coordinates() {
    let list = |is_sorted, coordinates: &[[u64; 2]]| {
        let nnz = coordinates.len() as u64;
        let indices = u64s(coordinates.as_flattened());
        let layout = Layout::Coo(Coo { nnz, is_sorted });
        contents(layout, &[4, 5], &[vec![0; coordinates.len()], indices])
    };
    assert_eq!(list(true, &[[0, 0], [0, 4], [3, 0]]), "accepted");
    assert_eq!(list(false, &[[3, 0], [0, 4], [0, 0]]), "accepted");
    assert_eq!(list(false, &[[4, 0]]), "O3");
    assert_eq!(list(false, &[[0, 5]]), "O3");
    assert_eq!(list(true, &[[0, u64::MAX]]), "O3");
    assert_eq!(list(true, &[[0, 0], [0, 0]]), "O4");
    // Far apart.
    assert_eq!(list(false, &[[1, 1], [0, 0], [2, 0], [1, 1]]), "O4");
    assert_eq!(list(true, &[[1, 0], [0, 4]]), "O5");
    assert_eq!(list(true, &[]), "accepted");
    // Compared as numbers, not as little-endian bytes.
    let far = |is_sorted| {
        let layout = Layout::Coo(Coo { nnz: 2, is_sorted });
        contents(layout, &[1000], &[vec![0; 2], u64s(&[255, 256])])
    };
    assert_eq!(far(true), "accepted");
}

#[test]
fn r2_to_r5_and_k2_to_k5_compressed_slices() {
    let judge = |pointers: &[u64], coordinates: &[u64]| {
        let nnz = coordinates.len() as u64;
        let buffers = [
            vec![0; coordinates.len()],
            u64s(coordinates),
            u64s(pointers),
        ];
        (
            contents(Layout::Csr { nnz }, &[3, 4], &buffers),
            contents(Layout::Csc { nnz }, &[4, 3], &buffers),
        )
    };
    let accepted = ("accepted", "accepted");
    assert_eq!(judge(&[0, 2, 2, 3], &[0, 3, 1]), accepted);
    assert_eq!(judge(&[0, 0, 0, 0], &[]), accepted);
    assert_eq!(judge(&[1, 2, 2, 3], &[0, 3, 1]), ("R2", "K2"));
    assert_eq!(judge(&[0, 2, 2, 2], &[0, 3, 1]), ("R2", "K2"));
    assert_eq!(judge(&[0, 2, 2, u64::MAX], &[0, 3, 1]), ("R2", "K2"));
    assert_eq!(judge(&[0, 2, 1, 3], &[0, 3, 1]), ("R3", "K3"));
    assert_eq!(judge(&[0, u64::MAX, 2, 3], &[0, 3, 1]), ("R3", "K3"));
    assert_eq!(judge(&[0, 2, 2, 3], &[3, 0, 1]), ("R4", "K4"));
    assert_eq!(judge(&[0, 2, 2, 3], &[3, 3, 1]), ("R4", "K4"));
    assert_eq!(judge(&[0, 2, 2, 3], &[0, 4, 1]), ("R5", "K5"));
}

#[test]
fn f4_to_f8_fibres() {
    // (0,0,1) (0,2,3) (1,1,0) (1,1,2), as in the reference.
    let good = [
        vec![0, 2],
        vec![0, 1],
        vec![0, 2, 3],
        vec![0, 2, 1],
        vec![0, 1, 2, 4],
        vec![1, 3, 0, 2],
    ];
    let judge = |levels: &[Vec<u64>; 6]| {
        let mut buffers = vec![vec![0; 4]];
        buffers.extend(levels.iter().map(|level| u64s(level)));
        contents(csf(4, &[0, 1, 2]), &[2, 3, 4], &buffers)
    };
    assert_eq!(judge(&good), "accepted");
    for (level, at, value, expected) in [
        (0, 0, 1, "F4"),
        (2, 0, 1, "F4"),
        (4, 2, 0, "F5"),
        (2, 1, 4, "F5"),
        (0, 1, 3, "F6"),
        (4, 3, 3, "F6"),
        (2, 2, 2, "F6"),
        (1, 1, 0, "F7"),
        (5, 3, 0, "F7"),
        (1, 1, 2, "F8"),
        (3, 1, 3, "F8"),
        (5, 1, 4, "F8"),
        (0, 1, u64::MAX, "F6"),
    ] {
        let mut bad = good.clone();
        bad[level][at] = value;
        assert_eq!(judge(&bad), expected, "level {level} {at} {value}");
    }
    let empty = [
        vec![],
        u64s(&[0, 0]),
        vec![],
        u64s(&[0]),
        vec![],
        u64s(&[0]),
        vec![],
    ];
    assert_eq!(contents(csf(0, &[0, 1, 2]), &[2, 2, 2], &empty), "accepted");
}

#[test]
fn p10_to_p14_pages() {
    let judge = |tokens, table: &[u32], pointers: &[u32]| {
        let buffers = [vec![0; 12], u32s(table), u32s(pointers)];
        contents(Layout::BlockPaged(paged()), &[tokens, 1, 1], &buffers)
    };
    assert_eq!(judge(9, &[0, 2, 1], &[0, 2, 3]), "accepted");
    // Pages may be shared, sequences empty.
    assert_eq!(judge(5, &[2, 2], &[0, 2, 2]), "accepted");
    assert_eq!(judge(0, &[], &[0, 0, 0]), "accepted");
    assert_eq!(judge(9, &[0, 2, 1], &[1, 2, 3]), "P10");
    assert_eq!(judge(9, &[0, 2, 1], &[0, 4, 3]), "P11");
    assert_eq!(judge(9, &[0, 2, 1], &[0, 2, 2]), "P12");
    assert_eq!(judge(9, &[0, 2, 1], &[0, 2, 4]), "P12");
    assert_eq!(judge(9, &[0, 3, 1], &[0, 2, 3]), "P13");
    // Two and one pages of four: 4 + 1 + 1 to 12 tokens.
    for (tokens, expected) in [(5, "P14"), (6, "accepted"), (12, "accepted"), (13, "P14")] {
        assert_eq!(judge(tokens, &[0, 2, 1], &[0, 2, 3]), expected, "{tokens}");
    }
}

/// Bytes that are shorter than their rows give an error, not a panic.
#[test]
fn p10_to_p13_entries_of_index_buffers() {
    let paged = BlockPaged {
        num_pages: 3,
        num_seqs: 2,
        ..paged()
    };
    let rule = |pointers: &[u64], table: &[u64]| rule_of(paged.validate_indices(pointers, table));
    assert_eq!(rule(&[0, 1, 3], &[0, 1, 2]), "accepted");
    assert_eq!(
        rule(&[0, 0, 2], &[1, 1]),
        "accepted",
        "an empty sequence, a shared page"
    );
    assert_eq!(rule(&[0, 0, 0], &[]), "accepted");
    assert_eq!(rule(&[0, 1], &[0]), "P10");
    assert_eq!(rule(&[], &[]), "P10");
    assert_eq!(rule(&[1, 1, 3], &[0, 1, 2]), "P10");
    assert_eq!(rule(&[0, 2, 1], &[0]), "P11");
    assert_eq!(rule(&[0, 1, 3], &[0, 1]), "P12");
    assert_eq!(rule(&[0, 1, 2], &[0, 1, 2]), "P12");
    assert_eq!(rule(&[0, 1, 2, 3], &[0, 1, 2]), "P12");
    assert_eq!(rule(&[0, 1, 3], &[0, 1, 3]), "P13");
}

#[test]
fn contents_of_missing_bytes_are_refused() {
    let cases = [
        (coo(2), &[4, 4][..], "B4"),
        (Layout::Csr { nnz: 2 }, &[4, 4], "B4"),
        (csf(2, &[0, 1, 2]), &[4, 4, 4], "F6"),
        (Layout::BlockPaged(paged()), &[4, 4, 4], "P10"),
    ];
    for (layout, shape, expected) in cases {
        let descriptor = tensor(layout, shape, &[]);
        let judged = rule_of(validate_contents(&descriptor, &[]));
        assert_eq!(judged, expected);
    }
}

/// PaddlePaddle/Paddle#68559: the extent of mixed-sign strides has two ends, and is not the number of elements.
#[test]
fn paddle_68559_extent_of_mixed_strides() {
    let extent = strided_extent(&[5, 6], &[24, -2]).unwrap().unwrap();
    assert_eq!(extent, Extent { lo: -10, hi: 96 });
    let width = StorageWidth::from_bits(32).unwrap();
    let bytes = extent.bytes(width).unwrap();
    assert_eq!((bytes.before, bytes.after), (40, 388));
    let mut descriptor = tensor(strided(&[24, -2]), &[5, 6], &[11 * 4 + 388]);
    descriptor.element_type = ElementType::Float32;
    descriptor.byte_offset = 11 * 4;
    assert_eq!(rule(&descriptor), "accepted");
    descriptor.buffers[0].byte_size -= 1;
    assert_eq!(rule(&descriptor), "B4");
    descriptor.buffers[0].byte_size = 1 << 20;
    descriptor.byte_offset = 9 * 4;
    assert_eq!(rule(&descriptor), "S2");
}

/// The ValidationOverflow tests of safetensors: sizes are checked products.
#[test]
fn safetensors_validation_overflow() {
    assert_eq!(element_count(&[1 << 62, 1 << 62]), None);
    assert_eq!(judge(Layout::RowMajor, &[1 << 62, 1 << 62], &[0]), "B4");
    assert_eq!(
        strided_extent(&[1 << 62, 1 << 62], &[1 << 62, 1]),
        Err(LayoutError::ExtentOverflow)
    );
}

/// pytorch/pytorch#163274: dimensions of one element may have any stride, and nothing of an empty shape matters.
#[test]
fn strides_of_single_elements_do_not_matter() {
    assert!(is_row_major(&[2, 1, 3], &[3, -99, 1]));
    assert!(is_row_major(&[1], &[i64::MIN]));
    assert!(is_row_major(&[4, 0], &[7, 7]));
    assert!(!is_row_major(&[2, 3], &[1, 2]));
    assert!(is_column_major(&[2, 1, 3], &[1, -99, 2]));
    assert!(!is_column_major(&[2, 3], &[3, 1]));
    assert!(!is_row_major(&[2, 3], &[3]));
    assert!(is_row_major(&[], &[]) && is_column_major(&[], &[]));
}

#[test]
fn strides_of_a_shape() {
    let strides = |list: &[i64]| -> SmallVec<[i64; 6]> { list.into() };
    assert_eq!(row_major_strides(&[2, 3, 4]), Ok(strides(&[12, 4, 1])));
    assert_eq!(column_major_strides(&[2, 3, 4]), Ok(strides(&[1, 2, 6])));
    assert_eq!(row_major_strides(&[]), Ok(strides(&[])));
    assert_eq!(row_major_strides(&[3, 0]), Ok(strides(&[0, 1])));
    assert_eq!(
        row_major_strides(&[0, 1 << 40, 1 << 40]),
        Ok(strides(&[0, 1 << 40, 1]))
    );
    assert_eq!(
        row_major_strides(&[1, 1 << 40, 1 << 40]),
        Err(LayoutError::ExtentOverflow)
    );
}

#[test]
fn element_addresses_are_inside_the_buffer() {
    let mut descriptor = tensor(Layout::RowMajor, &[5], &[3]);
    descriptor.element_type = ElementType::Float6E2m3;
    // One group of four elements: the fifth is outside, whatever a descriptor that was not validated says.
    let address = descriptor.element_address(&[3]).unwrap();
    assert_eq!(
        (address.byte, address.length, address.bit_shift),
        (0, 3, 18)
    );
    let error = descriptor.element_address(&[4]).unwrap_err();
    let expected = LayoutError::ElementOutsideBuffer {
        byte: 3,
        length: 3,
        byte_size: 3,
    };
    assert_eq!(error, expected.into());
    let error = descriptor.element_address(&[5]).unwrap_err();
    assert_eq!(
        error,
        LayoutError::IndexOutOfBounds {
            dimension: 0,
            index: 5,
            size: 5
        }
        .into()
    );
    assert!(descriptor.element_address(&[0, 0]).is_err());
    descriptor.byte_offset = u64::MAX;
    assert!(descriptor.element_address(&[0]).is_err());
    descriptor.layout = coo(1);
    assert!(matches!(
        descriptor.element_address(&[0]),
        Err(Error::Layout(LayoutError::NoElementOffset {
            layout: "coo"
        }))
    ));
}
