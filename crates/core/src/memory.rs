//! Host memory that keeps the format's alignment promise.
