//! `hurray inspect`.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, TableStyle};

use crate::arguments::InspectArgs;
use crate::command_error::{CommandError, Outcome};
use crate::fields;
use crate::input::{Format, Input, Keep, Part};
use crate::report::{Buffer, Declared, Quantization, Report, Tensor, counted, printable};

/// Bytes in a line of a hex dump.
const LINE: usize = 8;

/// Shows an input; what is wrong with it goes to standard error.
pub(crate) fn run(args: &InspectArgs, out: &mut dyn Write) -> Result<Outcome, CommandError> {
    let input = Input::read(&args.input, args.format, Keep::No)?;
    let name = args.input.display().to_string();
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &Report::new(name.clone(), &input))
            .map_err(io::Error::from)?;
        writeln!(out)?;
    } else if let Some(tensor) = &args.bytes {
        dump(&input, tensor, out)?;
    } else {
        show(&Report::new(name.clone(), &input), out)?;
    }
    out.flush()?;
    for fault in &input.faults {
        let error = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        anstream::eprintln!("{error}error:{error:#} {}: {fault}", printable(&name));
    }
    Ok(if input.faults.is_empty() {
        Outcome::Done
    } else {
        Outcome::Found
    })
}

fn show(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let kind = match report.format {
        Format::File => "file",
        Format::Stream => "stream",
        Format::Descriptor => "descriptor",
    };
    let mut facts = format!("{kind}, {} bytes", report.byte_size);
    if report.bytes_spent.is_some() {
        let _ = write!(facts, ", {}", counted(report.tensor_count));
    }
    if let Some(alignment) = report.alignment {
        let _ = write!(facts, ", data aligned to {alignment}");
    }
    if report.is_sorted == Some(true) {
        facts.push_str(", index sorted");
    }
    let bold = Style::new().bold();
    writeln!(out, "{bold}{}{bold:#}: {facts}", printable(&report.input))?;
    if !report.tensors.is_empty() {
        writeln!(out, "\n{}", tensor_table(&report.tensors))?;
    }
    if !report.metadata.is_empty() {
        let mut table = table(&["key", "type", "value"]);
        for pair in &report.metadata {
            let value = pair.value.to_string();
            table.add_row([&printable(&pair.key), pair.r#type, &printable(&value)]);
        }
        writeln!(out, "\n{}", table.trim_fmt())?;
    }
    if let Some(spent) = &report.bytes_spent {
        writeln!(out)?;
        spent.draw(out)?;
    }
    Ok(())
}

fn table(titles: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new())
        .set_content_arrangement(ContentArrangement::Dynamic)
        .enforce_styling()
        .set_header(
            titles
                .iter()
                .map(|title| Cell::new(title).add_attribute(Attribute::Bold)),
        );
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    // The padding of the last column is no part of its title.
    table.style_text_only();
    table
}

const TITLES: [&str; 9] = [
    "name",
    "dtype",
    "shape",
    "layout",
    "quantization",
    "device",
    "bytes",
    "alignment",
    "sync_mode",
];

fn tensor_table(tensors: &[Tensor]) -> String {
    let mut rows = Vec::new();
    for tensor in tensors {
        add_rows(tensor, String::new(), "", &mut rows);
    }
    // A column that says nothing is left out.
    let has_column = |column: usize| {
        column < 4
            || rows
                .iter()
                .any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))
    };
    let kept: Vec<_> = (0..TITLES.len())
        .filter(|&column| has_column(column))
        .collect();
    let titles: Vec<_> = kept
        .iter()
        .filter_map(|&column| TITLES.get(column).copied())
        .collect();
    let mut table = table(&titles);
    for row in &rows {
        let cells = kept.iter().filter_map(|&column| {
            let cell = Cell::new(row.get(column)?);
            Some(match TITLES.get(column) {
                Some(&("bytes" | "alignment")) => cell.set_alignment(CellAlignment::Right),
                _ => cell,
            })
        });
        table.add_row(cells);
    }
    table.trim_fmt()
}

