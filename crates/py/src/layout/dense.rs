//! The dense layouts: every element has an address that follows from its index.

use hurray_core::{Hilbert, InnerOrder, Layout as Core, Morton, Strides, TileLevel, TileOrder};
use pyo3::PyClassInitializer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{Layout, checked, initializer};
use crate::errors::InvalidDescriptorError;

/// Row-major (C order): the last dimension varies fastest. Tag 0x01.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct RowMajorLayout;

#[pymethods]
impl RowMajorLayout {
    #[new]
    #[pyo3(signature = ())]
    fn new() -> PyClassInitializer<Self> {
        initializer(Core::RowMajor, Self)
    }

    fn __repr__(&self) -> &'static str {
        "RowMajorLayout()"
    }
}

/// Column-major (Fortran order): the first dimension varies fastest. Tag 0x02.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct ColMajorLayout;

#[pymethods]
impl ColMajorLayout {
    #[new]
    #[pyo3(signature = ())]
    fn new() -> PyClassInitializer<Self> {
        initializer(Core::ColumnMajor, Self)
    }

    fn __repr__(&self) -> &'static str {
        "ColMajorLayout()"
    }
}

/// A stride per dimension. Tag 0x03.
///
/// `strides` are in elements, not in bytes as NumPy's are; they may be negative, and 0 repeats
/// one element.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct StridedLayout(pub(super) Strides);

#[pymethods]
impl StridedLayout {
    #[new]
    #[pyo3(signature = (strides))]
    fn new(strides: Vec<i64>) -> PyClassInitializer<Self> {
        let strides = Strides::from_vec(strides);
        initializer(Core::Strided(strides.clone()), Self(strides))
    }

    /// The strides, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("StridedLayout(strides={})", self.strides(py)?))
    }
}

/// Tiles of a fixed shape, one after another. Tag 0x04.
///
/// `tile_shape` is in elements. `outer_layout` orders the tiles: "row_major", "col_major" or
/// "strided" with `outer_strides`, in tiles. `inner_layout` orders the elements of a tile:
/// "row_major", "col_major", "strided" with `inner_strides`, in elements, or "tiled" with
/// `inner_tiled`, another TiledLayout; eight levels at most. Raises ValueError for another order,
/// InvalidDescriptorError for a tile of no elements or parameters that do not go together.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct TiledLayout(pub(super) Box<TileLevel>);

const ROW_MAJOR: &str = "row_major";
const COL_MAJOR: &str = "col_major";
const STRIDED: &str = "strided";
const TILED: &str = "tiled";

/// Requires `value` exactly when `order` is `wanted`.
fn companion<T>(
    name: &str,
    value: Option<T>,
    layout: &str,
    order: &str,
    wanted: &str,
) -> PyResult<Option<T>> {
    if value.is_some() == (order == wanted) {
        return Ok(value);
    }
    Err(InvalidDescriptorError::new_err(if value.is_some() {
        format!("{name} goes with {layout}='{wanted}', not with '{order}'")
    } else {
        format!("{layout}='{wanted}' needs {name}")
    }))
}

