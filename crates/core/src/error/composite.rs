use thiserror::Error;

/// Members that do not make the composite that their head declares: the A rules, C10, C11.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompositeError {
    /// Placeholder.
    #[error("placeholder")]
    Placeholder,
}

impl CompositeError {
    /// The rule that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Placeholder => "",
        }
    }
}
