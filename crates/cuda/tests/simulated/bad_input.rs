//! Bad input: an error that names the numbers, and nothing is lost.

use hurray_core::{
    AllocationRequest, DeviceError, DeviceLayer, MemoryClass, PointerClaim, PointerError,
};
use hurray_cuda::{CudaStream, LAYER};
use hurray_cuda_programs::cuda;
use libtest_mimic::Trial;

use crate::harness::{Done, Scenario, clean, clean_on};
use crate::scene::{Buffer, SMALL, call, filled, finish, foreign, make_current, standard, stream};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("there_is_no_such_device", there_is_no_such_device),
    ("a_lying_pointer_is_found_out", a_lying_pointer_is_found_out),
    (
        "a_range_over_several_mappings_is_walked",
        a_range_over_several_mappings_is_walked,
    ),
    ("an_exhausted_device_says_so", an_exhausted_device_says_so),
    (
        "an_exhausted_pool_is_trimmed_for_others",
        an_exhausted_pool_is_trimmed_for_others,
    ),
    (
        "nothing_is_allocated_for_no_bytes",
        nothing_is_allocated_for_no_bytes,
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean_on("there_is_no_such_device", |run| run.devices(2)),
        clean_on("a_lying_pointer_is_found_out", |run| run.devices(2)),
        clean("a_range_over_several_mappings_is_walked"),
        clean_on("an_exhausted_device_says_so", |run| run.memory(MEMORY)),
        clean_on("an_exhausted_pool_is_trimmed_for_others", |run| {
            run.memory(MEMORY)
        }),
        clean("nothing_is_allocated_for_no_bytes"),
    ]
}

/// Of the device.
const MEMORY: usize = 64 << 20;

fn there_is_no_such_device() -> Done {
    let refused = Err(DeviceError::NoDevice {
        device_id: 2,
        count: 2,
    });
    assert_eq!(CudaStream::new(2).map(|_| ()), refused);
    let zero = stream()?;
    let request = AllocationRequest {
        device_id: 2,
        ..standard(SMALL)
    };
    assert_eq!(LAYER.allocate(request, zero.stream()).map(|_| ()), refused);
    assert_eq!(
        CudaStream::new(u32::MAX).map(|_| ()),
        Err(DeviceError::NoDevice {
            device_id: u32::MAX,
            count: 2
        })
    );
    let request = AllocationRequest {
        memory_class: MemoryClass::Peer,
        ..standard(SMALL)
    };
    assert_eq!(
        LAYER.allocate(request, zero.stream()).map(|_| ()),
        Err(DeviceError::NoSuchMemory {
            memory_class: MemoryClass::Peer
        })
    );
    drop(zero);
    finish()
}

fn claim(address: usize, len: usize, memory_class: MemoryClass) -> PointerClaim {
    PointerClaim {
        address,
        len,
        device_id: 0,
        memory_class,
    }
}

/// Memory type, ordinal, range.
fn a_lying_pointer_is_found_out() -> Done {
    use MemoryClass::{HostPinned, Peer, Standard, Unified};
    make_current(0)?;
    let stream = stream()?;
    let device = filled(SMALL, 1, stream.stream())?;
    let of_class = |memory_class| {
        LAYER
            .allocate(
                AllocationRequest {
                    memory_class,
                    ..standard(SMALL)
                },
                stream.stream(),
            )
            .map(Buffer::from)
    };
    let (pinned, managed) = (of_class(HostPinned)?, of_class(Unified)?);
    let on_the_heap = vec![0_u8; SMALL];
    let ordinary = on_the_heap.as_ptr().addr();
    for (buffer, memory_class) in [
        (&device, Standard),
        (&pinned, HostPinned),
        (&managed, Unified),
    ] {
        LAYER.check_pointer(&claim(buffer.address, SMALL, memory_class))?;
        LAYER.check_pointer(&claim(buffer.address + 64, SMALL - 64, memory_class))?;
        let facts = LAYER.pointer_facts(buffer.address)?.ok_or("known")?;
        assert_eq!(facts.memory_class, memory_class);
    }
    LAYER.check_pointer(&claim(device.address, SMALL, Peer))?;
    assert_eq!(LAYER.pointer_facts(ordinary)?, None);
    // A7: nothing is asked of no bytes.
    LAYER.check_pointer(&claim(0, 0, Standard))?;
    for (lie, expected) in [
        (
            claim(ordinary, SMALL, Standard),
            PointerError::Unknown {
                address: ordinary,
                device_id: 0,
            },
        ),
        (
            claim(pinned.address, SMALL, Standard),
            PointerError::OtherClass {
                address: pinned.address,
                claimed: Standard,
                found: HostPinned,
            },
        ),
        (
            claim(device.address, SMALL, HostPinned),
            PointerError::OtherClass {
                address: device.address,
                claimed: HostPinned,
                found: Standard,
            },
        ),
        (
            claim(managed.address, SMALL, Standard),
            PointerError::OtherClass {
                address: managed.address,
                claimed: Standard,
                found: Unified,
            },
        ),
        (
            PointerClaim {
                device_id: 1,
                ..claim(device.address, SMALL, Standard)
            },
            PointerError::OtherDevice {
                address: device.address,
                claimed: 1,
                found: 0,
            },
        ),
        (
            claim(usize::MAX - 1, SMALL, Standard),
            PointerError::Wraps {
                address: usize::MAX - 1,
                len: SMALL,
            },
        ),
    ] {
        assert_eq!(LAYER.check_pointer(&lie), Err(expected));
    }
    let (outside, _gone) = foreign(SMALL)?;
    let long = claim(outside.address, SMALL + (1 << 30), Standard);
    let refused = LAYER.check_pointer(&long);
    assert!(
        matches!(refused, Err(PointerError::Short { len, found, .. }) if len == long.len && found >= SMALL),
        "{refused:?}"
    );
    drop((device, pinned, managed, outside, stream));
    finish()
}

