//! Tensors on a device, and what is done with their bytes.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hurray_core::{
    CompositeHead, CompositionRule, DeviceTag, ElementType, Layout, MemoryClass, Stream,
    TensorDescriptor,
};
use hurray_cuda_programs::cuda;
use hurray_ffi::{Buffer, BufferFlags, Composite, Item, Owner, Place, Readiness, Tensor};

use crate::device::{call, handle};
use crate::harness::Done;
use crate::tensors;
pub(crate) use crate::tensors::SIZES;

pub(crate) type Made<T> = Result<T, Box<dyn Error>>;

/// Memory of device 0.
pub(crate) const CUDA: Place = Place {
    device: DeviceTag::Cuda,
    device_id: 0,
    memory_class: MemoryClass::Standard,
};

/// A tensor of three buffers, quantized per block.
pub(crate) fn quantized(buffers: [Buffer; 3]) -> Made<Tensor> {
    let descriptor = tensors::quantized(buffers.each_ref().map(Buffer::handle));
    Ok(Tensor::new(descriptor, buffers.as_slice())?)
}

/// A tensor of one buffer.
pub(crate) fn plain(buffer: Buffer) -> Made<Tensor> {
    let shape = [buffer.len() as u64];
    let descriptor = tensors::plain(ElementType::Uint8, &shape, buffer.handle());
    Ok(Tensor::new(descriptor, [buffer].as_slice())?)
}

/// A composite of these members.
pub(crate) fn group(members: Vec<Item>) -> Made<Composite> {
    let layout = Layout::Composite(CompositeHead {
        rule: CompositionRule::Group,
        member_count: members.len() as u32,
    });
    let shape = [].as_slice();
    let head = TensorDescriptor::new(ElementType::Int4, shape, layout, []);
    Ok(Composite::new(head, members)?)
}

/// Queues writes of `byte` over the bytes.
pub(crate) fn write(buffer: &Buffer, byte: u8, stream: &Stream) -> Done {
    let address = buffer.as_ptr().expose_provenance() as u64;
    call(cuda::fill(address, byte, buffer.len(), handle(stream)))
}

/// Queues writes over all bytes of a tensor.
pub(crate) fn write_all(tensor: &Tensor, byte: u8, stream: &Stream) -> Done {
    let mut buffers = tensor.buffers().iter();
    buffers.try_for_each(|buffer| write(buffer, byte, stream))
}

/// Queues a read of the bytes into memory that is freed on the stream.
pub(crate) fn read(buffer: &Buffer, stream: &Stream) -> Done {
    let target = Buffer::allocate(CUDA, buffer.len(), false, stream)?;
    let [from, to] = [buffer, &target].map(|at| at.as_ptr().expose_provenance() as u64);
    call(cuda::copy(to, from, buffer.len(), handle(stream)))
}

/// Queues reads of all bytes of a tensor.
pub(crate) fn read_all(tensor: &Tensor, stream: &Stream) -> Done {
    let mut buffers = tensor.buffers().iter();
    buffers.try_for_each(|buffer| read(buffer, stream))
}

/// Memory of the device's pool, written on `stream`.
pub(crate) fn pooled(len: usize, stream: &Stream) -> Made<Buffer> {
    let buffer = Buffer::allocate(CUDA, len, false, stream)?;
    write(&buffer, 1, stream)?;
    Ok(buffer)
}

/// A tensor of such memory.
pub(crate) fn pooled_tensor(stream: &Stream) -> Made<Tensor> {
    let [a, b, c] = SIZES.map(|len| pooled(len, stream));
    quantized([a?, b?, c?])
}

/// Memory of the program's own, in mode `readiness`, and what says that its owner is gone. The owner frees it, at once.
pub(crate) fn foreign(len: usize, readiness: Readiness) -> Made<(Buffer, Arc<AtomicBool>)> {
    let address = call(cuda::alloc(len))?;
    let gone = Arc::new(AtomicBool::new(false));
    let owner = Owner::Rust(Box::new(Freed(address, Arc::clone(&gone))));
    let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
    let flags = BufferFlags::empty();
    let buffer = unsafe { Buffer::from_owner(pointer, len, CUDA, readiness, flags, owner) }?;
    Ok((buffer, gone))
}

struct Freed(u64, Arc<AtomicBool>);

impl Drop for Freed {
    fn drop(&mut self) {
        // Where an error is planted the memory stays, and is a leak.
        let _: Done = call(cuda::retain_primary(0))
            .and_then(|context| call(cuda::push(context)))
            .and_then(|()| call(cuda::free(self.0)))
            .and_then(|()| call(cuda::pop()).map(drop));
        assert!(!self.1.swap(true, Ordering::SeqCst), "released twice");
    }
}

/// Driver calls that order, by the program's threads: records and waits.
pub(crate) fn orders() -> [u64; 2] {
    [c"cuEventRecord", c"cuStreamWaitEvent"].map(crate::device::calls)
}

/// Those of `work`.
pub(crate) fn orders_of<T>(work: impl FnOnce() -> T) -> ([u64; 2], T) {
    let before = orders();
    let done = work();
    let after = orders();
    ([after[0] - before[0], after[1] - before[1]], done)
}
