//! Changes to inputs that reach past lengths, offsets and checksums.

use fastrand::Rng;
use hurray_core::TensorDescriptor;

use crate::Plain;

/// Numbers at which arithmetic breaks.
const EDGES: [u64; 23] = [
    0,
    1,
    2,
    3,
    7,
    63,
    64,
    65,
    255,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 58,
    1 << 61,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 64,
    u64::MAX - 1,
    u64::MAX,
    4096,
];

/// The most bytes that a mended tensor gets, so that inputs stay small.
const MOST_DATA: u64 = 1 << 13;

/// One in `n`.
fn one_in(n: u32, rng: &mut Rng) -> bool {
    rng.u32(..n) == 0
}

/// Changes a few bytes: what libFuzzer does, for where it is not there.
pub fn scramble(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.u32(..3) {
        let at = rng.usize(..=bytes.len());
        let len = rng.usize(..9).min(bytes.len() - at);
        match rng.u8(..6) {
            0 => put_edge(bytes, rng),
            1 => bytes.truncate(at),
            2 => bytes.extend((0..len).map(|_| rng.u8(..))),
            3 => {
                bytes.drain(at..at + len);
            }
            4 => {
                let copy = bytes[at..at + len].to_vec();
                let to = rng.usize(..=bytes.len());
                bytes.splice(to..to, copy);
            }
            _ if at < bytes.len() => bytes[at] = rng.u8(..),
            _ => {}
        }
    }
}

/// Puts a number where one may be.
fn put_edge(bytes: &mut [u8], rng: &mut Rng) {
    let width = [1, 2, 4, 8][rng.usize(..4)];
    let places = bytes.len().saturating_sub(width - 1);
    if places > 0 {
        let mut at = rng.usize(..places);
        if rng.bool() {
            at &= !3;
        }
        let number = EDGES[rng.usize(..EDGES.len())].to_le_bytes();
        bytes[at..at + width].copy_from_slice(&number[..width]);
    }
}

/// Makes a byte a little larger or smaller, or turns one of its bits.
fn nudge(bytes: &mut [u8], rng: &mut Rng) {
    if !bytes.is_empty() {
        let at = rng.usize(..bytes.len());
        bytes[at] = match rng.u8(..3) {
            0 => bytes[at].wrapping_add(rng.u8(1..4)),
            1 => bytes[at].wrapping_sub(rng.u8(1..4)),
            _ => bytes[at] ^ 1 << rng.u32(..8),
        };
    }
}

/// Changes a number, or anything.
fn change(bytes: &mut Vec<u8>, rng: &mut Rng, plain: Plain<'_>) {
    match rng.u8(..4) {
        0 => put_edge(bytes, rng),
        1 | 2 => nudge(bytes, rng),
        _ => plain(bytes),
    }
}

/// A descriptor and the bytes of its buffers.
#[derive(Clone, Default)]
struct Part {
    descriptor: Vec<u8>,
    data: Vec<u8>,
}

impl Part {
    /// Takes the front of a stream; everything, where that is none.
    fn take(bytes: &mut &[u8]) -> Self {
        let stated = bytes.get(6..10).map_or(usize::MAX, |length| {
            u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize
        });
        let len = stated.clamp(1, bytes.len());
        let descriptor = bytes.split_off(..len).unwrap_or_default().to_vec();
        let data = data_len(&descriptor).unwrap_or(0).min(bytes.len() as u64) as usize;
        let data = bytes.split_off(..data).unwrap_or_default().to_vec();
        Self { descriptor, data }
    }

    fn mutate(&mut self, rng: &mut Rng, plain: Plain<'_>) {
        if self.data.is_empty() || !one_in(4, rng) {
            change(&mut self.descriptor, rng, plain);
            if !one_in(8, rng) {
                self.mend_length();
            }
        } else {
            change(&mut self.data, rng, plain);
        }
        if !one_in(8, rng) {
            self.mend_data();
        }
    }

