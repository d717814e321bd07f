//! The transport: buffers with their owners and readiness, tensors over them, the list and context of a capsule, the C ABI and DLPack.
//!
//! A [`Buffer`] is bytes somewhere and what keeps them alive. A [`Tensor`] is a descriptor and buffers that were checked against each other. It
//! leaves as a [`BufferList`] and comes back through [`consume`]; the C ABI of both is `include/hurray.h` and `docs/c-abi.md`.
//!
//! No byte is copied unasked, and the host waits only where a function says so. Everything that gives out bytes asks [`access::check`] first.

pub mod abi;
pub mod access;
mod buffer;
mod composite;
pub mod device;
pub mod dlpack;
pub mod gather;
mod lent;
mod list;
mod loan;
mod order;
mod owner;
mod place;
mod readiness;
mod tensor;
mod transfer;

pub use abi::consume::{ConsumeError, consume};
pub use buffer::{Buffer, BufferError, BufferFlags};
pub use composite::{Composite, CompositeAssembler, Item};
pub use list::{BufferList, ListError};
pub use loan::Loan;
pub use order::OrderError;
pub use owner::{Callback, Owner, PythonObject};
pub use place::Place;
pub use readiness::Readiness;
pub use tensor::{Tensor, TensorError, measure_rows};
pub use transfer::TransferError;
