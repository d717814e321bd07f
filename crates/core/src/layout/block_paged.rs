//! What a block-paged layout asks of its quantization and of the contents of its index buffers (`layouts.md` § 6, § 10).

use super::BlockPaged;
use crate::{DescriptorError, LayoutError, QuantizationScheme};

impl BlockPaged {
    /// Checks that a tensor with this layout can be quantized by `scheme`: not per channel along the paged axis (P7), and per block only by
    /// its pages (P8).
    ///
    /// # Errors
    /// The rule that does not hold.
    pub fn validate_scheme(&self, scheme: &QuantizationScheme) -> Result<(), DescriptorError> {
        match scheme {
            QuantizationScheme::ChannelAffine(channel) if channel.axis == 0 => {
                Err(DescriptorError::PagedChannelAxis)
            }
            QuantizationScheme::BlockAffine(block)
                if block.axis != 0 || block.block_size != self.page_size =>
            {
                Err(DescriptorError::PagedBlocks {
                    axis: block.axis,
                    block_size: block.block_size,
                    page_size: self.page_size,
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks the contents of the two index buffers: the sequence pointers begin with 0, never decrease and end with the length of the
    /// block table (P10–P12), whose pages are all in the pool (P13).
    ///
    /// # Errors
    /// The first entry that does not hold, sequence pointers first.
    pub fn validate_indices(
        &self,
        sequence_pointers: &[u64],
        block_table: &[u64],
    ) -> Result<(), LayoutError> {
        let needed = u64::from(self.num_seqs).saturating_add(1);
        if u64::try_from(sequence_pointers.len()) != Ok(needed) {
            return Err(LayoutError::SequencePointerCount {
                found: sequence_pointers.len(),
                needed,
            });
        }
        if let Some(&first) = sequence_pointers.first()
            && first != 0
        {
            return Err(LayoutError::FirstSequencePointer { first });
        }
        for (sequence, pair) in sequence_pointers.windows(2).enumerate() {
            if let &[from, to] = pair
                && from > to
            {
                return Err(LayoutError::SequencePointerDecreases { sequence, from, to });
            }
        }
        if let Some(&last) = sequence_pointers.last()
            && u64::try_from(block_table.len()) != Ok(last)
        {
            return Err(LayoutError::BlockTableLength {
                last,
                found: block_table.len(),
            });
        }
        match block_table.iter().position(|&page| page >= self.num_pages) {
            Some(entry) => Err(LayoutError::PageOutOfPool {
                entry,
                page: block_table.get(entry).copied().unwrap_or_default(),
                num_pages: self.num_pages,
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockAffine, ChannelAffine, IndexType, KvRole, Mxfp, ScaleType, TensorAffine};

    const PAGED: BlockPaged = BlockPaged {
        page_size: 4,
        num_pages: 3,
        paged_axis: 0,
        num_seqs: 2,
        kv_role: KvRole::Key,
        layer_index: None,
        index_type: IndexType::Uint32,
    };

    fn rule(sequence_pointers: &[u64], block_table: &[u64]) -> &'static str {
        PAGED
            .validate_indices(sequence_pointers, block_table)
            .map_or_else(|error| error.rule(), |()| "")
    }

    #[test]
    fn p10_to_p13_index_contents() {
        assert_eq!(rule(&[0, 1, 3], &[0, 1, 2]), "");
        assert_eq!(
            rule(&[0, 0, 2], &[1, 1]),
            "",
            "an empty sequence, a shared page"
        );
        assert_eq!(rule(&[0, 0, 0], &[]), "");
        assert_eq!(rule(&[0, 1], &[0]), "P10");
        assert_eq!(rule(&[0, 1, 2, 3], &[0, 1, 2]), "P10");
        assert_eq!(rule(&[], &[]), "P10");
        assert_eq!(rule(&[1, 1, 3], &[0, 1, 2]), "P10");
        assert_eq!(rule(&[0, 2, 1], &[0]), "P11");
        assert_eq!(rule(&[0, 1, 3], &[0, 1]), "P12");
        assert_eq!(rule(&[0, 1, 2], &[0, 1, 2]), "P12");
        assert_eq!(rule(&[0, 1, 3], &[0, 1, 3]), "P13");
    }

    #[test]
    fn p7_p8_schemes_of_a_paged_tensor() {
        let rule = |scheme| {
            PAGED
                .validate_scheme(&scheme)
                .map_or_else(|error| error.layout_rule(), |()| None)
        };
        let channel = |axis| {
            QuantizationScheme::ChannelAffine(ChannelAffine {
                axis,
                scale_buffer: 3,
                zero_point_buffer: None,
            })
        };
        let block = |axis, block_size| {
            QuantizationScheme::BlockAffine(BlockAffine {
                axis,
                block_size,
                scale_buffer: 3,
                zero_point_buffer: None,
                scale_type: ScaleType::Float32,
            })
        };
        assert_eq!(rule(channel(0)), Some("P7"));
        assert_eq!(rule(channel(1)), None);
        assert_eq!(rule(block(0, 4)), None);
        assert_eq!(rule(block(1, 4)), Some("P8"));
        assert_eq!(rule(block(0, 8)), Some("P8"));
        assert_eq!(
            rule(QuantizationScheme::TensorAffine(TensorAffine {
                scale: 1.0,
                zero_point: 0
            })),
            None
        );
        assert_eq!(
            rule(QuantizationScheme::Mxfp(Mxfp {
                axis: 0,
                block_size: 32,
                scale_buffer: 3
            })),
            None
        );
    }
}
