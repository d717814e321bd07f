//! DLPack both ways: a thin layer over dlpark's managed tensors.
//!
//! Out: [`export()`] makes a managed tensor of a [`Tensor`](crate::Tensor). In: [`Array::read`] checks what a foreign one says on numbers alone,
//! and [`Array::borrow`] or [`Array::copy`] makes a tensor of it.
//!
//! Not promised: that a consumer honours READ_ONLY (torch writes to what it is told not to, wjakob/nanobind#1122), and that a producer sets
//! IS_COPIED (dmlc/dlpack#134).

mod array;
pub mod device;
pub mod element_type;
mod export;
mod import;

use crate::Place;

pub use array::{Array, ArrayError};
pub use export::{Abi, ExportError, Exported, Options, announced_device, capsule_device, export};
pub use import::{AllocateError, ImportError, allocate};

/// Bytes that were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copied {
    /// Bytes that were written.
    pub bytes: usize,
    /// Where they were read.
    pub from: Place,
    /// Where they were written.
    pub to: Place,
    /// Why.
    pub reason: CopyReason,
}

/// Why elements were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyReason {
    /// The consumer asked for a copy.
    Request,
    /// The lowest element does not lie on a 64-byte boundary.
    Alignment,
    /// One side packs elements of less than a byte, the other does not (decision 18).
    Packing,
    /// The consumer asked for the bytes on another device.
    Device,
}
