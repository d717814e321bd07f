//! `hurray diff`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::DiffArgs;
use crate::command_error::{CommandError, Outcome};
use crate::data;
use crate::input::{Input, Keep, Part};
use crate::progress;
use crate::report::{self, Declared};

/// How two inputs differ.
#[derive(Debug, Serialize)]
struct Difference {
    /// Tensors that only the old one has.
    removed: Vec<String>,
    /// Tensors that only the new one has.
    added: Vec<String>,
    changed: Vec<Changed>,
    metadata: Vec<Field>,
}

/// How two tensors of one name differ.
#[derive(Debug, Serialize)]
struct Changed {
    name: String,
    fields: Vec<Field>,
    buffers: Vec<Bytes>,
}

/// What differs in what is declared; `null` where one side does not have it.
#[derive(Debug, Serialize)]
struct Field {
    field: String,
    old: Value,
    new: Value,
}

/// How the bytes of two buffers differ.
#[derive(Debug, Serialize)]
struct Bytes {
    buffer: usize,
    name: String,
    old_bytes: u64,
    new_bytes: u64,
    /// Bytes that differ, as far as both go.
    differing: u64,
    /// The first of them, from the start of the buffer.
    first: Option<u64>,
}

/// Compares two inputs tensor by tensor.
pub(crate) fn run(args: &DiffArgs, out: &mut dyn Write) -> Result<Outcome, CommandError> {
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let difference = compare(&old, &new).map_err(|source| CommandError::Read {
        input: args.new.clone(),
        source,
    })?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &difference).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        say(&difference, out)?;
    }
    let Difference {
        removed,
        added,
        changed,
        metadata,
    } = &difference;
    let is_same =
        removed.is_empty() && added.is_empty() && changed.is_empty() && metadata.is_empty();
    Ok(if is_same {
        Outcome::Done
    } else {
        Outcome::Found
    })
}

/// Reads an input that has nothing wrong with it.
fn read(path: &Path) -> Result<Input, CommandError> {
    let mut input = Input::read(path, None, Keep::Yes)?;
    if input.faults.is_empty() {
        return Ok(input);
    }
    Err(CommandError::Malformed {
        input: path.to_owned(),
        fault: Box::new(input.faults.swap_remove(0)),
    })
}

fn compare(old: &Input, new: &Input) -> io::Result<Difference> {
    let by_name = |input: &Input| -> HashMap<String, usize> {
        let names = input.parts.iter().enumerate();
        names
            .map(|(number, part)| (part.name.clone(), number))
            .collect()
    };
    let (in_old, in_new) = (by_name(old), by_name(new));
    let missing = |from: &Input, names: &HashMap<String, usize>| -> Vec<String> {
        let parts = from
            .parts
            .iter()
            .filter(|part| !names.contains_key(&part.name));
        parts.map(|part| part.name.clone()).collect()
    };
    let pairs: Vec<(&Part, &Part)> = old
        .parts
        .iter()
        .filter_map(|part| Some((part, new.parts.get(*in_new.get(&part.name)?)?)))
        .collect();
    let total = pairs.iter().map(|(part, _)| part.byte_size()).sum();
    let bar = progress::bytes(total, "comparing");
    let changed: io::Result<Vec<_>> = pairs
        .into_par_iter()
        .map(|(left, right)| {
            let changed = Changed {
                name: left.name.clone(),
                fields: fields(left, right),
                buffers: match (&old.bytes, &new.bytes) {
                    (Some(old), Some(new)) => buffers((old, left), (new, right))?,
                    _ => Vec::new(),
                },
            };
            bar.inc(left.byte_size());
            let is_same = changed.fields.is_empty() && changed.buffers.is_empty();
            Ok((!is_same).then_some(changed))
        })
        .collect();
    Ok(Difference {
        removed: missing(old, &in_new),
        added: missing(new, &in_old),
        changed: changed?.into_iter().flatten().collect(),
        metadata: metadata(old, new),
    })
}

/// What the two descriptors say differently.
fn fields(old: &Part, new: &Part) -> Vec<Field> {
    let flat = |part: &Part| {
        let mut fields = BTreeMap::new();
        let declared = part.descriptor.as_ref().map(Declared::new);
        if let Ok(declared) = serde_json::to_value(declared) {
            flatten(String::new(), declared, &mut fields);
        }
        fields
    };
    unequal(flat(old), flat(new))
}

