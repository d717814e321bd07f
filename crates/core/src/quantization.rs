//! The quantization section: the scheme by which stored codes stand for real values (`quantization.md`).

use smallvec::SmallVec;

use crate::QuantizationError;

/// The section's bytes as they are on the wire.
///
/// They are relayed unread: private, unknown and malformed schemes survive a decode and an encode (S18). [`scheme`](Self::scheme) reads them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuantizationSection {
    payload: SmallVec<[u8; 24]>,
}

impl QuantizationSection {
    /// A section of these bytes, unread.
    #[must_use]
    pub fn from_bytes(payload: &[u8]) -> Self {
        Self {
            payload: SmallVec::from_slice(payload),
        }
    }

    /// The bytes of the section.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.payload
    }

    /// Reads the scheme.
    ///
    /// # Errors
    /// Q1–Q14, in the order of `quantization.md` § 10.
    pub fn scheme(&self) -> Result<QuantizationScheme, QuantizationError> {
        QuantizationScheme::decode(&self.payload)
    }
}

/// A scheme that this format version defines. Buffer indices name rows of the descriptor's buffer table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QuantizationScheme {
    /// One scale and zero point for the tensor, in the section itself. Tag `0x01`.
    TensorAffine(TensorAffine),
    /// A scale, and maybe a zero point, per index of an axis. Tag `0x02`.
    ChannelAffine(ChannelAffine),
    /// A scale, and maybe a zero point, per block along an axis. Tag `0x03`.
    BlockAffine(BlockAffine),
    /// NormalFloat4 codes with a scale per block. Tag `0x04`.
    Nf4(Nf4),
    /// Microscaling codes with a power-of-two scale per block. Tag `0x05`.
    Mxfp(Mxfp),
}

/// Per-tensor affine: `x = scale · (q − zero_point)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorAffine {
    /// Finite and not zero.
    pub scale: f32,
    /// The code that stands for zero.
    pub zero_point: i32,
}

/// Per-channel affine; scales are float32, zero points int32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelAffine {
    /// The dimension whose indices each have a scale.
    pub axis: u32,
    /// The row of the scales.
    pub scale_buffer: u32,
    /// The row of the zero points; `None` is symmetric.
    pub zero_point_buffer: Option<u32>,
}

/// The element type of a per-block scheme's scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleType {
    /// IEEE binary16.
    Float16,
    /// 1 sign, 8 exponent and 7 mantissa bits.
    Bfloat16,
    /// IEEE binary32.
    Float32,
}

/// Per-block affine; zero points are int32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockAffine {
    /// The dimension that is cut into blocks.
    pub axis: u32,
    /// Elements of a block, a power of two from 2 to 2^31.
    pub block_size: u32,
    /// The row of the scales.
    pub scale_buffer: u32,
    /// The row of the zero points; `None` is symmetric.
    pub zero_point_buffer: Option<u32>,
    /// The type of the scales.
    pub scale_type: ScaleType,
}

/// NF4: `x = absmax · level[q]`, scales are float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nf4 {
    /// The dimension that is cut into blocks.
    pub axis: u32,
    /// Elements of a block, a power of two from 8 to 2^31.
    pub block_size: u32,
    /// The row of the scales.
    pub scale_buffer: u32,
}

/// MXFP: `x = 2^(e − 127) · v(q)`, one scale byte per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mxfp {
    /// The dimension that is cut into blocks.
    pub axis: u32,
    /// Elements of a block, a power of two from 16 to 2048.
    pub block_size: u32,
    /// The row of the scales.
    pub scale_buffer: u32,
}

impl QuantizationScheme {
    /// Reads a section's bytes; bytes past the scheme's own are ignored.
    ///
    /// # Errors
    /// Q1–Q14, in the order of `quantization.md` § 10.
    pub fn decode(payload: &[u8]) -> Result<Self, QuantizationError> {
        let _ = payload;
        Err(QuantizationError::NoScaleBuffer)
    }

    /// The section that states this scheme, at its fixed length, scheme version 1.
    #[must_use]
    pub fn encode(&self) -> QuantizationSection {
        QuantizationSection {
            payload: SmallVec::new(),
        }
    }
}
