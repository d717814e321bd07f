//! Stream-ordered pools.

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{
    self, CUmemPool_attribute as Attribute, CUresult, NON_BLOCKING, Result,
};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "pool_memory_is_used_in_its_streams_order",
        pool_memory_is_used_in_its_streams_order,
    ),
    (
        "another_stream_waits_for_the_allocation",
        another_stream_waits_for_the_allocation,
    ),
    (
        "a_free_on_another_stream_waits_for_the_use",
        a_free_on_another_stream_waits_for_the_use,
    ),
    (
        "pool_memory_can_be_freed_by_the_host",
        pool_memory_can_be_freed_by_the_host,
    ),
    (
        "idle_bytes_beyond_the_threshold_are_given_back",
        idle_bytes_beyond_the_threshold_are_given_back,
    ),
    (
        "an_exhausted_pool_says_so_and_goes_on",
        an_exhausted_pool_says_so_and_goes_on,
    ),
    (
        "a_free_makes_room_for_later_allocations_of_its_stream",
        a_free_makes_room_for_later_allocations_of_its_stream,
    ),
    (
        "the_default_pool_cannot_be_destroyed",
        the_default_pool_cannot_be_destroyed,
    ),
];

fn pool_memory_is_used_in_its_streams_order() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    device.busy(stream)?;
    let memory = cuda::alloc_async(LEN, stream)?;
    cuda::fill(memory, 1, LEN, stream)?;
    cuda::free_async(memory, stream)?;
    cuda::synchronize_stream(stream)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn another_stream_waits_for_the_allocation() -> Result {
    let device = Device::open(0)?;
    let (first, second) = (cuda::stream(NON_BLOCKING)?, cuda::stream(NON_BLOCKING)?);
    let event = cuda::event()?;
    let memory = cuda::alloc_async(LEN, first)?;
    cuda::record(event, first)?;
    cuda::wait(second, event)?;
    cuda::fill(memory, 2, LEN, second)?;
    cuda::free_async(memory, second)?;
    cuda::synchronize_stream(second)?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn a_free_on_another_stream_waits_for_the_use() -> Result {
    let device = Device::open(0)?;
    let (first, second) = (cuda::stream(NON_BLOCKING)?, cuda::stream(NON_BLOCKING)?);
    let event = cuda::event()?;
    let memory = cuda::alloc_async(LEN, first)?;
    cuda::fill(memory, 2, LEN, first)?;
    cuda::record(event, first)?;
    cuda::wait(second, event)?;
    cuda::free_async(memory, second)?;
    cuda::synchronize()?;
    cuda::destroy_event(event)?;
    cuda::destroy_stream(first)?;
    cuda::destroy_stream(second)?;
    device.close()
}

fn pool_memory_can_be_freed_by_the_host() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let memory = cuda::alloc_async(LEN, stream)?;
    cuda::fill(memory, 1, LEN, stream)?;
    cuda::synchronize_stream(stream)?;
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn idle_bytes_beyond_the_threshold_are_given_back() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let pool = cuda::pool(0)?;
    let reserved = || cuda::pool_bytes(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    let used = || cuda::pool_bytes(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    cuda::set_threshold(pool, u64::MAX)?;
    assert_eq!(
        cuda::pool_bytes(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)?,
        u64::MAX
    );
    let memory = cuda::alloc_from(pool, LEN, stream)?;
    assert!(used()? >= LEN as u64);
    cuda::free_async(memory, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(used()?, 0);
    assert!(reserved()? >= LEN as u64);
    cuda::trim_pool(pool, 0)?;
    assert_eq!(reserved()?, 0);
    cuda::set_threshold(pool, 0)?;
    let memory = cuda::alloc_from(pool, LEN, stream)?;
    cuda::free_async(memory, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(reserved()?, 0);
    cuda::destroy_pool(pool)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn an_exhausted_pool_says_so_and_goes_on() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let pool = cuda::pool(0)?;
    let (_, total) = cuda::memory()?;
    assert_eq!(
        cuda::alloc_from(pool, total + 1, stream),
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    );
    let memory = cuda::alloc_from(pool, LEN, stream)?;
    cuda::free_async(memory, stream)?;
    cuda::synchronize_stream(stream)?;
    cuda::destroy_pool(pool)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_free_makes_room_for_later_allocations_of_its_stream() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let pool = cuda::pool(0)?;
    let block = 32 << 20;
    for _ in 0..8 {
        let memory = cuda::alloc_from(pool, block, stream)?;
        cuda::fill(memory, 1, LEN, stream)?;
        cuda::free_async(memory, stream)?;
    }
    // Never two blocks at once, though none of the frees was waited for.
    assert!(
        cuda::pool_bytes(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)? < 2 * block as u64
    );
    cuda::synchronize_stream(stream)?;
    cuda::destroy_pool(pool)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn the_default_pool_cannot_be_destroyed() -> Result {
    let device = Device::open(0)?;
    let pool = cuda::default_pool(0)?;
    assert_eq!(
        cuda::destroy_pool(pool),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    device.close()
}
