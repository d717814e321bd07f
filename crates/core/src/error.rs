//! What can be wrong with a descriptor, a layout, a scheme, a buffer table or a composite: one variant per cause, with its numbers.

use thiserror::Error;

/// Bytes that are no descriptor: the R rules, and S1, S2, S12, S13.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

/// A layout that does not fit its shape, or an address that a layout does not have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

/// A quantization section that cannot be read, or a scheme that does not fit its tensor: the Q rules.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum QuantizationError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

/// A buffer table that its descriptor cannot have: counts, indices, colocation, sizes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BufferTableError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

/// Members that do not make the composite that their head declares: the A rules, C10, C11.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompositeError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

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
    /// Members that do not fit.
    #[error(transparent)]
    Composite(#[from] CompositeError),
}
