//! The metadata section of a file: keys and values in the writer's order (`file.md` § 4).

use std::collections::HashSet;

use crate::FileError;
use crate::cursor::Cursor;
use crate::file_error::Section;

/// A metadata value. Floats may be any bit pattern.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Text.
    String(String),
    /// A signed integer.
    Int64(i64),
    /// An unsigned integer.
    Uint64(u64),
    /// A float.
    Float64(f64),
    /// A boolean.
    Bool(bool),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Values of one type.
    Array(Array),
}

/// Values of one type. Readers accept an empty array, writers refuse it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Array {
    /// Texts.
    String(Vec<String>),
    /// Signed integers.
    Int64(Vec<i64>),
    /// Unsigned integers.
    Uint64(Vec<u64>),
    /// Floats.
    Float64(Vec<f64>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Byte strings.
    Bytes(Vec<Vec<u8>>),
}

const STRING: u8 = 1;
const INT64: u8 = 2;
const UINT64: u8 = 3;
const FLOAT64: u8 = 4;
const BOOL: u8 = 5;
const BYTES: u8 = 6;
const ARRAY: u8 = 7;

impl Array {
    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::String(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::Uint64(values) => values.len(),
            Self::Float64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }
}

/// Reads the section.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<(String, Value)>, FileError> {
    let mut cursor = Cursor { rest: bytes };
    let truncated = |entry| FileError::MetadataTruncated { entry };
    let count = cursor.u32().ok_or(truncated(0))?;
    let mut keys = HashSet::new();
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for entry in 0..count {
        let mut reader = ValueReader {
            entry,
            cursor: &mut cursor,
        };
        let len = reader.cursor.u16().ok_or(truncated(entry))?;
        let key = reader.cursor.take(len.into()).ok_or(truncated(entry))?;
        if key.is_empty() {
            return Err(FileError::EmptyKey { entry });
        }
        let Ok(key) = str::from_utf8(key) else {
            return Err(FileError::KeyUtf8 { entry });
        };
        if !keys.insert(key) {
            return Err(FileError::DuplicateKey { key: key.into() });
        }
        let value = reader.value()?;
        pairs.push((key.to_owned(), value));
    }
    match cursor.rest.len() {
        0 => Ok(pairs),
        bytes => Err(FileError::Trailing {
            section: Section::Metadata,
            bytes,
        }),
    }
}

struct ValueReader<'c, 'a> {
    entry: u32,
    cursor: &'c mut Cursor<'a>,
}

impl<'a> ValueReader<'_, 'a> {
    fn value(&mut self) -> Result<Value, FileError> {
        Ok(match self.whole(Cursor::u8)? {
            STRING => Value::String(self.string()?),
            INT64 => Value::Int64(self.int64()?),
            UINT64 => Value::Uint64(self.whole(Cursor::u64)?),
            FLOAT64 => Value::Float64(self.float64()?),
            BOOL => Value::Bool(self.bool()?),
            BYTES => Value::Bytes(self.bytes()?),
            ARRAY => Value::Array(self.array()?),
            tag => {
                return Err(FileError::ValueTag {
                    entry: self.entry,
                    tag,
                });
            }
        })
    }

    fn array(&mut self) -> Result<Array, FileError> {
        Ok(match self.whole(Cursor::u8)? {
            STRING => Array::String(self.values(4, Self::string)?),
            INT64 => Array::Int64(self.values(8, Self::int64)?),
            UINT64 => Array::Uint64(self.values(8, |reader| reader.whole(Cursor::u64))?),
            FLOAT64 => Array::Float64(self.values(8, Self::float64)?),
            BOOL => Array::Bool(self.values(1, Self::bool)?),
            BYTES => Array::Bytes(self.values(4, Self::bytes)?),
            tag => {
                return Err(FileError::ValueTag {
                    entry: self.entry,
                    tag,
                });
            }
        })
    }

    /// A count and as many values of at least `least` bytes, for which memory is taken once the bytes are known to be there.
    fn values<T>(
        &mut self,
        least: usize,
        value: impl Fn(&mut Self) -> Result<T, FileError>,
    ) -> Result<Vec<T>, FileError> {
        let count = self.whole(Cursor::u32)? as usize;
        if count.saturating_mul(least) > self.cursor.rest.len() {
            return Err(FileError::MetadataTruncated { entry: self.entry });
        }
        (0..count).map(|_| value(self)).collect()
    }

    fn whole<T>(
        &mut self,
        read: impl FnOnce(&mut Cursor<'a>) -> Option<T>,
    ) -> Result<T, FileError> {
        let entry = self.entry;
        read(self.cursor).ok_or(FileError::MetadataTruncated { entry })
    }

    fn string(&mut self) -> Result<String, FileError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|_| FileError::StringUtf8 { entry: self.entry })
    }

    fn int64(&mut self) -> Result<i64, FileError> {
        self.whole(Cursor::array).map(i64::from_le_bytes)
    }

    fn float64(&mut self) -> Result<f64, FileError> {
        self.whole(Cursor::array).map(f64::from_le_bytes)
    }

    fn bool(&mut self) -> Result<bool, FileError> {
        match self.whole(Cursor::u8)? {
            0 => Ok(false),
            1 => Ok(true),
            byte => Err(FileError::BoolByte {
                entry: self.entry,
                byte,
            }),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, FileError> {
        self.whole(Cursor::sized).map(<[u8]>::to_vec)
    }
}

/// Writes the section.
pub(crate) fn encode(pairs: &[(String, Value)]) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    bytes.extend(length(pairs.len())?);
    let mut keys = HashSet::new();
    for (key, value) in pairs {
        let Some(len) = u16::try_from(key.len()).ok().filter(|&len| len > 0) else {
            return Err(FileError::KeyLength { len: key.len() });
        };
        if !keys.insert(key) {
            return Err(FileError::DuplicateKey { key: key.clone() });
        }
        bytes.extend(len.to_le_bytes());
        bytes.extend(key.as_bytes());
        encode_value(key, value, &mut bytes)?;
    }
    match u32::try_from(bytes.len()) {
        Ok(_) => Ok(bytes),
        Err(_) => Err(FileError::MetadataLength { len: bytes.len() }),
    }
}

