//! Tags that two parties agree on outside the format.

/// A tag in the private range `0xF0`–`0xFE`, in which element types, layouts, devices, memory classes and quantization schemes each have
/// their own private tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrivateTag(u8);

impl PrivateTag {
    /// `tag` if it is private, otherwise `None`.
    #[must_use]
    pub const fn new(tag: u8) -> Option<Self> {
        if matches!(tag, 0xF0..=0xFE) {
            Some(Self(tag))
        } else {
            None
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}
