//! What the bytes of an input are spent on.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use hurray_core::{Layout, TensorDescriptor};
use serde::Serialize;

use crate::input::{Format, Input};

/// Bytes by what they are for. They add up to the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Spent {
    /// Buffers of dense tensors without a quantization.
    dense: u64,
    /// Buffers of quantized tensors.
    quantized: u64,
    /// Buffers of sparse tensors.
    sparse: u64,
    /// Buffers of block-paged tensors.
    paged: u64,
    /// Buffers of private layouts.
    private: u64,
    descriptors: u64,
    /// The header and the trailer of a file.
    frame: u64,
    metadata: u64,
    index: u64,
    /// What is left.
    padding: u64,
}

/// Characters of a full bar.
const WIDTH: u64 = 40;

impl Spent {
    pub(crate) fn new(input: &Input) -> Self {
        let mut spent = Self::default();
        for part in &input.parts {
            if let Some(descriptor) = &part.descriptor {
                let sum = spent.of(descriptor);
                *sum = sum.saturating_add(part.byte_size());
            }
            spent.descriptors = spent.descriptors.saturating_add(part.bytes.len() as u64);
        }
        if input.format == Format::File {
            spent.frame = input.size.min(64 + 40);
        }
        if let Some(container) = &input.container {
            let length = |range: &std::ops::Range<u64>| range.end.saturating_sub(range.start);
            spent.metadata = length(&container.metadata_section);
            spent.index = length(&container.index);
        }
        let used = spent.rows().map(|(_, bytes, _)| bytes);
        let used = used.into_iter().fold(0, u64::saturating_add);
        spent.padding = input.size.saturating_sub(used);
        spent
    }

    fn of(&mut self, descriptor: &TensorDescriptor) -> &mut u64 {
        match descriptor.layout {
            _ if descriptor.quantization.is_some() => &mut self.quantized,
            Layout::Coo(_) | Layout::Csr { .. } | Layout::Csc { .. } | Layout::Csf(_) => {
                &mut self.sparse
            }
            Layout::BlockPaged(_) => &mut self.paged,
            Layout::Private(_) => &mut self.private,
            _ => &mut self.dense,
        }
    }

    fn rows(&self) -> [(&'static str, u64, AnsiColor); 10] {
        [
            ("dense tensors", self.dense, AnsiColor::Blue),
            ("quantized tensors", self.quantized, AnsiColor::Magenta),
            ("sparse tensors", self.sparse, AnsiColor::Cyan),
            ("paged tensors", self.paged, AnsiColor::Green),
            ("private layouts", self.private, AnsiColor::Red),
            ("descriptors", self.descriptors, AnsiColor::Yellow),
            ("header and trailer", self.frame, AnsiColor::Yellow),
            ("metadata", self.metadata, AnsiColor::Yellow),
            ("index", self.index, AnsiColor::Yellow),
            ("padding", self.padding, AnsiColor::BrightBlack),
        ]
    }

    /// Draws a bar for each that has bytes.
    pub(crate) fn draw(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows = self.rows();
        let total: u128 = rows.iter().map(|&(_, bytes, _)| u128::from(bytes)).sum();
        for (name, bytes, color) in rows.into_iter().filter(|&(_, bytes, _)| bytes > 0) {
            let style = Style::new().fg_color(Some(color.into()));
            let eighths = u128::from(bytes) * u128::from(WIDTH * 8) / total.max(1);
            let percent = bytes as f64 / total as f64 * 100.0;
            writeln!(
                out,
                "{name:<18}  {bytes:>14}  {percent:>5.1} %  {style}{}{style:#}",
                bar(eighths as usize)
            )?;
        }
        Ok(())
    }
}

/// A bar of eighths of a character; one eighth at least.
fn bar(eighths: usize) -> String {
    let eighths = eighths.max(1);
    let mut bar = "█".repeat(eighths / 8);
    let ends = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    bar.push_str(ends.get(eighths % 8).copied().unwrap_or_default());
    bar
}
