//! One test per rule of `descriptor.md`: the bytes that break it are refused for it, with their numbers, and so is the descriptor in memory
//! where one can hold it. S3–S11 are not the codec's: it relays what breaks them.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod header;
mod layouts;
mod rows;
mod sections;
mod written;

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
