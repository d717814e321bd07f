//! The header of a NumPy array (`numpy.lib.format`): a Python dictionary of three entries, read without evaluating anything.

use hurray_core::{ElementType, Layout, TensorDescriptor};
use thiserror::Error;

use super::refusal::Refusal;
use super::source::dense;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The bytes before the header's length.
const PREFIX: usize = 8;
/// More than any array of numbers needs; NumPy itself reads 10,000 unless told otherwise.
const MOST_HEADER: usize = 1 << 16;

/// The most bytes that [`parse`] looks at.
pub(crate) const MOST_BYTES: usize = PREFIX + 4 + MOST_HEADER;

/// Bytes that are no NumPy array.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NpyError {
    /// Other first bytes.
    #[error("it does not begin as a NumPy array does")]
    Magic,
    /// A version that is not known.
    #[error("version {major} of the array format is not known")]
    Version {
        /// The version.
        major: u8,
    },
    /// A header that is not all there, or longer than headers are.
    #[error("its header of {len} bytes is cut off, or longer than {MOST_HEADER}")]
    HeaderLength {
        /// The stated length.
        len: u64,
    },
    /// A header that is no dictionary of `descr`, `fortran_order` and `shape`.
    #[error("its header is malformed at byte {at}")]
    Header {
        /// The byte of the header's text.
        at: usize,
    },
    /// Other bytes than the header says.
    #[error("its header asks for {needed} bytes of data, and there are {found}")]
    DataLength {
        /// What type and shape take.
        needed: u64,
        /// What is there, as far as it was counted.
        found: u64,
    },
    /// More elements than can be.
    #[error("its shape has more bytes than 64 bits count")]
    Overflow,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NpyHeader {
    /// The first byte of the data.
    pub(crate) data_start: usize,
    /// Bytes of data.
    pub(crate) data_len: u64,
    pub(crate) descriptor: TensorDescriptor,
    /// Bytes of each number where the highest comes first.
    pub(crate) swapped: Option<usize>,
}

/// Reads the header at the start of `bytes`, which are all there are or at least [`MOST_BYTES`]; a type without counterpart is a refusal.
pub(crate) fn parse(bytes: &[u8]) -> Result<Result<NpyHeader, Refusal>, NpyError> {
    let Some(&[major, _minor]) = bytes
        .strip_prefix(MAGIC)
        .ok_or(NpyError::Magic)?
        .first_chunk::<2>()
    else {
        return Err(NpyError::Magic);
    };
    let rest = bytes.get(PREFIX..).unwrap_or_default();
    let (len, width) = match major {
        1 => (
            rest.first_chunk()
                .map(|&len| u16::from_le_bytes(len).into()),
            2,
        ),
        2 | 3 => (rest.first_chunk().map(|&len| u32::from_le_bytes(len)), 4),
        _ => return Err(NpyError::Version { major }),
    };
    let len = len.ok_or(NpyError::HeaderLength { len: 0 })? as usize;
    let start = PREFIX + width;
    let data_start = start.saturating_add(len);
    let text = bytes
        .get(start..data_start)
        .filter(|text| text.len() <= MOST_HEADER)
        .ok_or(NpyError::HeaderLength { len: len as u64 })?;
    let dictionary = match (Text { text, at: 0 }).dictionary()? {
        Ok(dictionary) => dictionary,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let refused = || {
        let foreign = dictionary.descr.to_owned();
        Ok(Err(Refusal::ForeignType { foreign }))
    };
    let Some((element_type, swapped)) = number_type(dictionary.descr) else {
        return refused();
    };
    let rank = dictionary.shape.len();
    let layout = if dictionary.is_column_major && rank > 1 {
        Layout::ColumnMajor
    } else {
        Layout::RowMajor
    };
    let size = if element_type == ElementType::Bool {
        ElementType::Uint8
    } else {
        element_type
    };
    let data_len = super::source::dense_size(size, &dictionary.shape).ok_or(NpyError::Overflow)?;
    let Some(descriptor) = dense(element_type, dictionary.shape, layout) else {
        return Err(NpyError::Overflow);
    };
    Ok(Ok(NpyHeader {
        data_start,
        data_len,
        descriptor,
        swapped,
    }))
}

/// The type that a type string names, and the bytes of a number where the highest comes first.
fn number_type(descr: &str) -> Option<(ElementType, Option<usize>)> {
    use ElementType::{
        Bool, Complex64, Complex128, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8,
        Uint16, Uint32, Uint64,
    };
    let mut chars = descr.chars();
    let order = chars.next()?;
    let (element_type, number) = match chars.as_str() {
        "b1" => (Bool, 1),
        "i1" => (Int8, 1),
        "u1" => (Uint8, 1),
        "i2" => (Int16, 2),
        "u2" => (Uint16, 2),
        "i4" => (Int32, 4),
        "u4" => (Uint32, 4),
        "i8" => (Int64, 8),
        "u8" => (Uint64, 8),
        "f2" => (Float16, 2),
        "f4" => (Float32, 4),
        "f8" => (Float64, 8),
        "c8" => (Complex64, 4),
        "c16" => (Complex128, 8),
        _ => return None,
    };
    match (order, number) {
        ('|' | '<' | '>', 1) | ('<', _) => Some((element_type, None)),
        ('>', _) => Some((element_type, Some(number))),
        _ => None,
    }
}

struct Dictionary<'a> {
    descr: &'a str,
    is_column_major: bool,
    shape: Vec<u64>,
}

