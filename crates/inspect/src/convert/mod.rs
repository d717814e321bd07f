//! Conversion from and to other formats: [`convert`], which the command line calls too. `docs/convert.md` says what becomes what.

mod convert_error;
mod format;
mod ggml_blocks;
mod gguf;
mod hurray_source;
mod hurray_target;
mod join;
mod npy_header;
mod numpy_source;
mod refusal;
mod safetensors_source;
mod safetensors_target;
mod safetensors_type;
mod source;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use hurray_core::TensorDescriptor;
use hurray_io::{AtomicFile, FileError, FileMap, FileOptions, Progress, Watched};

pub use convert_error::{ConvertError, Refused};
pub use format::Format;
pub use gguf::GgufError;
pub use npy_header::NpyError;
pub use refusal::Refusal;

use gguf::GgufSource;
use hurray_source::HurraySource;
use numpy_source::NumpySource;
use safetensors_source::SafetensorsSource;
use source::Source;

use crate::command_error::CommandError;
use crate::report::counted;

/// What an input may become beyond its own bytes, unless it is told: this, and as many bytes for each of its own as [`MOST_UNPACKED_RATIO`].
const MOST_UNPACKED: u64 = 1 << 30;
const MOST_UNPACKED_RATIO: u64 = 64;

/// How a conversion is done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The input's format; what its name says unless set.
    pub from: Option<Format>,
    /// The output's format; what its name says unless set.
    pub to: Option<Format>,
    /// The tensors to convert; all unless set.
    pub names: Option<Vec<String>>,
    /// Whether codes, scales and zero points with the usual names become one quantized tensor.
    pub join_quantized: bool,
    /// Whether a tensor that the output cannot express is written as several that it can.
    pub split: bool,
    /// Every buffer of a `.hrry` file begins on a multiple of it.
    pub alignment: u32,
    /// The most bytes that compressed or repeated elements may become in all; 1 GiB and 64 times the input unless set.
    pub most_unpacked: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            from: None,
            to: None,
            names: None,
            join_quantized: false,
            split: false,
            alignment: FileOptions::default().alignment,
            most_unpacked: None,
        }
    }
}

/// What a conversion did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Tensors of the input that were converted.
    pub tensors: usize,
    /// Bytes of the output.
    pub bytes: u64,
    /// Everything that is not as it was, a line each: changed bytes, joined and split tensors, metadata that is left out.
    pub notes: Vec<String>,
}

/// A tensor that is to be converted.
#[derive(Clone, Copy)]
pub(crate) struct Selected<'s> {
    number: usize,
    name: &'s str,
    descriptor: &'s TensorDescriptor,
}

