//! The `hurray` Python module.
