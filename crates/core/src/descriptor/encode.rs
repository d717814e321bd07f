//! Descriptor to bytes. The length is known first, so that the bytes are allocated once, and by whoever needs them.

use super::{
    HAS_COMPOSITE_MEMBER, HAS_EXTENSION_TYPE, HAS_QUANTIZATION, HAS_SHARD, HAS_STATISTICS,
    HEADER_LEN, MAGIC, MEMBER_LEN, MemberRole, ROW_LEN, TensorDescriptor,
};
use crate::wire::Writer;
use crate::{DescriptorError, Error, ExtensionType, Statistics};

impl TensorDescriptor {
    /// Writes the descriptor.
    ///
    /// # Errors
    /// What [`decode`](Self::decode) would refuse of it, and what no bytes can say (`descriptor.md` § 14, W3, W9, W10).
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the descriptor to `bytes`, which stay as they are on an error.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_into(&self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let start = bytes.len();
        let length = self.checked_len()?;
        bytes.reserve_exact(length);
        bytes.resize(start.saturating_add(length), 0);
        if let Some(space) = bytes.get_mut(start..) {
            self.write(space);
        }
        Ok(())
    }

    /// Writes the descriptor into `space`, which has exactly [`encoded_len`](Self::encoded_len) bytes.
    ///
    /// # Errors
    /// As [`encode`](Self::encode); a space of another length.
    pub fn encode_to_slice(&self, space: &mut [u8]) -> Result<(), Error> {
        let required = self.checked_len()?;
        if space.len() != required {
            return Err(DescriptorError::Room {
                required,
                available: space.len(),
            }
            .into());
        }
        self.write(space);
        Ok(())
    }

    /// The bytes that the descriptor takes, its `descriptor_length`.
    ///
    /// # Errors
    /// More than `descriptor_length` can say. Whether the descriptor can be written is not checked.
    pub fn encoded_len(&self) -> Result<usize, Error> {
        Ok(self.wire_len()?)
    }

    fn checked_len(&self) -> Result<usize, DescriptorError> {
        self.check_writable()?;
        self.wire_len()
    }

    fn wire_len(&self) -> Result<usize, DescriptorError> {
        let shard = self.shard.as_ref().map_or(0, |shard| {
            size_of_val(shard.parent_shape.as_slice())
                .saturating_add(size_of_val(shard.offset.as_slice()))
        });
        let quantization = self.quantization.as_ref().map_or(0, |section| {
            section.as_bytes().len().saturating_add(size_of::<u32>())
        });
        let parts = [
            HEADER_LEN,
            size_of_val(self.shape.as_slice()),
            size_of::<u64>(),
            self.layout.parameters_len(),
            1,
            self.buffers.len().saturating_mul(ROW_LEN),
            quantization,
            shard,
            self.statistics.map_or(0, |_| Statistics::ENCODED_LEN),
            self.extension_type
                .map_or(0, |_| ExtensionType::ENCODED_LEN),
            self.member.map_or(0, |_| MEMBER_LEN),
            self.skipped.len(),
        ];
        let length = parts.into_iter().fold(0, usize::saturating_add);
        match u32::try_from(length) {
            Ok(_) => Ok(length),
            Err(_) => Err(DescriptorError::TooLong {
                length: u64::try_from(length).unwrap_or(u64::MAX),
            }),
        }
    }

    fn flags(&self) -> u32 {
        let flag = |present: bool, flag: u32| if present { flag } else { 0 };
        flag(self.quantization.is_some(), HAS_QUANTIZATION)
            | flag(self.shard.is_some(), HAS_SHARD)
            | flag(self.extension_type.is_some(), HAS_EXTENSION_TYPE)
            | flag(self.statistics.is_some(), HAS_STATISTICS)
            | flag(self.member.is_some(), HAS_COMPOSITE_MEMBER)
    }

    /// Writes a descriptor that passed [`checked_len`](Self::checked_len) into as many bytes.
    fn write(&self, space: &mut [u8]) {
        // `wire_len` fits u32, and with it every length inside.
        let u32_of = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let length = u32_of(space.len());
        let mut writer = Writer::new(space);
        writer.bytes(&MAGIC);
        writer.bytes(&[self.version.major, self.version.minor]);
        writer.u32(length);
        writer.u32(self.flags());
        writer.bytes(&[self.element_type.tag(), self.layout.tag()]);
        writer.u32(u32_of(self.shape.len()));
        writer.u64s(&self.shape);
        writer.u64(self.byte_offset);
        self.layout.write(&mut writer);
        writer.u8(u8::try_from(self.buffers.len()).unwrap_or(u8::MAX));
        for buffer in &self.buffers {
            writer.u64(buffer.byte_size);
            writer.u32(buffer.alignment);
            writer.bytes(&[
                buffer.device.to_byte(),
                buffer.sync_mode.to_byte(),
                buffer.memory_class.to_byte(),
                0,
            ]);
        }
        if let Some(section) = &self.quantization {
            writer.u32(u32_of(section.as_bytes().len()));
            writer.bytes(section.as_bytes());
        }
        if let Some(shard) = &self.shard {
            writer.u64s(&shard.parent_shape);
            writer.u64s(&shard.offset);
        }
        if let Some(statistics) = &self.statistics {
            statistics.write(&mut writer);
        }
        if let Some(extension_type) = &self.extension_type {
            extension_type.write(&mut writer);
        }
        if let Some(member) = self.member {
            writer.u8(match member {
                MemberRole::Correction => 0,
                MemberRole::Base => 1,
            });
            writer.zeros::<15>();
        }
        writer.bytes(&self.skipped);
        debug_assert!(writer.is_full(), "encoded_len was too large");
    }
}
