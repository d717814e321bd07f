//! Host memory that a device uses is protected until the work is known to be done, and a host touch of what it must not touch is reported.

use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use crate::checker::Touch;
use crate::clock::Epoch;
use crate::driver::{self, Driver};
use crate::memory::{MappingKind, PAGE};
use crate::report::Kind;

/// A range of host memory that queued work uses.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) range: Range<u64>,
    write: bool,
    epoch: Epoch,
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The handler that was there before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// While it lives, the calling thread is in the simulator, and a fault is the simulator's own.
pub(crate) struct Inside(bool);

impl Inside {
    pub(crate) fn enter() -> Self {
        Self(INSIDE.replace(true))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// Pages that hold a range.
fn pages(range: &Range<u64>) -> Range<u64> {
    range.start - range.start % PAGE..range.end.next_multiple_of(PAGE)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Sets what the host may do with pages.
fn set(pages: &Range<u64>, protection: i32) {
    let address = ptr::with_exposed_provenance_mut(pages.start as usize);
    // SAFETY: the pages belong to host memory that the simulator mapped into its arena.
    unsafe { libc::mprotect(address, (pages.end - pages.start) as usize, protection) };
}

impl Driver {
    /// Keeps the host from memory that queued work uses: from reading what it writes, from writing what it reads.
    pub(crate) fn protect(&mut self, touch: &Touch, epoch: Epoch) {
        let mapping = self.memory.find(touch.range.start);
        if touch.range.is_empty()
            || !mapping.is_some_and(|mapping| {
                matches!(mapping.kind, MappingKind::Pinned | MappingKind::Managed)
            })
        {
            return;
        }
        self.in_flight.push(InFlight {
            range: touch.range.clone(),
            write: touch.write,
            epoch,
        });
        self.set_protection(&pages(&touch.range));
    }

    /// Lets the host at memory again whose work somebody has waited for.
    pub(crate) fn unprotect_finished(&mut self) {
        let clocks = [&self.program, &self.reclaimer, &self.host_functions];
        let finished =
            |flight: &mut InFlight| clocks.iter().any(|clock| clock.covers(flight.epoch));
        let finished: Vec<_> = self.in_flight.extract_if(.., finished).collect();
        for flight in finished {
            self.set_protection(&pages(&flight.range));
        }
    }

    fn set_protection(&self, span: &Range<u64>) {
        let flights: Vec<_> = self
            .in_flight
            .iter()
            .map(|flight| (pages(&flight.range), flight.write))
            .filter(|(pages, _)| overlap(pages, span))
            .collect();
        let mut cuts: Vec<u64> = flights
            .iter()
            .flat_map(|(pages, _)| [pages.start, pages.end])
            .chain([span.start, span.end])
            .collect();
        cuts.retain(|cut| (span.start..=span.end).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        for cut in cuts.windows(2) {
            let &[start, end] = cut else { continue };
            let part = start..end;
            let over = || flights.iter().filter(|(pages, _)| overlap(pages, &part));
            let protection = if over().any(|&(_, write)| write) {
                libc::PROT_NONE
            } else if over().next().is_some() {
                libc::PROT_READ
            } else {
                libc::PROT_READ | libc::PROT_WRITE
            };
            set(&part, protection);
        }
    }

    /// Judges a host access that faulted. Returns whether the access may go on.
    fn host_touch(&mut self, address: u64, write: bool) -> bool {
        let verb = if write { "writes" } else { "reads" };
        let thread = driver::thread();
        let Some(mapping) = self.memory.find(address) else {
            match self.memory.tombstone(address) {
                Some(site) => self.reports.push(
                    Kind::UseAfterFree,
                    format_args!(
                        "host thread {thread} {verb} {address:#x}, which was freed by {site}"
                    ),
                ),
                None => self.reports.push(
                    Kind::HostTouch,
                    format_args!("host thread {thread} {verb} {address:#x}, which is no memory"),
                ),
            }
            return false;
        };
        if !mapping.host_accessible() {
            let range = mapping.range();
            let text = format!(
                "host thread {thread} {verb} {address:#x} in the device memory {range:#x?}"
            );
            self.reports.push(Kind::HostTouch, text);
            return false;
        }
        let used = self
            .in_flight
            .iter()
            .find(|flight| flight.range.contains(&address) && (write || flight.write));
        if let Some(flight) = used {
            let doing = if flight.write { "written" } else { "read" };
            let text = format!(
                "host thread {thread} {verb} {address:#x} while {:#x?} is {doing} by work that nobody has waited for",
                flight.range
            );
            self.reports.push(Kind::HostTouch, text);
        }
        let page = pages(&(address..address + 1));
        self.in_flight
            .retain(|flight| !overlap(&pages(&flight.range), &page));
        set(&page, libc::PROT_READ | libc::PROT_WRITE);
        true
    }
}

/// Installs the handler for host touches.
pub(crate) fn watch() {
    if BEFORE.get().is_some() {
        return;
    }
    // SAFETY: all-zero is a valid `sigaction`.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut action = before;
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: both point to `sigaction`s, and the handler has the signature that SA_SIGINFO asks for.
    unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before) };
    let _ = BEFORE.set(before);
}

/// The handler. A fault comes from the very instruction that touched the memory, so unlike for other signals taking a lock is safe: the thread is in the
/// program's code, not in the simulator's (`INSIDE`), nor in an allocator that the simulator uses.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo.
    let info = unsafe { &*info };
    // SAFETY: for SIGSEGV its address is set.
    let address = unsafe { info.si_addr() }.addr() as u64;
    let write = faulting_write(context);
    if !INSIDE.get() && !driver::forked() {
        let _inside = Inside::enter();
        let mut driver = driver::lock();
        if driver.memory.in_arena(address) && driver.host_touch(address, write) {
            return;
        }
    }
    // Somebody else's fault, or one that hardware would not survive: the access runs again, under the handler that was there before.
    if let Some(before) = BEFORE.get() {
        // SAFETY: `before` is what `sigaction` gave.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
}

/// Whether the access that faulted was a write.
fn faulting_write(context: *mut libc::c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: with SA_SIGINFO the kernel passes the interrupted thread's `ucontext_t`.
        let error = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
        error & 2 != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        true
    }
}
