//! What can be wrong with a descriptor, a layout, a scheme, a buffer table or a composite: one variant per cause, with its numbers.

mod buffer_table;
mod composite;
mod contents;
mod descriptor;
mod layout;
mod quantization;

use thiserror::Error;

pub use buffer_table::BufferTableError;
pub use composite::CompositeError;
pub use contents::ContentsError;
pub use descriptor::DescriptorError;
pub use layout::LayoutError;
pub use quantization::QuantizationError;

/// Any error of this crate.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that are no descriptor.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// A layout that does not fit.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A quantization that does not fit.
    #[error(transparent)]
    Quantization(#[from] QuantizationError),
    /// A buffer table that does not fit.
    #[error(transparent)]
    BufferTable(#[from] BufferTableError),
    /// Index or parameter bytes that do not fit.
    #[error(transparent)]
    Contents(#[from] ContentsError),
    /// Members that do not fit.
    #[error(transparent)]
    Composite(#[from] CompositeError),
}

impl Error {
    /// The number of the rule of the format reference that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Descriptor(error) => error.rule(),
            Self::Layout(error) => error.rule(),
            Self::Quantization(error) => error.rule(),
            Self::BufferTable(error) => error.rule(),
            Self::Contents(error) => error.rule(),
            Self::Composite(error) => error.rule(),
        }
    }
}
