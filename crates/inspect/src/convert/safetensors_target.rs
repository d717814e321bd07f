//! Writing safetensors: what each tensor becomes there, and the file.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::ops::Range;

use hurray_core::memory::AlignedBytes;
use hurray_core::{
    BufferName, ElementType, Layout, QuantizationScheme, StorageWidth, TensorDescriptor,
    column_major_strides, element_count, row_major_strides,
};
use hurray_ffi::gather::{Elements, GatherError, Spacing, gather};
use hurray_io::Value;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};

use super::refusal::Refusal;
use super::safetensors_type::dtype;
use super::source::{Bytes, Source};
use super::{ConvertError, Selected};
use crate::report;

/// The most bytes of a header that readers take.
const MOST_HEADER: usize = 100_000_000;
/// The key of what `--split` tells of a tensor is this and the tensor's name.
const SPLIT_KEY: &str = "hurray.split.";
const RESERVED_NAME: &str = "__metadata__";

/// A tensor of the output.
#[derive(Debug)]
pub(crate) struct Part {
    /// The tensor of the input.
    number: usize,
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    len: usize,
    content: Content,
}

/// Where a part's bytes come from.
#[derive(Debug)]
enum Content {
    /// Bytes of a buffer, as they are.
    Slice { buffer: usize, range: Range<usize> },
    /// Elements of a buffer, brought into row-major order.
    Gathered {
        buffer: usize,
        origin: u64,
        shape: Vec<u64>,
        strides: Vec<i64>,
        width: StorageWidth,
        target: Spacing,
        /// Whether the sign of a narrow integer is the sign of its byte.
        is_signed: bool,
    },
    /// Bytes that no buffer has.
    Inline(Vec<u8>),
}

/// The whole output before it is written.
#[derive(Debug)]
pub(crate) struct Plan {
    header: Vec<u8>,
    parts: Vec<Part>,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// What is changed on the way out.
    pub(crate) notes: Vec<String>,
}

/// What each tensor becomes. Bytes that are made of fewer bytes may be `most_unpacked` in all.
pub(crate) fn plan<'a>(
    source: &dyn Source<'a>,
    selected: &[Selected<'_>],
    split: bool,
    most_unpacked: u64,
) -> Result<Plan, ConvertError> {
    let mut planner = Planner {
        split,
        parts: Vec::new(),
        metadata: HashMap::new(),
        notes: Vec::new(),
    };
    let mut refused = Vec::new();
    for one in selected {
        if let Err(reason) = planner.tensor(one) {
            refused.push((one.name.to_owned(), reason));
        }
    }
    if !refused.is_empty() {
        return Err(ConvertError::Refused(super::Refused(refused)));
    }
    planner.check_expansion(selected, most_unpacked)?;
    planner.keep_metadata(source.metadata());
    planner.finish()
}

/// Writes the file.
pub(crate) fn write<'a>(
    source: &dyn Source<'a>,
    plan: &Plan,
    mut sink: impl Write,
    output: impl Fn(std::io::Error) -> ConvertError,
) -> Result<(), ConvertError> {
    sink.write_all(&plan.header).map_err(&output)?;
    for part in &plan.parts {
        let buffers = source.read(part.number)?;
        let failed = |source| ConvertError::Gather {
            name: part.name.clone(),
            source,
        };
        let copy;
        let bytes = match &part.content {
            Content::Slice { buffer, range } => {
                let bytes = buffers.get(*buffer).map_or(&[][..], |bytes| bytes);
                bytes.get(range.clone()).unwrap_or_default()
            }
            Content::Inline(bytes) => bytes,
            content => {
                copy = content.gathered(&buffers).map_err(failed)?;
                &copy
            }
        };
        sink.write_all(bytes).map_err(&output)?;
    }
    sink.flush().map_err(&output)
}

impl Content {
    fn gathered(&self, buffers: &[Bytes<'_>]) -> Result<AlignedBytes, GatherError> {
        let Self::Gathered {
            buffer,
            origin,
            shape,
            strides,
            width,
            target,
            is_signed,
        } = self
        else {
            return Ok(AlignedBytes::zeroed(0)?);
        };
        let elements = Elements {
            bytes: buffers.get(*buffer).map_or(&[], |bytes| bytes),
            origin: *origin,
            shape,
            strides,
            width: *width,
            spacing: Spacing::Packed,
        };
        let mut copy = gather(&elements, *target)?;
        if *is_signed {
            let unused = 8_u32.saturating_sub(width.bits());
            for code in copy.iter_mut() {
                *code = ((*code << unused).cast_signed() >> unused).cast_unsigned();
            }
        }
        Ok(copy)
    }
}

struct Planner {
    split: bool,
    parts: Vec<Part>,
    metadata: HashMap<String, String>,
    notes: Vec<String>,
}

impl Planner {
    fn tensor(&mut self, one: &Selected<'_>) -> Result<(), Refusal> {
        let descriptor = one.descriptor;
        if descriptor.layout.is_virtual() {
            if !self.split {
                return Err(Refusal::Composite);
            }
            self.tell(one, "its members are tensors of their own");
            return Ok(());
        }
        if let Some(section) = &descriptor.quantization {
            let scheme = section.scheme().ok();
            if !self.split {
                let scheme = scheme.as_ref().map(QuantizationScheme::name);
                return Err(Refusal::Quantized { scheme });
            }
            return match scheme {
                Some(scheme) if has_strides(&descriptor.layout) => self.quantized(one, &scheme),
                _ => self.buffers(one),
            };
        }
        match self.elements(one, one.name) {
            Err(_) if self.split => self.buffers(one),
            result => result,
        }
    }

