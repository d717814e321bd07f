//! Streams that are being captured into a graph.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CUgraph, CUstreamCaptureStatus, CUuserObject};
use hurray_core::{DeviceError, Stream};

use crate::context::Current;
use crate::driver::{CallError, Code, Driver};
use crate::stream::handle;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: the destructor is not waited for.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the graph takes the caller's reference over.
const MOVE: u32 = 1;

/// How a stream stands to captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// What is queued on it runs.
    None,
    /// It is part of the capture with this number, which will give this graph.
    Active(u64, Graph),
    /// Its capture was broken and must be ended, or it is the legacy stream while a stream that it would wait for is captured.
    Blocked,
}

/// A graph that is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Graph(CUgraph);

impl Capture {
    /// How `stream` stands now. Asking breaks no capture.
    pub(crate) fn of(driver: &Driver, stream: &Stream) -> Result<Self, CallError> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut id = 0;
        let mut graph: CUgraph = ptr::null_mut();
        let _current = Current::enter(driver, stream.context())?;
        // SAFETY: the stream is live (`Stream::from_parts`); the out pointers are valid, or NULL where the answer is not wanted.
        let answer = unsafe {
            driver.cuStreamGetCaptureInfo_v3(
                handle(stream),
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        match answer {
            Ok(()) => Ok(match status {
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Self::None,
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => {
                    Self::Active(id, Graph(graph))
                }
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => Self::Blocked,
            }),
            Err(failed) if failed.code == Code::CAPTURE_IMPLICIT => Ok(Self::Blocked),
            Err(failed) => Err(failed),
        }
    }

    /// The number of the capture, if there is one.
    ///
    /// # Errors
    /// [`DeviceError::Capturing`] where the stream can't be used.
    pub(crate) fn number(self, operation: &'static str) -> Result<Option<u64>, DeviceError> {
        match self {
            Self::None => Ok(None),
            Self::Active(id, _) => Ok(Some(id)),
            Self::Blocked => Err(DeviceError::Capturing { operation }),
        }
    }
}

impl Graph {
    /// Has the graph call `destroy(data)` when it, every copy of it and every execution of it are no more; in a thread that must not call the driver. On
    /// failure too it is called, or has been, exactly once.
    ///
    /// # Safety
    /// `destroy` may be called once with `data`, on any thread.
    pub(crate) unsafe fn retain(
        self,
        driver: &Driver,
        data: *mut c_void,
        destroy: unsafe extern "C" fn(*mut c_void),
    ) -> Result<(), CallError> {
        let mut object: CUuserObject = ptr::null_mut();
        // SAFETY: the out pointer is valid, and the caller allows the call.
        let created = unsafe {
            driver.cuUserObjectCreate(&raw mut object, data, Some(destroy), 1, NO_DESTRUCTOR_SYNC)
        };
        if let Err(failed) = created {
            // SAFETY: no object was made of it, so that nobody else makes this call.
            unsafe { destroy(data) };
            return Err(failed);
        }
        // SAFETY: the graph is being captured, by the word of the driver, and the reference is this function's.
        let moved = unsafe { driver.cuGraphRetainUserObject(self.0, object, 1, MOVE) };
        moved.inspect_err(|_| {
            // SAFETY: the graph did not take the reference, which is the only one.
            // Failing, it leaves the object as it is, and its data is never let go.
            let _: Result<(), CallError> = unsafe { driver.cuUserObjectRelease(object, 1) };
        })
    }
}
