//! What scenarios are made of.

use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hurray_core::{
    Allocation, AllocationRequest, CopyRequest, Dependency, DeviceError, DeviceLayer, DeviceOwner,
    MemoryClass, Stream,
};
use hurray_cuda::{CudaStream, LAYER};
use hurray_cuda_programs::cuda::{self, CUstream};

use crate::harness::Done;

/// Bytes of a small buffer.
pub(crate) const SMALL: usize = 4096;

/// Makes the primary context of a device current, as a program that uses the driver itself would.
pub(crate) fn make_current(device: i32) -> Done {
    call(cuda::init())?;
    let context = call(cuda::retain_primary(device))?;
    call(cuda::set_current(context))
}

/// The driver's answer as an error.
pub(crate) fn call<T>(answer: cuda::Result<T>) -> Result<T, Box<dyn std::error::Error>> {
    answer.map_err(|code| format!("{code:?}").into())
}

/// The driver's handle.
pub(crate) fn handle(stream: &Stream) -> CUstream {
    ptr::without_provenance_mut(stream.number().get())
}

/// A stream of ours on device 0.
pub(crate) fn stream() -> Result<CudaStream, DeviceError> {
    CudaStream::new(0)
}

/// A default stream of device 0.
pub(crate) fn default_stream(number: NonZeroUsize) -> Result<Stream, DeviceError> {
    // SAFETY: 1 or 2.
    unsafe { LAYER.stream(0, number, None) }
}

/// A stream of the program's own, which it never destroys.
pub(crate) fn foreign_stream(device: u32) -> Result<Stream, Box<dyn std::error::Error>> {
    let handle = call(cuda::stream(cuda::NON_BLOCKING))?;
    let number = NonZeroUsize::new(handle.addr()).ok_or("a stream without handle")?;
    // SAFETY: a stream that lives until the process ends.
    Ok(unsafe { LAYER.stream(device, number, None) }?)
}

/// A request for memory of device 0's pool.
pub(crate) fn standard(len: usize) -> AllocationRequest {
    AllocationRequest {
        device_id: 0,
        len,
        memory_class: MemoryClass::Standard,
        shareable: false,
    }
}

/// A buffer as the transport would hold it.
pub(crate) struct Buffer {
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) dependency: Option<Dependency>,
    pub(crate) owner: Box<dyn DeviceOwner>,
}

impl Buffer {
    pub(crate) fn enter(&self, stream: &Stream) -> Result<(), DeviceError> {
        LAYER.enter(&[&*self.owner], stream)
    }

    pub(crate) fn leave(&self, stream: &Stream) {
        give_back(&[self], stream);
    }

    pub(crate) fn order_after_readers(&self, stream: &Stream) -> Result<(), DeviceError> {
        LAYER.order_after_readers(&[&*self.owner], stream)
    }
}

impl From<Allocation> for Buffer {
    fn from(allocation: Allocation) -> Self {
        Self {
            address: allocation.address,
            len: allocation.len,
            dependency: allocation.dependency,
            owner: allocation.owner,
        }
    }
}

/// A buffer from the pool, filled on the stream it is allocated on.
pub(crate) fn filled(
    len: usize,
    byte: u8,
    stream: &Stream,
) -> Result<Buffer, Box<dyn std::error::Error>> {
    let buffer = Buffer::from(LAYER.allocate(standard(len), stream)?);
    call(cuda::fill(buffer.address as u64, byte, len, handle(stream)))?;
    Ok(buffer)
}

/// A buffer of the program's own that was never written to by the time it is returned, and what says that its owner is gone. The owner frees
/// the memory, at once.
pub(crate) fn foreign(len: usize) -> Result<(Buffer, Arc<AtomicBool>), Box<dyn std::error::Error>> {
    let address = call(cuda::alloc(len))?;
    let gone = Arc::new(AtomicBool::new(false));
    let owner = Foreign {
        address,
        gone: Arc::clone(&gone),
    };
    let buffer = Buffer {
        address: address as usize,
        len,
        dependency: None,
        owner: LAYER.own(Box::new(owner))?,
    };
    Ok((buffer, gone))
}

