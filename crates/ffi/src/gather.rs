//! Copies the elements of a dense array into new memory: row-major, packed as the format packs or with a byte for each.

use hurray_core::memory::{AlignedBytes, AllocationError};
use hurray_core::{LayoutError, StorageWidth, element_count, strided_extent};
use smallvec::{SmallVec, smallvec};
use thiserror::Error;

/// How elements of less than a byte follow each other; whole bytes know one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// From the lowest bit up, as the format stores them.
    Packed,
    /// One byte for each element, the value in its low bits. One-bit elements: any byte but 0 is 1.
    BytePerElement,
}

/// The elements of a dense array of any strides.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    /// Bytes that hold every element.
    pub bytes: &'a [u8],
    /// The byte of `bytes` at which element `[0, …, 0]` begins.
    pub origin: u64,
    /// Dimensions in elements.
    pub shape: &'a [u64],
    /// Strides in elements, of any sign, one per dimension.
    pub strides: &'a [i64],
    /// The width of one element.
    pub width: StorageWidth,
    /// How narrow elements follow each other.
    pub spacing: Spacing,
}

/// Elements that cannot be copied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GatherError {
    /// An element lies outside the bytes.
    #[error("elements reach bits {first} to {end} from the first of {len} bytes")]
    OutOfBounds {
        /// The first bit of the lowest element.
        first: i128,
        /// The bit after the highest element.
        end: i128,
        /// Bytes that there are.
        len: usize,
    },
    /// The copy would be larger than memory can be.
    #[error("a copy of these elements has more bytes than can be addressed")]
    TooLarge,
    /// Shape and strides that do not go together, or reach too far.
    #[error(transparent)]
    Strides(#[from] LayoutError),
    /// There is no memory for the copy.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
}

/// One dimension that matters: its size and its stride in elements.
type Dimension = (usize, i64);

/// Copies `elements` in row-major order, spaced as `target`.
///
/// # Errors
/// [`GatherError`]; nothing was copied.
pub fn gather(elements: &Elements<'_>, target: Spacing) -> Result<AlignedBytes, GatherError> {
    let Elements { shape, strides, .. } = *elements;
    check_bounds(elements)?;
    let count = element_count(shape);
    let len = if element_bits(elements.width, target) == 8 {
        count
    } else {
        count.and_then(|count| elements.width.byte_size(count))
    };
    let len = len
        .and_then(|len| usize::try_from(len).ok())
        .ok_or(GatherError::TooLarge)?;
    let mut copy = AlignedBytes::zeroed(len)?;
    if len > 0 {
        let dimensions = merged(shape, strides);
        if elements.width.is_packed() && (elements.spacing, target) != BYTES {
            copy_narrow(elements, &dimensions, target, &mut copy);
        } else {
            copy_whole_bytes(elements, &dimensions, &mut copy);
        }
    }
    Ok(copy)
}

const BYTES: (Spacing, Spacing) = (Spacing::BytePerElement, Spacing::BytePerElement);

/// Bits from one element to the next.
const fn element_bits(width: StorageWidth, spacing: Spacing) -> u32 {
    match spacing {
        Spacing::BytePerElement if width.is_packed() => 8,
        _ => width.bits(),
    }
}

/// Whether every element lies in the bytes. What follows addresses nothing else.
fn check_bounds(elements: &Elements<'_>) -> Result<(), GatherError> {
    let Some(offsets) = strided_extent(elements.shape, elements.strides)? else {
        return Ok(());
    };
    // 64-bit numbers by widths below 2^32: exact.
    let bits = i128::from(element_bits(elements.width, elements.spacing));
    let origin = i128::from(elements.origin) * 8;
    let first = origin + i128::from(offsets.lo) * bits;
    let end = origin + (i128::from(offsets.hi) + 1) * bits;
    if first < 0 || end > elements.bytes.len() as i128 * 8 {
        return Err(GatherError::OutOfBounds {
            first,
            end,
            len: elements.bytes.len(),
        });
    }
    Ok(())
}

