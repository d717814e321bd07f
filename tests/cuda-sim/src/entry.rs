//! How a call comes in: every exported symbol passes here, whatever it does.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use parking_lot::MutexGuard;

use crate::clock::{Clock, Epoch, PROGRAM, RECLAIMER};
use crate::driver::{self, Driver};
use crate::handle::Misuse;
use crate::log::Who;
use crate::report::{Kind, Site};

/// What an entry point comes to.
pub(crate) type Outcome = Result<(), CUresult>;

/// Calls that work before `cuInit`.
const BEFORE_INIT: [&str; 4] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
];
/// Calls that don't look at the current context, and so don't repeat its error.
const WITHOUT_CONTEXT: [&str; 8] = [
    "cuInit",
    "cuDriver",
    "cuGetError",
    "cuDevice",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxP",
    "cuThreadExchange",
];

/// Defines an entry point: the exported symbol, the check that its signature is the one that cudarc calls, and its body.
macro_rules! entry {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$call:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: <$ty as $crate::entry::Param>::C),*) -> u32 {
            // The result is passed as a number, since a test may plant an error that the type does not know.
            const _: unsafe fn($(<$ty as $crate::entry::Param>::Sys),*) -> ::cudarc::driver::sys::CUresult = ::cudarc::driver::sys::$name;
            $(
                // SAFETY: the driver's caller passes pointers that are null or good for what the driver's reference says of this parameter.
                let $arg = unsafe { <$ty as $crate::entry::Param>::from_caller($arg) };
            )*
            $crate::entry::enter(
                stringify!($name),
                || { let arguments: &[String] = &[$(format!(concat!(stringify!($arg), "={:?}"), $arg)),*]; arguments.join(" ") },
                |$call: &mut $crate::entry::Call<'_>| -> $crate::entry::Outcome { $body },
            )
        }
    )*};
}
pub(crate) use entry;

/// A parameter, as C passes it and as a body uses it.
pub(crate) trait Param: fmt::Debug {
    /// The type in cudarc's signature.
    type Sys;
    /// The type that is received: the same, or a number of the same size where the program may pass one that an enum does not have.
    type C;

    /// # Safety
    /// A pointer is null or good for what the type says, while the call runs.
    unsafe fn from_caller(value: Self::C) -> Self;
}

macro_rules! by_value {
    ($($ty:ty),*) => {$(
        impl Param for $ty {
            type Sys = $ty;
            type C = $ty;
            unsafe fn from_caller(value: $ty) -> $ty { value }
        }
    )*};
}

by_value!(
    c_uint,
    c_int,
    usize,
    c_ulonglong,
    u16,
    u8,
    *mut c_void,
    *const c_void,
    *const c_char,
    sys::CUcontext,
    sys::CUstream,
    sys::CUevent,
    sys::CUmemoryPool,
    sys::CUmodule,
    sys::CUfunction,
    sys::CUgraph,
    sys::CUgraphExec,
    sys::CUuserObject,
    sys::CUhostFn,
    sys::CUstreamCallback,
    sys::CUstreamCaptureMode,
    sys::CUmemPool_attribute,
    sys::CUdevice_attribute,
    sys::CUdevice_P2PAttribute,
    sys::CUmemAllocationGranularity_flags,
    sys::CUmem_advise
);

/// A result code, known or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code(pub(crate) u32);

impl Param for Code {
    type Sys = CUresult;
    type C = u32;
    unsafe fn from_caller(value: u32) -> Self {
        const { assert!(size_of::<CUresult>() == size_of::<u32>()) };
        Self(value)
    }
}

/// A pointer attribute, known or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointerAttribute(pub(crate) u32);

impl Param for PointerAttribute {
    type Sys = sys::CUpointer_attribute;
    type C = u32;
    unsafe fn from_caller(value: u32) -> Self {
        const { assert!(size_of::<sys::CUpointer_attribute>() == size_of::<u32>()) };
        Self(value)
    }
}

/// An array of pointer attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointerAttributes(pub(crate) *const u32);

impl Param for PointerAttributes {
    type Sys = *mut sys::CUpointer_attribute;
    type C = *mut u32;
    unsafe fn from_caller(value: *mut u32) -> Self {
        Self(value)
    }
}

/// A place where memory can be.
#[derive(Clone, Copy)]
pub(crate) struct Location(sys::CUmemLocation);

