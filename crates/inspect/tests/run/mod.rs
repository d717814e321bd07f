//! Runs the commands as a shell does, in the folder of the golden files.
#![allow(dead_code, reason = "each test crate uses its part")]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Output;

use assert_cmd::cargo::cargo_bin_cmd;
use hurray_core::memory::AlignedBytes;
use hurray_core::{ElementType, Layout, TensorDescriptor};
use hurray_ffi::{Buffer, Item, Tensor};
use hurray_io::{StreamLimits, StreamWriter};
use serde::Deserialize as _;
use serde_json::Value;

pub(crate) fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// Runs `hurray` in the folder of the vectors.
pub(crate) fn hurray(arguments: &[&str]) -> Output {
    let mut command = cargo_bin_cmd!("hurray");
    command.current_dir(vectors()).args(arguments);
    command.output().unwrap()
}

pub(crate) fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn out(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

pub(crate) fn err(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

/// 64 levels of nesting are more than the usual 128 of JSON.
pub(crate) fn json(text: &[u8]) -> Value {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    let value = Value::deserialize(&mut deserializer).unwrap();
    deserializer.end().unwrap();
    value
}

/// The list `list` of a manifest; never empty.
pub(crate) fn manifest(file: &str, list: &str) -> Vec<Value> {
    let mut manifest = json(&std::fs::read(vectors().join(file)).unwrap());
    match manifest[list].take() {
        Value::Array(vectors) if !vectors.is_empty() => vectors,
        other => panic!("{file} has no {list}: {other}"),
    }
}

pub(crate) fn text<'a>(vector: &'a Value, field: &str) -> &'a str {
    vector[field].as_str().unwrap()
}

/// A copy of a vector with other bytes at `offset`.
pub(crate) fn damaged(file: &str, offset: u64, bytes: &[u8]) -> tempfile::NamedTempFile {
    let copy = tempfile::Builder::new().suffix(".hrry").tempfile().unwrap();
    std::fs::copy(vectors().join(file), copy.path()).unwrap();
    copy.as_file().write_all_at(bytes, offset).unwrap();
    copy
}

/// A stream of one tensor of bytes.
pub(crate) fn stream_of(data: &[u8]) -> Vec<u8> {
    let shape = vec![data.len() as u64];
    let buffers = vec![buffer(data)];
    let rows = buffers.iter().map(Buffer::handle);
    let descriptor = TensorDescriptor::new(ElementType::Uint8, shape, Layout::RowMajor, rows);
    stream(descriptor, buffers)
}

/// A stream of one tensor.
pub(crate) fn stream(descriptor: TensorDescriptor, buffers: Vec<Buffer>) -> Vec<u8> {
    let tensor = Tensor::new(descriptor, buffers).unwrap();
    let mut writer = StreamWriter::new(Vec::new(), StreamLimits::default());
    writer.write_item(&Item::Tensor(tensor)).unwrap();
    writer.finish().unwrap()
}

pub(crate) fn buffer(data: &[u8]) -> Buffer {
    let mut bytes = AlignedBytes::zeroed(data.len()).unwrap();
    bytes.copy_from_slice(data);
    Buffer::from(bytes)
}

pub(crate) fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}
