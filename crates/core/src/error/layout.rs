use thiserror::Error;

/// A layout that does not fit its shape, or an address that a layout does not have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

impl LayoutError {
    /// The rule that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Placeholder => "",
        }
    }
}
