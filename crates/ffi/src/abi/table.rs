//! Our own functions for our own handles.

use std::ffi::c_char;
use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use hurray_core::{Dependency, DeviceError, DeviceLayer, Stream, SyncMode};
use smallvec::{SmallVec, smallvec};

use super::Slot;
use super::status::{Failure, call};
use super::{
    HURRAY_C_ABI_VERSION, HURRAY_NO_STREAM, HurrayApi, HurrayBuffer, HurrayBufferInfo,
    HurrayBufferList, HurrayBufferSync, last_error,
};
use crate::list::Handle;
use crate::loan::Returns;
use crate::{Buffer, BufferList, Owner, Place, access, device, order};

/// The table at the head of every handle that this build makes. Its address tells them from others'.
pub(crate) static TABLE: HurrayApi = HurrayApi {
    struct_size: size_of::<HurrayApi>() as u32,
    abi_version: HURRAY_C_ABI_VERSION,
    list_len: Some(list_len),
    list_get: Some(list_get),
    list_destroy: Some(list_destroy),
    list_release: Some(list_release),
    list_release_after: Some(list_release_after),
    buffer_info: Some(buffer_info),
    buffer_sync: Some(buffer_sync),
    buffer_wait: Some(buffer_wait),
    buffer_wait_host: Some(buffer_wait_host),
    event_release: Some(event_release),
    last_error: Some(last_error_text),
};

/// Checks that `handle` is one of ours.
///
/// # Safety
/// `handle` is NULL or a live handle of any library.
pub(super) unsafe fn own<T>(handle: *const T, name: &'static str) -> Result<NonNull<T>, Failure> {
    let handle = NonNull::new(handle.cast_mut()).ok_or(Failure::Null(name))?;
    // SAFETY: every handle begins with its table.
    let api = unsafe { handle.cast::<*const HurrayApi>().read_unaligned() };
    if ptr::eq(api, &raw const TABLE) {
        Ok(handle)
    } else {
        Err(Failure::Foreign(name))
    }
}

/// Runs `body` over a list of ours, which stays the caller's.
///
/// # Safety
/// `list` is NULL or a live list of any library, and is not destroyed meanwhile.
pub(super) unsafe fn with_list<T>(
    list: *const HurrayBufferList,
    body: impl FnOnce(&BufferList) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: a live list or NULL.
    let list = unsafe { own(list, "list") }?;
    // SAFETY: a list of ours came from `into_raw`; the value is only borrowed.
    let list = std::mem::ManuallyDrop::new(unsafe { BufferList::from_raw(list) });
    body(&list)
}

/// The handle behind a buffer of ours.
///
/// # Safety
/// `buffer` is NULL or a live buffer of any library, and stays live for `'a`.
pub(super) unsafe fn handle<'a>(buffer: *const HurrayBuffer) -> Result<&'a Handle, Failure> {
    // SAFETY: a live buffer or NULL.
    let buffer = unsafe { own(buffer, "buffer") }?;
    // SAFETY: a buffer of ours is a `Handle`, and lives by the caller's word; what changes in it is atomic.
    Ok(unsafe { buffer.cast::<Handle>().as_ref() })
}

fn at(list: &BufferList, index: u64) -> Result<&Handle, Failure> {
    let handles = list.handles();
    usize::try_from(index)
        .ok()
        .and_then(|index| handles.get(index))
        .ok_or(Failure::Index {
            index,
            len: handles.len() as u64,
        })
}

/// Writes `value` to `out` unless that is NULL.
///
/// # Safety
/// `out` is NULL or valid for a write of a `T`.
pub(super) unsafe fn write<T>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::Null("out"));
    }
    // SAFETY: not NULL, and so valid.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Checks that the struct at `out`, which begins with its size, holds `needed` bytes.
///
/// # Safety
/// `out` is NULL or points to a struct that is as long as it says.
pub(super) unsafe fn check_size<T>(out: *const T, name: &'static str) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::Null("out"));
    }
    // SAFETY: such a struct begins with its size.
    let found = unsafe { out.cast::<u32>().read_unaligned() };
    let needed = size_of::<T>();
    if (found as usize) < needed {
        return Err(Failure::ShortStruct {
            name,
            found,
            needed,
        });
    }
    Ok(())
}

pub(super) unsafe extern "C" fn list_len(list: *const HurrayBufferList, out: *mut u64) -> i32 {
    call(|| {
        // SAFETY: the ABI's caller passes NULL or a live list.
        let len = unsafe { with_list(list, |list| Ok(list.len() as u64)) }?;
        // SAFETY: the ABI's caller passes NULL or a variable of its own.
        unsafe { write(out, len) }
    })
}