impl Param for Location {
    type Sys = sys::CUmemLocation;
    type C = sys::CUmemLocation;
    unsafe fn from_caller(value: sys::CUmemLocation) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.type_)
    }
}

/// `void**`: the addresses of a kernel's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamArray(pub(crate) *const *mut c_void);

impl Param for ParamArray {
    type Sys = *mut *mut c_void;
    type C = *mut *mut c_void;
    unsafe fn from_caller(value: *mut *mut c_void) -> Self {
        Self(value)
    }
}

/// A place for an answer: `T*` that the driver writes.
pub(crate) struct Out<T>(*mut T);

impl<T> Param for Out<T> {
    type Sys = *mut T;
    type C = *mut T;
    unsafe fn from_caller(value: *mut T) -> Self {
        Self(value)
    }
}

impl<T> Out<T> {
    /// A place whose type depends on another parameter. The caller's pointer is null or good for that type.
    pub(crate) fn from_pointer(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Writes the answer; a null place is the caller's error.
    pub(crate) fn set(&self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and so good for a write while the call runs, by `from_caller`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes element `index` of the caller's array.
    pub(crate) fn set_at(&self, index: usize, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's array has at least `index + 1` elements, by the count that came with it.
        let element = unsafe { self.0.add(index) };
        // SAFETY: an element of the caller's array is good for a write while the call runs.
        unsafe { element.write(value) };
        Ok(())
    }

    /// Writes the answer if it is asked for.
    pub(crate) fn offer(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and so good for a write while the call runs, by `from_caller`.
            unsafe { self.0.write(value) };
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// The value that the caller left in an in-out parameter.
    pub(crate) fn get(&self) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and so good for a read while the call runs, by `from_caller`.
        Ok(unsafe { self.0.read() })
    }

    /// Element `index` of an in-out array.
    pub(crate) fn at(&self, index: usize) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's array has at least `index + 1` elements, by the count that came with it.
        let element = unsafe { self.0.add(index) };
        // SAFETY: an element of the caller's array is good for a read while the call runs.
        Ok(unsafe { element.read() })
    }
}

impl<T> fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_null() { "null" } else { "out" })
    }
}

/// `const T*`: one value or an array that the driver reads.
pub(crate) struct In<T>(*const T);

impl<T> Param for In<T> {
    type Sys = *const T;
    type C = *const T;
    unsafe fn from_caller(value: *const T) -> Self {
        Self(value)
    }
}

impl<T: Copy> In<T> {
    /// A value whose type depends on another parameter. The caller's pointer is null or good for that type.
    pub(crate) fn from_pointer(pointer: *const T) -> Self {
        Self(pointer)
    }

    pub(crate) fn get(&self) -> Result<T, CUresult> {
        self.at(0)
    }

    /// Element `index` of the caller's array.
    pub(crate) fn at(&self, index: usize) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's array has at least `index + 1` elements, by the count or terminator that came with it.
        let element = unsafe { self.0.add(index) };
        // SAFETY: an element of the caller's array is good for a read while the call runs.
        Ok(unsafe { element.read() })
    }
}

impl<T> fmt::Debug for In<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// One call in progress. It holds the driver's lock, except while it waits.
pub(crate) struct Call<'a> {
    pub(crate) driver: &'a mut MutexGuard<'static, Driver>,
    pub(crate) function: &'static str,
    pub(crate) number: u64,
    pub(crate) who: Who,
}

impl Deref for Call<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut Driver {
        self.driver
    }
}