fn metadata(old: &Input, new: &Input) -> Vec<Field> {
    let flat = |input: &Input| {
        let pairs = report::metadata(input).into_iter();
        let pairs =
            pairs.filter_map(|pair| Some((pair.key.clone(), serde_json::to_value(pair).ok()?)));
        pairs.collect()
    };
    unequal(flat(old), flat(new))
}

fn unequal(mut old: BTreeMap<String, Value>, new: BTreeMap<String, Value>) -> Vec<Field> {
    let mut fields = Vec::new();
    for (field, new) in new {
        let old = old.remove(&field).unwrap_or_default();
        if old != new {
            fields.push(Field { field, old, new });
        }
    }
    fields.extend(
        old.into_iter()
            .filter(|(_, old)| !old.is_null())
            .map(|(field, old)| Field {
                field,
                old,
                new: Value::Null,
            }),
    );
    fields
}

/// Takes objects, and lists of objects, apart into `buffers[0].alignment` and the like.
fn flatten(name: String, value: Value, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(format!("{name}{dot}{key}"), value, fields);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.into_iter().enumerate() {
                flatten(format!("{name}[{index}]"), item, fields);
            }
        }
        other => {
            fields.insert(name, other);
        }
    }
}

fn buffers(old: (&File, &Part), new: (&File, &Part)) -> io::Result<Vec<Bytes>> {
    let mut found = Vec::new();
    let pairs = old.1.buffers.iter().zip(&new.1.buffers);
    for (buffer, (left, right)) in pairs.enumerate() {
        let length = |range: &std::ops::Range<u64>| range.end.saturating_sub(range.start);
        let (mut differing, mut first) = (0_u64, None);
        let starts = (left.start, right.start);
        let both = length(left).min(length(right));
        for piece in data::pieces(&(0..both)) {
            let at =
                |start: u64| start.saturating_add(piece.start)..start.saturating_add(piece.end);
            let left = data::whole(old.0, &at(starts.0))?;
            let right = data::whole(new.0, &at(starts.1))?;
            if left != right {
                let unequal = (piece.start..)
                    .zip(left.iter().zip(&right))
                    .filter(|(_, (old, new))| old != new);
                for (at, _) in unequal {
                    first.get_or_insert(at);
                    differing = differing.saturating_add(1);
                }
            }
        }
        let (old_bytes, new_bytes) = (length(left), length(right));
        if differing > 0 || old_bytes != new_bytes {
            found.push(Bytes {
                buffer,
                name: report::buffer_name(new.1, buffer),
                old_bytes,
                new_bytes,
                differing,
                first,
            });
        }
    }
    Ok(found)
}

fn say(difference: &Difference, out: &mut dyn Write) -> io::Result<()> {
    let style = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    let (red, green, yellow) = (
        style(AnsiColor::Red),
        style(AnsiColor::Green),
        style(AnsiColor::Yellow),
    );
    for name in &difference.removed {
        writeln!(out, "{red}- {name:?}{red:#}")?;
    }
    for name in &difference.added {
        writeln!(out, "{green}+ {name:?}{green:#}")?;
    }
    for changed in &difference.changed {
        writeln!(out, "{yellow}~ {:?}{yellow:#}", changed.name)?;
        for Field { field, old, new } in &changed.fields {
            writeln!(out, "    {field}: {old} -> {new}")?;
        }
        for bytes in &changed.buffers {
            write!(out, "    {}: ", bytes.name)?;
            if bytes.old_bytes != bytes.new_bytes {
                write!(out, "{} -> {} bytes, ", bytes.old_bytes, bytes.new_bytes)?;
            }
            let both = bytes.old_bytes.min(bytes.new_bytes);
            write!(out, "{} of {both} bytes differ", bytes.differing)?;
            match bytes.first {
                Some(first) => writeln!(out, ", the first at {first}")?,
                None => writeln!(out)?,
            }
        }
    }
    for Field { field, old, new } in &difference.metadata {
        let value = |value: &Value| value.get("value").unwrap_or(value).to_string();
        writeln!(
            out,
            "{yellow}~ metadata {field:?}{yellow:#}: {} -> {}",
            value(old),
            value(new)
        )?;
    }
    Ok(())
}
