//! The event or stream that a producer lends with a buffer.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::abi::ForeignList;

/// What a `producer_synced` buffer does not have: the event that its readers wait for, or the stream that is ordered after its writes. It is
/// lent on with every export, and an event goes back when the last holder has let it go.
///
/// Apart from the bytes, since an event is released apart from them; every holder holds the buffer's owner too, and lets the event go first.
pub(crate) enum Lent {
    /// An event, and how it goes back.
    Event(*mut c_void, EventRelease),
    /// A stream, which lives as long as the buffer's owner.
    Stream(usize),
}

/// How an event goes back.
pub(crate) enum EventRelease {
    /// By its producer's function.
    Callback {
        /// Called once with the event and the context, on any thread.
        release: unsafe extern "C" fn(*mut c_void, *mut c_void),
        /// The producer's own.
        context: *mut c_void,
    },
    /// By the list that it came with.
    Slot {
        /// That list.
        list: Arc<ForeignList>,
        /// The buffer's index there.
        index: u64,
    },
}

// SAFETY: the event is an opaque handle that is only passed on; its release may run on any thread (E2 of `buffers.md`), as the constructor's
// caller promises.
unsafe impl Send for Lent {}
// SAFETY: as above; a shared reference only reads the handle.
unsafe impl Sync for Lent {}

impl Lent {
    /// The event, or NULL.
    pub(crate) fn event(&self) -> *mut c_void {
        match *self {
            Self::Event(event, _) => event,
            Self::Stream(_) => ptr::null_mut(),
        }
    }

    /// The stream, or 0.
    pub(crate) fn stream(&self) -> usize {
        match *self {
            Self::Event(..) => 0,
            Self::Stream(stream) => stream,
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        match self {
            Self::Event(event, EventRelease::Callback { release, context }) => {
                // SAFETY: the producer gave function, event and context for this one call.
                unsafe { release(*event, *context) };
            }
            Self::Event(_, EventRelease::Slot { list, index }) => list.release_event(*index),
            Self::Stream(_) => {}
        }
    }
}