/// Converts the file `input` into the file `output`, which takes its place as a whole once it is written and synced. `progress` is told of the bytes
/// that are written; their total leaves out what a `.hrry` file has beside its tensors.
///
/// The input is mapped, and must not be changed in place meanwhile; bytes that need no change are written from where they lie in it.
///
/// # Errors
/// [`ConvertError`]; `output` is then what it was before.
pub fn convert(
    input: &Path,
    output: &Path,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Report, ConvertError> {
    let known = |format: Option<Format>, path: &Path| {
        format.or_else(|| Format::of(path)).ok_or_else(|| {
            let path = path.to_owned();
            ConvertError::UnknownFormat { path }
        })
    };
    let from = known(options.from, input)?;
    let to = known(options.to, output)?;
    match to {
        Format::Hurray | Format::Safetensors if from == to => {
            return Err(ConvertError::SameFormat { format: to });
        }
        Format::Hurray | Format::Safetensors => {}
        format => return Err(ConvertError::ReadOnly { format }),
    }
    let map = File::open(input).and_then(|file| FileMap::new(&file));
    let map = map.map_err(|source| {
        let path = input.to_owned();
        ConvertError::Input { path, source }
    })?;
    let most_unpacked = options.most_unpacked.unwrap_or_else(|| {
        (map.len() as u64)
            .saturating_mul(MOST_UNPACKED_RATIO)
            .saturating_add(MOST_UNPACKED)
    });
    let scratch = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = input.file_stem().map(|stem| stem.to_string_lossy());
    let mut source: Box<dyn Source<'_> + '_> = match from {
        Format::Hurray => Box::new(HurraySource::open(&map)?),
        Format::Safetensors => Box::new(SafetensorsSource::open(&map)?),
        Format::Npy => Box::new(NumpySource::open_npy(&map, &name.unwrap_or_default())?),
        Format::Npz => Box::new(NumpySource::open_npz(&map, scratch, most_unpacked)?),
        Format::Gguf => Box::new(GgufSource::open(&map)?),
    };
    if options.join_quantized {
        source = Box::new(join::Joined::new(source)?);
    }
    let selected = select(&*source, options.names.as_deref())?;
    let mut report = Report {
        tensors: selected.len(),
        bytes: 0,
        notes: source.notes().to_vec(),
    };
    for one in &selected {
        let listed = source.tensors().get(one.number);
        if let Some(note) = listed.and_then(|listed| listed.note.as_ref()) {
            report.notes.push(format!("{:?}: {note}", one.name));
        }
    }
    let failed = |source| ConvertError::Output {
        path: output.to_owned(),
        source,
    };
    let (total, plan) = match to {
        Format::Safetensors => {
            let plan = safetensors_target::plan(&*source, &selected, options.split, most_unpacked)?;
            report.notes.extend(plan.notes.iter().cloned());
            (plan.size, Some(plan))
        }
        _ => (hurray_target::size(&selected), None),
    };
    let mut file = AtomicFile::create(output).map_err(failed)?;
    let mut sink = Watched::new(&mut file, total, progress);
    let written = match &plan {
        Some(plan) => safetensors_target::write(&*source, plan, &mut sink, failed),
        None => hurray_target::write(&*source, &selected, &mut sink, output, options.alignment),
    };
    if sink.is_stopped() {
        return Err(FileError::Stopped.into());
    }
    written?;
    report.bytes = sink.done();
    file.commit().map_err(failed)?;
    Ok(report)
}

/// The tensors to convert, in the order in which they lie; all that cannot be are refused together.
fn select<'s>(
    source: &'s dyn Source<'_>,
    names: Option<&[String]>,
) -> Result<Vec<Selected<'s>>, ConvertError> {
    let wanted: Option<HashSet<&str>> =
        names.map(|names| names.iter().map(String::as_str).collect());
    let mut found = HashMap::new();
    let mut refused = Vec::new();
    let mut selected = Vec::new();
    for (number, listed) in source.tensors().iter().enumerate() {
        let name = listed.name.as_str();
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(name)) {
            continue;
        }
        if found.insert(name, number).is_some() {
            return Err(ConvertError::Collision { name: name.into() });
        }
        let descriptor = listed.descriptor.as_ref().map_err(Refusal::clone);
        match descriptor.and_then(|descriptor| Ok(descriptor.validate().map(|()| descriptor)?)) {
            Ok(descriptor) => selected.push(Selected {
                number,
                name,
                descriptor,
            }),
            Err(refusal) => refused.push((name.to_owned(), refusal)),
        }
    }
    if let Some(missing) = names
        .unwrap_or_default()
        .iter()
        .find(|name| !found.contains_key(name.as_str()))
    {
        let name = missing.clone();
        return Err(ConvertError::NoTensor { name });
    }
    if refused.is_empty() {
        Ok(selected)
    } else {
        Err(ConvertError::Refused(Refused(refused)))
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// What to convert: a .hrry, .safetensors, .npy, .npz or .gguf file
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// What to write: a .hrry or .safetensors file
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
    /// The format of the input, where its name does not say it
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// The format of the output, where its name does not say it
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    /// Convert only these tensors
    #[arg(long, value_name = "NAME", num_args = 1..)]
    names: Option<Vec<String>>,
    /// Make one quantized tensor of codes, scales and zero points with the usual names
    #[arg(long)]
    join_quantized: bool,
    /// Write a tensor that the output cannot express as several that it can
    #[arg(long)]
    split: bool,
    /// Where buffers of a .hrry file begin: a power of two from 4096 to 2097152
    #[arg(long, value_name = "BYTES", default_value_t = FileOptions::default().alignment)]
    alignment: u32,
    /// The most bytes that compressed or repeated elements may become [default: 1 GiB and 64 times the input]
    #[arg(long, value_name = "BYTES")]
    max_unpacked: Option<u64>,
    /// Do not tell what was changed
    #[arg(long, short)]
    quiet: bool,
}

/// Converts, and tells what was done.
pub(crate) fn run(args: &ConvertArgs, out: &mut dyn Write) -> Result<(), CommandError> {
    let options = Options {
        from: args.from,
        to: args.to,
        names: args.names.clone(),
        join_quantized: args.join_quantized,
        split: args.split,
        alignment: args.alignment,
        most_unpacked: args.max_unpacked,
    };
    let bar = crate::progress::bytes(0, "converting");
    let report = convert(
        &args.input,
        &args.output,
        &options,
        &mut |written, total| {
            bar.set_length(total);
            bar.set_position(written);
            ControlFlow::Continue(())
        },
    )?;
    bar.finish_and_clear();
    if args.quiet {
        return Ok(());
    }
    for note in &report.notes {
        writeln!(out, "{note}")?;
    }
    let Report { tensors, bytes, .. } = report;
    writeln!(out, "{}, {bytes} bytes", counted(tensors))?;
    Ok(())
}
