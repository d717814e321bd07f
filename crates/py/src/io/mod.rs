//! Files and streams: what reads and writes them, over what Python has to read and write with.

mod container;
mod descriptor;
mod error;
mod file;
mod load;
mod loan;
mod metadata;
mod path;
mod progress;
mod save;
mod sink;
mod source;
mod stream_reader;
mod stream_writer;
mod turns;

use pyo3::prelude::*;

/// Puts the classes and functions of files and streams on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(module)?;
    file::register(module)?;
    load::register(module)?;
    save::register(module)?;
    stream_reader::register(module)?;
    stream_writer::register(module)
}