    /// The elements of a dense tensor, under a name.
    fn elements(&mut self, one: &Selected<'_>, name: &str) -> Result<(), Refusal> {
        let descriptor = one.descriptor;
        if !has_strides(&descriptor.layout) {
            let layout = descriptor.layout.name();
            return Err(Refusal::Layout { layout });
        }
        let element_type = descriptor.element_type;
        let no_type = Refusal::NoSafetensorsType { element_type };
        let dtype = dtype(element_type).ok_or(no_type)?;
        let target = if element_type == ElementType::Bool {
            Spacing::BytePerElement
        } else {
            Spacing::Packed
        };
        let count = element_count(&descriptor.shape).unwrap_or(0);
        let bits = count.checked_mul(dtype.bitsize() as u64);
        if bits.is_none_or(|bits| !bits.is_multiple_of(8)) {
            return Err(Refusal::PartialByte {
                element_type,
                count,
            });
        }
        self.push_dense(one.number, descriptor, name, dtype, target)?;
        if !matches!(descriptor.layout, Layout::RowMajor) {
            let layout = descriptor.layout.name();
            self.note(one.name, &format!("{layout}, copied to row-major"));
        }
        Ok(())
    }

    fn push_dense(
        &mut self,
        number: usize,
        descriptor: &TensorDescriptor,
        name: &str,
        dtype: Dtype,
        target: Spacing,
    ) -> Result<(), Refusal> {
        let shape = &descriptor.shape;
        let width = descriptor
            .element_width()
            .map_err(hurray_core::Error::from)?;
        let origin = descriptor.byte_offset;
        let count = element_count(shape).unwrap_or(0);
        let is_unpacked = target == Spacing::BytePerElement && width.is_packed();
        let len = if is_unpacked {
            Some(count)
        } else {
            width.byte_size(count)
        };
        let len = len
            .and_then(|len| usize::try_from(len).ok())
            .unwrap_or(usize::MAX);
        let strides = match &descriptor.layout {
            Layout::RowMajor => None,
            Layout::ColumnMajor => Some(column_major_strides(shape)),
            Layout::Strided(strides) => Some(Ok(strides.clone())),
            _ => None,
        };
        let strides = match strides {
            None if is_unpacked => Some(row_major_strides(shape)),
            strides => strides,
        };
        let content = match strides {
            None => {
                let start = usize::try_from(origin).unwrap_or(usize::MAX);
                let range = start..start.saturating_add(len);
                Content::Slice { buffer: 0, range }
            }
            Some(strides) => Content::Gathered {
                buffer: 0,
                origin,
                shape: shape.to_vec(),
                strides: strides.map_err(hurray_core::Error::from)?.to_vec(),
                width,
                target,
                is_signed: dtype == Dtype::I8,
            },
        };
        self.push(number, name.to_owned(), dtype, shape, len, content);
        Ok(())
    }

    fn push(
        &mut self,
        number: usize,
        name: String,
        dtype: Dtype,
        shape: &[u64],
        len: usize,
        content: Content,
    ) {
        self.parts.push(Part {
            number,
            name,
            dtype,
            shape: shape.iter().map(|&size| size as usize).collect(),
            len,
            content,
        });
    }

