//! GGUF files, as ggml's public description of the format has them (`docs/gguf.md` there), and the block types whose values the format's
//! quantization schemes have.

use std::collections::HashSet;

use hurray_core::{ElementType, Layout};
use hurray_io::{Array, Value};
use thiserror::Error;

use super::ConvertError;
use super::ggml_blocks::{self, BlockType};
use super::refusal::Refusal;
use super::source::{Bytes, Listed, Source, dense, zeroed};

/// The types that are taken over, in the order of their numbers.
pub(crate) const SUPPORTED: &str =
    "F32 F16 Q4_0 Q5_0 Q8_0 Q3_K Q6_K IQ4_NL IQ4_XS I8 I16 I32 I64 F64 BF16 MXFP4";

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const ALIGNMENT_KEY: &str = "general.alignment";
/// The most dimensions that ggml has.
const MOST_DIMENSIONS: u32 = 4;

/// Bytes that are no GGUF file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Other first bytes.
    #[error("the file does not begin with GGUF")]
    Magic,
    /// Numbers with the highest byte first.
    #[error("the file is big-endian, which is not read")]
    BigEndian,
    /// A version that is not known.
    #[error("GGUF version {version} is not known; 2 and 3 are")]
    Version {
        /// The version.
        version: u32,
    },
    /// The end of the file, in the midst of something.
    #[error("the file ends inside {what} at byte {at}")]
    Truncated {
        /// What was read.
        what: &'static str,
        /// Where reading stopped.
        at: usize,
    },
    /// A key, a name or a string that is not UTF-8.
    #[error("the string at byte {at} is not UTF-8")]
    Utf8 {
        /// Where it begins.
        at: usize,
    },
    /// A value type that is not known.
    #[error("value type {tag} of {key:?} is not known")]
    ValueType {
        /// The key.
        key: String,
        /// The type.
        tag: u32,
    },
    /// A boolean other than 0 and 1.
    #[error("{key:?} has a boolean of {byte}")]
    Bool {
        /// The key.
        key: String,
        /// Its byte.
        byte: u8,
    },
    /// A key or a name twice.
    #[error("{name:?} is there twice")]
    Duplicate {
        /// The key or the name.
        name: String,
    },
    /// An alignment that is no power of two.
    #[error("its alignment is {alignment}, which is no power of two")]
    Alignment {
        /// The alignment.
        alignment: u64,
    },
    /// More dimensions than there can be.
    #[error("{name:?} has {rank} dimensions, and 4 are the most")]
    Rank {
        /// The tensor's name.
        name: String,
        /// Its dimensions.
        rank: u32,
    },
    /// Rows that are no whole blocks.
    #[error("{name:?} has rows of {len} elements, and its blocks have {block}")]
    PartialBlock {
        /// The tensor's name.
        name: String,
        /// Elements of a row.
        len: u64,
        /// Elements of a block.
        block: u64,
    },
    /// A size that does not fit 64 bits.
    #[error("{name:?} has more bytes than 64 bits count")]
    Overflow {
        /// The tensor's name.
        name: String,
    },
    /// An offset off the alignment.
    #[error("{name:?} is at offset {offset}, no multiple of {alignment}")]
    Misaligned {
        /// The tensor's name.
        name: String,
        /// Where it begins, from the first byte of data.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// Bytes past the end of the file.
    #[error("{name:?} has {len} bytes from offset {offset} of the data, and the data has {bytes}")]
    DataRange {
        /// The tensor's name.
        name: String,
        /// Where it begins, from the first byte of data.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// Bytes of data.
        bytes: u64,
    },
    /// Two tensors over the same bytes.
    #[error("{name:?} lies over the tensor before it")]
    Overlap {
        /// The tensor's name.
        name: String,
    },
    /// A scale byte that ggml and the format read differently.
    #[error("{name:?} has a block whose scale byte is 255, which is no number in the format")]
    ScaleByte {
        /// The tensor's name.
        name: String,
    },
}

/// A GGUF file.
#[derive(Debug)]
pub(crate) struct GgufSource<'a> {
    metadata: Vec<(String, Value)>,
    notes: Vec<String>,
    listed: Vec<Listed>,
    /// How each listed tensor is stored, and its bytes.
    data: Vec<(Stored, &'a [u8])>,
}

