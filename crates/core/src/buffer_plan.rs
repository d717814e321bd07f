//! What each buffer of a tensor holds (`layouts.md` § 4–§ 6, `quantization.md` § 5).

use std::fmt;

use smallvec::SmallVec;

use crate::{
    ElementType, Error, IndexType, Layout, LayoutError, QuantizationError, QuantizationScheme,
    StorageWidth, TensorDescriptor, element_count,
};

/// What a buffer holds. `Display` gives the name of `layouts.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferName {
    /// The elements of a dense layout.
    Data,
    /// The stored elements of a sparse layout.
    Values,
    /// The coordinates of a coordinate list, entry by entry.
    Indices,
    /// The column of each stored element, row by row.
    ColIndices,
    /// Where each row begins in the column indices; one more than rows.
    RowPtr,
    /// The row of each stored element, column by column.
    RowIndices,
    /// Where each column begins in the row indices; one more than columns.
    ColPtr,
    /// Where the children of each fibre of the level above begin, by level.
    Pos(usize),
    /// The coordinates of a level.
    Crd(usize),
    /// The pages of a paged layout.
    PagePool,
    /// The pages of each sequence.
    BlockTable,
    /// Where each sequence begins in the block table; one more than sequences.
    SeqPtr,
    /// A buffer of a private layout.
    Private,
    /// Scales of a quantization scheme.
    Scales,
    /// Zero points of a quantization scheme.
    ZeroPoints,
    /// Scales and, directly behind them, zero points in one buffer.
    ScalesAndZeroPoints,
}

impl fmt::Display for BufferName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Data => "data",
            Self::Values => "values",
            Self::Indices => "indices",
            Self::ColIndices => "col_indices",
            Self::RowPtr => "row_ptr",
            Self::RowIndices => "row_indices",
            Self::ColPtr => "col_ptr",
            Self::Pos(level) => return write!(f, "pos_{level}"),
            Self::Crd(level) => return write!(f, "crd_{level}"),
            Self::PagePool => "page_pool",
            Self::BlockTable => "block_table",
            Self::SeqPtr => "seq_ptr",
            Self::Private => "private",
            Self::Scales => "scales",
            Self::ZeroPoints => "zero_points",
            Self::ScalesAndZeroPoints => "scales and zero_points",
        })
    }
}

/// What the descriptor says of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// What it holds.
    pub name: BufferName,
    /// The type of its elements, of the scales where it holds zero points too; `None` for a private layout.
    pub element_type: Option<ElementType>,
    /// Its elements, padding included, of the scales where it holds zero points too. `None` where only other buffers' bytes tell.
    pub count: Option<u64>,
    /// The least bytes, `byte_offset` included; for scales and zero points the exact ones (Q24).
    pub byte_size: u64,
}

impl TensorDescriptor {
    /// What each buffer holds, in table order, for a descriptor that [`validate`](Self::validate) accepts. Buffers behind the layout's own
    /// that no readable scheme names are left out, and so are all of a private layout that are not parameters.
    ///
    /// # Errors
    /// A size that does not fit 64 bits, or that is not known (G7, S17).
    pub fn buffer_plan(&self) -> Result<SmallVec<[PlannedBuffer; 4]>, Error> {
        let width = self.element_width()?;
        let scheme = self
            .quantization
            .as_ref()
            .and_then(|section| section.scheme().ok());
        let own = match self.layout.buffer_count(self.shape.len()) {
            Some(own) => own,
            None => self
                .buffers
                .len()
                .saturating_sub(scheme.map_or(0, |scheme| scheme.parameter_buffer_count())),
        };
        let mut plan: SmallVec<[PlannedBuffer; 4]> = SmallVec::new();
        for index in 0..own {
            plan.push(self.layout_buffer(width, index)?);
        }
        if let Some(scheme) = scheme {
            let count = scheme.parameter_count(&self.shape, &self.layout)?;
            for row in own..self.buffers.len() {
                plan.extend(parameter_buffer(&scheme, count, row)?);
            }
        }
        Ok(plan)
    }

