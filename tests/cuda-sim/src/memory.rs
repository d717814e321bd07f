//! Allocations: addresses that the host can't touch and that are never used again, and the bytes behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_uint;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUmemoryPool, CUresult};

use crate::clock::{Clock, PROGRAM};
use crate::driver::Driver;
use crate::entry::{Call, Out, Outcome, entry};
use crate::report::{Kind, Site};
use crate::shadow::Access;

/// Bytes of address space that are set aside. Nothing is mapped there but host-accessible memory, so that a host touch of the rest faults.
const ARENA: usize = 1 << 43;
/// Bytes after an allocation that belong to none.
pub(crate) const GUARD: u64 = 4096;
/// "Any address returned by one of the memory allocation routines is always aligned to at least 256 bytes."
pub(crate) const ALIGNMENT: u64 = 256;
/// Bytes of a host page.
pub(crate) const PAGE: u64 = 4096;
/// What uninitialised and freed bytes look like.
const POISON: u8 = 0xDB;

/// Bytes, as the driver itself reaches them.
#[derive(Debug)]
pub(crate) struct Backing {
    pointer: *mut u8,
    len: usize,
    /// Mapped a second time from a file, not from the heap.
    shared: bool,
}

impl Backing {
    /// Bytes that only the driver can reach.
    pub(crate) fn private(len: usize) -> Self {
        let bytes = vec![POISON; len].into_boxed_slice();
        Self {
            pointer: Box::into_raw(bytes).cast(),
            len,
            shared: false,
        }
    }

    /// A second mapping of a file's first bytes.
    fn shared(file: i32, len: usize) -> Option<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let pointer = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file,
                0,
            )
        };
        (pointer != libc::MAP_FAILED).then(|| Self {
            pointer: pointer.cast(),
            len,
            shared: true,
        })
    }

    /// Memory of the program's own.
    pub(crate) fn borrowed(pointer: *mut u8) -> Self {
        Self {
            pointer,
            len: 0,
            shared: false,
        }
    }

    /// Where byte `offset` is.
    fn at(&self, offset: usize) -> *mut u8 {
        self.pointer.wrapping_add(offset)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if self.shared {
            // SAFETY: `shared` made this mapping of `len` bytes, and nothing refers to it once its last owner is dropped.
            unsafe { libc::munmap(self.pointer.cast(), self.len) };
        } else if self.len != 0 {
            let slice = std::ptr::slice_from_raw_parts_mut(self.pointer, self.len);
            // SAFETY: `private` made this box of `len` bytes; borrowed memory has length 0.
            drop(unsafe { Box::from_raw(slice) });
        }
    }
}

/// What kind of memory a mapping is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MappingKind {
    /// `cuMemAlloc`, or a pool's.
    Device,
    /// `cuMemHostAlloc`: page-locked, reached by the host and every device.
    Pinned,
    /// The program's own memory, page-locked by `cuMemHostRegister`.
    Registered,
    Managed,
    /// `cuMemMap`: reached by the devices that `cuMemSetAccess` names.
    Virtual {
        access: BTreeSet<usize>,
    },
}

/// An allocation, or one mapping of a reserved range.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: MappingKind,
    pub(crate) device: usize,
    pub(crate) context: CUcontext,
    /// The pool that it came from.
    pub(crate) pool: Option<CUmemoryPool>,
    /// Bytes that count against the device's memory.
    pub(crate) taken: usize,
    pub(crate) backing: Rc<Backing>,
    pub(crate) offset: usize,
    /// What had happened before it was allocated, and the allocation.
    pub(crate) born: Clock,
    /// The call that freed it; the free itself may still be queued.
    pub(crate) freed: Option<Arc<Site>>,
    pub(crate) site: Arc<Site>,
    pub(crate) id: u64,
    /// Flags of a host allocation.
    pub(crate) flags: c_uint,
}

impl Mapping {
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether the host can touch it.
    pub(crate) fn host_accessible(&self) -> bool {
        matches!(
            self.kind,
            MappingKind::Pinned | MappingKind::Managed | MappingKind::Registered
        )
    }
}