#[derive(Clone, Copy, Debug)]
enum Stored {
    Plain,
    Blocks(&'static BlockType),
    Refused,
}

/// A tensor's entry in the header.
struct Info {
    name: String,
    /// Dimension 0 varies fastest.
    dimensions: Vec<u64>,
    number: u32,
    offset: u64,
}

impl<'a> GgufSource<'a> {
    pub(crate) fn open(file: &'a [u8]) -> Result<Self, GgufError> {
        let mut reader = Reader { file, at: 0 };
        if reader.take(4, "the magic")? != MAGIC {
            return Err(GgufError::Magic);
        }
        match reader.u32("the version")? {
            2 | 3 => {}
            version if (1..=0xFFFF).contains(&version.swap_bytes()) => {
                return Err(GgufError::BigEndian);
            }
            version => return Err(GgufError::Version { version }),
        }
        let tensors = reader.u64("the number of tensors")?;
        let pairs = reader.u64("the number of keys")?;
        let mut source = Self {
            metadata: Vec::new(),
            notes: Vec::new(),
            listed: Vec::new(),
            data: Vec::new(),
        };
        source.read_metadata(&mut reader, pairs)?;
        let alignment = match source.metadata.iter().find(|pair| pair.0 == ALIGNMENT_KEY) {
            None => DEFAULT_ALIGNMENT,
            Some((_, Value::Int64(alignment))) => alignment.unsigned_abs(),
            Some((_, Value::Uint64(alignment))) => *alignment,
            Some(_) => 0,
        };
        if !alignment.is_power_of_two() {
            return Err(GgufError::Alignment { alignment });
        }
        let mut infos = Vec::new();
        let mut names = HashSet::new();
        for _ in 0..tensors {
            let info = reader.info()?;
            if !names.insert(info.name.clone()) {
                return Err(GgufError::Duplicate { name: info.name });
            }
            infos.push(info);
        }
        let data = (reader.at as u64)
            .checked_next_multiple_of(alignment)
            .and_then(|start| file.get(usize::try_from(start).ok()?..))
            .unwrap_or_default();
        // In the order in which they lie, so that the input is read front to back.
        infos.sort_by_key(|info| info.offset);
        let mut end = 0;
        for info in infos {
            end = source.list(info, data, alignment, end)?;
        }
        Ok(source)
    }

    fn read_metadata(&mut self, reader: &mut Reader<'_>, pairs: u64) -> Result<(), GgufError> {
        let mut keys = HashSet::new();
        for _ in 0..pairs {
            let key = reader.string("a key")?;
            let value = reader.value(&key)?;
            if !keys.insert(key.clone()) {
                return Err(GgufError::Duplicate { name: key });
            }
            match value {
                Ok(value) => self.metadata.push((key, value)),
                Err(reason) => self
                    .notes
                    .push(format!("metadata {key:?} is left out: {reason}")),
            }
        }
        Ok(())
    }

