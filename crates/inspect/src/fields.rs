//! The bytes of a descriptor, field by field, as far as they can be told apart (`descriptor.md`).
//!
//! This walk judges nothing: it names what it finds, so that the bytes of a descriptor that the codec refuses can be shown too.

use std::borrow::Cow;
use std::ops::Range;

use hurray_core::{
    BufferTableError, DYNAMIC, DescriptorError, DeviceTag, ElementType, Error, LayoutError,
    MAX_RANK, MemoryClass, QuantizationError, SyncMode,
};

/// Levels of tiles that the walk follows: one more than the format has, so that the first one too many is shown.
const TILE_LEVELS: usize = 9;

/// A field of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its bytes, from the descriptor's first.
    pub(crate) at: Range<usize>,
    /// Its name in the format reference; `buffers[1].alignment` for those of a list.
    pub(crate) name: String,
    /// What its bytes say.
    pub(crate) meaning: String,
}

/// The fields of the descriptor at the front of `bytes`. They follow each other without gaps to the end of the descriptor, or of `bytes`.
pub(crate) fn fields(bytes: &[u8]) -> Vec<Field> {
    let length = bytes.get(6..10).map_or(u32::MAX, u32_of);
    let length = bytes
        .len()
        .min(usize::try_from(length).unwrap_or(usize::MAX));
    let mut walk = Walk {
        bytes: bytes.get(..length.max(10)).unwrap_or(bytes),
        position: 0,
        scope: String::new(),
        fields: Vec::new(),
    };
    let is_whole = walk.descriptor().is_some();
    let name = if is_whole { "appended" } else { "unread" };
    walk.rest(name);
    walk.fields
}

/// Where in a descriptor `error` was found: the first byte of the field that it is about.
pub(crate) fn locate(error: &Error, bytes: &[u8]) -> u64 {
    let fields = fields(bytes);
    let found = match field_of(error) {
        Place::At(offset) => return offset as u64,
        Place::Field(name) => fields.iter().find(|field| field.name == name),
        Place::First(is_wrong) => fields.iter().find(|field| {
            let bytes = bytes.get(field.at.clone());
            bytes.is_some_and(|bytes| is_wrong(&field.name, bytes))
        }),
    };
    found.map_or(0, |field| field.at.start as u64)
}

