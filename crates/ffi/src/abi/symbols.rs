//! Exported functions. Those on any handle go through its own table; those that make handles make ours.

use std::ffi::c_char;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use hurray_core::{DeviceTag, MemoryClass, SyncMode};

use super::foreign::Functions;
use super::status::{Failure, call};
use super::table::{check_size, own, with_list, write};
use super::{
    HURRAY_NO_STREAM, HurrayBuffer, HurrayBufferDesc, HurrayBufferInfo, HurrayBufferList,
    HurrayBufferSync, HurrayCapsuleContext, last_error,
};
use crate::buffer::Region;
use crate::lent::{EventRelease, Lent, LentEvent};
use crate::list::Handle;
use crate::{Buffer, BufferError, BufferFlags, BufferList, Callback, Owner, Place, device};

/// `list_len` of the list's own table: the number of its buffers.
///
/// # Safety
/// `list` is NULL or a live list of any library; `out` is NULL or a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_list_len(
    list: *const HurrayBufferList,
    out: *mut u64,
) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(list) }?;
        // SAFETY: the list's own function, with the caller's arguments.
        functions.result("list_len", unsafe { (functions.list_len)(list, out) })
    })
}

/// `list_get` of the list's own table: buffer `index`, borrowed from the list. Never destroy it.
///
/// # Safety
/// `list` is NULL or a live list of any library; `out` is NULL or a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_list_get(
    list: *const HurrayBufferList,
    index: u64,
    out: *mut *const HurrayBuffer,
) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(list) }?;
        // SAFETY: the list's own function, with the caller's arguments.
        functions.result("list_get", unsafe {
            (functions.list_get)(list, index, out)
        })
    })
}

/// `list_destroy` of the list's own table: the list and what is left of it are let go, `*list` becomes NULL. A NULL `*list` is a no-op.
///
/// # Safety
/// `list` is NULL or a variable with NULL or a live list of any library, which is the caller's to destroy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_list_destroy(list: *mut *mut HurrayBufferList) -> i32 {
    call(|| {
        // SAFETY: NULL or a variable.
        let Some(functions) = (unsafe { functions_in(list) })? else {
            return Ok(());
        };
        // SAFETY: the list's own function, with the caller's argument.
        functions.result("list_destroy", unsafe { (functions.list_destroy)(list) })
    })
}

/// `list_release` of the list's own table: buffer `index` is let go when the work queued on `stream` by now is done.
///
/// # Safety
/// `list` is NULL or a live list of any library; no call uses buffer `index` meanwhile or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_list_release(
    list: *mut HurrayBufferList,
    index: u64,
    stream: usize,
) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(list) }?;
        // SAFETY: the list's own function, with the caller's arguments.
        functions.result("list_release", unsafe {
            (functions.list_release)(list, index, stream)
        })
    })
}

/// `list_release_after` of the list's own table: `list_release` of what is left, then the list; `*list` becomes NULL. A NULL `*list` is a no-op.
///
/// # Safety
/// `list` is NULL or a variable with NULL or a live list of any library, which is the caller's to destroy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_list_release_after(
    list: *mut *mut HurrayBufferList,
    stream: usize,
) -> i32 {
    call(|| {
        // SAFETY: NULL or a variable.
        let Some(functions) = (unsafe { functions_in(list) })? else {
            return Ok(());
        };
        // SAFETY: the list's own function, with the caller's arguments.
        functions.result("list_release_after", unsafe {
            (functions.list_release_after)(list, stream)
        })
    })
}

/// `buffer_info` of the buffer's own table: where the bytes are and what they are like.
///
/// # Safety
/// `buffer` is NULL or a live buffer of any library; `out` is NULL or a struct whose `struct_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_info(
    buffer: *const HurrayBuffer,
    out: *mut HurrayBufferInfo,
) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(buffer) }?;
        // SAFETY: the buffer's own function, with the caller's arguments.
        functions.result("buffer_info", unsafe {
            (functions.buffer_info)(buffer, out)
        })
    })
}

/// `buffer_sync` of the buffer's own table: the event or stream that goes with the sync mode, borrowed.
///
/// # Safety
/// `buffer` is NULL or a live buffer of any library; `out` is NULL or a struct whose `struct_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_sync(
    buffer: *const HurrayBuffer,
    out: *mut HurrayBufferSync,
) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(buffer) }?;
        // SAFETY: the buffer's own function, with the caller's arguments.
        functions.result("buffer_sync", unsafe {
            (functions.buffer_sync)(buffer, out)
        })
    })
}

