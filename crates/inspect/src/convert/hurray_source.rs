use std::ops::Range;

use hurray_io::{Container, ContainerParser, FileError, Opening, Value};

use super::ConvertError;
use super::source::{Bytes, Listed, Source};

/// A file of this project. A composite's head and its members are tensors of their own here.
#[derive(Debug)]
pub(crate) struct HurraySource<'a> {
    container: Container,
    listed: Vec<Listed>,
    data: Vec<Vec<&'a [u8]>>,
}

impl<'a> HurraySource<'a> {
    pub(crate) fn open(file: &'a [u8]) -> Result<Self, FileError> {
        let mut parser = ContainerParser::start(file.len() as u64)?;
        let container = loop {
            let bytes = part(file, &parser.range());
            match parser.supply(bytes)? {
                Opening::Needs(next) => parser = next,
                Opening::Done(container) => break container,
            }
        };
        let mut entries: Vec<_> = container.entries().iter().collect();
        entries.sort_by_key(|entry| entry.descriptor_offset);
        let mut listed = Vec::new();
        let mut data = Vec::new();
        for entry in entries {
            let descriptor = container.decode(entry, part(file, &entry.descriptor()))?;
            descriptor
                .validate()
                .map_err(|source| FileError::Descriptor {
                    name: entry.name.clone(),
                    source,
                })?;
            let ranges = container.buffer_ranges(entry, &descriptor)?;
            data.push(ranges.iter().map(|range| part(file, range)).collect());
            listed.push(Listed {
                name: entry.name.clone().into(),
                descriptor: Ok(descriptor),
                note: None,
            });
        }
        Ok(Self {
            container,
            listed,
            data,
        })
    }
}

impl<'a> Source<'a> for HurraySource<'a> {
    fn metadata(&self) -> &[(String, Value)] {
        self.container.metadata()
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn tensors(&self) -> &[Listed] {
        &self.listed
    }

    fn read(&self, number: usize) -> Result<Vec<Bytes<'a>>, ConvertError> {
        let buffers = self.data.get(number).into_iter().flatten();
        Ok(buffers.map(|&bytes| Bytes::Borrowed(bytes)).collect())
    }
}

/// Bytes of a file that the container has found in it.
fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    bytes.get(start..end).unwrap_or_default()
}
