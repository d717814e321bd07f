//! What is said of an input: the fields of its JSON, whose names do not change, and what the other outputs are made of.

use std::borrow::Cow;

use hurray_core::{
    CombineOp, CompositionRule, DYNAMIC, ExtensionType, IndexType, InnerOrder, KvRole, Layout,
    MemberRole, QuantizationScheme, QuantizationSection, Shard, Statistics, TensorDescriptor,
    TileLevel, TileOrder,
};
use hurray_ffi::Place;
use hurray_io::{Array, Value};
use serde::Serialize;
use serde_json::{Map, json};

use crate::fault::Fault;
use crate::input::{Format, Input, Part};
use crate::spent::Spent;

/// An input.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) input: String,
    pub(crate) format: Format,
    pub(crate) byte_size: u64,
    /// What the buffers of a file are aligned to.
    pub(crate) alignment: Option<u32>,
    /// Whether a file's index is in the order of the names.
    pub(crate) is_sorted: Option<bool>,
    /// A file's keys and values.
    pub(crate) metadata: Vec<Pair>,
    /// Tensors, those in composites too.
    pub(crate) tensor_count: usize,
    pub(crate) tensors: Vec<Tensor>,
    /// Nothing where the parts of the input cannot be told apart.
    pub(crate) bytes_spent: Option<Spent>,
    pub(crate) faults: &'a [Fault],
}

/// A key and its value.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) r#type: &'static str,
    pub(crate) value: serde_json::Value,
}

/// A tensor, or a composite's head with its members.
#[derive(Debug, Serialize)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) descriptor_offset: u64,
    pub(crate) descriptor_length: usize,
    /// What the descriptor says; nothing if it cannot be read.
    #[serde(flatten)]
    pub(crate) declared: Option<Declared>,
    /// Where its buffers are in the input.
    pub(crate) buffer_offsets: Vec<u64>,
    pub(crate) members: Vec<Tensor>,
}

/// What a descriptor says.
#[derive(Debug, Serialize)]
pub(crate) struct Declared {
    pub(crate) version: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<Option<u64>>,
    pub(crate) byte_offset: u64,
    pub(crate) layout: Map<String, serde_json::Value>,
    pub(crate) quantization: Option<Quantization>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) shard: Option<serde_json::Value>,
    pub(crate) statistics: Option<serde_json::Value>,
    pub(crate) extension_type: Option<serde_json::Value>,
    pub(crate) member_role: Option<&'static str>,
    /// What a later minor version appended, in hexadecimal digits.
    pub(crate) appended: String,
}

/// A quantization section.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Quantization {
    /// One that can be read.
    Scheme {
        scheme: &'static str,
        #[serde(flatten)]
        parameters: Map<String, serde_json::Value>,
        #[serde(skip)]
        text: String,
    },
    /// One that can only be relayed.
    Unreadable {
        /// Its bytes in hexadecimal digits.
        unreadable: String,
    },
}

/// A row of a descriptor's buffer table.
#[derive(Debug, Serialize)]
pub(crate) struct Buffer {
    /// What the buffer holds, where the descriptor says so.
    pub(crate) name: Option<String>,
    pub(crate) byte_size: u64,
    pub(crate) alignment: u32,
    pub(crate) device: String,
    pub(crate) sync_mode: String,
}

impl<'a> Report<'a> {
    pub(crate) fn new(name: String, input: &'a Input) -> Self {
        let container = input.container.as_ref();
        let is_open = container.is_some() || input.format != Format::File;
        Self {
            input: name,
            format: input.format,
            byte_size: input.size,
            alignment: container.map(|container| container.alignment),
            is_sorted: container.map(|container| container.is_sorted),
            metadata: metadata(input),
            tensor_count: input.tensor_count(),
            tensors: tensors(input),
            bytes_spent: is_open.then(|| Spent::new(input)),
            faults: &input.faults,
        }
    }
}

/// The metadata of a file.
pub(crate) fn metadata(input: &Input) -> Vec<Pair> {
    let pairs = input.container.iter().flat_map(|file| &file.metadata);
    pairs.map(|(key, value)| pair(key, value)).collect()
}

