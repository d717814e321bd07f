//! Random descriptors that can be written, over all layouts, sections, types and tags.

use hurray_core::{
    BlockAffine, BlockPaged, BufferHandle, ChannelAffine, CombineOp, CompositeHead,
    CompositionRule, Coo, Csf, DYNAMIC, DeviceTag, ElementType, ExtensionType, Hilbert, IndexType,
    InnerOrder, KvRole, Layout, MemberRole, MemoryClass, Morton, Mxfp, Nf4, PrivateLayout,
    PrivateTag, QuantizationScheme, QuantizationSection, ScaleType, Shard, Statistics, SyncMode,
    TensorAffine, TensorDescriptor, TileLevel, TileOrder, Version,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn private_tag() -> impl Strategy<Value = PrivateTag> {
    (0xF0..=0xFE_u8).prop_map(|tag| PrivateTag::new(tag).unwrap())
}

fn element_type() -> impl Strategy<Value = ElementType> {
    prop_oneof![
        4 => select(ElementType::named().collect::<Vec<_>>()),
        1 => private_tag().prop_map(ElementType::Private),
    ]
}

fn rank() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..=5_usize, 1 => 6..=64_usize]
}

fn dim() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..100_u64, 1 => any::<u64>(), 1 => Just(DYNAMIC)]
}

fn strides(rank: usize) -> impl Strategy<Value = hurray_core::Strides> {
    vec(prop_oneof![-9..9_i64, any::<i64>()], rank).prop_map(Into::into)
}

fn tile_level(rank: usize, levels: usize) -> BoxedStrategy<TileLevel> {
    let outer = prop_oneof![
        Just(TileOrder::RowMajor),
        Just(TileOrder::ColumnMajor),
        strides(rank).prop_map(TileOrder::Strided),
    ];
    let inner = prop_oneof![
        Just(InnerOrder::RowMajor),
        Just(InnerOrder::ColumnMajor),
        strides(rank).prop_map(InnerOrder::Strided),
    ];
    let inner = if levels > 1 {
        prop_oneof![
            1 => inner,
            2 => tile_level(rank, levels - 1).prop_map(|level| InnerOrder::Tiled(Box::new(level))),
        ]
        .boxed()
    } else {
        inner.boxed()
    };
    let tile_shape = vec(prop_oneof![1..9_u64, 1..=u64::MAX], rank);
    (tile_shape, outer, inner)
        .prop_map(|(tile_shape, outer, inner)| TileLevel {
            tile_shape: tile_shape.into(),
            outer,
            inner,
        })
        .boxed()
}

fn csf(rank: usize) -> impl Strategy<Value = Csf> {
    let identity: Vec<u32> = (0..).take(rank).collect();
    (any::<u64>(), Just(identity).prop_shuffle()).prop_map(|(nnz, mode_order)| Csf {
        nnz,
        mode_order: mode_order.into(),
    })
}

fn block_paged() -> impl Strategy<Value = BlockPaged> {
    (
        any::<u32>(),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        select(&[KvRole::Key, KvRole::Value, KvRole::Fused]),
        option::of(0..u32::MAX),
        select(&[IndexType::Uint32, IndexType::Uint64]),
    )
        .prop_map(
            |(page_size, num_pages, paged_axis, num_seqs, kv_role, layer_index, index_type)| {
                BlockPaged {
                    page_size,
                    num_pages,
                    paged_axis,
                    num_seqs,
                    kv_role,
                    layer_index,
                    index_type,
                }
            },
        )
}

fn composite_head() -> impl Strategy<Value = CompositeHead> {
    let rules = [
        CompositionRule::Partition,
        CompositionRule::Overlay(CombineOp::Replace),
        CompositionRule::Overlay(CombineOp::Add),
        CompositionRule::Group,
    ];
    (select(rules.to_vec()), 0..u32::MAX)
        .prop_map(|(rule, member_count)| CompositeHead { rule, member_count })
}

fn layout(rank: usize) -> BoxedStrategy<Layout> {
    let any_rank = prop_oneof![
        Just(Layout::RowMajor),
        Just(Layout::ColumnMajor),
        strides(rank).prop_map(Layout::Strided),
        (any::<u64>(), any::<bool>())
            .prop_map(|(nnz, is_sorted)| Layout::Coo(Coo { nnz, is_sorted })),
        any::<u64>().prop_map(|nnz| Layout::Csr { nnz }),
        any::<u64>().prop_map(|nnz| Layout::Csc { nnz }),
        csf(rank).prop_map(Layout::Csf),
        block_paged().prop_map(Layout::BlockPaged),
        composite_head().prop_map(Layout::Composite),
        (1..=u32::MAX, 2..=u32::MAX)
            .prop_map(|(order, rank)| Layout::Hilbert(Hilbert { order, rank })),
        (private_tag(), any::<u64>(), vec(any::<u8>(), 0..40))
            .prop_map(|(tag, id, data)| Layout::Private(PrivateLayout { tag, id, data })),
    ];
    if rank == 0 {
        return any_rank.boxed();
    }
    prop_oneof![
        11 => any_rank,
        2 => tile_level(rank, 8).prop_map(|level| Layout::Tiled(Box::new(level))),
        1 => vec(1..=u32::MAX, rank).prop_map(|bits| Layout::Morton(Morton { bits: bits.into() })),
    ]
    .boxed()
}

