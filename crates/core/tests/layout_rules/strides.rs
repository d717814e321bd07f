//! Strides, extents and addresses.

use super::*;

/// PaddlePaddle/Paddle#68559: the extent of mixed-sign strides has two ends, and is not the number of elements.
#[test]
fn paddle_68559_extent_of_mixed_strides() {
    let extent = strided_extent(&[5, 6], &[24, -2]).unwrap().unwrap();
    assert_eq!(extent, Extent { lo: -10, hi: 96 });
    let width = StorageWidth::from_bits(32).unwrap();
    let bytes = extent.bytes(width).unwrap();
    assert_eq!((bytes.before, bytes.after), (40, 388));
    let mut descriptor = tensor(strided(&[24, -2]), &[5, 6], &[11 * 4 + 388]);
    descriptor.element_type = ElementType::Float32;
    descriptor.byte_offset = 11 * 4;
    assert_eq!(rule(&descriptor), "accepted");
    descriptor.buffers[0].byte_size -= 1;
    assert_eq!(rule(&descriptor), "B4");
    descriptor.buffers[0].byte_size = 1 << 20;
    descriptor.byte_offset = 9 * 4;
    assert_eq!(rule(&descriptor), "S2");
}

/// The ValidationOverflow tests of safetensors: sizes are checked products.
#[test]
fn safetensors_validation_overflow() {
    assert_eq!(element_count(&[1 << 62, 1 << 62]), None);
    assert_eq!(judge(Layout::RowMajor, &[1 << 62, 1 << 62], &[0]), "B4");
    assert_eq!(
        strided_extent(&[1 << 62, 1 << 62], &[1 << 62, 1]),
        Err(LayoutError::ExtentOverflow)
    );
}

/// pytorch/pytorch#163274: dimensions of one element may have any stride, and nothing of an empty shape matters.
#[test]
fn strides_of_single_elements_do_not_matter() {
    assert!(is_row_major(&[2, 1, 3], &[3, -99, 1]));
    assert!(is_row_major(&[1], &[i64::MIN]));
    assert!(is_row_major(&[4, 0], &[7, 7]));
    assert!(!is_row_major(&[2, 3], &[1, 2]));
    assert!(is_column_major(&[2, 1, 3], &[1, -99, 2]));
    assert!(!is_column_major(&[2, 3], &[3, 1]));
    assert!(!is_row_major(&[2, 3], &[3]));
    assert!(is_row_major(&[], &[]) && is_column_major(&[], &[]));
}

#[test]
fn strides_of_a_shape() {
    let strides = |list: &[i64]| -> SmallVec<[i64; 6]> { list.into() };
    assert_eq!(row_major_strides(&[2, 3, 4]), Ok(strides(&[12, 4, 1])));
    assert_eq!(column_major_strides(&[2, 3, 4]), Ok(strides(&[1, 2, 6])));
    assert_eq!(row_major_strides(&[]), Ok(strides(&[])));
    assert_eq!(row_major_strides(&[3, 0]), Ok(strides(&[0, 1])));
    assert_eq!(
        row_major_strides(&[0, 1 << 40, 1 << 40]),
        Ok(strides(&[0, 1 << 40, 1]))
    );
    assert_eq!(
        row_major_strides(&[1, 1 << 40, 1 << 40]),
        Err(LayoutError::ExtentOverflow)
    );
}

#[test]
fn element_addresses_are_inside_the_buffer() {
    let mut descriptor = tensor(Layout::RowMajor, &[5], &[3]);
    descriptor.element_type = ElementType::Float6E2m3;
    // One group of four elements: the fifth is outside, whatever a descriptor that was not validated says.
    let address = descriptor.element_address(&[3]).unwrap();
    assert_eq!(
        (address.byte, address.length, address.bit_shift),
        (0, 3, 18)
    );
    let error = descriptor.element_address(&[4]).unwrap_err();
    let expected = LayoutError::ElementOutsideBuffer {
        byte: 3,
        length: 3,
        byte_size: 3,
    };
    assert_eq!(error, expected.into());
    let error = descriptor.element_address(&[5]).unwrap_err();
    assert_eq!(
        error,
        LayoutError::IndexOutOfBounds {
            dimension: 0,
            index: 5,
            size: 5
        }
        .into()
    );
    assert!(descriptor.element_address(&[0, 0]).is_err());
    descriptor.byte_offset = u64::MAX;
    assert!(descriptor.element_address(&[0]).is_err());
    descriptor.layout = coo(1);
    assert!(matches!(
        descriptor.element_address(&[0]),
        Err(Error::Layout(LayoutError::NoElementOffset {
            layout: "coo"
        }))
    ));
}
