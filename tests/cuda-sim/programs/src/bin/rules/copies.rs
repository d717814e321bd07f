//! Copies and sets: their values, and what is refused.

use std::ptr;

use hurray_cuda_programs::Program;
use hurray_cuda_programs::cuda::{
    self, CUDA_MEMCPY2D, CUmemorytype, CUresult, NON_BLOCKING, Result,
};
use hurray_cuda_programs::device::{Device, LEN};

pub(crate) const PROGRAMS: &[Program] = &[
    (
        "synchronous_copies_of_ordinary_memory",
        synchronous_copies_of_ordinary_memory,
    ),
    (
        "asynchronous_copies_of_page_locked_memory",
        asynchronous_copies_of_page_locked_memory,
    ),
    (
        "asynchronous_copies_of_ordinary_memory",
        asynchronous_copies_of_ordinary_memory,
    ),
    ("two_dimensional_copies", two_dimensional_copies),
    (
        "a_pitch_below_the_width_is_refused",
        a_pitch_below_the_width_is_refused,
    ),
    ("a_word_set_is_aligned", a_word_set_is_aligned),
];

fn synchronous_copies_of_ordinary_memory() -> Result {
    let device = Device::open(0)?;
    let bytes: Vec<u8> = (0..LEN).map(|index| index as u8).collect();
    let (a, b) = (cuda::alloc(LEN)?, cuda::alloc(LEN)?);
    cuda::upload_now(a, &bytes)?;
    cuda::copy_now(b, a, LEN)?;
    assert_eq!(cuda::download_now(b, LEN)?, bytes);
    cuda::free(a)?;
    cuda::free(b)?;
    device.close()
}

fn asynchronous_copies_of_page_locked_memory() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let (from, to) = (cuda::alloc_host(LEN)?, cuda::alloc_host(LEN)?);
    let memory = cuda::alloc(LEN)?;
    // SAFETY: `LEN` bytes of host memory that no work uses.
    unsafe { from.write_bytes(13, LEN) };
    cuda::upload(memory, from, LEN, stream)?;
    cuda::download(to, memory, LEN, stream)?;
    cuda::synchronize_stream(stream)?;
    // SAFETY: `LEN` bytes of host memory that no work uses any more.
    assert_eq!(unsafe { to.cast::<[u8; LEN]>().read() }, [13; LEN]);
    cuda::free_host(from)?;
    cuda::free_host(to)?;
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn asynchronous_copies_of_ordinary_memory() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let (from, mut to) = (vec![17; LEN], vec![0; LEN]);
    let memory = cuda::alloc(LEN)?;
    cuda::upload(memory, from.as_ptr(), LEN, stream)?;
    cuda::download(to.as_mut_ptr(), memory, LEN, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(to, from);
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

/// A copy of 3 rows of 5 bytes, from a pitch of 8 to one of 16.
fn strided(target: u64, source: u64) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 1,
        srcY: 1,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: ptr::null(),
        srcDevice: source,
        srcArray: ptr::null_mut(),
        srcPitch: 8,
        dstXInBytes: 2,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: target,
        dstArray: ptr::null_mut(),
        dstPitch: 16,
        WidthInBytes: 5,
        Height: 3,
    }
}

fn two_dimensional_copies() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let (a, b) = (cuda::alloc(64)?, cuda::alloc(64)?);
    let bytes: Vec<u8> = (0..64).collect();
    cuda::upload_now(a, &bytes)?;
    // An upload from ordinary memory may not have ended when it returns.
    cuda::synchronize()?;
    cuda::fill(b, 200, 64, stream)?;
    cuda::copy_2d(&strided(b, a), stream)?;
    cuda::synchronize_stream(stream)?;
    let copied = cuda::download_now(b, 64)?;
    for row in 0..3_u8 {
        let at = usize::from(row) * 16 + 2;
        let expected: Vec<u8> = (0..5).map(|column| (row + 1) * 8 + 1 + column).collect();
        assert_eq!(copied.get(at..at + 5), Some(expected.as_slice()));
        assert_eq!(copied.get(at + 5), Some(&200));
    }
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_pitch_below_the_width_is_refused() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let (a, b) = (cuda::alloc(64)?, cuda::alloc(64)?);
    let copy = CUDA_MEMCPY2D {
        dstPitch: 4,
        ..strided(b, a)
    };
    assert_eq!(
        cuda::copy_2d(&copy, stream),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    cuda::free(a)?;
    cuda::free(b)?;
    cuda::destroy_stream(stream)?;
    device.close()
}

fn a_word_set_is_aligned() -> Result {
    let device = Device::open(0)?;
    let stream = cuda::stream(NON_BLOCKING)?;
    let memory = cuda::alloc(64)?;
    assert_eq!(
        cuda::fill_words(memory + 2, 1, 4, stream),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    cuda::fill_words(memory, 0x0403_0201, 16, stream)?;
    cuda::synchronize_stream(stream)?;
    assert_eq!(cuda::download_now(memory + 4, 4)?, [1, 2, 3, 4]);
    cuda::free(memory)?;
    cuda::destroy_stream(stream)?;
    device.close()
}
