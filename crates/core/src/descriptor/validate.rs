//! Whether a tensor can exist over a descriptor (decision 1), and where its elements are.

use super::TensorDescriptor;
use crate::buffer_plan::parameter_buffer;
use crate::layout::static_dimensions;
use crate::{
    BufferName, BufferTableError, ByteExtent, Error, Layout, LayoutError, QuantizationError,
    QuantizationScheme, Statistics, StorageWidth, element_count, validate_buffer_placement,
    validate_colocation,
};

/// Where the bits of one element are in buffer 0, all of them inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementAddress {
    /// The first byte to read.
    pub byte: u64,
    /// How many bytes to read: the element's own, the one it shares, or its 3-byte group (6 bits).
    pub length: u32,
    /// The element's lowest bit in the little-endian number that these bytes are; 0 for whole bytes.
    pub bit_shift: u32,
}

impl TensorDescriptor {
    /// Checks everything that can be known without the buffers' bytes and decides which of them may be touched: what a writer must not
    /// write, layout against shape, the buffer table against layout, quantization and sizes, colocation, `byte_offset`, the quantization
    /// against type and shape. A tensor exists only over a descriptor that passes.
    ///
    /// * A dimension that is not known (G7) and a private type without a size (S17) give no tensor. A composite's head may have both; it
    ///   owns no bytes.
    /// * Of a private layout only the buffers' number and placement, the type, the quantization and the shard can be checked.
    /// * A quantization section that cannot be read, be it private, unknown or malformed, does not stop a tensor that is only relayed
    ///   (S18, decision 1): [`scheme`](crate::QuantizationSection::scheme) says whether the codes can be given out as values. A
    ///   block-paged tensor with one is refused (P9).
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(&self) -> Result<(), Error> {
        self.check_writable()?;
        self.layout.check_shape(&self.shape)?;
        if self.layout.is_virtual() {
            return Ok(());
        }
        let scheme = match &self.quantization {
            Some(section) => section.scheme().ok(),
            None => None,
        };
        if let Some(scheme) = &scheme {
            scheme.validate(self.element_type, &self.shape)?;
        }
        static_dimensions(&self.shape)?;
        let width = self.element_width()?;
        self.check_table(scheme.as_ref())?;
        validate_colocation(&self.buffers)?;
        if !matches!(self.layout, Layout::Private(_)) {
            self.check_byte_offset()?;
            self.check_layout_sizes(width)?;
        }
        self.check_statistics()?;
        match scheme {
            Some(scheme) => self.check_parameter_sizes(&scheme, width),
            None => Ok(()),
        }
    }

    /// The width of one element in storage.
    ///
    /// # Errors
    /// [`BufferTableError::ElementSize`] (S17) for a private type whose width the format defines no storage for.
    pub fn element_width(&self) -> Result<StorageWidth, BufferTableError> {
        if let Some(width) = self.element_type.storage_width() {
            return Ok(width);
        }
        let bits = self
            .extension_type
            .map_or(0, |extension_type| extension_type.bit_width);
        StorageWidth::from_bits(bits).ok_or(BufferTableError::ElementSize { bits })
    }

    /// Where the element at `index` is in buffer 0 of a dense tensor.
    ///
    /// # Errors
    /// As [`Layout::element_offset`]; S17; an element whose bytes are not all in the buffer, which [`validate`](Self::validate) has
    /// excluded.
    pub fn element_address(&self, index: &[u64]) -> Result<ElementAddress, Error> {
        let offset = self.layout.element_offset(&self.shape, index)?;
        let width = self.element_width()?;
        let position = width.position(offset);
        let length = width.unit_bytes();
        let byte_size = self.buffers.first().map_or(0, |row| row.byte_size);
        // The position is less than 2^92 in size.
        let byte = position.byte.saturating_add(self.byte_offset.into());
        match u64::try_from(byte) {
            Ok(first)
                if first
                    .checked_add(length.into())
                    .is_some_and(|end| end <= byte_size) =>
            {
                Ok(ElementAddress {
                    byte: first,
                    length,
                    bit_shift: position.bit_shift,
                })
            }
            _ => Err(LayoutError::ElementOutsideBuffer {
                byte,
                length,
                byte_size,
            }
            .into()),
        }
    }

    /// B2, Q21, Q22. Behind a section that cannot be read there may be any number of parameter buffers.
    fn check_table(&self, scheme: Option<&QuantizationScheme>) -> Result<(), BufferTableError> {
        let rank = self.shape.len();
        let found = self.buffers.len();
        if self.quantization.is_some() && scheme.is_none() {
            let needed = self.layout.buffer_count(rank).unwrap_or(1);
            return if found < needed {
                Err(BufferTableError::Count {
                    layout: self.layout.name(),
                    needed,
                    found,
                })
            } else {
                Ok(())
            };
        }
        validate_buffer_placement(&self.layout, rank, scheme, found)
    }

