//! Memory and streams to work on, which live as long as the process.

use hurray_core::{Allocation, AllocationRequest, Dependency, DeviceLayer, MemoryClass, Stream};
use hurray_cuda::{CudaStream, LAYER};

/// A stream of device 0.
pub(crate) fn stream() -> &'static Stream {
    let stream: &'static CudaStream = Box::leak(Box::new(CudaStream::new(0).expect("a stream")));
    stream.stream()
}

/// Memory of device 0, ready.
pub(crate) fn allocate(
    memory_class: MemoryClass,
    len: usize,
    stream: &Stream,
) -> &'static Allocation {
    let request = AllocationRequest {
        device_id: 0,
        len,
        memory_class,
        shareable: false,
    };
    let allocation = LAYER.allocate(request, stream).expect("memory");
    Box::leak(Box::new(allocation))
}

/// Pageable host memory, touched.
pub(crate) fn pageable(len: usize) -> usize {
    let bytes: &'static mut [u8] = vec![1; len].leak();
    bytes.as_mut_ptr().expose_provenance()
}

/// Waits until what is queued on a stream is done.
pub(crate) fn synchronize(stream: &Stream) {
    LAYER
        .wait(&[&Dependency::Stream(stream.clone())])
        .expect("done");
}