/// The text of a header, and how far it has been read.
struct Text<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    /// All of the text.
    fn dictionary(mut self) -> Result<Result<Dictionary<'a>, Refusal>, NpyError> {
        let (mut descr, mut is_column_major, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.skip(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            match key {
                "descr" if descr.is_none() => {
                    if self.peek() == Some(b'[') {
                        let foreign = "of several fields".to_owned();
                        return Ok(Err(Refusal::ForeignType { foreign }));
                    }
                    descr = Some(self.string()?);
                }
                "fortran_order" if is_column_major.is_none() => {
                    is_column_major = Some(self.truth()?);
                }
                "shape" if shape.is_none() => shape = Some(self.shape()?),
                _ => return Err(self.malformed()),
            }
            if !self.skip(b',') && self.peek() != Some(b'}') {
                return Err(self.malformed());
            }
        }
        match (self.peek(), descr, is_column_major, shape) {
            (None, Some(descr), Some(is_column_major), Some(shape)) => Ok(Ok(Dictionary {
                descr,
                is_column_major,
                shape,
            })),
            _ => Err(self.malformed()),
        }
    }

    fn malformed(&self) -> NpyError {
        NpyError::Header { at: self.at }
    }

    /// The next character that is no space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let next = self.text.get(self.at).copied();
            if !next.is_some_and(|next| next.is_ascii_whitespace()) {
                return next;
            }
            self.at += 1;
        }
    }

    fn skip(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8) -> Result<(), NpyError> {
        if self.skip(wanted) {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().take_while(|&&byte| wanted(byte)).count();
        self.at += len;
        rest.get(..len)
            .and_then(|taken| str::from_utf8(taken).ok())
            .unwrap_or_default()
    }

    fn string(&mut self) -> Result<&'a str, NpyError> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.malformed()),
        };
        self.at += 1;
        let string = self.take_while(|byte| byte != quote && byte != b'\\' && byte.is_ascii());
        self.expect(quote)?;
        Ok(string)
    }

    fn truth(&mut self) -> Result<bool, NpyError> {
        self.peek();
        match self.take_while(|byte| byte.is_ascii_alphabetic()) {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(self.malformed()),
        }
    }

    fn shape(&mut self) -> Result<Vec<u64>, NpyError> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.skip(b')') {
            let digits = self.take_while(|byte| byte.is_ascii_digit());
            shape.push(digits.parse().map_err(|_| self.malformed())?);
            // Python 2 wrote its long integers so.
            self.skip(b'L');
            if !self.skip(b',') && self.peek() != Some(b')') {
                return Err(self.malformed());
            }
        }
        Ok(shape)
    }
}
