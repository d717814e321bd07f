use thiserror::Error;

use crate::BufferName;

/// Index or parameter bytes that do not fit their descriptor: O3–O5, R2–R5, K2–K5, F4–F8, P10–P14, Q25, Q26.
///
/// `buffer` is what the buffer holds, `at` the number of an entry in it.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ContentsError {
    /// Fewer bytes at hand than the entries take.
    #[error("{buffer} holds {found} entries, and {needed} are asked of it")]
    Short {
        /// The layout's name.
        layout: &'static str,
        /// The buffer.
        buffer: BufferName,
        /// Entries that the layout or an earlier buffer asks for.
        needed: u64,
        /// Entries at hand.
        found: u64,
    },
    /// A coordinate outside its dimension (O3, R5, K5, F8).
    #[error("{buffer}[{at}] is {coordinate}, outside dimension {dimension} of {size}")]
    CoordinateOutOfBounds {
        /// The layout's name.
        layout: &'static str,
        /// The buffer.
        buffer: BufferName,
        /// The entry.
        at: u64,
        /// The coordinate.
        coordinate: u64,
        /// The dimension.
        dimension: usize,
        /// Its elements.
        size: u64,
    },
    /// Two entries with the same coordinates (O4).
    #[error("entries {first} and {second} of indices are at the same coordinates")]
    DuplicateEntry {
        /// The earlier entry.
        first: u64,
        /// The later one.
        second: u64,
    },
    /// An entry of a list that is flagged sorted below the one before it (O5).
    #[error("entry {at} of indices is below the one before it, and is_sorted is set")]
    NotSorted {
        /// The later entry.
        at: u64,
    },
    /// Coordinates of one row, column or fibre that do not increase (R4, K4, F7).
    #[error("{buffer}[{at}] is {coordinate}, not above the coordinate before it in the same slice")]
    NotIncreasing {
        /// The layout's name.
        layout: &'static str,
        /// The buffer.
        buffer: BufferName,
        /// The entry.
        at: u64,
        /// The coordinate.
        coordinate: u64,
    },
    /// A pointer array that does not begin at 0 (R2, K2, F4, P10).
    #[error("{buffer}[0] is {found}, not 0")]
    PointerStart {
        /// The layout's name.
        layout: &'static str,
        /// The buffer.
        buffer: BufferName,
        /// The first entry.
        found: u64,
    },
    /// A pointer array that does not end at the number of entries it divides (R2, K2, F6, P12).
    #[error("{buffer} ends at {found}, and divides {needed} entries")]
    PointerEnd {
        /// The layout's name.
        layout: &'static str,
        /// The buffer.
        buffer: BufferName,
        /// The last entry.
        found: u64,
        /// The entries it divides.
        needed: u64,
    },
    /// A pointer array that decreases (R3, K3, F5, P11).
    #[error("{buffer}[{at}] is {found}, below the {before} before it")]
    PointerDecreases {
        /// The layout's name.
        layout: &'static str,
        /// The buffer.
        buffer: BufferName,
        /// The entry.
        at: u64,
        /// Its value.
        found: u64,
        /// The value before it.
        before: u64,
    },
    /// A page outside the pool (P13).
    #[error("block_table[{at}] is page {page}, and the pool has {num_pages}")]
    PageOutOfBounds {
        /// The entry.
        at: u64,
        /// The page.
        page: u64,
        /// Pages of the pool.
        num_pages: u64,
    },
    /// A number of tokens that the sequences' pages cannot hold, or not without an empty page (P14).
    #[error("the sequences' pages hold {least} to {most} tokens, and the tensor has {tokens}")]
    TokenCount {
        /// One token in each sequence's last page.
        least: u128,
        /// Every page full.
        most: u128,
        /// The tensor's dimension 0.
        tokens: u64,
    },
    /// A scale that is infinite or NaN; zero where the scheme is affine; negative where it is NF4; byte 0x00 or 0xFF where it is MXFP
    /// (Q25).
    #[error("scale {at} has the bits {bits:#x}, which is none of this scheme's scales")]
    Scale {
        /// The entry.
        at: u64,
        /// The bits found.
        bits: u32,
    },
    /// A zero point that is no code (Q26).
    #[error("zero point {at} is {zero_point}, which is no code of the element type")]
    ZeroPoint {
        /// The entry.
        at: u64,
        /// The zero point.
        zero_point: i32,
    },
}

impl ContentsError {
    /// The rule of `layouts.md` or `quantization.md` that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        // One rule per layout for the same cause: CSR, CSC, CSF, block-paged.
        let of = |layout, [csr, csc, csf, paged]: [&'static str; 4]| match layout {
            "csr" => csr,
            "csc" => csc,
            "csf" => csf,
            _ => paged,
        };
        match self {
            Self::Short { layout, .. } => match *layout {
                "csf" => "F6",
                "block_paged" => "P10",
                _ => "B4",
            },
            Self::CoordinateOutOfBounds { layout, .. } => of(*layout, ["R5", "K5", "F8", "O3"]),
            Self::DuplicateEntry { .. } => "O4",
            Self::NotSorted { .. } => "O5",
            Self::NotIncreasing { layout, .. } => of(*layout, ["R4", "K4", "F7", "O5"]),
            Self::PointerStart { layout, .. } => of(*layout, ["R2", "K2", "F4", "P10"]),
            Self::PointerEnd { layout, .. } => of(*layout, ["R2", "K2", "F6", "P12"]),
            Self::PointerDecreases { layout, .. } => of(*layout, ["R3", "K3", "F5", "P11"]),
            Self::PageOutOfBounds { .. } => "P13",
            Self::TokenCount { .. } => "P14",
            Self::Scale { .. } => "Q25",
            Self::ZeroPoint { .. } => "Q26",
        }
    }
}