    /// Lists a tensor that begins at `least` of `data` or later, and gives the end of it.
    fn list(
        &mut self,
        info: Info,
        data: &'a [u8],
        alignment: u64,
        least: u64,
    ) -> Result<u64, GgufError> {
        let Info {
            name,
            dimensions,
            number,
            offset,
        } = info;
        if !offset.is_multiple_of(alignment) {
            return Err(GgufError::Misaligned {
                name,
                offset,
                alignment,
            });
        }
        let row = dimensions.first().copied().unwrap_or(1);
        let shape: Vec<u64> = dimensions.into_iter().rev().collect();
        let (stored, descriptor) = if let Some(element_type) = plain_type(number) {
            (Stored::Plain, dense(element_type, shape, Layout::RowMajor))
        } else if let Some(block_type) = ggml_blocks::block_type(number) {
            let block = block_type.elements as u64;
            if !row.is_multiple_of(block) {
                let len = row;
                return Err(GgufError::PartialBlock { name, len, block });
            }
            (Stored::Blocks(block_type), block_type.descriptor(&shape))
        } else {
            let ggml = ggml_blocks::type_name(number);
            self.listed.push(Listed {
                name,
                descriptor: Err(Refusal::GgmlType { ggml }),
                note: None,
            });
            self.data.push((Stored::Refused, &[]));
            // How many bytes such a tensor has is not known.
            return Ok(least);
        };
        let Some(descriptor) = descriptor else {
            return Err(GgufError::Overflow { name });
        };
        let len = match stored {
            Stored::Blocks(block_type) => block_type.stored_bytes(&descriptor.shape),
            _ => descriptor.buffers.first().map(|row| row.byte_size),
        };
        let Some((len, end)) = len.and_then(|len| Some((len, offset.checked_add(len)?))) else {
            return Err(GgufError::Overflow { name });
        };
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let Some(bytes) = range.and_then(|(start, end)| data.get(start..end)) else {
            return Err(GgufError::DataRange {
                name,
                offset,
                len,
                bytes: data.len() as u64,
            });
        };
        if len > 0 && offset < least {
            return Err(GgufError::Overlap { name });
        }
        self.listed.push(Listed {
            name,
            descriptor: Ok(descriptor),
            note: match stored {
                Stored::Blocks(block_type) => Some(block_type.note.into()),
                _ => None,
            },
        });
        self.data.push((stored, bytes));
        Ok(end.max(least))
    }
}

impl<'a> Source<'a> for GgufSource<'a> {
    fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tensors(&self) -> &[Listed] {
        &self.listed
    }

    fn read(&self, number: usize) -> Result<Vec<Bytes<'a>>, ConvertError> {
        let (Some(&(stored, bytes)), Some(listed)) =
            (self.data.get(number), self.listed.get(number))
        else {
            return Ok(Vec::new());
        };
        match stored {
            Stored::Plain => Ok(vec![Bytes::Borrowed(bytes)]),
            Stored::Refused => Ok(Vec::new()),
            Stored::Blocks(block_type) => {
                let (code_len, scale_len) = block_type.split_len(bytes.len());
                let (mut codes, mut scales) = (zeroed(code_len)?, zeroed(scale_len)?);
                block_type
                    .split(bytes, &mut codes, &mut scales)
                    .map_err(|_| GgufError::ScaleByte {
                        name: listed.name.clone(),
                    })?;
                Ok(vec![Bytes::Owned(codes), Bytes::Owned(scales)])
            }
        }
    }
}

/// The element type that ggml stores as the format does.
fn plain_type(number: u32) -> Option<ElementType> {
    Some(match number {
        0 => ElementType::Float32,
        1 => ElementType::Float16,
        24 => ElementType::Int8,
        25 => ElementType::Int16,
        26 => ElementType::Int32,
        27 => ElementType::Int64,
        28 => ElementType::Float64,
        30 => ElementType::Bfloat16,
        _ => return None,
    })
}

/// A header, and how far it has been read. Counts are claims: nothing is allocated for one before its bytes are read.
struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

/// A value, or why the format cannot hold it.
type Held = Result<Value, &'static str>;

impl<'a> Reader<'a> {
    fn take(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], GgufError> {
        let at = self.at;
        let bytes = usize::try_from(len)
            .ok()
            .and_then(|len| self.file.get(at..)?.get(..len))
            .ok_or(GgufError::Truncated { what, at })?;
        self.at = at.saturating_add(bytes.len());
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let at = self.at;
        let bytes = self.take(N as u64, what)?.first_chunk().copied();
        bytes.ok_or(GgufError::Truncated { what, at })
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn string(&mut self, what: &'static str) -> Result<String, GgufError> {
        let len = self.u64(what)?;
        let at = self.at;
        let bytes = self.take(len, what)?;
        let string = str::from_utf8(bytes).map_err(|_| GgufError::Utf8 { at })?;
        Ok(string.to_owned())
    }

    fn bool(&mut self, key: &str) -> Result<bool, GgufError> {
        match self.array::<1>("a value")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => {
                let key = key.to_owned();
                Err(GgufError::Bool { key, byte })
            }
        }
    }

