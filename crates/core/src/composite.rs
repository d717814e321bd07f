//! Composites: a head and the members that follow it (`layouts.md` § 8).