    /// B5, B6.
    fn check_byte_offset(&self) -> Result<(), BufferTableError> {
        let byte_offset = self.byte_offset;
        if byte_offset == 0 {
            return Ok(());
        }
        if !self.layout.is_dense() {
            return Err(BufferTableError::ByteOffsetOnIndexed {
                layout: self.layout.name(),
                byte_offset,
            });
        }
        let byte_size = self.buffers.first().map_or(0, |row| row.byte_size);
        if byte_offset > byte_size {
            return Err(BufferTableError::ByteOffsetPastEnd {
                byte_offset,
                byte_size,
            });
        }
        Ok(())
    }

    /// B4, and S2 of `layouts.md`.
    fn check_layout_sizes(&self, width: StorageWidth) -> Result<(), Error> {
        if self.layout.is_dense() {
            return self.check_data_size(width);
        }
        let own = self.layout.buffer_count(self.shape.len()).unwrap_or(0);
        for (buffer, row) in self.buffers.iter().take(own).enumerate() {
            let planned = self.layout_buffer(width, buffer)?;
            if row.byte_size < planned.byte_size {
                return Err(BufferTableError::TooSmall {
                    buffer,
                    name: planned.name,
                    needed: planned.byte_size,
                    byte_size: row.byte_size,
                }
                .into());
            }
        }
        Ok(())
    }

    fn check_data_size(&self, width: StorageWidth) -> Result<(), Error> {
        let Some(extent) = self.layout.extent(&self.shape)? else {
            return Ok(());
        };
        let ByteExtent { before, after } = extent.bytes(width)?;
        let byte_offset = self.byte_offset;
        if before > byte_offset {
            return Err(BufferTableError::BeforeStart {
                needed: before,
                byte_offset,
            }
            .into());
        }
        let needed = self.data_size(after)?;
        let byte_size = self.buffers.first().map_or(0, |row| row.byte_size);
        if byte_size < needed {
            return Err(BufferTableError::TooSmall {
                buffer: 0,
                name: BufferName::Data,
                needed,
                byte_size,
            }
            .into());
        }
        Ok(())
    }

    /// B7.
    fn check_statistics(&self) -> Result<(), BufferTableError> {
        let counted = self.statistics.as_ref().and_then(Statistics::nnz);
        match (counted, self.layout.nnz()) {
            (Some(statistics), Some(layout)) if statistics != layout => {
                Err(BufferTableError::StatisticsNnz { statistics, layout })
            }
            _ => Ok(()),
        }
    }

    /// Q24, and decision 3 where the codes lie without gaps.
    fn check_parameter_sizes(
        &self,
        scheme: &QuantizationScheme,
        width: StorageWidth,
    ) -> Result<(), Error> {
        let (scales, zero_points) = scheme.parameter_buffers();
        let count = scheme.parameter_count(&self.shape, &self.layout)?;
        for index in [scales, zero_points].into_iter().flatten() {
            let buffer = usize::try_from(index).unwrap_or(usize::MAX);
            let (Some(planned), Some(row)) = (
                parameter_buffer(scheme, count, buffer)?,
                self.buffers.get(buffer),
            ) else {
                continue;
            };
            if row.byte_size != planned.byte_size {
                return Err(QuantizationError::ParameterSize {
                    buffer,
                    name: planned.name,
                    needed: planned.byte_size,
                    byte_size: row.byte_size,
                }
                .into());
            }
        }
        if self.layout.is_dense()
            && let Some(padded) = scheme.padded_count(&self.shape)
        {
            self.check_padding(width, padded)?;
        }
        Ok(())
    }

    fn check_padding(&self, width: StorageWidth, padded: u64) -> Result<(), Error> {
        let (Some(extent), Some(padded), Some(row)) = (
            self.layout.extent(&self.shape)?,
            width.byte_size(padded),
            self.buffers.first(),
        ) else {
            return Ok(());
        };
        let dense = element_count(&self.shape).and_then(|count| width.byte_size(count));
        let needed = extent.bytes(width)?.after;
        if Some(needed) == dense
            && padded != needed
            && row.byte_size.checked_sub(self.byte_offset) == Some(padded)
        {
            return Err(BufferTableError::PaddedBlocks { needed, padded }.into());
        }
        Ok(())
    }
}
