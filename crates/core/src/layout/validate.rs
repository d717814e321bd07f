//! Layouts against shapes (`layouts.md` § 11).

use super::{CompositionRule, Layout};
use crate::{DYNAMIC, DescriptorError, Error, LayoutError, MAX_RANK};

impl Layout {
    /// Checks that a tensor of `shape` can have this layout: the parameters by themselves (T1–T5, M1, M2, H1, H2, F2, C5), and against
    /// the shape (G6, G8, S1, T6, M3, M4, H3–H5, O1, R1, K1, F1, P1–P3, C10). Dimensions that are not known yet fit.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(&self, shape: &[u64]) -> Result<(), Error> {
        let rank = shape.len();
        if rank > MAX_RANK {
            return Err(DescriptorError::Rank { rank }.into());
        }
        self.check_parameters(rank)?;
        self.check_shape(shape).map_err(Error::from)
    }

    /// The second half of [`validate`](Self::validate), for parameters that passed the first.
    pub(crate) fn check_shape(&self, shape: &[u64]) -> Result<(), LayoutError> {
        let rank = shape.len();
        let needs = |fits: bool, needed| {
            if fits {
                Ok(())
            } else {
                Err(LayoutError::Rank {
                    layout: self.name(),
                    needed,
                    rank,
                })
            }
        };
        match self {
            Self::RowMajor | Self::Private(_) => Ok(()),
            Self::ColumnMajor | Self::Strided(_) | Self::Coo(_) => needs(rank >= 1, "at least 1"),
            Self::Csr { .. } | Self::Csc { .. } => needs(rank == 2, "2"),
            Self::Csf(_) => needs(rank >= 3, "at least 3"),
            Self::Tiled(level) => level.validate(),
            Self::Morton(morton) => morton.validate(shape),
            Self::Hilbert(hilbert) => hilbert.validate(shape),
            Self::BlockPaged(paged) => needs(rank == 3, "3").and(match paged {
                paged if paged.page_size == 0 => Err(LayoutError::PageSize),
                paged if paged.paged_axis != 0 => Err(LayoutError::PagedAxis {
                    axis: paged.paged_axis,
                }),
                _ => Ok(()),
            }),
            Self::Composite(head) => match shape.iter().position(|&dim| dim == DYNAMIC) {
                Some(dimension) if head.rule != CompositionRule::Group => {
                    Err(LayoutError::DynamicHead { dimension })
                }
                _ => Ok(()),
            },
        }
    }
}
