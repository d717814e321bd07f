//! The quantization section: the scheme by which stored codes stand for real values (`quantization.md`).

mod fit;

use std::fmt;

use smallvec::SmallVec;

use crate::QuantizationError;

pub(crate) use fit::is_code;

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

const TENSOR_AFFINE: u8 = 0x01;
const CHANNEL_AFFINE: u8 = 0x02;
const BLOCK_AFFINE: u8 = 0x03;
const NF4: u8 = 0x04;
const MXFP: u8 = 0x05;

const SCHEME_VERSION: u8 = 1;
const SYMMETRIC: u16 = 1 << 0;
/// The buffer index that names no buffer.
const NO_BUFFER: u32 = u32::MAX;

const BLOCK_AFFINE_SIZES: [u32; 2] = [2, 1 << 31];
const NF4_SIZES: [u32; 2] = [8, 1 << 31];
const MXFP_SIZES: [u32; 2] = [16, 2048];

impl QuantizationScheme {
    /// The byte on the wire.
    #[must_use]
    pub const fn tag(&self) -> u8 {
        match self {
            Self::TensorAffine(_) => TENSOR_AFFINE,
            Self::ChannelAffine(_) => CHANNEL_AFFINE,
            Self::BlockAffine(_) => BLOCK_AFFINE,
            Self::Nf4(_) => NF4,
            Self::Mxfp(_) => MXFP,
        }
    }

    /// Reads a section's bytes; bytes past the scheme's own are ignored.
    ///
    /// # Errors
    /// Q1–Q14, in the order of `quantization.md` § 10.
    pub fn decode(payload: &[u8]) -> Result<Self, QuantizationError> {
        let length = payload.len();
        let tag = match payload.first() {
            Some(&tag) => check_tag(tag)?,
            None => return Err(QuantizationError::HeaderTruncated { length }),
        };
        let Some((&[_, version, flags @ ..], fields)) = payload.split_first_chunk::<4>() else {
            return Err(QuantizationError::HeaderTruncated { length });
        };
        if version != SCHEME_VERSION {
            return Err(QuantizationError::SchemeVersion { tag, version });
        }
        let flags = u16::from_le_bytes(flags);
        let symmetric = flags & SYMMETRIC != 0;
        let u32_of = u32::from_le_bytes;
        match tag {
            TENSOR_AFFINE => {
                let [scale, zero_point, reserved] = words(tag, fields)?;
                check_flags(tag, flags, 0)?;
                check_reserved(12, &reserved)?;
                let scale = f32::from_le_bytes(scale);
                check_scale(scale)?;
                Ok(Self::TensorAffine(TensorAffine {
                    scale,
                    zero_point: i32::from_le_bytes(zero_point),
                }))
            }
            CHANNEL_AFFINE => {
                let [
                    axis,
                    scale_buffer,
                    zero_point_buffer,
                    [scale_type, reserved @ ..],
                ] = words(tag, fields)?;
                check_flags(tag, flags, SYMMETRIC)?;
                let scale_buffer = u32_of(scale_buffer);
                check_scale_buffer(scale_buffer)?;
                if ScaleType::from_tag(scale_type) != Some(ScaleType::Float32) {
                    return Err(QuantizationError::ScaleType { tag: scale_type });
                }
                check_reserved(17, &reserved)?;
                Ok(Self::ChannelAffine(ChannelAffine {
                    axis: u32_of(axis),
                    scale_buffer,
                    zero_point_buffer: zero_point_buffer_of(symmetric, u32_of(zero_point_buffer))?,
                }))
            }
            BLOCK_AFFINE => {
                let [
                    axis,
                    block_size,
                    scale_buffer,
                    zero_point_buffer,
                    [scale_type, reserved @ ..],
                ] = words(tag, fields)?;
                check_flags(tag, flags, SYMMETRIC)?;
                let block_size = u32_of(block_size);
                check_block_size(block_size, BLOCK_AFFINE_SIZES)?;
                let scale_type = ScaleType::from_tag(scale_type)
                    .ok_or(QuantizationError::ScaleType { tag: scale_type })?;
                check_reserved(21, &reserved)?;
                let zero_point_buffer = zero_point_buffer_of(symmetric, u32_of(zero_point_buffer))?;
                let scale_buffer = u32_of(scale_buffer);
                check_scale_buffer(scale_buffer)?;
                Ok(Self::BlockAffine(BlockAffine {
                    axis: u32_of(axis),
                    block_size,
                    scale_buffer,
                    zero_point_buffer,
                    scale_type,
                }))
            }
            _ => {
                let [axis, block_size, scale_buffer] = words(tag, fields)?.map(u32_of);
                check_flags(tag, flags, 0)?;
                let sizes = if tag == NF4 { NF4_SIZES } else { MXFP_SIZES };
                check_block_size(block_size, sizes)?;
                check_scale_buffer(scale_buffer)?;
                Ok(if tag == NF4 {
                    Self::Nf4(Nf4 {
                        axis,
                        block_size,
                        scale_buffer,
                    })
                } else {
                    Self::Mxfp(Mxfp {
                        axis,
                        block_size,
                        scale_buffer,
                    })
                })
            }
        }
    }

