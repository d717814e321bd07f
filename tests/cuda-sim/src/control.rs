//! What a test asks the simulator itself, by names that no driver has.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::LazyLock;

use crate::driver;
use crate::kernel::PTX;
use crate::log::Who;
use crate::memory::MappingKind;

fn who(number: u32) -> Who {
    if number == 0 {
        Who::Program
    } else {
        Who::Reclaimer
    }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a C string, by the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// How many reports there are so far.
#[unsafe(no_mangle)]
extern "C" fn cuda_sim_reports() -> usize {
    driver::lock().reports.lines().len()
}

/// Writes report `index` to `buffer` (as much as fits, with a terminator) and returns its length; 0 if there is none.
///
/// # Safety
/// `buffer` is null or has room for `capacity` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_sim_report(index: usize, buffer: *mut c_char, capacity: usize) -> usize {
    let driver = driver::lock();
    let Some(line) = driver.reports.lines().get(index) else {
        return 0;
    };
    if !buffer.is_null() && capacity > 0 {
        let len = line.len().min(capacity - 1);
        // SAFETY: `len + 1` bytes fit into the caller's buffer, which is not the simulator's.
        unsafe {
            line.as_ptr()
                .cast::<c_char>()
                .copy_to_nonoverlapping(buffer, len)
        };
        // SAFETY: `len` is below the capacity.
        let end = unsafe { buffer.add(len) };
        // SAFETY: `len` is below the capacity.
        unsafe { end.write(0) };
    }
    line.len()
}

/// How often the program (0) or the reclaimer (1) called a function.
///
/// # Safety
/// `function` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_sim_calls(function: *const c_char, by: u32) -> u64 {
    // SAFETY: null or a C string, by the caller's promise.
    let function = unsafe { string(function) };
    driver::lock().log.count(&function).of(who(by))
}

/// How often the program (0) or the reclaimer (1) waited on the host.
#[unsafe(no_mangle)]
extern "C" fn cuda_sim_host_waits(by: u32) -> u64 {
    driver::lock().log.waits(who(by))
}

/// How many things of a kind are alive.
///
/// # Safety
/// `kind` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_sim_live(kind: *const c_char) -> usize {
    // SAFETY: null or a C string, by the caller's promise.
    let kind = unsafe { string(kind) };
    let driver = driver::lock();
    let memory = |wanted: MappingKind| {
        driver
            .memory
            .mappings
            .values()
            .filter(|mapping| mapping.freed.is_none() && mapping.kind == wanted)
            .count()
    };
    match kind.as_str() {
        "memory" => memory(MappingKind::Device),
        "pinned" => memory(MappingKind::Pinned),
        "managed" => memory(MappingKind::Managed),
        "stream" => driver.stream_handles.len(),
        "event" => driver.events.len(),
        "pool" => driver.pools.len(),
        "graph" => driver.graphs.len(),
        "user-object" => driver.user_objects.len(),
        _ => 0,
    }
}

/// Bytes of a device's memory in use, now (0) or at most (1).
#[unsafe(no_mangle)]
extern "C" fn cuda_sim_device_bytes(device: u32, peak: u32) -> usize {
    driver::lock()
        .device_at(device as usize)
        .map_or(
            0,
            |device| if peak == 0 { device.taken } else { device.peak },
        )
}

/// Makes the calling thread the reclaimer.
#[unsafe(no_mangle)]
extern "C" fn cuda_sim_reclaimer_thread() {
    driver::become_reclaimer();
}

/// Runs everything that is queued and needs no host function; nobody learns of it.
#[unsafe(no_mangle)]
extern "C" fn cuda_sim_drain() {
    driver::lock().run_all();
}

/// Reads memory that the driver knows, as it is now. Returns 0, or −1 if the range is not all there.
///
/// # Safety
/// `to` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_sim_peek(address: u64, to: *mut c_void, length: usize) -> i32 {
    let driver = driver::lock();
    let range = address..address.saturating_add(length as u64);
    if driver
        .memory
        .pieces(range.clone())
        .iter()
        .any(|(pointer, _)| pointer.is_null())
    {
        return -1;
    }
    let mut bytes = vec![0; length];
    driver.memory.read(range, &mut bytes);
    // SAFETY: the caller's buffer has room for `length` bytes, and is not the simulator's.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(to.cast(), length) };
    0
}

/// The PTX of the test kernels.
#[unsafe(no_mangle)]
extern "C" fn cuda_sim_ptx() -> *const c_char {
    static TEXT: LazyLock<CString> = LazyLock::new(|| CString::new(PTX).unwrap_or_default());
    TEXT.as_ptr()
}
