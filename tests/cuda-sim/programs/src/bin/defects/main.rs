//! Programs with a defect, and their mended twins.

fn main() {}
