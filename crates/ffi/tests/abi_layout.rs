//! The sizes and offsets of what C sees. They change only with the ABI's version; fields are appended.

use std::mem::{align_of, offset_of, size_of};

use hurray_ffi::abi::*;

macro_rules! offsets {
    ($type:ty, $size:literal, $($field:ident: $offset:literal),+) => {
        assert_eq!(size_of::<$type>(), $size, stringify!($type));
        assert_eq!(align_of::<$type>(), 8, stringify!($type));
        $(assert_eq!(offset_of!($type, $field), $offset, stringify!($type.$field));)+
    };
}

#[test]
fn structs_lie_as_in_c() {
    offsets!(HurrayCapsuleContext, 32, abi_version: 0, struct_size: 4, descriptor: 8, descriptor_len: 16, api: 24);
    offsets!(
        HurrayBufferInfo, 40, struct_size: 0, flags: 4, data: 8, byte_size: 16, alignment: 24, device_id: 28,
        device_tag: 32, memory_class: 33, sync_mode: 34, reserved: 35
    );
    offsets!(HurrayBufferSync, 24, struct_size: 0, sync_mode: 4, reserved: 5, event: 8, stream: 16);
    offsets!(
        HurrayBufferDesc, 88, struct_size: 0, flags: 4, data: 8, byte_size: 16, device_id: 24, device_tag: 28,
        memory_class: 29, sync_mode: 30, reserved: 31, event: 32, stream: 40, release: 48, release_context: 56,
        event_release: 64, event_context: 72, release_after: 80
    );
    offsets!(
        HurrayApi, 96, struct_size: 0, abi_version: 4, list_len: 8, list_get: 16, list_destroy: 24, list_release: 32,
        list_release_after: 40, buffer_info: 48, buffer_sync: 56, buffer_wait: 64, buffer_wait_host: 72,
        event_release: 80, last_error: 88
    );
}

#[test]
fn constants_have_their_values() {
    assert_eq!(HURRAY_C_ABI_VERSION, 3);
    assert_eq!((HURRAY_READ_ONLY, HURRAY_DECLARED), (1, 2));
    assert_eq!(HURRAY_NO_STREAM, usize::MAX);
    let statuses = [
        HURRAY_OK,
        HURRAY_ERR_NULL_POINTER,
        HURRAY_ERR_INVALID_ARGUMENT,
        HURRAY_ERR_INDEX_OUT_OF_BOUNDS,
        HURRAY_ERR_RELEASED,
        HURRAY_ERR_INVALID_STREAM,
        HURRAY_ERR_UNSUPPORTED,
        HURRAY_ERR_SHORT_STRUCT,
        HURRAY_ERR_OUT_OF_MEMORY,
        HURRAY_ERR_DEVICE,
        HURRAY_ERR_INTERNAL,
    ];
    assert_eq!(statuses, [0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10]);
}