/// `buffer_wait` of the buffer's own table: later work on `stream` waits for the buffer's writes.
///
/// # Safety
/// `buffer` is NULL or a live buffer of any library; `stream` is a stream of its device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_wait(buffer: *const HurrayBuffer, stream: usize) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(buffer) }?;
        // SAFETY: the buffer's own function, with the caller's arguments.
        functions.result("buffer_wait", unsafe {
            (functions.buffer_wait)(buffer, stream)
        })
    })
}

/// `buffer_wait_host` of the buffer's own table: blocks until the bytes may be read.
///
/// # Safety
/// `buffer` is NULL or a live buffer of any library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_wait_host(buffer: *const HurrayBuffer) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(buffer) }?;
        // SAFETY: the buffer's own function, with the caller's argument.
        functions.result("buffer_wait_host", unsafe {
            (functions.buffer_wait_host)(buffer)
        })
    })
}

/// `event_release` of the list's own table: all waits on the event of buffer `index` are queued.
///
/// # Safety
/// `list` is NULL or a live list of any library; nothing uses the event afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_event_release(list: *mut HurrayBufferList, index: u64) -> i32 {
    call(|| {
        // SAFETY: NULL or live.
        let functions = unsafe { Functions::of_handle(list) }?;
        // SAFETY: the list's own function, with the caller's arguments.
        functions.result("event_release", unsafe {
            (functions.event_release)(list, index)
        })
    })
}

/// Text of the calling thread's last failure in an exported function, also of another library's handle; valid until the next, empty before the
/// first. Never NULL, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn hurray_last_error() -> *const c_char {
    last_error::get()
}

/// Makes a buffer of memory of the caller's. On success the buffer owns the bytes, and the event if there is one, and `*out` is the caller's to
/// put into a list or destroy; `desc` itself stays the caller's. On failure nothing has happened, and no callback is called.
///
/// # Safety
/// * `desc` is NULL or a struct of the size that it says; `out` is NULL or a variable.
/// * `data` is valid for `byte_size` bytes on its device until `release` or `release_after` is called, and nobody writes to the bytes once their
///   mode says that they may be read.
/// * The callbacks may be called once, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_from_ptr(
    desc: *const HurrayBufferDesc,
    out: *mut *mut HurrayBuffer,
) -> i32 {
    call(|| {
        if out.is_null() {
            return Err(Failure::Null("out"));
        }
        if desc.is_null() {
            return Err(Failure::Null("desc"));
        }
        // SAFETY: not NULL, and so a struct of the size that it says.
        unsafe { check_size(desc, "HurrayBufferDesc") }?;
        // SAFETY: the struct is long enough.
        let desc = unsafe { desc.read_unaligned() };
        let (region, has_event, has_stream) = region_of(&desc)?;
        device::check(&region).map_err(BufferError::from)?;
        // SAFETY: the caller allows the one call.
        let callback = unsafe { Callback::new(desc.data, desc.release_context, desc.release) };
        // SAFETY: the caller allows the one call of one of them.
        let callback = unsafe { callback.stream_ordered(desc.release_after) };
        let owner = Arc::new(Owner::Callback(callback));
        let event = desc.event_release.filter(|_| has_event).map(|release| {
            let release = EventRelease::Callback {
                release,
                context: desc.event_context,
            };
            // SAFETY: the caller's event lives until its release, which may be called once, on any thread.
            unsafe { LentEvent::new(desc.event, release, Arc::clone(&owner)) }
        });
        let stream = if has_stream { desc.stream } else { 0 };
        let lent = Lent::by_producer(region.place, event, stream, &owner);
        let buffer = Buffer::foreign(region, lent, owner);
        let handle = Box::new(Handle::new(buffer, false));
        // SAFETY: a variable, not NULL.
        unsafe { write(out, Box::into_raw(handle).cast()) }
    })
}

