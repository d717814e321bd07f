//! The golden files of `tests/vectors` at the root of the repository.
#![allow(dead_code, reason = "each test crate uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

use std::path::PathBuf;

use serde::Deserialize as _;
use serde_json::Value;

pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(file)
}

pub(crate) fn bytes(file: &str) -> Vec<u8> {
    std::fs::read(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The list `list` of the manifest of `folder`; never empty.
pub(crate) fn manifest(folder: &str, list: &str) -> Vec<Value> {
    let file = format!("{folder}/manifest.json");
    let text = bytes(&file);
    // 64 levels of nesting are 128 of JSON.
    let mut deserializer = serde_json::Deserializer::from_slice(&text);
    deserializer.disable_recursion_limit();
    let mut manifest = Value::deserialize(&mut deserializer).unwrap();
    match manifest[list].take() {
        Value::Array(vectors) if !vectors.is_empty() => vectors,
        other => panic!("{file} has no {list}: {other}"),
    }
}

pub(crate) fn text<'a>(vector: &'a Value, field: &str) -> &'a str {
    vector[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {vector}"))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2) && text.is_ascii());
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
