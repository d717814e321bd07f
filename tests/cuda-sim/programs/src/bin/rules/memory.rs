//! Device, page-locked, registered and managed memory, and what the driver says of addresses.

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{
    self, CUmemorytype, CUpointer_attribute, CUresult, NON_BLOCKING, Result,
};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "allocations_are_aligned_to_256",
        allocations_are_aligned_to_256,
    ),
    (
        "nothing_can_be_allocated_of_zero_bytes",
        nothing_can_be_allocated_of_zero_bytes,
    ),
    (
        "an_exhausted_device_says_so_and_goes_on",
        an_exhausted_device_says_so_and_goes_on,
    ),
    (
        "page_locked_memory_is_the_hosts_and_the_devices",
        page_locked_memory_is_the_hosts_and_the_devices,
    ),
    (
        "registered_memory_is_known_while_it_is_registered",
        registered_memory_is_known_while_it_is_registered,
    ),
    (
        "managed_memory_is_read_after_a_wait",
        managed_memory_is_read_after_a_wait,
    ),
    ("ordinary_memory_is_unknown", ordinary_memory_is_unknown),
    (
        "an_address_inside_an_allocation_has_its_range",
        an_address_inside_an_allocation_has_its_range,
    ),
];

fn allocations_are_aligned_to_256() -> Result {
    let device = Device::open(0)?;
    for len in [1, 3, 255, 256, 257, 4097] {
        let memory = cuda::alloc(len)?;
        assert_eq!(memory % 256, 0);
        cuda::free(memory)?;
    }
    device.close()
}

fn nothing_can_be_allocated_of_zero_bytes() -> Result {
    let device = Device::open(0)?;
    assert_eq!(cuda::alloc(0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(cuda::alloc_host(0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(
        cuda::alloc_managed(0),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    device.close()
}

fn an_exhausted_device_says_so_and_goes_on() -> Result {
    let device = Device::open(0)?;
    let (_, total) = cuda::memory()?;
    assert_eq!(
        cuda::alloc(total + 1),
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    );
    let memory = cuda::alloc(LEN)?;
    cuda::free(memory)?;
    device.close()
}

fn page_locked_memory_is_the_hosts_and_the_devices() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let host = cuda::alloc_host(LEN)?;
    let address = host.expose_provenance() as u64;
    let (kind, ordinal, managed) = cuda::pointer_facts(address)?;
    assert_eq!(
        (kind, ordinal, managed),
        (CUmemorytype::CU_MEMORYTYPE_HOST as u32, 0, 0)
    );
    cuda::fill(address, 21, LEN, stream)?;
    cuda::add(device.add, address, address, LEN, 1, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(read(host), [22; LEN]);
    cuda::free_host(host)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn registered_memory_is_known_while_it_is_registered() -> Result {
    let device = Device::open(0)?;
    let mut memory = vec![1_u8; 1 << 16];
    let address = memory.as_ptr().expose_provenance() as u64;
    cuda::register(&mut memory)?;
    assert_eq!(
        cuda::register(&mut memory),
        Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
    );
    assert_eq!(
        cuda::pointer_facts(address)?.0,
        CUmemorytype::CU_MEMORYTYPE_HOST as u32
    );
    cuda::unregister(memory.as_mut_ptr())?;
    assert_eq!(cuda::pointer_facts(address)?.0, 0);
    assert_eq!(
        cuda::unregister(memory.as_mut_ptr()),
        Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    );
    device.close()
}

fn managed_memory_is_read_after_a_wait() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let memory = cuda::alloc_managed(LEN)?;
    let (kind, _, managed) = cuda::pointer_facts(memory)?;
    assert_eq!(
        (kind, managed),
        (CUmemorytype::CU_MEMORYTYPE_DEVICE as u32, 1)
    );
    cuda::fill(memory, 30, LEN, stream)?;
    cuda::add(device.add, memory, memory, LEN, 3, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(
        read(std::ptr::with_exposed_provenance(memory as usize)),
        [33; LEN]
    );
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn ordinary_memory_is_unknown() -> Result {
    let device = Device::open(0)?;
    let memory = vec![0_u8; LEN];
    let address = memory.as_ptr().expose_provenance() as u64;
    assert_eq!(cuda::pointer_facts(address)?.0, 0);
    assert_eq!(
        cuda::pointer_word(
            address,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        ),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    device.close()
}

fn an_address_inside_an_allocation_has_its_range() -> Result {
    let device = Device::open(0)?;
    let memory = cuda::alloc(LEN)?;
    assert_eq!(cuda::address_range(memory + 100)?, (memory, LEN));
    assert_eq!(
        cuda::pointer_size(
            memory + 100,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
        )?,
        memory
    );
    assert_eq!(
        cuda::pointer_size(
            memory + 100,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE
        )?,
        LEN as u64
    );
    assert_eq!(
        cuda::pointer_facts(memory + 100)?,
        (CUmemorytype::CU_MEMORYTYPE_DEVICE as u32, 0, 0)
    );
    cuda::free(memory)?;
    device.close()
}

/// Bytes of memory that the host shares with a device.
fn read(pointer: *const u8) -> [u8; LEN] {
    // SAFETY: `LEN` bytes of living host-accessible memory that no work uses any more.
    unsafe { pointer.cast::<[u8; LEN]>().read() }
}
