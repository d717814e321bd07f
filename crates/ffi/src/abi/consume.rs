//! Taking a list out of a capsule.

use std::ffi::c_void;
use std::iter;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use hurray_core::composite::Assembler;
use hurray_core::{CompositeError, DeviceTag, MemoryClass, SyncMode, TensorDescriptor};
use smallvec::SmallVec;
use thiserror::Error;

use super::foreign::{ForeignList, Functions, Slot};
use super::status::Failure;
use super::{
    HURRAY_C_ABI_VERSION, HurrayApi, HurrayBuffer, HurrayBufferInfo, HurrayBufferList,
    HurrayBufferSync, HurrayCapsuleContext, TABLE,
};
use crate::buffer::Region;
use crate::lent::{EventRelease, Lent, LentEvent};
use crate::list::Handle;
use crate::{
    Buffer, BufferFlags, BufferList, Composite, Item, Owner, Place, Tensor, TensorError, device,
    tensor,
};

/// A capsule that cannot be consumed. It keeps its list.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConsumeError {
    /// No list.
    #[error("the capsule's pointer is NULL")]
    NullList,
    /// No context.
    #[error("the capsule's context is NULL")]
    NullContext,
    /// Another version of the ABI.
    #[error("the capsule is of ABI version {found}, this library speaks {HURRAY_C_ABI_VERSION}")]
    Version {
        /// The capsule's version.
        found: u32,
    },
    /// A context that is shorter than version 3 has it.
    #[error(
        "the capsule's context has {found} bytes, version {HURRAY_C_ABI_VERSION} needs {needed}"
    )]
    ShortContext {
        /// Its size.
        found: u32,
        /// The size of version 3.
        needed: usize,
    },
    /// A table that is NULL, too short, of another version, or without one of the functions.
    #[error("the producer's table cannot be used: {reason}")]
    Table {
        /// What is wrong with it.
        reason: String,
    },
    /// A list that begins with another table than its context names.
    #[error("the list begins with another function table than its context names")]
    OtherTable,
    /// A descriptor that does not decode, or a composite that its members do not make.
    #[error(transparent)]
    Descriptor(hurray_core::Error),
    /// No descriptor where there should be one.
    #[error("the context's descriptor is NULL, or its {len} bytes do not fit the address space")]
    NoDescriptor {
        /// Bytes that it states.
        len: u64,
    },
    /// Bytes after the descriptors.
    #[error("the context has {len} descriptor bytes, its descriptors end after {used}")]
    TrailingBytes {
        /// Bytes that the descriptors take.
        used: usize,
        /// Bytes that the context states.
        len: usize,
    },
    /// A list of another length than the descriptors' tables.
    #[error("the list has {found} buffers, its descriptor {expected}")]
    ListLength {
        /// Buffers of the list.
        found: u64,
        /// Rows of all descriptors.
        expected: usize,
    },
    /// The list cannot say how long it is.
    #[error("{reason}")]
    Producer {
        /// Function, status and the producer's text.
        reason: String,
    },
    /// One of the producer's functions failed for a buffer.
    #[error("buffer {buffer}: {reason}")]
    Buffer {
        /// The buffer's index in the list.
        buffer: usize,
        /// Function, status and the producer's text.
        reason: String,
    },
    /// A buffer that was let go before.
    #[error("buffer {buffer} of the list has been let go")]
    Released {
        /// The buffer's index in the list.
        buffer: usize,
    },
    /// A producer's answer that cannot be.
    #[error("buffer {buffer}: the producer says {field} {value:#04x}, which does not exist")]
    Byte {
        /// The buffer's index in the list.
        buffer: usize,
        /// Which byte.
        field: &'static str,
        /// What it is.
        value: u8,
    },
    /// A descriptor and buffers that make no tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Takes the list of a capsule, after the checks of `docs/c-abi.md` in its order: context, version, sizes, table, descriptor, list length, and then each
