//! What every input looks like: named tensors, listed first and read one at a time.

use std::borrow::Cow;
use std::ops::Deref;

use hurray_core::{ElementType, Layout, Shape, TensorDescriptor, element_count};
use hurray_io::{FileMap, Value, stored_row};

use super::ConvertError;
use super::refusal::Refusal;

/// An input of lifetime `'a`, which is that of its map.
pub(crate) trait Source<'a> {
    /// Keys and values, in the order in which they are written.
    fn metadata(&self) -> &[(String, Value)];

    /// What was left out or changed on the way in, other than of a tensor.
    fn notes(&self) -> &[String];

    /// The tensors, in the order in which they lie.
    fn tensors(&self) -> &[Listed];

    /// The bytes of a listed tensor's buffers, each as many as its row says.
    fn read(&self, number: usize) -> Result<Vec<Bytes<'a>>, ConvertError>;
}

/// A tensor before it is read.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// What it is, or why it cannot be taken over.
    pub(crate) descriptor: Result<TensorDescriptor, Refusal>,
    /// What is changed on the way in, or could have been and is not.
    pub(crate) note: Option<Cow<'static, str>>,
}

/// The bytes of a buffer.
#[derive(Debug)]
pub(crate) enum Bytes<'a> {
    /// Where they lie in the input.
    Borrowed(&'a [u8]),
    /// Made for the format.
    Owned(Vec<u8>),
    /// Unpacked into a file that has no name: the file from this byte on.
    Unpacked(FileMap, usize),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Unpacked(map, start) => map.get(*start..).unwrap_or_default(),
        }
    }
}

/// `len` zero bytes, for a length that follows from bytes that are there.
pub(crate) fn zeroed(len: usize) -> Result<Vec<u8>, ConvertError> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(len)
        .map_err(|_| ConvertError::Memory { bytes: len })?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// The bytes of a dense tensor without gaps; `None` where they do not fit 64 bits, or the type's width is not known.
pub(crate) fn dense_size(element_type: ElementType, shape: &[u64]) -> Option<u64> {
    element_type
        .storage_width()?
        .byte_size(element_count(shape)?)
}

/// A dense tensor without gaps; `None` as [`dense_size`].
pub(crate) fn dense(
    element_type: ElementType,
    shape: impl Into<Shape>,
    layout: Layout,
) -> Option<TensorDescriptor> {
    let shape = shape.into();
    let byte_size = dense_size(element_type, &shape)?;
    Some(TensorDescriptor::new(
        element_type,
        shape,
        layout,
        [stored_row(byte_size)],
    ))
}
