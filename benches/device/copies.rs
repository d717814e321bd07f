//! Copies between host and device and within a device.

use std::ptr;

use hurray_core::{CopyEnd, CopyRequest, DeviceLayer, MemoryClass, Stream};
use hurray_cuda::LAYER;
use hurray_cuda_programs::cuda;

use crate::Case;
use crate::count::Calls;
use crate::memory::{allocate, pageable, stream, synchronize};

/// Bytes of a row of the strided cases; the pitch is twice that.
const ROW: usize = 4096;
/// Buffers of the cases of many small ones, and their bytes.
const SMALL: (usize, usize) = (1000, 1000);

/// An address, and the device that has it.
type End = (usize, Option<u32>);

pub(crate) fn cases(len: usize) -> Vec<Case> {
    let stream = stream();
    let device = (
        allocate(MemoryClass::Standard, len, stream).address,
        Some(0),
    );
    let other = (
        allocate(MemoryClass::Standard, len, stream).address,
        Some(0),
    );
    let pinned = (allocate(MemoryClass::HostPinned, len, stream).address, None);
    let host = (pageable(len), None);
    let whole = |from, to| vec![CopyRequest::contiguous(from, to, len)];
    // Nothing is recorded and waited for on the device; pageable memory has an event per chunk and one more.
    let direct = Calls::default();
    let chunks = (len as u64).div_ceil(4 << 20) + 1;
    let staged = Calls {
        records: chunks,
        ..direct
    };
    let one_chunk = Calls {
        records: 1,
        ..direct
    };
    vec![
        plain("plain copy, pinned to device", pinned, device, len, stream),
        case("pinned to device", whole(pinned, device), stream, direct),
        case("pageable to device", whole(host, device), stream, staged),
        plain("plain copy, device to pinned", device, pinned, len, stream),
        case("device to pinned", whole(device, pinned), stream, direct),
        case("device to pageable", whole(device, host), stream, staged),
        plain("plain copy, within the device", device, other, len, stream),
        case("within the device", whole(device, other), stream, direct),
        case(
            "strided, pinned to device",
            strided(pinned, device, len),
            stream,
            direct,
        ),
        case(
            "strided, pageable to device",
            strided(host, device, len),
            stream,
            staged,
        ),
        case(
            "strided, device to pageable",
            strided(device, host, len),
            stream,
            staged,
        ),
        case(
            "strided, within the device",
            strided(device, other, len),
            stream,
            direct,
        ),
        case(
            "many small, pageable to device",
            many(host, device),
            stream,
            one_chunk,
        ),
        case(
            "many small, device to pageable",
            many(device, host),
            stream,
            one_chunk,
        ),
        case(
            "many small, within the device",
            many(device, other),
            stream,
            direct,
        ),
    ]
}

/// Every other row, packed into the beginning of the target.
fn strided(from: End, to: End, len: usize) -> Vec<CopyRequest> {
    let end = |(address, device_id): End, pitch| CopyEnd {
        address,
        pitch,
        device_id,
    };
    vec![CopyRequest {
        from: end(from, 2 * ROW),
        to: end(to, ROW),
        row_len: ROW,
        rows: len / (2 * ROW),
    }]
}

fn many(from: End, to: End) -> Vec<CopyRequest> {
    let (count, len) = SMALL;
    let at = |(address, device_id): End, index: usize| (address + index * 2 * len, device_id);
    (0..count)
        .map(|index| CopyRequest::contiguous(at(from, index), at(to, index), len))
        .collect()
}

fn case(
    name: &'static str,
    copies: Vec<CopyRequest>,
    stream: &'static Stream,
    limit: Calls,
) -> Case {
    let lens = copies
        .iter()
        .map(|copy| copy.len().expect("in range") as u64);
    Case {
        name,
        bytes: Some(lens.sum()),
        run: Box::new(move || {
            // SAFETY: all ends live as long as the process, and are used on this stream only.
            unsafe { LAYER.copy(&copies, stream) }.expect("queued");
        }),
        finish: Box::new(|| synchronize(stream)),
        limit: Some(limit),
    }
}

/// What the others are measured by: the driver's own copy.
fn plain(name: &'static str, from: End, to: End, len: usize, stream: &'static Stream) -> Case {
    let handle: cuda::CUstream = ptr::without_provenance_mut(stream.number().get());
    Case {
        name,
        bytes: Some(len as u64),
        run: Box::new(move || {
            let copied = match (from.1, to.1) {
                (None, _) => {
                    let source = ptr::with_exposed_provenance(from.0);
                    cuda::upload(to.0 as u64, source, len, handle)
                }
                (_, None) => {
                    let target = ptr::with_exposed_provenance_mut(to.0);
                    cuda::download(target, from.0 as u64, len, handle)
                }
                _ => cuda::copy(to.0 as u64, from.0 as u64, len, handle),
            };
            copied.expect("queued");
        }),
        finish: Box::new(|| synchronize(stream)),
        limit: None,
    }
}
