//! Element types in DLPack's numbers.

use dlpark::ffi::{DLDataType, DLDataTypeCode};
use hurray_core::ElementType;
use thiserror::Error;

/// How a DLPack array stores elements that here are whole bytes, or packed from the lowest bit up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// The same bytes.
    Same,
    /// One byte per element of less than a byte, in its low bits: booleans always, other types under IS_SUBBYTE_TYPE_PADDED.
    BytePerElement,
    /// The same bytes, counted in pairs: two lanes of four bits are one element of DLPack.
    Pairs,
}

/// An element type that has no counterpart on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnsupportedElementType {
    /// DLPack has no code for the type.
    #[error("DLPack has no code for element type {0}")]
    NoCode(ElementType),
    /// A DLPack type without an element type here.
    #[error("DLPack's {name} (code {code}, {bits} bits, {lanes} lanes) has no element type here")]
    NoType {
        /// DLPack's name for the code.
        name: &'static str,
        /// `DLDataType.code`.
        code: u8,
        /// `DLDataType.bits`.
        bits: u8,
        /// `DLDataType.lanes`.
        lanes: u16,
    },
    /// Elements leave in pairs only as `float4_e2m1`.
    #[error("only float4_e2m1 leaves in two lanes, not {0}")]
    NoPairs(ElementType),
}

/// The names in `dlpack.h`, in the order of their codes.
const CODE_NAMES: [&str; 18] = [
    "int",
    "uint",
    "float",
    "opaque handle",
    "bfloat",
    "complex",
    "bool",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
];

/// The DLPack type of `element_type`, one lane: decision 14 and, for booleans, 18.
///
/// # Errors
/// [`NoCode`](UnsupportedElementType::NoCode) for `float128` and private types.
pub fn to_dlpack(
    element_type: ElementType,
) -> Result<(DLDataType, Storage), UnsupportedElementType> {
    use DLDataTypeCode as Code;
    use ElementType as T;
    let (code, bits) = match element_type {
        T::Float16 => (Code::FLOAT, 16),
        T::Float32 => (Code::FLOAT, 32),
        T::Float64 => (Code::FLOAT, 64),
        T::Bfloat16 => (Code::BFLOAT, 16),
        T::Int2 => (Code::INT, 2),
        T::Int4 => (Code::INT, 4),
        T::Int8 => (Code::INT, 8),
        T::Int16 => (Code::INT, 16),
        T::Int32 => (Code::INT, 32),
        T::Int64 => (Code::INT, 64),
        T::Uint2 => (Code::UINT, 2),
        T::Uint4 => (Code::UINT, 4),
        T::Uint8 => (Code::UINT, 8),
        T::Uint16 => (Code::UINT, 16),
        T::Uint32 => (Code::UINT, 32),
        T::Uint64 => (Code::UINT, 64),
        T::Bool => return Ok((DLDataType::BOOL, Storage::BytePerElement)),
        T::Complex64 => (Code::COMPLEX, 64),
        T::Complex128 => (Code::COMPLEX, 128),
        T::Float8E4m3 => (Code::FLOAT8_E4M3FN, 8),
        T::Float8E5m2 => (Code::FLOAT8_E5M2, 8),
        T::Float8E8m0 => (Code::FLOAT8_E8M0FNU, 8),
        T::Float6E2m3 => (Code::FLOAT6_E2M3FN, 6),
        T::Float6E3m2 => (Code::FLOAT6_E3M2FN, 6),
        T::Float4E2m1 => (Code::FLOAT4_E2M1FN, 4),
        T::Float128 | T::Private(_) => return Err(UnsupportedElementType::NoCode(element_type)),
    };
    Ok((DLDataType::scalar(code, bits), Storage::Same))
}

/// The element type that `dtype` is, and how its elements are stored; `is_padded` is the flag IS_SUBBYTE_TYPE_PADDED.
///
/// # Errors
/// [`NoType`](UnsupportedElementType::NoType), naming the type: other fp8 codes, `longdouble`, vectors.
pub fn from_dlpack(
    dtype: DLDataType,
    is_padded: bool,
) -> Result<(ElementType, Storage), UnsupportedElementType> {
    use DLDataTypeCode as Code;
    use ElementType as T;
    let DLDataType { code, bits, lanes } = dtype;
    let none = || UnsupportedElementType::NoType {
        name: CODE_NAMES
            .get(usize::from(code.0))
            .copied()
            .unwrap_or("unknown code"),
        code: code.0,
        bits,
        lanes,
    };
    if (code, bits, lanes, is_padded) == (Code::FLOAT4_E2M1FN, 4, 2, false) {
        return Ok((T::Float4E2m1, Storage::Pairs));
    }
    if lanes != 1 {
        return Err(none());
    }
    let element_type = match (code, bits) {
        (Code::FLOAT, 16) => T::Float16,
        (Code::FLOAT, 32) => T::Float32,
        (Code::FLOAT, 64) => T::Float64,
        (Code::BFLOAT, 16) => T::Bfloat16,
        (Code::INT, 2) => T::Int2,
        (Code::INT, 4) => T::Int4,
        (Code::INT, 8) => T::Int8,
        (Code::INT, 16) => T::Int16,
        (Code::INT, 32) => T::Int32,
        (Code::INT, 64) => T::Int64,
        (Code::UINT, 2) => T::Uint2,
        (Code::UINT, 4) => T::Uint4,
        (Code::UINT, 8) => T::Uint8,
        (Code::UINT, 16) => T::Uint16,
        (Code::UINT, 32) => T::Uint32,
        (Code::UINT, 64) => T::Uint64,
        (Code::BOOL, 8) => return Ok((T::Bool, Storage::BytePerElement)),
        (Code::COMPLEX, 64) => T::Complex64,
        (Code::COMPLEX, 128) => T::Complex128,
        (Code::FLOAT8_E4M3FN, 8) => T::Float8E4m3,
        (Code::FLOAT8_E5M2, 8) => T::Float8E5m2,
        (Code::FLOAT8_E8M0FNU, 8) => T::Float8E8m0,
        (Code::FLOAT6_E2M3FN, 6) => T::Float6E2m3,
        (Code::FLOAT6_E3M2FN, 6) => T::Float6E3m2,
        (Code::FLOAT4_E2M1FN, 4) => T::Float4E2m1,
        _ => return Err(none()),
    };
    let storage = if is_padded && bits < 8 {
        Storage::BytePerElement
    } else {
        Storage::Same
    };
    Ok((element_type, storage))
}