/// descriptor and its buffers as for any tensor. Nothing past a size that the producer states is read; nothing past the version if it is not 3.
///
/// On success the list is this library's, and the context must not be used any more. On failure both are as they were: whoever claimed the capsule gives
/// its name back.
///
/// # Safety
/// * `list` and `context` are those of one capsule of the name `hurray_buffer`, claimed by the caller: nobody else consumes or destroys the list.
/// * They are NULL, or what a producer of the version that the context states puts there.
///
/// # Errors
/// The first check that fails.
pub unsafe fn consume(
    list: *mut HurrayBufferList,
    context: *const HurrayCapsuleContext,
) -> Result<Item, ConsumeError> {
    let list = NonNull::new(list).ok_or(ConsumeError::NullList)?;
    // SAFETY: NULL, or a producer's context.
    let facts = unsafe { read_context(context) }?;
    let is_own = ptr::eq(facts.api, &raw const TABLE);
    let functions = if is_own {
        None
    } else {
        // SAFETY: the version is ours, so the table is NULL or as long as it says.
        Some(
            unsafe { Functions::read(facts.api) }.map_err(|failure| ConsumeError::Table {
                reason: failure.to_string(),
            })?,
        )
    };
    // SAFETY: the version is ours, so the list is live and begins with its table.
    let head = unsafe { list.cast::<*const HurrayApi>().read_unaligned() };
    if !ptr::eq(head, facts.api) {
        return Err(ConsumeError::OtherTable);
    }
    let Some(functions) = functions else {
        // SAFETY: our table stands before our lists only, and this one is the caller's to give.
        let own = unsafe { BufferList::from_raw(list) };
        // A list that is refused stays the capsule's.
        return consume_own(own, context, &facts).map_err(|(list, error)| {
            let _ = list.into_raw();
            error
        });
    };

    let plan = Plan::read(facts.descriptor()?)?;
    // SAFETY: the list is live, and the functions are its producer's.
    let entries = unsafe { read_list(list, &functions, plan.buffer_count()) }?;
    plan.check(entries.iter().map(|entry| &entry.region))?;
    for (buffer, entry) in entries.iter().enumerate() {
        device::check(&entry.region).map_err(|error| TensorError::Buffer {
            buffer,
            source: error.into(),
        })?;
    }

    // SAFETY: the list is the caller's to give; nothing fails from here on.
    let foreign = Arc::new(unsafe { ForeignList::new(list, functions) });
    let buffers = entries
        .into_iter()
        .zip(0..)
        .map(|(entry, index)| entry.into_buffer(&foreign, index));
    Ok(plan.into_item(buffers))
}

/// Whether [`consume`] would call functions of this library only, and so no foreign code.
///
/// # Safety
/// `context` is NULL or a live context of the version that it states.
#[must_use]
pub unsafe fn is_own(context: *const HurrayCapsuleContext) -> bool {
    // SAFETY: the caller's word.
    unsafe { read_context(context) }.is_ok_and(|facts| ptr::eq(facts.api, &raw const TABLE))
}

/// Consumes a list of this build: its buffers are moved out with their owners.
fn consume_own(
    list: BufferList,
    context: *const HurrayCapsuleContext,
    facts: &Context,
) -> Result<Item, (BufferList, ConsumeError)> {
    let released = |list: BufferList| {
        let buffer = list.handles().iter().position(Handle::is_released);
        let buffer = buffer.unwrap_or_default();
        (list, ConsumeError::Released { buffer })
    };
    if ptr::eq(list.context().as_ptr(), context)
        && let Some(descriptor) = list.descriptor()
    {
        // `Tensor::new` has checked this descriptor against these buffers, and neither ever changes.
        let descriptor = Arc::clone(descriptor);
        let buffers = list.into_buffers().map_err(released)?;
        return Ok(Item::Tensor(Tensor::from_checked(descriptor, buffers)));
    }
    let plan = match facts.descriptor().and_then(Plan::read).and_then(|plan| {
        check_len(list.len() as u64, plan.buffer_count())?;
        plan.check(list.handles().iter().map(|handle| &handle.region))?;
        Ok(plan)
    }) {
        Ok(plan) => plan,
        Err(error) => return Err((list, error)),
    };
    let buffers = list.into_buffers().map_err(released)?;
    Ok(plan.into_item(buffers.into_iter()))
}

/// A context of our version.
struct Context {
    descriptor: *const u8,
    descriptor_len: u64,
    api: *const HurrayApi,
}

impl Context {
    /// The descriptors' bytes.
    fn descriptor(&self) -> Result<&[u8], ConsumeError> {
        let len = usize::try_from(self.descriptor_len)
            .ok()
            .filter(|&len| len <= isize::MAX.unsigned_abs() && !self.descriptor.is_null())
            .ok_or(ConsumeError::NoDescriptor {
                len: self.descriptor_len,
            })?;
        // SAFETY: `read_context`'s caller says that the context of our version is true, and the bytes stay until the list is destroyed, which is
        // not before the last use of this value.
        Ok(unsafe { slice::from_raw_parts(self.descriptor, len) })
    }
}

