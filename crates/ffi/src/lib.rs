//! The transport.
