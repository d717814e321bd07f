//! Host memory that keeps the format's alignment promise.

pub mod aligned_heap;
