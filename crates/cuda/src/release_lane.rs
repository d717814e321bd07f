//! Streams that free memory once its readers are done.

use std::num::NonZeroUsize;
use std::sync::Arc;

use hurray_core::DeviceError;
use smallvec::SmallVec;

use crate::driver::{CallError, Driver};
use crate::event_pool::EventCalls;
use crate::order;
use crate::reclaimer::{Wait, Waits};
use crate::release::DriverEvent;
use crate::stream::CudaStream;
use crate::sync::Mutex;

/// How many are kept: more sets of readers than programs have.
const LANES: usize = 64;

/// A set of streams, in order.
type Key = SmallVec<[(usize, NonZeroUsize, u64); 4]>;

/// A stream that frees memory.
pub(crate) struct ReleaseLane {
    pub(crate) stream: CudaStream,
    /// Events that it has waited for last, by their order: one per reader.
    waited: Mutex<SmallVec<[usize; 4]>>,
}

impl ReleaseLane {
    /// Makes it wait for an event, once for all owners that share it.
    pub(crate) fn wait_for(&self, driver: &Driver, event: &DriverEvent) -> Result<(), CallError> {
        if self.waited.lock().contains(&event.order()) {
            return Ok(());
        }
        order::wait_for(driver, self.stream.stream(), event.raw().handle)?;
        let mut waited = self.waited.lock();
        if waited.len() == waited.inline_size() {
            waited.remove(0);
        }
        waited.push(event.order());
        Ok(())
    }
}

/// One stream per set of readers, so that no free waits behind another consumer's: what a lane has waited for, the same readers had done before.
pub(crate) struct ReleaseLanes {
    lanes: Mutex<Vec<(Key, Arc<ReleaseLane>)>>,
}

impl ReleaseLanes {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Mutex::new(Vec::new()),
        }
    }

    /// The lane of these readers.
    pub(crate) fn get<C: EventCalls>(
        &self,
        device_id: u32,
        waits: &Waits<C>,
    ) -> Result<Arc<ReleaseLane>, DeviceError> {
        let mut key: Key = waits
            .iter()
            .map(|wait| {
                let Wait { stream, .. } = wait;
                (stream.context(), stream.number(), stream.id())
            })
            .collect();
        key.sort_unstable();
        key.dedup();
        if let Some((_, lane)) = self.lanes.lock().iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(lane));
        }
        let lane = Arc::new(ReleaseLane {
            stream: CudaStream::new(device_id)?,
            waited: Mutex::new(SmallVec::new()),
        });
        let mut oldest = None;
        let mut lanes = self.lanes.lock();
        if lanes.len() >= LANES {
            oldest = Some(lanes.remove(0));
        }
        lanes.push((key, Arc::clone(&lane)));
        drop(lanes);
        drop(oldest);
        Ok(lane)
    }

    /// Lets all go.
    pub(crate) fn clear(&self) {
        let lanes = std::mem::take(&mut *self.lanes.lock());
        drop(lanes);
    }
}
