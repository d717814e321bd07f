//! Files of other formats, and containers that become one.

use std::ops::ControlFlow;

use fastrand::Rng;
use hurray_inspect::convert::{ConvertError, Format, Options, convert};

use crate::{Plain, Reached, file, mutation, numbers_of, within};

/// What the format's own header says it is.
fn format(input: &[u8]) -> Format {
    match input {
        [b'H', b'R', b'R', b'Y', ..] => Format::Hurray,
        [b'G', b'G', b'U', b'F', ..] => Format::Gguf,
        [0x93, b'N', b'U', b'M', ..] => Format::Npy,
        [b'P', b'K', ..] => Format::Npz,
        _ => Format::Safetensors,
    }
}

pub(crate) fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng, plain: Plain<'_>) {
    match format(bytes) {
        Format::Hurray => mutation::file(bytes, rng, plain),
        _ => mutation::any(bytes, rng, plain),
    }
}

pub(crate) fn read(input: &[u8]) -> Reached {
    let mut rng = numbers_of(input);
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, input).expect("room for a file");
    let mut options = Options::default();
    options.from = Some(format(input));
    options.to = Some(match format(input) {
        Format::Hurray => Format::Safetensors,
        _ => Format::Hurray,
    });
    options.join_quantized = rng.bool();
    options.split = rng.bool();
    options.most_unpacked = Some(64 * input.len() as u64);
    let mut reached = Reached::default();
    // Lists of small things, and what unpacking needs to run.
    let allowance = 64 * input.len() + (1 << 17);
    let result = within(allowance, || {
        convert(&from, &to, &options, &mut |_, _| ControlFlow::Continue(()))
    });
    match result {
        Ok(report) => {
            reached.is_open = true;
            reached.items = report.tensors;
            let written = std::fs::read(&to).expect("the output");
            assert_eq!(written.len() as u64, report.bytes);
            if options.to == Some(Format::Hurray) {
                let found = file::read(&written);
                assert!(found.is_open && found.rules.is_empty(), "{:?}", found.rules);
                assert_eq!(found.items, report.tensors);
            }
        }
        Err(error) => {
            assert!(!to.exists());
            reached.is_open = !error.is_malformed_input();
            let rule = match &error {
                ConvertError::Input { .. } | ConvertError::Output { .. } => "",
                _ if error.is_malformed_input() => "malformed",
                _ => "refused",
            };
            reached.refused(rule, &error);
        }
    }
    reached
}
