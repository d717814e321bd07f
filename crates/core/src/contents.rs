//! The bytes of index and parameter buffers against their descriptor (decision 2): O3–O5, R2–R5, K2–K5, F4–F8, P10–P14, Q25, Q26.

use std::cmp::Ordering;

use crate::quantization::is_code;
use crate::{
    BlockPaged, BufferName, ContentsError, Coo, Csf, ElementType, Error, IndexType, Layout,
    QuantizationScheme, TensorDescriptor,
};

/// Scans the index buffers of a sparse or paged tensor and the parameter buffers of a quantized one. `buffers` are the bytes of the rows of
/// `descriptor`, which [`validate`](TensorDescriptor::validate) accepts, and may begin at any address.
///
/// One pass over the bytes; only a coordinate list that is not in order costs a sort. Nothing is read but slices within their bounds, so
/// a descriptor that was not validated gives some error or none. Layouts without indices, private ones and composite heads have nothing to
/// scan. The scales of a paged tensor's slots are not judged: the slots that no token has used hold anything.
///
/// # Errors
/// The first entry that breaks a rule.
pub fn validate_contents(descriptor: &TensorDescriptor, buffers: &[&[u8]]) -> Result<(), Error> {
    let scan = Scan {
        shape: &descriptor.shape,
        layout: descriptor.layout.name(),
        buffers,
    };
    match &descriptor.layout {
        Layout::Coo(coo) => scan.coo(coo)?,
        Layout::Csr { nnz } => {
            let names = (BufferName::RowPtr, BufferName::ColIndices);
            scan.compressed(*nnz, (0, 1), names)?;
        }
        Layout::Csc { nnz } => {
            let names = (BufferName::ColPtr, BufferName::RowIndices);
            scan.compressed(*nnz, (1, 0), names)?;
        }
        Layout::Csf(csf) => scan.csf(csf)?,
        Layout::BlockPaged(paged) => scan.paged(paged)?,
        _ => {}
    }
    if let Some(section) = &descriptor.quantization
        && let Ok(scheme) = section.scheme()
    {
        parameters(descriptor, &scheme, buffers)?;
    }
    Ok(())
}

impl BlockPaged {
    /// Checks the entries of the two index buffers: the sequence pointers begin with 0, never decrease and end with the length of the
    /// block table (P10–P12), whose pages are all in the pool (P13).
    ///
    /// # Errors
    /// The first entry that does not hold, sequence pointers first.
    pub fn validate_indices(
        &self,
        sequence_pointers: &[u64],
        block_table: &[u64],
    ) -> Result<(), Error> {
        let bytes = |numbers: &[u64]| -> Vec<u8> {
            numbers
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect()
        };
        let scan = Scan {
            shape: &[],
            layout: Layout::BlockPaged(*self).name(),
            buffers: &[&[], &bytes(block_table), &bytes(sequence_pointers)],
        };
        scan.pages(self, 8)?;
        Ok(())
    }
}

/// Little-endian unsigned numbers at any address.
#[derive(Clone, Copy)]
struct Indices<'a> {
    name: BufferName,
    bytes: &'a [u8],
    width: usize,
}

impl<'a> Indices<'a> {
    fn len(&self) -> u64 {
        let entries = self.bytes.len().checked_div(self.width).unwrap_or(0);
        u64::try_from(entries).unwrap_or(u64::MAX)
    }

    /// The entries `range.0 .. range.1`, as far as they are there.
    fn range(&self, range: (u64, u64)) -> impl Iterator<Item = u64> + use<'a> {
        let width = self.width;
        let byte = |entry: u64| {
            usize::try_from(entry)
                .ok()
                .and_then(|entry| entry.checked_mul(width))
                .map_or(self.bytes.len(), |byte| byte.min(self.bytes.len()))
        };
        let bytes = self.bytes.get(byte(range.0)..byte(range.1));
        bytes.unwrap_or_default().chunks_exact(width).map(number)
    }
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(number)
}

