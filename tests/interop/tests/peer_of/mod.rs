//! The release's descriptor for one of ours, built with the release's own constructors.

use ours::{
    CombineOp, CompositionRule, ElementType, ExtensionType, IndexType, InnerOrder, KvRole, Layout,
    MemberRole, QuantizationScheme, ScaleType, Statistics, SyncMode, TensorDescriptor, TileLevel,
    TileOrder,
};
use peer::layout::{
    CooLayout, CscLayout, CsrLayout, HilbertLayout, InnerStrides, MortonLayout, OuterStrides,
    PrivateExtensionLayout, StridedLayout, TiledLayout,
};

pub(crate) fn descriptor(ours: &TensorDescriptor) -> peer::Result<peer::TensorDescriptor> {
    let buffers = ours
        .buffers
        .iter()
        .map(|row| {
            peer::BufferHandle::with_memory_class(
                row.byte_size,
                row.alignment,
                peer::DeviceTag::from_byte(row.device.to_byte())?,
                match row.sync_mode {
                    SyncMode::ProducerSynced => peer::SyncMode::ProducerSynced,
                    SyncMode::Event => peer::SyncMode::Event,
                    SyncMode::ConsumerStream => peer::SyncMode::ConsumerStream,
                },
                peer::MemoryClass::from_byte(row.memory_class.to_byte())?,
            )
        })
        .collect::<peer::Result<Vec<_>>>()?;
    let shard = match &ours.shard {
        Some(shard) => Some(peer::ShardDescriptor::new(
            shard.parent_shape.to_vec(),
            shard.offset.to_vec(),
        )?),
        None => None,
    };
    let extension_type = ours
        .extension_type
        .map(|e| extension_type(&e))
        .transpose()?;
    let descriptor = peer::TensorDescriptor::new(
        ours.version.major,
        ours.version.minor,
        element_type(ours.element_type)?,
        peer::Shape::new(ours.shape.to_vec())?,
        ours.byte_offset,
        layout(&ours.layout)?,
        buffers,
        ours.quantization.as_ref().map(|q| q.as_bytes().to_vec()),
        shard,
        ours.statistics.map(|known| statistics(&known)),
        extension_type,
    )?;
    Ok(match ours.member {
        None => descriptor,
        Some(role) => {
            descriptor.with_composite_member(peer::CompositeMemberDescriptor::new(match role {
                MemberRole::Correction => peer::MemberRole::Correction,
                MemberRole::Base => peer::MemberRole::Base,
            }))
        }
    })
}

fn element_type(ours: ElementType) -> peer::Result<peer::ElementType> {
    use peer::ElementType as P;
    Ok(match ours {
        ElementType::Float16 => P::Float16,
        ElementType::Bfloat16 => P::BFloat16,
        ElementType::Float32 => P::Float32,
        ElementType::Float64 => P::Float64,
        ElementType::Int8 => P::Int8,
        ElementType::Uint8 => P::Uint8,
        ElementType::Int16 => P::Int16,
        ElementType::Uint16 => P::Uint16,
        ElementType::Int32 => P::Int32,
        ElementType::Uint32 => P::Uint32,
        ElementType::Int64 => P::Int64,
        ElementType::Uint64 => P::Uint64,
        ElementType::Bool => P::Bool,
        ElementType::Float8E4m3 => P::Float8E4M3,
        ElementType::Float8E5m2 => P::Float8E5M2,
        ElementType::Float8E8m0 => P::Float8E8M0,
        ElementType::Float4E2m1 => P::Float4E2M1,
        ElementType::Float6E2m3 => P::Float6E2M3,
        ElementType::Float6E3m2 => P::Float6E3M2,
        ElementType::Float128 => P::Float128,
        ElementType::Int4 => P::Int4,
        ElementType::Uint4 => P::Uint4,
        ElementType::Int2 => P::Int2,
        ElementType::Uint2 => P::Uint2,
        ElementType::Complex64 => P::Complex64,
        ElementType::Complex128 => P::Complex128,
        ElementType::Private(tag) => P::from_tag(tag.get())?,
    })
}

fn layout(ours: &Layout) -> peer::Result<peer::LayoutDescriptor> {
    use peer::LayoutDescriptor as P;
    Ok(match ours {
        Layout::RowMajor => P::RowMajor,
        Layout::ColumnMajor => P::ColMajor,
        Layout::Strided(strides) => P::Strided(StridedLayout::new(strides.to_vec())),
        Layout::Tiled(level) => P::Tiled(Box::new(tile_level(level)?)),
        Layout::Morton(morton) => P::Morton(MortonLayout::new(morton.bits.to_vec())?),
        Layout::Coo(coo) => P::Coo(CooLayout::new(coo.nnz, coo.is_sorted)),
        Layout::Csr { nnz } => P::Csr(CsrLayout::new(*nnz)),
        Layout::Csc { nnz } => P::Csc(CscLayout::new(*nnz)),
        Layout::Csf(csf) => P::Csf(peer::CsfLayout::new(csf.nnz, csf.mode_order.to_vec())),
        Layout::BlockPaged(paged) => P::BlockPaged(peer::BlockPagedLayout::new(
            paged.page_size,
            paged.num_pages,
            paged.paged_axis,
            paged.num_seqs,
            match paged.kv_role {
                KvRole::Key => peer::KvRole::Key,
                KvRole::Value => peer::KvRole::Value,
                KvRole::Fused => peer::KvRole::Fused,
            },
            paged.layer_index,
            match paged.index_type {
                IndexType::Uint32 => peer::BlockTableIndexType::U32,
                IndexType::Uint64 => peer::BlockTableIndexType::U64,
            },
        )),
        Layout::Composite(head) => P::Composite(peer::CompositeLayout::new(
            match head.rule {
                CompositionRule::Partition => peer::CompositionRule::Partition,
                CompositionRule::Overlay(CombineOp::Replace) => {
                    peer::CompositionRule::Overlay(peer::CombineOp::Replace)
                }
                CompositionRule::Overlay(CombineOp::Add) => {
                    peer::CompositionRule::Overlay(peer::CombineOp::Add)
                }
                CompositionRule::Group => peer::CompositionRule::Group,
            },
            head.member_count,
        )?),
        Layout::Hilbert(hilbert) => P::Hilbert(HilbertLayout::new(hilbert.order, hilbert.rank)?),
        Layout::Private(private) => P::PrivateExtension(PrivateExtensionLayout::new(
            private.tag.get(),
            private.id,
            private.data.clone(),
        )?),
    })
}

