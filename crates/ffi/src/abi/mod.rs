//! The C ABI, version 3: what `include/hurray.h` declares, `docs/c-abi.md` explains.

pub mod consume;
mod foreign;
mod last_error;
mod status;
mod symbols;
mod table;
mod types;

pub use foreign::Slot;
pub use status::*;
pub use symbols::*;
pub(crate) use table::TABLE;
pub use types::*;
