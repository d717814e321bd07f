//! The commands that the package installs: the command line of `hurray-inspect`.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::owner::detached;

/// Runs `hurray` with `arguments`, the program's name first; gives the exit status.
#[pyfunction]
fn run_hurray(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    detached(py, || hurray_inspect::run(arguments))
}

/// Runs `hurray-inspect` with `arguments`, the program's name first; gives the exit status.
#[pyfunction]
fn run_hurray_inspect(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    detached(py, || hurray_inspect::run_inspect(arguments))
}

/// Puts the commands on the module, not among the names that `from hurray import *` gives.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.setattr("_run_hurray", wrap_pyfunction!(run_hurray, module)?)?;
    module.setattr(
        "_run_hurray_inspect",
        wrap_pyfunction!(run_hurray_inspect, module)?,
    )
}