    /// Codes under the tensor's name, and the parameters beside them.
    fn quantized(
        &mut self,
        one: &Selected<'_>,
        scheme: &QuantizationScheme,
    ) -> Result<(), Refusal> {
        let &Selected {
            number,
            name,
            descriptor,
        } = one;
        let code_type = match descriptor.element_type {
            ElementType::Int4 | ElementType::Int2 => Some(Dtype::I8),
            ElementType::Uint4 | ElementType::Uint2 => Some(Dtype::U8),
            _ => None,
        };
        match code_type {
            Some(dtype) => {
                self.push_dense(number, descriptor, name, dtype, Spacing::BytePerElement)?;
            }
            None if self.elements(one, name).is_err() => return self.buffers(one),
            None => {}
        }
        let scale_name = match scheme {
            QuantizationScheme::Nf4(_) => format!("{name}_absmax"),
            _ => format!("{name}_scale"),
        };
        let zero_name = format!("{name}_zero_point");
        if let QuantizationScheme::TensorAffine(tensor) = scheme {
            let mut scalar = |name, dtype, bytes: [u8; 4]| {
                let content = Content::Inline(bytes.to_vec());
                self.push(number, name, dtype, &[], bytes.len(), content);
            };
            scalar(scale_name, Dtype::F32, tensor.scale.to_le_bytes());
            scalar(zero_name, Dtype::I32, tensor.zero_point.to_le_bytes());
        } else if let (Some(buffer), zero_points) = scheme.parameter_buffers() {
            let scale_type = scheme.scale_type();
            self.parameters(one, scheme, scale_name, scale_type, buffer, 0)?;
            if let Some(zero_buffer) = zero_points {
                // In a shared buffer they lie behind the scales.
                let count = scheme
                    .parameter_count(&descriptor.shape, &descriptor.layout)
                    .map_err(hurray_core::Error::from)?;
                let scale_bytes = scale_type
                    .storage_width()
                    .and_then(|width| width.byte_size(count))
                    .unwrap_or(0);
                let origin = if zero_buffer == buffer {
                    scale_bytes
                } else {
                    0
                };
                let zero_type = ElementType::Int32;
                self.parameters(one, scheme, zero_name, zero_type, zero_buffer, origin)?;
            }
        }
        self.tell(one, "codes and parameters are tensors of their own");
        Ok(())
    }

    /// One number for each channel or block, in a shape that shows the axis: that of the codes with 1 elsewhere, or with the number of blocks there.
    fn parameters(
        &mut self,
        one: &Selected<'_>,
        scheme: &QuantizationScheme,
        name: String,
        element_type: ElementType,
        buffer: u32,
        origin: u64,
    ) -> Result<(), Refusal> {
        let no_type = Refusal::NoSafetensorsType { element_type };
        let (Some(dtype), Some(width), Some(axis)) = (
            dtype(element_type),
            element_type.storage_width(),
            scheme.axis(),
        ) else {
            return Err(no_type);
        };
        let axis = axis as usize;
        let mut shape = one.descriptor.shape.to_vec();
        let mut strides: Vec<i64>;
        if let Some(block_size) = scheme.block_size() {
            // Entries lie with the axis last, whichever it is.
            let blocks = shape.get_mut(axis).map_or(0, |size| {
                *size = size.div_ceil(block_size.into());
                *size
            });
            let mut others = shape.clone();
            others.remove(axis);
            let outer = row_major_strides(&others).map_err(hurray_core::Error::from)?;
            let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
            strides = outer
                .iter()
                .map(|stride| stride.saturating_mul(blocks))
                .collect();
            strides.insert(axis, 1);
        } else {
            for (dimension, size) in shape.iter_mut().enumerate() {
                if dimension != axis {
                    *size = 1;
                }
            }
            strides = vec![0; shape.len()];
            if let Some(stride) = strides.get_mut(axis) {
                *stride = 1;
            }
        }
        let len = element_count(&shape)
            .and_then(|count| width.byte_size(count))
            .and_then(|len| usize::try_from(len).ok())
            .unwrap_or(usize::MAX);
        let content = Content::Gathered {
            buffer: buffer as usize,
            origin,
            shape: shape.clone(),
            strides,
            width,
            target: Spacing::Packed,
            is_signed: false,
        };
        self.push(one.number, name, dtype, &shape, len, content);
        Ok(())
    }

    /// Each buffer as a list of its own: of numbers where safetensors has their type, of bytes otherwise.
    fn buffers(&mut self, one: &Selected<'_>) -> Result<(), Refusal> {
        let plan = one.descriptor.buffer_plan()?;
        for (buffer, row) in one.descriptor.buffers.iter().enumerate() {
            let planned = plan.get(buffer);
            let name = match planned.map(|planned| planned.name) {
                Some(BufferName::ScalesAndZeroPoints) => "scales_and_zero_points".to_owned(),
                Some(BufferName::Private) | None => format!("buffer_{buffer}"),
                Some(name) => name.to_string(),
            };
            let typed = planned
                .filter(|planned| planned.name != BufferName::ScalesAndZeroPoints)
                .and_then(|planned| planned.element_type)
                .filter(|element_type| *element_type != ElementType::Bool)
                .and_then(dtype)
                .filter(|dtype| dtype.bitsize() >= 8);
            let bytes = typed.map_or(1, |dtype| dtype.bitsize() as u64 / 8);
            let (dtype, count) = if row.byte_size.is_multiple_of(bytes) {
                (typed.unwrap_or(Dtype::U8), row.byte_size / bytes)
            } else {
                (Dtype::U8, row.byte_size)
            };
            let len = usize::try_from(row.byte_size).unwrap_or(usize::MAX);
            let content = Content::Slice {
                buffer,
                range: 0..len,
            };
            let name = format!("{}.{name}", one.name);
            self.push(one.number, name, dtype, &[count], len, content);
        }
        self.tell(one, "its buffers are tensors of their own");
        Ok(())
    }

