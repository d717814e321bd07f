//! Copies between host and device, within a device and between devices.

use std::{mem, ptr};

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUcontext, CUmemorytype};
use hurray_core::{CopyEnd, CopyRequest, DeviceError, Stream};

use crate::capture::Capture;
use crate::context::Current;
use crate::device::Device;
use crate::driver::{CallError, Driver};
use crate::pinned_ring::{CHUNK, CHUNKS};
use crate::pointer;
use crate::staging_ring::LentRing;
use crate::stream::{handle, require_open};

/// Pieces of small buffers begin on this boundary in a chunk, as allocations do.
const PIECE_ALIGNMENT: usize = 256;

/// As [`hurray_core::DeviceLayer::copy`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn copy(copies: &[CopyRequest], stream: &Stream) -> Result<(), DeviceError> {
    require_open(stream)?;
    for copy in copies {
        copy.len()?;
    }
    let device = Device::get(stream.device_id())?;
    let driver = device.driver();
    let call = |failed| driver.error(failed);
    let mut staged: Option<Staging> = None;
    for copy in copies.iter().filter(|copy| !copy.is_empty()) {
        let from = reach(copy.from, copy).map_err(call)?;
        let to = reach(copy.to, copy).map_err(call)?;
        let direction = match (from, to) {
            (Reach::Pageable, Reach::Pageable) => {
                return Err(DeviceError::NoDeviceEnd);
            }
            (Reach::Pageable, Reach::Direct) => Direction::ToDevice,
            (Reach::Direct, Reach::Pageable) => Direction::FromDevice,
            (Reach::Direct, Reach::Direct) => {
                // SAFETY: the caller's word, and the driver reaches both ends.
                unsafe { direct(driver, copy, stream) }?;
                continue;
            }
        };
        let staging = match &mut staged {
            Some(staging) => staging,
            none => {
                if Capture::of(driver, stream).map_err(call)? != Capture::None {
                    return Err(DeviceError::Capturing {
                        operation: "copying pageable memory",
                    });
                }
                none.insert(Staging::new(device, stream).map_err(call)?)
            }
        };
        // SAFETY: the caller's word.
        unsafe { staging.copy(copy, direction) }?;
    }
    match staged {
        // SAFETY: the targets are the caller's, who waits for this call.
        Some(mut staging) => unsafe { staging.finish() }.map_err(call),
        None => Ok(()),
    }
}

/// How the driver gets at the bytes.
enum Reach {
    /// It knows them: memory of a device, pinned or managed.
    Direct,
    /// It would have to copy them itself, and block.
    Pageable,
}