/// All memory of the driver.
#[derive(Debug)]
pub(crate) struct Memory {
    arena: Range<u64>,
    next: u64,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    /// Freed ranges and who freed them.
    tombstones: BTreeMap<u64, (u64, Arc<Site>)>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let pointer =
            unsafe { libc::mmap(std::ptr::null_mut(), ARENA, libc::PROT_NONE, flags, -1, 0) };
        assert!(
            pointer != libc::MAP_FAILED,
            "cuda-sim: no address space for device memory"
        );
        let start = pointer.addr() as u64;
        Self {
            arena: start..start + ARENA as u64,
            next: start + GUARD,
            mappings: BTreeMap::new(),
            tombstones: BTreeMap::new(),
        }
    }

    /// Addresses that were never used before. `alignment` is a power of two.
    pub(crate) fn addresses(&mut self, len: u64, alignment: u64) -> Result<Range<u64>, CUresult> {
        let start = self.next.next_multiple_of(alignment);
        let end = start
            .checked_add(len)
            .filter(|&end| end.saturating_add(GUARD) < self.arena.end)
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.next = end + GUARD;
        Ok(start..end)
    }

    /// Leaves addresses out, so that alignment is what is promised and no more.
    fn skip(&mut self, bytes: u64) {
        self.next += bytes;
    }

    /// Whether an address is one of the driver's own making.
    pub(crate) fn in_arena(&self, address: u64) -> bool {
        self.arena.contains(&address)
    }

    /// The mapping that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Mapping> {
        self.before(address).filter(|mapping| address < mapping.end)
    }

    pub(crate) fn find_mut(&mut self, address: u64) -> Option<&mut Mapping> {
        self.mappings
            .range_mut(..=address)
            .next_back()
            .map(|(_, mapping)| mapping)
            .filter(|mapping| address < mapping.end)
    }

    /// The last mapping that starts at or before an address.
    pub(crate) fn before(&self, address: u64) -> Option<&Mapping> {
        self.mappings
            .range(..=address)
            .next_back()
            .map(|(_, mapping)| mapping)
    }

    /// Who freed an address.
    pub(crate) fn tombstone(&self, address: u64) -> Option<Arc<Site>> {
        let (_, (end, site)) = self.tombstones.range(..=address).next_back()?;
        (address < *end).then(|| Arc::clone(site))
    }

    /// The bytes of a range, as the driver reaches them, piece by piece; null where they are gone.
    pub(crate) fn pieces(&self, range: Range<u64>) -> Vec<(*mut u8, usize)> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (pointer, end) = match self.find(at) {
                Some(mapping) => {
                    let offset = usize::try_from(at - mapping.start).unwrap_or(usize::MAX);
                    (
                        mapping.backing.at(mapping.offset + offset),
                        mapping.end.min(range.end),
                    )
                }
                None => {
                    let next = self
                        .mappings
                        .range(at..)
                        .next()
                        .map_or(range.end, |(&start, _)| start.min(range.end));
                    (std::ptr::null_mut(), next)
                }
            };
            pieces.push((pointer, usize::try_from(end - at).unwrap_or(usize::MAX)));
            at = end;
        }
        pieces
    }

    /// Reads a range; what was freed reads as poison.
    pub(crate) fn read(&self, range: Range<u64>, into: &mut [u8]) {
        let mut at = 0;
        for (pointer, len) in self.pieces(range) {
            let Some(target) = into.get_mut(at..at + len) else {
                return;
            };
            if pointer.is_null() {
                target.fill(POISON);
            } else {
                // SAFETY: `pieces` gives `len` living bytes of a mapping's backing, and `target` is memory of the simulator's own.
                unsafe { pointer.copy_to_nonoverlapping(target.as_mut_ptr(), len) };
            }
            at += len;
        }
    }

    /// Writes a range; what was freed is left alone.
    pub(crate) fn write(&self, range: Range<u64>, from: &[u8]) {
        let mut at = 0;
        for (pointer, len) in self.pieces(range) {
            let Some(source) = from.get(at..at + len) else {
                return;
            };
            if !pointer.is_null() {
                // SAFETY: `pieces` gives `len` living bytes of a mapping's backing, and `source` is memory of the simulator's own.
                unsafe { pointer.copy_from_nonoverlapping(source.as_ptr(), len) };
            }
            at += len;
        }
    }

    /// Maps a file's bytes for host and driver: at an address of the arena, and elsewhere for the driver alone.
    pub(crate) fn share(&mut self, len: u64) -> Result<(Range<u64>, Backing), CUresult> {
        let size = usize::try_from(len.next_multiple_of(PAGE))
            .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let range = self.addresses(size as u64, PAGE)?;
        // SAFETY: the name is a C string, and the call gives a new file or −1.
        let file = unsafe { libc::memfd_create(c"cuda-sim".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: growing our own new file; a bad descriptor is an error.
        let sized = unsafe { libc::ftruncate(file, size as libc::off_t) } == 0;
        let backing = if sized {
            Backing::shared(file, size)
        } else {
            None
        };
        let mapped = backing.is_some() && {
            let address = std::ptr::with_exposed_provenance_mut(range.start as usize);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: the range was just taken from the arena, which is ours and holds nothing there.
            unsafe {
                libc::mmap(
                    address,
                    size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    file,
                    0,
                ) != libc::MAP_FAILED
            }
        };
        // SAFETY: our own descriptor; the mappings keep the file.
        unsafe { libc::close(file) };
        match backing {
            Some(backing) if mapped => Ok((range.start..range.start + len, backing)),
            _ => Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        }
    }

    /// Takes host memory back: its addresses fault from now on.
    fn unshare(&self, range: Range<u64>) {
        let size = usize::try_from((range.end - range.start).next_multiple_of(PAGE)).unwrap_or(0);
        let address = std::ptr::with_exposed_provenance_mut(range.start as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range is one that `share` mapped into our arena and that the program has freed.
        unsafe { libc::mmap(address, size, libc::PROT_NONE, flags, -1, 0) };
    }

    /// Ends a mapping.
    fn bury(&mut self, address: u64, site: Arc<Site>) -> Option<Mapping> {
        let mapping = self.mappings.remove(&address)?;
        if matches!(mapping.kind, MappingKind::Pinned | MappingKind::Managed) {
            self.unshare(mapping.range());
        }
        self.tombstones.insert(mapping.start, (mapping.end, site));
        Some(mapping)
    }

    /// Forgets that a range was freed: its addresses are used again, which only reserved ranges are.
    pub(crate) fn exhume(&mut self, range: &Range<u64>) {
        while let Some((&start, _)) = self
            .tombstones
            .range(..range.end)
            .next_back()
            .filter(|(_, (end, _))| *end > range.start)
        {
            self.tombstones.remove(&start);
        }
    }
}

impl Driver {
    /// Takes bytes of a device's memory.
    pub(crate) fn take(&mut self, device: usize, bytes: usize) -> Outcome {
        for attempt in 0..3 {
            let device = self.device_at_mut(device)?;
            if device.taken + bytes <= device.total {
                device.taken += bytes;
                device.peak = device.peak.max(device.taken);
                return Ok(());
            }
            // What pools hold idle, and what queued frees will give, is there for others.
            match attempt {
                0 => self.empty_pools(),
                _ => {
                    self.run_all();
                    self.empty_pools();
                }
            }
        }
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    pub(crate) fn give_back(&mut self, device: usize, bytes: usize) {
        if let Ok(device) = self.device_at_mut(device) {
            device.taken = device.taken.saturating_sub(bytes);
        }
    }

    /// Adds a mapping and lets the allocation be the first write of its bytes.
    pub(crate) fn adopt(&mut self, mapping: Mapping, access: &Access) {
        let clock = mapping.born.clone();
        self.memory.exhume(&mapping.range());
        self.shadow.access(mapping.range(), access, &clock);
        self.memory.mappings.insert(mapping.start, mapping);
    }

    /// Addresses for device memory.
    pub(crate) fn device_addresses(&mut self, len: usize) -> Result<Range<u64>, CUresult> {
        let odd = self.rng.u64(0..4) * ALIGNMENT;
        self.memory.skip(odd);
        self.memory.addresses(len as u64, ALIGNMENT)
    }

    /// Gives an allocation's bytes back: what a free does when it runs.
    pub(crate) fn release(&mut self, address: u64) {
        let site = self.memory.mappings.get(&address).map(|mapping| {
            mapping
                .freed
                .clone()
                .unwrap_or_else(|| Arc::clone(&mapping.site))
        });
        let Some(mapping) = site.and_then(|site| self.memory.bury(address, site)) else {
            return;
        };
        match mapping.pool {
            Some(pool) => self.return_to_pool(pool, &mapping),
            None => self.give_back(mapping.device, mapping.taken),
        }
        self.in_flight
            .retain(|flight| !mapping.range().contains(&flight.range.start));
    }

    /// Ends the memory of a context that ends.
    pub(crate) fn release_context_memory(&mut self, context: CUcontext) {
        let mappings = self.memory.mappings.values();
        let gone: Vec<_> = mappings
            .filter(|mapping| {
                mapping.context == context
                    && mapping.pool.is_none()
                    && mapping.kind == MappingKind::Device
            })
            .map(|mapping| mapping.start)
            .collect();
        for address in gone {
            self.release(address);
        }
    }

    /// What has happened before a free that is planted to run early: the allocation and the program's own calls, nothing that was waited for.
    pub(crate) fn early_clock(&self, born: &Clock) -> Clock {
        let mut clock = born.clone();
        let mut program = self.program.clone();
        clock.learn(program.tick(PROGRAM));
        clock
    }
}

impl Call<'_> {
    /// The allocation that starts at an address, to be freed.
    pub(crate) fn allocation_to_free(
        &mut self,
        address: u64,
        fits: impl Fn(&MappingKind) -> bool,
    ) -> Result<(Range<u64>, Clock), CUresult> {
        let site = self.host_site();
        let driver = &mut **self.driver;
        let freed = match driver.memory.mappings.get(&address) {
            Some(mapping) if mapping.freed.is_none() && fits(&mapping.kind) => {
                return Ok((mapping.range(), mapping.born.clone()));
            }
            Some(mapping) => mapping.freed.clone(),
            None => driver
                .memory
                .tombstones
                .get(&address)
                .map(|(_, site)| Arc::clone(site)),
        };
        match freed {
            Some(freed) => driver.reports.push(
                Kind::DoubleFree,
                format_args!("{site} frees {address:#x}, which was freed by {freed}"),
            ),
            None => driver.reports.push(
                Kind::UnknownAddress,
                format_args!("{site} frees {address:#x}, which is no allocation of that kind"),
            ),
        }
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Frees memory now, from the host: whatever still uses it must have been waited for.
    pub(crate) fn free_now(
        &mut self,
        address: u64,
        fits: impl Fn(&MappingKind) -> bool,
    ) -> Outcome {
        self.refuse_unsafe_call()?;
        let (range, born) = self.allocation_to_free(address, fits)?;
        let site = self.host_site();
        let (epoch, mut clock) = self.host_step();
        let function = self.function;
        if self.config.injections.early(function) {
            clock = self.early_clock(&born);
        }
        self.mark_freed(
            range,
            &Access {
                epoch,
                write: true,
                site,
            },
            &clock,
        );
        self.release(address);
        Ok(())
    }

    /// Checks a free against all earlier accesses, and makes later ones uses after it.
    pub(crate) fn mark_freed(&mut self, range: Range<u64>, access: &Access, clock: &Clock) {
        self.check_one(access, clock, &range, Kind::UseAfterFree);
        self.shadow.forget(range.clone());
        if let Some(mapping) = self.memory.find_mut(range.start) {
            mapping.freed = Some(Arc::clone(&access.site));
        }
    }

    /// Makes a mapping of memory that the host allocates.
    pub(crate) fn host_allocation(
        &mut self,
        range: Range<u64>,
        kind: MappingKind,
        taken: usize,
        backing: Backing,
        flags: c_uint,
    ) -> Outcome {
        let (context, device) = self
            .current()
            .map(|(handle, context)| (handle, context.device))?;
        let site = self.host_site();
        let (epoch, born) = self.host_step();
        let id = self.fresh_id();
        let access = Access {
            epoch,
            write: true,
            site: Arc::clone(&site),
        };
        let mapping = Mapping {
            start: range.start,
            end: range.end,
            kind,
            device,
            context,
            pool: None,
            taken,
            backing: Rc::new(backing),
            offset: 0,
            born,
            freed: None,
            site,
            id,
            flags,
        };
        self.adopt(mapping, &access);
        Ok(())
    }

    fn allocate(&mut self, out: &Out<CUdeviceptr>, bytes: usize) -> Outcome {
        let device = self.current_device()?;
        self.refuse_unsafe_call()?;
        if bytes == 0 || out.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.take(device, bytes)?;
        let range = self.device_addresses(bytes)?;
        self.host_allocation(
            range.clone(),
            MappingKind::Device,
            bytes,
            Backing::private(bytes),
            0,
        )?;
        out.set(range.start)
    }
}

entry! {
    fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytesize: usize) |call| {
        call.allocate(&dptr, bytesize)
    }
    fn cuMemFree_v2(dptr: CUdeviceptr) |call| {
        call.free_now(dptr, |kind| matches!(kind, MappingKind::Device | MappingKind::Managed))
    }
    fn cuMemGetAddressRange_v2(pbase: Out<CUdeviceptr>, psize: Out<usize>, dptr: CUdeviceptr) |call| {
        let Some(mapping) = call.memory.find(dptr) else { return Err(CUresult::CUDA_ERROR_NOT_FOUND) };
        pbase.offer(mapping.start);
        psize.offer(usize::try_from(mapping.end - mapping.start).unwrap_or(usize::MAX));
        Ok(())
    }
}
