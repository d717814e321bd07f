//! From elements to bytes (`layouts.md` § 3, `descriptor.md` § 5).

/// The width of one stored element: 1, 2, 4 or 6 bits, or a whole number of bytes.
///
/// Elements of less than a byte are packed from the lowest bit up; four 6-bit elements share a group of three bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StorageWidth(u32);

impl StorageWidth {
    /// A width in bits; `None` where the format defines no storage for it (S17: a private type of, say, 12 bits).
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            1 | 2 | 4 | 6 => Some(Self(bits)),
            0 => None,
            _ if bits.is_multiple_of(8) => Some(Self(bits)),
            _ => None,
        }
    }

    /// The width in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether several elements share a byte.
    #[must_use]
    pub const fn is_packed(self) -> bool {
        self.0 < 8
    }
}
