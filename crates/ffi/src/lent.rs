//! What a buffer holds whose bytes are not ready.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;

use hurray_core::{Dependency, DeviceError, DeviceLayer, Event, EventObject, Stream, StreamObject};

use crate::{Owner, Place, Readiness, device};

/// What a `producer_synced` buffer does not have: the event that its readers wait for, or the stream that is ordered after its writes. It is lent on with
/// every export, and an event goes back when the last holder has let it go.
///
/// Apart from the bytes, since an event is released apart from them; every holder holds the buffer's owner too, and lets the event go first.
pub(crate) enum Lent {
    /// Work that the device layer can wait for.
    Dependency(Dependency),
    /// An event that came through the C ABI, and that nothing here can wait for.
    Event(LentEvent),
    /// A stream that came so.
    Stream(usize),
}

impl Lent {
    /// What a buffer with this readiness holds.
    pub(crate) fn of(readiness: Readiness) -> Option<Arc<Self>> {
        match readiness {
            Readiness::Held(dependency) => Some(Arc::new(Self::Dependency(dependency))),
            Readiness::Ready | Readiness::Declared(_) => None,
        }
    }

    /// What a producer lends with a buffer at `place`, whose bytes `owner` keeps alive: one of event and stream, or nothing.
    pub(crate) fn by_producer(
        place: Place,
        event: Option<LentEvent>,
        stream: usize,
        owner: &Arc<Owner>,
    ) -> Option<Arc<Self>> {
        let layer = device::holding(place);
        let lent = match (event, NonZeroUsize::new(stream), layer) {
            (Some(mut event), _, Some(layer)) => {
                event.layer = Some(layer);
                Self::Dependency(Dependency::Event(Event::new(Arc::new(event))))
            }
            (Some(event), _, None) => Self::Event(event),
            (None, Some(number), Some(layer)) => match resolve(layer, place, number, owner) {
                Some(stream) => Self::Dependency(Dependency::Stream(stream)),
                None => Self::Stream(stream),
            },
            (None, Some(_), None) => Self::Stream(stream),
            (None, None, _) => return None,
        };
        Some(Arc::new(lent))
    }

    /// What the device layer can wait for.
    pub(crate) fn dependency(&self) -> Option<&Dependency> {
        match self {
            Self::Dependency(dependency) => Some(dependency),
            Self::Event(_) | Self::Stream(_) => None,
        }
    }

    /// The event, or NULL.
    pub(crate) fn event(&self) -> *mut c_void {
        match self {
            Self::Dependency(Dependency::Event(event)) => {
                ptr::with_exposed_provenance_mut(event.handle())
            }
            Self::Event(event) => event.event,
            Self::Dependency(Dependency::Stream(_)) | Self::Stream(_) => ptr::null_mut(),
        }
    }

    /// The stream, or 0.
    pub(crate) fn stream(&self) -> usize {
        match self {
            Self::Dependency(Dependency::Stream(stream)) => stream.number().get(),
            Self::Stream(stream) => *stream,
            Self::Dependency(Dependency::Event(_)) | Self::Event(_) => 0,
        }
    }
}

/// A producer's stream, as the layer knows it. Its per-thread default stream is no stream to other threads: the legacy one stands for it, which waits for
/// those of all threads.
fn resolve(
    layer: &'static dyn DeviceLayer,
    place: Place,
    number: NonZeroUsize,
    owner: &Arc<Owner>,
) -> Option<Stream> {
    let number = if number == Stream::PER_THREAD {
        Stream::LEGACY
    } else {
        number
    };
    let object: Arc<dyn StreamObject> = Arc::new(ProducerStream(Arc::clone(owner)));
    // SAFETY: a producer's stream lives until its buffer is let go, by the ABI, and the object holds that buffer's owner.
    unsafe { layer.stream(place.device_id, number, Some(object)) }.ok()
}

/// What keeps a producer's stream alive.
#[expect(dead_code, reason = "held, not used")]
struct ProducerStream(Arc<Owner>);

impl StreamObject for ProducerStream {}

/// A producer's event.
pub(crate) struct LentEvent {
    event: *mut c_void,
    release: EventRelease,
    /// What it is of, where that has a driver.
    layer: Option<&'static dyn DeviceLayer>,
    /// The owner of the bytes, which are let go after the event.
    owner: Arc<Owner>,
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
    Slot,
}

impl LentEvent {
    /// An event that goes back when this value is dropped.
    ///
    /// # Safety
    /// `event` is a live event until its release, which may be called once, on any thread.
    pub(crate) unsafe fn new(event: *mut c_void, release: EventRelease, owner: Arc<Owner>) -> Self {
        Self {
            event,
            release,
            layer: None,
            owner,
        }
    }
}

// SAFETY: the event is an opaque handle that is only passed on; its release may run on any thread (E2 of `buffers.md`), as the constructor's
// caller promises.
unsafe impl Send for LentEvent {}
// SAFETY: as above; a shared reference only reads the handle.
unsafe impl Sync for LentEvent {}

// SAFETY: the producer neither records nor destroys the event until its release, which dropping this value calls.
unsafe impl EventObject for LentEvent {
    fn handle(&self) -> usize {
        self.event.expose_provenance()
    }
}

impl Drop for LentEvent {
    fn drop(&mut self) {
        let is_forked = |layer: &dyn DeviceLayer| layer.device_count() == Err(DeviceError::Forked);
        if self.layer.is_some_and(is_forked) {
            // It is the parent's, and so is the driver that its producer would call.
            return;
        }
        match &self.release {
            EventRelease::Callback { release, context } => {
                // SAFETY: the producer gave function, event and context for this one call.
                unsafe { release(self.event, *context) };
            }
            EventRelease::Slot => {
                if let Owner::Slot(slot) = &*self.owner {
                    slot.release_event();
                }
            }
        }
    }
}
