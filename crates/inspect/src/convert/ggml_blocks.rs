//! ggml's blocks, taken apart into the codes and scales of a quantization scheme whose values are equal to what ggml computes.
//!
//! Only types without a minimum map: the format's affine value is `scale · (code − zero point)` with an integer zero point, and ggml's
//! `d · code + m` has a float for it. Positions are those of ggml's block structures; `docs/convert.md` lists them.
#![allow(
    clippy::indexing_slicing,
    reason = "arrays of fixed length, by numbers that cannot reach it"
)]

use half::f16;
use hurray_core::{
    BlockAffine, ElementType, Layout, Mxfp, QuantizationScheme, ScaleType, TensorDescriptor,
    element_count,
};
use hurray_io::stored_row;

use super::source::dense_size;

/// A block type whose values a scheme has.
#[derive(Debug)]
pub(crate) struct BlockType {
    number: u32,
    /// Elements of a block in ggml.
    pub(crate) elements: usize,
    /// Bytes of a block in ggml.
    bytes: usize,
    /// What the codes become.
    codes: ElementType,
    /// Elements that share a scale.
    scale_block: usize,
    scales: Scales,
    /// Fills in the codes and scales of one block. Every slice has the length that this table says.
    unpack: fn(block: &[u8], codes: &mut [u8], scales: &mut [u8]),
    /// What a user is told.
    pub(crate) note: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scales {
    Float16,
    Float32,
    E8m0,
}

/// A scale byte of 255: a number to ggml, NaN to the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoNumber;

const TYPES: [BlockType; 8] = [
    BlockType {
        number: 2,
        elements: 32,
        bytes: 18,
        codes: ElementType::Int4,
        scale_block: 32,
        scales: Scales::Float16,
        unpack: q4_0,
        note: "Q4_0, to int4 in blocks of 32 with float16 scales",
    },
    BlockType {
        number: 6,
        elements: 32,
        bytes: 22,
        codes: ElementType::Int8,
        scale_block: 32,
        scales: Scales::Float16,
        unpack: q5_0,
        note: "Q5_0, to int8 in blocks of 32 with float16 scales",
    },
    BlockType {
        number: 8,
        elements: 32,
        bytes: 34,
        codes: ElementType::Int8,
        scale_block: 32,
        scales: Scales::Float16,
        unpack: q8_0,
        note: "Q8_0, to int8 in blocks of 32 with float16 scales",
    },
    BlockType {
        number: 11,
        elements: 256,
        bytes: 110,
        codes: ElementType::Int4,
        scale_block: 16,
        scales: Scales::Float32,
        unpack: q3_k,
        note: "Q3_K, to int4 in blocks of 16 with float32 scales",
    },
    BlockType {
        number: 14,
        elements: 256,
        bytes: 210,
        codes: ElementType::Int8,
        scale_block: 16,
        scales: Scales::Float32,
        unpack: q6_k,
        note: "Q6_K, to int8 in blocks of 16 with float32 scales",
    },
    BlockType {
        number: 20,
        elements: 32,
        bytes: 18,
        codes: ElementType::Int8,
        scale_block: 32,
        scales: Scales::Float16,
        unpack: iq4_nl,
        note: "IQ4_NL, to int8 in blocks of 32 with float16 scales",
    },
    BlockType {
        number: 23,
        elements: 256,
        bytes: 136,
        codes: ElementType::Int8,
        scale_block: 32,
        scales: Scales::Float32,
        unpack: iq4_xs,
        note: "IQ4_XS, to int8 in blocks of 32 with float32 scales",
    },
    BlockType {
        number: 39,
        elements: 32,
        bytes: 17,
        codes: ElementType::Float4E2m1,
        scale_block: 32,
        scales: Scales::E8m0,
        unpack: mxfp4,
        note: "MXFP4, to float4_e2m1 in blocks of 32",
    },
];

/// The block type of this number in ggml.
pub(crate) fn block_type(number: u32) -> Option<&'static BlockType> {
    TYPES.iter().find(|block| block.number == number)
}

/// ggml's name for a type that is not taken over.
pub(crate) fn type_name(number: u32) -> String {
    let name = match number {
        3 => "Q4_1",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        12 => "Q4_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        40 => "NVFP4",
        41 => "Q1_0",
        _ => return format!("number {number} in ggml"),
    };
    name.to_owned()
}