struct Foreign {
    address: u64,
    gone: Arc<AtomicBool>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // Where an error is planted the memory stays, and is a leak.
        let _: Done = call(cuda::retain_primary(0))
            .and_then(|context| call(cuda::push(context)))
            .and_then(|()| call(cuda::free(self.address)))
            .and_then(|()| call(cuda::pop()).map(drop));
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// A buffer of no bytes, and what says that its owner is gone.
pub(crate) fn token() -> Result<(Buffer, Arc<AtomicBool>), DeviceError> {
    struct Token(Arc<AtomicBool>);
    impl Drop for Token {
        fn drop(&mut self) {
            assert!(!self.0.swap(true, Ordering::SeqCst), "dropped twice");
        }
    }
    let gone = Arc::new(AtomicBool::new(false));
    let buffer = Buffer {
        address: 0,
        len: 0,
        dependency: None,
        owner: LAYER.own(Box::new(Token(Arc::clone(&gone))))?,
    };
    Ok((buffer, gone))
}

/// Whether it is.
pub(crate) fn is_gone(gone: &AtomicBool) -> bool {
    gone.load(Ordering::SeqCst)
}

/// Brings buffers onto a stream: one order for all, then each owner is told. What they depend on from there.
pub(crate) fn hand_out(
    buffers: &[&Buffer],
    stream: &Stream,
) -> Result<Option<Dependency>, DeviceError> {
    let dependencies: Vec<&Dependency> = buffers
        .iter()
        .filter_map(|buffer| buffer.dependency.as_ref())
        .collect();
    let then = LAYER.order(&dependencies, stream)?;
    LAYER.enter(&owners(buffers), stream)?;
    Ok(then)
}

/// Gives buffers back that were handed out together.
pub(crate) fn give_back(buffers: &[&Buffer], stream: &Stream) {
    LAYER.leave(&owners(buffers), stream, thread::current().id());
}

fn owners<'b>(buffers: &[&'b Buffer]) -> Vec<&'b dyn DeviceOwner> {
    buffers.iter().map(|buffer| &*buffer.owner).collect()
}

/// Copies `from`, which was handed out on `stream`, to a new buffer there.
pub(crate) fn consume(
    from: &Buffer,
    stream: &Stream,
) -> Result<Buffer, Box<dyn std::error::Error>> {
    let target = Buffer::from(LAYER.allocate(standard(from.len), stream)?);
    call(cuda::copy(
        target.address as u64,
        from.address as u64,
        from.len,
        handle(stream),
    ))?;
    Ok(target)
}

/// The bytes of a buffer, by way of the layer.
pub(crate) fn read(buffer: &Buffer) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let stream = stream()?;
    let mut bytes = vec![0; buffer.len];
    hand_out(&[buffer], stream.stream())?;
    let copy = CopyRequest::contiguous(
        (buffer.address, Some(0)),
        (bytes.as_mut_ptr().expose_provenance(), None),
        buffer.len,
    );
    // SAFETY: both ends are as they say, and the source was handed out on the stream.
    unsafe { LAYER.copy(&[copy], stream.stream()) }?;
    buffer.leave(stream.stream());
    Ok(bytes)
}

/// Host synchronisations by the program's threads so far.
pub(crate) fn host_waits() -> u64 {
    // SAFETY: the stand-in driver's function of that name has this signature.
    let count: extern "C" fn(u32) -> u64 =
        unsafe { std::mem::transmute(control(c"cuda_sim_host_waits")) };
    count(0)
}

/// Calls of a function by the program's threads so far.
pub(crate) fn calls(function: &std::ffi::CStr) -> u64 {
    // SAFETY: as above.
    let count: extern "C" fn(*const std::ffi::c_char, u32) -> u64 =
        unsafe { std::mem::transmute(control(c"cuda_sim_calls")) };
    count(function.as_ptr(), 0)
}

/// Live handles of a kind.
pub(crate) fn live(kind: &std::ffi::CStr) -> usize {
    // SAFETY: as above.
    let count: extern "C" fn(*const std::ffi::c_char) -> usize =
        unsafe { std::mem::transmute(control(c"cuda_sim_live")) };
    count(kind.as_ptr())
}

/// The most bytes of device 0 in use.
pub(crate) fn peak_bytes() -> usize {
    // SAFETY: as above.
    let bytes: extern "C" fn(u32, u32) -> usize =
        unsafe { std::mem::transmute(control(c"cuda_sim_device_bytes")) };
    bytes(0, 1)
}

fn control(name: &std::ffi::CStr) -> *mut std::ffi::c_void {
    // SAFETY: a driver, loaded already.
    let driver = unsafe { libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the library is loaded, and the name is a C string.
    let symbol = unsafe { libc::dlsym(driver, name.as_ptr()) };
    assert!(!symbol.is_null(), "{name:?} is the stand-in driver's");
    symbol
}

/// Lets go of everything that is held for later, so that what is left is a leak.
pub(crate) fn finish() -> Done {
    hurray_cuda::empty_cache();
    Ok(())
}
