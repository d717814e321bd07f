//! Bytes that are out on a stream, and how they come back.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use hurray_core::{DeviceOwner, Stream};
use smallvec::SmallVec;

use crate::{Buffer, Owner};

/// A use of bytes on a stream: it keeps them alive, and dropping it says that whatever uses them is queued on the stream by now.
pub struct Loan(Option<Use>);

/// What a loan is.
struct Use {
    stream: Stream,
    /// Whom it was handed to; where the stream is the per-thread default, that thread's.
    to: ThreadId,
    /// An `Owner::Device`, which was entered on the stream.
    of: Arc<Owner>,
}

impl Loan {
    /// The use of `of` on `stream`, which the calling thread has told its layer of.
    pub(crate) fn new(stream: Stream, of: Arc<Owner>) -> Self {
        Self(Some(Use {
            stream,
            to: thread::current().id(),
            of,
        }))
    }

    /// The owner behind it.
    pub(crate) fn of(&self) -> Option<&Arc<Owner>> {
        self.0.as_ref().map(|held| &held.of)
    }

    /// Whether it is a use on `stream`, by the calling thread where that is another stream in every thread.
    pub(crate) fn is_on(&self, stream: &Stream) -> bool {
        !stream.is_per_thread() && self.0.as_ref().is_some_and(|held| held.stream == *stream)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut returns = Returns::default();
        returns.uses.extend(self.0.take());
    }
}

/// Owners that are let go together, so that one event serves all that come back from one stream.
#[derive(Default)]
pub(crate) struct Returns {
    uses: SmallVec<[Use; 3]>,
}

impl Returns {
    /// Lets go of `buffers`, their events at once.
    pub(crate) fn extend(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        for buffer in buffers {
            let (_, lent, owner) = buffer.into_parts();
            drop(lent);
            self.push(owner);
        }
    }

    /// Lets go of one reference, at the end of the group if it is the last of a loan, else at once.
    pub(crate) fn push(&mut self, owner: Arc<Owner>) {
        if let Some(Owner::Loan(mut loan)) = Arc::into_inner(owner) {
            self.uses.extend(loan.0.take());
        }
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        // Dropped by their last holder, some go back in the stream's order, and need no event.
        self.uses.retain(|held| match Arc::get_mut(&mut held.of) {
            Some(Owner::Device(device)) => !device.owner().goes_back_on(&held.stream),
            _ => true,
        });
        while let Some(first) = self.uses.first() {
            let (stream, to) = (first.stream.clone(), first.to);
            let mut together = SmallVec::<[Arc<Owner>; 3]>::new();
            self.uses.retain(|held| {
                let is_together =
                    held.stream == stream && (held.to == to || !stream.is_per_thread());
                if is_together {
                    together.push(Arc::clone(&held.of));
                }
                !is_together
            });
            leave(&together, &stream, to);
        }
    }
}

fn leave(owners: &[Arc<Owner>], stream: &Stream, to: ThreadId) {
    let devices = || {
        owners.iter().filter_map(|owner| match &**owner {
            Owner::Device(device) => Some(device),
            _ => None,
        })
    };
    let owners: SmallVec<[&dyn DeviceOwner; 3]> = devices().map(|device| device.owner()).collect();
    if let Some(first) = devices().next() {
        first.layer().leave(&owners, stream, to);
    }
}