impl BlockType {
    /// The quantized tensor of this shape, whose rows are whole blocks; `None` where its bytes do not fit 64 bits.
    pub(crate) fn descriptor(&self, shape: &[u64]) -> Option<TensorDescriptor> {
        let axis = u32::try_from(shape.len()).ok()?.checked_sub(1)?;
        let block_size = u32::try_from(self.scale_block).ok()?;
        let scheme = match self.scales {
            Scales::Float16 | Scales::Float32 => QuantizationScheme::BlockAffine(BlockAffine {
                axis,
                block_size,
                scale_buffer: 1,
                zero_point_buffer: None,
                scale_type: if self.scales == Scales::Float16 {
                    ScaleType::Float16
                } else {
                    ScaleType::Float32
                },
            }),
            Scales::E8m0 => QuantizationScheme::Mxfp(Mxfp {
                axis,
                block_size,
                scale_buffer: 1,
            }),
        };
        let codes = dense_size(self.codes, shape)?;
        let scales = element_count(shape)?
            .checked_div(block_size.into())?
            .checked_mul(self.scale_bytes() as u64)?;
        let rows = [stored_row(codes), stored_row(scales)];
        let mut descriptor = TensorDescriptor::new(self.codes, shape, Layout::RowMajor, rows);
        descriptor.quantization = Some(scheme.encode());
        Some(descriptor)
    }

    /// The bytes of a tensor of this shape in ggml.
    pub(crate) fn stored_bytes(&self, shape: &[u64]) -> Option<u64> {
        element_count(shape)?
            .checked_div(self.elements as u64)?
            .checked_mul(self.bytes as u64)
    }

    /// The bytes of codes and of scales that `stored` bytes become.
    pub(crate) fn split_len(&self, stored: usize) -> (usize, usize) {
        let blocks = stored / self.bytes;
        // Blocks become less than five times as large, and no file fills a fifth of the address space.
        (
            blocks.saturating_mul(self.code_len()),
            blocks.saturating_mul(self.scale_len()),
        )
    }

    /// Takes `stored` apart into slices of [`split_len`](Self::split_len).
    pub(crate) fn split(
        &self,
        stored: &[u8],
        codes: &mut [u8],
        scales: &mut [u8],
    ) -> Result<(), NoNumber> {
        let code_len = self.code_len();
        let scale_len = self.scale_len();
        for ((block, codes), scales) in stored
            .chunks_exact(self.bytes)
            .zip(codes.chunks_exact_mut(code_len))
            .zip(scales.chunks_exact_mut(scale_len))
        {
            (self.unpack)(block, codes, scales);
            let codes_of_scale = code_len / (self.elements / self.scale_block);
            for (scale, codes) in scales
                .chunks_exact_mut(self.scale_bytes())
                .zip(codes.chunks_exact_mut(codes_of_scale))
            {
                self.scales.normalize(scale, codes)?;
            }
        }
        Ok(())
    }

    /// Bytes of one scale.
    const fn scale_bytes(&self) -> usize {
        match self.scales {
            Scales::Float16 => 2,
            Scales::Float32 => 4,
            Scales::E8m0 => 1,
        }
    }

    /// Bytes of the scales of a block.
    const fn scale_len(&self) -> usize {
        self.elements / self.scale_block * self.scale_bytes()
    }

    /// Bytes of the codes of a block.
    const fn code_len(&self) -> usize {
        self.elements / self.codes_per_byte()
    }

    const fn codes_per_byte(&self) -> usize {
        match self.codes {
            ElementType::Int8 => 1,
            _ => 2,
        }
    }
}

impl Scales {
    /// Makes a block whose values are all zero one that the format allows (Q25): a scale of one and zero codes.
    fn normalize(self, scale: &mut [u8], codes: &mut [u8]) -> Result<(), NoNumber> {
        let one: &[u8] = match self {
            Self::Float16 => &[0x00, 0x3C],
            Self::Float32 => &[0x00, 0x00, 0x80, 0x3F],
            Self::E8m0 => &[127],
        };
        let is_zero = match self {
            // Either zero, or all codes: ±0 in both halves of a byte.
            Self::E8m0 => codes.iter().all(|&codes| codes & 0x77 == 0),
            Self::Float16 | Self::Float32 => scale
                .split_last()
                .is_some_and(|(high, low)| high & 0x7F == 0 && low.iter().all(|&low| low == 0)),
        };
        if is_zero {
            scale.copy_from_slice(one);
            codes.fill(0);
        }
        if self == Self::E8m0 && scale == [u8::MAX] {
            return Err(NoNumber);
        }
        Ok(())
    }
}

/// `d` of a block, which begins at `block[0]`, widened.
fn float(d: [u8; 2]) -> f32 {
    f16::from_le_bytes(d).to_f32()
}

