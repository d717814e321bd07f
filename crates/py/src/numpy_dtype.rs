//! Element types as NumPy's dtypes: its own, and those of ml_dtypes.

use std::ffi::{c_int, c_long};

use hurray_core::ElementType;
use numpy::npyffi::NPY_TYPES;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::errors::UnsupportedError;

/// NumPy's own name of a type, or ml_dtypes'.
#[derive(Clone, Copy)]
enum Name {
    Numpy(&'static str),
    MlDtypes(&'static str),
}

const fn name(element_type: ElementType) -> Option<Name> {
    use ElementType as T;
    Some(match element_type {
        T::Bool => Name::Numpy("bool"),
        T::Int8 => Name::Numpy("int8"),
        T::Uint8 => Name::Numpy("uint8"),
        T::Int16 => Name::Numpy("int16"),
        T::Uint16 => Name::Numpy("uint16"),
        T::Int32 => Name::Numpy("int32"),
        T::Uint32 => Name::Numpy("uint32"),
        T::Int64 => Name::Numpy("int64"),
        T::Uint64 => Name::Numpy("uint64"),
        T::Float16 => Name::Numpy("float16"),
        T::Float32 => Name::Numpy("float32"),
        T::Float64 => Name::Numpy("float64"),
        T::Complex64 => Name::Numpy("complex64"),
        T::Complex128 => Name::Numpy("complex128"),
        T::Bfloat16 => Name::MlDtypes("bfloat16"),
        T::Float8E4m3 => Name::MlDtypes("float8_e4m3fn"),
        T::Float8E5m2 => Name::MlDtypes("float8_e5m2"),
        T::Float8E8m0 => Name::MlDtypes("float8_e8m0fnu"),
        T::Float4E2m1 => Name::MlDtypes("float4_e2m1fn"),
        T::Float6E2m3 => Name::MlDtypes("float6_e2m3fn"),
        T::Float6E3m2 => Name::MlDtypes("float6_e3m2fn"),
        T::Int4 => Name::MlDtypes("int4"),
        T::Uint4 => Name::MlDtypes("uint4"),
        T::Int2 => Name::MlDtypes("int2"),
        T::Uint2 => Name::MlDtypes("uint2"),
        T::Float128 | T::Private(_) => return None,
    })
}

/// The element type of NumPy's type number `type_num`; `None` where the format has none.
pub(crate) fn element_type(py: Python<'_>, type_num: c_int) -> PyResult<Option<ElementType>> {
    use ElementType as T;
    const BOOL: c_int = NPY_TYPES::NPY_BOOL as c_int;
    const INT8: c_int = NPY_TYPES::NPY_BYTE as c_int;
    const UINT8: c_int = NPY_TYPES::NPY_UBYTE as c_int;
    const INT16: c_int = NPY_TYPES::NPY_SHORT as c_int;
    const UINT16: c_int = NPY_TYPES::NPY_USHORT as c_int;
    const INT32: c_int = NPY_TYPES::NPY_INT as c_int;
    const UINT32: c_int = NPY_TYPES::NPY_UINT as c_int;
    const LONG: c_int = NPY_TYPES::NPY_LONG as c_int;
    const ULONG: c_int = NPY_TYPES::NPY_ULONG as c_int;
    const INT64: c_int = NPY_TYPES::NPY_LONGLONG as c_int;
    const UINT64: c_int = NPY_TYPES::NPY_ULONGLONG as c_int;
    const FLOAT16: c_int = NPY_TYPES::NPY_HALF as c_int;
    const FLOAT32: c_int = NPY_TYPES::NPY_FLOAT as c_int;
    const FLOAT64: c_int = NPY_TYPES::NPY_DOUBLE as c_int;
    const COMPLEX64: c_int = NPY_TYPES::NPY_CFLOAT as c_int;
    const COMPLEX128: c_int = NPY_TYPES::NPY_CDOUBLE as c_int;
    const USER_DEFINED: c_int = NPY_TYPES::NPY_USERDEF as c_int;
    Ok(Some(match type_num {
        BOOL => T::Bool,
        INT8 => T::Int8,
        UINT8 => T::Uint8,
        INT16 => T::Int16,
        UINT16 => T::Uint16,
        INT32 => T::Int32,
        UINT32 => T::Uint32,
        LONG if size_of::<c_long>() == 8 => T::Int64,
        LONG => T::Int32,
        ULONG if size_of::<c_long>() == 8 => T::Uint64,
        ULONG => T::Uint32,
        INT64 => T::Int64,
        UINT64 => T::Uint64,
        FLOAT16 => T::Float16,
        FLOAT32 => T::Float32,
        FLOAT64 => T::Float64,
        COMPLEX64 => T::Complex64,
        COMPLEX128 => T::Complex128,
        USER_DEFINED.. => return of_ml_dtypes(py, type_num),
        _ => return Ok(None),
    }))
}

/// The element type of a number that ml_dtypes had NumPy assign.
fn of_ml_dtypes(py: Python<'_>, type_num: c_int) -> PyResult<Option<ElementType>> {
    static NUMBERS: PyOnceLock<Vec<(c_int, ElementType)>> = PyOnceLock::new();
    let numbers = NUMBERS.get_or_try_init(py, || {
        let mut numbers = Vec::new();
        for element_type in ElementType::named() {
            if let Some(Name::MlDtypes(name)) = name(element_type) {
                // An older release may lack the type, and then no array has it.
                if let Ok(scalar) = py.import("ml_dtypes")?.getattr(name) {
                    let dtype = py.import("numpy")?.call_method1("dtype", (scalar,))?;
                    numbers.push((dtype.getattr("num")?.extract()?, element_type));
                }
            }
        }
        Ok::<_, PyErr>(numbers)
    });
    match numbers {
        Ok(numbers) => Ok(numbers
            .iter()
            .find(|(number, _)| *number == type_num)
            .map(|&(_, element_type)| element_type)),
        // Some other package's type.
        Err(error) if error.is_instance_of::<PyImportError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The dtype for `element_type`.
///
/// # Errors
/// [`UnsupportedError`] for a type that neither NumPy nor ml_dtypes has, and where ml_dtypes is not installed or too old.
pub(crate) fn dtype<'py>(
    py: Python<'py>,
    element_type: ElementType,
) -> PyResult<&'py Bound<'py, PyAny>> {
    static DTYPES: [PyOnceLock<Py<PyAny>>; 256] = [const { PyOnceLock::new() }; 256];
    let unsupported = |why: &str| {
        UnsupportedError::new_err(format!(
            "no NumPy array holds {element_type}: {why}; buffer(0) gives the bytes"
        ))
    };
    let Some(slot) = DTYPES.get(usize::from(element_type.tag())) else {
        return Err(unsupported("it has no tag"));
    };
    let dtype = slot.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        let scalar = match name(element_type) {
            Some(Name::Numpy(name)) => pyo3::types::PyString::new(py, name).into_any(),
            Some(Name::MlDtypes(name)) => py
                .import("ml_dtypes")
                .map_err(|_| unsupported("install ml_dtypes, which has the type"))?
                .getattr(name)
                .map_err(|_| unsupported("this release of ml_dtypes lacks the type"))?,
            None => {
                return Err(unsupported(
                    "neither NumPy nor ml_dtypes has a type of that format",
                ));
            }
        };
        Ok::<_, PyErr>(numpy.call_method1("dtype", (scalar,))?.unbind())
    })?;
    Ok(dtype.bind(py))
}
