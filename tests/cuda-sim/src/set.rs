//! Sets: a pattern of 1, 2 or 4 bytes over contiguous or strided device memory.

use std::ffi::{c_uchar, c_uint, c_ushort};
use std::ops::Range;

use cudarc::driver::sys::{CUdeviceptr, CUresult, CUstream};

use crate::checker::{Engine, Touch};
use crate::driver::Driver;
use crate::entry::{Call, Outcome, entry};
use crate::queue::Work;

/// A set of ranges to a pattern.
#[derive(Clone, Debug)]
pub(crate) struct SetPlan {
    rows: Vec<Range<u64>>,
    pattern: Vec<u8>,
}

impl Driver {
    pub(crate) fn run_set(&mut self, plan: &SetPlan) {
        for row in &plan.rows {
            let len = usize::try_from(row.end - row.start).unwrap_or(0);
            let bytes: Vec<u8> = plan.pattern.iter().copied().cycle().take(len).collect();
            self.memory.write(row.clone(), &bytes);
        }
    }
}

impl Call<'_> {
    fn set(
        &mut self,
        start: CUdeviceptr,
        pattern: &[u8],
        (width, height, pitch): (usize, usize, usize),
        stream: CUstream,
    ) -> Outcome {
        let stream = self.resolve(stream)?;
        let size = pattern.len();
        if !start.is_multiple_of(size as u64) || (height > 1 && pitch < width * size) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if width == 0 || height == 0 {
            return Ok(());
        }
        let row = |index: usize| {
            start + (pitch * index) as u64..start + (pitch * index + width * size) as u64
        };
        let rows: Vec<_> = (0..height).map(row).collect();
        let touches = rows
            .iter()
            .map(|row| Touch {
                range: row.clone(),
                write: true,
                engine: Engine::Copy,
            })
            .collect();
        self.enqueue(
            stream,
            touches,
            Work::Set(SetPlan {
                rows,
                pattern: pattern.to_vec(),
            }),
        )
        .map(drop)
    }

    /// "Memset functions are asynchronous with respect to the host except when the target is pinned host memory or a Unified Memory region."
    fn set_now(&mut self, start: CUdeviceptr, pattern: &[u8], count: usize) -> Outcome {
        self.refuse_unsafe_call()?;
        self.set(start, pattern, (count, 1, 0), std::ptr::null_mut())?;
        if self
            .memory
            .find(start)
            .is_some_and(|mapping| mapping.host_accessible())
        {
            let stream = self.resolve(std::ptr::null_mut())?;
            self.finish(stream);
        }
        Ok(())
    }
}

entry! {
    fn cuMemsetD8_v2(dstDevice: CUdeviceptr, uc: c_uchar, N: usize) |call| {
        call.set_now(dstDevice, &[uc], N)
    }
    fn cuMemsetD16_v2(dstDevice: CUdeviceptr, us: c_ushort, N: usize) |call| {
        call.set_now(dstDevice, &us.to_ne_bytes(), N)
    }
    fn cuMemsetD32_v2(dstDevice: CUdeviceptr, ui: c_uint, N: usize) |call| {
        call.set_now(dstDevice, &ui.to_ne_bytes(), N)
    }
    fn cuMemsetD8Async(dstDevice: CUdeviceptr, uc: c_uchar, N: usize, hStream: CUstream) |call| {
        call.set(dstDevice, &[uc], (N, 1, 0), hStream)
    }
    fn cuMemsetD16Async(dstDevice: CUdeviceptr, us: c_ushort, N: usize, hStream: CUstream) |call| {
        call.set(dstDevice, &us.to_ne_bytes(), (N, 1, 0), hStream)
    }
    fn cuMemsetD32Async(dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream) |call| {
        call.set(dstDevice, &ui.to_ne_bytes(), (N, 1, 0), hStream)
    }
    fn cuMemsetD2D8Async(dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize, hStream: CUstream) |call| {
        call.set(dstDevice, &[uc], (Width, Height, dstPitch), hStream)
    }
    fn cuMemsetD2D16Async(dstDevice: CUdeviceptr, dstPitch: usize, us: c_ushort, Width: usize, Height: usize, hStream: CUstream) |call| {
        call.set(dstDevice, &us.to_ne_bytes(), (Width, Height, dstPitch), hStream)
    }
    fn cuMemsetD2D32Async(dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize, hStream: CUstream) |call| {
        call.set(dstDevice, &ui.to_ne_bytes(), (Width, Height, dstPitch), hStream)
    }
}
