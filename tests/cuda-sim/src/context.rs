//! Contexts: primary ones, created ones, and the stack of each thread.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint, c_ulonglong};

use cudarc::driver::sys::{CUcontext, CUctxCreateParams, CUdevice, CUresult};

use crate::driver::{self, Driver};
use crate::entry::{Call, Out, Outcome, entry};
use crate::stream::{StreamId, StreamKind};

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) id: u64,
    flags: c_uint,
    /// The legacy default stream.
    pub(crate) legacy: StreamId,
    /// The per-thread default streams, by thread.
    pub(crate) per_thread: BTreeMap<u64, StreamId>,
    /// The error that every call on it returns, once there was one.
    pub(crate) error: Option<CUresult>,
    /// Devices whose memory its kernels can reach.
    pub(crate) peers: BTreeSet<usize>,
}

impl Driver {
    fn create_context(&mut self, device: usize, flags: c_uint) -> CUcontext {
        let id = self.fresh_id();
        let context = Context {
            device,
            id,
            flags,
            legacy: 0,
            per_thread: BTreeMap::new(),
            error: None,
            peers: BTreeSet::new(),
        };
        let handle = self.contexts.insert(context);
        let legacy = self.create_stream(handle, device, StreamKind::Legacy);
        if let Ok(context) = self.contexts.get_mut(handle) {
            context.legacy = legacy;
        }
        handle
    }

    /// Ends a context with everything that lives in it.
    fn destroy_context(&mut self, handle: CUcontext) {
        let streams: Vec<_> = self
            .stream_handles
            .iter()
            .filter(|&(_, &id)| self.stream(id).context == handle)
            .map(|(stream, _)| stream)
            .collect();
        for stream in streams {
            let _ = self.stream_handles.remove(stream);
        }
        let events: Vec<_> = self
            .events
            .iter()
            .filter(|(_, event)| event.context == handle)
            .map(|(event, _)| event)
            .collect();
        for event in events {
            let _ = self.events.remove(event);
        }
        let modules: Vec<_> = self
            .modules
            .iter()
            .filter(|(_, module)| module.context == handle)
            .map(|(module, _)| module)
            .collect();
        for module in modules {
            self.unload_module(module);
        }
        self.release_context_memory(handle);
        let _ = self.contexts.remove(handle);
    }

    /// The current context of the calling thread.
    pub(crate) fn current(&self) -> Result<(CUcontext, &Context), CUresult> {
        let handle = driver::current_context();
        if handle.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        self.contexts
            .get(handle)
            .map(|context| (handle, context))
            .map_err(|_| CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    pub(crate) fn current_handle(&self) -> Result<CUcontext, CUresult> {
        self.current().map(|(handle, _)| handle)
    }

    /// The device of the current context.
    pub(crate) fn current_device(&self) -> Result<usize, CUresult> {
        self.current().map(|(_, context)| context.device)
    }
}

impl Call<'_> {
    /// A context given by its handle, null being the current one.
    fn context(&mut self, handle: CUcontext) -> Result<CUcontext, CUresult> {
        if handle.is_null() {
            return self.current_handle();
        }
        match self.contexts.get(handle) {
            Ok(_) => Ok(handle),
            Err(misuse) => {
                self.misused("context", handle, misuse);
                Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)
            }
        }
    }

    /// Waits for everything queued in a context.
    fn synchronize(&mut self, context: CUcontext) -> Outcome {
        let context = self.context(context)?;
        self.refuse_wait_on_captures(context)?;
        let streams: Vec<StreamId> = (0..self.streams.len())
            .filter(|&stream| self.stream(stream).context == context)
            .collect();
        for stream in streams {
            self.finish(stream);
        }
        self.trim_pools();
        self.contexts
            .get(context)
            .ok()
            .and_then(|context| context.error)
            .map_or(Ok(()), Err)
    }
}

