use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use hurray_core::{Dependency, Stream, TensorDescriptor};
use smallvec::SmallVec;
use thiserror::Error;

use crate::abi::{HURRAY_C_ABI_VERSION, HurrayApi, HurrayBufferList, HurrayCapsuleContext, TABLE};
use crate::buffer::Region;
use crate::lent::Lent;
use crate::loan::Returns;
use crate::{Buffer, Owner, Tensor};

/// A list that cannot be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ListError {
    /// A descriptor that cannot be written.
    #[error(transparent)]
    Descriptor(#[from] hurray_core::Error),
    /// The system has no such block.
    #[error("no memory for a list of {buffers} buffers and {descriptor_len} descriptor bytes")]
    Memory {
        /// Buffers.
        buffers: usize,
        /// Bytes of the descriptors.
        descriptor_len: usize,
    },
}

/// What the pointer of a capsule points to: N buffer handles, the capsule's context and the descriptor's bytes, in one allocation.
///
/// ```text
///  ┌──────────┬──────────┬────────┬──────────┬─   ─┬────────────┬───────────────────┐
///  │ api      │ context  │ len …  │ handle 0 │  …  │ handle N−1 │ descriptor bytes  │
///  └──────────┴──────────┴────────┴──────────┴─   ─┴────────────┴───────────────────┘
///  ^ HurrayBufferList*   │        │ api, region, Arc<Owner> ──> bytes   ^
///             └─ context.descriptor ─────────────────────────────────────┘
/// ```
///
/// Every handle has a reference of its own to the owner of its buffer and gives it up on its own; dropping the list gives up what is left.
pub struct BufferList {
    /// The block's begin, whose provenance is the whole block.
    block: NonNull<Header>,
}

/// The front of the block.
#[repr(C)]
pub(crate) struct Header {
    api: *const HurrayApi,
    context: HurrayCapsuleContext,
    /// Handles that follow, all initialised.
    len: usize,
    /// Handles that the block has room for.
    room: usize,
    /// The descriptor of the tensor that was exported, so that our own consumer need not read it again.
    tensor: Option<Arc<TensorDescriptor>>,
}

/// A buffer as C holds it, alone or in a list. Everything but the two references stays as it is, so that reading it never races with letting go.
#[repr(C)]
pub(crate) struct Handle {
    api: *const HurrayApi,
    pub(crate) region: Region,
    pub(crate) event: *mut c_void,
    pub(crate) stream: usize,
    /// From `Arc::into_raw`, a reference of ours; NULL once the buffer has been let go.
    owner: AtomicPtr<Owner>,
    /// From `Arc::into_raw`, a reference of ours; NULL where there is none or it has been let go.
    lent: AtomicPtr<Lent>,
    event_released: AtomicBool,
    /// The [`mark`] of the stream that waited for the bytes last.
    waited: AtomicU64,
    /// Whether it lies in a list's block, which frees it.
    pub(crate) in_list: bool,
}

/// What no stream is marked with.
const NO_STREAM: u64 = u64::MAX;

/// A stream's id, and one more for the legacy stream of the buffer's device: ids count streams, and come to neither.
fn mark(stream: &Stream) -> u64 {
    if stream.number() == Stream::LEGACY {
        NO_STREAM - 1
    } else {
        stream.id()
    }
}

impl Handle {
    /// A handle that takes `buffer`.
    pub(crate) fn new(buffer: Buffer, in_list: bool) -> Self {
        let (region, lent, owner) = buffer.into_parts();
        Self {
            api: &raw const TABLE,
            region,
            event: lent.as_ref().map_or(ptr::null_mut(), |lent| lent.event()),
            stream: lent.as_ref().map_or(0, |lent| lent.stream()),
            owner: AtomicPtr::new(Arc::into_raw(owner).cast_mut()),
            lent: AtomicPtr::new(
                lent.map_or(ptr::null_mut(), |lent| Arc::into_raw(lent).cast_mut()),
            ),
            event_released: AtomicBool::new(false),
            waited: AtomicU64::new(NO_STREAM),
            in_list,
        }
    }

    /// Whether the buffer has been let go.
    pub(crate) fn is_released(&self) -> bool {
        self.owner.load(Ordering::Acquire).is_null()
    }

    /// Whether the event has been let go.
    pub(crate) fn is_event_released(&self) -> bool {
        self.event_released.load(Ordering::Acquire)
    }

    /// Lets the event go; false where that was done before.
    pub(crate) fn release_event(&self) -> bool {
        let first = !self.event_released.swap(true, Ordering::AcqRel);
        drop(self.take_lent());
        first
    }

    fn take_lent(&self) -> Option<Arc<Lent>> {
        let lent = NonNull::new(self.lent.swap(ptr::null_mut(), Ordering::AcqRel))?;
        // SAFETY: a non-NULL `lent` is a reference of ours from `into_raw`, and the swap makes this its only taker.
        Some(unsafe { Arc::from_raw(lent.as_ptr()) })
    }