    /// Keeps what the parts of a tensor do not say: a note, and a JSON object in the metadata.
    fn tell(&mut self, one: &Selected<'_>, what: &str) {
        let descriptor = one.descriptor;
        let scheme = descriptor
            .quantization
            .as_ref()
            .and_then(|section| section.scheme().ok());
        let said = serde_json::json!({
            "element_type": descriptor.element_type.to_string(),
            "shape": descriptor.shape.to_vec(),
            "layout": descriptor.layout.name(),
            "quantization": scheme.as_ref().map(QuantizationScheme::name),
            "axis": scheme.as_ref().and_then(QuantizationScheme::axis),
            "block_size": scheme.as_ref().and_then(QuantizationScheme::block_size),
        });
        let key = format!("{SPLIT_KEY}{}", one.name);
        self.metadata.insert(key, said.to_string());
        self.note(one.name, &format!("split: {what}"));
    }

    fn note(&mut self, name: &str, what: &str) {
        self.notes.push(format!("{name:?}: {what}"));
    }

    /// Sizes are claims where elements share their bytes: a stride of zero makes one byte into as many as the shape says.
    fn check_expansion(
        &self,
        selected: &[Selected<'_>],
        most_unpacked: u64,
    ) -> Result<(), ConvertError> {
        let stored: HashMap<usize, u64> = selected
            .iter()
            .map(|one| (one.number, one.descriptor.buffers.iter()))
            .map(|(number, rows)| (number, rows.map(|row| row.byte_size).sum()))
            .collect();
        let mut more = 0_u64;
        for part in &self.parts {
            if let Content::Gathered { .. } = part.content {
                let stored = stored.get(&part.number).copied().unwrap_or(0);
                more = more.saturating_add((part.len as u64).saturating_sub(stored));
            }
        }
        if more > most_unpacked {
            return Err(ConvertError::Unpacked {
                bytes: more,
                most: most_unpacked,
            });
        }
        Ok(())
    }

    /// Strings stay; other values become their JSON text.
    fn keep_metadata(&mut self, metadata: &[(String, Value)]) {
        for (key, value) in metadata {
            if self.metadata.contains_key(key) {
                self.note(
                    key,
                    "this metadata tells of an earlier split, and is left out",
                );
                continue;
            }
            let text = match value {
                Value::String(text) => text.clone(),
                value => {
                    self.note(key, "this metadata is no string, and becomes its JSON text");
                    report::json(value).to_string()
                }
            };
            self.metadata.insert(key.clone(), text);
        }
    }

    fn finish(mut self) -> Result<Plan, ConvertError> {
        let mut names = HashSet::new();
        for part in &self.parts {
            if part.name == RESERVED_NAME || !names.insert(&part.name) {
                let name = part.name.clone();
                return Err(ConvertError::Collision { name });
            }
        }
        // As the `safetensors` crate writes: by falling alignment, then by name, so that every tensor is aligned to its elements.
        self.parts
            .sort_by(|a, b| b.dtype.cmp(&a.dtype).then_with(|| a.name.cmp(&b.name)));
        let mut offset = 0_usize;
        let mut infos = Vec::new();
        for part in &self.parts {
            let end = offset
                .checked_add(part.len)
                .ok_or(ConvertError::Header(SafeTensorError::ValidationOverflow))?;
            let info = TensorInfo {
                dtype: part.dtype,
                shape: part.shape.clone(),
                data_offsets: (offset, end),
            };
            infos.push((part.name.clone(), info));
            offset = end;
        }
        let metadata = (!self.metadata.is_empty()).then_some(self.metadata);
        let metadata = Metadata::new(metadata, infos).map_err(ConvertError::Header)?;
        let mut text =
            serde_json::to_vec(&metadata).map_err(|error| ConvertError::Header(error.into()))?;
        text.resize(text.len().next_multiple_of(8), b' ');
        if text.len() > MOST_HEADER {
            return Err(ConvertError::Header(SafeTensorError::HeaderTooLarge));
        }
        let mut header = (text.len() as u64).to_le_bytes().to_vec();
        header.extend(text);
        Ok(Plan {
            size: (header.len() as u64).saturating_add(offset as u64),
            header,
            parts: self.parts,
            notes: self.notes,
        })
    }
}

fn has_strides(layout: &Layout) -> bool {
    matches!(
        layout,
        Layout::RowMajor | Layout::ColumnMajor | Layout::Strided(_)
    )
}