/// Virtual-memory tensors span several mappings.
fn a_range_over_several_mappings_is_walked() -> Done {
    make_current(0)?;
    drop(stream()?);
    let page = call(cuda::granularity(0))?;
    let address = call(cuda::reserve(4 * page))?;
    let mut handles = Vec::new();
    for index in [0, 1, 3] {
        let handle = call(cuda::physical(0, page))?;
        let at = address + index * page as u64;
        call(cuda::map(at, page, handle))?;
        call(cuda::allow(at, page, 0))?;
        handles.push((at, handle));
    }
    let start = address as usize;
    LAYER.check_pointer(&claim(start, 2 * page, MemoryClass::Standard))?;
    assert_eq!(
        LAYER.check_pointer(&claim(start + 64, 3 * page, MemoryClass::Standard)),
        Err(PointerError::Short {
            address: start + 64,
            len: 3 * page,
            found: 2 * page - 64
        })
    );
    for (at, handle) in handles {
        call(cuda::unmap(at, page))?;
        call(cuda::release_physical(handle))?;
    }
    call(cuda::free_addresses(address, 4 * page))?;
    finish()
}

/// Naming the sizes, the pool intact.
fn an_exhausted_device_says_so() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let too_much = 4 * MEMORY;
    for shareable in [false, true] {
        let refused = LAYER.allocate(
            AllocationRequest {
                shareable,
                ..standard(too_much)
            },
            stream.stream(),
        );
        match refused {
            Err(DeviceError::OutOfMemory {
                requested,
                free,
                total,
                device_id: 0,
                name,
                ..
            }) => {
                assert_eq!((requested, total), (too_much, MEMORY));
                assert!(free <= total);
                assert_eq!(name, "CUDA_ERROR_OUT_OF_MEMORY");
            }
            other => panic!("{other:?}"),
        }
        drop(filled(SMALL, 1, stream.stream())?);
    }
    drop(stream);
    finish()
}

/// What the pool holds unused is given back when plain memory is short.
fn an_exhausted_pool_is_trimmed_for_others() -> Done {
    make_current(0)?;
    let stream = stream()?;
    let most = MEMORY * 3 / 4;
    drop(filled(most, 1, stream.stream())?);
    call(cuda::synchronize_stream(crate::scene::handle(
        stream.stream(),
    )))?;
    let plain = AllocationRequest {
        shareable: true,
        ..standard(most)
    };
    drop(LAYER.allocate(plain, stream.stream())?);
    drop(stream);
    finish()
}

fn nothing_is_allocated_for_no_bytes() -> Done {
    let stream = stream()?;
    for memory_class in [
        MemoryClass::Standard,
        MemoryClass::HostPinned,
        MemoryClass::Unified,
    ] {
        let request = AllocationRequest {
            memory_class,
            ..standard(0)
        };
        let empty = LAYER.allocate(request, stream.stream())?;
        assert_eq!((empty.address, empty.len, empty.alignment), (0, 0, 1));
        assert!(empty.dependency.is_none());
    }
    // Declared as measured: at least what an allocation has.
    let one = LAYER.allocate(standard(1), stream.stream())?;
    assert!(one.alignment >= 256 && one.address % one.alignment as usize == 0);
    drop((one, stream));
    finish()
}
