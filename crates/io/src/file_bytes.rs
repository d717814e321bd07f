//! Reads of a file that is not mapped.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;

/// What offset, length and memory of a direct read are multiples of.
pub(crate) const DIRECT_ALIGNMENT: usize = 4096;

/// An open file, and the same file for direct reads, which do not pass through the page cache.
#[derive(Debug)]
pub(crate) struct FileBytes {
    file: File,
    direct: OnceLock<Option<File>>,
}

impl FileBytes {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            direct: OnceLock::new(),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Fills `target` with the bytes from `offset` on.
    pub(crate) fn read(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(target, offset)
    }

    /// Reads `range` into `chunk`, which is memory of whole [`DIRECT_ALIGNMENT`]s and has room for all of those that `range` touches. The first
    /// byte of `range` is as far in the chunk as it is in its own.
    ///
    /// A direct read reads whole ones (I4). What is in the page cache already is taken from there, and a file system that refuses is read as any
    /// other.
    pub(crate) fn read_chunk(
        &self,
        chunk: &mut [u8],
        range: &Range<u64>,
        is_direct: bool,
    ) -> io::Result<()> {
        let skipped = into_chunk(range.start);
        let begin = range.start.saturating_sub(skipped as u64);
        let wanted = usize::try_from(range.end.saturating_sub(begin)).unwrap_or(usize::MAX);
        if is_direct
            && let Some(direct) = self.direct()
            && let Some(room) = chunk.get_mut(..wanted.next_multiple_of(DIRECT_ALIGNMENT))
            && (read_cached(&self.file, room, begin) >= wanted
                || read_direct(direct, room, begin) >= wanted)
        {
            return Ok(());
        }
        let target = chunk.get_mut(skipped..wanted);
        self.read(target.ok_or(io::ErrorKind::InvalidInput)?, range.start)
    }

    /// The file for direct reads, where its file system has them.
    fn direct(&self) -> Option<&File> {
        let open = || {
            // The same file whatever its path names by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
            let direct = rustix::fs::open(path, flags, Mode::empty());
            direct.ok().map(File::from)
        };
        self.direct.get_or_init(open).as_ref()
    }
}

/// How far into its [`DIRECT_ALIGNMENT`] a byte of the file is.
pub(crate) fn into_chunk(offset: u64) -> usize {
    let within = offset & (DIRECT_ALIGNMENT as u64).saturating_sub(1);
    within as usize
}

/// Reads what the page cache holds from `offset` on, without waiting for a disk; gives the bytes that it read.
fn read_cached(file: &File, room: &mut [u8], offset: u64) -> usize {
    let mut parts = [io::IoSliceMut::new(room)];
    rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT).unwrap_or(0)
}

/// Reads from `offset` on until `room` is full, the file ends, or the file system refuses; gives the bytes that it read.
fn read_direct(direct: &File, room: &mut [u8], offset: u64) -> usize {
    let mut filled = 0_usize;
    while let Some(rest) = room.get_mut(filled..)
        && !rest.is_empty()
    {
        match direct.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(count) if count > 0 => {
                filled = filled.saturating_add(count);
                // The end of the file, or a file system of other multiples.
                if !filled.is_multiple_of(DIRECT_ALIGNMENT) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    filled
}

/// Whether bytes of a file are so many that keeping them in the page cache would push out what else is there, and more of them than stay: half of the
/// machine's memory.
pub(crate) fn is_too_much_to_cache(bytes: u64) -> bool {
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(info.mem_unit.into());
    bytes > memory.div_euclid(2)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use hurray_core::memory::AlignedBytes;
    use rustix::fs::Advice;

    use super::*;

    /// The block of the report, in the middle of a file that ends where no page does.
    const BLOCK: u64 = 3_098_112;
    const FILE: u64 = 8192 + BLOCK + 77;

    fn file() -> (FileBytes, Vec<u8>) {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..FILE).map(|at| (at / 4099 + at) as u8).collect();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        (FileBytes::new(file), bytes)
    }

    /// Makes the next read come from the disk.
    fn forget(bytes: &FileBytes) {
        rustix::fs::fadvise(bytes.file(), 0, None, Advice::DontNeed).unwrap();
    }

    fn chunk() -> AlignedBytes {
        let mut chunk = AlignedBytes::zeroed(4 << 20).unwrap();
        chunk.fill(0xEE);
        chunk
    }

    fn assert_is(chunk: &[u8], range: &Range<u64>, bytes: &[u8]) {
        let begin = into_chunk(range.start);
        let expected = &bytes[range.start as usize..range.end as usize];
        assert!(
            chunk[begin..begin + expected.len()] == *expected,
            "{range:?}"
        );
    }

    fn ranges() -> impl Iterator<Item = Range<u64>> {
        let ends = [0, 1, 4095, 4096, 4097, 8192, 8192 + BLOCK, FILE - 1, FILE];
        ends.into_iter().flat_map(move |start| {
            let later = ends.into_iter().filter(move |&end| end >= start);
            later.map(move |end| start..end)
        })
    }

    /// I4: direct I/O asks for aligned offset, length and memory, and a block of 3 098 112 bytes is not a whole number of pages.
    #[test]
    fn i4_any_range_can_be_read_directly() {
        let (file, bytes) = file();
        for range in ranges() {
            for is_direct in [true, false] {
                for is_cached in [true, false] {
                    if !is_cached {
                        forget(&file);
                    }
                    let mut chunk = chunk();
                    file.read_chunk(&mut chunk, &range, is_direct).unwrap();
                    assert_is(&chunk, &range, &bytes);
                }
            }
        }
    }

    #[test]
    fn a_direct_read_reads_up_to_the_end_of_the_file() {
        let (file, bytes) = file();
        // Not every file system has direct reads.
        let Some(direct) = file.direct() else {
            return;
        };
        forget(&file);
        let mut chunk = chunk();
        let begin = (FILE - 5000) & !4095;
        assert_eq!(read_direct(direct, &mut chunk, begin) as u64, FILE - begin);
        assert_is(&chunk, &(begin..FILE), &bytes);
        assert_eq!(read_direct(direct, &mut chunk, (FILE + 4096) & !4095), 0);
    }

    /// What refuses direct reads is read as any other file.
    #[test]
    fn a_file_system_that_refuses_is_no_error() {
        let (file, bytes) = file();
        // No read from it succeeds.
        let refusing = File::options().write(true).open("/dev/null").unwrap();
        file.direct.set(Some(refusing)).unwrap();
        for range in ranges() {
            forget(&file);
            let mut chunk = chunk();
            file.read_chunk(&mut chunk, &range, true).unwrap();
            assert_is(&chunk, &range, &bytes);
        }
    }

    #[test]
    fn bytes_that_the_file_does_not_have_are_an_error() {
        let (file, _) = file();
        for is_direct in [true, false] {
            let error = file.read_chunk(&mut chunk(), &(8192..FILE + 1), is_direct);
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