/// Shape and strides without dimensions of one element, and with neighbours joined that one stride can walk; never empty.
fn merged(shape: &[u64], strides: &[i64]) -> SmallVec<[Dimension; 6]> {
    let mut dimensions: SmallVec<[Dimension; 6]> = SmallVec::new();
    for (&n, &stride) in shape.iter().zip(strides) {
        // The copy has at least as many bytes as it has elements in eights, so a dimension of it fits.
        let n = n as usize;
        if n == 1 {
            continue;
        }
        match dimensions.last_mut() {
            Some((outer, outer_stride))
                if i128::from(*outer_stride) == i128::from(stride) * n as i128 =>
            {
                *outer *= n;
                *outer_stride = stride;
            }
            _ => dimensions.push((n, stride)),
        }
    }
    if dimensions.is_empty() {
        return smallvec![(1, 1)];
    }
    dimensions
}

/// Calls `run` with the element offset of each run of the last dimension, in row-major order.
fn for_each_run(outer: &[Dimension], mut run: impl FnMut(i64)) {
    let mut index: SmallVec<[usize; 6]> = smallvec![0; outer.len()];
    let mut offset = 0_i64;
    loop {
        run(offset);
        let mut axis = outer.len();
        loop {
            let Some(next) = axis.checked_sub(1) else {
                return;
            };
            axis = next;
            let (n, stride) = outer[axis];
            index[axis] += 1;
            if index[axis] < n {
                offset += stride;
                break;
            }
            offset -= stride * (n as i64 - 1);
            index[axis] = 0;
        }
    }
}

fn copy_whole_bytes(elements: &Elements<'_>, dimensions: &[Dimension], copy: &mut [u8]) {
    let size = element_bits(elements.width, elements.spacing) as usize / 8;
    match size {
        1 => copy_sized::<1>(elements, dimensions, copy),
        2 => copy_sized::<2>(elements, dimensions, copy),
        4 => copy_sized::<4>(elements, dimensions, copy),
        8 => copy_sized::<8>(elements, dimensions, copy),
        16 => copy_sized::<16>(elements, dimensions, copy),
        _ => copy_runs(elements, dimensions, size, copy, |source, stride, run| {
            for (i, element) in run.chunks_exact_mut(size).enumerate() {
                let at = position(source, i, stride);
                element.copy_from_slice(&elements.bytes[at..at + size]);
            }
        }),
    }
}

fn copy_sized<const SIZE: usize>(
    elements: &Elements<'_>,
    dimensions: &[Dimension],
    copy: &mut [u8],
) {
    copy_runs(elements, dimensions, SIZE, copy, |source, stride, run| {
        let (run, _) = run.as_chunks_mut::<SIZE>();
        for (i, element) in run.iter_mut().enumerate() {
            let at = position(source, i, stride);
            element.copy_from_slice(&elements.bytes[at..at + SIZE]);
        }
    });
}

/// The byte of element `i` of a run that begins at `source`, `stride` bytes apart.
const fn position(source: usize, i: usize, stride: isize) -> usize {
    source.wrapping_add_signed(stride.wrapping_mul(i as isize))
}

/// Copies runs whose elements adjoin at once, and has `strided(first byte, stride in bytes, target)` copy the others.
fn copy_runs(
    elements: &Elements<'_>,
    dimensions: &[Dimension],
    size: usize,
    copy: &mut [u8],
    strided: impl Fn(usize, isize, &mut [u8]),
) {
    let Some((&(n, stride), outer)) = dimensions.split_last() else {
        return;
    };
    let mut runs = copy.chunks_exact_mut(n * size);
    for_each_run(outer, |offset| {
        let source = position(elements.origin as usize, 1, offset as isize * size as isize);
        let Some(run) = runs.next() else {
            return;
        };
        if stride == 1 {
            run.copy_from_slice(&elements.bytes[source..source + run.len()]);
        } else {
            strided(source, stride as isize * size as isize, run);
        }
    });
}

/// Elements of less than a byte, of which one side at least is packed.
fn copy_narrow(
    elements: &Elements<'_>,
    dimensions: &[Dimension],
    target: Spacing,
    copy: &mut [u8],
) {
    let Some((&(n, stride), outer)) = dimensions.split_last() else {
        return;
    };
    let one_run = outer.is_empty() && stride == 1;
    let origin = elements.origin as usize;
    let run = |len: usize| &elements.bytes[origin..origin + len];
    let packs = (elements.spacing, target) == (Spacing::BytePerElement, Spacing::Packed);
    let unpacks = (elements.spacing, target) == (Spacing::Packed, Spacing::BytePerElement);
    match elements.width.bits() {
        1 if one_run && packs => pack_booleans(run(n), copy),
        2 if one_run && packs => pack::<4>(run(n), copy),
        4 if one_run && packs => pack::<2>(run(n), copy),
        1 if one_run && unpacks => unpack_booleans(run(n.div_ceil(8)), copy),
        2 if one_run && unpacks => unpack::<4>(run(n.div_ceil(4)), copy),
        4 if one_run && unpacks => unpack::<2>(run(n.div_ceil(2)), copy),
        bits => {
            let mut writer = Writer {
                copy,
                spacing: target,
                bits,
                at: 0,
            };
            for_each_run(outer, |offset| {
                for i in 0..n as i64 {
                    writer.push(element(elements, bits, offset + i * stride));
                }
            });
        }
    }
}