impl Call<'_> {
    /// This call, as work on `place`.
    pub(crate) fn site(&self, place: &Arc<str>) -> Arc<Site> {
        Arc::new(Site {
            call: self.number,
            function: self.function,
            place: Arc::clone(place),
        })
    }

    /// This call, as the host's doing.
    pub(crate) fn host_site(&self) -> Arc<Site> {
        let place = match self.who {
            Who::Program => format!("host thread {}", driver::thread()),
            Who::Reclaimer => "the reclaimer's thread".to_owned(),
        };
        self.site(&place.into())
    }

    /// A step of the calling thread, and what that thread knows.
    pub(crate) fn host_step(&mut self) -> (Epoch, Clock) {
        let driver = &mut **self.driver;
        match self.who {
            Who::Program => (driver.program.tick(PROGRAM), driver.program.clone()),
            Who::Reclaimer => (driver.reclaimer.tick(RECLAIMER), driver.reclaimer.clone()),
        }
    }

    /// The calling thread has waited for what `clock` knows.
    pub(crate) fn host_learns(&mut self, clock: &Clock) {
        match self.who {
            Who::Program => self.driver.program.join(clock),
            Who::Reclaimer => self.driver.reclaimer.join(clock),
        }
        self.driver.unprotect_finished();
    }

    /// Turns a handle that is no handle into the driver's error, and reports one that was destroyed.
    pub(crate) fn misused(
        &mut self,
        kind: &str,
        handle: impl fmt::Debug,
        misuse: Misuse,
    ) -> CUresult {
        if matches!(misuse, Misuse::Destroyed) {
            let site = self.host_site();
            self.reports.push(
                Kind::DestroyedHandle,
                format_args!("{site} uses the destroyed {kind} {handle:?}"),
            );
        }
        CUresult::CUDA_ERROR_INVALID_HANDLE
    }
}

/// Runs a call's body between the checks that all calls share.
pub(crate) fn enter(
    function: &'static str,
    arguments: impl FnOnce() -> String,
    body: impl FnOnce(&mut Call<'_>) -> Outcome,
) -> u32 {
    // A forked child must not touch the lock: another thread of the parent may hold it for ever.
    if driver::forked() {
        driver::report_forked(function);
        return CUresult::CUDA_ERROR_NOT_INITIALIZED as u32;
    }
    let _inside = crate::fault::Inside::enter();
    let mut guard = driver::lock();
    if driver::in_host_function() {
        guard.reports.push(
            Kind::HostFunctionCall,
            format_args!("{function} is called by a host function; none may call the driver"),
        );
        return CUresult::CUDA_ERROR_NOT_PERMITTED as u32;
    }
    let who = driver::who(&guard.config);
    let number = guard.log.begin(function, who);
    if who == Who::Reclaimer {
        let driver = &mut *guard;
        driver.reclaimer.join(&driver.program);
    }
    let arguments = if guard.log.enabled() {
        arguments()
    } else {
        String::new()
    };
    let code = match admit(&mut guard, function) {
        Err(code) => code,
        Ok(()) => match body(&mut Call {
            driver: &mut guard,
            function,
            number,
            who,
        }) {
            Ok(()) => 0,
            Err(error) => error as u32,
        },
    };
    guard
        .log
        .end(number, function, who, &arguments, &code.to_string());
    code
}

/// What refuses a call before it is looked at: a planted error, a driver that isn't initialised, a context that is broken.
fn admit(driver: &mut Driver, function: &'static str) -> Result<(), u32> {
    if let Some(code) = driver.config.injections.failure(function) {
        if code == CUresult::CUDA_ERROR_DEINITIALIZED as u32 {
            driver.dead = true;
        } else if let Some(error) = lasting(code) {
            driver.break_context(driver::current_context(), error);
        }
        return Err(code);
    }
    if driver.dead && function != "cuGetErrorName" && function != "cuGetErrorString" {
        return Err(CUresult::CUDA_ERROR_DEINITIALIZED as u32);
    }
    if !driver.initialised && !BEFORE_INIT.contains(&function) {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED as u32);
    }
    if !WITHOUT_CONTEXT
        .iter()
        .any(|prefix| function.starts_with(prefix))
        && let Ok(context) = driver.contexts.get(driver::current_context())
        && let Some(error) = context.error
    {
        return Err(error as u32);
    }
    Ok(())
}

/// The error behind a code, if it is one after which a context can't be used ("the context must be destroyed").
fn lasting(code: u32) -> Option<CUresult> {
    use CUresult as E;
    let errors = [
        E::CUDA_ERROR_ECC_UNCORRECTABLE,
        E::CUDA_ERROR_ILLEGAL_ADDRESS,
        E::CUDA_ERROR_LAUNCH_TIMEOUT,
        E::CUDA_ERROR_ASSERT,
        E::CUDA_ERROR_HARDWARE_STACK_ERROR,
        E::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        E::CUDA_ERROR_MISALIGNED_ADDRESS,
        E::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        E::CUDA_ERROR_INVALID_PC,
        E::CUDA_ERROR_LAUNCH_FAILED,
    ];
    errors.into_iter().find(|&error| error as u32 == code)
}
