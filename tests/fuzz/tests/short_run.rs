//! The vectors, the corpus, and a fixed number of changes to them, the same in every run.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use hurray_fuzz::{CAPSULE, CONVERSION, DESCRIPTOR, FILE, STREAM, Target, scramble};

/// Changes that are read with each target.
const CHANGES: usize = 10_000;
/// A conversion syncs its output.
const CONVERSIONS: usize = 1000;

/// The inputs in a folder of `tests`, in the order of their names.
fn inputs(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension() != Some("json".as_ref()))
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Reads everything in `folders` and in the target's corpus, and changes to it, of which a good part must reach what it is meant for: `rules` is how
/// many rules they break at least.
fn run(target: Target, folders: &[&str], changes: usize, rules: usize) {
    let corpus = format!("fuzz/corpus/{}", target.name);
    let folders = folders.iter().copied().chain([corpus.as_str()]);
    let inputs: Vec<_> = folders.flat_map(inputs).collect();
    let is_open = |input: &&Vec<u8>| (target.read)(input).is_open;
    let open: Vec<_> = inputs.iter().filter(is_open).collect();

    let mut rng = Rng::with_seed(5);
    let mut plain = Rng::with_seed(6);
    let (mut opened, mut built, mut broken) = (0, 0, HashSet::new());
    for _ in 0..changes {
        // What is malformed already is mostly refused for that.
        let input = match rng.u8(..4) {
            0 => &inputs[rng.usize(..inputs.len())],
            _ => open[rng.usize(..open.len())],
        };
        let mut input = input.clone();
        (target.mutate)(&mut input, &mut rng, &mut |bytes| {
            scramble(bytes, &mut plain);
        });
        let reached = (target.read)(&input);
        opened += usize::from(reached.is_open);
        built += usize::from(reached.items > 0);
        broken.extend(reached.rules);
    }
    assert!(
        opened > changes / 4,
        "{opened} are read past what surrounds tensors"
    );
    assert!(built > changes / 20, "{built} have tensors");
    assert!(broken.len() >= rules, "{} rules are broken", broken.len());
}

const DESCRIPTORS: [&str; 5] = [
    "vectors/descriptors",
    "vectors/lenient",
    "vectors/malformed",
    "vectors/layouts",
    "vectors/quantization",
];
const FILES: [&str; 1] = ["vectors/files"];

/// A descriptor with its buffers is a stream.
fn streams() -> Vec<&'static str> {
    [&DESCRIPTORS[..], &["vectors/streams"]].concat()
}

#[test]
fn any_descriptor() {
    run(DESCRIPTOR, &DESCRIPTORS, CHANGES, 100);
}

#[test]
fn any_capsule() {
    run(CAPSULE, &streams(), CHANGES, 100);
}

/// I7.
#[test]
fn any_file() {
    run(FILE, &FILES, CHANGES, 38);
}

#[test]
fn any_stream() {
    run(STREAM, &streams(), CHANGES, 10);
}

#[test]
fn any_conversion() {
    run(CONVERSION, &FILES, CONVERSIONS, 2);
}
