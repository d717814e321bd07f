//! Bytes to descriptor, judging in the order of `descriptor.md` § 12.

use smallvec::SmallVec;

use super::{
    HAS_COMPOSITE_MEMBER, HAS_EXTENSION_TYPE, HAS_QUANTIZATION, HAS_SHARD, HAS_STATISTICS,
    HEADER_LEN, MAGIC, MEMBER_LEN, MemberRole, ROW_LEN, TensorDescriptor, Version, rules,
};
use crate::wire::Reader;
use crate::{
    BufferHandle, DescriptorError, DeviceTag, ElementType, Error, ExtensionType, Layout, MAX_RANK,
    MemoryClass, QuantizationSection, Shard, Statistics, SyncMode,
};

const KNOWN_FLAGS: u32 =
    HAS_QUANTIZATION | HAS_SHARD | HAS_EXTENSION_TYPE | HAS_STATISTICS | HAS_COMPOSITE_MEMBER;

impl TensorDescriptor {
    /// Reads one descriptor from the front of `bytes`, which may go on; gives it and the bytes it took (its `descriptor_length`).
    ///
    /// # Errors
    /// The first of R1–R60, S1, S2, S12, S13 that `bytes` break, in the order of `descriptor.md` § 12.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), Error> {
        Ok(decode(bytes)?)
    }
}

fn decode(bytes: &[u8]) -> Result<(TensorDescriptor, usize), DescriptorError> {
    let available = bytes.len();
    let Some((&[m0, m1, m2, m3, major, minor, l0, l1, l2, l3], _)) = bytes.split_first_chunk()
    else {
        return Err(DescriptorError::TooShort { available });
    };
    let magic = [m0, m1, m2, m3];
    if magic != MAGIC {
        return Err(DescriptorError::Magic { magic });
    }
    let version = Version { major, minor };
    rules::check_major(version)?;
    let declared = u32::from_le_bytes([l0, l1, l2, l3]);
    // Where usize is 32 bits wide, no such number of bytes can be at hand.
    let length = usize::try_from(declared).unwrap_or(usize::MAX);
    if length < HEADER_LEN {
        return Err(DescriptorError::LengthBelowHeader { declared });
    }

    let mut reader = Reader::new(bytes.get(..length).unwrap_or(bytes));
    reader.array::<10>("magic, version and length")?;
    let flags = reader.u32("flags")?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(DescriptorError::ReservedFlags { flags });
    }
    let has = |flag: u32| flags & flag != 0;
    let element_type = element_type(reader.u8("type_tag")?)?;
    let layout_tag = reader.u8("layout_tag")?;
    let rank = usize::try_from(reader.u32("rank")?).unwrap_or(usize::MAX);
    if rank > MAX_RANK {
        return Err(DescriptorError::Rank { rank });
    }
    let shape = reader.u64s("shape", rank)?;
    let byte_offset = reader.u64("byte_offset")?;
    let layout = Layout::read(layout_tag, rank, &mut reader)?;
    rules::check_extension_presence(element_type, has(HAS_EXTENSION_TYPE))?;

    let buffers = buffer_table(&layout, &mut reader)?;
    let quantization = if has(HAS_QUANTIZATION) {
        Some(quantization(&mut reader)?)
    } else {
        None
    };
    let shard = if has(HAS_SHARD) {
        let shard = Shard {
            parent_shape: reader.u64s("parent_shape", rank)?,
            offset: reader.u64s("shard_offset", rank)?,
        };
        shard.validate(&shape)?;
        Some(shard)
    } else {
        None
    };
    let statistics = if has(HAS_STATISTICS) {
        Some(Statistics::read(&mut reader)?)
    } else {
        None
    };
    let extension_type = if has(HAS_EXTENSION_TYPE) {
        Some(ExtensionType::read(&mut reader)?)
    } else {
        None
    };
    let member = if has(HAS_COMPOSITE_MEMBER) {
        Some(member(&mut reader)?)
    } else {
        None
    };

    let consumed = reader.position();
    if minor == 0 && consumed != length {
        return Err(DescriptorError::Length { declared, consumed });
    }
    if length > available {
        return Err(DescriptorError::LengthPastEnd {
            declared,
            available,
        });
    }
    let descriptor = TensorDescriptor {
        version,
        element_type,
        shape,
        byte_offset,
        layout,
        buffers,
        quantization,
        shard,
        statistics,
        extension_type,
        member,
        skipped: reader.rest().to_vec(),
    };
    rules::check_sections(&descriptor)?;
    Ok((descriptor, length))
}

