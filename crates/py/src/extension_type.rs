//! `hurray.ExtensionType`, and the size of a buffer of elements.

use hurray_core::{ExtensionType as Section, StorageWidth};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::element_type::Dtype;
use crate::errors::{InvalidDescriptorError, OrRaise};

/// What a private element type, one with a tag from 0xF0 to 0xFE, is made of.
///
/// `bit_width` is 1, 2, 4 or a multiple of 8. A float says its fields in `sign_bits` (0 or 1),
/// `exponent_bits`, `mantissa_bits` and `exponent_bias`, and whether it has NaN and infinity; an
/// integer says `is_signed` and leaves those at their defaults. Raises InvalidDescriptorError for
/// anything else. A tensor has one exactly when its dtype is private.
///
/// >>> hurray.ExtensionType(24).buffer_size_bytes(3)
/// 9
#[pyclass(frozen, eq, hash, module = "hurray")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ExtensionType(pub(crate) Section);

#[pymethods]
impl ExtensionType {
    #[new]
    #[pyo3(signature = (bit_width, *, is_float=false, is_signed=false, sign_bits=0, exponent_bits=0, mantissa_bits=0, exponent_bias=0, has_nan=false, has_inf=false))]
    #[expect(clippy::too_many_arguments, reason = "the fields of the section")]
    fn new(
        bit_width: u32,
        is_float: bool,
        is_signed: bool,
        sign_bits: u8,
        exponent_bits: u8,
        mantissa_bits: u8,
        exponent_bias: u32,
        has_nan: bool,
        has_inf: bool,
    ) -> PyResult<Self> {
        let section = Section {
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
        section.validate().or_raise()?;
        Ok(Self(section))
    }

    /// Bits of one element.
    #[getter]
    fn bit_width(&self) -> u32 {
        self.0.bit_width
    }

    /// Elements in a byte: 8, 4 or 2 below 8 bits, otherwise 1.
    #[getter]
    fn packing_factor(&self) -> u8 {
        self.0.packing_factor()
    }

    /// Whether the type is a float.
    #[getter]
    fn is_float(&self) -> bool {
        self.0.is_float
    }

    /// Whether an integer is signed; False for a float.
    #[getter]
    fn is_signed(&self) -> bool {
        self.0.is_signed
    }

    /// Sign bits of a float.
    #[getter]
    fn sign_bits(&self) -> u8 {
        self.0.sign_bits
    }

    /// Exponent bits of a float.
    #[getter]
    fn exponent_bits(&self) -> u8 {
        self.0.exponent_bits
    }

    /// Mantissa bits of a float.
    #[getter]
    fn mantissa_bits(&self) -> u8 {
        self.0.mantissa_bits
    }

    /// Exponent bias of a float.
    #[getter]
    fn exponent_bias(&self) -> u32 {
        self.0.exponent_bias
    }

    /// Whether a float has NaN.
    #[getter]
    fn has_nan(&self) -> bool {
        self.0.has_nan
    }

    /// Whether a float has infinity.
    #[getter]
    fn has_inf(&self) -> bool {
        self.0.has_inf
    }

    /// Bytes that `element_count` packed elements take.
    ///
    /// Raises InvalidDescriptorError for a width that the format has no storage for (12 bits, read
    /// from a descriptor), OverflowError if the size does not fit 64 bits.
    #[pyo3(signature = (element_count))]
    fn buffer_size_bytes(&self, element_count: u64) -> PyResult<u64> {
        match self.0.storage_width() {
            Some(width) => size_bytes(width, element_count),
            None => Err(InvalidDescriptorError::new_err(format!(
                "the format has no storage for elements of {} bits (rule S17)",
                self.0.bit_width
            ))),
        }
    }

    fn __repr__(&self) -> String {
        let Section {
            bit_width,
            is_float,
            is_signed,
            sign_bits,
            exponent_bits,
            mantissa_bits,
            exponent_bias,
            has_nan,
            has_inf,
        } = self.0;
        let mut text = format!("ExtensionType(bit_width={bit_width}");
        for (name, flag) in [("is_float", is_float), ("is_signed", is_signed)] {
            if flag {
                text.push_str(&format!(", {name}=True"));
            }
        }
        for (name, number) in [
            ("sign_bits", sign_bits.into()),
            ("exponent_bits", exponent_bits.into()),
            ("mantissa_bits", mantissa_bits.into()),
            ("exponent_bias", exponent_bias),
        ] {
            if number != 0 {
                text.push_str(&format!(", {name}={number}"));
            }
        }
        for (name, flag) in [("has_nan", has_nan), ("has_inf", has_inf)] {
            if flag {
                text.push_str(&format!(", {name}=True"));
            }
        }
        text.push(')');
        text
    }
}

fn size_bytes(width: StorageWidth, element_count: u64) -> PyResult<u64> {
    width.byte_size(element_count).ok_or_else(|| {
        PyOverflowError::new_err(format!(
            "{element_count} elements of {} bits are more bytes than 64 bits can count",
            width.bits()
        ))
    })
}

/// Bytes that `count` packed elements of `dtype` take.
///
/// Eight bools, four 2-bit or two 4-bit elements share a byte; four 6-bit elements share three.
/// Raises InvalidDescriptorError for a private dtype, whose ExtensionType knows its width, and
/// OverflowError if the size does not fit 64 bits.
///
/// >>> hurray.buffer_size_bytes(hurray.dtype.int4, 3)
/// 2
#[pyfunction]
#[pyo3(signature = (dtype, count))]
fn buffer_size_bytes(dtype: &Bound<'_, Dtype>, count: u64) -> PyResult<u64> {
    match dtype.get().element_type().storage_width() {
        Some(width) => size_bytes(width, count),
        None => Err(InvalidDescriptorError::new_err(
            "a private dtype has no width of its own: use hurray.ExtensionType(...).buffer_size_bytes(count)",
        )),
    }
}

/// Puts `ExtensionType` and `buffer_size_bytes` on the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ExtensionType>()?;
    module.add_function(wrap_pyfunction!(buffer_size_bytes, module)?)
}
