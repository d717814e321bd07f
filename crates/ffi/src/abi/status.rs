use std::panic::{AssertUnwindSafe, catch_unwind};

use hurray_core::{DeviceError, PointerError};
use thiserror::Error;

use super::last_error;
use crate::{BufferError, ListError};

/// Success.
pub const HURRAY_OK: i32 = 0;
/// A pointer that must not be NULL is.
pub const HURRAY_ERR_NULL_POINTER: i32 = -1;
/// An argument that cannot be: a device or mode that does not exist, a handle that is not the function's to take.
pub const HURRAY_ERR_INVALID_ARGUMENT: i32 = -2;
/// No buffer of that index.
pub const HURRAY_ERR_INDEX_OUT_OF_BOUNDS: i32 = -3;
/// The buffer or its event has been let go.
pub const HURRAY_ERR_RELEASED: i32 = -4;
/// Stream 0, which means different streams in different compilations; no stream where one is needed; a stream of another device.
pub const HURRAY_ERR_INVALID_STREAM: i32 = -5;
/// Not without a device layer: nothing has happened.
pub const HURRAY_ERR_UNSUPPORTED: i32 = -6;
/// A struct or table is shorter than the call needs, or of another ABI version.
pub const HURRAY_ERR_SHORT_STRUCT: i32 = -7;
/// No memory.
pub const HURRAY_ERR_OUT_OF_MEMORY: i32 = -8;
/// The device's driver reports a failure.
pub const HURRAY_ERR_DEVICE: i32 = -9;
/// A defect of the library.
pub const HURRAY_ERR_INTERNAL: i32 = -10;

/// Why a call of the C ABI failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("`{0}` is NULL")]
    Null(&'static str),
    #[error("no buffer {index} in a list of {len}")]
    Index { index: u64, len: u64 },
    #[error("buffer {0} of the list has been let go")]
    Released(u64),
    #[error("the buffer or its event has been let go")]
    HandleReleased,
    #[error(
        "stream 0 means different streams in different compilations: 1 is the legacy default stream, 2 the per-thread one"
    )]
    StreamZero,
    #[error("HURRAY_NO_STREAM is no stream that could wait")]
    NoStream,
    #[error("nothing here can {what}: {reason}")]
    Unsupported {
        what: &'static str,
        reason: DeviceError,
    },
    #[error("no event or stream that could be waited for came with the buffer")]
    NothingToWaitFor,
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("`{name}` has {found} bytes, {needed} are needed")]
    ShortStruct {
        name: &'static str,
        found: u32,
        needed: usize,
    },
    #[error("the handle's table is of ABI version {0}, not 3")]
    Version(u32),
    #[error("the table of the handle has no `{0}`")]
    NoFunction(&'static str),
    #[error("`{0}` was made by another library")]
    Foreign(&'static str),
    #[error("the buffer belongs to its list")]
    InList,
    #[error("{field} {value:#04x} does not exist")]
    Byte { field: &'static str, value: u8 },
    #[error("flag bits {0:#x} do not exist")]
    Flags(u32),
    #[error("mode `{mode}` {what}")]
    Sync {
        mode: hurray_core::SyncMode,
        what: &'static str,
    },
    #[error("{0} buffers are more than there can be")]
    Count(u64),
    #[error("handle {0} stands in the array twice")]
    Handle(u64),
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error(transparent)]
    List(#[from] ListError),
    /// Another library's function failed.
    #[error("{text}")]
    Relayed { status: i32, text: String },
    #[error("a release function panicked")]
    Panic,
}

impl Failure {
    fn status(&self) -> i32 {
        match self {
            Self::Null(_) => HURRAY_ERR_NULL_POINTER,
            Self::Index { .. } => HURRAY_ERR_INDEX_OUT_OF_BOUNDS,
            Self::Released(_) | Self::HandleReleased => HURRAY_ERR_RELEASED,
            Self::StreamZero | Self::NoStream => HURRAY_ERR_INVALID_STREAM,
            Self::Unsupported { .. } | Self::NothingToWaitFor => HURRAY_ERR_UNSUPPORTED,
            Self::Device(DeviceError::OtherDevice { .. }) => HURRAY_ERR_INVALID_STREAM,
            Self::Device(_) | Self::Buffer(BufferError::Pointer(PointerError::Device(_))) => {
                HURRAY_ERR_DEVICE
            }
            Self::ShortStruct { .. } | Self::Version(_) | Self::NoFunction(_) => {
                HURRAY_ERR_SHORT_STRUCT
            }
            Self::Foreign(_)
            | Self::InList
            | Self::Byte { .. }
            | Self::Flags(_)
            | Self::Sync { .. }
            | Self::Count(_)
            | Self::Handle(_)
            | Self::Buffer(_)
            | Self::List(ListError::Descriptor(_)) => HURRAY_ERR_INVALID_ARGUMENT,
            Self::List(ListError::Memory { .. }) => HURRAY_ERR_OUT_OF_MEMORY,
            // A failure without a status would read as success.
            Self::Relayed { status: 0, .. } | Self::Panic => HURRAY_ERR_INTERNAL,
            Self::Relayed { status, .. } => *status,
        }
    }
}

/// Runs the body of an exported function: keeps the text of a failure, gives its status, and lets no panic out.
pub(super) fn call(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Failure::Panic));
    match result {
        Ok(()) => HURRAY_OK,
        Err(failure) => {
            last_error::set(&failure);
            failure.status()
        }
    }
}