    /// Takes the buffer, as releasing it does; `None` where that was done before.
    pub(crate) fn take(&self) -> Option<Buffer> {
        let owner = NonNull::new(self.owner.swap(ptr::null_mut(), Ordering::AcqRel))?;
        // SAFETY: a non-NULL `owner` is a reference of ours from `into_raw`, and the swap makes this its only taker.
        let owner = unsafe { Arc::from_raw(owner.as_ptr()) };
        Some(Buffer::from_parts(self.region, self.take_lent(), owner))
    }

    /// Undoes [`take`](Self::take).
    pub(crate) fn put_back(&self, buffer: Buffer) {
        let (_, lent, owner) = buffer.into_parts();
        if let Some(lent) = lent {
            self.lent
                .store(Arc::into_raw(lent).cast_mut(), Ordering::Release);
        }
        self.owner
            .store(Arc::into_raw(owner).cast_mut(), Ordering::Release);
    }

    /// The owner, unless the buffer has been let go. For calls that must not run beside a release of this buffer.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        let owner = self.owner.load(Ordering::Acquire);
        // SAFETY: a non-NULL `owner` is a reference of ours, which lives until a release; the caller's contract with C says that releases of a
        // buffer come after all other calls on it.
        unsafe { owner.as_ref() }
    }

    /// Notes that `stream` has been made to wait for the bytes.
    pub(crate) fn note_wait(&self, stream: &Stream) {
        if !stream.is_per_thread() {
            self.waited.store(mark(stream), Ordering::Release);
        }
    }

    /// Whether `stream` was the last to be made to wait.
    pub(crate) fn has_waited(&self, stream: &Stream) -> bool {
        self.waited.load(Ordering::Acquire) == mark(stream)
    }

    fn is_loan(&self) -> bool {
        matches!(self.owner(), Some(Owner::Loan(_)))
    }

    /// What the bytes depend on, where something here can wait for it and the event has not been let go. As for [`owner`](Self::owner).
    pub(crate) fn dependency(&self) -> Option<&Dependency> {
        let lent = self.lent.load(Ordering::Acquire);
        // SAFETY: a non-NULL `lent` is a reference of ours, which lives until a release; the caller's contract with C says that those come after all
        // other calls on the buffer.
        unsafe { lent.as_ref() }?.dependency()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A block, and where the descriptor's bytes lie in it. The handles lie at [`HANDLES`].
struct BlockLayout {
    block: Layout,
    descriptor: usize,
}

fn block_layout(len: usize, descriptor_len: usize) -> Option<BlockLayout> {
    let (block, _) = Layout::new::<Header>()
        .extend(Layout::array::<Handle>(len).ok()?)
        .ok()?;
    let (block, descriptor) = block
        .extend(Layout::array::<u8>(descriptor_len).ok()?)
        .ok()?;
    Some(BlockLayout { block, descriptor })
}

/// Offset of the first handle in a block.
const HANDLES: usize = size_of::<Header>().next_multiple_of(align_of::<Handle>());

// SAFETY: the block is reached through this value only; handles are `Send + Sync` as their buffers are, and the table is constant.
unsafe impl Send for BufferList {}
// SAFETY: as above; what a shared reference changes is atomic.
unsafe impl Sync for BufferList {}

impl BufferList {
    /// The list of `tensor`.
    pub(crate) fn of_tensor(tensor: &Tensor) -> Result<Self, ListError> {
        let descriptor = tensor.descriptor();
        let mut list = Self::with_room(tensor.buffers().len(), descriptor.encoded_len()?)?;
        descriptor.encode_to_slice(list.descriptor_mut())?;
        for buffer in tensor.buffers() {
            list.push(buffer.clone());
        }
        // SAFETY: the header is initialised, and `list` is the only way to it.
        unsafe { list.block.as_mut() }.tensor = Some(Arc::clone(descriptor));
        Ok(list)
    }

    /// A list of no handles yet, with room for `room` of them and for `descriptor_len` bytes, which are zero.
    pub(crate) fn with_room(room: usize, descriptor_len: usize) -> Result<Self, ListError> {
        let no_memory = ListError::Memory {
            buffers: room,
            descriptor_len,
        };
        let Some(layout) = block_layout(room, descriptor_len) else {
            return Err(no_memory);
        };
        // SAFETY: a block holds a header at least, so the layout is not empty.
        let block = unsafe { alloc(layout.block) };
        let block = NonNull::new(block).ok_or(no_memory)?;
        // SAFETY: the descriptor's bytes lie at that offset of the block.
        let bytes = unsafe { block.add(layout.descriptor) };
        // SAFETY: the block has room for so many there.
        unsafe { bytes.write_bytes(0, descriptor_len) };
        let block = block.cast::<Header>();
        let header = Header {
            api: &raw const TABLE,
            context: HurrayCapsuleContext {
                abi_version: HURRAY_C_ABI_VERSION,
                struct_size: size_of::<HurrayCapsuleContext>() as u32,
                descriptor: bytes.as_ptr(),
                descriptor_len: descriptor_len as u64,
                api: &raw const TABLE,
            },
            len: 0,
            room,
            tensor: None,
        };
        // SAFETY: the block begins with a header, at its alignment.
        unsafe { block.write(header) };
        Ok(Self { block })
    }

    /// The descriptor's bytes, to write.
    pub(crate) fn descriptor_mut(&mut self) -> &mut [u8] {
        let context = &self.header().context;
        let (bytes, len) = (
            context.descriptor.cast_mut(),
            context.descriptor_len as usize,
        );
        // SAFETY: `with_room` put so many initialised bytes there, which came from a pointer to write with, and `self` is the only way to them.
        unsafe { slice::from_raw_parts_mut(bytes, len) }
    }

    /// Puts `buffer` behind the others. A list that has no more room lets it go.
    pub(crate) fn push(&mut self, buffer: Buffer) {
        let (len, room) = {
            let header = self.header();
            (header.len, header.room)
        };
        debug_assert!(len < room, "a list is made with room for all its buffers");
        if len < room {
            // SAFETY: handle `len` lies in the block, which has room for more than `len`.
            let slot = unsafe { handles(self.block).add(len) };
            // SAFETY: the slot is aligned and holds nothing yet.
            unsafe { slot.write(Handle::new(buffer, true)) };
            // SAFETY: the header is initialised, and `self` is the only way to it.
            unsafe { self.block.as_mut() }.len = len + 1;
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: `with_room` initialised it, it lives as long as `self`, and it changes only through `&mut self`.
        unsafe { self.block.as_ref() }
    }

    /// The handles.
    pub(crate) fn handles(&self) -> &[Handle] {
        // SAFETY: `len` handles are initialised, and live and stay where they are as long as `self`.
        unsafe { slice::from_raw_parts(handles(self.block).as_ptr(), self.header().len) }
    }

    /// The context that belongs into the capsule; valid until the list is dropped.
    #[must_use]
    pub fn context(&self) -> NonNull<HurrayCapsuleContext> {
        // SAFETY: the field lies in the header.
        let context = unsafe { &raw mut (*self.block.as_ptr()).context };
        // SAFETY: a field of an allocation is not at NULL.
        unsafe { NonNull::new_unchecked(context) }
    }

    /// Buffers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header().len
    }

    /// Whether there are no buffers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether dropping the list may call another library's functions or a driver; see [`Owner::calls_out`].
    #[must_use]
    pub fn calls_out(&self) -> bool {
        self.handles()
            .iter()
            .any(|handle| handle.owner().is_some_and(Owner::calls_out))
    }

    /// The pointer that belongs into the capsule, and whoever holds it owns the list: it goes back through [`from_raw`](Self::from_raw),
    /// [`consume`](crate::consume) or the table's `list_destroy`.
    #[must_use]
    pub fn into_raw(self) -> NonNull<HurrayBufferList> {
        ManuallyDrop::new(self).block.cast()
    }

    /// The list that [`into_raw`](Self::into_raw) gave away.
    ///
    /// # Safety
    /// `list` came from `into_raw` of this build, and its ownership comes with the call.
    #[must_use]
    pub unsafe fn from_raw(list: NonNull<HurrayBufferList>) -> Self {
        Self { block: list.cast() }
    }

    /// The descriptor of the tensor that was exported, if the list was made of one.
    pub(crate) fn descriptor(&self) -> Option<&Arc<TensorDescriptor>> {
        self.header().tensor.as_ref()
    }

    /// The buffers, unless one has been let go.
    pub(crate) fn into_buffers(self) -> Result<SmallVec<[Buffer; 3]>, Self> {
        let mut buffers = SmallVec::with_capacity(self.len());
        for handle in self.handles() {
            let Some(buffer) = handle.take() else {
                for (handle, buffer) in self.handles().iter().zip(buffers) {
                    handle.put_back(buffer);
                }
                return Err(self);
            };
            buffers.push(buffer);
        }
        Ok(buffers)
    }
}

/// The first handle of a block.
fn handles(block: NonNull<Header>) -> NonNull<Handle> {
    // SAFETY: a block is as long as its header and padding, at the end of which the handles begin.
    unsafe { block.byte_add(HANDLES) }.cast()
}

/// The memory of a block without handles.
struct Block(NonNull<Header>);

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the header is initialised until this drops it below.
        let header = unsafe { self.0.as_ref() };
        let layout = block_layout(header.room, header.context.descriptor_len as usize);
        // SAFETY: the header is initialised, and only its memory is used after this.
        unsafe { ptr::drop_in_place(self.0.as_ptr()) };
        // The layout was one when the block was made.
        if let Some(layout) = layout {
            // SAFETY: the block came from `alloc` with the layout of the same two numbers, which never change.
            unsafe { dealloc(self.0.as_ptr().cast(), layout.block) };
        }
    }
}

impl Drop for BufferList {
    fn drop(&mut self) {
        let (first, len) = (handles(self.block), self.len());
        // Goes after the handles, also where an owner panics.
        let _block = Block(self.block);
        if self.handles().iter().any(Handle::is_loan) {
            Returns::default().extend(self.handles().iter().filter_map(Handle::take));
        }
        let handles = ptr::slice_from_raw_parts_mut(first.as_ptr(), len);
        // SAFETY: `len` handles are initialised, and nothing uses them after this.
        unsafe { ptr::drop_in_place(handles) };
    }
}
