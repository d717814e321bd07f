//! What a reader refuses and a writer therefore does not write, over the descriptor's types.

use super::{TensorDescriptor, Version};
use crate::{
    BlockPaged, BufferHandle, DescriptorError, DeviceTag, ElementType, Layout, MAX_BUFFERS,
    MAX_RANK, MIN_BUFFER_ALIGNMENT, QuantizationSection, SyncMode,
};

impl TensorDescriptor {
    /// Checks that the descriptor can be written: everything that [`decode`](Self::decode) would refuse of it, and what no bytes can say.
    ///
    /// # Errors
    /// The first rule that does not hold, in the order of `descriptor.md` § 12.
    pub(crate) fn check_writable(&self) -> Result<(), DescriptorError> {
        let rank = self.shape.len();
        check_major(self.version)?;
        if rank > MAX_RANK {
            return Err(DescriptorError::Rank { rank });
        }
        self.layout.check_parameters(rank)?;
        check_extension_presence(self.element_type, self.extension_type.is_some())?;
        let count = self.buffers.len();
        if count > MAX_BUFFERS {
            return Err(DescriptorError::TooManyBuffers { count });
        }
        check_not_empty(&self.layout, count)?;
        for (row, buffer) in self.buffers.iter().enumerate() {
            check_row(row, buffer)?;
        }
        if let Some(shard) = &self.shard {
            shard.validate(&self.shape)?;
        }
        if let Some(extension_type) = &self.extension_type {
            extension_type.check_width()?;
        }
        if self.version.minor == 0 && !self.skipped.is_empty() {
            return Err(DescriptorError::SkippedBytes {
                length: self.skipped.len(),
            });
        }
        check_sections(self)
    }
}

/// R3, S1.
pub(super) fn check_major(version: Version) -> Result<(), DescriptorError> {
    match version.major {
        1 => Ok(()),
        major => Err(DescriptorError::MajorVersion { major }),
    }
}

/// R31.
pub(super) fn check_extension_presence(
    element_type: ElementType,
    present: bool,
) -> Result<(), DescriptorError> {
    if matches!(element_type, ElementType::Private(_)) == present {
        Ok(())
    } else {
        Err(DescriptorError::ExtensionTypePresence {
            tag: element_type.tag(),
            present,
        })
    }
}

/// R32.
pub(super) fn check_not_empty(layout: &Layout, count: usize) -> Result<(), DescriptorError> {
    if count == 0 && !matches!(layout, Layout::Composite(_)) {
        return Err(DescriptorError::NoBuffers);
    }
    Ok(())
}

/// R39–R41.
pub(super) fn check_row(row: usize, buffer: &BufferHandle) -> Result<(), DescriptorError> {
    let BufferHandle {
        byte_size,
        alignment,
        device,
        sync_mode,
        ..
    } = *buffer;
    if !alignment.is_power_of_two() {
        return Err(DescriptorError::Alignment { row, alignment });
    }
    // A power of two has at least as many trailing zeros as every smaller one.
    if byte_size > 0 && alignment.trailing_zeros() < MIN_BUFFER_ALIGNMENT.trailing_zeros() {
        return Err(DescriptorError::AlignmentBelowMinimum {
            row,
            byte_size,
            alignment,
        });
    }
    if device == DeviceTag::Cpu && sync_mode != SyncMode::ProducerSynced {
        return Err(DescriptorError::HostSyncMode {
            row,
            mode: sync_mode,
        });
    }
    Ok(())
}

/// R54–R60.
pub(super) fn check_sections(descriptor: &TensorDescriptor) -> Result<(), DescriptorError> {
    let sharded = descriptor.shard.is_some();
    match &descriptor.layout {
        Layout::Composite(_) => check_head(descriptor),
        Layout::Csf(_) if sharded => Err(DescriptorError::CsfShard),
        Layout::BlockPaged(_) if sharded => Err(DescriptorError::PagedShard),
        Layout::BlockPaged(paged) => match &descriptor.quantization {
            Some(section) => check_paged(paged, section),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// R54–R57.
fn check_head(head: &TensorDescriptor) -> Result<(), DescriptorError> {
    let count = head.buffers.len();
    let byte_offset = head.byte_offset;
    if count > 0 {
        Err(DescriptorError::HeadBuffers { count })
    } else if byte_offset != 0 {
        Err(DescriptorError::HeadByteOffset { byte_offset })
    } else if head.quantization.is_some() {
        Err(DescriptorError::HeadQuantization)
    } else if head.member.is_some() {
        Err(DescriptorError::HeadMember)
    } else {
        Ok(())
    }
}

/// R60.
fn check_paged(paged: &BlockPaged, section: &QuantizationSection) -> Result<(), DescriptorError> {
    let scheme = section
        .scheme()
        .map_err(DescriptorError::PagedQuantization)?;
    paged.validate_scheme(&scheme)
}
