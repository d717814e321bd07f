//! What a block-paged layout asks of its quantization (`layouts.md` § 10).

use super::BlockPaged;
use crate::{DescriptorError, QuantizationScheme};

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
