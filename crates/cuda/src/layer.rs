//! CUDA as a device layer.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::ThreadId;

use hurray_core::{
    Allocation, AllocationRequest, CopyRequest, Dependency, DeviceError, DeviceLayer, DeviceOwner,
    DeviceTag, Event, PointerClaim, PointerError, PointerFacts, StagingRing, Stream, StreamObject,
    StreamOrdered,
};

use crate::device::Device;
use crate::owner::{Held, Owned};
use crate::staging_ring::Staging;
use crate::{copy, memory, order, owner, pointer, probe, release, stream};

/// The CUDA driver's devices. Naming it loads nothing: the driver is looked for, and started, by the first call that needs it.
#[derive(Clone, Copy, Debug)]
pub struct Cuda;

/// What the transport holds.
pub static LAYER: Cuda = Cuda;

impl DeviceLayer for Cuda {
    fn device(&self) -> DeviceTag {
        DeviceTag::Cuda
    }

    fn device_count(&self) -> Result<u32, DeviceError> {
        probe::device_count()
    }

    unsafe fn stream(
        &self,
        device_id: u32,
        number: NonZeroUsize,
        object: Option<Arc<dyn StreamObject>>,
    ) -> Result<Stream, DeviceError> {
        // SAFETY: the caller's word.
        unsafe { stream::named(device_id, number, object) }
    }

    fn order(
        &self,
        dependencies: &[&Dependency],
        stream: &Stream,
    ) -> Result<Option<Dependency>, DeviceError> {
        order::order(dependencies, stream)
    }

    fn record(&self, stream: &Stream) -> Result<Event, DeviceError> {
        order::record(stream)
    }

    fn wait(&self, dependencies: &[&Dependency]) -> Result<(), DeviceError> {
        order::wait(dependencies)
    }

    fn allocate(
        &self,
        request: AllocationRequest,
        stream: &Stream,
    ) -> Result<Allocation, DeviceError> {
        memory::allocate(request, stream)
    }

    fn own(&self, owner: Box<dyn Send + Sync>) -> Result<Box<dyn DeviceOwner>, DeviceError> {
        release::start()?;
        Ok(Box::new(Owned::new(Held::Foreign(owner))))
    }

    fn own_stream_ordered(
        &self,
        device_id: u32,
        owner: Box<dyn StreamOrdered>,
    ) -> Result<Box<dyn DeviceOwner>, DeviceError> {
        release::start()?;
        let device = Device::get(device_id)?;
        Ok(Box::new(Owned::new(Held::Ordered(device, owner))))
    }

    fn enter(&self, owners: &[&dyn DeviceOwner], stream: &Stream) -> Result<(), DeviceError> {
        owner::enter(owners, stream)
    }

    fn leave(&self, owners: &[&dyn DeviceOwner], stream: &Stream, to: ThreadId) {
        owner::leave(owners, stream, to);
    }

    fn order_after_readers(
        &self,
        owners: &[&dyn DeviceOwner],
        stream: &Stream,
    ) -> Result<(), DeviceError> {
        owner::order_after_readers(owners, stream)
    }

    unsafe fn copy(&self, copies: &[CopyRequest], stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller's word.
        unsafe { copy::copy(copies, stream) }
    }

    fn staging_ring(&self, device_id: u32) -> Result<Box<dyn StagingRing>, DeviceError> {
        Ok(Box::new(Staging::take(device_id)?))
    }

    fn pointer_facts(&self, address: usize) -> Result<Option<PointerFacts>, DeviceError> {
        pointer::facts(address)
    }

    fn check_pointer(&self, claim: &PointerClaim) -> Result<(), PointerError> {
        pointer::check(claim)
    }
}