/// `dtype` with its elements counted in pairs (dmlc/dlpack#158).
///
/// # Errors
/// [`NoPairs`](UnsupportedElementType::NoPairs) for every type but `float4_e2m1`.
pub fn in_pairs(
    element_type: ElementType,
    dtype: DLDataType,
) -> Result<DLDataType, UnsupportedElementType> {
    match element_type {
        ElementType::Float4E2m1 => Ok(DLDataType { lanes: 2, ..dtype }),
        _ => Err(UnsupportedElementType::NoPairs(element_type)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_with_a_code_comes_back_decision_14() {
        for element_type in ElementType::named() {
            match to_dlpack(element_type) {
                Ok((dtype, storage)) => {
                    assert_eq!(from_dlpack(dtype, false), Ok((element_type, storage)));
                }
                Err(error) => {
                    assert_eq!(
                        (element_type, error),
                        (
                            ElementType::Float128,
                            UnsupportedElementType::NoCode(ElementType::Float128)
                        )
                    );
                }
            }
        }
    }

    #[test]
    fn codes_are_those_of_decision_14() {
        let codes = [
            (ElementType::Float8E4m3, 10, 8),
            (ElementType::Float8E5m2, 12, 8),
            (ElementType::Float8E8m0, 14, 8),
            (ElementType::Float6E2m3, 15, 6),
            (ElementType::Float6E3m2, 16, 6),
            (ElementType::Float4E2m1, 17, 4),
            (ElementType::Int4, 0, 4),
            (ElementType::Uint2, 1, 2),
            (ElementType::Bool, 6, 8),
        ];
        for (element_type, code, bits) in codes {
            let (dtype, _) = to_dlpack(element_type).unwrap();
            assert_eq!((dtype.code.0, dtype.bits, dtype.lanes), (code, bits, 1));
        }
    }

    #[test]
    fn types_without_a_counterpart_are_refused_by_name_decision_14() {
        let refused = [
            (7, 8, "float8_e3m4"),
            (8, 8, "float8_e4m3"),
            (9, 8, "float8_e4m3b11fnuz"),
            (11, 8, "float8_e4m3fnuz"),
            (13, 8, "float8_e5m2fnuz"),
            (2, 80, "float"),
            (2, 128, "float"),
            (6, 1, "bool"),
            (3, 64, "opaque handle"),
            (99, 8, "unknown code"),
        ];
        for (code, bits, name) in refused {
            let error = from_dlpack(DLDataType::scalar(DLDataTypeCode(code), bits), false);
            let text = error.unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
            assert!(text.contains(&format!("{bits} bits")), "{text}");
        }
    }

    #[test]
    fn lanes_are_pairs_of_fp4_or_refused_b3() {
        let fp4 = DLDataType::new(DLDataTypeCode::FLOAT4_E2M1FN, 4, 2);
        assert_eq!(
            from_dlpack(fp4, false),
            Ok((ElementType::Float4E2m1, Storage::Pairs))
        );
        assert!(from_dlpack(DLDataType::new(DLDataTypeCode::FLOAT, 32, 4), false).is_err());
        assert!(from_dlpack(DLDataType::new(DLDataTypeCode::FLOAT, 32, 0), false).is_err());
        assert!(in_pairs(ElementType::Int4, DLDataType::I8).is_err());
    }

    #[test]
    fn padded_sub_byte_elements_have_a_byte_each() {
        let int4 = DLDataType::scalar(DLDataTypeCode::INT, 4);
        assert_eq!(
            from_dlpack(int4, true),
            Ok((ElementType::Int4, Storage::BytePerElement))
        );
        assert_eq!(
            from_dlpack(DLDataType::F32, true),
            Ok((ElementType::Float32, Storage::Same))
        );
    }
}
