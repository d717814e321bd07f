use std::io::{self, IoSlice, Write};
use std::ops::ControlFlow;

/// Told how many bytes of how many are done, on the calling thread; breaks to stop the work.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Bytes that a sink is given at a time, so that there is progress to tell of and the work can be stopped.
const STEP: usize = 32 << 20;

/// A sink that tells how much it was given. It fails once it is stopped.
pub struct Watched<'a, 'p, W> {
    sink: W,
    progress: &'a mut Progress<'p>,
    done: u64,
    total: u64,
    is_stopped: bool,
}

impl<'a, 'p, W> Watched<'a, 'p, W> {
    /// A sink over `sink` that is to be given `total` bytes.
    pub fn new(sink: W, total: u64, progress: &'a mut Progress<'p>) -> Self {
        Self {
            sink,
            progress,
            done: 0,
            total,
            is_stopped: false,
        }
    }

    /// Bytes that it was given.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Whether it failed because whoever was told of the progress stopped the work.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn advance(&mut self, written: usize) -> io::Result<usize> {
        self.done = self.done.saturating_add(written as u64);
        if (self.progress)(self.done, self.total).is_break() {
            self.is_stopped = true;
            return Err(io::ErrorKind::Other.into());
        }
        Ok(written)
    }
}

impl<W: Write> Write for Watched<'_, '_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let step = bytes.get(..STEP).unwrap_or(bytes);
        let written = self.sink.write(step)?;
        self.advance(written)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut room = STEP;
        let fitting = parts.iter().take_while(|part| {
            let fits = part.len() <= room;
            room = room.saturating_sub(part.len());
            fits
        });
        let count = fitting.count();
        let written = match (count, parts.first()) {
            (0, Some(first)) => self.sink.write(first.get(..STEP).unwrap_or(first))?,
            _ => self
                .sink
                .write_vectored(parts.get(..count).unwrap_or(parts))?,
        };
        self.advance(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
