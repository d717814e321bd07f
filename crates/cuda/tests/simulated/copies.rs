//! Copies: every pair of ends, contiguous and strided, and the ring for pageable memory.

use hurray_core::{
    AllocationRequest, CopyEnd, CopyRequest, Dependency, DeviceError, DeviceLayer, MemoryClass,
};
use hurray_cuda::{CudaStream, LAYER};
use libtest_mimic::Trial;

use crate::harness::{Done, Scenario, assert_clean, child, clean, clean_on, sweep};
use crate::scene::{Buffer, SMALL, calls, finish, live, make_current, standard, stream};

pub(crate) const SCENARIOS: &[Scenario] = &[
    (
        "pageable_bytes_go_there_and_back",
        pageable_bytes_go_there_and_back,
    ),
    (
        "many_small_buffers_share_a_chunk",
        many_small_buffers_share_a_chunk,
    ),
    (
        "rows_are_copied_with_any_pitch",
        rows_are_copied_with_any_pitch,
    ),
    (
        "pinned_and_managed_bytes_are_copied_directly",
        pinned_and_managed_bytes_are_copied_directly,
    ),
    ("peers_copy_rows_and_bytes", peers_copy_rows_and_bytes),
    ("the_ring_is_allocated_once", the_ring_is_allocated_once),
    (
        "copies_that_cannot_be_are_refused",
        copies_that_cannot_be_are_refused,
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("pageable_bytes_go_there_and_back"),
        // The last chunks that went there: those that come back follow them on the stream.
        sweep(
            "pageable_bytes_go_there_and_back",
            &[
                ("cuEventRecord", 3),
                ("cuEventRecord", 4),
                ("cuEventRecord", 5),
                ("cuEventRecord", 6),
            ],
        ),
        Trial::test("two_chunks_or_more_are_in_flight", chunks_in_flight),
        clean("many_small_buffers_share_a_chunk"),
        clean("rows_are_copied_with_any_pitch"),
        clean("pinned_and_managed_bytes_are_copied_directly"),
        clean_on("peers_copy_rows_and_bytes", |run| run.devices(2)),
        clean_on("peers_copy_rows_and_bytes", |run| {
            run.devices(2).peer(false)
        }),
        clean("the_ring_is_allocated_once"),
        clean("copies_that_cannot_be_are_refused"),
    ]
}

/// Larger than the ring, and not a multiple of a chunk.
const LARGE: usize = (22 << 20) + 12_345;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

fn pageable(bytes: &mut [u8]) -> (usize, Option<u32>) {
    (bytes.as_mut_ptr().expose_provenance(), None)
}

/// Runs copies on a stream; both ends are this test's.
fn copy(copies: &[CopyRequest], stream: &CudaStream) -> Result<(), DeviceError> {
    // SAFETY: the scenarios' ends are as they say and live until the stream is waited for.
    unsafe { LAYER.copy(copies, stream.stream()) }
}

fn wait(stream: &CudaStream) -> Result<(), DeviceError> {
    LAYER.wait(&[&Dependency::Stream(stream.stream().clone())])
}

/// To the device, within it, and back.
fn pageable_bytes_go_there_and_back() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let mut source = pattern(LARGE);
    let first = Buffer::from(LAYER.allocate(standard(LARGE), stream.stream())?);
    let second = Buffer::from(LAYER.allocate(standard(LARGE), stream.stream())?);
    let to_device = CopyRequest::contiguous(pageable(&mut source), (first.address, Some(0)), LARGE);
    copy(&[to_device], &stream)?;
    // Read before the call returned.
    source.fill(0);
    let within =
        CopyRequest::contiguous((first.address, Some(0)), (second.address, Some(0)), LARGE);
    copy(&[within], &stream)?;
    let mut target = vec![0; LARGE];
    let back = CopyRequest::contiguous((second.address, Some(0)), pageable(&mut target), LARGE);
    copy(&[back], &stream)?;
    // Written before the call returned.
    assert!(target == pattern(LARGE));
    drop((first, second, stream));
    finish()
}