/// The value of the element at `offset` from element `[0, …, 0]`.
fn element(elements: &Elements<'_>, bits: u32, offset: i64) -> u8 {
    let origin = elements.origin as usize;
    match elements.spacing {
        Spacing::BytePerElement => {
            let byte = elements.bytes[position(origin, 1, offset as isize)];
            if bits == 1 {
                u8::from(byte != 0)
            } else {
                byte & mask(bits)
            }
        }
        Spacing::Packed => {
            let bit = offset * i64::from(bits);
            let at = position(origin, 1, bit.div_euclid(8) as isize);
            let shift = bit.rem_euclid(8) as u32;
            let low = u16::from(elements.bytes[at]);
            let high = if shift + bits > 8 {
                u16::from(elements.bytes[at + 1])
            } else {
                0
            };
            ((low | high << 8) >> shift) as u8 & mask(bits)
        }
    }
}

const fn mask(bits: u32) -> u8 {
    (1_u8 << bits) - 1
}

/// Writes elements of less than a byte one after the other into zero bytes.
struct Writer<'a> {
    copy: &'a mut [u8],
    spacing: Spacing,
    bits: u32,
    at: usize,
}

impl Writer<'_> {
    fn push(&mut self, value: u8) {
        match self.spacing {
            Spacing::BytePerElement => self.copy[self.at] = value,
            Spacing::Packed => {
                let bit = self.at * self.bits as usize;
                let (byte, shift) = (bit / 8, (bit % 8) as u32);
                let wide = u16::from(value) << shift;
                self.copy[byte] |= wide as u8;
                if shift + self.bits > 8 {
                    self.copy[byte + 1] |= (wide >> 8) as u8;
                }
            }
        }
        self.at += 1;
    }
}

/// 1 in every byte that is not 0.
const fn booleans(bytes: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    (((bytes & LOW) + LOW) | bytes) >> 7 & 0x0101_0101_0101_0101
}

/// Bit i is whether byte i is not 0. Shifts rather than a product, which no vector unit of x86-64-v1 has.
const fn packed_booleans(eight: [u8; 8]) -> u8 {
    // Byte i holds 0 or 1; each step brings twice as many of them together, at the low end of as many bytes.
    let mut bits = booleans(u64::from_le_bytes(eight));
    bits |= bits >> 7;
    bits |= bits >> 14;
    bits |= bits >> 28;
    bits as u8
}

fn pack_booleans(source: &[u8], packed: &mut [u8]) {
    let (eights, rest) = source.as_chunks::<8>();
    for (&eight, packed) in eights.iter().zip(&mut *packed) {
        *packed = packed_booleans(eight);
    }
    if let (false, Some(last)) = (rest.is_empty(), packed.last_mut()) {
        let mut eight = [0; 8];
        eight[..rest.len()].copy_from_slice(rest);
        *last = packed_booleans(eight);
    }
}