fn reach(end: CopyEnd, copy: &CopyRequest) -> Result<Reach, CallError> {
    if end.device_id.is_some() {
        return Ok(Reach::Direct);
    }
    let extent = copy.rows.saturating_sub(1) * end.pitch + copy.row_len;
    Ok(match pointer::ask(end.address)? {
        Some(facts) if facts.len >= extent => Reach::Direct,
        _ => Reach::Pageable,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToDevice,
    FromDevice,
}

/// Queues one copy between places that the driver knows.
///
/// # Safety
/// As [`copy`], for this one.
unsafe fn direct(driver: &Driver, copy: &CopyRequest, stream: &Stream) -> Result<(), DeviceError> {
    let call = |failed| driver.error(failed);
    let is_packed =
        copy.rows == 1 || copy.from.pitch == copy.row_len && copy.to.pitch == copy.row_len;
    let (len, rows) = if is_packed {
        (copy.row_len * copy.rows, 1)
    } else {
        (copy.row_len, copy.rows)
    };
    match (copy.from.device_id, copy.to.device_id) {
        (Some(from), Some(to)) if from != to => {
            let from_context = Device::get(from)?.context();
            let to_context = Device::get(to)?.context();
            let _current = Current::enter(driver, stream.context()).map_err(call)?;
            // The driver has no asynchronous strided copy between contexts but one for three dimensions.
            for row in 0..rows {
                let from = copy.from.address + row * copy.from.pitch;
                let to = copy.to.address + row * copy.to.pitch;
                // SAFETY: the caller's word, for one row.
                unsafe {
                    driver.cuMemcpyPeerAsync(
                        to as u64,
                        to_context as CUcontext,
                        from as u64,
                        from_context as CUcontext,
                        len,
                        handle(stream),
                    )
                }
                .map_err(call)?;
            }
            Ok(())
        }
        _ => {
            // SAFETY: the caller's word.
            unsafe { within(driver, copy.from, copy.to, len, rows, stream) }.map_err(call)
        }
    }
}

/// Queues one copy between addresses of which the driver itself knows where they are.
///
/// # Safety
/// As [`copy`].
unsafe fn within(
    driver: &Driver,
    from: CopyEnd,
    to: CopyEnd,
    row_len: usize,
    rows: usize,
    stream: &Stream,
) -> Result<(), CallError> {
    let _current = Current::enter(driver, stream.context())?;
    if rows == 1 {
        // SAFETY: the caller's word.
        return unsafe {
            driver.cuMemcpyAsync(
                to.address as u64,
                from.address as u64,
                row_len,
                handle(stream),
            )
        };
    }
    let strided = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        srcHost: ptr::null(),
        srcDevice: from.address as u64,
        srcArray: ptr::null_mut(),
        srcPitch: from.pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstHost: ptr::null_mut(),
        dstDevice: to.address as u64,
        dstArray: ptr::null_mut(),
        dstPitch: to.pitch,
        WidthInBytes: row_len,
        Height: rows,
    };
    // SAFETY: the caller's word; the description is valid for the call.
    unsafe { driver.cuMemcpy2DAsync_v2(&raw const strided, handle(stream)) }
}

/// Rows in a chunk that go to pageable memory once they have arrived.
struct Arriving {
    offset: usize,
    to: CopyEnd,
    row_len: usize,
    rows: usize,
}

/// Copies of pageable memory in progress: pieces are packed into chunks, each chunk has one event, and the host works on one chunk while the others
/// are under way.
struct Staging<'s> {
    stream: &'s Stream,
    ring: LentRing,
    /// Bytes of the current chunk that are taken.
    used: usize,
    arriving: [Vec<Arriving>; CHUNKS],
}

impl<'s> Staging<'s> {
    fn new(device: &'static Device, stream: &'s Stream) -> Result<Self, CallError> {
        let mut staging = Self {
            stream,
            ring: LentRing::take(device)?,
            used: 0,
            arriving: [const { Vec::new() }; CHUNKS],
        };
        // SAFETY: nothing of this call is arriving yet.
        unsafe { staging.open() }?;
        Ok(staging)
    }

    /// Cuts a copy into pieces that fit a chunk.
    ///
    /// # Safety
    /// As [`copy`].
    unsafe fn copy(&mut self, copy: &CopyRequest, direction: Direction) -> Result<(), DeviceError> {
        let driver = self.ring.device().driver();
        let (mut row_len, mut rows) = (copy.row_len, copy.rows);
        if copy.from.pitch == row_len && copy.to.pitch == row_len {
            (row_len, rows) = (row_len * rows, 1);
        }
        let (mut row, mut column) = (0, 0);
        while row < rows {
            let space = CHUNK - self.used;
            // Whole rows where one fits a chunk, else a part of one.
            let (len, count) = if row_len <= CHUNK {
                (row_len, (space / row_len).min(rows - row))
            } else {
                (space.min(row_len - column), usize::from(space > 0))
            };
            if count == 0 {
                // SAFETY: the caller waits for everything that arrives.
                unsafe { self.advance() }.map_err(|failed| driver.error(failed))?;
                continue;
            }
            let part = |end: CopyEnd| CopyEnd {
                address: end.address + row * end.pitch + column,
                ..end
            };
            // SAFETY: a part of the caller's copy, and `space` is left in the chunk for it.
            unsafe { self.piece(part(copy.from), part(copy.to), len, count, direction) }
                .map_err(|failed| driver.error(failed))?;
            column += len;
            if column == row_len {
                column = 0;
                row += count;
            }
        }
        Ok(())
    }