/// Checks a description; gives where and what, and whether an event and a stream go with it.
fn region_of(desc: &HurrayBufferDesc) -> Result<(Region, bool, bool), Failure> {
    let byte = |field, value| Failure::Byte { field, value };
    let device =
        DeviceTag::from_byte(desc.device_tag).ok_or(byte("device_tag", desc.device_tag))?;
    let memory_class =
        MemoryClass::from_byte(desc.memory_class).ok_or(byte("memory_class", desc.memory_class))?;
    let mode = SyncMode::from_byte(desc.sync_mode).ok_or(byte("sync_mode", desc.sync_mode))?;
    if desc.reserved != 0 {
        return Err(byte("reserved", desc.reserved));
    }
    let flags = BufferFlags::from_bits(desc.flags).ok_or(Failure::Flags(desc.flags))?;
    let place = Place {
        device,
        device_id: desc.device_id,
        memory_class,
    };
    let region = Region::new(desc.data.cast(), desc.byte_size, place, mode, flags)?;

    let sync = |what| Failure::Sync { mode, what };
    let has_event = mode == SyncMode::Event;
    if has_event && (desc.event.is_null() || desc.event_release.is_none()) {
        return Err(sync("needs `event` and `event_release`"));
    }
    if !has_event && (!desc.event.is_null() || desc.event_release.is_some()) {
        return Err(sync("has no event"));
    }
    let has_stream = mode == SyncMode::ConsumerStream;
    let names_stream = !matches!(desc.stream, 0 | HURRAY_NO_STREAM);
    if has_stream && desc.stream == 0 {
        return Err(Failure::StreamZero);
    }
    if has_stream && !names_stream {
        return Err(sync("needs a stream"));
    }
    if !has_stream && names_stream {
        return Err(sync("has no stream"));
    }
    Ok((region, has_event, has_stream))
}

/// Destroys a buffer of `hurray_buffer_from_ptr`: event and bytes are let go, `*buffer` becomes NULL. A NULL `*buffer` is a no-op. Never for a
/// handle from `list_get`, which belongs to its list.
///
/// # Safety
/// `buffer` is NULL or a variable with NULL or a live buffer, and nothing uses that afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_destroy(buffer: *mut *mut HurrayBuffer) -> i32 {
    call(|| {
        if buffer.is_null() {
            return Err(Failure::Null("buffer"));
        }
        // SAFETY: not NULL, and so a variable.
        let taken = unsafe { buffer.read_unaligned() };
        if taken.is_null() {
            return Ok(());
        }
        // SAFETY: a live buffer.
        let handle = unsafe { standing(taken) }?;
        // SAFETY: the variable, as above.
        unsafe { buffer.write_unaligned(ptr::null_mut()) };
        // SAFETY: a standing handle came from `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(handle.as_ptr()) });
        Ok(())
    })
}

/// A handle of ours that no list owns.
///
/// # Safety
/// `buffer` is NULL or a live buffer of any library.
unsafe fn standing(buffer: *mut HurrayBuffer) -> Result<NonNull<Handle>, Failure> {
    // SAFETY: NULL or live.
    let handle = unsafe { own(buffer, "buffer") }?.cast::<Handle>();
    // SAFETY: a buffer of ours is a live `Handle`.
    if unsafe { handle.as_ref() }.in_list {
        Err(Failure::InList)
    } else {
        Ok(handle)
    }
}

/// Makes a list of `len` buffers of `hurray_buffer_from_ptr`, whose context holds a copy of the `descriptor_len` bytes at `descriptor`. On success the
/// list owns all of them, every entry of `buffers` becomes NULL, and `*out` is the caller's to put into a capsule or destroy. On failure nothing has
/// happened. Descriptor and buffers are not checked against each other: the consumer does.
///
/// # Safety
/// * `buffers` is an array of `len` live buffers which nobody else uses meanwhile, or NULL if `len` is 0; `out` is NULL or a variable.
/// * `descriptor` has `descriptor_len` readable bytes, or is NULL if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_list_new(
    buffers: *mut *mut HurrayBuffer,
    len: u64,
    descriptor: *const u8,
    descriptor_len: u64,
    out: *mut *mut HurrayBufferList,
) -> i32 {
    call(|| {
        if out.is_null() {
            return Err(Failure::Null("out"));
        }
        if buffers.is_null() && len > 0 {
            return Err(Failure::Null("buffers"));
        }
        if descriptor.is_null() && descriptor_len > 0 {
            return Err(Failure::Null("descriptor"));
        }
        let buffers = match count::<*mut HurrayBuffer>(len)? {
            0 => &mut [],
            // SAFETY: the caller's array of so many entries, not NULL and not longer than a slice can be.
            len => unsafe { slice::from_raw_parts_mut(buffers, len) },
        };
        let descriptor = match count::<u8>(descriptor_len)? {
            0 => &[],
            // SAFETY: so many readable bytes by the caller's word, not NULL and not longer than a slice can be.
            len => unsafe { slice::from_raw_parts(descriptor, len) },
        };
        // SAFETY: the entries are live buffers or NULL.
        let list = unsafe { take_all(buffers, descriptor) }?;
        // SAFETY: a variable, not NULL.
        unsafe { write(out, list.into_raw().as_ptr()) }
    })
}

