//! The extension type section: what a private element type is made of (`descriptor.md` § 11.3).

/// A private element type. `sign_bits`, `exponent_bits`, `mantissa_bits`, `exponent_bias`, `has_nan` and `has_inf` describe floats and are
/// 0 for integers; `is_signed` describes integers. The packing factor follows from the width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtensionType {
    /// Bits of one element: 1, 2, 4, or 8 and more.
    pub bit_width: u32,
    /// Whether the type is a float.
    pub is_float: bool,
    /// Whether an integer is signed.
    pub is_signed: bool,
    /// Sign bits of a float, 0 or 1.
    pub sign_bits: u8,
    /// Exponent bits of a float.
    pub exponent_bits: u8,
    /// Mantissa bits of a float.
    pub mantissa_bits: u8,
    /// Exponent bias of a float.
    pub exponent_bias: u32,
    /// Whether a float has NaN.
    pub has_nan: bool,
    /// Whether a float has infinity.
    pub has_inf: bool,
}
