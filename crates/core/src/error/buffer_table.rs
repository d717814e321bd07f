use thiserror::Error;

/// A buffer table that its descriptor cannot have: counts, indices, colocation, sizes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BufferTableError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

impl BufferTableError {
    /// The rule that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Placeholder => "",
        }
    }
}
