//! DLPack in Python: `__dlpack__`, `from_dlpack` and the C exchange API.

mod argument;
mod capsule;
pub(crate) mod exchange;
pub(crate) mod export;
pub(crate) mod import;

use hurray_ffi::dlpack::CopyReason;
use pyo3::prelude::*;

use crate::copies::Reason;

impl From<CopyReason> for Reason {
    fn from(reason: CopyReason) -> Self {
        match reason {
            CopyReason::Request => Self::Request,
            CopyReason::Alignment => Self::Alignment,
            CopyReason::Packing => Self::Packing,
            CopyReason::Device => Self::Device,
        }
    }
}

/// Puts `from_dlpack` on the module, and the C exchange API on `Tensor`.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    exchange::install(module.py())?;
    module.add_function(wrap_pyfunction!(import::from_dlpack_py, module)?)
}
