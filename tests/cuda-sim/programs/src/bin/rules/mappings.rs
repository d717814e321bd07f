//! Buffers over several mappings.

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{
    self, CUmemorytype, CUpointer_attribute as Attribute, CUresult, NON_BLOCKING, Result,
};
use hurray_cuda_programs::device::Device;

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "a_range_can_have_several_mappings",
        a_range_can_have_several_mappings,
    ),
    (
        "a_mapping_needs_reserved_addresses",
        a_mapping_needs_reserved_addresses,
    ),
];

fn a_range_can_have_several_mappings() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let piece = cuda::granularity(0)?;
    let start = cuda::reserve(2 * piece)?;
    let handles = [cuda::physical(0, piece)?, cuda::physical(0, piece)?];
    let middle = start + piece as u64;
    cuda::map(start, piece, handles[0])?;
    cuda::map(middle, piece, handles[1])?;
    cuda::allow(start, 2 * piece, 0)?;
    // Across the border.
    cuda::fill(middle - 16, 77, 32, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(cuda::download_now(middle - 16, 32)?, [77; 32]);
    for address in [start, middle] {
        assert_eq!(
            cuda::pointer_facts(address)?,
            (CUmemorytype::CU_MEMORYTYPE_DEVICE as u32, 0, 0)
        );
        assert_eq!(cuda::address_range(address + 1)?, (address, piece));
        assert_eq!(
            cuda::pointer_word(address, Attribute::CU_POINTER_ATTRIBUTE_MAPPED)?,
            1
        );
        assert_eq!(
            cuda::pointer_size(address, Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?,
            start
        );
        assert_eq!(
            cuda::pointer_size(address, Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE)?,
            2 * piece as u64
        );
    }
    cuda::unmap(start, 2 * piece)?;
    for handle in handles {
        cuda::release_physical(handle)?;
    }
    cuda::free_addresses(start, 2 * piece)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_mapping_needs_reserved_addresses() -> Result {
    let device = Device::open(0)?;
    let piece = cuda::granularity(0)?;
    let handle = cuda::physical(0, piece)?;
    assert_eq!(
        cuda::map(piece as u64, piece, handle),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    cuda::release_physical(handle)?;
    device.close()
}