fn length(len: usize) -> Result<[u8; 4], FileError> {
    match u32::try_from(len) {
        Ok(len) => Ok(len.to_le_bytes()),
        Err(_) => Err(FileError::MetadataLength { len }),
    }
}

fn encode_value(key: &str, value: &Value, bytes: &mut Vec<u8>) -> Result<(), FileError> {
    match value {
        Value::String(value) => encode_sized(Some(STRING), value.as_bytes(), bytes)?,
        Value::Int64(value) => encode_number(INT64, value.to_le_bytes(), bytes),
        Value::Uint64(value) => encode_number(UINT64, value.to_le_bytes(), bytes),
        Value::Float64(value) => encode_number(FLOAT64, value.to_le_bytes(), bytes),
        Value::Bool(value) => encode_number(BOOL, [u8::from(*value)], bytes),
        Value::Bytes(value) => encode_sized(Some(BYTES), value, bytes)?,
        Value::Array(array) if array.is_empty() => {
            return Err(FileError::EmptyArray { key: key.into() });
        }
        Value::Array(array) => encode_array(array, bytes)?,
    }
    Ok(())
}

fn encode_array(array: &Array, bytes: &mut Vec<u8>) -> Result<(), FileError> {
    let tag = match array {
        Array::String(_) => STRING,
        Array::Int64(_) => INT64,
        Array::Uint64(_) => UINT64,
        Array::Float64(_) => FLOAT64,
        Array::Bool(_) => BOOL,
        Array::Bytes(_) => BYTES,
    };
    bytes.extend([ARRAY, tag]);
    bytes.extend(length(array.len())?);
    match array {
        Array::String(values) => {
            for value in values {
                encode_sized(None, value.as_bytes(), bytes)?;
            }
        }
        Array::Int64(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::Uint64(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::Float64(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        Array::Bool(values) => bytes.extend(values.iter().map(|&value| u8::from(value))),
        Array::Bytes(values) => {
            for value in values {
                encode_sized(None, value, bytes)?;
            }
        }
    }
    Ok(())
}

fn encode_number<const N: usize>(tag: u8, number: [u8; N], bytes: &mut Vec<u8>) {
    bytes.push(tag);
    bytes.extend(number);
}

fn encode_sized(tag: Option<u8>, value: &[u8], bytes: &mut Vec<u8>) -> Result<(), FileError> {
    bytes.extend(tag);
    bytes.extend(length(value.len())?);
    bytes.extend(value);
    Ok(())
}
