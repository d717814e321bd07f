//! `hurray.BufferHandle`.

use std::hash::{Hash, Hasher};

use hurray_core::{BufferHandle as Row, SyncMode};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::device::Device;

/// What one buffer of a tensor declares about itself: its row in the descriptor's buffer table.
///
/// A handle is five values and a device; it keeps neither the tensor nor the buffer alive. It
/// cannot be constructed: `Tensor.buffer_handles` and `Descriptor.buffer_handles` give it.
///
/// >>> hurray.Tensor(bytes(16), hurray.float32, [4]).buffer_handles
/// (BufferHandle(byte_size=16, alignment=64, sync_mode='producer_synced', device=cpu),)
#[pyclass(frozen, eq, hash, module = "hurray")]
pub(crate) struct BufferHandle {
    row: Row,
    device: Py<Device>,
}

impl BufferHandle {
    /// The handle that shows `row`, whose bytes are on `device`.
    pub(crate) fn new(row: Row, device: Py<Device>) -> Self {
        Self { row, device }
    }
}

impl PartialEq for BufferHandle {
    fn eq(&self, other: &Self) -> bool {
        self.row == other.row && self.device.get() == other.device.get()
    }
}

impl Hash for BufferHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row.hash(state);
        self.device.get().hash(state);
    }
}

#[pymethods]
impl BufferHandle {
    /// Bytes in the buffer.
    #[getter]
    fn byte_size(&self) -> u64 {
        self.row.byte_size
    }

    /// Alignment in bytes that the buffer's address has: a power of two, measured, at least 64;
    /// 1 for an empty buffer.
    #[getter]
    fn alignment(&self) -> u32 {
        self.row.alignment
    }

    /// When the bytes may be read: "producer_synced" (now), "event" (once an event that travels
    /// beside the tensor is done) or "consumer_stream" (on a stream that travels beside it).
    #[getter]
    fn sync_mode(&self, py: Python<'_>) -> Py<PyString> {
        mode_name(py, self.row.sync_mode)
    }

    /// The device that holds the bytes: the tensor's own `Device` object.
    #[getter]
    fn device(&self, py: Python<'_>) -> Py<Device> {
        self.device.clone_ref(py)
    }

    /// Whether the buffer has no bytes.
    #[getter]
    fn is_empty(&self) -> bool {
        self.row.byte_size == 0
    }

    fn __repr__(&self) -> String {
        format!(
            "BufferHandle(byte_size={}, alignment={}, sync_mode='{}', device={})",
            self.row.byte_size,
            self.row.alignment,
            self.row.sync_mode,
            self.device.get()
        )
    }
}

/// The mode's name as a Python string, made once per mode.
pub(crate) fn mode_name(py: Python<'_>, mode: SyncMode) -> Py<PyString> {
    static NAMES: [PyOnceLock<Py<PyString>>; 3] = [const { PyOnceLock::new() }; 3];
    let make = || PyString::intern(py, &mode.to_string()).unbind();
    match NAMES.get(usize::from(mode.to_byte())) {
        Some(name) => name.get_or_init(py, make).clone_ref(py),
        None => make(),
    }
}

/// Puts `BufferHandle` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BufferHandle>()
}
