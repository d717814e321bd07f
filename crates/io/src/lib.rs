//! The HRRYFILE container and the stream format (`file.md`, `stream.md`).
//!
//! [`ContainerParser`] and [`StreamParser`] do no I/O: they take bytes and say what they need next. [`FileReader`] and [`StreamReader`] read over
//! them, and whoever has another source writes a reader of their own. [`FileWriter`] and [`StreamWriter`] write from where the bytes lie.
//! [`save`] replaces a file at once and as a whole. Bytes come to a device, and from one, through pinned chunks; this crate knows no vendor, and asks
//! the layer that is registered with the transport.
//!
//! Rule numbers (`FC7`, `ST3` …) in the documentation and in `rule()` of the errors are those of the format reference.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

mod atomic_file;
mod container;
mod container_encoder;
mod cursor;
mod file_bytes;
mod file_error;
mod file_reader;
mod file_writer;
mod host_bytes;
mod incoming;
mod index;
mod metadata;
mod outflow;
mod outgoing;
mod parallel;
mod part;
mod progress;
mod save;
mod slice;
mod source;
mod stream_error;
mod stream_parser;
mod stream_reader;
mod stream_writer;
mod to_device;

pub use atomic_file::AtomicFile;
pub use container::{Container, ContainerParser, Opening};
pub use file_error::{FileError, Section};
pub use file_reader::{FileReader, Target};
pub use file_writer::{FileOptions, FileWriter};
pub use host_bytes::FileMap;
pub use index::Entry;
pub use metadata::{Array, Value};
pub use outgoing::{OutgoingError, stored_row};
pub use progress::{Progress, Watched};
pub use save::{save, save_to};
pub use slice::SliceError;
pub use stream_error::StreamError;
pub use stream_parser::{StreamLimits, StreamParser};
pub use stream_reader::StreamReader;
pub use stream_writer::StreamWriter;