/// One row, and one for each member; `stem` is what members' branches hang on.
fn add_rows(tensor: &Tensor, branch: String, stem: &str, rows: &mut Vec<[String; 9]>) {
    let name = format!("{branch}{}", printable(&tensor.name));
    rows.push(match &tensor.declared {
        Some(declared) => row(name, declared),
        None => {
            let mut row: [String; 9] = Default::default();
            let [first, second, ..] = &mut row;
            (*first, *second) = (name, "unreadable".into());
            row
        }
    });
    let last = tensor.members.len().saturating_sub(1);
    for (number, member) in tensor.members.iter().enumerate() {
        let (branch, below) = if number == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        add_rows(
            member,
            format!("{stem}{branch}"),
            &format!("{stem}{below}"),
            rows,
        );
    }
}

fn row(name: String, declared: &Declared) -> [String; 9] {
    let is_head = declared.buffers.is_empty();
    [
        name,
        declared.dtype.clone(),
        tuple(declared.shape.iter().map(|dimension| match dimension {
            Some(size) => size.to_string(),
            None => "None".into(),
        })),
        layout(&declared.layout),
        match &declared.quantization {
            None => String::new(),
            Some(Quantization::Scheme { text, .. }) => text.clone(),
            Some(Quantization::Unreadable { .. }) => "unreadable".into(),
        },
        distinct(&declared.buffers, |buffer| buffer.device.clone()),
        if is_head {
            String::new()
        } else {
            declared.byte_size().to_string()
        },
        distinct(&declared.buffers, |buffer| buffer.alignment.to_string()),
        distinct(&declared.buffers, |buffer| buffer.sync_mode.clone()),
    ]
}

/// What the rows of a table say, each thing once.
fn distinct(buffers: &[Buffer], of: impl Fn(&Buffer) -> String) -> String {
    let mut found: Vec<String> = Vec::new();
    for said in buffers.iter().map(of) {
        if !found.contains(&said) {
            found.push(said);
        }
    }
    found.join(", ")
}

/// As Python writes a tuple.
fn tuple(items: impl ExactSizeIterator<Item = String>) -> String {
    let comma = if items.len() == 1 { "," } else { "" };
    format!("({}{comma})", items.collect::<Vec<_>>().join(", "))
}

/// The name, then the parameters that are set.
fn layout(layout: &serde_json::Map<String, serde_json::Value>) -> String {
    let mut text = String::new();
    for (key, value) in layout {
        let value = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(value) => value.clone(),
            serde_json::Value::Array(items) => tuple(items.iter().map(ToString::to_string)),
            serde_json::Value::Object(nested) => format!("({})", self::layout(nested)),
            other => other.to_string(),
        };
        if key == "name" {
            text.push_str(&value);
        } else {
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{key}={value}");
        }
    }
    text
}

/// Shows the descriptor of the tensor `name`, or of all where it is empty.
fn dump(input: &Input, name: &str, out: &mut dyn Write) -> Result<(), CommandError> {
    let parts = input.parts.iter();
    let mut parts = parts
        .filter(|part| name.is_empty() || part.name == name)
        .peekable();
    if parts.peek().is_none() && !name.is_empty() {
        return Err(CommandError::NoTensor(name.into()));
    }
    let mut is_first = true;
    for part in parts {
        if !is_first {
            writeln!(out)?;
        }
        is_first = false;
        dump_part(part, out)?;
    }
    Ok(())
}

fn dump_part(part: &Part, out: &mut dyn Write) -> io::Result<()> {
    let bold = Style::new().bold();
    let dim = Style::new().dimmed();
    writeln!(
        out,
        "{bold}{}{bold:#}: {} bytes at {:#x}",
        printable(&part.name),
        part.bytes.len(),
        part.offset
    )?;
    let fields = fields::fields(&part.bytes);
    let width = fields
        .iter()
        .map(|field| field.name.len())
        .max()
        .unwrap_or(0);
    for field in fields {
        let bytes = part.bytes.get(field.at.clone()).unwrap_or_default();
        for (line, chunk) in bytes.chunks(LINE).enumerate() {
            let offset = field.at.start.saturating_add(line.saturating_mul(LINE));
            let bytes: Vec<_> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
            let bytes = bytes.join(" ");
            write!(out, "{dim}{offset:#06x}{dim:#}  ")?;
            if line == 0 {
                let text = format!("{bytes:<23}  {:<width$}  {}", field.name, field.meaning);
                writeln!(out, "{}", text.trim_end())?;
            } else {
                writeln!(out, "{bytes}")?;
            }
        }
    }
    Ok(())
}