/// The tensors, members inside their heads.
pub(crate) fn tensors(input: &Input) -> Vec<Tensor> {
    let roots = input.roots.iter();
    roots.filter_map(|&root| tensor(input, root)).collect()
}

/// Heads nest 64 levels deep at most.
fn tensor(input: &Input, part: usize) -> Option<Tensor> {
    let part = input.parts.get(part)?;
    let members = part.members.iter();
    Some(Tensor {
        name: part.name.clone(),
        descriptor_offset: part.offset,
        descriptor_length: part.bytes.len(),
        declared: part.descriptor.as_ref().map(Declared::new),
        buffer_offsets: part.buffers.iter().map(|range| range.start).collect(),
        members: members
            .filter_map(|&member| tensor(input, member))
            .collect(),
    })
}

/// `1 tensor`, `2 tensors`.
pub(crate) fn counted(tensors: usize) -> String {
    let plural = if tensors == 1 { "" } else { "s" };
    format!("{tensors} tensor{plural}")
}

/// Names and texts are any characters: those that would steer a terminal are written as escapes.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_control() {
            escaped.extend(character.escape_debug());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// The names of the buffers of a tensor, where its descriptor gives them.
pub(crate) fn buffer_names(descriptor: &TensorDescriptor) -> Vec<Option<String>> {
    let plan = descriptor.buffer_plan().unwrap_or_default();
    (0..descriptor.buffers.len())
        .map(|index| plan.get(index).map(|buffer| buffer.name.to_string()))
        .collect()
}

/// How a buffer of a part is called in what is said of it.
pub(crate) fn buffer_name(part: &Part, index: usize) -> String {
    let names = part
        .descriptor
        .as_ref()
        .map(buffer_names)
        .unwrap_or_default();
    match names.into_iter().nth(index).flatten() {
        Some(name) => name,
        None => format!("buffers[{index}]"),
    }
}

impl Declared {
    pub(crate) fn new(descriptor: &TensorDescriptor) -> Self {
        let names = buffer_names(descriptor);
        let buffers = descriptor.buffers.iter().zip(names);
        Self {
            version: format!("{}.{}", descriptor.version.major, descriptor.version.minor),
            dtype: descriptor.element_type.to_string(),
            shape: dimensions(&descriptor.shape),
            byte_offset: descriptor.byte_offset,
            layout: layout(&descriptor.layout),
            quantization: descriptor.quantization.as_ref().map(quantization),
            buffers: buffers
                .map(|(row, name)| Buffer {
                    name,
                    byte_size: row.byte_size,
                    alignment: row.alignment,
                    device: Place {
                        device: row.device,
                        device_id: 0,
                        memory_class: row.memory_class,
                    }
                    .to_string(),
                    sync_mode: row.sync_mode.to_string(),
                })
                .collect(),
            shard: descriptor.shard.as_ref().map(shard),
            statistics: descriptor.statistics.as_ref().map(statistics),
            extension_type: descriptor.extension_type.as_ref().map(extension_type),
            member_role: descriptor.member.map(|role| match role {
                MemberRole::Base => "base",
                MemberRole::Correction => "correction",
            }),
            appended: hex(&descriptor.skipped),
        }
    }

    /// The bytes of all buffers.
    pub(crate) fn byte_size(&self) -> u64 {
        let sizes = self.buffers.iter().map(|buffer| buffer.byte_size);
        sizes.fold(0, u64::saturating_add)
    }
}

fn dimensions(shape: &[u64]) -> Vec<Option<u64>> {
    let dimensions = shape.iter();
    dimensions
        .map(|&dimension| (dimension != DYNAMIC).then_some(dimension))
        .collect()
}

