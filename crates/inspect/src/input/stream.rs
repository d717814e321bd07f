//! A stream, taken apart as it passes through the parser that judges it.

use std::io::{self, Read};

use hurray_core::{Error, TensorDescriptor};
use hurray_io::{StreamError, StreamLimits, StreamParser};

use super::{Format, Input, PREFIX, Part};
use crate::fault::{self, Fault};
use crate::fields;

/// Reads a stream to its end or its first fault, an item in memory at a time.
pub(super) fn read(mut source: impl Read) -> io::Result<Input> {
    let mut parser = StreamParser::new(StreamLimits::default());
    let mut passed = Passed::default();
    let mut complete = 0;
    let error = loop {
        let space = parser.space();
        let count = match source.read(space) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        if count == 0 {
            break parser.end().err();
        }
        passed.take(space.get(..count).unwrap_or_default());
        match parser.advance(count) {
            Ok(None) => {}
            Ok(Some(_)) => complete = passed.parts.len(),
            Err(error) => break Some(error),
        }
    };
    passed.cut();
    let mut input = Input {
        format: Format::Stream,
        size: parser.position(),
        parts: passed.parts,
        roots: Vec::new(),
        container: None,
        faults: Vec::new(),
        bytes: None,
    };
    input.nest();
    name(&mut input);
    for part in input.parts.iter_mut().take(complete) {
        part.is_sound = true;
    }
    if let Some(error) = error {
        let fault = locate(&input, complete, &error);
        input.faults.push(fault);
    }
    Ok(input)
}

/// What is wrong, and where: in the item that begins with part `first`.
fn locate(input: &Input, first: usize, error: &StreamError) -> Fault {
    let last = input.parts.len().saturating_sub(1);
    let (part, within) = match error {
        StreamError::Truncated { position, .. } | StreamError::Torn { position, .. } => {
            let tensor = input.parts.get(last).map(|part| &*part.name);
            return Fault::of_stream(error, tensor, *position);
        }
        StreamError::Descriptor(Error::Composite(error)) => {
            (first.saturating_add(fault::item_of(error)), None)
        }
        StreamError::Descriptor(error) => (last, Some(error)),
        _ => (last, None),
    };
    let Some(part) = input.parts.get(part.min(last)) else {
        return Fault::of_stream(error, None, 0);
    };
    let within = match error {
        StreamError::ShortDescriptor { .. } | StreamError::LongDescriptor { .. } => 6,
        _ => within.map_or(0, |error| fields::locate(error, &part.bytes)),
    };
    Fault::of_stream(error, Some(&part.name), part.offset.saturating_add(within))
}

/// Numbers the items, and the members of each head.
fn name(input: &mut Input) {
    let mut names: Vec<_> = (0..)
        .zip(&input.roots)
        .map(|(number, &root): (usize, _)| (root, number.to_string()))
        .collect();
    while let Some((part, name)) = names.pop() {
        let Some(part) = input.parts.get_mut(part) else {
            continue;
        };
        let members = part.members.iter().enumerate();
        names.extend(members.map(|(number, &member)| (member, format!("{name}.{number}"))));
        part.name = name;
    }
}

/// Tells descriptors from buffers, of bytes that come as the parser asks for them: never past the end of either.
#[derive(Default)]
struct Passed {
    position: u64,
    parts: Vec<Part>,
    /// The bytes of the descriptor that is coming.
    descriptor: Vec<u8>,
    /// Bytes of buffers that are still to come.
    buffers: u64,
}

impl Passed {
    fn take(&mut self, bytes: &[u8]) {
        self.position = self.position.saturating_add(bytes.len() as u64);
        if self.buffers > 0 {
            self.buffers = self.buffers.saturating_sub(bytes.len() as u64);
            return;
        }
        self.descriptor.extend_from_slice(bytes);
        let length = self.descriptor.get(6..PREFIX).and_then(<[u8]>::first_chunk);
        let length = length.map(|length| u32::from_le_bytes(*length) as usize);
        if length == Some(self.descriptor.len()) {
            self.complete();
        }
    }

    /// A descriptor has come.
    fn complete(&mut self) {
        let bytes = std::mem::take(&mut self.descriptor);
        let offset = self.position.saturating_sub(bytes.len() as u64);
        let mut part = Part::new(String::new(), offset, bytes);
        if let Ok((descriptor, _)) = TensorDescriptor::decode(&part.bytes) {
            let mut end = self.position;
            for row in &descriptor.buffers {
                let start = end;
                end = end.saturating_add(row.byte_size);
                part.buffers.push(start..end);
            }
            self.buffers = end.saturating_sub(self.position);
            part.descriptor = Some(descriptor);
        }
        self.parts.push(part);
    }

    /// Nothing more comes; a descriptor that is not whole is a part all the same.
    fn cut(&mut self) {
        if !self.descriptor.is_empty() {
            let bytes = std::mem::take(&mut self.descriptor);
            let offset = self.position.saturating_sub(bytes.len() as u64);
            self.parts.push(Part::new(String::new(), offset, bytes));
        }
        if self.buffers > 0
            && let Some(part) = self.parts.last_mut()
        {
            // They are not all there.
            part.buffers.clear();
        }
    }
}
