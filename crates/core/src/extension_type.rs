//! The extension type section: what a private element type is made of (`descriptor.md` § 11.3).

use crate::wire::{Reader, Writer};
use crate::{DescriptorError, StorageWidth};

/// A private element type. `sign_bits`, `exponent_bits`, `mantissa_bits`, `exponent_bias`, `has_nan` and `has_inf` describe floats and are
/// 0 for integers; `is_signed` describes integers. The packing factor follows from the width.
///
/// A descriptor may hold one that breaks this, so that it can be relayed; [`validate`](Self::validate) says whether it does.
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

impl ExtensionType {
    pub(crate) const ENCODED_LEN: usize = 20;

    /// Elements that share a byte: 8, 4 or 2 for a width of 1, 2 or 4 bits, and 1 for every other width.
    #[must_use]
    pub const fn packing_factor(&self) -> u8 {
        match self.bit_width {
            1 => 8,
            2 => 4,
            4 => 2,
            _ => 1,
        }
    }

    /// How one element is stored; `None` where the format defines no storage for the width (R46, R48, S17).
    #[must_use]
    pub const fn storage_width(&self) -> Option<StorageWidth> {
        match self.bit_width {
            6 => None,
            bits => StorageWidth::from_bits(bits),
        }
    }

    /// Checks what a descriptor of one's own must say: a width that can be stored, and only the properties of its family.
    ///
    /// # Errors
    /// R46, R48, S17 for the width, S16 for a property.
    pub fn validate(&self) -> Result<(), DescriptorError> {
        self.check_width()?;
        let bit_width = self.bit_width;
        if self.storage_width().is_none() {
            return Err(DescriptorError::ExtensionPartialByte { bit_width });
        }
        let is_float = self.is_float;
        let foreign: &[(&'static str, u32)] = if is_float {
            &[
                ("is_signed", self.is_signed.into()),
                (
                    "sign_bits",
                    if self.sign_bits > 1 {
                        self.sign_bits.into()
                    } else {
                        0
                    },
                ),
            ]
        } else {
            &[
                ("sign_bits", self.sign_bits.into()),
                ("exponent_bits", self.exponent_bits.into()),
                ("mantissa_bits", self.mantissa_bits.into()),
                ("exponent_bias", self.exponent_bias),
                ("has_nan", self.has_nan.into()),
                ("has_inf", self.has_inf.into()),
            ]
        };
        match foreign.iter().find(|(_, value)| *value != 0) {
            Some(&(field, value)) => Err(DescriptorError::ExtensionField {
                field,
                value,
                is_float,
            }),
            None => Ok(()),
        }
    }

    /// R46, R48.
    pub(crate) const fn check_width(&self) -> Result<(), DescriptorError> {
        match self.bit_width {
            0 => Err(DescriptorError::ExtensionWidthZero),
            3 | 5 | 6 | 7 => Err(DescriptorError::ExtensionWidth {
                bit_width: self.bit_width,
            }),
            _ => Ok(()),
        }
    }

    /// R46–R50.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DescriptorError> {
        let section = reader.block::<{ Self::ENCODED_LEN }>("the extension type section")?;
        let mut fields = Reader::new(section);
        let bit_width = fields.u32("bit_width")?;
        let packing_factor = fields.u8("packing_factor")?;
        let is_float = fields.bool("is_float")?;
        let is_signed = fields.bool("is_signed")?;
        let sign_bits = fields.u8("sign_bits")?;
        let exponent_bits = fields.u8("exponent_bits")?;
        let mantissa_bits = fields.u8("mantissa_bits")?;
        let first_reserved = fields.is_zero::<2>("reserved")?;
        let exponent_bias = fields.u32("exponent_bias")?;
        let has_nan = fields.bool("has_nan")?;
        let has_inf = fields.bool("has_inf")?;
        let last_reserved = fields.is_zero::<2>("reserved")?;
        let extension_type = Self {
            bit_width,
            is_float,
            is_signed,
            sign_bits,
            exponent_bits,
            mantissa_bits,
            exponent_bias,
            has_nan,
            has_inf,
        };
        extension_type.check_width()?;
        let expected = extension_type.packing_factor();
        if packing_factor != expected {
            return Err(DescriptorError::PackingFactor {
                bit_width,
                packing_factor,
                expected,
            });
        }
        for (is_zero, offset) in [(first_reserved, 10), (last_reserved, 18)] {
            if !is_zero {
                return Err(DescriptorError::ExtensionReserved { offset });
            }
        }
        Ok(extension_type)
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.bit_width);
        writer.bytes(&[
            self.packing_factor(),
            self.is_float.into(),
            self.is_signed.into(),
            self.sign_bits,
            self.exponent_bits,
            self.mantissa_bits,
            0,
            0,
        ]);
        writer.u32(self.exponent_bias);
        writer.bytes(&[self.has_nan.into(), self.has_inf.into(), 0, 0]);
    }
}
