//! From elements to bytes (`layouts.md` § 3, `descriptor.md` § 5).

/// The width of one stored element: 1, 2, 4 or 6 bits, or a whole number of bytes.
///
/// Elements of less than a byte are packed from the lowest bit up; four 6-bit elements share a group of three bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StorageWidth(u32);

/// Where an element's bits begin, in relation to the byte at which element 0 begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BitPosition {
    /// The first byte to read: the element's own, the one it shares, or the first of its 3-byte group (6 bits).
    pub byte: i128,
    /// The lowest bit of the element in the little-endian number that begins there; 0 for whole bytes.
    pub bit_shift: u32,
}

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

    /// The least unit that is stored, as elements and bytes: a byte of packed elements, a group of four 6-bit ones, or one element.
    const fn unit(self) -> (u32, u32) {
        match self.0 {
            6 => (4, 3),
            1 => (8, 1),
            2 => (4, 1),
            4 => (2, 1),
            bits => (1, bits / 8),
        }
    }

    /// The bytes that must be read to have one element: its unit's.
    #[must_use]
    pub const fn unit_bytes(self) -> u32 {
        self.unit().1
    }

    /// The bytes that `count` packed elements take, the last unit whole (decision 11); `None` if they do not fit 64 bits.
    #[must_use]
    pub const fn byte_size(self, count: u64) -> Option<u64> {
        let (elements, bytes) = self.unit();
        count.div_ceil(elements as u64).checked_mul(bytes as u64)
    }

    /// Where element `offset` lies; a negative one lies before the byte at which element 0 begins.
    #[must_use]
    pub fn position(self, offset: i64) -> BitPosition {
        let (elements, bytes) = self.unit();
        let elements = i64::from(elements);
        // A unit has 1 to 8 elements, and the product stays below 2^63 · 2^29.
        let unit = offset.div_euclid(elements);
        let within = u32::try_from(offset.rem_euclid(elements)).unwrap_or(0);
        let byte = i128::from(unit).saturating_mul(bytes.into());
        BitPosition {
            byte,
            bit_shift: if self.is_packed() {
                within.saturating_mul(self.0)
            } else {
                0
            },
        }
    }
}
