//! CUDA devices: streams, events, memory, copies, and the release of memory that a device may still read.
//!
//! The driver is found at run time. Without one everything builds and loads, and the first call that needs a device says why there is none. This is
//! the only crate that speaks to the driver; the transport holds [`LAYER`] as a [`hurray_core::DeviceLayer`].
//!
//! Two rules hold throughout. No lock is held while the driver or an owner is called. In a forked child nothing is called and nothing is let go,
//! which is decided by process id before any lock is taken.

mod calls;
mod capture;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod event_pool;
mod layer;
#[cfg(all(test, loom))]
mod loom_models;
mod memory;
mod order;
mod owner;
mod pinned_ring;
mod pointer;
mod probe;
mod readers;
mod reclaimer;
mod release;
mod release_lane;
mod staging_ring;
mod stream;
mod sync;

pub use device::on_device;
pub use event::CudaEvent;
pub use layer::{Cuda, LAYER};
pub use release::{PoolStatistics, Statistics, empty_cache, flush, kept, statistics};
pub use stream::CudaStream;
