//! Progress bars on standard error, where that is a terminal.

use std::borrow::Cow;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of bytes, named by what is done with them. It is cleared when it is dropped.
pub(crate) fn bytes(total: u64, name: impl Into<Cow<'static, str>>) -> ProgressBar {
    let style =
        "{msg} [{wide_bar}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta}";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total)
        .with_style(style)
        .with_message(name)
        .with_finish(indicatif::ProgressFinish::AndClear)
}
