//! What is inspected: a file, a stream or a single descriptor, taken apart into descriptors and where they and their buffers are.

mod file;
mod stream;

use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::ops::Range;
use std::path::Path;

use clap::ValueEnum;
use hurray_core::composite::MAX_DEPTH;
use hurray_core::{Layout, TensorDescriptor};
use hurray_io::Value;
use serde::Serialize;

use crate::command_error::CommandError;
use crate::convert;
use crate::fault::Fault;
use crate::fields;
use crate::progress;

/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// The bytes of a descriptor that say how long it is.
const PREFIX: usize = 10;
/// What tells a file from a stream, whose fifth byte is a version (`file.md` § 2).
const FILE_MAGIC: &[u8] = b"HRRYF";
const DESCRIPTOR_MAGIC: &[u8] = b"HRRY";

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// A container of named tensors
    File,
    /// Tensors one after the other
    Stream,
    /// One descriptor, without its buffers
    Descriptor,
}

/// An input, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) format: Format,
    /// Its bytes; those up to the fault of a malformed stream.
    pub(crate) size: u64,
    /// The descriptors in the order in which they are stored, so that members follow their head.
    pub(crate) parts: Vec<Part>,
    /// The parts that are no member, in the order in which they are listed.
    pub(crate) roots: Vec<usize>,
    /// What a file has besides tensors.
    pub(crate) container: Option<Container>,
    /// What is wrong with it.
    pub(crate) faults: Vec<Fault>,
    /// Where its bytes can be read again.
    pub(crate) bytes: Option<File>,
}

/// What a file has besides tensors.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) alignment: u32,
    pub(crate) is_sorted: bool,
    pub(crate) metadata: Vec<(String, Value)>,
    /// The bytes of the index section.
    pub(crate) index: Range<u64>,
    /// The bytes of the metadata section.
    pub(crate) metadata_section: Range<u64>,
}

/// One descriptor of an input, and where its buffers are.
#[derive(Debug)]
pub(crate) struct Part {
    /// The tensor's name; in a stream its number, and `0.1` for the second member of the first item.
    pub(crate) name: String,
    /// The first byte of the descriptor.
    pub(crate) offset: u64,
    /// The descriptor's bytes.
    pub(crate) bytes: Vec<u8>,
    /// What they say, if they can be read.
    pub(crate) descriptor: Option<TensorDescriptor>,
    /// The bytes of its buffers in the input; none where the input does not have them.
    pub(crate) buffers: Vec<Range<u64>>,
    /// The members of a head.
    pub(crate) members: Vec<usize>,
    /// Whether a tensor or composite exists over it, so that its buffers may be interpreted.
    pub(crate) is_sound: bool,
}

impl Part {
    fn new(name: String, offset: u64, bytes: Vec<u8>) -> Self {
        Self {
            name,
            offset,
            bytes,
            descriptor: None,
            buffers: Vec::new(),
            members: Vec::new(),
            is_sound: false,
        }
    }

    /// The bytes of its buffers.
    pub(crate) fn byte_size(&self) -> u64 {
        let lengths = self
            .buffers
            .iter()
            .map(|range| range.end.saturating_sub(range.start));
        lengths.fold(0, u64::saturating_add)
    }

    fn member_count(&self) -> u32 {
        match &self.descriptor {
            Some(TensorDescriptor {
                layout: Layout::Composite(head),
                ..
            }) => head.member_count,
            _ => 0,
        }
    }
}

/// Whether what is read of a source that can be read only once is kept for reading it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

impl Input {
    /// Reads what `path` names; `-` is standard input.
    ///
    /// What is wrong with the bytes is in the input's faults.
    pub(crate) fn read(
        path: &Path,
        format: Option<Format>,
        keep: Keep,
    ) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Read {
            input: path.to_owned(),
            source,
        };
        if path == Path::new(STANDARD_INPUT) {
            return Self::read_once(path, io::stdin().lock(), format, keep);
        }
        let file = File::open(path).map_err(failed)?;
        let facts = file.metadata().map_err(failed)?;
        if !facts.is_file() {
            return Self::read_once(path, file, format, keep);
        }
        let mut source = file.try_clone().map_err(failed)?;
        let (front, found) = detect(path, &mut source, format).map_err(failed)?;
        let input = match found {
            Format::File => file::read(&file, facts.len()),
            Format::Stream => {
                let bar = progress::bytes(facts.len(), "reading");
                stream::read(bar.wrap_read(Cursor::new(front).chain(source)))
            }
            Format::Descriptor => descriptor(source, front),
        };
        let mut input = input.map_err(failed)?;
        input.bytes = Some(file);
        Ok(input)
    }

    /// Reads from a source that cannot be read again.
    fn read_once(
        path: &Path,
        mut source: impl Read,
        format: Option<Format>,
        keep: Keep,
    ) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Read {
            input: path.to_owned(),
            source,
        };
        let (front, found) = detect(path, &mut source, format).map_err(failed)?;
        match found {
            Format::File => Err(CommandError::FileInPipe(path.to_owned())),
            Format::Descriptor => descriptor(source, front).map_err(failed),
            Format::Stream => {
                let source = Cursor::new(front).chain(source);
                if keep == Keep::No {
                    return stream::read(source).map_err(failed);
                }
                let mut copy = tempfile::tempfile().map_err(CommandError::Temporary)?;
                let read = stream::read(Tee {
                    source,
                    copy: &mut copy,
                });
                let mut input = read.map_err(failed)?;
                input.bytes = Some(copy);
                Ok(input)
            }
        }
    }

    /// Tensors, those in composites too.
    pub(crate) fn tensor_count(&self) -> usize {
        let parts = self
            .parts
            .iter()
            .filter_map(|part| part.descriptor.as_ref());
        parts
            .filter(|descriptor| !descriptor.layout.is_virtual())
            .count()
    }

    /// Says which parts are members of which.
    fn nest(&mut self) {
        // Heads that wait for members, and how many.
        let mut open: Vec<(usize, u32)> = Vec::new();
        for part in 0..self.parts.len() {
            match open.last_mut() {
                None => self.roots.push(part),
                Some((head, missing)) => {
                    *missing = missing.saturating_sub(1);
                    if let Some(head) = self.parts.get_mut(*head) {
                        head.members.push(part);
                    }
                }
            }
            let count = self.parts.get(part).map_or(0, Part::member_count);
            // A head that is nested too deeply is not opened.
            if count > 0 && open.len() < MAX_DEPTH {
                open.push((part, count));
            }
            while open.pop_if(|(_, missing)| *missing == 0).is_some() {}
        }
    }

    /// The parts of a root in stored order: itself and everything inside it.
    fn inside(&self, root: usize) -> Range<usize> {
        let mut last = root;
        while let Some(&member) = self.parts.get(last).and_then(|part| part.members.last()) {
            last = member;
        }
        root..last.saturating_add(1)
    }
}