    fn value(&mut self, key: &str) -> Result<Held, GgufError> {
        let what = "a value";
        let tag = self.u32(what)?;
        Ok(Ok(match tag {
            0 => Value::Int64(u8::from_le_bytes(self.array(what)?).into()),
            1 => Value::Int64(i8::from_le_bytes(self.array(what)?).into()),
            2 => Value::Int64(u16::from_le_bytes(self.array(what)?).into()),
            3 => Value::Int64(i16::from_le_bytes(self.array(what)?).into()),
            4 => Value::Int64(self.u32(what)?.into()),
            5 => Value::Int64(i32::from_le_bytes(self.array(what)?).into()),
            6 => Value::Float64(f32::from_le_bytes(self.array(what)?).into()),
            7 => Value::Bool(self.bool(key)?),
            8 => Value::String(self.string(what)?),
            9 => return self.values(key),
            10 => Value::Uint64(self.u64(what)?),
            11 => Value::Int64(i64::from_le_bytes(self.array(what)?)),
            12 => Value::Float64(f64::from_le_bytes(self.array(what)?)),
            tag => {
                let key = key.to_owned();
                return Err(GgufError::ValueType { key, tag });
            }
        }))
    }

    /// An array's element type, count and elements.
    fn values(&mut self, key: &str) -> Result<Held, GgufError> {
        let what = "an array";
        let tag = self.u32(what)?;
        let count = self.u64(what)?;
        let int64 = Array::Int64;
        let array = match tag {
            0 => return Ok(Ok(Value::Bytes(self.take(count, what)?.to_vec()))),
            1 => int64(self.numbers(count, |n| i8::from_le_bytes(n).into())?),
            2 => int64(self.numbers(count, |n| u16::from_le_bytes(n).into())?),
            3 => int64(self.numbers(count, |n| i16::from_le_bytes(n).into())?),
            4 => int64(self.numbers(count, |n| u32::from_le_bytes(n).into())?),
            5 => int64(self.numbers(count, |n| i32::from_le_bytes(n).into())?),
            6 => Array::Float64(self.numbers(count, |n| f32::from_le_bytes(n).into())?),
            7 => {
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.bool(key)?);
                }
                Array::Bool(values)
            }
            8 => {
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.string(what)?);
                }
                Array::String(values)
            }
            9 => {
                self.skip_arrays(key, count)?;
                return Ok(Err("an array of arrays, which the format has not"));
            }
            10 => Array::Uint64(self.numbers(count, u64::from_le_bytes)?),
            11 => int64(self.numbers(count, i64::from_le_bytes)?),
            12 => Array::Float64(self.numbers(count, f64::from_le_bytes)?),
            tag => {
                let key = key.to_owned();
                return Err(GgufError::ValueType { key, tag });
            }
        };
        Ok(if array.is_empty() {
            Err("an empty array, which the format does not write")
        } else {
            Ok(Value::Array(array))
        })
    }

    fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        number: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        let len = count.saturating_mul(N as u64);
        let bytes = self.take(len, "an array")?;
        Ok(bytes.as_chunks().0.iter().map(|&n| number(n)).collect())
    }

    /// Steps over `count` arrays. Arrays in them are counted with them, so that depth costs nothing.
    fn skip_arrays(&mut self, key: &str, mut count: u64) -> Result<(), GgufError> {
        let what = "an array";
        while count > 0 {
            count = count.saturating_sub(1);
            let tag = self.u32(what)?;
            let inner = self.u64(what)?;
            let width = match tag {
                0 | 1 | 7 => 1,
                2 | 3 => 2,
                4..=6 => 4,
                10..=12 => 8,
                8 => {
                    for _ in 0..inner {
                        let len = self.u64(what)?;
                        self.take(len, what)?;
                    }
                    continue;
                }
                9 => {
                    count = count.saturating_add(inner);
                    continue;
                }
                tag => {
                    let key = key.to_owned();
                    return Err(GgufError::ValueType { key, tag });
                }
            };
            self.take(inner.saturating_mul(width), what)?;
        }
        Ok(())
    }

    fn info(&mut self) -> Result<Info, GgufError> {
        let what = "a tensor's entry";
        let name = self.string(what)?;
        let rank = self.u32(what)?;
        if rank > MOST_DIMENSIONS {
            return Err(GgufError::Rank { name, rank });
        }
        let mut dimensions = Vec::new();
        for _ in 0..rank {
            dimensions.push(self.u64(what)?);
        }
        Ok(Info {
            name,
            dimensions,
            number: self.u32(what)?,
            offset: self.u64(what)?,
        })
    }
}