    /// Checks the parameters that mean something without a tensor.
    ///
    /// # Errors
    /// Q10, Q11, Q13, Q14: what [`decode`](Self::decode) would refuse of the encoded scheme.
    pub fn validate_parameters(&self) -> Result<(), QuantizationError> {
        match self {
            Self::TensorAffine(tensor) => check_scale(tensor.scale),
            Self::ChannelAffine(channel) => {
                check_scale_buffer(channel.scale_buffer)?;
                check_zero_point_buffer(channel.zero_point_buffer)
            }
            Self::BlockAffine(block) => {
                check_block_size(block.block_size, BLOCK_AFFINE_SIZES)?;
                check_zero_point_buffer(block.zero_point_buffer)?;
                check_scale_buffer(block.scale_buffer)
            }
            Self::Nf4(nf4) => {
                check_block_size(nf4.block_size, NF4_SIZES)?;
                check_scale_buffer(nf4.scale_buffer)
            }
            Self::Mxfp(mxfp) => {
                check_block_size(mxfp.block_size, MXFP_SIZES)?;
                check_scale_buffer(mxfp.scale_buffer)
            }
        }
    }

    /// The section that states this scheme, at its fixed length, scheme version 1.
    #[must_use]
    pub fn encode(&self) -> QuantizationSection {
        let symmetric = match self {
            Self::ChannelAffine(channel) => channel.zero_point_buffer.is_none(),
            Self::BlockAffine(block) => block.zero_point_buffer.is_none(),
            Self::TensorAffine(_) | Self::Nf4(_) | Self::Mxfp(_) => false,
        };
        let mut payload = SmallVec::new();
        payload.extend_from_slice(&[self.tag(), SCHEME_VERSION, symmetric.into(), 0]);
        let mut words = |words: &[u32]| {
            for word in words {
                payload.extend_from_slice(&word.to_le_bytes());
            }
        };
        match self {
            Self::TensorAffine(tensor) => {
                words(&[tensor.scale.to_bits(), tensor.zero_point.cast_unsigned(), 0]);
            }
            Self::ChannelAffine(channel) => words(&[
                channel.axis,
                channel.scale_buffer,
                channel.zero_point_buffer.unwrap_or(NO_BUFFER),
                ScaleType::Float32.tag().into(),
            ]),
            Self::BlockAffine(block) => words(&[
                block.axis,
                block.block_size,
                block.scale_buffer,
                block.zero_point_buffer.unwrap_or(NO_BUFFER),
                block.scale_type.tag().into(),
            ]),
            Self::Nf4(nf4) => words(&[nf4.axis, nf4.block_size, nf4.scale_buffer]),
            Self::Mxfp(mxfp) => words(&[mxfp.axis, mxfp.block_size, mxfp.scale_buffer]),
        }
        QuantizationSection { payload }
    }
}

/// The constructor call that makes the scheme in Python, which is also how an inspector shows it.
impl fmt::Display for QuantizationScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TensorAffine(TensorAffine { scale, zero_point }) => write!(
                f,
                "PerTensorAffine(scale={scale:?}, zero_point={zero_point})"
            ),
            Self::ChannelAffine(channel) => {
                write_symmetry(f, "PerChannelAffine", channel.zero_point_buffer)?;
                write!(f, "axis={}", channel.axis)?;
                write_buffers(f, channel.scale_buffer, channel.zero_point_buffer)?;
                f.write_str(")")
            }
            Self::BlockAffine(block) => {
                write_symmetry(f, "PerBlockAffine", block.zero_point_buffer)?;
                write!(f, "axis={}, block_size={}", block.axis, block.block_size)?;
                write_buffers(f, block.scale_buffer, block.zero_point_buffer)?;
                write!(f, ", scale_type=hurray.{})", self.scale_type())
            }
            Self::Nf4(Nf4 {
                axis,
                block_size,
                scale_buffer,
            }) => write!(
                f,
                "NF4(axis={axis}, block_size={block_size}, scale_buffer_index={scale_buffer})"
            ),
            Self::Mxfp(Mxfp {
                axis,
                block_size,
                scale_buffer,
            }) => write!(
                f,
                "MXFP(axis={axis}, block_size={block_size}, scale_buffer_index={scale_buffer})"
            ),
        }
    }
}

