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