entry! {
    fn cuDevicePrimaryCtxRetain(pctx: Out<CUcontext>, dev: CUdevice) |call| {
        let index = call.device(dev)?;
        let primary = call.device_at(index)?.primary;
        let handle = if primary.is_null() { call.create_context(index, 0) } else { primary };
        let device = call.device_at_mut(index)?;
        device.primary = handle;
        device.primary_count += 1;
        pctx.set(handle)
    }
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) |call| {
        let index = call.device(dev)?;
        let device = call.device_at_mut(index)?;
        if device.primary_count == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        device.primary_count -= 1;
        if device.primary_count == 0 {
            let handle = std::mem::replace(&mut device.primary, std::ptr::null_mut());
            call.destroy_context(handle);
        }
        Ok(())
    }
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) |call| {
        let index = call.device(dev)?;
        let device = call.device_at_mut(index)?;
        device.primary_count = 0;
        let handle = std::mem::replace(&mut device.primary, std::ptr::null_mut());
        if !handle.is_null() {
            call.destroy_context(handle);
        }
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: Out<c_uint>, active: Out<c_int>) |call| {
        let index = call.device(dev)?;
        let primary = call.device_at(index)?.primary;
        flags.set(call.contexts.get(primary).map_or(0, |context| context.flags))?;
        active.set(c_int::from(!primary.is_null()))
    }
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) |call| {
        let index = call.device(dev)?;
        let primary = call.device_at(index)?.primary;
        if let Ok(context) = call.contexts.get_mut(primary) {
            context.flags = flags;
        }
        Ok(())
    }
    fn cuCtxCreate_v4(pctx: Out<CUcontext>, ctxCreateParams: Out<CUctxCreateParams>, flags: c_uint, dev: CUdevice) |call| {
        if !ctxCreateParams.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let index = call.device(dev)?;
        let handle = call.create_context(index, flags);
        driver::with_contexts(|contexts| contexts.push(handle));
        pctx.set(handle)
    }
    fn cuCtxDestroy_v2(ctx: CUcontext) |call| {
        let ctx = call.context(ctx)?;
        if call.devices.iter().any(|device| device.primary == ctx) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        driver::with_contexts(|contexts| contexts.pop_if(|top| *top == ctx));
        call.destroy_context(ctx);
        Ok(())
    }
    fn cuCtxGetCurrent(pctx: Out<CUcontext>) |_call| {
        pctx.set(driver::current_context())
    }
    fn cuCtxSetCurrent(ctx: CUcontext) |call| {
        if ctx.is_null() {
            driver::with_contexts(Vec::pop);
            return Ok(());
        }
        let ctx = call.context(ctx)?;
        driver::with_contexts(|contexts| {
            contexts.pop();
            contexts.push(ctx);
        });
        Ok(())
    }
    fn cuCtxPushCurrent_v2(ctx: CUcontext) |call| {
        if ctx.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        let ctx = call.context(ctx)?;
        driver::with_contexts(|contexts| contexts.push(ctx));
        Ok(())
    }
    fn cuCtxPopCurrent_v2(pctx: Out<CUcontext>) |_call| {
        match driver::with_contexts(Vec::pop) {
            Some(context) => {
                pctx.offer(context);
                Ok(())
            }
            None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
    }
    fn cuCtxGetDevice(device: Out<CUdevice>) |call| {
        let index = call.current_device()?;
        device.set(index as CUdevice)
    }
    fn cuCtxGetFlags(flags: Out<c_uint>) |call| {
        flags.set(call.current()?.1.flags)
    }
    fn cuCtxGetId(ctx: CUcontext, ctxId: Out<c_ulonglong>) |call| {
        let handle = call.context(ctx)?;
        ctxId.set(call.contexts.get(handle)?.id)
    }
    fn cuCtxGetApiVersion(ctx: CUcontext, version: Out<c_uint>) |call| {
        call.context(ctx)?;
        version.set(3020)
    }
    fn cuCtxGetStreamPriorityRange(leastPriority: Out<c_int>, greatestPriority: Out<c_int>) |call| {
        call.current()?;
        leastPriority.offer(0);
        greatestPriority.offer(-5);
        Ok(())
    }
    fn cuCtxSynchronize() |call| {
        call.synchronize(std::ptr::null_mut())
    }
    fn cuCtxSynchronize_v2(ctx: CUcontext) |call| {
        call.synchronize(ctx)
    }
    fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: c_uint) |call| {
        if Flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let peer = call.context(peerContext)?;
        let peer = call.contexts.get(peer)?.device;
        let (handle, context) = call.current()?;
        if context.device == peer {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        if !call.config.peer {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        if call.contexts.get_mut(handle)?.peers.insert(peer) { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
    }
    fn cuCtxDisablePeerAccess(peerContext: CUcontext) |call| {
        let peer = call.context(peerContext)?;
        let peer = call.contexts.get(peer)?.device;
        let handle = call.current_handle()?;
        if call.contexts.get_mut(handle)?.peers.remove(&peer) { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }
    }
}