fn tile_level(ours: &TileLevel) -> peer::Result<TiledLayout> {
    let (outer, outer_strides) = match &ours.outer {
        TileOrder::RowMajor => (1, None),
        TileOrder::ColumnMajor => (2, None),
        TileOrder::Strided(strides) => (3, Some(OuterStrides::new(strides.to_vec()))),
    };
    let (inner, inner_strides, nested) = match &ours.inner {
        InnerOrder::RowMajor => (1, None, None),
        InnerOrder::ColumnMajor => (2, None, None),
        InnerOrder::Strided(strides) => (3, Some(InnerStrides::new(strides.to_vec())), None),
        InnerOrder::Tiled(level) => (4, None, Some(Box::new(tile_level(level)?))),
    };
    let tile_shape = ours.tile_shape.to_vec();
    TiledLayout::new(
        tile_shape,
        outer,
        inner,
        outer_strides,
        inner_strides,
        nested,
    )
}

fn statistics(ours: &Statistics) -> peer::Statistics {
    peer::Statistics {
        computed_mask: peer::StatisticsMask(ours.computed_mask()),
        nnz: ours.nnz().unwrap_or_default(),
        sparsity_ratio: ours.sparsity_ratio().unwrap_or_default(),
        value_min: ours.value_min().unwrap_or_default(),
        value_max: ours.value_max().unwrap_or_default(),
        value_abs_max: ours.value_abs_max().unwrap_or_default(),
        value_mean: ours.value_mean().unwrap_or_default(),
        value_stddev: ours.value_stddev().unwrap_or_default(),
        nm_n: ours.nm_n().unwrap_or_default(),
        nm_m: ours.nm_m().unwrap_or_default(),
        has_nan: ours.has_nan().unwrap_or_default(),
        has_inf: ours.has_inf().unwrap_or_default(),
    }
}

fn extension_type(ours: &ExtensionType) -> peer::Result<peer::ExtensionTypeDescriptor> {
    peer::ExtensionTypeDescriptor::new(
        ours.bit_width,
        ours.packing_factor(),
        ours.is_float,
        ours.is_signed,
        ours.sign_bits,
        ours.exponent_bits,
        ours.mantissa_bits,
        ours.exponent_bias,
        ours.has_nan,
        ours.has_inf,
    )
}

pub(crate) fn scheme(ours: &QuantizationScheme) -> peer::Result<peer::QuantizationDescriptor> {
    use peer::QuantizationDescriptor as P;
    Ok(match *ours {
        QuantizationScheme::TensorAffine(tensor) => {
            P::PerTensorAffine(peer::PerTensorAffine::new(tensor.scale, tensor.zero_point)?)
        }
        QuantizationScheme::ChannelAffine(channel) => {
            P::PerChannelAffine(match channel.zero_point_buffer {
                None => peer::PerChannelAffine::new_symmetric(channel.axis, channel.scale_buffer)?,
                Some(zero_points) => peer::PerChannelAffine::new_asymmetric(
                    channel.axis,
                    channel.scale_buffer,
                    zero_points,
                )?,
            })
        }
        QuantizationScheme::BlockAffine(block) => {
            let scale_type = match block.scale_type {
                ScaleType::Float16 => peer::ElementType::Float16,
                ScaleType::Bfloat16 => peer::ElementType::BFloat16,
                ScaleType::Float32 => peer::ElementType::Float32,
            };
            P::PerBlockAffine(match block.zero_point_buffer {
                None => peer::PerBlockAffine::new_symmetric(
                    block.axis,
                    block.block_size,
                    block.scale_buffer,
                    scale_type,
                )?,
                Some(zero_points) => peer::PerBlockAffine::new_asymmetric(
                    block.axis,
                    block.block_size,
                    block.scale_buffer,
                    zero_points,
                    scale_type,
                )?,
            })
        }
        QuantizationScheme::Nf4(nf4) => {
            P::Nf4(peer::Nf4::new(nf4.axis, nf4.block_size, nf4.scale_buffer)?)
        }
        QuantizationScheme::Mxfp(mxfp) => P::Mxfp(peer::Mxfp::new(
            mxfp.axis,
            mxfp.block_size,
            mxfp.scale_buffer,
        )?),
    })
}
