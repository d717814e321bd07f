//! One test per rule of layouts against shapes, buffer tables and index bytes (`layouts.md` § 11, S3–S11 and S17 of `descriptor.md`).
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod contents;
mod strides;
mod tables;

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