/// Two 4-bit codes for each byte, of elements that lie in the halves of 16 bytes: the low halves first.
fn pair_nibbles(halves: &[u8; 16], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(8);
    for ((pair, low), high) in halves.as_chunks::<2>().0.iter().zip(low).zip(high) {
        *low = pair[0] & 0x0F | pair[1] << 4;
        *high = pair[0] >> 4 | pair[1] & 0xF0;
    }
}

/// `d: f16`, then 16 bytes of code pairs; `d · (code − 8)`.
fn q4_0(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some([d0, d1, halves @ ..]) = block.first_chunk::<18>() else {
        return;
    };
    scales.copy_from_slice(&[*d0, *d1]);
    pair_nibbles(halves, codes);
    // Less 8 in two's complement of four bits is the highest bit, turned.
    for codes in codes {
        *codes ^= 0x88;
    }
}

/// `d: f16`, the fifth bits of the 32 codes, 16 bytes of code pairs; `d · (code − 16)`.
fn q5_0(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some([d0, d1, h0, h1, h2, h3, halves @ ..]) = block.first_chunk::<22>() else {
        return;
    };
    scales.copy_from_slice(&[*d0, *d1]);
    let high = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
    let (first, second) = codes.split_at_mut(16);
    for (at, ((&half, first), second)) in halves.iter().zip(first).zip(second).enumerate() {
        let bit = |at: usize| ((high >> at & 1) as u8) << 4;
        *first = (half & 0x0F | bit(at)).wrapping_sub(16);
        *second = (half >> 4 | bit(at + 16)).wrapping_sub(16);
    }
}

/// `d: f16`, then 32 int8 codes; `d · code`.
fn q8_0(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some([d0, d1, block_codes @ ..]) = block.first_chunk::<34>() else {
        return;
    };
    scales.copy_from_slice(&[*d0, *d1]);
    codes.copy_from_slice(block_codes);
}

/// A bit of each of 256 codes, two bits of each, 16 scales of six bits, `d: f16`; `d · (scale − 32) · (code − 4)`.
///
/// ```text
/// element 128h + 32s + l:  bit 4h + s of high[l], bits 2s and 2s + 1 of low[32h + l]
/// scale i:                 half i div 8 of packed[i mod 8], bits 2(i div 4) and up of packed[8 + i mod 4]
/// ```
fn q3_k(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some((high, rest)) = block.split_first_chunk::<32>() else {
        return;
    };
    let Some((low, rest)) = rest.split_first_chunk::<64>() else {
        return;
    };
    let Some([packed @ .., d0, d1]) = rest.first_chunk::<14>() else {
        return;
    };
    let packed: &[u8; 12] = packed;
    let d = float([*d0, *d1]);
    for (i, scale) in scales.chunks_exact_mut(4).enumerate() {
        let low = packed[i % 8] >> (i / 8 * 4) & 0x0F;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        let factor = i32::from(low | high << 4) - 32;
        scale.copy_from_slice(&(d * factor as f32).to_le_bytes());
    }
    let code = |element: usize| {
        let (half, shift, l) = (element / 128, element / 32 % 4, element % 32);
        let low = low[half * 32 + l] >> (shift * 2) & 3;
        let high = high[l] >> (half * 4 + shift) & 1;
        // In two's complement of four bits; a set bit takes nothing away.
        if high == 0 { low + 12 } else { low }
    };
    for (pair, codes) in codes.iter_mut().enumerate() {
        *codes = code(pair * 2) | code(pair * 2 + 1) << 4;
    }
}