/// Before the host first waits for a chunk, two are under way at least.
fn chunks_in_flight() -> Result<(), libtest_mimic::Failed> {
    let outcome = child("pageable_bytes_go_there_and_back").logged().run();
    assert_clean(&outcome);
    let program = outcome.log.iter().filter(|call| call.who == "program");
    let mut in_flight = 0;
    let mut most = 0;
    for call in program {
        match call.function.as_str() {
            "cuEventRecord" => in_flight += 1,
            "cuEventSynchronize" => in_flight -= 1,
            _ => {}
        }
        most = most.max(in_flight);
    }
    assert!(most >= 2, "{most}");
    Ok(())
}

fn many_small_buffers_share_a_chunk() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let mut sources: Vec<Vec<u8>> = (1..=100).map(|len| pattern(len * 7)).collect();
    let targets = sources
        .iter()
        .map(|source| {
            LAYER
                .allocate(standard(source.len()), stream.stream())
                .map(Buffer::from)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let there: Vec<CopyRequest> = sources
        .iter_mut()
        .zip(&targets)
        .map(|(source, target)| {
            CopyRequest::contiguous(pageable(source), (target.address, Some(0)), target.len)
        })
        .collect();
    copy(&there, &stream)?;
    // One event for all of them, and no wait.
    assert_eq!(
        (calls(c"cuEventRecord"), calls(c"cuEventSynchronize")),
        (1, 0)
    );
    let mut back: Vec<Vec<u8>> = targets.iter().map(|target| vec![0; target.len]).collect();
    let requests: Vec<CopyRequest> = back
        .iter_mut()
        .zip(&targets)
        .map(|(bytes, target)| {
            CopyRequest::contiguous((target.address, Some(0)), pageable(bytes), target.len)
        })
        .collect();
    copy(&requests, &stream)?;
    assert_eq!(
        (calls(c"cuEventRecord"), calls(c"cuEventSynchronize")),
        (2, 1)
    );
    assert_eq!(back, sources);
    drop((targets, stream));
    finish()
}

/// Rows smaller and larger than a chunk, pitches of either end.
fn rows_are_copied_with_any_pitch() -> Done {
    make_current(0)?;
    let stream = stream()?;
    for (row_len, rows, host_pitch, device_pitch) in [
        (100, 50, 100, 100),
        (100, 50, 128, 100),
        (100, 50, 100, 256),
        (100, 50, 111, 256),
        (3 << 20, 5, (3 << 20) + 64, (3 << 20) + 512),
        ((4 << 20) + 1, 3, (4 << 20) + 100, (4 << 20) + 256),
    ] {
        let extent = |pitch: usize| (rows - 1) * pitch + row_len;
        let mut source = pattern(extent(host_pitch));
        let device = Buffer::from(LAYER.allocate(standard(extent(device_pitch)), stream.stream())?);
        let host = |bytes: &mut [u8], pitch| CopyEnd {
            address: bytes.as_mut_ptr().expose_provenance(),
            pitch,
            device_id: None,
        };
        let on_device = CopyEnd {
            address: device.address,
            pitch: device_pitch,
            device_id: Some(0),
        };
        let there = CopyRequest {
            from: host(&mut source, host_pitch),
            to: on_device,
            row_len,
            rows,
        };
        copy(&[there], &stream)?;
        // Packed on the way back.
        let mut target = vec![0; row_len * rows];
        let back = CopyRequest {
            from: on_device,
            to: host(&mut target, row_len),
            row_len,
            rows,
        };
        copy(&[back], &stream)?;
        for row in 0..rows {
            let expected = &source[row * host_pitch..][..row_len];
            assert!(
                &target[row * row_len..][..row_len] == expected,
                "{row_len} {rows} row {row}"
            );
        }
    }
    drop(stream);
    finish()
}

fn pinned_and_managed_bytes_are_copied_directly() -> Done {
    make_current(0)?;
    let stream = stream()?;
    for memory_class in [MemoryClass::HostPinned, MemoryClass::Unified] {
        let request = AllocationRequest {
            memory_class,
            ..standard(SMALL)
        };
        let host = Buffer::from(LAYER.allocate(request, stream.stream())?);
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>(host.address);
        // SAFETY: memory of that length that the host reaches, and nobody else uses yet.
        unsafe { pointer.write_bytes(6, SMALL) };
        let device = Buffer::from(LAYER.allocate(standard(SMALL), stream.stream())?);
        host.enter(stream.stream())?;
        let before = (calls(c"cuEventRecord"), live(c"pinned"));
        copy(
            &[CopyRequest::contiguous(
                (host.address, None),
                (device.address, Some(0)),
                SMALL,
            )],
            &stream,
        )?;
        assert_eq!(before, (calls(c"cuEventRecord"), live(c"pinned")));
        wait(&stream)?;
        let bytes = crate::scene::read(&device)?;
        assert!(bytes.iter().all(|byte| *byte == 6));
        drop((host, device));
    }
    drop(stream);
    finish()
}

fn peers_copy_rows_and_bytes() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let other = CudaStream::new(1)?;
    let mut source = pattern(SMALL);
    let here = Buffer::from(LAYER.allocate(standard(SMALL), stream.stream())?);
    let request = AllocationRequest {
        device_id: 1,
        ..standard(SMALL)
    };
    let there = Buffer::from(LAYER.allocate(request, other.stream())?);
    let born = there.dependency.as_ref().ok_or("from a pool")?;
    LAYER.order(&[born], stream.stream())?;
    there.enter(stream.stream())?;
    let (here_end, there_end) = ((here.address, Some(0)), (there.address, Some(1)));
    copy(
        &[
            CopyRequest::contiguous(pageable(&mut source), here_end, SMALL),
            CopyRequest::contiguous(here_end, there_end, SMALL),
        ],
        &stream,
    )?;
    // Every other row of 64 bytes, packed into the beginning.
    let end = |(address, device_id): (usize, Option<u32>), pitch| CopyEnd {
        address,
        pitch,
        device_id,
    };
    copy(
        &[CopyRequest {
            from: end(there_end, 128),
            to: end(here_end, 64),
            row_len: 64,
            rows: SMALL / 128,
        }],
        &stream,
    )?;
    let bytes = crate::scene::read(&here)?;
    for (row, found) in bytes[..SMALL / 2].chunks(64).enumerate() {
        assert_eq!(found, &source[row * 128..][..64], "row {row}");
    }
    drop((here, there, stream, other));
    finish()
}

