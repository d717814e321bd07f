//! Copies: contiguous and strided, in every direction, synchronous and not.

use std::ffi::{c_uint, c_void};
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdeviceptr, CUmemorytype, CUresult, CUstream,
};

use crate::checker::{Engine, Touch};
use crate::driver::Driver;
use crate::entry::{Call, In, Outcome, entry};
use crate::memory::MappingKind;
use crate::queue::Work;
use crate::stream::StreamId;

/// One side of a copy.
#[derive(Clone, Debug)]
enum Side {
    /// Memory that the driver knows, by its address.
    Known(u64),
    /// Ordinary host memory.
    Pageable(*mut u8),
    /// Bytes of ordinary host memory that were read when the call was made.
    Staged(Arc<[u8]>),
}

/// A copy of `height` rows of `width` bytes.
#[derive(Clone, Debug)]
pub(crate) struct CopyPlan {
    source: Side,
    source_pitch: usize,
    target: Side,
    target_pitch: usize,
    width: usize,
    height: usize,
}

/// How a copy was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Synchronous,
    Asynchronous,
}

/// The bytes of one row.
fn row(start: u64, pitch: usize, width: usize, index: usize) -> Range<u64> {
    let start = start.wrapping_add((pitch * index) as u64);
    start..start.wrapping_add(width as u64)
}

impl CopyPlan {
    /// What the copy touches of the memory that the driver knows.
    fn touches(&self) -> Vec<Touch> {
        let mut touches = Vec::new();
        for (side, pitch, write) in [
            (&self.source, self.source_pitch, false),
            (&self.target, self.target_pitch, true),
        ] {
            let Side::Known(start) = *side else { continue };
            let touch = |range| Touch {
                range,
                write,
                engine: Engine::Copy,
            };
            if pitch == self.width || self.height == 1 {
                touches.push(touch(row(start, 0, self.width * self.height, 0)));
            } else {
                touches.extend(
                    (0..self.height).map(|index| touch(row(start, pitch, self.width, index))),
                );
            }
        }
        touches
    }

    /// Reads the source now, if it is ordinary host memory.
    fn stage(&mut self) {
        let Side::Pageable(start) = self.source else {
            return;
        };
        let mut bytes = vec![0; self.width * self.height];
        for (index, target) in bytes.chunks_exact_mut(self.width).enumerate() {
            let source = start.wrapping_add(self.source_pitch * index);
            // SAFETY: the program gives `height` rows of `width` readable bytes, and `target` is memory of the simulator's own.
            unsafe { source.copy_to_nonoverlapping(target.as_mut_ptr(), self.width) };
        }
        self.source = Side::Staged(bytes.into());
        self.source_pitch = self.width;
    }
}

impl Driver {
    pub(crate) fn run_copy(&mut self, plan: &CopyPlan) {
        // Contiguous rows are one.
        let (width, height) = if plan.source_pitch == plan.width && plan.target_pitch == plan.width
        {
            (plan.width * plan.height, 1)
        } else {
            (plan.width, plan.height)
        };
        if height == 1 && self.run_whole(plan, width) {
            return;
        }
        let mut bytes = vec![0; width];
        for index in 0..height {
            match &plan.source {
                Side::Known(start) => self
                    .memory
                    .read(row(*start, plan.source_pitch, width, index), &mut bytes),
                Side::Staged(staged) => {
                    let start = plan.source_pitch * index;
                    if let Some(staged) = staged.get(start..start + width) {
                        bytes.copy_from_slice(staged);
                    }
                }
                Side::Pageable(start) => {
                    let source = start.wrapping_add(plan.source_pitch * index);
                    // SAFETY: the program keeps the source of a copy alive until the work is done; a program that doesn't is defective on a device too.
                    unsafe { source.copy_to_nonoverlapping(bytes.as_mut_ptr(), width) };
                }
            }
            match &plan.target {
                Side::Known(start) => self
                    .memory
                    .write(row(*start, plan.target_pitch, width, index), &bytes),
                Side::Pageable(start) => {
                    let target = start.wrapping_add(plan.target_pitch * index);
                    // SAFETY: the program keeps the target of a copy alive until the work is done; a program that doesn't is defective on a device too.
                    unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), width) };
                }
                Side::Staged(_) => {}
            }
        }
    }

    /// Copies without a buffer between, where both sides are one living piece.
    fn run_whole(&self, plan: &CopyPlan, len: usize) -> bool {
        let piece = |side: &Side| match side {
            Side::Known(start) => match self
                .memory
                .pieces(*start..start.wrapping_add(len as u64))
                .as_slice()
            {
                [(pointer, _)] if !pointer.is_null() => Some(*pointer),
                _ => None,
            },
            Side::Pageable(pointer) => Some(*pointer),
            Side::Staged(bytes) => Some(bytes.as_ptr().cast_mut()),
        };
        let (Some(source), Some(target)) = (piece(&plan.source), piece(&plan.target)) else {
            return false;
        };
        // SAFETY: each side is `len` bytes of a living backing, of staged bytes, or of memory that the program keeps alive until the work is done.
        unsafe { source.copy_to(target, len) };
        true
    }

    /// What is at an address: memory that the driver knows (or once knew), or ordinary host memory.
    fn side(&self, address: u64) -> Side {
        if self.memory.in_arena(address) || self.memory.find(address).is_some() {
            Side::Known(address)
        } else {
            Side::Pageable(std::ptr::with_exposed_provenance_mut(address as usize))
        }
    }

    /// Whether a side is no host memory. Managed memory is none either: what the reference once said of it, it says no more.
    fn device_side(&self, side: &Side) -> bool {
        let Side::Known(address) = side else {
            return false;
        };
        let mapping = self.memory.find(*address);
        mapping.is_none_or(|mapping| {
            !matches!(mapping.kind, MappingKind::Pinned | MappingKind::Registered)
        })
    }
}