/// Four bits of each of 256 codes, two bits of each, 16 int8 scales, `d: f16`; `d · scale · (code − 32)`.
///
/// ```text
/// element 128h + 32s + l:  half s div 2 of low[64h + 32(s mod 2) + l], bits 2s and up of high[32h + l]
/// ```
fn q6_k(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some((low, rest)) = block.split_first_chunk::<128>() else {
        return;
    };
    let Some((high, rest)) = rest.split_first_chunk::<64>() else {
        return;
    };
    let Some([factors @ .., d0, d1]) = rest.first_chunk::<18>() else {
        return;
    };
    let d = float([*d0, *d1]);
    for (&factor, scale) in factors.iter().zip(scales.chunks_exact_mut(4)) {
        let factor = f32::from(factor.cast_signed());
        scale.copy_from_slice(&(d * factor).to_le_bytes());
    }
    for (element, code) in codes.iter_mut().enumerate() {
        let (half, quarter, l) = (element / 128, element / 32 % 4, element % 32);
        let low = low[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 0x0F;
        let high = high[half * 32 + l] >> (quarter * 2) & 3;
        *code = (low | high << 4).wrapping_sub(32);
    }
}

/// What the 4-bit codes of the IQ4 types stand for.
const IQ4_LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// The levels of codes that lie in the halves of 16 bytes, the low halves first.
fn iq4_levels(halves: &[u8], codes: &mut [u8]) {
    let level = |code: u8| IQ4_LEVELS[usize::from(code & 0x0F)].cast_unsigned();
    let (first, second) = codes.split_at_mut(halves.len());
    for ((&half, first), second) in halves.iter().zip(first).zip(second) {
        *first = level(half);
        *second = level(half >> 4);
    }
}

/// `d: f16`, then 16 bytes of code pairs; `d · level(code)`.
fn iq4_nl(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some([d0, d1, halves @ ..]) = block.first_chunk::<18>() else {
        return;
    };
    scales.copy_from_slice(&[*d0, *d1]);
    iq4_levels(halves, codes);
}

/// `d: f16`, two bits of each of 8 scales, four bits of each, 128 bytes of code pairs; `d · (scale − 32) · level(code)`.
fn iq4_xs(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some([d0, d1, h0, h1, l0, l1, l2, l3, pairs @ ..]) = block.first_chunk::<136>() else {
        return;
    };
    let d = float([*d0, *d1]);
    let high = u16::from_le_bytes([*h0, *h1]);
    let low = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
    for (i, scale) in scales.chunks_exact_mut(4).enumerate() {
        let factor = (low >> (i * 4) & 0x0F) as i32 | i32::from(high >> (i * 2) & 3) << 4;
        scale.copy_from_slice(&(d * (factor - 32) as f32).to_le_bytes());
    }
    for (halves, codes) in pairs.chunks_exact(16).zip(codes.chunks_exact_mut(32)) {
        iq4_levels(halves, codes);
    }
}

/// `e: e8m0`, then 16 bytes of code pairs; `2^(e − 128) · doubled(code)`, where ggml's table has doubled values to be integers.
fn mxfp4(block: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    let Some([e, halves @ ..]) = block.first_chunk::<17>() else {
        return;
    };
    scales.copy_from_slice(&[*e]);
    pair_nibbles(halves, codes);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn f16_at(block: &[u8], at: usize) -> f32 {
        f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
    }

    /// Bit `bit` of the bytes from `at` on, counted from the lowest of the first.
    fn bit(block: &[u8], at: usize, bit: usize) -> i32 {
        i32::from(block[at + bit / 8] >> (bit % 8) & 1)
    }

    fn bits(block: &[u8], at: usize, first: usize, count: usize) -> i32 {
        (0..count).map(|b| bit(block, at, first + b) << b).sum()
    }

    /// The 4-bit code of an element of 32 whose halves lie at `at`.
    fn nibble(block: &[u8], at: usize, element: usize) -> i32 {
        bits(block, at + element % 16, element / 16 * 4, 4)
    }

    /// Element `i` of a block as ggml computes it, read bit by bit.
    fn ggml(number: u32, block: &[u8], i: usize) -> f32 {
        let (half, quarter, l) = (i / 128, i / 32 % 4, i % 32);
        match number {
            2 => f16_at(block, 0) * (nibble(block, 2, i) - 8) as f32,
            6 => {
                let code = nibble(block, 6, i) + (bit(block, 2, i) << 4);
                f16_at(block, 0) * (code - 16) as f32
            }
            8 => f16_at(block, 0) * f32::from(block[2 + i].cast_signed()),
            11 => {
                let s = i / 16;
                let scale = bits(block, 96 + s % 8, s / 8 * 4, 4)
                    + (bits(block, 104 + s % 4, s / 4 * 2, 2) << 4);
                let low = bits(block, 32 + half * 32 + l, quarter * 2, 2);
                let high = bit(block, l, half * 4 + quarter);
                let d = f16_at(block, 108) * (scale - 32) as f32;
                d * (low - if high == 1 { 0 } else { 4 }) as f32
            }
            14 => {
                let low = half * 64 + quarter % 2 * 32 + l;
                let code = bits(block, low, quarter / 2 * 4, 4)
                    + (bits(block, 128 + half * 32 + l, quarter * 2, 2) << 4);
                let scale = f32::from(block[192 + i / 16].cast_signed());
                f16_at(block, 208) * scale * (code - 32) as f32
            }
            20 => {
                let level = IQ4_LEVELS[nibble(block, 2, i) as usize];
                f16_at(block, 0) * f32::from(level)
            }
            23 => {
                let s = i / 32;
                let scale = bits(block, 4, s * 4, 4) + (bits(block, 2, s * 2, 2) << 4);
                let level = IQ4_LEVELS[nibble(block, 8 + s * 16, l) as usize];
                f16_at(block, 0) * (scale - 32) as f32 * f32::from(level)
            }
            39 => {
                let doubled = [0, 1, 2, 3, 4, 6, 8, 12];
                let code = nibble(block, 1, i);
                let value = doubled[(code & 7) as usize] as f32 * 0.5;
                let value = if code & 8 == 0 { value } else { -value };
                value * 2_f32.powi(i32::from(block[0]) - 127)
            }
            _ => unreachable!(),
        }
    }

    /// Element `i` of the codes and scales as the format's schemes have it.
    fn hurray(block_type: &BlockType, codes: &[u8], scales: &[u8], i: usize) -> f32 {
        let s = i / block_type.scale_block;
        let scale = match block_type.scales {
            Scales::Float16 => f16_at(scales, s * 2),
            Scales::Float32 => f32::from_le_bytes(*scales[s * 4..].first_chunk().unwrap()),
            Scales::E8m0 => 2_f32.powi(i32::from(scales[s]) - 127),
        };
        let nibble = codes[i / block_type.codes_per_byte()] >> (i % 2 * 4) & 0x0F;
        let code = match block_type.codes {
            ElementType::Int8 => f32::from(codes[i].cast_signed()),
            ElementType::Int4 => f32::from((nibble << 4).cast_signed() >> 4),
            _ => {
                let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(nibble & 7)];
                if nibble & 8 == 0 {
                    magnitude
                } else {
                    -magnitude
                }
            }
        };
        scale * code
    }

    fn same(a: f32, b: f32) -> bool {
        a == b || a.is_nan() && b.is_nan()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_value_is_what_ggml_computes(
            which in 0..TYPES.len(),
            stored in vec(any::<u8>(), 210 * 3),
            // Zero scales are rare among all.
            zeros in any::<bool>(),
        ) {
            let block_type = &TYPES[which];
            let mut stored = stored[..block_type.bytes * 3].to_vec();
            if zeros {
                stored[block_type.bytes..block_type.bytes * 2].fill(0);
            }
            let (code_len, scale_len) = block_type.split_len(stored.len());
            let (mut codes, mut scales) = (vec![0xCC; code_len], vec![0xCC; scale_len]);
            if block_type.split(&stored, &mut codes, &mut scales).is_err() {
                let bytes = block_type.scales == Scales::E8m0;
                prop_assert!(bytes && stored.chunks(17).any(|block| block[0] == 255));
                return Ok(());
            }
            for i in 0..block_type.elements * 3 {
                let (block, within) = (i / block_type.elements, i % block_type.elements);
                let block = &stored[block * block_type.bytes..][..block_type.bytes];
                let expected = ggml(block_type.number, block, within);
                let found = hurray(block_type, &codes, &scales, i);
                prop_assert!(same(expected, found), "{i}: {expected} {found}");
            }
        }
    }

    #[test]
    fn a_block_of_zeros_has_a_scale_that_the_format_allows() {
        for block_type in &TYPES {
            let stored = vec![0; block_type.bytes];
            let (code_len, scale_len) = block_type.split_len(stored.len());
            let (mut codes, mut scales) = (vec![0xCC; code_len], vec![0; scale_len]);
            block_type.split(&stored, &mut codes, &mut scales).unwrap();
            assert!(codes.iter().all(|&code| code == 0), "{}", block_type.note);
            assert_eq!(hurray(block_type, &codes, &scales, 0), 0.0);
            let one = match block_type.scales {
                Scales::Float16 => vec![0x00, 0x3C],
                Scales::Float32 => 1_f32.to_le_bytes().to_vec(),
                Scales::E8m0 => vec![127],
            };
            assert!(scales.starts_with(&one), "{}", block_type.note);
        }
    }

    #[test]
    fn a_scale_byte_that_means_no_number_is_refused_where_it_matters() {
        let mxfp4 = block_type(39).unwrap();
        let (mut codes, mut scales) = ([0; 16], [0]);
        let mut stored = [0; 17];
        stored[0] = 255;
        mxfp4.split(&stored, &mut codes, &mut scales).unwrap();
        stored[1] = 1;
        let refused = mxfp4.split(&stored, &mut codes, &mut scales);
        assert_eq!(refused, Err(NoNumber));
    }

    #[test]
    fn the_list_of_supported_types_is_that_of_the_table() {
        let listed: Vec<&str> = super::super::gguf::SUPPORTED.split(' ').collect();
        for block_type in &TYPES {
            let name = block_type.note.split(',').next().unwrap();
            assert!(listed.contains(&name), "{name}");
        }
        assert_eq!(listed.len(), TYPES.len() + 8);
    }
}