pub(super) unsafe extern "C" fn list_get(
    list: *const HurrayBufferList,
    index: u64,
    out: *mut *const HurrayBuffer,
) -> i32 {
    call(|| {
        let find = |list: &BufferList| {
            let handle = at(list, index)?;
            if handle.is_released() {
                return Err(Failure::Released(index));
            }
            Ok(ptr::from_ref(handle).cast())
        };
        // SAFETY: the ABI's caller passes NULL or a live list.
        let handle = unsafe { with_list(list, find) }?;
        // SAFETY: the ABI's caller passes NULL or a variable of its own.
        unsafe { write(out, handle) }
    })
}

/// Takes the list out of the caller's variable; `None` where it is NULL.
///
/// # Safety
/// `list` is NULL or points to a variable that is NULL or a live list of any library.
unsafe fn take_list(list: *mut *mut HurrayBufferList) -> Result<Option<BufferList>, Failure> {
    if list.is_null() {
        return Err(Failure::Null("list"));
    }
    // SAFETY: not NULL, and so a variable.
    let taken = unsafe { list.read_unaligned() };
    if taken.is_null() {
        return Ok(None);
    }
    // SAFETY: a live list.
    let taken = unsafe { own(taken, "list") }?;
    // SAFETY: the variable, as above.
    unsafe { list.write_unaligned(ptr::null_mut()) };
    // SAFETY: a list of ours came from `into_raw`, and the caller gives it up.
    Ok(Some(unsafe { BufferList::from_raw(taken) }))
}

pub(super) unsafe extern "C" fn list_destroy(list: *mut *mut HurrayBufferList) -> i32 {
    call(|| {
        // SAFETY: the ABI's caller passes NULL or a variable with NULL or a live list of its own.
        drop(unsafe { take_list(list) }?);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn list_release(
    list: *mut HurrayBufferList,
    index: u64,
    stream: usize,
) -> i32 {
    call(|| {
        let release = |list: &BufferList| {
            let handle = at(list, index)?;
            check_stream(stream)?;
            let buffer = handle.take().ok_or(Failure::Released(index))?;
            let_go(smallvec![(handle, buffer)], stream)
        };
        // SAFETY: the ABI's caller passes NULL or a live list.
        unsafe { with_list(list, release) }
    })
}

pub(super) unsafe extern "C" fn list_release_after(
    list: *mut *mut HurrayBufferList,
    stream: usize,
) -> i32 {
    call(|| {
        check_stream(stream)?;
        if list.is_null() {
            return Err(Failure::Null("list"));
        }
        if stream != HURRAY_NO_STREAM {
            // SAFETY: not NULL, and so a variable.
            let borrowed = unsafe { list.read_unaligned() };
            if borrowed.is_null() {
                return Ok(());
            }
            // SAFETY: a live list by the ABI.
            unsafe { with_list(borrowed, |list| let_go(take_all(list), stream)) }?;
        }
        // SAFETY: the ABI's caller passes a variable with NULL or a live list of its own.
        drop(unsafe { take_list(list) }?);
        Ok(())
    })
}

/// Takes all buffers that are left.
fn take_all(list: &BufferList) -> Taken<'_> {
    let handles = list.handles().iter();
    handles
        .filter_map(|handle| Some((handle, handle.take()?)))
        .collect()
}

const fn check_stream(stream: usize) -> Result<(), Failure> {
    if stream == 0 {
        Err(Failure::StreamZero)
    } else {
        Ok(())
    }
}

/// Buffers that were taken out of their handles, to be let go together or put back.
type Taken<'l> = SmallVec<[(&'l Handle, Buffer); 3]>;

/// Lets go of `taken` when the work queued on `stream` by now is done, or puts all of it back. Without a driver only another library can do that: it takes
/// back its own buffers, where nobody else here holds them (a second holder's work might run on another stream), and one that it refuses after it has
/// accepted others gives none of them back.
fn let_go(mut taken: Taken<'_>, stream: usize) -> Result<(), Failure> {
    let uses = match NonZeroUsize::new(stream) {
        None => Err(Failure::StreamZero),
        Some(_) if stream == HURRAY_NO_STREAM => Ok(Uses::new()),
        Some(number) => match use_on(&taken, number) {
            Err(Failure::Unsupported { .. })
                if taken.iter().all(|(_, buffer)| is_forwarded(buffer)) =>
            {
                forward(&mut taken, stream).map(|()| Uses::new())
            }
            uses => uses,
        },
    };
    match uses {
        Ok(uses) => {
            let mut returns = Returns::default();
            returns.extend(taken.into_iter().map(|(_, buffer)| buffer));
            uses.into_iter().for_each(|owner| returns.push(owner));
            Ok(())
        }
        Err(failure) => {
            for (handle, buffer) in taken {
                handle.put_back(buffer);
            }
            Err(failure)
        }
    }
}

