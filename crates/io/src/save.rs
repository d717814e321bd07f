use std::io::Write;
use std::path::Path;

use hurray_ffi::Item;

use crate::atomic_file::AtomicFile;
use crate::container_encoder::ContainerEncoder;
use crate::progress::{Progress, Watched};
use crate::{FileError, FileOptions, FileWriter, Value};

/// Writes a file of these items and this metadata to `path`, in the place of the one that is there, if one is: see [`AtomicFile`]. Items that
/// borrow the bytes of the old file keep them.
///
/// Everything that can be wrong with the items is found before anything is written. `progress` is told of the file's bytes.
///
/// # Errors
/// As [`FileWriter`]; the system's; [`FileError::Stopped`]. The old file is there still, and nothing else, unless only the last step failed: making
/// sure that the new one stays ([`AtomicFile::commit`]).
pub fn save<'a>(
    path: impl AsRef<Path>,
    items: impl IntoIterator<Item = (&'a str, &'a Item)> + Clone,
    metadata: &[(String, Value)],
    options: FileOptions,
    progress: &mut Progress<'_>,
) -> Result<(), FileError> {
    let total = measure(items.clone(), metadata, options)?;
    let mut file = AtomicFile::create(path)?;
    write_watched(&mut file, total, items, metadata, options, progress)?;
    Ok(file.commit()?)
}

/// As [`save`], to a sink, which is not synced; nothing is known of it where that fails.
///
/// # Errors
/// As [`FileWriter`]; [`FileError::Stopped`].
pub fn save_to<'a>(
    sink: impl Write,
    items: impl IntoIterator<Item = (&'a str, &'a Item)> + Clone,
    metadata: &[(String, Value)],
    options: FileOptions,
    progress: &mut Progress<'_>,
) -> Result<(), FileError> {
    let total = measure(items.clone(), metadata, options)?;
    write_watched(sink, total, items, metadata, options, progress)
}

/// The bytes of the file.
fn measure<'a>(
    items: impl IntoIterator<Item = (&'a str, &'a Item)>,
    metadata: &[(String, Value)],
    options: FileOptions,
) -> Result<u64, FileError> {
    let (mut encoder, _) = ContainerEncoder::new(options)?;
    for (key, value) in metadata {
        encoder.push_metadata(key.clone(), value.clone());
    }
    let mut parts = Vec::new();
    for (name, item) in items {
        encoder.push_item(name, item, &mut parts)?;
        parts.clear();
    }
    let (_, len) = encoder.finish()?;
    Ok(len)
}

fn write_watched<'a>(
    sink: impl Write,
    total: u64,
    items: impl IntoIterator<Item = (&'a str, &'a Item)>,
    metadata: &[(String, Value)],
    options: FileOptions,
    progress: &mut Progress<'_>,
) -> Result<(), FileError> {
    let mut sink = Watched::new(sink, total, progress);
    let written = write(&mut sink, items, metadata, options);
    if sink.is_stopped() {
        return Err(FileError::Stopped);
    }
    written
}

fn write<'a>(
    sink: impl Write,
    items: impl IntoIterator<Item = (&'a str, &'a Item)>,
    metadata: &[(String, Value)],
    options: FileOptions,
) -> Result<(), FileError> {
    let mut writer = FileWriter::new(sink, options)?;
    for (key, value) in metadata {
        writer.push_metadata(key, value.clone());
    }
    writer.write_items(items)?;
    writer.finish().map(drop)
}