fn unpack_booleans(packed: &[u8], target: &mut [u8]) {
    let spread = |packed: u8| {
        let spread = (u64::from(packed) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        booleans(spread).to_le_bytes()
    };
    let (eights, rest) = target.as_chunks_mut::<8>();
    for (&packed, eight) in packed.iter().zip(eights) {
        *eight = spread(packed);
    }
    if let Some(&last) = packed.last() {
        let len = rest.len();
        rest.copy_from_slice(&spread(last)[..len]);
    }
}

/// Packs elements of 8 / `COUNT` bits, `COUNT` to a byte.
fn pack<const COUNT: usize>(source: &[u8], packed: &mut [u8]) {
    let bits = (8 / COUNT) as u32;
    let joined = |elements: &[u8]| {
        let places = elements.iter().zip(0..);
        places.fold(0, |byte, (&element, place)| {
            byte | (element & mask(bits)) << (place * bits)
        })
    };
    let (whole, rest) = source.as_chunks::<COUNT>();
    for (elements, packed) in whole.iter().zip(&mut *packed) {
        *packed = joined(elements);
    }
    if let (false, Some(last)) = (rest.is_empty(), packed.last_mut()) {
        *last = joined(rest);
    }
}

/// Undoes [`pack`].
fn unpack<const COUNT: usize>(packed: &[u8], target: &mut [u8]) {
    let bits = (8 / COUNT) as u32;
    let part = |elements: &mut [u8], packed: u8| {
        for (element, place) in elements.iter_mut().zip(0..) {
            *element = packed >> (place * bits) & mask(bits);
        }
    };
    let (whole, rest) = target.as_chunks_mut::<COUNT>();
    for (elements, &packed) in whole.iter_mut().zip(packed) {
        part(elements, packed);
    }
    if let Some(&last) = packed.last() {
        part(rest, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn width(bits: u32) -> StorageWidth {
        StorageWidth::from_bits(bits).unwrap()
    }

    /// Row-major strides.
    fn compact(shape: &[u64]) -> Vec<i64> {
        let mut strides = vec![1; shape.len()];
        for k in (1..shape.len()).rev() {
            strides[k - 1] = strides[k] * shape[k] as i64;
        }
        strides
    }

    #[test]
    fn a_transpose_becomes_row_major() {
        let bytes: Vec<u8> = [0_u16, 1, 2, 3, 4, 5].map(u16::to_le_bytes).concat();
        let elements = Elements {
            bytes: &bytes,
            origin: 0,
            shape: &[3, 2],
            strides: &[1, 3],
            width: width(16),
            spacing: Spacing::Packed,
        };
        let copy = gather(&elements, Spacing::Packed).unwrap();
        assert_eq!(
            copy[..],
            [0_u16, 3, 1, 4, 2, 5].map(u16::to_le_bytes).concat()
        );
    }

    #[test]
    fn fp4_low_nibble_first_b3() {
        // 4 fp4 values whose codes are 2, 4, 5, 7: the bytes that DLPack has for 1, 2, 3, 6.
        let elements = Elements {
            bytes: &[2, 4, 5, 7],
            origin: 0,
            shape: &[4],
            strides: &[1],
            width: width(4),
            spacing: Spacing::BytePerElement,
        };
        let packed = gather(&elements, Spacing::Packed).unwrap();
        assert_eq!(packed[..], [0x42, 0x75]);
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let bytes = [0, 1, 2, 0x80, 0xFF, 0, 0x7F, 0, 3];
        let elements = Elements {
            bytes: &bytes,
            origin: 0,
            shape: &[9],
            strides: &[1],
            width: width(1),
            spacing: Spacing::BytePerElement,
        };
        let packed = gather(&elements, Spacing::Packed).unwrap();
        assert_eq!(packed[..], [0b0101_1110, 1]);
    }

    #[test]
    fn runs_of_every_length_and_narrow_width() {
        for (bits, len) in [1, 2, 4]
            .into_iter()
            .flat_map(|bits| (0..70).map(move |len| (bits, len)))
        {
            let values: Vec<u8> = (0..len).map(|i| (i * 37 % 11) as u8 & mask(bits)).collect();
            let mut expected = vec![0; (len * bits as usize).div_ceil(8)];
            for (i, value) in values.iter().enumerate() {
                expected[i * bits as usize / 8] |= value << (i * bits as usize % 8);
            }
            let run = |bytes, spacing, target| {
                let elements = Elements {
                    bytes,
                    origin: 0,
                    shape: &[len as u64],
                    strides: &[1],
                    width: width(bits),
                    spacing,
                };
                gather(&elements, target).unwrap().to_vec()
            };
            let packed = run(&values, Spacing::BytePerElement, Spacing::Packed);
            assert_eq!(packed, expected, "{len} elements of {bits} bits");
            assert_eq!(
                run(&packed, Spacing::Packed, Spacing::BytePerElement),
                values
            );
            // Bits that the elements do not have count for nothing.
            if bits > 1 {
                let dirty: Vec<u8> = values.iter().map(|value| value | 0xF0).collect();
                assert_eq!(
                    run(&dirty, Spacing::BytePerElement, Spacing::Packed),
                    expected
                );
            }
        }
    }

    #[test]
    fn elements_outside_the_bytes_are_refused() {
        let bytes = [0; 16];
        let elements = |origin, shape, strides| Elements {
            bytes: &bytes,
            origin,
            shape,
            strides,
            width: width(32),
            spacing: Spacing::Packed,
        };
        let cases: [(u64, &[u64], &[i64]); 6] = [
            (0, &[5], &[1]),
            (4, &[4], &[1]),
            (0, &[4], &[-1]),
            (0, &[2, 2], &[i64::MAX, i64::MAX]),
            (0, &[2, 2], &[i64::MIN, i64::MIN]),
            (u64::MAX, &[1], &[1]),
        ];
        for (origin, shape, strides) in cases {
            let error = gather(&elements(origin, shape, strides), Spacing::Packed).unwrap_err();
            assert!(
                matches!(
                    error,
                    GatherError::OutOfBounds { .. } | GatherError::Strides(_)
                ),
                "{error}"
            );
        }
        let huge = elements(0, &[1 << 62, 1 << 62], &[0, 0]);
        assert_eq!(
            gather(&huge, Spacing::Packed).unwrap_err(),
            GatherError::TooLarge
        );
    }

    #[test]
    fn nothing_is_read_of_an_empty_array() {
        let elements = Elements {
            bytes: &[],
            origin: 99,
            shape: &[0, 4],
            strides: &[7, 13],
            width: width(32),
            spacing: Spacing::Packed,
        };
        assert!(gather(&elements, Spacing::Packed).unwrap().is_empty());
    }

    /// A shape, its strides and the origin and number of the elements that hold it.
    fn array() -> impl Strategy<Value = (Vec<u64>, Vec<i64>, i64, i64)> {
        prop::collection::vec((1_u64..6, -9_i64..10), 0..4).prop_map(|dimensions| {
            let (shape, strides): (Vec<u64>, Vec<i64>) = dimensions.into_iter().unzip();
            let reach = |wanted: fn(i64) -> bool| -> i64 {
                let products = shape
                    .iter()
                    .zip(&strides)
                    .map(|(&n, &s)| s * (n as i64 - 1));
                products.filter(|&product| wanted(product)).sum()
            };
            let (lowest, highest) = (reach(|p| p < 0), reach(|p| p > 0));
            // An origin on a byte boundary for every width.
            let origin = (-lowest + 7) / 8 * 8;
            (shape, strides, origin, origin + highest + 1)
        })
    }

    proptest! {
        #[test]
        fn every_element_arrives_in_order(
            (shape, strides, origin, count) in array(),
            bits in prop::sample::select(vec![1_u32, 2, 4, 6, 8, 16, 24, 32, 64, 128]),
            from_bytes: bool,
            to_bytes: bool,
            seed: u8,
        ) {
            let spacing = |bytes| if bytes { Spacing::BytePerElement } else { Spacing::Packed };
            let (source, target) = (spacing(from_bytes), spacing(to_bytes));
            let width = width(bits);
            // Each byte of element e is e * 37 + seed, or as many low bits of that as it has.
            let value = |e: i64| (e as u8).wrapping_mul(37).wrapping_add(seed);
            let put = |bytes: &mut Vec<u8>, at: usize, e: i64, spacing: Spacing| {
                let bits = element_bits(width, spacing) as usize;
                for bit in 0..width.bits() as usize {
                    let set = value(e) >> (bit % 8) & 1;
                    bytes[(at * bits + bit) / 8] |= set << ((at * bits + bit) % 8);
                }
            };
            let mut bytes = vec![0; count as usize * 16 + 16];
            for e in 0..count {
                put(&mut bytes, e as usize, e, source);
            }
            let elements = Elements {
                bytes: &bytes,
                origin: origin as u64 * u64::from(element_bits(width, source)) / 8,
                shape: &shape,
                strides: &strides,
                width,
                spacing: source,
            };
            let copy = gather(&elements, target).unwrap();

            let total = shape.iter().product::<u64>() as i64;
            let mut expected = vec![0; total as usize * 16 + 16];
            for linear in 0..total {
                let mut rest = linear;
                let mut offset = origin;
                for (n, s) in compact(&shape).iter().zip(&strides) {
                    offset += rest / n * s;
                    rest %= n;
                }
                put(&mut expected, linear as usize, offset, target);
            }
            prop_assert_eq!(&copy[..], &expected[..copy.len()]);
            prop_assert!(copy.len() as u64 * 8 >= total as u64 * u64::from(element_bits(width, target)));
        }
    }
}
