//! `hurray verify`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use hurray_core::{
    BufferName, ContentsError, Error, SyncMode, TensorDescriptor, validate_contents,
};
use indicatif::ProgressBar;
use rayon::prelude::*;
use serde::Serialize;

use crate::arguments::VerifyArgs;
use crate::command_error::{CommandError, Outcome};
use crate::data;
use crate::fault::Fault;
use crate::input::{Format, Input, Keep, Part};
use crate::progress;
use crate::report;

/// What is said of one input.
#[derive(Debug, Serialize)]
struct Verdict {
    input: String,
    format: Format,
    tensors: usize,
    faults: Vec<Fault>,
    /// Only where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    hashes: Option<Vec<Hash>>,
}

/// The hash of a buffer's bytes.
#[derive(Debug, Serialize)]
struct Hash {
    tensor: String,
    buffer: usize,
    name: String,
    blake3: String,
}

/// Checks inputs one by one and says what is wrong with each. One that cannot be read does not stop the others.
pub(crate) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<Outcome, CommandError> {
    let mut outcome = Outcome::Done;
    for path in &args.inputs {
        let verdict = match verify(path, args) {
            Ok(verdict) => verdict,
            Err(error) => {
                out.flush()?;
                error.report();
                outcome = Outcome::Trouble;
                continue;
            }
        };
        if !verdict.faults.is_empty() {
            outcome = outcome.max(Outcome::Found);
        }
        if args.json {
            serde_json::to_writer(&mut *out, &verdict).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            say(&verdict, out)?;
        }
    }
    Ok(outcome)
}

fn say(verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    let input = report::printable(&verdict.input);
    for Hash {
        tensor,
        name,
        blake3,
        ..
    } in verdict.hashes.iter().flatten()
    {
        writeln!(out, "{blake3}  {input}: {tensor:?} {name}")?;
    }
    let style = |color: AnsiColor| Style::new().bold().fg_color(Some(color.into()));
    for fault in &verdict.faults {
        let red = style(AnsiColor::Red);
        writeln!(out, "{input}: {red}{fault}{red:#}")?;
    }
    if verdict.faults.is_empty() {
        let green = style(AnsiColor::Green);
        let tensors = report::counted(verdict.tensors);
        let what = match verdict.format {
            Format::File => format!("a file of {tensors}"),
            Format::Stream => format!("a stream of {tensors}"),
            Format::Descriptor => "a descriptor without buffers".into(),
        };
        writeln!(out, "{input}: {green}ok{green:#}, {what}")?;
    }
    Ok(())
}

fn verify(path: &Path, args: &VerifyArgs) -> Result<Verdict, CommandError> {
    let mut input = Input::read(path, args.format, Keep::Yes)?;
    let failed = |source| CommandError::Read {
        input: path.to_owned(),
        source,
    };
    let mut hashes = None;
    if let Some(file) = input.bytes.take() {
        let found: Result<Vec<_>, _> = input
            .parts
            .par_iter()
            .map(|part| contents(&file, part))
            .collect();
        input
            .faults
            .extend(found.map_err(failed)?.into_iter().flatten());
        if args.hash {
            hashes = Some(hash(&file, &input.parts).map_err(failed)?);
        }
    }
    Ok(Verdict {
        input: path.display().to_string(),
        format: input.format,
        tensors: input.tensor_count(),
        faults: input.faults,
        hashes,
    })
}