enum Place {
    /// At this byte.
    At(usize),
    /// At the field of this name.
    Field(Cow<'static, str>),
    /// At the first field whose name and bytes are what is wrong.
    First(fn(&str, &[u8]) -> bool),
}

fn field(name: &'static str) -> Place {
    Place::Field(Cow::Borrowed(name))
}

fn indexed(list: &str, index: usize, field: &str) -> Place {
    Place::Field(Cow::Owned(format!("{list}[{index}]{field}")))
}

fn reserved() -> Place {
    Place::First(|name, bytes| name.ends_with("reserved") && !is_zero(bytes))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// What `error` is about.
fn field_of(error: &Error) -> Place {
    match error {
        Error::Descriptor(error) => field_of_descriptor(error),
        Error::Layout(error) => field_of_layout(error),
        Error::Quantization(error) => field_of_quantization(error),
        Error::BufferTable(error) => field_of_table(error),
        _ => Place::At(0),
    }
}

fn field_of_descriptor(error: &DescriptorError) -> Place {
    use DescriptorError as E;
    match error {
        E::TooShort { available } => Place::At(*available),
        E::Truncated { offset, .. } => Place::At(*offset),
        E::MajorVersion { .. } => field("version_major"),
        E::LengthBelowHeader { .. } | E::Length { .. } | E::LengthPastEnd { .. } => {
            field("descriptor_length")
        }
        E::ReservedFlags { .. } | E::ExtensionTypePresence { .. } => field("flags"),
        E::InvalidTypeTag { .. } | E::ReservedTypeTag { .. } | E::UnassignedTypeTag { .. } => {
            field("type_tag")
        }
        E::Rank { .. } | E::TiledScalar | E::MortonScalar => field("rank"),
        E::InvalidLayoutTag { .. } | E::ReservedLayoutTag { .. } => field("layout_tag"),
        E::LayoutReserved { .. }
        | E::RowReserved { .. }
        | E::StatisticsReserved { .. }
        | E::ExtensionReserved { .. }
        | E::MemberReserved => reserved(),
        E::ZeroTile { .. } => {
            Place::First(|name, bytes| name.contains("tile_shape[") && is_zero(bytes))
        }
        E::OuterLayout { .. } => {
            Place::First(|name, bytes| name.ends_with("outer_layout") && !matches!(bytes, [1..=3]))
        }
        E::InnerLayout { .. } => {
            Place::First(|name, bytes| name.ends_with("inner_layout") && !matches!(bytes, [1..=4]))
        }
        E::TilingDepth => field("inner.inner.inner.inner.inner.inner.inner.inner_layout"),
        E::ZeroMortonBits { dimension } => indexed("morton_bits", *dimension, ""),
        E::ModeOrder { level, .. } => indexed("mode_order", *level, ""),
        E::KvRole { .. } => field("kv_role"),
        E::IndexType { .. } => field("block_table_index_type"),
        E::ReservedCompositionRule { .. }
        | E::InvalidCompositionRule
        | E::PrivateCompositionRule { .. } => field("composition_rule"),
        E::CombineOp { .. } => field("combine_op"),
        E::OpenComposite => field("member_count"),
        E::HilbertOrder => field("hilbert_order"),
        E::HilbertRank { .. } => field("hilbert_rank"),
        E::NoBuffers | E::HeadBuffers { .. } => field("buffer_count"),
        E::ReservedDevice { row, .. } | E::InvalidDevice { row } => {
            indexed("buffers", *row, ".device_tag")
        }
        E::SyncMode { row, .. } | E::HostSyncMode { row, .. } => {
            indexed("buffers", *row, ".sync_mode")
        }
        E::ReservedMemoryClass { row, .. } | E::InvalidMemoryClass { row } => {
            indexed("buffers", *row, ".memory_class")
        }
        E::Alignment { row, .. } | E::AlignmentBelowMinimum { row, .. } => {
            indexed("buffers", *row, ".alignment")
        }
        E::QuantizationTruncated { .. } | E::HeadQuantization => field("quantization_length"),
        E::ShardOutOfBounds { dimension, .. } => indexed("shard_offset", *dimension, ""),
        E::ShardDynamic { dimension } => indexed("parent_shape", *dimension, ""),
        E::StatisticsMask { .. } => field("statistics.computed_mask"),
        E::ExtensionWidthZero | E::ExtensionWidth { .. } => field("extension_type.bit_width"),
        E::PackingFactor { .. } => field("extension_type.packing_factor"),
        E::MemberRole { .. } | E::HeadMember => field("member_role"),
        E::HeadByteOffset { .. } => field("byte_offset"),
        E::PagedShard | E::CsfShard => indexed("parent_shape", 0, ""),
        E::PagedQuantization(error) => field_of_quantization(error),
        E::PagedChannelAxis => field("quantization.axis"),
        E::PagedBlocks { axis: 0, .. } => field("quantization.block_size"),
        E::PagedBlocks { .. } => field("quantization.axis"),
        _ => Place::At(0),
    }
}

fn field_of_layout(error: &LayoutError) -> Place {
    use LayoutError as E;
    match error {
        E::Rank { .. } => field("rank"),
        E::DynamicDimension { dimension } | E::DynamicHead { dimension } => {
            indexed("shape", *dimension, "")
        }
        E::TileDivision { .. } => field("inner.tile_shape[0]"),
        E::MortonDimension { dimension, .. } => indexed("morton_bits", *dimension, ""),
        E::MortonBits { .. } => indexed("morton_bits", 0, ""),
        E::HilbertRank { .. } => field("hilbert_rank"),
        E::HilbertOrder { .. } | E::HilbertBits { .. } => field("hilbert_order"),
        E::HilbertDimension { dimension, .. } => indexed("shape", *dimension, ""),
        E::PageSize => field("page_size"),
        E::PagedAxis { .. } => field("paged_axis"),
        E::ExtentOverflow => indexed("shape", 0, ""),
        _ => field("layout_tag"),
    }
}

fn field_of_quantization(error: &QuantizationError) -> Place {
    use QuantizationError as E;
    match error {
        E::InvalidTag { .. }
        | E::ReservedTag { .. }
        | E::PrivateScheme { .. }
        | E::UnassignedTag { .. } => field("quantization.scheme_tag"),
        E::SchemeVersion { .. } => field("quantization.scheme_version"),
        E::UndefinedFlags { .. } => field("quantization.flags"),
        E::SectionReserved { .. } => reserved(),
        E::Scale { .. } => field("quantization.scale"),
        E::BlockSize { .. } | E::BlockExceedsAxis { .. } | E::BlockMultiple { .. } => {
            field("quantization.block_size")
        }
        E::ScaleType { .. } => field("quantization.scale_type"),
        E::Symmetry { .. } => field("quantization.zero_point_buffer_index"),
        E::NoScaleBuffer => field("quantization.scale_buffer_index"),
        E::StorageType { .. } => field("type_tag"),
        E::ZeroPointRange { .. } => field("quantization.zero_point"),
        E::Axis { .. } | E::DynamicAxis { .. } => field("quantization.axis"),
        E::ParameterSize { buffer, .. } => indexed("buffers", *buffer, ".byte_size"),
        _ => field("quantization_length"),
    }
}

fn field_of_table(error: &BufferTableError) -> Place {
    use BufferTableError as E;
    match error {
        E::TooSmall { buffer, .. } => indexed("buffers", *buffer, ".byte_size"),
        E::ByteOffsetOnIndexed { .. } | E::ByteOffsetPastEnd { .. } | E::BeforeStart { .. } => {
            field("byte_offset")
        }
        E::StatisticsNnz { .. } => field("statistics.nnz"),
        E::Device { buffer, .. } => indexed("buffers", *buffer, ".device_tag"),
        E::MemoryClass { buffer, .. } => indexed("buffers", *buffer, ".memory_class"),
        E::InvalidPair { .. } => indexed("buffers", 0, ".memory_class"),
        E::IndexPastTable { name, .. } | E::IndexOfLayoutBuffer { name, .. } => field(match name {
            hurray_core::BufferName::ZeroPoints => "quantization.zero_point_buffer_index",
            _ => "quantization.scale_buffer_index",
        }),
        E::ElementSize { .. } => field("extension_type.bit_width"),
        E::PaddedBlocks { .. } => indexed("buffers", 0, ".byte_size"),
        _ => field("buffer_count"),
    }
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

struct Walk<'a> {
    bytes: &'a [u8],
    position: usize,
    /// What the names of the fields begin with.
    scope: String,
    fields: Vec<Field>,
}

/// Each of these is `None` where the bytes end inside the field.
impl Walk<'_> {
    fn push(
        &mut self,
        length: usize,
        name: &str,
        meaning: impl FnOnce(&[u8]) -> String,
    ) -> Option<()> {
        let end = self.position.checked_add(length)?;
        let bytes = self.bytes.get(self.position..end)?;
        self.fields.push(Field {
            at: self.position..end,
            name: format!("{}{name}", self.scope),
            meaning: meaning(bytes),
        });
        self.position = end;
        Some(())
    }

    fn array<const N: usize>(
        &mut self,
        name: &str,
        meaning: impl FnOnce([u8; N]) -> String,
    ) -> Option<[u8; N]> {
        let bytes = *self.bytes.get(self.position..)?.first_chunk::<N>()?;
        self.push(N, name, |_| meaning(bytes))?;
        Some(bytes)
    }

    fn u8(&mut self, name: &str) -> Option<u8> {
        self.tag(name, |byte| byte.to_string())
    }

    fn tag(&mut self, name: &str, meaning: impl FnOnce(u8) -> String) -> Option<u8> {
        self.array(name, |[byte]| meaning(byte)).map(|[byte]| byte)
    }

    fn u32(&mut self, name: &str) -> Option<u32> {
        self.array(name, |bytes| u32::from_le_bytes(bytes).to_string())
            .map(u32::from_le_bytes)
    }

    fn u64(&mut self, name: &str) -> Option<u64> {
        self.array(name, |bytes| u64::from_le_bytes(bytes).to_string())
            .map(u64::from_le_bytes)
    }

    fn f64(&mut self, name: &str) -> Option<()> {
        self.array(name, |bytes| format!("{:?}", f64::from_le_bytes(bytes)))
            .map(drop)
    }

    fn reserved(&mut self, length: usize) -> Option<()> {
        self.push(length, "reserved", |bytes| {
            if is_zero(bytes) { "" } else { "not 0" }.to_owned()
        })
    }

    fn dimensions(&mut self, name: &str, rank: usize) -> Option<()> {
        (0..rank).try_for_each(|dimension| {
            let name = format!("{name}[{dimension}]");
            self.array(&name, |bytes| match u64::from_le_bytes(bytes) {
                DYNAMIC => "dynamic".to_owned(),
                size => size.to_string(),
            })
            .map(drop)
        })
    }

    fn strides(&mut self, name: &str, rank: usize) -> Option<()> {
        (0..rank).try_for_each(|dimension| {
            let name = format!("{name}[{dimension}]");
            self.array(&name, |bytes| i64::from_le_bytes(bytes).to_string())
                .map(drop)
        })
    }

    fn u32s(&mut self, name: &str, rank: usize) -> Option<()> {
        (0..rank).try_for_each(|index| self.u32(&format!("{name}[{index}]")).map(drop))
    }

    /// Everything that is left, as bytes.
    fn rest(&mut self, name: &str) {
        let length = self.bytes.len().saturating_sub(self.position);
        if length > 0 {
            // As many bytes as there are.
            let _ = self.push(length, name, |bytes| format!("{} bytes", bytes.len()));
        }
    }

    fn scoped(&mut self, scope: &str, walk: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let outer = self.scope.len();
        self.scope.push_str(scope);
        let done = walk(self);
        self.scope.truncate(outer);
        done
    }

    fn descriptor(&mut self) -> Option<()> {
        self.push(4, "magic", |bytes| {
            String::from_utf8_lossy(bytes).escape_debug().to_string()
        })?;
        self.u8("version_major")?;
        self.u8("version_minor")?;
        self.u32("descriptor_length")?;
        let flags = self
            .array("flags", |bytes| flag_names(u32::from_le_bytes(bytes)))
            .map(u32::from_le_bytes)?;
        self.tag("type_tag", |tag| match ElementType::from_tag(tag) {
            Some(element_type) => element_type.to_string(),
            None => "no type".to_owned(),
        })?;
        let layout = self.tag("layout_tag", |tag| layout_name(tag).to_owned())?;
        let rank = usize::try_from(self.u32("rank")?).ok()?;
        if rank > MAX_RANK {
            return None;
        }
        self.dimensions("shape", rank)?;
        self.u64("byte_offset")?;
        self.layout(layout, rank)?;
        let count = self.u8("buffer_count")?;
        for row in 0..count {
            self.scoped(&format!("buffers[{row}]."), Self::row)?;
        }
        let has = |bit: u32| flags >> bit & 1 != 0;
        if has(0) {
            self.quantization()?;
        }
        if has(1) {
            self.dimensions("parent_shape", rank)?;
            self.dimensions("shard_offset", rank)?;
        }
        if has(3) {
            self.scoped("statistics.", Self::statistics)?;
        }
        if has(2) {
            self.scoped("extension_type.", Self::extension_type)?;
        }
        if has(4) {
            self.tag("member_role", |role| {
                name_of(role, &["correction", "base"]).to_owned()
            })?;
            self.reserved(15)?;
        }
        Some(())
    }

    fn layout(&mut self, tag: u8, rank: usize) -> Option<()> {
        match tag {
            0x01 | 0x02 => Some(()),
            0x03 => self.strides("strides", rank),
            0x04 => self.tiles(rank),
            0x05 => self.u32s("morton_bits", rank),
            0x06 => {
                self.u64("nnz")?;
                self.u8("is_sorted")?;
                self.reserved(7)
            }
            0x07 | 0x08 => {
                self.u64("nnz")?;
                self.reserved(8)
            }
            0x09 => {
                self.u64("nnz")?;
                self.u32s("mode_order", rank)?;
                self.reserved(8)
            }
            0x0A => self.paged(),
            0x0B => {
                self.tag("composition_rule", |rule| {
                    name_of(rule, &["no rule", "partition", "overlay", "group"]).to_owned()
                })?;
                self.tag("combine_op", |op| {
                    name_of(op, &["none", "replace", "add"]).to_owned()
                })?;
                self.reserved(2)?;
                self.u32("member_count").map(drop)
            }
            0x40 => {
                self.u32("hilbert_order")?;
                self.u32("hilbert_rank").map(drop)
            }
            0xF0..=0xFE => {
                self.u64("extension_layout_id")?;
                let length = usize::try_from(self.u32("extension_data_length")?).ok()?;
                if length == 0 {
                    return Some(());
                }
                self.push(length, "extension_data", |bytes| {
                    format!("{} bytes", bytes.len())
                })
            }
            _ => None,
        }
    }

    fn tiles(&mut self, rank: usize) -> Option<()> {
        let outer = self.scope.len();
        let mut done = None;
        for _ in 0..TILE_LEVELS {
            let inner = self.tile_level(rank);
            if inner != Some(4) {
                done = inner.map(drop);
                break;
            }
            self.scope.push_str("inner.");
        }
        self.scope.truncate(outer);
        done
    }

    /// One level; gives its inner layout.
    fn tile_level(&mut self, rank: usize) -> Option<u8> {
        self.dimensions("tile_shape", rank)?;
        let order = |tag: u8| layout_name(tag).to_owned();
        let outer = self.tag("outer_layout", order)?;
        let inner = self.tag("inner_layout", order)?;
        self.reserved(2)?;
        if outer == 3 {
            self.strides("outer_strides", rank)?;
        }
        match inner {
            3 => self.strides("inner_strides", rank)?,
            1 | 2 | 4 => {}
            _ => return None,
        }
        matches!(outer, 1..=3).then_some(inner)
    }

    fn paged(&mut self) -> Option<()> {
        self.u32("page_size")?;
        self.u64("num_pages")?;
        self.u32("paged_axis")?;
        self.u32("num_seqs")?;
        self.tag("kv_role", |role| {
            name_of(role, &["key", "value", "fused"]).to_owned()
        })?;
        self.array("layer_index", |bytes| match u32::from_le_bytes(bytes) {
            u32::MAX => "none".to_owned(),
            layer => layer.to_string(),
        })?;
        self.tag("block_table_index_type", |index_type| {
            name_of(index_type, &["uint32", "uint64"]).to_owned()
        })?;
        self.reserved(6)
    }

    fn row(&mut self) -> Option<()> {
        self.u64("byte_size")?;
        self.u32("alignment")?;
        self.tag("device_tag", |tag| match DeviceTag::from_byte(tag) {
            Some(device) => device.to_string(),
            None => "no device".to_owned(),
        })?;
        self.tag("sync_mode", |mode| match SyncMode::from_byte(mode) {
            Some(mode) => mode.to_string(),
            None => "no mode".to_owned(),
        })?;
        self.tag("memory_class", |class| {
            match MemoryClass::from_byte(class) {
                Some(class) => class.to_string(),
                None => "no class".to_owned(),
            }
        })?;
        self.reserved(1)
    }

    fn quantization(&mut self) -> Option<()> {
        let length = usize::try_from(self.u32("quantization_length")?).ok()?;
        let end = self.position.checked_add(length)?;
        let whole = self.bytes;
        self.bytes = whole.get(..end)?;
        // A payload that is cut or of an unknown scheme is shown as it is.
        let _ = self.scoped("quantization.", |walk| {
            let known = walk.scheme();
            walk.rest("bytes");
            known
        });
        self.bytes = whole;
        Some(())
    }

    fn scheme(&mut self) -> Option<()> {
        let tag = self.tag("scheme_tag", |tag| {
            let names = [
                "no scheme",
                "per-tensor affine",
                "per-channel affine",
                "per-block affine",
                "NF4",
                "MXFP",
            ];
            match tag {
                0xF0..=0xFE => "private",
                _ => name_of(tag, &names),
            }
            .to_owned()
        })?;
        self.u8("scheme_version")?;
        self.array("flags", |bytes| match u16::from_le_bytes(bytes) {
            0 => String::new(),
            1 => "symmetric".to_owned(),
            flags => format!("{flags:#06x}"),
        })?;
        if tag == 1 {
            self.array("scale", |bytes| format!("{:?}", f32::from_le_bytes(bytes)))?;
            self.array("zero_point", |bytes| i32::from_le_bytes(bytes).to_string())?;
            return self.reserved(4);
        }
        if !matches!(tag, 2..=5) {
            return None;
        }
        self.u32("axis")?;
        if tag != 2 {
            self.u32("block_size")?;
        }
        self.buffer_index("scale_buffer_index")?;
        if matches!(tag, 2 | 3) {
            self.buffer_index("zero_point_buffer_index")?;
            self.tag("scale_type", |tag| match ElementType::from_tag(tag) {
                Some(element_type) => element_type.to_string(),
                None => "no type".to_owned(),
            })?;
            self.reserved(3)?;
        }
        Some(())
    }

    fn buffer_index(&mut self, name: &str) -> Option<()> {
        self.array(name, |bytes| match u32::from_le_bytes(bytes) {
            u32::MAX => "none".to_owned(),
            index => index.to_string(),
        })
        .map(drop)
    }

    fn statistics(&mut self) -> Option<()> {
        self.array("computed_mask", |bytes| {
            format!("{:#08b}", u32::from_le_bytes(bytes))
        })?;
        self.reserved(4)?;
        self.u64("nnz")?;
        for name in [
            "sparsity_ratio",
            "value_min",
            "value_max",
            "value_abs_max",
            "value_mean",
            "value_stddev",
        ] {
            self.f64(name)?;
        }
        for name in ["nm_n", "nm_m", "has_nan", "has_inf"] {
            self.u8(name)?;
        }
        self.reserved(4)
    }

    fn extension_type(&mut self) -> Option<()> {
        self.u32("bit_width")?;
        for name in [
            "packing_factor",
            "is_float",
            "is_signed",
            "sign_bits",
            "exponent_bits",
            "mantissa_bits",
        ] {
            self.u8(name)?;
        }
        self.reserved(2)?;
        self.u32("exponent_bias")?;
        self.u8("has_nan")?;
        self.u8("has_inf")?;
        self.reserved(2)
    }
}

fn name_of(byte: u8, names: &[&'static str]) -> &'static str {
    names
        .get(usize::from(byte))
        .copied()
        .unwrap_or("not defined")
}

fn flag_names(flags: u32) -> String {
    let names = [
        "quantization",
        "shard",
        "extension type",
        "statistics",
        "composite member",
    ];
    let mut set: Vec<_> = (0..32)
        .zip(names)
        .filter_map(|(bit, name)| (flags >> bit & 1 != 0).then_some(name))
        .collect();
    if flags >> names.len() != 0 {
        set.push("reserved bits");
    }
    set.join(", ")
}

/// The name of a layout tag.
fn layout_name(tag: u8) -> &'static str {
    match tag {
        0x01 => "row_major",
        0x02 => "col_major",
        0x03 => "strided",
        0x04 => "tiled",
        0x05 => "morton",
        0x06 => "coo",
        0x07 => "csr",
        0x08 => "csc",
        0x09 => "csf",
        0x0A => "block_paged",
        0x0B => "composite",
        0x40 => "hilbert",
        0xF0..=0xFE => "extension",
        _ => "no layout",
    }
}

#[cfg(test)]
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]
mod tests {
    use std::path::PathBuf;