fn buffer() -> impl Strategy<Value = BufferHandle> {
    let device = prop_oneof![
        4 => select(&DeviceTag::NAMED),
        1 => private_tag().prop_map(DeviceTag::Private),
    ];
    let memory_class = prop_oneof![
        4 => select(&MemoryClass::NAMED),
        1 => private_tag().prop_map(MemoryClass::Private),
    ];
    let modes = [
        SyncMode::ProducerSynced,
        SyncMode::Event,
        SyncMode::ConsumerStream,
    ];
    let size = prop_oneof![1 => Just(0), 3 => any::<u64>()];
    (
        size,
        0..=31_u32,
        device,
        memory_class,
        select(modes.to_vec()),
    )
        .prop_map(
            |(byte_size, shift, device, memory_class, sync_mode)| BufferHandle {
                byte_size,
                alignment: 1 << if byte_size == 0 { shift } else { shift.max(6) },
                device,
                sync_mode: if device == DeviceTag::Cpu {
                    SyncMode::ProducerSynced
                } else {
                    sync_mode
                },
                memory_class,
            },
        )
}

/// A scheme whose parameters hold without a tensor.
pub(crate) fn scheme() -> impl Strategy<Value = QuantizationScheme> {
    let index = || prop_oneof![0..5_u32, 0..u32::MAX];
    let scale = any::<f32>().prop_filter("Q10", |scale| scale.is_finite() && *scale != 0.0);
    let scale_types = [ScaleType::Float16, ScaleType::Bfloat16, ScaleType::Float32];
    prop_oneof![
        (scale, any::<i32>()).prop_map(|(scale, zero_point)| QuantizationScheme::TensorAffine(
            TensorAffine { scale, zero_point }
        )),
        (any::<u32>(), index(), option::of(index())).prop_map(
            |(axis, scale_buffer, zero_point_buffer)| QuantizationScheme::ChannelAffine(
                ChannelAffine {
                    axis,
                    scale_buffer,
                    zero_point_buffer
                }
            )
        ),
        (
            any::<u32>(),
            1..=31_u32,
            index(),
            option::of(index()),
            select(scale_types.to_vec())
        )
            .prop_map(
                |(axis, shift, scale_buffer, zero_point_buffer, scale_type)| {
                    QuantizationScheme::BlockAffine(BlockAffine {
                        axis,
                        block_size: 1 << shift,
                        scale_buffer,
                        zero_point_buffer,
                        scale_type,
                    })
                }
            ),
        (any::<u32>(), 3..=31_u32, index()).prop_map(|(axis, shift, scale_buffer)| {
            QuantizationScheme::Nf4(Nf4 {
                axis,
                block_size: 1 << shift,
                scale_buffer,
            })
        }),
        (any::<u32>(), 4..=11_u32, index()).prop_map(|(axis, shift, scale_buffer)| {
            QuantizationScheme::Mxfp(Mxfp {
                axis,
                block_size: 1 << shift,
                scale_buffer,
            })
        }),
    ]
}

fn quantization() -> impl Strategy<Value = QuantizationSection> {
    prop_oneof![
        3 => scheme().prop_map(|scheme| scheme.encode()),
        1 => vec(any::<u8>(), 0..60).prop_map(|bytes| QuantizationSection::from_bytes(&bytes)),
    ]
}

/// A parent in which a tensor of `shape` lies: from `before` on, with `after` behind it. Dynamic dimensions become 3.
fn shard(shape: &mut [u64], around: &[(u64, u64)]) -> Shard {
    let mut shard = Shard {
        parent_shape: Default::default(),
        offset: Default::default(),
    };
    for (extent, &(before, after)) in shape.iter_mut().zip(around) {
        if extent.checked_add(200).is_none() {
            *extent = 3;
        }
        shard.parent_shape.push(*extent + before + after);
        shard.offset.push(before);
    }
    shard
}

