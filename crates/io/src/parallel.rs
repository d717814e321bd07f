//! Work on parts of a file on several threads.

use std::num::NonZero;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::FileError;
use crate::progress::Progress;

/// Bytes of a part: for less, a thread is not worth its start.
pub(crate) const PART: usize = 4 << 20;

/// Does `work` on each of `parts`, of `total` bytes in all, on as many threads as help, `most` at most. The threads are the call's own, and the
/// calling one is among them; each begins with `begin`, and any other that cannot takes no part. `work` gives the bytes of
/// its part.
pub(crate) fn for_each<P, S>(
    parts: impl Iterator<Item = P> + Send,
    total: u64,
    most: usize,
    begin: impl Fn() -> Result<S, FileError> + Sync,
    work: impl Fn(&mut S, P) -> Result<u64, FileError> + Sync,
    progress: &mut Progress<'_>,
) -> Result<(), FileError> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads
        .min(most)
        .min(usize::try_from(total.div_euclid(PART as u64)).unwrap_or(most));
    let parts = Mutex::new(Some(parts));
    let done = AtomicU64::new(0);
    let lock = || parts.lock().unwrap_or_else(PoisonError::into_inner);
    // Gives the bytes that are done by now; `None` after the last part.
    let one = |state: &mut S| -> Result<Option<u64>, FileError> {
        let Some(part) = lock().as_mut().and_then(Iterator::next) else {
            return Ok(None);
        };
        // After an error nobody begins another part.
        let len = work(state, part).inspect_err(|_| *lock() = None)?;
        Ok(Some(
            done.fetch_add(len, Ordering::Relaxed).saturating_add(len),
        ))
    };
    let all = || -> Result<(), FileError> {
        // One that cannot begin leaves its part to the others.
        let Ok(mut state) = begin() else {
            return Ok(());
        };
        while one(&mut state)?.is_some() {}
        Ok(())
    };
    let mut state = begin()?;
    thread::scope(|scope| {
        let mut others = Vec::new();
        for _ in 1..threads {
            let Ok(other) = thread::Builder::new().spawn_scoped(scope, all) else {
                break;
            };
            others.push(other);
        }
        let mut told = 0;
        while let Some(done) = one(&mut state)? {
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
