//! R32–R41: the buffer table.

use super::*;

#[test]
fn r32_no_buffers() {
    refuse_patched("R32", &tensor(), PARAMETERS, &[0], E::NoBuffers);
    let private = Layout::Private(PrivateLayout {
        tag: PrivateTag::new(0xF0).unwrap(),
        id: 9,
        data: vec![1, 2, 3],
    });
    for layout in [Layout::RowMajor, private] {
        let empty = TensorDescriptor {
            buffers: smallvec![],
            ..with_layout(layout)
        };
        refuse_to_write("R32", &empty, E::NoBuffers);
    }
    assert!(head().encode().is_ok());
}

/// A second row, so that errors name the row.
fn two_rows() -> TensorDescriptor {
    let mut descriptor = tensor();
    descriptor.buffers.push(BufferHandle {
        device: DeviceTag::Cuda,
        ..descriptor.buffers[0]
    });
    descriptor
}

fn patch_row(rule: &str, offset: usize, patch: &[u8], expected: E) {
    refuse_patched(rule, &two_rows(), ROW + 16 + offset, patch, expected);
}

#[test]
fn r33_reserved_byte_of_a_row() {
    patch_row(
        "R33",
        15,
        &[0x80],
        E::RowReserved {
            row: 1,
            value: 0x80,
        },
    );
}

#[test]
fn r34_r35_device_tags() {
    for tag in 0x09..=0xEF {
        patch_row("R34", 12, &[tag], E::ReservedDevice { row: 1, tag });
    }
    patch_row("R35", 12, &[0xFF], E::InvalidDevice { row: 1 });
}

#[test]
fn r36_sync_mode() {
    for value in 0x03..=0xFF {
        patch_row("R36", 13, &[value], E::SyncMode { row: 1, value });
    }
}

#[test]
fn r37_r38_memory_classes() {
    for value in 0x04..=0xEF {
        patch_row(
            "R37",
            14,
            &[value],
            E::ReservedMemoryClass { row: 1, value },
        );
    }
    patch_row("R38", 14, &[0xFF], E::InvalidMemoryClass { row: 1 });
}

#[test]
fn r39_alignment_is_a_power_of_two() {
    for (byte_size, alignment) in [(84, 0), (84, 65), (84, u32::MAX), (0, 0), (0, 12)] {
        let expected = E::Alignment { row: 1, alignment };
        let mut descriptor = two_rows();
        descriptor.buffers[1].byte_size = byte_size;
        let patch = alignment.to_le_bytes();
        refuse_patched("R39", &descriptor, ROW + 16 + 8, &patch, expected.clone());
        descriptor.buffers[1].alignment = alignment;
        refuse_to_write("R39", &descriptor, expected);
    }
}

#[test]
fn r40_alignment_of_bytes_is_64() {
    for shift in 0..32 {
        let alignment = 1_u32 << shift;
        let mut descriptor = two_rows();
        descriptor.buffers[1].alignment = alignment;
        if alignment >= 64 {
            assert!(descriptor.encode().is_ok());
        } else {
            let expected = E::AlignmentBelowMinimum {
                row: 1,
                byte_size: 84,
                alignment,
            };
            patch_row("R40", 8, &alignment.to_le_bytes(), expected.clone());
            refuse_to_write("R40", &descriptor, expected);
        }
        descriptor.buffers[1].byte_size = 0;
        assert!(
            descriptor.encode().is_ok(),
            "an empty buffer of {alignment}"
        );
    }
}

#[test]
fn r41_host_memory_is_synchronised() {
    for byte_size in [84, 0] {
        for mode in [SyncMode::Event, SyncMode::ConsumerStream] {
            let expected = E::HostSyncMode { row: 0, mode };
            let mut descriptor = tensor();
            descriptor.buffers[0].byte_size = byte_size;
            let patch = [mode.to_byte()];
            refuse_patched("R41", &descriptor, ROW + 13, &patch, expected.clone());
            descriptor.buffers[0].sync_mode = mode;
            refuse_to_write("R41", &descriptor, expected);
        }
    }
}

/// A row is read in full, then judged R33, device, sync, class, R39, R40, R41.
#[test]
fn r33_to_r41_are_judged_in_order() {
    let bad = [3, 0, 0, 0, 0xFF, 0xFF, 0xFF, 1];
    let mut bytes = patched(&tensor(), ROW + 8, &bad);
    for (rule, offset, repaired) in [
        ("R33", 15, &[0][..]),
        ("R35", 12, &[0]),
        ("R36", 13, &[1]),
        ("R38", 14, &[0]),
        ("R39", 8, &[32]),
        ("R40", 8, &[64]),
        ("R41", 13, &[0]),
    ] {
        assert_eq!(TensorDescriptor::decode(&bytes).unwrap_err().rule(), rule);
        let at = ROW + offset;
        bytes[at..at + repaired.len()].copy_from_slice(repaired);
    }
    assert!(TensorDescriptor::decode(&bytes).is_ok());
}
