//! What every reader of foreign bytes must hold to, whatever the bytes: an error of the documented class or tensors that lie in their memory,
//! which are written and read again as they are; never a panic, and never more memory than a small multiple of the input.
//!
//! A [`Target`] is one reader. `tests/short_run.rs` reads the vectors, the corpus and a fixed number of changes to them in `make test`; with the
//! feature `libfuzzer` the programs of `make fuzz` read as many as one has time for.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is the report"
)]

mod capsule;
mod conversion;
#[path = "../../../crates/io/tests/counting/mod.rs"]
mod counting;
mod descriptor;
mod file;
#[cfg(feature = "libfuzzer")]
pub mod libfuzzer;
mod mutation;
mod stream;
mod tensors;

use fastrand::Rng;

/// How far a reader came with one input.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// Whether it got past what surrounds tensors: the container's sections, or a descriptor that decodes.
    pub is_open: bool,
    /// Tensors and composites that were built.
    pub items: usize,
    /// The rule of each error.
    pub rules: Vec<&'static str>,
}

impl Reached {
    fn refused(&mut self, rule: &'static str, error: &dyn std::fmt::Display) {
        assert!(!rule.is_empty(), "not of the documented class: {error}");
        assert!(!error.to_string().is_empty());
        self.rules.push(rule);
    }
}

/// Changes bytes without knowing what they are.
pub type Plain<'a> = &'a mut dyn FnMut(&mut Vec<u8>);

/// A reader of foreign bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As `make fuzz` and the corpus name it.
    pub name: &'static str,
    /// Reads an input; panics where the reader does not hold to the above.
    pub read: fn(&[u8]) -> Reached,
    /// Changes an input and most often mends what would keep the change from being read: lengths, offsets, checksums.
    pub mutate: fn(&mut Vec<u8>, &mut Rng, Plain<'_>),
}

/// A descriptor, and behind it the bytes of its buffers.
pub const DESCRIPTOR: Target = Target {
    name: "descriptor",
    read: descriptor::read,
    mutate: mutation::stream,
};
/// The descriptors and buffers of a capsule, in the order of a stream.
pub const CAPSULE: Target = Target {
    name: "capsule",
    read: capsule::read,
    mutate: mutation::stream,
};
/// A file of another format, as what begins it says, or a container that becomes one.
pub const CONVERSION: Target = Target {
    name: "conversion",
    read: conversion::read,
    mutate: conversion::mutate,
};
/// A container.
pub const FILE: Target = Target {
    name: "file",
    read: file::read,
    mutate: mutation::file,
};
/// A stream, which comes in pieces.
pub const STREAM: Target = Target {
    name: "stream",
    read: stream::read,
    mutate: mutation::stream,
};

/// Numbers that look random and are the same each time that `input` is read.
fn numbers_of(input: &[u8]) -> Rng {
    Rng::with_seed(crc32c::crc32c(input).into())
}

/// What reading the tensors of `input` may hold at a time. Each descriptor, of 37 bytes and more, is a value of several hundred, and lists of them
/// grow by doubling.
fn allowance(input: &[u8]) -> usize {
    48 * input.len() + 4096
}

/// Runs `read`, which must hold no more than `allowance` bytes at a time.
fn within<T>(allowance: usize, read: impl FnOnce() -> T) -> T {
    let (peak, value) = counting::peak(read);
    assert!(
        peak <= allowance,
        "{peak} bytes held, and {allowance} allowed"
    );
    value
}

pub use mutation::scramble;