/// Reads a context: its version first, then its size, then the rest.
///
/// # Safety
/// `context` is NULL or a live context of the version that it states.
unsafe fn read_context(context: *const HurrayCapsuleContext) -> Result<Context, ConsumeError> {
    if context.is_null() {
        return Err(ConsumeError::NullContext);
    }
    // SAFETY: every version begins with its number.
    let found = unsafe { context.cast::<u32>().read_unaligned() };
    if found != HURRAY_C_ABI_VERSION {
        return Err(ConsumeError::Version { found });
    }
    let struct_size = context.wrapping_byte_add(offset_of!(HurrayCapsuleContext, struct_size));
    // SAFETY: in version 3 the size follows.
    let found = unsafe { struct_size.cast::<u32>().read_unaligned() };
    let needed = size_of::<HurrayCapsuleContext>();
    if (found as usize) < needed {
        return Err(ConsumeError::ShortContext { found, needed });
    }
    // SAFETY: the context has at least this many bytes.
    let context = unsafe { context.read_unaligned() };
    Ok(Context {
        descriptor: context.descriptor,
        descriptor_len: context.descriptor_len,
        api: context.api,
    })
}

/// What the descriptors of a capsule make of its buffers: an item without them.
enum Plan {
    Tensor(Arc<TensorDescriptor>),
    Composite {
        head: Arc<TensorDescriptor>,
        /// Everything inside it, in stream order.
        inside: Vec<Arc<TensorDescriptor>>,
        buffer_count: usize,
    },
}

impl Plan {
    /// Reads the descriptors of one item, which take all of `bytes`.
    fn read(bytes: &[u8]) -> Result<Self, ConsumeError> {
        let mut rest = bytes;
        let mut next = || {
            let (descriptor, used) =
                TensorDescriptor::decode(rest).map_err(ConsumeError::Descriptor)?;
            rest = rest.get(used..).unwrap_or_default();
            Ok::<_, ConsumeError>((Arc::new(descriptor), rest.len()))
        };
        let (first, mut left) = next()?;
        let plan = if first.layout.is_virtual() {
            let broken = |error: CompositeError| ConsumeError::Descriptor(error.into());
            let mut inside = Vec::new();
            let mut assembler = Assembler::new();
            assembler.push(&first).map_err(broken)?;
            while left > 0 && !assembler.is_complete() {
                let descriptor;
                (descriptor, left) = next()?;
                assembler.push(&descriptor).map_err(broken)?;
                inside.push(descriptor);
            }
            Self::Composite {
                head: first,
                inside,
                buffer_count: assembler.finish().map_err(broken)?.buffer_count(),
            }
        } else {
            Self::Tensor(first)
        };
        if left > 0 {
            return Err(ConsumeError::TrailingBytes {
                used: bytes.len().saturating_sub(left),
                len: bytes.len(),
            });
        }
        Ok(plan)
    }

    /// Rows of all descriptors.
    fn buffer_count(&self) -> usize {
        match self {
            Self::Tensor(descriptor) => descriptor.buffers.len(),
            Self::Composite { buffer_count, .. } => *buffer_count,
        }
    }

    /// Checks every descriptor and its part of `regions`, of which there are [`buffer_count`](Self::buffer_count).
    fn check<'a>(&self, mut regions: impl Iterator<Item = &'a Region>) -> Result<(), TensorError> {
        let mut check = |descriptor: &TensorDescriptor| {
            let own: SmallVec<[_; 3]> = regions.by_ref().take(descriptor.buffers.len()).collect();
            tensor::check(descriptor, own.into_iter())
        };
        match self {
            Self::Tensor(descriptor) => check(descriptor),
            Self::Composite { head, inside, .. } => {
                for (item, descriptor) in iter::once(head).chain(inside).enumerate() {
                    if descriptor.layout.is_virtual() {
                        descriptor.validate().map_err(TensorError::from)
                    } else {
                        check(descriptor)
                    }
                    .map_err(|source| TensorError::Member {
                        item,
                        source: Box::new(source),
                    })?;
                }
                Ok(())
            }
        }
    }

    /// The item over `buffers`, of which there are [`buffer_count`](Self::buffer_count).
    fn into_item(self, buffers: impl Iterator<Item = Buffer>) -> Item {
        match self {
            Self::Tensor(descriptor) => {
                Item::Tensor(Tensor::from_checked(descriptor, buffers.collect()))
            }
            Self::Composite { head, inside, .. } => {
                Item::Composite(Composite::from_checked(head, inside, buffers.collect()))
            }
        }
    }
}

fn check_len(found: u64, expected: usize) -> Result<(), ConsumeError> {
    if found == expected as u64 {
        Ok(())
    } else {
        Err(ConsumeError::ListLength { found, expected })
    }
}

/// A buffer of a foreign list, before it is taken.
struct Entry {
    buffer: NonNull<HurrayBuffer>,
    region: Region,
    event: *mut c_void,
    stream: usize,
}