/// Checks the indices and parameters of a tensor. Those of a buffer that is not ready are not judged: its bytes are only relayed.
fn contents(file: &File, part: &Part) -> io::Result<Option<Fault>> {
    let Some(descriptor) = &part.descriptor else {
        return Ok(None);
    };
    let mut rows = descriptor.buffers.iter();
    if !part.is_sound || rows.any(|row| row.sync_mode != SyncMode::ProducerSynced) {
        return Ok(None);
    }
    let buffers: io::Result<Vec<_>> = names(descriptor)
        .into_iter()
        .zip(&part.buffers)
        .map(|(name, range)| match name {
            // They are not looked at.
            None
            | Some(
                BufferName::Data | BufferName::Values | BufferName::PagePool | BufferName::Private,
            ) => Ok(Vec::new()),
            Some(_) => data::whole(file, range),
        })
        .collect();
    let buffers = buffers?;
    let buffers: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
    let error = validate_contents(descriptor, &buffers).err();
    Ok(error.map(|error| {
        let offset = place(&error, part, descriptor).unwrap_or(part.offset);
        let mut fault = Fault::new(&error, Some(&part.name), offset);
        fault.message = format!("the tensor {:?}: {}", part.name, fault.message);
        fault
    }))
}

fn names(descriptor: &TensorDescriptor) -> Vec<Option<BufferName>> {
    let plan = descriptor.buffer_plan().unwrap_or_default();
    let rows = 0..descriptor.buffers.len();
    rows.map(|row| plan.get(row).map(|buffer| buffer.name))
        .collect()
}

/// The first byte of the entry that breaks a rule.
fn place(error: &Error, part: &Part, descriptor: &TensorDescriptor) -> Option<u64> {
    use ContentsError as E;
    let Error::Contents(error) = error else {
        return None;
    };
    let (name, entry) = match *error {
        E::CoordinateOutOfBounds { buffer, at, .. }
        | E::NotIncreasing { buffer, at, .. }
        | E::PointerDecreases { buffer, at, .. } => (buffer, at),
        E::PointerStart { buffer, .. } | E::PointerEnd { buffer, .. } | E::Short { buffer, .. } => {
            (buffer, 0)
        }
        E::DuplicateEntry { second, .. } => (BufferName::Indices, second),
        E::NotSorted { at } => (BufferName::Indices, at),
        E::PageOutOfBounds { at, .. } => (BufferName::BlockTable, at),
        E::TokenCount { .. } => (BufferName::SeqPtr, 0),
        E::Scale { at, .. } => (BufferName::Scales, at),
        E::ZeroPoint { at, .. } => (BufferName::ZeroPoints, at),
        _ => return None,
    };
    let plan = descriptor.buffer_plan().ok()?;
    let row = plan.iter().position(|buffer| buffer.name == name)?;
    let width = plan.get(row)?.element_type?.storage_width()?.unit_bytes();
    let start = part.buffers.get(row)?.start;
    // A coordinate list's entries are tuples.
    let tuple = match error {
        E::DuplicateEntry { .. } | E::NotSorted { .. } => descriptor.shape.len() as u64,
        _ => 1,
    };
    let entry = entry.saturating_mul(tuple).saturating_mul(width.into());
    Some(start.saturating_add(entry))
}

/// The BLAKE3 hash of each buffer, in the order of the descriptors: buffers side by side, and the pieces of a large one too.
fn hash(file: &File, parts: &[Part]) -> io::Result<Vec<Hash>> {
    let buffers = |part: &Part| (0..).zip(part.buffers.clone()).collect::<Vec<(usize, _)>>();
    let buffers: Vec<_> = parts
        .iter()
        .flat_map(|part| {
            buffers(part)
                .into_iter()
                .map(move |(buffer, range)| (part, buffer, range))
        })
        .collect();
    let lengths = buffers
        .iter()
        .map(|(_, _, range)| range.end.saturating_sub(range.start));
    let bar = progress::bytes(lengths.sum(), "hashing");
    buffers
        .into_par_iter()
        .map(|(part, buffer, range)| {
            Ok(Hash {
                tensor: part.name.clone(),
                buffer,
                name: report::buffer_name(part, buffer),
                blake3: hash_range(file, &range, &bar)?,
            })
        })
        .collect()
}

fn hash_range(file: &File, range: &std::ops::Range<u64>, bar: &ProgressBar) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for piece in data::pieces(range) {
        let bytes = data::whole(file, &piece)?;
        hasher.update_rayon(&bytes);
        bar.inc(bytes.len() as u64);
    }
    Ok(hasher.finalize().to_hex().to_string())
}
