//! Reads of a file on several threads.

use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{io, panic, thread};

use crate::FileError;
use crate::progress::Progress;

/// Bytes that a thread reads at a time.
const PART: usize = 4 << 20;
/// More threads than this do not make reading faster.
const MOST_THREADS: usize = 8;

/// Fills each target with the bytes of `file` from its offset on. The threads are the call's own, and the calling one is among them.
pub(crate) fn read_parts<'t>(
    file: &File,
    targets: impl Iterator<Item = (&'t mut [u8], u64)> + Send,
    progress: &mut Progress<'_>,
) -> Result<(), FileError> {
    let targets: Vec<_> = targets.collect();
    let total = targets.iter().fold(0_u64, |total, (target, _)| {
        total.saturating_add(target.len() as u64)
    });
    let parts = targets
        .into_iter()
        .flat_map(|(target, offset)| target.chunks_mut(PART).zip((offset..).step_by(PART)));
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads
        .min(MOST_THREADS)
        .min(usize::try_from(total.div_euclid(PART as u64)).unwrap_or(MOST_THREADS));
    let parts = Mutex::new(Some(parts));
    let done = AtomicU64::new(0);
    let lock = || parts.lock().unwrap_or_else(PoisonError::into_inner);
    // Gives the bytes that are done by now; `None` after the last part.
    let read_one = || -> io::Result<Option<u64>> {
        let Some((target, offset)) = lock().as_mut().and_then(Iterator::next) else {
            return Ok(None);
        };
        file.read_exact_at(target, offset)?;
        let len = target.len() as u64;
        Ok(Some(
            done.fetch_add(len, Ordering::Relaxed).saturating_add(len),
        ))
    };
    let read_all = || -> io::Result<()> {
        while read_one().inspect_err(|_| *lock() = None)?.is_some() {}
        Ok(())
    };
    thread::scope(|scope| {
        let mut others = Vec::new();
        for _ in 1..threads {
            let Ok(other) = thread::Builder::new().spawn_scoped(scope, read_all) else {
                break;
            };
            others.push(other);
        }
        let mut told = 0;
        while let Some(done) = read_one().inspect_err(|_| *lock() = None)? {
            told = done;
            if progress(done, total).is_break() {
                *lock() = None;
                return Err(FileError::Stopped);
            }
        }
        for other in others {
            match other.join() {
                Ok(result) => result?,
                Err(panic) => panic::resume_unwind(panic),
            }
        }
        // The last parts were other threads'.
        if told < total && progress(total, total).is_break() {
            return Err(FileError::Stopped);
        }
        Ok(())
    })
}