impl Entry {
    /// Buffer `index` of `list`.
    fn into_buffer(self, list: &Arc<ForeignList>, index: u64) -> Buffer {
        let slot = Slot::new(Arc::clone(list), self.buffer, index);
        let owner = Arc::new(Owner::Slot(slot));
        let event = (!self.event.is_null()).then(|| {
            // SAFETY: the producer's event lives until its release by the slot, from any thread.
            unsafe { LentEvent::new(self.event, EventRelease::Slot, Arc::clone(&owner)) }
        });
        let lent = Lent::by_producer(self.region.place, event, self.stream, &owner);
        Buffer::foreign(self.region, lent, owner)
    }
}

/// Reads what a list holds, which must be `expected` buffers.
///
/// # Safety
/// `list` is live, and `functions` are its producer's.
unsafe fn read_list(
    list: NonNull<HurrayBufferList>,
    functions: &Functions,
    expected: usize,
) -> Result<SmallVec<[Entry; 3]>, ConsumeError> {
    let mut len = 0;
    // SAFETY: the list is live.
    let status = unsafe { (functions.list_len)(list.as_ptr(), &raw mut len) };
    functions
        .result("list_len", status)
        .map_err(|failure| ConsumeError::Producer {
            reason: failure.to_string(),
        })?;
    check_len(len, expected)?;
    // The descriptors have as many rows in memory, so this is no claim.
    let mut entries = SmallVec::with_capacity(expected);
    for index in 0..expected {
        // SAFETY: as the caller says.
        entries.push(unsafe { read_entry(list, functions, index) }?);
    }
    Ok(entries)
}

/// Reads what buffer `index` is.
///
/// # Safety
/// As for [`read_list`].
unsafe fn read_entry(
    list: NonNull<HurrayBufferList>,
    functions: &Functions,
    index: usize,
) -> Result<Entry, ConsumeError> {
    let buffer_error = |failure: Failure| ConsumeError::Buffer {
        buffer: index,
        reason: failure.to_string(),
    };
    let mut handle = ptr::null();
    // SAFETY: the list is live.
    let status = unsafe { (functions.list_get)(list.as_ptr(), index as u64, &raw mut handle) };
    functions.result("list_get", status).map_err(buffer_error)?;
    let handle = NonNull::new(handle.cast_mut())
        .ok_or(Failure::Null("buffer"))
        .map_err(buffer_error)?;

    let mut info = HurrayBufferInfo::empty();
    // SAFETY: the handle is live while its list is, and `info` is as long as it says.
    let status = unsafe { (functions.buffer_info)(handle.as_ptr(), &raw mut info) };
    functions
        .result("buffer_info", status)
        .and_then(|()| check_written("HurrayBufferInfo", info.struct_size, size_of_val(&info)))
        .map_err(buffer_error)?;

    let byte = |field, value| ConsumeError::Byte {
        buffer: index,
        field,
        value,
    };
    let mode = SyncMode::from_byte(info.sync_mode).ok_or(byte("sync mode", info.sync_mode))?;
    let place = Place {
        device: DeviceTag::from_byte(info.device_tag).ok_or(byte("device tag", info.device_tag))?,
        device_id: info.device_id,
        memory_class: MemoryClass::from_byte(info.memory_class)
            .ok_or(byte("memory class", info.memory_class))?,
    };
    let region = Region::new(
        info.data.cast(),
        info.byte_size,
        place,
        mode,
        BufferFlags::from_bits_truncate(info.flags),
    )
    .map_err(|source| {
        ConsumeError::from(TensorError::Buffer {
            buffer: index,
            source,
        })
    })?;

    let mut sync = HurrayBufferSync::empty();
    if mode != SyncMode::ProducerSynced {
        // SAFETY: the handle is live while its list is, and `sync` is as long as it says.
        let status = unsafe { (functions.buffer_sync)(handle.as_ptr(), &raw mut sync) };
        functions
            .result("buffer_sync", status)
            .and_then(|()| check_written("HurrayBufferSync", sync.struct_size, size_of_val(&sync)))
            .map_err(buffer_error)?;
    }
    let (event, stream) = match mode {
        SyncMode::ProducerSynced => (ptr::null_mut(), 0),
        SyncMode::Event => (sync.event, 0),
        SyncMode::ConsumerStream => (ptr::null_mut(), sync.stream),
    };
    Ok(Entry {
        buffer: handle,
        region,
        event,
        stream,
    })
}

/// Whoever fills a struct sets its size to what was written, which must be all that version 3 has.
fn check_written(name: &'static str, found: u32, needed: usize) -> Result<(), Failure> {
    if found as usize >= needed {
        Ok(())
    } else {
        Err(Failure::ShortStruct {
            name,
            found,
            needed,
        })
    }
}
