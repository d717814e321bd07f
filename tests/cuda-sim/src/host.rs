//! The driver's own thread: it runs host functions and destructors, in which no driver call is allowed.

use std::ffi::{c_uint, c_void};
use std::rc::Rc;
use std::sync::mpsc::{self, Sender};
use std::sync::{LazyLock, Once};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::{CUhostFn, CUresult, CUstream, CUstreamCallback};
use parking_lot::Mutex;

use crate::driver;
use crate::entry::{Call, Outcome, entry};
use crate::queue::{self, Work};
use crate::stream::StreamId;

/// How long work that the host may wait for without asking the driver stays queued.
const PATIENCE: Duration = Duration::from_millis(2);

/// A function of the program and what to pass to it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostWork {
    Function {
        function: CUhostFn,
        data: *mut c_void,
    },
    Callback {
        function: CUstreamCallback,
        stream: CUstream,
        data: *mut c_void,
    },
}

/// What the thread is to do.
enum Job {
    /// Run a stream's operation and say that it has ended.
    Operation(StreamId, HostWork),
    /// Run a user object's destructor.
    Destructor(HostWork),
}

// SAFETY: the pointers are the program's, which gives them to the driver to be passed to its function on another thread.
unsafe impl Send for Job {}

static JOBS: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for job in jobs {
            let (stream, work) = match job {
                Job::Operation(stream, work) => (Some(stream), work),
                Job::Destructor(work) => (None, work),
            };
            driver::enter_host_function(true);
            call(work);
            driver::enter_host_function(false);
            if let Some(stream) = stream {
                driver::lock().host_function_ended(stream);
            }
        }
    });
    Mutex::new(sender)
});

/// Calls the program.
fn call(work: HostWork) {
    match work {
        HostWork::Function {
            function: Some(function),
            data,
        } => {
            // SAFETY: the program gave function and data to be called together, once for each time it was queued.
            unsafe { function(data) };
        }
        HostWork::Callback {
            function: Some(function),
            stream,
            data,
        } => {
            // SAFETY: the program gave function and data to be called together, with the stream it was queued on.
            unsafe { function(stream, CUresult::CUDA_SUCCESS, data) };
        }
        HostWork::Function { function: None, .. } | HostWork::Callback { function: None, .. } => {}
    }
}

/// Starts the host function that a stream has come to.
pub(crate) fn start(stream: StreamId, work: HostWork) {
    // The thread ends with the process only, and so receives.
    let _ = JOBS.lock().send(Job::Operation(stream, work));
}

/// Calls a destructor, later.
pub(crate) fn destroy(function: CUhostFn, data: *mut c_void) {
    let _ = JOBS
        .lock()
        .send(Job::Destructor(HostWork::Function { function, data }));
}

/// Brings host functions and graphs to their end even if nobody waits for their stream: the program may wait for what they do instead.
pub(crate) fn keep_moving() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(PATIENCE);
                let mut driver = driver::lock();
                if let Some((stream, operation)) = driver.pending_background() {
                    queue::advance(&mut driver, stream, operation);
                }
            }
        });
    });
}

impl Call<'_> {
    fn launch_host(&mut self, stream: CUstream, work: HostWork) -> Outcome {
        let stream = self.resolve(stream)?;
        keep_moving();
        self.enqueue(stream, Vec::new(), Work::Host(work, Rc::default()))
            .map(drop)
    }
}

entry! {
    fn cuLaunchHostFunc(hStream: CUstream, func: CUhostFn, userData: *mut c_void) |call| {
        if func.is_none() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.launch_host(hStream, HostWork::Function { function: func, data: userData })
    }
    fn cuStreamAddCallback(hStream: CUstream, callback: CUstreamCallback, userData: *mut c_void, flags: c_uint) |call| {
        if callback.is_none() || flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let stream = call.resolve(hStream)?;
        if let Some(capture) = call.stream(stream).capture {
            call.invalidate(capture);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        call.launch_host(hStream, HostWork::Callback { function: callback, stream: hStream, data: userData })
    }
}
