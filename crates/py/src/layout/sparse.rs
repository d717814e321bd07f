//! The sparse layouts: only some elements are stored, with index buffers that say which.

use hurray_core::{Coo, Csf, Layout as Core};
use pyo3::PyClassInitializer;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{Layout, checked, initializer};

/// Coordinates of the stored elements. Tag 0x06.
///
/// Buffers: `nnz` values, then `nnz` x rank uint64 coordinates. `is_sorted` promises that the
/// coordinates increase, dimension 0 first.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct CooLayout(pub(super) Coo);

#[pymethods]
impl CooLayout {
    #[new]
    #[pyo3(signature = (nnz, is_sorted=false))]
    fn new(nnz: u64, is_sorted: bool) -> PyClassInitializer<Self> {
        let coo = Coo { nnz, is_sorted };
        initializer(Core::Coo(coo), Self(coo))
    }

    /// Stored elements.
    #[getter]
    fn nnz(&self) -> u64 {
        self.0.nnz
    }

    /// Whether the coordinates increase, dimension 0 first; False promises nothing.
    #[getter]
    fn is_sorted(&self) -> bool {
        self.0.is_sorted
    }

    fn __repr__(&self) -> String {
        let is_sorted = if self.0.is_sorted { "True" } else { "False" };
        format!("CooLayout(nnz={}, is_sorted={is_sorted})", self.0.nnz)
    }
}

/// Compressed sparse rows of a matrix. Tag 0x07.
///
/// Buffers: `nnz` values, `nnz` uint64 column indices, rows + 1 uint64 row pointers.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct CsrLayout {
    pub(super) nnz: u64,
}

#[pymethods]
impl CsrLayout {
    #[new]
    #[pyo3(signature = (nnz))]
    fn new(nnz: u64) -> PyClassInitializer<Self> {
        initializer(Core::Csr { nnz }, Self { nnz })
    }

    /// Stored elements.
    #[getter]
    fn nnz(&self) -> u64 {
        self.nnz
    }

    fn __repr__(&self) -> String {
        format!("CsrLayout(nnz={})", self.nnz)
    }
}

/// Compressed sparse columns of a matrix. Tag 0x08.
///
/// Buffers: `nnz` values, `nnz` uint64 row indices, columns + 1 uint64 column pointers.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct CscLayout {
    pub(super) nnz: u64,
}

#[pymethods]
impl CscLayout {
    #[new]
    #[pyo3(signature = (nnz))]
    fn new(nnz: u64) -> PyClassInitializer<Self> {
        initializer(Core::Csc { nnz }, Self { nnz })
    }

    /// Stored elements.
    #[getter]
    fn nnz(&self) -> u64 {
        self.nnz
    }

    fn __repr__(&self) -> String {
        format!("CscLayout(nnz={})", self.nnz)
    }
}

/// Compressed sparse fibres of a tensor of three dimensions or more. Tag 0x09.
///
/// `mode_order` says which dimension each level of the tree holds. Buffers: `nnz` values, then
/// uint64 positions and coordinates of each level, 2 x rank + 1 in all. Raises
/// InvalidDescriptorError if `mode_order` is no permutation of the dimensions.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct CsfLayout(pub(super) Csf);

#[pymethods]
impl CsfLayout {
    #[new]
    #[pyo3(signature = (nnz, mode_order))]
    fn new(nnz: u64, mode_order: Vec<u32>) -> PyResult<PyClassInitializer<Self>> {
        let csf = Csf {
            nnz,
            mode_order: mode_order.into(),
        };
        let rank = csf.mode_order.len();
        checked(Core::Csf(csf.clone()), rank, Self(csf))
    }

    /// Stored elements.
    #[getter]
    fn nnz(&self) -> u64 {
        self.0.nnz
    }

    /// The dimension that each level holds.
    #[getter]
    fn mode_order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.mode_order)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "CsfLayout(nnz={}, mode_order={})",
            self.0.nnz,
            self.mode_order(py)?
        ))
    }
}
