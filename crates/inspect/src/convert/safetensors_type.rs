//! Element types and what safetensors calls them.

use hurray_core::ElementType;
use safetensors::Dtype;

/// Pairs of equal types. Elements are stored alike but for `BOOL`, which has a byte for each.
///
/// Not in it: `F6_E2M3` and `F6_E3M2`, for which safetensors says nothing about how four elements share three bytes, and the `FNUZ` types, whose
/// codes mean other values.
const PAIRS: [(ElementType, Dtype); 18] = [
    (ElementType::Bool, Dtype::BOOL),
    (ElementType::Float4E2m1, Dtype::F4),
    (ElementType::Uint8, Dtype::U8),
    (ElementType::Int8, Dtype::I8),
    (ElementType::Float8E5m2, Dtype::F8_E5M2),
    (ElementType::Float8E4m3, Dtype::F8_E4M3),
    (ElementType::Float8E8m0, Dtype::F8_E8M0),
    (ElementType::Int16, Dtype::I16),
    (ElementType::Uint16, Dtype::U16),
    (ElementType::Float16, Dtype::F16),
    (ElementType::Bfloat16, Dtype::BF16),
    (ElementType::Int32, Dtype::I32),
    (ElementType::Uint32, Dtype::U32),
    (ElementType::Float32, Dtype::F32),
    (ElementType::Complex64, Dtype::C64),
    (ElementType::Float64, Dtype::F64),
    (ElementType::Int64, Dtype::I64),
    (ElementType::Uint64, Dtype::U64),
];

pub(crate) fn element_type(dtype: Dtype) -> Option<ElementType> {
    PAIRS.iter().find(|pair| pair.1 == dtype).map(|pair| pair.0)
}

pub(crate) fn dtype(element_type: ElementType) -> Option<Dtype> {
    PAIRS
        .iter()
        .find(|pair| pair.0 == element_type)
        .map(|pair| pair.1)
}
