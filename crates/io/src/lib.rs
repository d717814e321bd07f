//! The HRRYFILE container and the stream format (`file.md`, `stream.md`).
//!
//! [`ContainerParser`] does no I/O: it takes bytes and says what it needs next. [`FileReader`] reads over it, and whoever
//! has another source writes a reader of their own. [`FileWriter`] writes from where the bytes lie.
//!
//! Rule numbers (`FC7`, `ST3` …) in the documentation and in `rule()` of the errors are those of the format reference.

mod container;
mod cursor;
mod file_error;
mod file_reader;
mod file_writer;
mod gathered_write;
mod host_bytes;
mod incoming;
mod index;
mod metadata;
mod outgoing;

pub use container::{Container, ContainerParser, Opening};
pub use file_error::{FileError, Section};
pub use file_reader::FileReader;
pub use file_writer::{FileOptions, FileWriter};
pub use index::Entry;
pub use metadata::{Array, Value};
pub use outgoing::OutgoingError;