/// Any bits in the fields, known or not; `-0.0` and NaN payloads among them.
fn statistics() -> impl Strategy<Value = Statistics> {
    let floats = proptest::array::uniform6(any::<u64>());
    let bytes = (any::<u8>(), any::<u8>(), any::<bool>(), any::<bool>());
    (0..64_u32, any::<u64>(), floats, bytes).prop_map(|(mask, nnz, floats, (n, m, nan, inf))| {
        statistics_of(mask, nnz, floats, [n, m, nan.into(), inf.into()])
    })
}

/// The section with these fields, read from a descriptor: nothing else gives one with unknown fields that are not zero.
fn statistics_of(mask: u32, nnz: u64, floats: [u64; 6], bytes: [u8; 4]) -> Statistics {
    let head = Layout::Composite(CompositeHead {
        rule: CompositionRule::Group,
        member_count: 0,
    });
    let scalar = TensorDescriptor {
        statistics: Some(Statistics::default()),
        ..TensorDescriptor::new(ElementType::Int8, [].as_slice(), head, [])
    };
    let mut encoded = scalar.encode().unwrap();
    let section = encoded.len() - 72;
    encoded[section..section + 4].copy_from_slice(&mask.to_le_bytes());
    encoded[section + 8..section + 16].copy_from_slice(&nnz.to_le_bytes());
    for (at, bits) in (section + 16..).step_by(8).zip(floats) {
        encoded[at..at + 8].copy_from_slice(&bits.to_le_bytes());
    }
    encoded[section + 64..section + 68].copy_from_slice(&bytes);
    let (descriptor, _) = TensorDescriptor::decode(&encoded).unwrap();
    descriptor.statistics.unwrap()
}

fn extension_type() -> impl Strategy<Value = ExtensionType> {
    let bit_width = prop_oneof![select(&[1, 2, 4, 8, 16, 12]), 8..=u32::MAX];
    let flags = proptest::array::uniform4(any::<bool>());
    let sign_bits = prop_oneof![0..=1_u8, any::<u8>()];
    let float = (sign_bits, any::<u8>(), any::<u8>(), any::<u32>());
    let bits = prop_oneof![Just((0, 0, 0, 0)), float];
    (bit_width, flags, bits).prop_map(
        |(
            bit_width,
            [is_float, is_signed, has_nan, has_inf],
            (sign_bits, exponent_bits, mantissa_bits, exponent_bias),
        )| ExtensionType {
            bit_width,
            is_float,
            is_signed,
            sign_bits,
            exponent_bits,
            mantissa_bits,
            exponent_bias,
            has_nan,
            has_inf,
        },
    )
}

/// A descriptor that can be written, whether or not a tensor could have it.
pub(crate) fn descriptor() -> impl Strategy<Value = TensorDescriptor> {
    let head = rank().prop_flat_map(|rank| {
        (
            element_type(),
            vec(dim(), rank),
            layout(rank),
            option::of(vec((0..100_u64, 0..100_u64), rank)),
        )
    });
    let sections = (
        option::of(quantization()),
        option::of(statistics()),
        extension_type(),
        option::of(select(&[MemberRole::Base, MemberRole::Correction])),
    );
    let later = prop_oneof![
        5 => Just((0, Vec::new())),
        1 => (1..=u8::MAX, vec(any::<u8>(), 0..30)),
    ];
    let buffers = prop_oneof![9 => vec(buffer(), 1..7), 1 => vec(buffer(), 7..=255)];
    let byte_offset = prop_oneof![Just(0), any::<u64>()];
    (head, byte_offset, buffers, sections, later).prop_map(
        |(
            (element_type, mut shape, layout, around),
            byte_offset,
            buffers,
            (mut quantization, statistics, extension_type, mut member),
            (minor, skipped),
        )| {
            let mut buffers = buffers;
            let mut byte_offset = byte_offset;
            let mut around = around;
            match &layout {
                Layout::Composite(_) => {
                    buffers = Vec::new();
                    byte_offset = 0;
                    quantization = None;
                    member = None;
                }
                Layout::Csf(_) => around = None,
                Layout::BlockPaged(paged) => {
                    around = None;
                    quantization = quantization.filter(|section| match section.scheme() {
                        Ok(QuantizationScheme::ChannelAffine(channel)) => channel.axis != 0,
                        Ok(QuantizationScheme::BlockAffine(block)) => {
                            block.axis == 0 && block.block_size == paged.page_size
                        }
                        scheme => scheme.is_ok(),
                    });
                }
                _ => {}
            }
            let shard = around.map(|around| shard(&mut shape, &around));
            TensorDescriptor {
                version: Version { major: 1, minor },
                element_type,
                shape: shape.into(),
                byte_offset,
                layout,
                buffers: buffers.into(),
                quantization,
                shard,
                statistics,
                extension_type: matches!(element_type, ElementType::Private(_))
                    .then_some(extension_type),
                member,
                skipped,
            }
        },
    )
}