    /// States the length that the descriptor has.
    fn mend_length(&mut self) {
        let length = self.descriptor.len() as u32;
        if let Some(field) = self.descriptor.get_mut(6..10) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Gives as many bytes as the rows say.
    fn mend_data(&mut self) {
        if let Some(len) = data_len(&self.descriptor)
            && len <= MOST_DATA
        {
            self.data.resize(len as usize, 0);
        }
    }
}

/// The sum of the rows.
fn data_len(descriptor: &[u8]) -> Option<u64> {
    let (descriptor, _) = TensorDescriptor::decode(descriptor).ok()?;
    descriptor
        .buffers
        .iter()
        .try_fold(0_u64, |sum, row| sum.checked_add(row.byte_size))
}

/// Changes one of several parts, or which there are.
fn mutate_parts(parts: &mut Vec<Part>, rng: &mut Rng, plain: Plain<'_>) {
    if parts.is_empty() {
        parts.push(Part::default());
    }
    let at = rng.usize(..parts.len());
    match rng.u8(..16) {
        0 => {
            parts.remove(at);
        }
        1 => {
            let copy = parts[at].clone();
            let to = rng.usize(..=parts.len());
            parts.insert(to, copy);
        }
        2 => {
            let other = rng.usize(..parts.len());
            parts.swap(at, other);
        }
        _ => parts[at].mutate(rng, plain),
    }
}

/// Descriptors, each followed by its buffers.
pub(crate) fn stream(bytes: &mut Vec<u8>, rng: &mut Rng, plain: Plain<'_>) {
    if one_in(8, rng) {
        return plain(bytes);
    }
    let mut rest = bytes.as_slice();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        parts.push(Part::take(&mut rest));
    }
    for _ in 0..=rng.u8(..2) {
        mutate_parts(&mut parts, rng, plain);
    }
    bytes.clear();
    for part in parts {
        bytes.extend(part.descriptor);
        bytes.extend(part.data);
    }
}

/// A format of which nothing needs mending.
pub(crate) fn any(bytes: &mut Vec<u8>, rng: &mut Rng, plain: Plain<'_>) {
    for _ in 0..=rng.u8(..2) {
        change(bytes, rng, plain);
    }
}

/// A file taken apart.
struct Container {
    header: [u8; 64],
    names: Vec<Vec<u8>>,
    parts: Vec<Part>,
    metadata: Vec<u8>,
}

/// The parts of a container: taken apart, changed, and put together with offsets, lengths and checksum that fit; then, sometimes, with numbers that
/// do not.
pub(crate) fn file(bytes: &mut Vec<u8>, rng: &mut Rng, plain: Plain<'_>) {
    let container = Container::take(bytes).filter(|_| !one_in(8, rng));
    let Some(mut container) = container else {
        plain(bytes);
        if rng.bool() {
            mend_checksum(bytes);
        }
        return;
    };
    for _ in 0..rng.u8(..3) {
        container.mutate(rng, plain);
    }
    *bytes = container.encode();
    if one_in(2, rng) {
        lie(bytes, rng);
    }
    if !one_in(16, rng) {
        mend_checksum(bytes);
    }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u64::from_le_bytes(*number)).ok()
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

/// The bytes from `at` on, as far as there are `len`.
fn part(bytes: &[u8], at: usize, len: usize) -> Vec<u8> {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.get(..len).unwrap_or(rest).to_vec()
}

/// Where the index is, in a file that has a trailer.
fn index_of(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let trailer = bytes.len().checked_sub(40)?;
    let start = number(bytes, trailer)?;
    let end = start.checked_add(number(bytes, trailer + 8)?)?;
    (end <= trailer).then_some(start..end)
}

impl Container {
    /// Takes a file apart, as far as it can be.
    fn take(bytes: &[u8]) -> Option<Self> {
        let trailer = bytes.len().checked_sub(40)?;
        let header = *bytes.first_chunk()?;
        let alignment = alignment(&header);
        let mut index = bytes.get(index_of(bytes)?)?.get(8..)?;
        let (mut names, mut parts) = (Vec::new(), Vec::new());
        while let Some(&len) = index.first_chunk() {
            let len = usize::from(u16::from_le_bytes(len));
            let Some(entry) = index.get(2 + len..2 + len + 32) else {
                break;
            };
            names.push(index[2..2 + len].to_vec());
            let descriptor = part(bytes, number(entry, 0)?, short(entry, 8)?);
            let data = part(bytes, number(entry, 12)?, number(entry, 20)?);
            let data = without_gaps(&descriptor, data, alignment);
            parts.push(Part { descriptor, data });
            index = &index[2 + len + 32..];
        }
        Some(Self {
            header,
            names,
            parts,
            metadata: part(
                bytes,
                number(bytes, trailer + 16)?,
                short(bytes, trailer + 24)?,
            ),
        })
    }