    use hurray_core::TensorDescriptor;
    use proptest::prelude::*;

    use super::*;

    fn vectors(folder: &str) -> Vec<Vec<u8>> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
        let files = std::fs::read_dir(root.join(folder)).unwrap();
        let vectors: Vec<_> = files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect();
        assert!(!vectors.is_empty());
        vectors
    }

    /// The fields follow each other from the first byte to the last.
    fn assert_tiled(fields: &[Field], length: usize) {
        let mut end = 0;
        for field in fields {
            assert_eq!(field.at.start, end);
            assert!(field.at.end > end, "{field:?}");
            end = field.at.end;
        }
        assert_eq!(end, length);
    }

    #[test]
    fn every_byte_of_a_descriptor_has_a_name() {
        for folder in [
            "descriptors",
            "layouts",
            "quantization",
            "lenient",
            "malformed",
        ] {
            for bytes in vectors(folder) {
                let fields = fields(&bytes);
                let Ok((descriptor, length)) = TensorDescriptor::decode(&bytes) else {
                    continue;
                };
                assert_tiled(&fields, length);
                assert!(!fields.iter().any(|field| field.name == "unread"));
                let appended = fields.iter().any(|field| field.name == "appended");
                assert_eq!(appended, !descriptor.skipped.is_empty());
                let named = |name: &str| {
                    let field = fields.iter().find(|field| field.name == name);
                    field.map(|field| field.meaning.clone())
                };
                let meanings = [
                    ("type_tag", descriptor.element_type.to_string()),
                    ("layout_tag", descriptor.layout.name().to_owned()),
                    ("rank", descriptor.shape.len().to_string()),
                    ("byte_offset", descriptor.byte_offset.to_string()),
                    ("buffer_count", descriptor.buffers.len().to_string()),
                ];
                for (name, meaning) in meanings {
                    assert_eq!(named(name), Some(meaning));
                }
                for (number, row) in descriptor.buffers.iter().enumerate() {
                    let alignment = named(&format!("buffers[{number}].alignment"));
                    assert_eq!(alignment, Some(row.alignment.to_string()));
                }
            }
        }
    }

    #[test]
    fn an_error_is_located_in_the_bytes() {
        for bytes in vectors("malformed") {
            let Err(error) = TensorDescriptor::decode(&bytes) else {
                continue;
            };
            let at = locate(&error, &bytes);
            assert!(at <= bytes.len() as u64);
            let is_first = matches!(error.rule(), "R1" | "R2");
            assert!(is_first || at > 0, "{error}");
        }
    }

    proptest! {
        /// Whatever the bytes, they are shown in full.
        #[test]
        fn any_bytes_are_tiled(
            mut bytes in prop::sample::select(
                [vectors("descriptors"), vectors("layouts"), vectors("malformed")].concat()
            ),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let fields = fields(&bytes);
            let end = fields.last().map_or(0, |field| field.at.end);
            assert_tiled(&fields, end);
            prop_assert!(end <= bytes.len());
            if let Err(error) = TensorDescriptor::decode(&bytes) {
                prop_assert!(locate(&error, &bytes) <= bytes.len() as u64);
            } else {
                prop_assert!(fields.iter().all(|field| field.name != "unread"));
            }
        }
    }
}
