//! Element types: how one element is stored (`descriptor.md` § 5).

use std::fmt;

use crate::{PrivateTag, StorageWidth};

/// The storage type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE binary16.
    Float16,
    /// 1 sign, 8 exponent and 7 mantissa bits.
    Bfloat16,
    /// IEEE binary32.
    Float32,
    /// IEEE binary64.
    Float64,
    /// Two's complement, 8 bits.
    Int8,
    /// Unsigned, 8 bits.
    Uint8,
    /// Two's complement, 16 bits.
    Int16,
    /// Unsigned, 16 bits.
    Uint16,
    /// Two's complement, 32 bits.
    Int32,
    /// Unsigned, 32 bits.
    Uint32,
    /// Two's complement, 64 bits.
    Int64,
    /// Unsigned, 64 bits.
    Uint64,
    /// One bit, eight to a byte.
    Bool,
    /// Bias 7, no infinity, NaN `0x7F` and `0xFF`.
    Float8E4m3,
    /// Bias 15, with infinities and NaN.
    Float8E5m2,
    /// An unsigned power of two, `2^(bits − 127)`.
    Float8E8m0,
    /// Bias 1, no NaN or infinity, largest 6.
    Float4E2m1,
    /// Bias 1, no NaN or infinity, largest 7.5.
    Float6E2m3,
    /// Bias 3, no NaN or infinity, largest 28.
    Float6E3m2,
    /// IEEE binary128.
    Float128,
    /// Two's complement, −8 to 7.
    Int4,
    /// Unsigned, 0 to 15.
    Uint4,
    /// Two's complement, −2 to 1.
    Int2,
    /// Unsigned, 0 to 3.
    Uint2,
    /// Two float32: real, then imaginary.
    Complex64,
    /// Two float64: real, then imaginary.
    Complex128,
    /// A type that the descriptor's extension section describes.
    Private(PrivateTag),
}

/// What the format's table says of a named type.
struct Row {
    element_type: ElementType,
    tag: u8,
    name: &'static str,
    bits: u32,
    alignment: u32,
}

const fn row(
    element_type: ElementType,
    tag: u8,
    name: &'static str,
    bits: u32,
    alignment: u32,
) -> Row {
    Row {
        element_type,
        tag,
        name,
        bits,
        alignment,
    }
}

/// The table of `descriptor.md` § 5, in the order of the tags.
const NAMED: [Row; 26] = [
    row(ElementType::Float16, 0x01, "float16", 16, 2),
    row(ElementType::Bfloat16, 0x02, "bfloat16", 16, 2),
    row(ElementType::Float32, 0x03, "float32", 32, 4),
    row(ElementType::Float64, 0x04, "float64", 64, 8),
    row(ElementType::Int8, 0x10, "int8", 8, 1),
    row(ElementType::Uint8, 0x11, "uint8", 8, 1),
    row(ElementType::Int16, 0x12, "int16", 16, 2),
    row(ElementType::Uint16, 0x13, "uint16", 16, 2),
    row(ElementType::Int32, 0x14, "int32", 32, 4),
    row(ElementType::Uint32, 0x15, "uint32", 32, 4),
    row(ElementType::Int64, 0x16, "int64", 64, 8),
    row(ElementType::Uint64, 0x17, "uint64", 64, 8),
    row(ElementType::Bool, 0x20, "bool", 1, 1),
    row(ElementType::Float8E4m3, 0x40, "float8_e4m3", 8, 1),
    row(ElementType::Float8E5m2, 0x41, "float8_e5m2", 8, 1),
    row(ElementType::Float8E8m0, 0x42, "float8_e8m0", 8, 1),
    row(ElementType::Float4E2m1, 0x43, "float4_e2m1", 4, 1),
    row(ElementType::Float6E2m3, 0x44, "float6_e2m3", 6, 1),
    row(ElementType::Float6E3m2, 0x45, "float6_e3m2", 6, 1),
    row(ElementType::Float128, 0x46, "float128", 128, 16),
    row(ElementType::Int4, 0x48, "int4", 4, 1),
    row(ElementType::Uint4, 0x49, "uint4", 4, 1),
    row(ElementType::Int2, 0x4A, "int2", 2, 1),
    row(ElementType::Uint2, 0x4B, "uint2", 2, 1),
    row(ElementType::Complex64, 0x50, "complex64", 64, 4),
    row(ElementType::Complex128, 0x51, "complex128", 128, 8),
];

impl ElementType {
    /// The 26 named types in the order of their tags.
    pub fn named() -> impl ExactSizeIterator<Item = Self> {
        NAMED.iter().map(|row| row.element_type)
    }

    /// The type for a tag of the wire, private ones included; `None` for an invalid (R7), reserved (R8) or unassigned (R9) one.
    #[must_use]
    pub fn from_tag(tag: u8) -> Option<Self> {
        match PrivateTag::new(tag) {
            Some(tag) => Some(Self::Private(tag)),
            None => NAMED
                .iter()
                .find(|row| row.tag == tag)
                .map(|row| row.element_type),
        }
    }

    /// The type with this name; private types have none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        NAMED
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.element_type)
    }

    fn row(self) -> Option<&'static Row> {
        NAMED.iter().find(|row| row.element_type == self)
    }

    /// The byte on the wire.
    #[must_use]
    pub fn tag(self) -> u8 {
        match self {
            Self::Private(tag) => tag.get(),
            named => named.row().map_or(0, |row| row.tag),
        }
    }

    /// The width of one element; `None` for a private type, whose width the extension section states.
    #[must_use]
    pub fn storage_width(self) -> Option<StorageWidth> {
        self.row().and_then(|row| StorageWidth::from_bits(row.bits))
    }

    /// The alignment in bytes that one element wants; 1 for private types.
    #[must_use]
    pub fn element_alignment(self) -> u32 {
        self.row().map_or(1, |row| row.alignment)
    }

    /// 1 for the types that every reader must have, 2 for the others.
    #[must_use]
    pub fn tier(self) -> u8 {
        if self.tag() < 0x40 { 1 } else { 2 }
    }

    /// Whether this is a floating-point or complex type.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            Self::Float16
                | Self::Bfloat16
                | Self::Float32
                | Self::Float64
                | Self::Float8E4m3
                | Self::Float8E5m2
                | Self::Float8E8m0
                | Self::Float4E2m1
                | Self::Float6E2m3
                | Self::Float6E3m2
                | Self::Float128
                | Self::Complex64
                | Self::Complex128
        )
    }

    /// The values that an integer type stores, lowest and highest; `None` for every other type.
    #[must_use]
    pub const fn integer_range(self) -> Option<(i64, u64)> {
        Some(match self {
            Self::Int2 => (-2, 1),
            Self::Uint2 => (0, 3),
            Self::Int4 => (-8, 7),
            Self::Uint4 => (0, 15),
            Self::Int8 => (i8::MIN as i64, i8::MAX as u64),
            Self::Uint8 => (0, u8::MAX as u64),
            Self::Int16 => (i16::MIN as i64, i16::MAX as u64),
            Self::Uint16 => (0, u16::MAX as u64),
            Self::Int32 => (i32::MIN as i64, i32::MAX as u64),
            Self::Uint32 => (0, u32::MAX as u64),
            Self::Int64 => (i64::MIN, i64::MAX as u64),
            Self::Uint64 => (0, u64::MAX),
            _ => return None,
        })
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => f.pad(row.name),
            None => write!(f, "private_{:#04x}", self.tag()),
        }
    }
}