/// The front of an input, and what it is: what it is said to be, or what it begins with.
fn detect(
    path: &Path,
    mut source: impl Read,
    format: Option<Format>,
) -> io::Result<(Vec<u8>, Format)> {
    let mut front = Vec::with_capacity(PREFIX);
    let mut read =
        |front: &mut Vec<u8>, count: u64| source.by_ref().take(count).read_to_end(front).map(drop);
    read(&mut front, PREFIX as u64)?;
    if let Some(format) = format {
        return Ok((front, format));
    }
    if front.starts_with(FILE_MAGIC) {
        return Ok((front, Format::File));
    }
    if !front.starts_with(DESCRIPTOR_MAGIC) {
        // A file whose first bytes are wrong is refused for that, not for being no stream.
        let is_file = convert::Format::of(path) == Some(convert::Format::Hurray);
        return Ok((
            front,
            if is_file {
                Format::File
            } else {
                Format::Stream
            },
        ));
    }
    let length = front.get(6..PREFIX).and_then(<[u8]>::first_chunk);
    let length = length.map_or(u32::MAX, |length| u32::from_le_bytes(*length)) as usize;
    // A descriptor alone ends where it says; one byte more tells the two apart.
    let missing = length.saturating_add(1).saturating_sub(front.len());
    let limit = hurray_io::StreamLimits::default().max_descriptor_bytes;
    if length <= limit as usize {
        read(&mut front, missing as u64)?;
    }
    let format = if front.len() == length {
        Format::Descriptor
    } else {
        Format::Stream
    };
    Ok((front, format))
}

/// Reads a descriptor that is alone.
fn descriptor(mut source: impl Read, mut bytes: Vec<u8>) -> io::Result<Input> {
    source.read_to_end(&mut bytes)?;
    let fault = |error, bytes: &[u8]| Fault::new(&error, None, fields::locate(&error, bytes));
    let (descriptor, fault) = match TensorDescriptor::decode(&bytes) {
        Ok((descriptor, length)) => {
            bytes.truncate(length);
            let fault = descriptor.validate().err().map(|error| {
                let mut fault = fault(error, &bytes);
                fault.message = format!("no tensor can have this descriptor: {}", fault.message);
                fault
            });
            (Some(descriptor), fault)
        }
        Err(error) => (None, Some(fault(error, &bytes))),
    };
    Ok(Input {
        format: Format::Descriptor,
        size: bytes.len() as u64,
        parts: vec![Part {
            descriptor,
            ..Part::new(String::from("0"), 0, bytes)
        }],
        roots: vec![0],
        container: None,
        faults: fault.into_iter().collect(),
        bytes: None,
    })
}

/// Copies what is read.
struct Tee<'a, R> {
    source: R,
    copy: &'a mut File,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(space)?;
        self.copy
            .write_all(space.get(..count).unwrap_or_default())?;
        Ok(count)
    }
}

#[cfg(test)]
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::report::Report;

    fn vectors() -> Vec<PathBuf> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
        let folders = ["files", "streams", "descriptors"].map(|folder| root.join(folder));
        let mut files: Vec<_> = folders
            .into_iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap())
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension() != Some(OsStr::new("json")))
            .collect();
        // The order of a folder is not the same everywhere.
        files.sort();
        assert!(files.len() > 300);
        files
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Whatever the bytes are, they are told apart or refused; what is said of them adds up, and can be written.
        #[test]
        fn any_bytes_are_read(
            path in prop::sample::select(vectors()),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
            format in prop::sample::select(vec![
                None,
                Some(Format::File),
                Some(Format::Stream),
                Some(Format::Descriptor),
            ]),
        ) {
            let mut bytes = std::fs::read(&path).unwrap();
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            let file = tempfile::Builder::new().suffix(".hrry").tempfile().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            let input = Input::read(file.path(), format, Keep::No).unwrap();
            let size = bytes.len() as u64;
            prop_assert!(input.size <= size);
            for fault in &input.faults {
                prop_assert!(fault.offset.is_none_or(|offset| offset <= size), "{fault}");
                prop_assert!(!fault.rules.is_empty(), "{fault}");
            }
            let report = Report::new(String::new(), &input);
            let json = serde_json::to_value(&report).unwrap();
            if let Some(spent) = json["bytes_spent"].as_object() {
                let spent: u64 = spent.values().map(|bytes| bytes.as_u64().unwrap()).sum();
                prop_assert_eq!(spent, input.size);
            }
            for part in &input.parts {
                prop_assert!(part.buffers.iter().all(|range| range.end <= size));
            }
        }
    }
}
