//! The golden files of `tests/vectors` at the root of the repository, and the descriptor as their manifests tell it.

use std::path::PathBuf;

use hurray_core::{
    CombineOp, CompositionRule, DYNAMIC, DeviceTag, ElementType, ExtensionType, IndexType,
    InnerOrder, KvRole, Layout, MemberRole, MemoryClass, QuantizationScheme, QuantizationSection,
    ScaleType, Statistics, TensorDescriptor, TileLevel, TileOrder,
};
use serde_json::{Map, Value, json};

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(file)
}

pub(crate) fn bytes(file: &str) -> Vec<u8> {
    std::fs::read(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The list `list` of the manifest `file`; never empty.
pub(crate) fn manifest(file: &str, list: &str) -> Vec<Value> {
    let mut manifest: Value = serde_json::from_slice(&bytes(file)).unwrap();
    match manifest[list].take() {
        Value::Array(vectors) if !vectors.is_empty() => vectors,
        other => panic!("{file} has no {list}: {other}"),
    }
}

pub(crate) fn text<'a>(vector: &'a Value, field: &str) -> &'a str {
    vector[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {vector}"))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2) && text.is_ascii());
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// What `descriptors.json` says of a descriptor, but for its name, origin and element count.
pub(crate) fn properties(descriptor: &TensorDescriptor) -> Value {
    let sections = [
        ("quantization", descriptor.quantization.is_some()),
        ("shard", descriptor.shard.is_some()),
        ("extension_type", descriptor.extension_type.is_some()),
        ("statistics", descriptor.statistics.is_some()),
        ("composite_member", descriptor.member.is_some()),
    ];
    let flag_names: Vec<_> = sections.iter().filter(|s| s.1).map(|s| s.0).collect();
    let flags: u32 = (0..)
        .zip(sections)
        .map(|(bit, s)| u32::from(s.1) << bit)
        .sum();
    json!({
        "size": descriptor.encoded_len().unwrap(),
        "version": [descriptor.version.major, descriptor.version.minor],
        "flags": flags,
        "flag_names": flag_names,
        "type": match descriptor.element_type {
            ElementType::Private(_) => "extension".to_owned(),
            named => named.to_string(),
        },
        "type_tag": descriptor.element_type.tag(),
        "rank": descriptor.shape.len(),
        "shape": dims(&descriptor.shape),
        "byte_offset": descriptor.byte_offset,
        "layout": layout(&descriptor.layout),
        "buffer_count": descriptor.buffers.len(),
        "buffers": descriptor.buffers.iter().map(|row| json!({
            "byte_size": row.byte_size,
            "alignment": row.alignment,
            "device": match row.device {
                DeviceTag::Private(_) => "private".to_owned(),
                named => named.to_string(),
            },
            "device_tag": row.device.to_byte(),
            "memory_class": match row.memory_class {
                MemoryClass::Private(_) => "private".to_owned(),
                named => named.to_string(),
            },
            "memory_class_tag": row.memory_class.to_byte(),
            "sync_mode": row.sync_mode.to_string(),
            "sync_mode_tag": row.sync_mode.to_byte(),
        })).collect::<Vec<_>>(),
        "quantization": descriptor.quantization.as_ref().map(quantization),
        "shard": descriptor.shard.as_ref().map(|shard| json!({
            "parent_shape": dims(&shard.parent_shape),
            "shard_offset": dims(&shard.offset),
        })),
        "statistics": descriptor.statistics.as_ref().map(statistics),
        "extension_type": descriptor.extension_type.as_ref().map(extension_type),
        "composite_member": descriptor.member.map(|role| match role {
            MemberRole::Correction => "correction",
            MemberRole::Base => "base",
        }),
    })
}

fn dims(shape: &[u64]) -> Vec<Option<u64>> {
    shape
        .iter()
        .map(|&dim| (dim != DYNAMIC).then_some(dim))
        .collect()
}

fn layout(layout: &Layout) -> Value {
    let (name, fields) = match layout {
        Layout::RowMajor => ("row_major", json!({})),
        Layout::ColumnMajor => ("col_major", json!({})),
        Layout::Strided(strides) => ("strided", json!({ "strides": strides.as_slice() })),
        Layout::Tiled(level) => ("tiled", tile_level(level)),
        Layout::Morton(morton) => ("morton", json!({ "morton_bits": morton.bits.as_slice() })),
        Layout::Coo(coo) => ("coo", json!({ "nnz": coo.nnz, "is_sorted": coo.is_sorted })),
        Layout::Csr { nnz } => ("csr", json!({ "nnz": nnz })),
        Layout::Csc { nnz } => ("csc", json!({ "nnz": nnz })),
        Layout::Csf(csf) => (
            "csf",
            json!({ "nnz": csf.nnz, "mode_order": csf.mode_order.as_slice() }),
        ),
        Layout::BlockPaged(paged) => (
            "block_paged",
            json!({
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
        ),
        Layout::Composite(head) => (
            "composite",
            json!({
                "composition_rule": match head.rule {
                    CompositionRule::Partition => "partition",
                    CompositionRule::Overlay(_) => "overlay",
                    CompositionRule::Group => "group",
                },
                "combine_op": match head.rule {
                    CompositionRule::Overlay(CombineOp::Replace) => Some("replace"),
                    CompositionRule::Overlay(CombineOp::Add) => Some("add"),
                    CompositionRule::Partition | CompositionRule::Group => None,
                },
                "member_count": head.member_count,
            }),
        ),
        Layout::Hilbert(hilbert) => (
            "hilbert",
            json!({ "hilbert_order": hilbert.order, "hilbert_rank": hilbert.rank }),
        ),
        Layout::Private(private) => (
            "extension",
            json!({
                "extension_layout_id": private.id,
                "extension_data_length": private.data.len(),
            }),
        ),
    };
    let mut properties = json!({ "name": name, "tag": layout.tag() });
    merge(&mut properties, fields);
    properties
}

fn tile_level(level: &TileLevel) -> Value {
    let (outer, outer_strides) = match &level.outer {
        TileOrder::RowMajor => ("row_major", None),
        TileOrder::ColumnMajor => ("col_major", None),
        TileOrder::Strided(strides) => ("strided", Some(strides.as_slice())),
    };
    let (inner, inner_strides, nested) = match &level.inner {
        InnerOrder::RowMajor => ("row_major", None, None),
        InnerOrder::ColumnMajor => ("col_major", None, None),
        InnerOrder::Strided(strides) => ("strided", Some(strides.as_slice()), None),
        InnerOrder::Tiled(level) => ("tiled", None, Some(tile_level(level))),
    };
    let mut properties = json!({
        "tile_shape": level.tile_shape.as_slice(),
        "outer_layout": outer,
        "inner_layout": inner,
        "outer_strides": outer_strides,
        "inner_strides": inner_strides,
    });
    if let Some(nested) = nested {
        let mut inner_tiled = json!({ "name": "tiled", "tag": 4 });
        merge(&mut inner_tiled, nested);
        merge(&mut properties, json!({ "inner_tiled": inner_tiled }));
    }
    properties
}

fn quantization(section: &QuantizationSection) -> Value {
    let payload = section.as_bytes();
    let mut properties = json!({
        "length": payload.len(),
        "scheme_tag": payload.first(),
        "scheme_version": payload.get(1),
        "flags": payload.get(2..4).map(|flags| u16::from(flags[0]) | u16::from(flags[1]) << 8),
        "scheme": null,
    });
    if let Ok(scheme) = section.scheme() {
        let name = match scheme {
            QuantizationScheme::TensorAffine(_) => "PerTensorAffine",
            QuantizationScheme::ChannelAffine(_) => "PerChannelAffine",
            QuantizationScheme::BlockAffine(_) => "PerBlockAffine",
            QuantizationScheme::Nf4(_) => "NF4",
            QuantizationScheme::Mxfp(_) => "MXFP",
        };
        merge(&mut properties, json!({ "scheme": name }));
        merge(&mut properties, scheme_fields(&scheme));
    }
    properties
}

pub(crate) fn scheme_fields(scheme: &QuantizationScheme) -> Value {
    match scheme {
        QuantizationScheme::TensorAffine(tensor) => json!({
            "scale": f64::from(tensor.scale),
            "zero_point": tensor.zero_point,
        }),
        QuantizationScheme::ChannelAffine(channel) => json!({
            "axis": channel.axis,
            "scale_buffer_index": channel.scale_buffer,
            "zero_point_buffer_index": channel.zero_point_buffer,
        }),
        QuantizationScheme::BlockAffine(block) => json!({
            "axis": block.axis,
            "block_size": block.block_size,
            "scale_buffer_index": block.scale_buffer,
            "zero_point_buffer_index": block.zero_point_buffer,
            "scale_type": match block.scale_type {
                ScaleType::Float16 => "float16",
                ScaleType::Bfloat16 => "bfloat16",
                ScaleType::Float32 => "float32",
            },
        }),
        QuantizationScheme::Nf4(nf4) => json!({
            "axis": nf4.axis,
            "block_size": nf4.block_size,
            "scale_buffer_index": nf4.scale_buffer,
        }),
        QuantizationScheme::Mxfp(mxfp) => json!({
            "axis": mxfp.axis,
            "block_size": mxfp.block_size,
            "scale_buffer_index": mxfp.scale_buffer,
        }),
    }
}

fn statistics(statistics: &Statistics) -> Value {
    let float = |value: Option<f64>| match value {
        // The manifest has as text what JSON's numbers cannot hold in every reader.
        Some(value) if value.is_finite() && value.to_bits() != (-0.0_f64).to_bits() => json!(value),
        Some(value) if value.is_nan() => json!("nan"),
        Some(value) => json!(value.to_string()),
        None => Value::Null,
    };
    json!({
        "computed_mask": statistics.computed_mask(),
        "nnz": statistics.nnz(),
        "sparsity_ratio": float(statistics.sparsity_ratio()),
        "value_min": float(statistics.value_min()),
        "value_max": float(statistics.value_max()),
        "value_abs_max": float(statistics.value_abs_max()),
        "value_mean": float(statistics.value_mean()),
        "value_stddev": float(statistics.value_stddev()),
        "nm_n": statistics.nm_n(),
        "nm_m": statistics.nm_m(),
        "has_nan": statistics.has_nan(),
        "has_inf": statistics.has_inf(),
    })
}

fn extension_type(extension_type: &ExtensionType) -> Value {
    json!({
        "bit_width": extension_type.bit_width,
        "packing_factor": extension_type.packing_factor(),
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

fn merge(properties: &mut Value, more: Value) {
    let more: Map<String, Value> = serde_json::from_value(more).unwrap();
    properties.as_object_mut().unwrap().extend(more);
}