struct Scan<'a> {
    shape: &'a [u64],
    layout: &'static str,
    buffers: &'a [&'a [u8]],
}

impl<'a> Scan<'a> {
    /// Buffer `index`, with at least `needed` entries.
    fn indices(
        &self,
        index: usize,
        name: BufferName,
        width: usize,
        needed: u64,
    ) -> Result<Indices<'a>, ContentsError> {
        let bytes = self.buffers.get(index).copied().unwrap_or_default();
        let indices = Indices { name, bytes, width };
        let found = indices.len();
        if found < needed {
            return Err(ContentsError::Short {
                layout: self.layout,
                buffer: name,
                needed,
                found,
            });
        }
        Ok(indices)
    }

    fn dimension(&self, dimension: usize) -> u64 {
        self.shape.get(dimension).copied().unwrap_or(0)
    }

    fn bounded(
        &self,
        buffer: BufferName,
        at: u64,
        coordinate: u64,
        dimension: usize,
    ) -> Result<(), ContentsError> {
        let size = self.dimension(dimension);
        if coordinate < size {
            return Ok(());
        }
        Err(ContentsError::CoordinateOutOfBounds {
            layout: self.layout,
            buffer,
            at,
            coordinate,
            dimension,
            size,
        })
    }

    /// O3, O4, O5.
    fn coo(&self, coo: &Coo) -> Result<(), ContentsError> {
        let rank = self.shape.len();
        let width = rank.saturating_mul(8).max(1);
        let name = BufferName::Indices;
        let entries = self.indices(1, name, width, coo.nnz)?;
        let count = usize::try_from(coo.nnz).unwrap_or(usize::MAX);
        let tuples = || entries.bytes.chunks_exact(width).take(count);
        let mut is_increasing = true;
        let mut before: Option<&[u8]> = None;
        for (entry, tuple) in (0_u64..).zip(tuples()) {
            for (dimension, coordinate) in tuple.chunks_exact(8).map(number).enumerate() {
                let number = entry.saturating_mul(u64::try_from(rank).unwrap_or(0));
                let at = number.saturating_add(u64::try_from(dimension).unwrap_or(0));
                self.bounded(name, at, coordinate, dimension)?;
            }
            match before.map(|before| compare(before, tuple)) {
                None | Some(Ordering::Less) => {}
                Some(Ordering::Equal) => {
                    return Err(ContentsError::DuplicateEntry {
                        first: entry.saturating_sub(1),
                        second: entry,
                    });
                }
                Some(Ordering::Greater) if coo.is_sorted => {
                    return Err(ContentsError::NotSorted { at: entry });
                }
                Some(Ordering::Greater) => is_increasing = false,
            }
            before = Some(tuple);
        }
        if is_increasing {
            return Ok(());
        }
        // As many as there are bytes for.
        let mut sorted: Vec<(u64, &[u8])> = (0..).zip(tuples()).collect();
        sorted.sort_unstable_by(|(a, left), (b, right)| compare(left, right).then(a.cmp(b)));
        for pair in sorted.windows(2) {
            if let [(first, left), (second, right)] = pair
                && left == right
            {
                return Err(ContentsError::DuplicateEntry {
                    first: *first,
                    second: *second,
                });
            }
        }
        Ok(())
    }

    /// R2–R5, K2–K5: `axes` are the compressed dimension and the other.
    fn compressed(
        &self,
        nnz: u64,
        axes: (usize, usize),
        names: (BufferName, BufferName),
    ) -> Result<(), ContentsError> {
        let coordinates = self.indices(1, names.1, 8, nnz)?;
        let slices = self.dimension(axes.0);
        let pointers = self.indices(2, names.0, 8, slices.saturating_add(1))?;
        let at = |entry: u64| pointers.range((entry, entry.saturating_add(1))).next();
        if let (Some(0), Some(end)) = (at(0), at(slices))
            && end != nnz
        {
            return Err(self.end(names.0, end, nnz));
        }
        self.pointers(pointers, slices)?;
        self.slices(pointers, slices, coordinates, axes.1)
    }

    /// Checks the `slices + 1` pointers to begin at 0 and never to decrease; gives the last.
    fn pointers(&self, pointers: Indices<'_>, slices: u64) -> Result<u64, ContentsError> {
        let mut before = 0;
        for (at, found) in (0..).zip(pointers.range((0, slices.saturating_add(1)))) {
            if at == 0 && found != 0 {
                return Err(ContentsError::PointerStart {
                    layout: self.layout,
                    buffer: pointers.name,
                    found,
                });
            }
            if found < before {
                return Err(ContentsError::PointerDecreases {
                    layout: self.layout,
                    buffer: pointers.name,
                    at,
                    found,
                    before,
                });
            }
            before = found;
        }
        Ok(before)
    }

    fn end(&self, buffer: BufferName, found: u64, needed: u64) -> ContentsError {
        ContentsError::PointerEnd {
            layout: self.layout,
            buffer,
            found,
            needed,
        }
    }

    /// Checks the coordinates of each slice to increase and to lie in `dimension`.
    fn slices(
        &self,
        pointers: Indices<'_>,
        slices: u64,
        coordinates: Indices<'_>,
        dimension: usize,
    ) -> Result<(), ContentsError> {
        let mut start = 0;
        for end in pointers.range((1, slices.saturating_add(1))) {
            let mut before = None;
            for (at, coordinate) in (start..).zip(coordinates.range((start, end))) {
                self.bounded(coordinates.name, at, coordinate, dimension)?;
                if before.is_some_and(|before| coordinate <= before) {
                    return Err(ContentsError::NotIncreasing {
                        layout: self.layout,
                        buffer: coordinates.name,
                        at,
                        coordinate,
                    });
                }
                before = Some(coordinate);
            }
            start = end;
        }
        Ok(())
    }

    /// F4–F8, level by level: the last pointer of a level counts its coordinates, which are the slices of the next.
    fn csf(&self, csf: &Csf) -> Result<(), ContentsError> {
        let mut fibres = 1_u64;
        let mut rows = 1..;
        for (level, &dimension) in csf.mode_order.iter().enumerate() {
            let (Some(pos), Some(crd)) = (rows.next(), rows.next()) else {
                break;
            };
            let needed = fibres.saturating_add(1);
            let pointers = self.indices(pos, BufferName::Pos(level), 8, needed)?;
            let end = self.pointers(pointers, fibres)?;
            let is_last = level.saturating_add(1) == csf.mode_order.len();
            if is_last && end != csf.nnz {
                return Err(self.end(pointers.name, end, csf.nnz));
            }
            let coordinates = self.indices(crd, BufferName::Crd(level), 8, end)?;
            let dimension = usize::try_from(dimension).unwrap_or(usize::MAX);
            self.slices(pointers, fibres, coordinates, dimension)?;
            fibres = end;
        }
        Ok(())
    }

    /// P10–P13, for indices of `width` bytes; gives the pointers of the sequences, one more than there are.
    fn pages(&self, paged: &BlockPaged, width: usize) -> Result<Indices<'a>, ContentsError> {
        let sequences = u64::from(paged.num_seqs);
        let needed = sequences.saturating_add(1);
        let pointers = self.indices(2, BufferName::SeqPtr, width, needed)?;
        let end = self.pointers(pointers, sequences)?;
        let table = self.indices(1, BufferName::BlockTable, width, 0)?;
        if end != table.len() {
            return Err(self.end(pointers.name, end, table.len()));
        }
        for (at, page) in (0..).zip(table.range((0, end))) {
            if page >= paged.num_pages {
                return Err(ContentsError::PageOutOfBounds {
                    at,
                    page,
                    num_pages: paged.num_pages,
                });
            }
        }
        Ok(pointers)
    }

    /// P10–P14.
    fn paged(&self, paged: &BlockPaged) -> Result<(), ContentsError> {
        let width = match paged.index_type {
            IndexType::Uint32 => 4,
            IndexType::Uint64 => 8,
        };
        let pointers = self.pages(paged, width)?;
        let sequences = u64::from(paged.num_seqs);
        let mut filled = 0_u128;
        let mut pages = 0;
        for end in pointers.range((1, sequences.saturating_add(1))) {
            filled = filled.saturating_add((end > pages).into());
            pages = end;
        }
        // A sequence's last page holds 1 to page_size tokens, every other page page_size.
        let page_size = u128::from(paged.page_size);
        let most = u128::from(pages).saturating_mul(page_size);
        let least = most.saturating_sub(filled.saturating_mul(page_size.saturating_sub(1)));
        let tokens = self.dimension(0);
        if (least..=most).contains(&u128::from(tokens)) {
            return Ok(());
        }
        Err(ContentsError::TokenCount {
            least,
            most,
            tokens,
        })
    }
}

