use std::io::Read;

use hurray_ffi::Item;

use crate::StreamError;
use crate::stream_parser::{StreamLimits, StreamParser};

/// Reads tensors and composites from `R`, one after the other.
///
/// It reads no byte past the item that it gives. Small tensors are read faster through a [`BufReader`](std::io::BufReader).
#[derive(Debug)]
pub struct StreamReader<R> {
    source: R,
    parser: StreamParser,
    is_done: bool,
}

impl<R: Read> StreamReader<R> {
    /// A reader of a stream that begins where `source` stands.
    pub fn new(source: R, limits: StreamLimits) -> Self {
        Self {
            source,
            parser: StreamParser::new(limits),
            is_done: false,
        }
    }

    /// The next item; `None` where the stream ends.
    ///
    /// # Errors
    /// The source's, `Interrupted` included, after which the reader goes on where it was; ST1–ST10, after which it cannot be used any further.
    pub fn next_item(&mut self) -> Result<Option<Item>, StreamError> {
        loop {
            let space = self.parser.space();
            if space.is_empty() {
                return Err(StreamError::Failed);
            }
            let count = self.source.read(space)?;
            if count == 0 {
                self.parser.end()?;
                return Ok(None);
            }
            if let Some(item) = self.parser.advance(count)? {
                return Ok(Some(item));
            }
        }
    }

    /// Bytes of the stream that were read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.parser.position()
    }

    /// The source. What is read from it by other ways is missing in the stream.
    #[must_use]
    pub fn get_ref(&self) -> &R {
        &self.source
    }

    /// As [`get_ref`](Self::get_ref).
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// The source, which stands after the last byte that was read.
    #[must_use]
    pub fn into_inner(self) -> R {
        self.source
    }
}

/// The items up to the end or the first error.
impl<R: Read> Iterator for StreamReader<R> {
    type Item = Result<Item, StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = self.next_item().transpose();
        self.is_done = !matches!(next, Some(Ok(_)));
        next
    }
}