/// No pinned memory and no event is allocated after warm-up.
fn the_ring_is_allocated_once() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let device = Buffer::from(LAYER.allocate(standard(LARGE), stream.stream())?);
    let mut bytes = pattern(LARGE);
    let there = CopyRequest::contiguous(pageable(&mut bytes), (device.address, Some(0)), LARGE);
    copy(&[there], &stream)?;
    copy(&[there], &stream)?;
    let before = (calls(c"cuMemHostAlloc"), calls(c"cuEventCreate"));
    for _ in 0..8 {
        copy(&[there], &stream)?;
    }
    assert_eq!(before, (calls(c"cuMemHostAlloc"), calls(c"cuEventCreate")));
    assert_eq!(before.0, 1);
    drop((device, stream));
    finish()
}

fn copies_that_cannot_be_are_refused() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let (mut a, mut b) = (pattern(64), pattern(64));
    let host_to_host = CopyRequest::contiguous(pageable(&mut a), pageable(&mut b), 64);
    assert_eq!(
        copy(&[host_to_host], &stream),
        Err(DeviceError::NoDeviceEnd)
    );
    let end = |address, device_id| CopyEnd {
        address,
        pitch: 8,
        device_id,
    };
    let overlapping = CopyRequest {
        from: end(4096, Some(0)),
        to: end(8192, Some(0)),
        row_len: 16,
        rows: 2,
    };
    assert_eq!(
        copy(&[overlapping], &stream),
        Err(DeviceError::CopyShape {
            row_len: 16,
            rows: 2,
            from_pitch: 8,
            to_pitch: 8
        })
    );
    // Nothing is asked of no bytes.
    copy(
        &[CopyRequest::contiguous((0, None), (0, Some(0)), 0)],
        &stream,
    )?;
    drop(stream);
    finish()
}