/// R7–R9.
fn element_type(tag: u8) -> Result<ElementType, DescriptorError> {
    ElementType::from_tag(tag).ok_or(match tag {
        0x00 | 0xFF => DescriptorError::InvalidTypeTag { tag },
        0x47 | 0x80..=0xEF => DescriptorError::ReservedTypeTag { tag },
        _ => DescriptorError::UnassignedTypeTag { tag },
    })
}

/// R32–R41. The table grows as its rows are read.
fn buffer_table(
    layout: &Layout,
    reader: &mut Reader<'_>,
) -> Result<SmallVec<[BufferHandle; 3]>, DescriptorError> {
    let count = usize::from(reader.u8("buffer_count")?);
    rules::check_not_empty(layout, count)?;
    let mut buffers = SmallVec::new();
    for row in 0..count {
        let buffer = buffer_row(row, reader)?;
        rules::check_row(row, &buffer)?;
        buffers.push(buffer);
    }
    Ok(buffers)
}

/// R33–R38.
fn buffer_row(row: usize, reader: &mut Reader<'_>) -> Result<BufferHandle, DescriptorError> {
    let mut fields = Reader::new(reader.block::<ROW_LEN>("a buffer row")?);
    let byte_size = fields.u64("byte_size")?;
    let alignment = fields.u32("alignment")?;
    let [device, sync_mode, memory_class, reserved] = fields.array("device, sync, class")?;
    if reserved != 0 {
        return Err(DescriptorError::RowReserved {
            row,
            value: reserved,
        });
    }
    Ok(BufferHandle {
        byte_size,
        alignment,
        device: DeviceTag::from_byte(device).ok_or(match device {
            0xFF => DescriptorError::InvalidDevice { row },
            tag => DescriptorError::ReservedDevice { row, tag },
        })?,
        sync_mode: SyncMode::from_byte(sync_mode).ok_or(DescriptorError::SyncMode {
            row,
            value: sync_mode,
        })?,
        memory_class: MemoryClass::from_byte(memory_class).ok_or(match memory_class {
            0xFF => DescriptorError::InvalidMemoryClass { row },
            value => DescriptorError::ReservedMemoryClass { row, value },
        })?,
    })
}

/// R42. The payload is kept unread (S18).
fn quantization(reader: &mut Reader<'_>) -> Result<QuantizationSection, DescriptorError> {
    let declared = reader.u32("quantization_length")?;
    let left = reader.rest().len();
    let length = usize::try_from(declared).unwrap_or(usize::MAX);
    if length > left {
        return Err(DescriptorError::QuantizationTruncated { declared, left });
    }
    let payload = reader.bytes("the quantization section", length)?;
    Ok(QuantizationSection::from_bytes(payload))
}

/// R51, R52. The role is judged before the reserved bytes are read.
fn member(reader: &mut Reader<'_>) -> Result<MemberRole, DescriptorError> {
    let role = match reader.u8("member_role")? {
        0 => MemberRole::Correction,
        1 => MemberRole::Base,
        value => return Err(DescriptorError::MemberRole { value }),
    };
    if !reader.is_zero::<{ MEMBER_LEN - 1 }>("the member section's reserved bytes")? {
        return Err(DescriptorError::MemberReserved);
    }
    Ok(role)
}