fn write_symmetry(
    f: &mut fmt::Formatter<'_>,
    class: &str,
    zero_point_buffer: Option<u32>,
) -> fmt::Result {
    let constructor = match zero_point_buffer {
        None => "symmetric",
        Some(_) => "asymmetric",
    };
    write!(f, "{class}.{constructor}(")
}

fn write_buffers(
    f: &mut fmt::Formatter<'_>,
    scale_buffer: u32,
    zero_point_buffer: Option<u32>,
) -> fmt::Result {
    write!(f, ", scale_buffer_index={scale_buffer}")?;
    match zero_point_buffer {
        Some(zero_point_buffer) => write!(f, ", zero_point_buffer_index={zero_point_buffer}"),
        None => Ok(()),
    }
}

impl ScaleType {
    /// The tag of the element type on the wire.
    const fn tag(self) -> u8 {
        match self {
            Self::Float16 => 0x01,
            Self::Bfloat16 => 0x02,
            Self::Float32 => 0x03,
        }
    }

    const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            0x01 => Some(Self::Float16),
            0x02 => Some(Self::Bfloat16),
            0x03 => Some(Self::Float32),
            _ => None,
        }
    }
}

/// Q2–Q5.
fn check_tag(tag: u8) -> Result<u8, QuantizationError> {
    match tag {
        TENSOR_AFFINE..=MXFP => Ok(tag),
        0x00 | 0xFF => Err(QuantizationError::InvalidTag { tag }),
        0x60..=0xEF => Err(QuantizationError::ReservedTag { tag }),
        0xF0..=0xFE => Err(QuantizationError::PrivateScheme { tag }),
        _ => Err(QuantizationError::UnassignedTag { tag }),
    }
}

/// The first `N` words of the fields that follow a section's header (Q7).
fn words<const N: usize>(tag: u8, fields: &[u8]) -> Result<[[u8; 4]; N], QuantizationError> {
    match fields.as_chunks::<4>().0.first_chunk::<N>() {
        Some(words) => Ok(*words),
        None => Err(QuantizationError::SchemeTruncated {
            tag,
            length: fields.len().saturating_add(4),
            required: N.saturating_add(1).saturating_mul(4),
        }),
    }
}

/// Q8.
fn check_flags(tag: u8, flags: u16, defined: u16) -> Result<(), QuantizationError> {
    if flags & !defined == 0 {
        Ok(())
    } else {
        Err(QuantizationError::UndefinedFlags { tag, flags })
    }
}

/// Q9.
fn check_reserved(offset: usize, reserved: &[u8]) -> Result<(), QuantizationError> {
    if reserved.iter().all(|&byte| byte == 0) {
        Ok(())
    } else {
        Err(QuantizationError::SectionReserved { offset })
    }
}

/// Q10.
fn check_scale(scale: f32) -> Result<(), QuantizationError> {
    if scale.is_finite() && scale != 0.0 {
        Ok(())
    } else {
        Err(QuantizationError::Scale { scale })
    }
}

/// Q11.
fn check_block_size(block_size: u32, [min, max]: [u32; 2]) -> Result<(), QuantizationError> {
    if block_size.is_power_of_two() && (min..=max).contains(&block_size) {
        Ok(())
    } else {
        Err(QuantizationError::BlockSize {
            block_size,
            min,
            max,
        })
    }
}

/// Q13.
fn zero_point_buffer_of(
    symmetric: bool,
    zero_point_buffer: u32,
) -> Result<Option<u32>, QuantizationError> {
    match (symmetric, zero_point_buffer) {
        (true, NO_BUFFER) => Ok(None),
        (false, index) if index != NO_BUFFER => Ok(Some(index)),
        _ => Err(QuantizationError::Symmetry {
            symmetric,
            zero_point_buffer,
        }),
    }
}

/// Q13 of an index that is written.
fn check_zero_point_buffer(zero_point_buffer: Option<u32>) -> Result<(), QuantizationError> {
    match zero_point_buffer {
        Some(index) => zero_point_buffer_of(false, index).map(|_| ()),
        None => Ok(()),
    }
}

/// Q14.
fn check_scale_buffer(scale_buffer: u32) -> Result<(), QuantizationError> {
    if scale_buffer == NO_BUFFER {
        Err(QuantizationError::NoScaleBuffer)
    } else {
        Ok(())
    }
}