/// The name and the parameters, as the Python classes call them.
fn layout(layout: &Layout) -> Map<String, serde_json::Value> {
    let mut parameters = match layout {
        Layout::RowMajor | Layout::ColumnMajor => json!({}),
        Layout::Strided(strides) => json!({"strides": strides.as_slice()}),
        Layout::Tiled(level) => tiles(level),
        Layout::Morton(morton) => json!({"morton_bits": morton.bits.as_slice()}),
        Layout::Coo(coo) => json!({"nnz": coo.nnz, "is_sorted": coo.is_sorted}),
        Layout::Csr { nnz } | Layout::Csc { nnz } => json!({"nnz": nnz}),
        Layout::Csf(csf) => json!({"nnz": csf.nnz, "mode_order": csf.mode_order.as_slice()}),
        Layout::BlockPaged(paged) => json!({
            "page_size": paged.page_size,
            "num_pages": paged.num_pages,
            "paged_axis": paged.paged_axis,
            "num_seqs": paged.num_seqs,
            "kv_role": match paged.kv_role {
                KvRole::Key => "key",
                KvRole::Value => "value",
                KvRole::Fused => "fused",
            },
            "layer_index": paged.layer_index,
            "block_table_index_type": match paged.index_type {
                IndexType::Uint32 => "uint32",
                IndexType::Uint64 => "uint64",
            },
        }),
        Layout::Composite(head) => json!({
            "composition_rule": match head.rule {
                CompositionRule::Partition => "partition",
                CompositionRule::Overlay(_) => "overlay",
                CompositionRule::Group => "group",
            },
            "combine_op": match head.rule {
                CompositionRule::Overlay(CombineOp::Replace) => Some("replace"),
                CompositionRule::Overlay(CombineOp::Add) => Some("add"),
                _ => None,
            },
            "member_count": head.member_count,
        }),
        Layout::Hilbert(hilbert) => json!({
            "hilbert_order": hilbert.order,
            "hilbert_rank": hilbert.rank,
        }),
        Layout::Private(private) => json!({
            "tag": private.tag.get(),
            "extension_layout_id": private.id,
            "extension_data": hex(&private.data),
        }),
    };
    let mut map = Map::new();
    map.insert("name".into(), layout.name().into());
    if let Some(parameters) = parameters.as_object_mut() {
        map.append(parameters);
    }
    map
}

fn tiles(level: &TileLevel) -> serde_json::Value {
    let (outer, outer_strides) = match &level.outer {
        TileOrder::RowMajor => ("row_major", None),
        TileOrder::ColumnMajor => ("col_major", None),
        TileOrder::Strided(strides) => ("strided", Some(strides.as_slice())),
    };
    let (inner, inner_strides, inner_tiled) = match &level.inner {
        InnerOrder::RowMajor => ("row_major", None, None),
        InnerOrder::ColumnMajor => ("col_major", None, None),
        InnerOrder::Strided(strides) => ("strided", Some(strides.as_slice()), None),
        InnerOrder::Tiled(level) => ("tiled", None, Some(tiles(level))),
    };
    json!({
        "tile_shape": level.tile_shape.as_slice(),
        "outer_layout": outer,
        "outer_strides": outer_strides,
        "inner_layout": inner,
        "inner_strides": inner_strides,
        "inner_tiled": inner_tiled,
    })
}

fn quantization(section: &QuantizationSection) -> Quantization {
    let Ok(scheme) = section.scheme() else {
        return Quantization::Unreadable {
            unreadable: hex(section.as_bytes()),
        };
    };
    let (name, parameters) = match &scheme {
        QuantizationScheme::TensorAffine(tensor) => (
            "PerTensorAffine",
            json!({"scale": tensor.scale, "zero_point": tensor.zero_point}),
        ),
        QuantizationScheme::ChannelAffine(channel) => (
            "PerChannelAffine",
            json!({
                "axis": channel.axis,
                "scale_buffer_index": channel.scale_buffer,
                "zero_point_buffer_index": channel.zero_point_buffer,
            }),
        ),
        QuantizationScheme::BlockAffine(block) => (
            "PerBlockAffine",
            json!({
                "axis": block.axis,
                "block_size": block.block_size,
                "scale_buffer_index": block.scale_buffer,
                "zero_point_buffer_index": block.zero_point_buffer,
                "scale_type": scheme.scale_type().to_string(),
            }),
        ),
        QuantizationScheme::Nf4(nf4) => (
            "NF4",
            json!({
                "axis": nf4.axis,
                "block_size": nf4.block_size,
                "scale_buffer_index": nf4.scale_buffer,
            }),
        ),
        QuantizationScheme::Mxfp(mxfp) => (
            "MXFP",
            json!({
                "axis": mxfp.axis,
                "block_size": mxfp.block_size,
                "scale_buffer_index": mxfp.scale_buffer,
            }),
        ),
    };
    Quantization::Scheme {
        scheme: name,
        parameters: match parameters {
            serde_json::Value::Object(parameters) => parameters,
            _ => Map::new(),
        },
        text: scheme.to_string(),
    }
}

