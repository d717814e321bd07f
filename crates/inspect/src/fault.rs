//! What is wrong with an input: which rule it breaks, and where.

use std::fmt;

use hurray_core::{CompositeError, Error};
use hurray_ffi::TensorError;
use hurray_io::{FileError, StreamError};
use serde::Serialize;

/// One thing that is wrong.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fault {
    /// The rules of the format reference that do not hold: the file's or stream's, and under it the descriptor's.
    pub(crate) rules: Vec<&'static str>,
    /// The first byte of what is wrong, from the start of the input.
    pub(crate) offset: Option<u64>,
    /// The tensor that it is wrong with.
    pub(crate) tensor: Option<String>,
    /// What is wrong.
    pub(crate) message: String,
}

impl Fault {
    /// What a descriptor or its tensor's bytes break.
    pub(crate) fn new(error: &Error, tensor: Option<&str>, offset: u64) -> Self {
        Self {
            rules: rules("", error.rule()),
            offset: Some(offset),
            tensor: tensor.map(str::to_owned),
            message: error.to_string(),
        }
    }

    /// What a file breaks.
    pub(crate) fn of_file(error: &FileError, offset: Option<u64>) -> Self {
        let inner = match error {
            FileError::Composite { source, .. } => source.rule(),
            _ => error_in_file(error).map_or("", Error::rule),
        };
        Self {
            rules: rules(error.rule(), inner),
            offset,
            tensor: tensor_of(error).map(str::to_owned),
            message: error.to_string(),
        }
    }

    /// What a stream breaks.
    pub(crate) fn of_stream(error: &StreamError, tensor: Option<&str>, offset: u64) -> Self {
        let inner = match error {
            StreamError::Descriptor(error) => error.rule(),
            _ => "",
        };
        Self {
            rules: rules(error.rule(), inner),
            offset: Some(offset),
            tensor: tensor.map(str::to_owned),
            message: error.to_string(),
        }
    }
}

/// `FC22, R16 at byte 132 (0x84): …`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rules.join(", "))?;
        if let Some(offset) = self.offset {
            let space = if self.rules.is_empty() { "" } else { " " };
            write!(f, "{space}at byte {offset} ({offset:#x})")?;
        }
        if !self.rules.is_empty() || self.offset.is_some() {
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}

fn rules(outer: &'static str, inner: &'static str) -> Vec<&'static str> {
    let rules = [outer, inner].into_iter();
    rules.filter(|rule| !rule.is_empty()).collect()
}

/// The error of a descriptor in a file's.
pub(crate) fn error_in_file(error: &FileError) -> Option<&Error> {
    match error {
        FileError::Descriptor { source, .. }
        | FileError::Tensor {
            source: TensorError::Descriptor(source),
            ..
        } => Some(source),
        _ => None,
    }
}

/// The item of a composite, from its outermost head on, that an error is about.
pub(crate) fn item_of(error: &CompositeError) -> usize {
    use CompositeError as E;
    match *error {
        E::NoShard { item }
        | E::ParentShape { item, .. }
        | E::OutsideHead { item, .. }
        | E::MemberType { item, .. }
        | E::MemberSection { item }
        | E::NoMemberSection { item }
        | E::HeadInOverlay { item }
        | E::NoBase { item }
        | E::SecondBase { item }
        | E::BaseSpan { item, .. }
        | E::Depth { item, .. } => item,
        E::Overlap { second, .. } => second,
        E::Torn { head, .. }
        | E::Gap { head, .. }
        | E::EmptyOverlay { head }
        | E::DynamicHead { head, .. } => head,
        _ => 0,
    }
}

/// The tensor that a file's error is about.
pub(crate) fn tensor_of(error: &FileError) -> Option<&str> {
    match error {
        FileError::DuplicateName { name }
        | FileError::DescriptorRange { name, .. }
        | FileError::Descriptor { name, .. }
        | FileError::DescriptorLength { name, .. }
        | FileError::DataRange { name, .. }
        | FileError::Composite { name, .. }
        | FileError::DescriptorOffset { name, .. }
        | FileError::DataOffset { name, .. }
        | FileError::DataLength { name, .. }
        | FileError::EntryFlags { name, .. }
        | FileError::Unsorted { name, .. }
        | FileError::Tensor { name, .. } => Some(name),
        _ => None,
    }
}
