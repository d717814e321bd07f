use std::io::Write;
use std::path::Path;

use hurray_core::TensorDescriptor;
use hurray_io::{FileOptions, FileWriter};

use super::source::Source;
use super::{ConvertError, Selected};

/// What the tensors have in bytes.
pub(crate) fn size(selected: &[Selected<'_>]) -> u64 {
    let rows = selected.iter().flat_map(|one| &one.descriptor.buffers);
    rows.fold(0, |bytes, row| bytes.saturating_add(row.byte_size))
}

/// Writes a file of this project, which is to be at `output`. Bytes go from where they lie in the input to their aligned places.
pub(crate) fn write<'a>(
    source: &dyn Source<'a>,
    selected: &[Selected<'_>],
    sink: impl Write,
    output: &Path,
    alignment: u32,
) -> Result<(), ConvertError> {
    let mut options = FileOptions::default();
    options.alignment = alignment;
    let failed = |error| ConvertError::unwritable(output, error);
    let mut writer = FileWriter::new(sink, options).map_err(failed)?;
    for (key, value) in source.metadata() {
        writer.push_metadata(key, value.clone());
    }
    for &Selected {
        number,
        name,
        descriptor,
    } in selected
    {
        let buffers = source.read(number)?;
        let bytes: Vec<&[u8]> = buffers.iter().map(|bytes| &**bytes).collect();
        writer
            .write_bytes(name, TensorDescriptor::clone(descriptor), &bytes)
            .map_err(failed)?;
    }
    writer.finish().map(drop).map_err(failed)
}