impl Call<'_> {
    /// The side of a copy that the function says is on a device.
    fn on_device(&mut self, address: CUdeviceptr) -> Result<Side, CUresult> {
        match self.side(address) {
            Side::Pageable(_) => {
                let site = self.host_site();
                self.reports.push(
                    crate::report::Kind::UnknownAddress,
                    format_args!("{site} is given {address:#x}, which is no memory of a device"),
                );
                Err(CUresult::CUDA_ERROR_INVALID_VALUE)
            }
            side => Ok(side),
        }
    }

    /// The side of a copy that the function says is on the host.
    fn on_host(&self, pointer: *const c_void) -> Side {
        self.side(pointer.expose_provenance() as u64)
    }

    /// A contiguous copy.
    fn copy(
        &mut self,
        form: Form,
        target: Side,
        source: Side,
        len: usize,
        stream: CUstream,
    ) -> Outcome {
        self.copy_rows(
            form,
            CopyPlan {
                source,
                source_pitch: len,
                target,
                target_pitch: len,
                width: len,
                height: 1,
            },
            stream,
        )
    }

    fn copy_rows(&mut self, form: Form, mut plan: CopyPlan, stream: CUstream) -> Outcome {
        let stream = self.resolve(stream)?;
        if form == Form::Synchronous {
            self.refuse_unsafe_call()?;
        }
        if plan.width == 0 || plan.height == 0 {
            return Ok(());
        }
        let pageable_source = matches!(plan.source, Side::Pageable(_));
        let pageable_target = matches!(plan.target, Side::Pageable(_));
        let pageable = pageable_source || pageable_target;
        if pageable && form == Form::Asynchronous {
            let who = self.who;
            self.log.pageable(who);
        }
        let (from_device, to_device) = (
            self.device_side(&plan.source),
            self.device_side(&plan.target),
        );
        if form == Form::Synchronous && pageable_source {
            // "A stream sync is performed before the copy is initiated."
            self.finish(stream);
        }
        // A graph reads its source anew at each launch; everything else may read it now.
        if self.stream(stream).capture.is_none() {
            plan.stage();
        }
        let operation = self.enqueue(stream, plan.touches(), Work::Copy(plan))?;
        if self.stream(stream).capture.is_some() {
            return Ok(());
        }
        self.wait_as_documented(
            form,
            stream,
            operation,
            (from_device, to_device),
            pageable,
            pageable_target,
        );
        self.stream_error(stream)
    }

    /// Waits where "API synchronization behavior" says that the function does, and learns where it says that the copy is complete.
    fn wait_as_documented(
        &mut self,
        form: Form,
        stream: StreamId,
        operation: u64,
        (from_device, to_device): (bool, bool),
        pageable: bool,
        pageable_target: bool,
    ) {
        match (form, from_device, to_device) {
            // Between devices, no host-side synchronization.
            (Form::Synchronous, true, true) => {}
            // From pageable host memory: returned once it is staged.
            (Form::Synchronous, false, true) if pageable => {}
            (Form::Synchronous, _, _) | (Form::Asynchronous, false, false) => self.finish(stream),
            // "Might be synchronous": the program must not rely on it, and learns nothing.
            (Form::Asynchronous, _, _) if pageable_target && self.rng.bool() => {
                self.advance(stream, operation)
            }
            (Form::Asynchronous, _, _) => {}
        }
    }

    /// The plan of a two-dimensional copy.
    fn plan_2d(&mut self, copy: &CUDA_MEMCPY2D) -> Result<CopyPlan, CUresult> {
        let source = self.side_2d(copy.srcMemoryType, copy.srcHost, copy.srcDevice)?;
        let target = self.side_2d(copy.dstMemoryType, copy.dstHost, copy.dstDevice)?;
        let limit = c_uint::MAX as usize / 2;
        let (width, height) = (copy.WidthInBytes, copy.Height);
        for (x, pitch) in [
            (copy.srcXInBytes, copy.srcPitch),
            (copy.dstXInBytes, copy.dstPitch),
        ] {
            let reach = width
                .checked_add(x)
                .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            if (pitch != 0 || height > 1) && pitch < reach || pitch > limit {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(CopyPlan {
            source: shift(source, copy.srcXInBytes + copy.srcY * copy.srcPitch),
            source_pitch: copy.srcPitch,
            target: shift(target, copy.dstXInBytes + copy.dstY * copy.dstPitch),
            target_pitch: copy.dstPitch,
            width,
            height,
        })
    }

    fn side_2d(
        &mut self,
        kind: CUmemorytype,
        host: *const c_void,
        device: CUdeviceptr,
    ) -> Result<Side, CUresult> {
        match kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => Ok(self.on_host(host)),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => self.on_device(device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => Ok(self.side(device)),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => Err(self.not_modelled("an array")),
        }
    }

    /// A copy between contexts, which works with and without peer access.
    fn copy_peer(
        &mut self,
        form: Form,
        (target, to): (CUdeviceptr, CUcontext),
        (source, from): (CUdeviceptr, CUcontext),
        len: usize,
        stream: CUstream,
    ) -> Outcome {
        for context in [to, from] {
            if self.contexts.get(context).is_err() {
                return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
            }
        }
        let (target, source) = (self.on_device(target)?, self.on_device(source)?);
        self.copy(form, target, source, len, stream)
    }
}

fn shift(side: Side, bytes: usize) -> Side {
    match side {
        Side::Known(address) => Side::Known(address.wrapping_add(bytes as u64)),
        Side::Pageable(pointer) => Side::Pageable(pointer.wrapping_add(bytes)),
        Side::Staged(staged) => Side::Staged(staged),
    }
}

/// The stream of a synchronous copy: the legacy default.
const LEGACY: CUstream = std::ptr::null_mut();

entry! {
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) |call| {
        let (target, source) = (call.side(dst), call.side(src));
        call.copy(Form::Synchronous, target, source, ByteCount, LEGACY)
    }
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) |call| {
        let (target, source) = (call.side(dst), call.side(src));
        call.copy(Form::Asynchronous, target, source, ByteCount, hStream)
    }
    fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize) |call| {
        let (target, source) = (call.on_device(dstDevice)?, call.on_host(srcHost));
        call.copy(Form::Synchronous, target, source, ByteCount, LEGACY)
    }
    fn cuMemcpyHtoDAsync_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream) |call| {
        let (target, source) = (call.on_device(dstDevice)?, call.on_host(srcHost));
        call.copy(Form::Asynchronous, target, source, ByteCount, hStream)
    }
    fn cuMemcpyDtoH_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize) |call| {
        let (target, source) = (call.on_host(dstHost), call.on_device(srcDevice)?);
        call.copy(Form::Synchronous, target, source, ByteCount, LEGACY)
    }
    fn cuMemcpyDtoHAsync_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) |call| {
        let (target, source) = (call.on_host(dstHost), call.on_device(srcDevice)?);
        call.copy(Form::Asynchronous, target, source, ByteCount, hStream)
    }
    fn cuMemcpyDtoD_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) |call| {
        let (target, source) = (call.on_device(dstDevice)?, call.on_device(srcDevice)?);
        call.copy(Form::Synchronous, target, source, ByteCount, LEGACY)
    }
    fn cuMemcpyDtoDAsync_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) |call| {
        let (target, source) = (call.on_device(dstDevice)?, call.on_device(srcDevice)?);
        call.copy(Form::Asynchronous, target, source, ByteCount, hStream)
    }
    fn cuMemcpyPeer(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) |call| {
        call.copy_peer(Form::Synchronous, (dstDevice, dstContext), (srcDevice, srcContext), ByteCount, LEGACY)
    }
    fn cuMemcpyPeerAsync(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream) |call| {
        call.copy_peer(Form::Asynchronous, (dstDevice, dstContext), (srcDevice, srcContext), ByteCount, hStream)
    }
    fn cuMemcpy2D_v2(pCopy: In<CUDA_MEMCPY2D>) |call| {
        let plan = call.plan_2d(&pCopy.get()?)?;
        call.copy_rows(Form::Synchronous, plan, LEGACY)
    }
    fn cuMemcpy2DAsync_v2(pCopy: In<CUDA_MEMCPY2D>, hStream: CUstream) |call| {
        let plan = call.plan_2d(&pCopy.get()?)?;
        call.copy_rows(Form::Asynchronous, plan, hStream)
    }
}
