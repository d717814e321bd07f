//! A file's metadata as Python has it.

use hurray_io::{Array, Value};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString};

use super::error::FileError;

/// The keys and values of the `kv` argument, in its order.
///
/// # Errors
/// `FileError` for a value that metadata cannot hold, `OverflowError` for an int that does not fit int64, `TypeError` for a key that is no `str`.
pub(super) fn argument(kv: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Value)>> {
    let Ok(mapping) = kv.cast::<PyMapping>() else {
        return Err(PyTypeError::new_err(format!(
            "kv is a mapping of str to values, not {}",
            kv.get_type().name()?
        )));
    };
    let mut pairs = Vec::new();
    for pair in mapping.items()?.iter() {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let Ok(key) = key.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!(
                "a key of kv is a str, not {}",
                key.get_type().name()?
            )));
        };
        let key = key.to_str()?.to_owned();
        let value = value_of(&key, &value)?;
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn value_of(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    // A bool is an int.
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if let Ok(value) = value.cast::<PyInt>() {
        return int(key, value).map(Value::Int64);
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(Value::Float64(value.value()));
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(Value::String(value.to_str()?.to_owned()));
    }
    if let Ok(value) = value.cast::<PyBytes>() {
        return Ok(Value::Bytes(value.as_bytes().to_vec()));
    }
    if let Ok(list) = value.cast::<PyList>() {
        return array(key, list).map(Value::Array);
    }
    Err(FileError::new_err(format!(
        "the value of {key:?} is a {}, and metadata has bool, int, float, str, bytes and lists of one of these",
        value.get_type().name()?
    )))
}

fn int(key: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().map_err(|_| {
        PyOverflowError::new_err(format!(
            "the value of {key:?} is an int that does not fit 64 bits with a sign"
        ))
    })
}

/// A list, all of whose values have one type.
fn array(key: &str, list: &Bound<'_, PyList>) -> PyResult<Array> {
    let mixed = || {
        FileError::new_err(format!(
            "the values of the list {key:?} are not all bool, all int, all float, all str or all bytes"
        ))
    };
    let mut values = list.iter().map(|value| value_of(key, &value)).peekable();
    macro_rules! all {
        ($kind:ident) => {
            values
                .map(|value| match value? {
                    Value::$kind(value) => Ok(value),
                    _ => Err(mixed()),
                })
                .collect::<PyResult<_>>()
                .map(Array::$kind)
        };
    }
    match values.peek() {
        None => Err(FileError::new_err(format!(
            "the list {key:?} is empty, so it has no type"
        ))),
        Some(Ok(Value::Bool(_))) => all!(Bool),
        Some(Ok(Value::Int64(_))) => all!(Int64),
        Some(Ok(Value::Float64(_))) => all!(Float64),
        Some(Ok(Value::String(_))) => all!(String),
        Some(Ok(Value::Bytes(_))) => all!(Bytes),
        Some(Ok(_)) => Err(mixed()),
        // The first value's error.
        Some(Err(_)) => all!(Bool),
    }
}

/// The metadata as a dict.
pub(super) fn dict<'py>(
    py: Python<'py>,
    metadata: &[(String, Value)],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metadata {
        dict.set_item(key, object(py, value)?)?;
    }
    Ok(dict)
}

fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::String(value) => PyString::new(py, value).into_any(),
        Value::Int64(value) => value.into_pyobject(py)?.into_any(),
        Value::Uint64(value) => value.into_pyobject(py)?.into_any(),
        Value::Float64(value) => PyFloat::new(py, *value).into_any(),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Bytes(value) => PyBytes::new(py, value).into_any(),
        Value::Array(array) => list(py, array)?.into_any(),
        other => {
            return Err(crate::errors::InternalError::new_err(format!(
                "no Python type for {other:?}"
            )));
        }
    })
}

fn list<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyList>> {
    match array {
        Array::String(values) => PyList::new(py, values),
        Array::Int64(values) => PyList::new(py, values),
        Array::Uint64(values) => PyList::new(py, values),
        Array::Float64(values) => PyList::new(py, values),
        Array::Bool(values) => PyList::new(py, values),
        Array::Bytes(values) => PyList::new(py, values.iter().map(|value| PyBytes::new(py, value))),
        other => Err(crate::errors::InternalError::new_err(format!(
            "no Python type for {other:?}"
        ))),
    }
}