/// As many values as a slice can hold.
fn count<T>(len: u64) -> Result<usize, Failure> {
    usize::try_from(len)
        .ok()
        .filter(|&count| count <= isize::MAX.unsigned_abs() / size_of::<T>())
        .ok_or(Failure::Count(len))
}

/// Moves the buffers out of their handles into a list, and frees the handles; all or none.
///
/// # Safety
/// Every entry is NULL or a live buffer of any library.
unsafe fn take_all(
    entries: &mut [*mut HurrayBuffer],
    descriptor: &[u8],
) -> Result<BufferList, Failure> {
    // Who stands in the array twice shows when it is taken the second time; what was taken before goes back then.
    let mut list = BufferList::with_room(entries.len(), descriptor.len())?;
    list.descriptor_mut().copy_from_slice(descriptor);
    for (index, &entry) in entries.iter().enumerate() {
        // SAFETY: the entry is NULL or live.
        let taken =
            unsafe { take(entry) }.and_then(|buffer| buffer.ok_or(Failure::Handle(index as u64)));
        match taken {
            Ok(buffer) => list.push(buffer),
            Err(failure) => {
                for (moved, &entry) in list.handles().iter().zip(&*entries) {
                    if let Some(buffer) = moved.take()
                        // SAFETY: the entry was taken from before, so it is a handle of ours.
                        && let Ok(handle) = unsafe { standing(entry) }
                    {
                        // SAFETY: as above, and still live.
                        unsafe { handle.as_ref() }.put_back(buffer);
                    }
                }
                return Err(failure);
            }
        }
    }
    for entry in entries {
        let handle = entry.cast::<Handle>();
        *entry = ptr::null_mut();
        // SAFETY: a standing handle came from `Box::into_raw`, stood in the array once, and the caller gives it up.
        drop(unsafe { Box::from_raw(handle) });
    }
    Ok(list)
}

/// The buffer of a standing handle; `None` where it was taken before.
///
/// # Safety
/// `entry` is NULL or a live buffer of any library.
unsafe fn take(entry: *mut HurrayBuffer) -> Result<Option<Buffer>, Failure> {
    // SAFETY: NULL or live.
    let handle = unsafe { standing(entry) }?;
    // SAFETY: a live handle of ours.
    Ok(unsafe { handle.as_ref() }.take())
}

/// The context of a list of `hurray_buffer_list_new`, which belongs into the capsule beside it. It belongs to the list and dies with it.
///
/// # Safety
/// `list` is NULL or a live list; `out` is NULL or a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hurray_buffer_list_context(
    list: *const HurrayBufferList,
    out: *mut *const HurrayCapsuleContext,
) -> i32 {
    call(|| {
        let context = |list: &BufferList| Ok(list.context().as_ptr().cast_const());
        // SAFETY: NULL or live.
        let context = unsafe { with_list(list, context) }?;
        // SAFETY: NULL or a variable.
        unsafe { write(out, context) }
    })
}

/// The functions of the list in a variable; `None` where that is NULL.
///
/// # Safety
/// `list` is NULL or a variable with NULL or a live list of any library.
unsafe fn functions_in(list: *mut *mut HurrayBufferList) -> Result<Option<Functions>, Failure> {
    if list.is_null() {
        return Err(Failure::Null("list"));
    }
    // SAFETY: not NULL, and so a variable.
    let list = unsafe { list.read_unaligned() };
    if list.is_null() {
        return Ok(None);
    }
    // SAFETY: a live list.
    unsafe { Functions::of_handle(list) }.map(Some)
}
