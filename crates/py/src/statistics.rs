//! `hurray.Statistics`.

use hurray_core::Statistics as Section;
use pyo3::prelude::*;

use crate::errors::{InvalidDescriptorError, OrRaise};

/// Hints about a tensor's values, as real (dequantized) numbers. They never decide correctness.
///
/// Fields that share a bit of the mask are given together or not at all: `value_min`, `value_max`
/// and `value_abs_max`; `value_mean` and `value_stddev`; `nm_n` and `nm_m`; `has_nan` and
/// `has_inf`. Raises InvalidDescriptorError for a part of a group, for a `sparsity_ratio` outside
/// 0 to 1, a `value_stddev` that is negative or NaN, or `nm_n` above `nm_m`.
///
/// >>> hurray.Statistics(nnz=6).nnz
/// 6
#[pyclass(frozen, eq, hash, module = "hurray")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Statistics(pub(crate) Section);

fn part_of_a_group(fields: &str) -> PyErr {
    InvalidDescriptorError::new_err(format!("{fields} are given together or not at all"))
}

#[pymethods]
impl Statistics {
    #[new]
    #[pyo3(signature = (*, nnz=None, sparsity_ratio=None, value_min=None, value_max=None, value_abs_max=None, value_mean=None, value_stddev=None, nm_n=None, nm_m=None, has_nan=None, has_inf=None))]
    #[expect(clippy::too_many_arguments, reason = "the fields of the section")]
    fn new(
        nnz: Option<u64>,
        sparsity_ratio: Option<f64>,
        value_min: Option<f64>,
        value_max: Option<f64>,
        value_abs_max: Option<f64>,
        value_mean: Option<f64>,
        value_stddev: Option<f64>,
        nm_n: Option<u8>,
        nm_m: Option<u8>,
        has_nan: Option<bool>,
        has_inf: Option<bool>,
    ) -> PyResult<Self> {
        let mut section = Section::default();
        if let Some(nnz) = nnz {
            section = section.with_nnz(nnz);
        }
        if let Some(ratio) = sparsity_ratio {
            section = section.with_sparsity_ratio(ratio).or_raise()?;
        }
        section = match (value_min, value_max, value_abs_max) {
            (None, None, None) => section,
            (Some(min), Some(max), Some(abs_max)) => section.with_value_range(min, max, abs_max),
            _ => return Err(part_of_a_group("value_min, value_max and value_abs_max")),
        };
        section = match (value_mean, value_stddev) {
            (None, None) => section,
            (Some(mean), Some(stddev)) => section.with_moments(mean, stddev).or_raise()?,
            _ => return Err(part_of_a_group("value_mean and value_stddev")),
        };
        section = match (nm_n, nm_m) {
            (None, None) => section,
            (Some(n), Some(m)) => section.with_sparsity_pattern(n, m).or_raise()?,
            _ => return Err(part_of_a_group("nm_n and nm_m")),
        };
        section = match (has_nan, has_inf) {
            (None, None) => section,
            (Some(nan), Some(inf)) => section.with_non_finite(nan, inf),
            _ => return Err(part_of_a_group("has_nan and has_inf")),
        };
        Ok(Self(section))
    }

    /// Which fields are known: bit 0 nnz, 1 sparsity_ratio, 2 value_min, value_max and
    /// value_abs_max, 3 value_mean and value_stddev, 4 nm_n and nm_m, 5 has_nan and has_inf.
    #[getter]
    fn computed_mask(&self) -> u32 {
        self.0.computed_mask()
    }

    /// Elements that are not zero, or None.
    #[getter]
    fn nnz(&self) -> Option<u64> {
        self.0.nnz()
    }

    /// Share of the elements that are zero, 0 to 1, or None.
    #[getter]
    fn sparsity_ratio(&self) -> Option<f64> {
        self.0.sparsity_ratio()
    }

    /// Smallest value, or None.
    #[getter]
    fn value_min(&self) -> Option<f64> {
        self.0.value_min()
    }

    /// Largest value, or None.
    #[getter]
    fn value_max(&self) -> Option<f64> {
        self.0.value_max()
    }

    /// Largest magnitude, or None.
    #[getter]
    fn value_abs_max(&self) -> Option<f64> {
        self.0.value_abs_max()
    }

    /// Mean, or None.
    #[getter]
    fn value_mean(&self) -> Option<f64> {
        self.0.value_mean()
    }

    /// Population standard deviation, or None.
    #[getter]
    fn value_stddev(&self) -> Option<f64> {
        self.0.value_stddev()
    }

    /// N of an N:M sparsity pattern, or None.
    #[getter]
    fn nm_n(&self) -> Option<u8> {
        self.0.nm_n()
    }

    /// M of an N:M sparsity pattern, or None.
    #[getter]
    fn nm_m(&self) -> Option<u8> {
        self.0.nm_m()
    }

    /// Whether any value is NaN, or None.
    #[getter]
    fn has_nan(&self) -> Option<bool> {
        self.0.has_nan()
    }

    /// Whether any value is infinite, or None.
    #[getter]
    fn has_inf(&self) -> Option<bool> {
        self.0.has_inf()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        const FIELDS: [&str; 11] = [
            "nnz",
            "sparsity_ratio",
            "value_min",
            "value_max",
            "value_abs_max",
            "value_mean",
            "value_stddev",
            "nm_n",
            "nm_m",
            "has_nan",
            "has_inf",
        ];
        let mut arguments = Vec::new();
        for field in FIELDS {
            let value = slf.getattr(field)?;
            if !value.is_none() {
                arguments.push(format!("{field}={}", value.repr()?));
            }
        }
        Ok(format!("Statistics({})", arguments.join(", ")))
    }
}

/// Puts `Statistics` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Statistics>()
}
