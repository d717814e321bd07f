//! The Hurray tensor format, version 1.0: element types, shapes, layouts, quantization, buffer rows, the descriptor codec and the checks
//! that come before a byte of a tensor may be touched; and host memory that keeps the format's alignment promise.
//!
//! No I/O, no devices, no Python. Everything is safe Rust outside [`memory`].
//!
//! Rule numbers (`R1`, `S7`, `B4`, `Q19`, `A11` …) in the documentation and in [`Error::rule`] are those of the format reference.
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

mod buffer;
mod buffer_plan;
pub mod composite;
mod contents;
mod descriptor;
mod device;
mod device_layer;
mod element_type;
mod error;
mod extension_type;
mod layout;
#[expect(
    unsafe_code,
    reason = "host memory is the crate's one place that owns raw allocations"
)]
pub mod memory;
mod private_tag;
mod quantization;
mod shape;
mod shard;
mod statistics;
mod storage;
mod sync_mode;
mod wire;

pub use buffer::{BufferHandle, validate_buffer_placement, validate_colocation};
pub use buffer_plan::{BufferName, PlannedBuffer};
pub use contents::validate_contents;
pub use descriptor::{ElementAddress, MemberRole, TensorDescriptor, Version};
pub use device::{DeviceTag, MemoryClass};
pub use device_layer::{
    Allocation, AllocationRequest, CopyEnd, CopyRequest, Dependency, DeviceError, DeviceLayer,
    DeviceOwner, Event, EventObject, EventState, PointerClaim, PointerError, PointerFacts,
    StagingRing, Stream, StreamObject, StreamOrdered,
};
pub use element_type::ElementType;
pub use error::{
    BufferTableError, CompositeError, ContentsError, DescriptorError, Error, LayoutError,
    QuantizationError,
};
pub use extension_type::ExtensionType;
pub use layout::{
    BlockPaged, ByteExtent, CombineOp, CompositeHead, CompositionRule, Coo, Csf, Extent, Hilbert,
    IndexType, InnerOrder, KvRole, Layout, Morton, PrivateLayout, Strides, TileLevel, TileOrder,
    column_major_strides, is_column_major, is_row_major, row_major_strides, strided_extent,
};
pub use private_tag::PrivateTag;
pub use quantization::{
    BlockAffine, ChannelAffine, Mxfp, Nf4, QuantizationScheme, QuantizationSection, ScaleType,
    TensorAffine,
};
pub use shape::{DYNAMIC, MAX_RANK, Shape, element_count};
pub use shard::Shard;
pub use statistics::Statistics;
pub use storage::{BitPosition, StorageWidth};
pub use sync_mode::SyncMode;

/// The least alignment of a non-empty buffer, in bytes.
pub const MIN_BUFFER_ALIGNMENT: usize = 64;
/// The alignment that IPC, RDMA and files ask for, in bytes; also the largest alignment that is measured.
pub const PAGE_ALIGNMENT: usize = 4096;
/// The most rows that a descriptor's buffer table can hold.
pub const MAX_BUFFERS: usize = 255;