/// Uses on a stream, which end when they are dropped.
type Uses = SmallVec<[Arc<Owner>; 3]>;

/// Tells the layer that work on stream `number` uses `taken`. The stream is ordered after what the bytes depend on, unless it was made to wait before.
/// Everything is checked before anything is done.
fn use_on(taken: &[(&Handle, Buffer)], number: NonZeroUsize) -> Result<Uses, Failure> {
    let is_of = |buffer: &Buffer, place: Place| {
        let own = buffer.place();
        (own.device, own.device_id) == (place.device, place.device_id)
    };
    let mut devices = SmallVec::<[(Place, &'static dyn DeviceLayer, Stream); 1]>::new();
    for (_, buffer) in taken {
        if devices.iter().any(|(place, ..)| is_of(buffer, *place)) {
            continue;
        }
        let place = buffer.place();
        let layer = device::reaching(place).map_err(|reason| Failure::Unsupported {
            what: "let go of a buffer after a stream's work, so keep the list until that work is done",
            reason,
        })?;
        devices.push((place, layer, stream_of(layer, place, number)?));
    }
    for (place, _, stream) in &devices {
        for (_, buffer) in taken.iter().filter(|(_, buffer)| is_of(buffer, *place)) {
            access::check_stream(buffer, stream)?;
        }
    }
    let mut uses = Uses::new();
    for (place, layer, stream) in devices {
        let own = || {
            taken.iter().filter(|(_, buffer)| {
                let is_out = match buffer.owner() {
                    Owner::Loan(loan) => loan.is_on(&stream),
                    _ => false,
                };
                is_of(buffer, place) && !is_out
            })
        };
        let dependencies: SmallVec<[_; 3]> = own()
            .filter(|(handle, _)| !handle.has_waited(&stream))
            .filter_map(|(_, buffer)| buffer.dependency())
            .collect();
        layer.order(&dependencies, &stream)?;
        let roots = own()
            .map(|(_, buffer)| order::root(layer, buffer))
            .collect::<Result<SmallVec<[_; 3]>, _>>()?;
        uses.extend(order::lend(layer, &roots, &stream)?);
    }
    Ok(uses)
}

/// The stream with this number, of the device that the bytes are on. To memory of the host the stream of any device may do something.
fn stream_of(
    layer: &'static dyn DeviceLayer,
    place: Place,
    number: NonZeroUsize,
) -> Result<Stream, DeviceError> {
    // SAFETY: by the ABI the number names a stream that lives as long as what the caller gives it.
    let found = unsafe { layer.stream(place.device_id, number, None) };
    match found {
        Err(DeviceError::OtherDevice { stream, .. }) if place.is_host_accessible() => {
            // SAFETY: as above.
            unsafe { layer.stream(stream, number, None) }
        }
        found => found,
    }
}

/// Has another library let go of `taken`, from the last on; what it has accepted is gone from there.
fn forward(taken: &mut Taken<'_>, stream: usize) -> Result<(), Failure> {
    while let Some((handle, buffer)) = taken.pop() {
        if let Owner::Slot(slot) = buffer.owner()
            && let Err(failure) = slot.release_after(stream)
        {
            taken.push((handle, buffer));
            return Err(failure);
        }
    }
    Ok(())
}

/// Whether `buffer` is let go by another library, and held by nobody else here.
fn is_forwarded(buffer: &Buffer) -> bool {
    matches!(buffer.owner(), Owner::Slot(_)) && buffer.is_only_holder()
}

pub(super) unsafe extern "C" fn buffer_info(
    buffer: *const HurrayBuffer,
    out: *mut HurrayBufferInfo,
) -> i32 {
    call(|| {
        // SAFETY: the ABI's caller passes NULL or a live buffer.
        let handle = unsafe { handle(buffer) }?;
        // SAFETY: the ABI's caller passes NULL or a struct of the size that it says.
        unsafe { check_size(out, "HurrayBufferInfo") }?;
        let region = &handle.region;
        let info = HurrayBufferInfo {
            struct_size: size_of::<HurrayBufferInfo>() as u32,
            flags: region.flags.bits(),
            data: region.address.cast(),
            byte_size: region.len as u64,
            alignment: region.alignment(),
            device_id: region.place.device_id,
            device_tag: region.place.device.to_byte(),
            memory_class: region.place.memory_class.to_byte(),
            sync_mode: region.mode.to_byte(),
            reserved: [0; 5],
        };
        // SAFETY: the struct is long enough.
        unsafe { write(out, info) }
    })
}

pub(super) unsafe extern "C" fn buffer_sync(
    buffer: *const HurrayBuffer,
    out: *mut HurrayBufferSync,
) -> i32 {
    call(|| {
        // SAFETY: the ABI's caller passes NULL or a live buffer.
        let handle = unsafe { handle(buffer) }?;
        // SAFETY: the ABI's caller passes NULL or a struct of the size that it says.
        unsafe { check_size(out, "HurrayBufferSync") }?;
        if handle.is_event_released() {
            return Err(Failure::HandleReleased);
        }
        let sync = HurrayBufferSync {
            struct_size: size_of::<HurrayBufferSync>() as u32,
            sync_mode: handle.region.mode.to_byte(),
            reserved: [0; 3],
            event: handle.event,
            stream: handle.stream,
        };
        // SAFETY: the struct is long enough.
        unsafe { write(out, sync) }
    })
}

pub(super) unsafe extern "C" fn buffer_wait(buffer: *const HurrayBuffer, stream: usize) -> i32 {
    call(|| {
        // SAFETY: the ABI's caller passes NULL or a live buffer.
        let handle = unsafe { handle(buffer) }?;
        let number = NonZeroUsize::new(stream).ok_or(Failure::StreamZero)?;
        if stream == HURRAY_NO_STREAM {
            return Err(Failure::NoStream);
        }
        let wait = |layer: &'static dyn DeviceLayer, dependency: &Dependency| {
            let stream = stream_of(layer, handle.region.place, number)?;
            layer.order(&[dependency], &stream)?;
            handle.note_wait(&stream);
            Ok(())
        };
        wait_for(handle, wait, |slot| slot.wait(stream))
    })
}

pub(super) unsafe extern "C" fn buffer_wait_host(buffer: *const HurrayBuffer) -> i32 {
    call(|| {
        // SAFETY: the ABI's caller passes NULL or a live buffer.
        let handle = unsafe { handle(buffer) }?;
        let wait =
            |layer: &'static dyn DeviceLayer, dependency: &Dependency| layer.wait(&[dependency]);
        wait_for(handle, wait, Slot::wait_host)
    })
}

/// Waits for the writes of a buffer: not at all, by the device layer, or, where nothing here can, by the library that made it.
fn wait_for(
    handle: &Handle,
    wait: impl FnOnce(&'static dyn DeviceLayer, &Dependency) -> Result<(), DeviceError>,
    relay: impl FnOnce(&Slot) -> Result<(), Failure>,
) -> Result<(), Failure> {
    const WHAT: &str = "wait for the bytes, so wait for what `buffer_sync` gives";
    if handle.region.mode == SyncMode::ProducerSynced {
        return Ok(());
    }
    if handle.is_released() || handle.is_event_released() {
        return Err(Failure::HandleReleased);
    }
    let layer = device::reaching(handle.region.place);
    match (layer, handle.dependency(), handle.owner()) {
        (Ok(layer), Some(dependency), _) => Ok(wait(layer, dependency)?),
        (_, None, Some(Owner::Slot(slot))) => relay(slot),
        (Ok(_), None, _) => Err(Failure::NothingToWaitFor),
        (Err(reason), ..) => Err(Failure::Unsupported { what: WHAT, reason }),
    }
}

pub(super) unsafe extern "C" fn event_release(list: *mut HurrayBufferList, index: u64) -> i32 {
    call(|| {
        let release = |list: &BufferList| {
            let handle = at(list, index)?;
            if handle.event.is_null() || !handle.is_released() && handle.release_event() {
                Ok(())
            } else {
                Err(Failure::Released(index))
            }
        };
        // SAFETY: the ABI's caller passes NULL or a live list.
        unsafe { with_list(list, release) }
    })
}

pub(super) unsafe extern "C" fn last_error_text() -> *const c_char {
    last_error::get()
}