fn shard(shard: &Shard) -> serde_json::Value {
    json!({
        "parent_shape": dimensions(&shard.parent_shape),
        "shard_offset": shard.offset.as_slice(),
    })
}

fn statistics(statistics: &Statistics) -> serde_json::Value {
    let number = |value: Option<f64>| value.map(float);
    json!({
        "nnz": statistics.nnz(),
        "sparsity_ratio": number(statistics.sparsity_ratio()),
        "value_min": number(statistics.value_min()),
        "value_max": number(statistics.value_max()),
        "value_abs_max": number(statistics.value_abs_max()),
        "value_mean": number(statistics.value_mean()),
        "value_stddev": number(statistics.value_stddev()),
        "nm_n": statistics.nm_n(),
        "nm_m": statistics.nm_m(),
        "has_nan": statistics.has_nan(),
        "has_inf": statistics.has_inf(),
    })
}

fn extension_type(extension_type: &ExtensionType) -> serde_json::Value {
    json!({
        "bit_width": extension_type.bit_width,
        "is_float": extension_type.is_float,
        "is_signed": extension_type.is_signed,
        "sign_bits": extension_type.sign_bits,
        "exponent_bits": extension_type.exponent_bits,
        "mantissa_bits": extension_type.mantissa_bits,
        "exponent_bias": extension_type.exponent_bias,
        "has_nan": extension_type.has_nan,
        "has_inf": extension_type.has_inf,
    })
}

fn pair(key: &str, value: &Value) -> Pair {
    Pair {
        key: key.to_owned(),
        r#type: match value {
            Value::String(_) => "string",
            Value::Int64(_) => "int64",
            Value::Uint64(_) => "uint64",
            Value::Float64(_) => "float64",
            Value::Bool(_) => "bool",
            Value::Bytes(_) => "bytes",
            Value::Array(Array::String(_)) => "array of string",
            Value::Array(Array::Int64(_)) => "array of int64",
            Value::Array(Array::Uint64(_)) => "array of uint64",
            Value::Array(Array::Float64(_)) => "array of float64",
            Value::Array(Array::Bool(_)) => "array of bool",
            Value::Array(Array::Bytes(_)) => "array of bytes",
            _ => "unknown",
        },
        value: json(value),
    }
}

/// A metadata value; bytes as hexadecimal digits.
pub(crate) fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::String(value) => json!(value),
        Value::Int64(value) => json!(value),
        Value::Uint64(value) => json!(value),
        Value::Float64(value) => float(*value),
        Value::Bool(value) => json!(value),
        Value::Bytes(value) => json!(hex(value)),
        Value::Array(Array::String(values)) => json!(values),
        Value::Array(Array::Int64(values)) => json!(values),
        Value::Array(Array::Uint64(values)) => json!(values),
        Value::Array(Array::Float64(values)) => values.iter().map(|&value| float(value)).collect(),
        Value::Array(Array::Bool(values)) => json!(values),
        Value::Array(Array::Bytes(values)) => values.iter().map(|value| hex(value)).collect(),
        other => json!(format!("{other:?}")),
    }
}

/// JSON has no numbers that are not finite.
fn float(value: f64) -> serde_json::Value {
    if value.is_finite() {
        value.into()
    } else {
        value.to_string().to_lowercase().into()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