/// Tuples in the order of their numbers, dimension 0 first.
fn compare(left: &[u8], right: &[u8]) -> Ordering {
    left.chunks_exact(8)
        .map(number)
        .cmp(right.chunks_exact(8).map(number))
}

/// Q25, Q26.
fn parameters(
    descriptor: &TensorDescriptor,
    scheme: &QuantizationScheme,
    buffers: &[&[u8]],
) -> Result<(), Error> {
    let is_by_slot = matches!(
        (scheme, &descriptor.layout),
        (QuantizationScheme::BlockAffine(_), Layout::BlockPaged(_))
    );
    if is_by_slot {
        return Ok(());
    }
    let count = scheme.parameter_count(&descriptor.shape, &descriptor.layout)?;
    let entries = |index: Option<u32>, name, width, skipped: usize| {
        let bytes = index
            .and_then(|index| buffers.get(usize::try_from(index).ok()?)?.get(skipped..))
            .unwrap_or_default();
        Indices { name, bytes, width }.range((0, count))
    };
    let (scales, zero_points) = scheme.parameter_buffers();
    let scale_type = scheme.scale_type();
    let width = match scale_type {
        ElementType::Float8E8m0 => 1,
        ElementType::Float16 | ElementType::Bfloat16 => 2,
        _ => 4,
    };
    for (at, bits) in (0..).zip(entries(scales, BufferName::Scales, width, 0)) {
        let bits = u32::try_from(bits).unwrap_or(u32::MAX);
        if !is_scale(scheme, scale_type, bits) {
            return Err(ContentsError::Scale { at, bits }.into());
        }
    }
    // In a shared buffer the zero points follow the scales.
    let skipped = if zero_points == scales {
        usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(width))
            .unwrap_or(usize::MAX)
    } else {
        0
    };
    for (at, bits) in (0..).zip(entries(zero_points, BufferName::ZeroPoints, 4, skipped)) {
        let zero_point = u32::try_from(bits).unwrap_or(0).cast_signed();
        if !is_code(descriptor.element_type, zero_point) {
            return Err(ContentsError::ZeroPoint { at, zero_point }.into());
        }
    }
    Ok(())
}

/// Whether `bits` of `scale_type` are a scale that `scheme` may have (Q25).
fn is_scale(scheme: &QuantizationScheme, scale_type: ElementType, bits: u32) -> bool {
    let (sign, exponent) = match scale_type {
        ElementType::Float8E8m0 => return !matches!(bits, 0x00 | 0xFF),
        ElementType::Float16 => (0x8000, 0x7C00),
        ElementType::Bfloat16 => (0x8000, 0x7F80),
        _ => (0x8000_0000, 0x7F80_0000),
    };
    let is_finite = bits & exponent != exponent;
    let is_zero = bits & !sign == 0;
    let is_negative = bits & sign != 0;
    let fits = match scheme {
        // −0 is 0.
        QuantizationScheme::Nf4(_) => is_zero || !is_negative,
        _ => !is_zero,
    };
    is_finite && fits
}