#[pymethods]
impl TiledLayout {
    #[new]
    #[pyo3(signature = (tile_shape, outer_layout="row_major", inner_layout="row_major", outer_strides=None, inner_strides=None, inner_tiled=None))]
    fn new(
        tile_shape: Vec<u64>,
        outer_layout: &str,
        inner_layout: &str,
        outer_strides: Option<Vec<i64>>,
        inner_strides: Option<Vec<i64>>,
        inner_tiled: Option<&Bound<'_, Self>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let outer_strides = companion(
            "outer_strides",
            outer_strides,
            "outer_layout",
            outer_layout,
            STRIDED,
        )?;
        let inner_strides = companion(
            "inner_strides",
            inner_strides,
            "inner_layout",
            inner_layout,
            STRIDED,
        )?;
        let inner_tiled = companion(
            "inner_tiled",
            inner_tiled,
            "inner_layout",
            inner_layout,
            TILED,
        )?;
        let outer = match (outer_layout, outer_strides) {
            (ROW_MAJOR, _) => TileOrder::RowMajor,
            (COL_MAJOR, _) => TileOrder::ColumnMajor,
            (_, Some(strides)) => TileOrder::Strided(strides.into()),
            _ => {
                return Err(PyValueError::new_err(format!(
                    "outer_layout is 'row_major', 'col_major' or 'strided', got '{outer_layout}'"
                )));
            }
        };
        let inner = match (inner_layout, inner_strides, inner_tiled) {
            (ROW_MAJOR, ..) => InnerOrder::RowMajor,
            (COL_MAJOR, ..) => InnerOrder::ColumnMajor,
            (_, Some(strides), _) => InnerOrder::Strided(strides.into()),
            (_, _, Some(tiled)) => InnerOrder::Tiled(tiled.get().0.clone()),
            _ => {
                return Err(PyValueError::new_err(format!(
                    "inner_layout is 'row_major', 'col_major', 'strided' or 'tiled', got '{inner_layout}'"
                )));
            }
        };
        let level = Box::new(TileLevel {
            tile_shape: tile_shape.into(),
            outer,
            inner,
        });
        let rank = level.tile_shape.len();
        checked(Core::Tiled(level.clone()), rank, Self(level))
    }

    /// Elements of a tile, per dimension.
    #[getter]
    fn tile_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.tile_shape)
    }

    /// How tiles follow each other: "row_major", "col_major" or "strided".
    #[getter]
    fn outer_layout(&self) -> &'static str {
        match self.0.outer {
            TileOrder::RowMajor => ROW_MAJOR,
            TileOrder::ColumnMajor => COL_MAJOR,
            TileOrder::Strided(_) => STRIDED,
        }
    }

    /// How elements lie inside a tile: "row_major", "col_major", "strided" or "tiled".
    #[getter]
    fn inner_layout(&self) -> &'static str {
        match self.0.inner {
            InnerOrder::RowMajor => ROW_MAJOR,
            InnerOrder::ColumnMajor => COL_MAJOR,
            InnerOrder::Strided(_) => STRIDED,
            InnerOrder::Tiled(_) => TILED,
        }
    }

    /// The strides of the tiles, in tiles; None unless `outer_layout` is "strided".
    #[getter]
    fn outer_strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.0.outer {
            TileOrder::Strided(strides) => PyTuple::new(py, strides).map(Some),
            _ => Ok(None),
        }
    }

    /// The strides inside a tile, in elements; None unless `inner_layout` is "strided".
    #[getter]
    fn inner_strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.0.inner {
            InnerOrder::Strided(strides) => PyTuple::new(py, strides).map(Some),
            _ => Ok(None),
        }
    }

    /// The tiles inside a tile; None unless `inner_layout` is "tiled".
    #[getter]
    fn inner_tiled(&self, py: Python<'_>) -> PyResult<Option<Py<Self>>> {
        match &self.0.inner {
            InnerOrder::Tiled(level) => {
                let class = Self(level.clone());
                Py::new(py, initializer(Core::Tiled(level.clone()), class)).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!(
            "TiledLayout(tile_shape={}, outer_layout='{}', inner_layout='{}'",
            self.tile_shape(py)?,
            self.outer_layout(),
            self.inner_layout()
        );
        if let Some(strides) = self.outer_strides(py)? {
            text.push_str(&format!(", outer_strides={strides}"));
        }
        if let Some(strides) = self.inner_strides(py)? {
            text.push_str(&format!(", inner_strides={strides}"));
        }
        if let Some(tiled) = self.inner_tiled(py)? {
            text.push_str(&format!(", inner_tiled={}", tiled.bind(py).repr()?));
        }
        text.push(')');
        Ok(text)
    }
}

/// A Morton (Z-order) curve. Tag 0x05.
///
/// `morton_bits[k]` bits of dimension k's index are interleaved, at least 1, so that the dimension
/// has at most `2 ** morton_bits[k]` elements. Raises InvalidDescriptorError for no dimensions or
/// a count of 0.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct MortonLayout(pub(super) Morton);

#[pymethods]
impl MortonLayout {
    #[new]
    #[pyo3(signature = (morton_bits))]
    fn new(morton_bits: Vec<u32>) -> PyResult<PyClassInitializer<Self>> {
        let morton = Morton {
            bits: morton_bits.into(),
        };
        let rank = morton.bits.len();
        checked(Core::Morton(morton.clone()), rank, Self(morton))
    }

    /// Bits of the index, per dimension.
    #[getter]
    fn morton_bits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.bits)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "MortonLayout(morton_bits={})",
            self.morton_bits(py)?
        ))
    }
}

/// A Hilbert curve. Tag 0x40.
///
/// Every dimension has exactly `2 ** hilbert_order` elements, and there are `hilbert_rank` of
/// them, at least 2. Raises InvalidDescriptorError for an order of 0 or a rank below 2.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct HilbertLayout(pub(super) Hilbert);

#[pymethods]
impl HilbertLayout {
    #[new]
    #[pyo3(signature = (hilbert_order, hilbert_rank))]
    fn new(hilbert_order: u32, hilbert_rank: u32) -> PyResult<PyClassInitializer<Self>> {
        let hilbert = Hilbert {
            order: hilbert_order,
            rank: hilbert_rank,
        };
        // The tensor's rank is checked against the curve's once there is a shape.
        checked(Core::Hilbert(hilbert), 0, Self(hilbert))
    }

    /// The order of the curve: every dimension has `2 ** hilbert_order` elements.
    #[getter]
    fn hilbert_order(&self) -> u32 {
        self.0.order
    }

    /// The number of dimensions.
    #[getter]
    fn hilbert_rank(&self) -> u32 {
        self.0.rank
    }

    fn __repr__(&self) -> String {
        format!(
            "HilbertLayout(hilbert_order={}, hilbert_rank={})",
            self.0.order, self.0.rank
        )
    }
}