    fn mutate(&mut self, rng: &mut Rng, plain: Plain<'_>) {
        match rng.u8(..8) {
            0 | 1 => change(&mut self.metadata, rng, plain),
            2 if !self.names.is_empty() => {
                let at = rng.usize(..self.names.len());
                plain(&mut self.names[at]);
            }
            _ => mutate_parts(&mut self.parts, rng, plain),
        }
        let mut number = self.names.len();
        self.names.resize_with(self.parts.len(), || {
            number += 1;
            format!("n{number}").into_bytes()
        });
    }

    /// The file, as `file.md` § 3 lays it out.
    fn encode(&self) -> Vec<u8> {
        let alignment = alignment(&self.header);
        let mut bytes = self.header.to_vec();
        let mut index = (self.names.len() as u64).to_le_bytes().to_vec();
        for (name, part) in self.names.iter().zip(&self.parts) {
            let descriptor_offset = bytes.len() as u64;
            bytes.extend(&part.descriptor);
            pad(&mut bytes, alignment);
            let data_offset = bytes.len() as u64;
            lay(part, alignment, &mut bytes);
            let data_length = bytes.len() as u64 - data_offset;
            pad(&mut bytes, 8);
            index.extend((name.len() as u16).to_le_bytes());
            index.extend(name);
            index.extend(descriptor_offset.to_le_bytes());
            index.extend((part.descriptor.len() as u32).to_le_bytes());
            index.extend(data_offset.to_le_bytes());
            index.extend(data_length.to_le_bytes());
            index.extend([0; 4]);
        }
        let metadata_offset = match self.metadata.len() {
            0 => 0,
            _ => bytes.len() as u64,
        };
        bytes.extend(&self.metadata);
        pad(&mut bytes, 8);
        let index_offset = bytes.len() as u64;
        bytes.extend(&index);
        bytes.extend(index_offset.to_le_bytes());
        bytes.extend((index.len() as u64).to_le_bytes());
        bytes.extend(metadata_offset.to_le_bytes());
        bytes.extend((self.metadata.len() as u32).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(b"HRRY");
        bytes
    }
}

fn pad(bytes: &mut Vec<u8>, alignment: usize) {
    bytes.resize(bytes.len().next_multiple_of(alignment), 0);
}

/// The data alignment that a header states; the least one, where the file would become large.
fn alignment(header: &[u8]) -> usize {
    short(header, 16)
        .filter(|alignment| alignment.is_power_of_two() && *alignment <= 1 << 13)
        .unwrap_or(4096)
}

/// The bytes of the rows of a descriptor, where they are not too many.
fn row_lens(descriptor: &[u8]) -> Option<Vec<usize>> {
    let (descriptor, _) = TensorDescriptor::decode(descriptor).ok()?;
    let rows = descriptor.buffers.iter();
    rows.map(|row| (row.byte_size <= MOST_DATA).then_some(row.byte_size as usize))
        .collect()
}

/// The data of a file without the gaps between buffers.
fn without_gaps(descriptor: &[u8], data: Vec<u8>, alignment: usize) -> Vec<u8> {
    let Some(lens) = row_lens(descriptor) else {
        return data;
    };
    let (mut buffers, mut at) = (Vec::new(), 0_usize);
    for len in lens {
        at = at.next_multiple_of(alignment);
        buffers.extend(part(&data, at, len));
        at += len;
    }
    buffers
}

/// Lays out the buffers of a part, each on a multiple of the alignment; its data as they are, where the rows do not say how.
fn lay(part: &Part, alignment: usize, bytes: &mut Vec<u8>) {
    let Some(lens) = row_lens(&part.descriptor) else {
        return bytes.extend(&part.data);
    };
    let mut data = part.data.as_slice();
    for len in lens {
        pad(bytes, alignment);
        let end = bytes.len() + len;
        bytes.extend(data.split_off(..len.min(data.len())).unwrap_or_default());
        bytes.resize(end, 0);
    }
}

/// Changes a number in header, index or trailer.
fn lie(bytes: &mut [u8], rng: &mut Rng) {
    let Some(index) = index_of(bytes) else { return };
    let trailer = bytes.len() - 40;
    let part = match rng.u8(..4) {
        0 => &mut bytes[..64],
        1 => &mut bytes[trailer..],
        _ => &mut bytes[index],
    };
    match rng.bool() {
        true => put_edge(part, rng),
        false => nudge(part, rng),
    }
}

/// States the checksum that the index has, where one is announced.
fn mend_checksum(bytes: &mut [u8]) {
    let Some(index) = index_of(bytes) else { return };
    let checksum = match bytes.get(12) {
        Some(flags) if flags & 4 != 0 => crc32c::crc32c(&bytes[index]),
        _ => 0,
    };
    let at = bytes.len() - 12;
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}