    /// The layout's own buffer `index`.
    pub(crate) fn layout_buffer(
        &self,
        width: StorageWidth,
        index: usize,
    ) -> Result<PlannedBuffer, LayoutError> {
        let tensor = |name, count: Option<u64>| {
            let count = count.ok_or(LayoutError::ExtentOverflow)?;
            Ok(PlannedBuffer {
                name,
                element_type: Some(self.element_type),
                count: Some(count),
                byte_size: width.byte_size(count).ok_or(LayoutError::ExtentOverflow)?,
            })
        };
        // `least` is what is there at any rate where the count is not known.
        let indices = |name, element_type, count: Option<u64>, least: u64| {
            let bytes = if element_type == ElementType::Uint32 {
                4
            } else {
                8
            };
            Ok(PlannedBuffer {
                name,
                element_type: Some(element_type),
                count,
                byte_size: count
                    .unwrap_or(least)
                    .checked_mul(bytes)
                    .ok_or(LayoutError::ExtentOverflow)?,
            })
        };
        let known = |name, count: Option<u64>| {
            let count = count.ok_or(LayoutError::ExtentOverflow)?;
            indices(name, ElementType::Uint64, Some(count), 0)
        };
        let pointers = |dimension: usize| self.shape.get(dimension)?.checked_add(1);
        match (&self.layout, index) {
            (Layout::Coo(coo), 1) => {
                let rank = u64::try_from(self.shape.len()).ok();
                let count = rank.and_then(|rank| coo.nnz.checked_mul(rank));
                known(BufferName::Indices, count)
            }
            (Layout::Csr { nnz }, 1) => known(BufferName::ColIndices, Some(*nnz)),
            (Layout::Csr { .. }, 2) => known(BufferName::RowPtr, pointers(0)),
            (Layout::Csc { nnz }, 1) => known(BufferName::RowIndices, Some(*nnz)),
            (Layout::Csc { .. }, 2) => known(BufferName::ColPtr, pointers(1)),
            (Layout::Csf(csf), 1..) => {
                let level = index.saturating_sub(1) >> 1;
                let is_last = level.saturating_add(1) == self.shape.len();
                if index & 1 == 0 {
                    let count = is_last.then_some(csf.nnz);
                    indices(BufferName::Crd(level), ElementType::Uint64, count, 0)
                } else {
                    let count = (level == 0).then_some(2);
                    indices(BufferName::Pos(level), ElementType::Uint64, count, 1)
                }
            }
            (Layout::BlockPaged(paged), 0) => {
                let page_size = u64::from(paged.page_size);
                let token = self.shape.get(1..).unwrap_or_default();
                let count = element_count(token)
                    .and_then(|token| paged.num_pages.checked_mul(page_size)?.checked_mul(token));
                tensor(BufferName::PagePool, count)
            }
            (Layout::BlockPaged(paged), _) => {
                let element_type = match paged.index_type {
                    IndexType::Uint32 => ElementType::Uint32,
                    IndexType::Uint64 => ElementType::Uint64,
                };
                if index == 1 {
                    indices(BufferName::BlockTable, element_type, None, 0)
                } else {
                    let count = u64::from(paged.num_seqs).checked_add(1);
                    indices(BufferName::SeqPtr, element_type, count, 0)
                }
            }
            (Layout::Private(_), _) => Ok(PlannedBuffer {
                name: BufferName::Private,
                element_type: None,
                count: None,
                byte_size: 0,
            }),
            (layout, _) => match layout.nnz() {
                Some(nnz) => tensor(BufferName::Values, Some(nnz)),
                None => self.data_buffer(width),
            },
        }
    }

    /// Buffer 0 of a dense layout.
    fn data_buffer(&self, width: StorageWidth) -> Result<PlannedBuffer, LayoutError> {
        let extent = self.layout.extent(&self.shape)?;
        let (count, after) = match extent {
            Some(extent) => (extent.element_count(), extent.bytes(width)?.after),
            None => (Some(0), 0),
        };
        Ok(PlannedBuffer {
            name: BufferName::Data,
            element_type: Some(self.element_type),
            count,
            byte_size: self.data_size(after)?,
        })
    }

    /// The least bytes of buffer 0 of a dense layout whose elements take `after` from `byte_offset` on.
    pub(crate) fn data_size(&self, after: u64) -> Result<u64, LayoutError> {
        self.byte_offset
            .checked_add(after)
            .ok_or(LayoutError::ExtentOverflow)
    }
}

/// What row `row` holds if it is a parameter buffer of `scheme`, which has `count` scales.
pub(crate) fn parameter_buffer(
    scheme: &QuantizationScheme,
    count: u64,
    row: usize,
) -> Result<Option<PlannedBuffer>, QuantizationError> {
    let (scales, zero_points) = scheme.parameter_buffers();
    let is = |index: Option<u32>| index.is_some_and(|index| usize::try_from(index) == Ok(row));
    let name = match (is(scales), is(zero_points)) {
        (true, true) => BufferName::ScalesAndZeroPoints,
        (true, false) => BufferName::Scales,
        (false, true) => BufferName::ZeroPoints,
        (false, false) => return Ok(None),
    };
    let scale = scheme.scale_type();
    let scale_bytes = scale
        .storage_width()
        .map_or(0, |width| u64::from(width.unit_bytes()));
    let (element_type, bytes) = match name {
        BufferName::ZeroPoints => (ElementType::Int32, 4),
        BufferName::ScalesAndZeroPoints => (scale, scale_bytes.saturating_add(4)),
        _ => (scale, scale_bytes),
    };
    Ok(Some(PlannedBuffer {
        name,
        element_type: Some(element_type),
        count: Some(count),
        byte_size: count
            .checked_mul(bytes)
            .ok_or(QuantizationError::ParameterOverflow)?,
    }))
}