    /// Copies what fits the rest of the chunk.
    ///
    /// # Safety
    /// As [`copy`], and the chunk has room.
    unsafe fn piece(
        &mut self,
        from: CopyEnd,
        to: CopyEnd,
        row_len: usize,
        rows: usize,
        direction: Direction,
    ) -> Result<(), CallError> {
        let offset = self.used;
        let chunk = CopyEnd {
            address: self.ring.address() + offset,
            pitch: row_len,
            device_id: None,
        };
        self.used = CHUNK.min((offset + row_len * rows).next_multiple_of(PIECE_ALIGNMENT));
        let driver = self.ring.device().driver();
        match direction {
            Direction::ToDevice => {
                // SAFETY: the caller's bytes, and a part of the chunk that nothing uses.
                unsafe { host_copy(from, chunk, row_len, rows) };
                // SAFETY: the chunk stays as it is until its event is complete.
                unsafe { within(driver, chunk, to, row_len, rows, self.stream) }
            }
            Direction::FromDevice => {
                // SAFETY: the caller's bytes, and a part of the chunk that nothing else uses until its event is complete.
                unsafe { within(driver, from, chunk, row_len, rows, self.stream) }?;
                let arriving = Arriving {
                    offset,
                    to,
                    row_len,
                    rows,
                };
                if let Some(list) = self.arriving.get_mut(self.ring.index()) {
                    list.push(arriving);
                }
                Ok(())
            }
        }
    }

    /// Goes on to the next chunk.
    ///
    /// # Safety
    /// What arrives may be written to its targets.
    unsafe fn advance(&mut self) -> Result<(), CallError> {
        self.seal()?;
        // SAFETY: the caller's word.
        unsafe { self.open() }
    }

    /// Leaves the current chunk, if it is used.
    fn seal(&mut self) -> Result<(), CallError> {
        if self.used > 0 {
            self.ring.seal(self.stream)?;
            self.used = 0;
        }
        Ok(())
    }

    /// Makes the current chunk free for use: the copies from it are done, and what arrived in it is where it belongs.
    ///
    /// # Safety
    /// What arrives may be written to its targets.
    unsafe fn open(&mut self) -> Result<(), CallError> {
        self.ring.open()?;
        let list = self.arriving.get_mut(self.ring.index()).map(mem::take);
        for arrived in list.into_iter().flatten() {
            let chunk = CopyEnd {
                address: self.ring.address() + arrived.offset,
                pitch: arrived.row_len,
                device_id: None,
            };
            // SAFETY: the bytes have arrived, and the caller allows the write.
            unsafe { host_copy(chunk, arrived.to, arrived.row_len, arrived.rows) };
        }
        Ok(())
    }

    /// Waits until everything has arrived. Copies to the device may still be under way.
    ///
    /// # Safety
    /// What arrives may be written to its targets.
    unsafe fn finish(&mut self) -> Result<(), CallError> {
        self.seal()?;
        for _ in 0..CHUNKS {
            let is_arriving = self
                .arriving
                .get(self.ring.index())
                .is_some_and(|list| !list.is_empty());
            if is_arriving {
                // SAFETY: the caller's word.
                unsafe { self.open() }?;
            }
            self.ring.pass();
        }
        Ok(())
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // After a failure the chunk may be in use with no event to tell, and the ring knows.
        if self.used > 0 {
            let _: Result<(), CallError> = self.seal();
        } else {
            self.ring.pass();
        }
    }
}

/// Copies rows within host memory.
///
/// # Safety
/// Both ends are valid for it, and do not overlap.
unsafe fn host_copy(from: CopyEnd, to: CopyEnd, row_len: usize, rows: usize) {
    for row in 0..rows {
        let source = ptr::with_exposed_provenance::<u8>(from.address + row * from.pitch);
        let target = ptr::with_exposed_provenance_mut::<u8>(to.address + row * to.pitch);
        // SAFETY: the caller's word, for one row.
        unsafe { ptr::copy_nonoverlapping(source, target, row_len) };
    }
}
