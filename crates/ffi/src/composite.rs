use std::sync::Arc;

use hurray_core::composite::Assembler;
use hurray_core::{CompositeError, Layout, Stream, TensorDescriptor};

use smallvec::SmallVec;

use crate::loan::Returns;
use crate::order::{self, OrderError, Part};
use crate::{Buffer, BufferList, ListError, Tensor, TensorError, measure_rows, tensor};

/// What crosses in one capsule: a tensor, or a composite with all its members.
#[derive(Clone, Debug)]
pub enum Item {
    /// One tensor.
    Tensor(Tensor),
    /// A head and its members.
    Composite(Composite),
}

impl Item {
    /// As [`Tensor::order`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is handed out.
    pub fn order(&self, stream: &Stream) -> Result<Self, OrderError> {
        Ok(match self {
            Self::Tensor(tensor) => Self::Tensor(tensor.order(stream)?),
            Self::Composite(composite) => Self::Composite(composite.order(stream)?),
        })
    }

    /// As [`Tensor::into_ordered`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; the item is let go.
    pub fn into_ordered(self, stream: &Stream) -> Result<Self, OrderError> {
        Ok(match self {
            Self::Tensor(tensor) => Self::Tensor(tensor.into_ordered(stream)?),
            Self::Composite(composite) => Self::Composite(composite.into_ordered(stream)?),
        })
    }

    /// As [`Tensor::record`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; memory of the CPU takes no event.
    pub fn record(&self, stream: &Stream) -> Result<Self, OrderError> {
        Ok(match self {
            Self::Tensor(tensor) => Self::Tensor(tensor.record(stream)?),
            Self::Composite(composite) => Self::Composite(composite.record(stream)?),
        })
    }
}

/// A head, and the items that make one logical tensor of it. It owns no buffers; clones share everything.
#[derive(Clone, Debug)]
pub struct Composite {
    head: Arc<TensorDescriptor>,
    members: Arc<[Item]>,
}

impl Composite {
    /// A composite of members that fit its head.
    ///
    /// # Errors
    /// What [`TensorDescriptor::validate`] finds in the head, or the first rule of `layouts.md` § 8 that head and members break.
    pub fn new(
        head: impl Into<Arc<TensorDescriptor>>,
        members: impl Into<Arc<[Item]>>,
    ) -> Result<Self, TensorError> {
        let composite = Self {
            head: head.into(),
            members: members.into(),
        };
        composite.head.validate()?;
        let mut assembler = Assembler::new();
        composite
            .push_descriptors(&mut assembler)
            .and_then(|()| assembler.finish())
            .map_err(hurray_core::Error::from)?;
        Ok(composite)
    }

    fn push_descriptors(&self, assembler: &mut Assembler) -> Result<(), CompositeError> {
        assembler.push(&self.head)?;
        for member in &*self.members {
            match member {
                Item::Tensor(tensor) => {
                    assembler.push(tensor.descriptor())?;
                }
                Item::Composite(composite) => composite.push_descriptors(assembler)?,
            }
        }
        Ok(())
    }

    /// The composite of a head, of everything inside it in stream order, and of its buffers, all of which were checked.
    pub(crate) fn from_checked(
        head: Arc<TensorDescriptor>,
        inside: Vec<Arc<TensorDescriptor>>,
        mut buffers: Vec<Buffer>,
    ) -> Self {
        // From the back, so that a nested head finds its members made: the topmost ones of the stack, its first on top.
        let mut made: Vec<Item> = Vec::new();
        for descriptor in inside.into_iter().rev() {
            let item = if let Layout::Composite(nested) = descriptor.layout {
                let first = made.len().saturating_sub(nested.member_count as usize);
                Item::Composite(Self {
                    head: descriptor,
                    members: made.drain(first..).rev().collect(),
                })
            } else {
                let first = buffers.len().saturating_sub(descriptor.buffers.len());
                let own = buffers.drain(first..).collect();
                Item::Tensor(Tensor::from_checked(descriptor, own))
            };
            made.push(item);
        }
        Self {
            head,
            members: made.into_iter().rev().collect(),
        }
    }

    /// The descriptor of the head.
    #[must_use]
    pub fn head(&self) -> &Arc<TensorDescriptor> {
        &self.head
    }

    /// The members in stream order.
    #[must_use]
    pub fn members(&self) -> &[Item] {
        &self.members
    }

    /// The composite as one list: the head's descriptor and then each member's, and the members' buffers, in stream order.
    ///
    /// # Errors
    /// A descriptor that cannot be written, or no memory.
    pub fn export(&self) -> Result<BufferList, ListError> {
        let (buffers, descriptor_len) = self.size()?;
        let mut list = BufferList::with_room(buffers, descriptor_len)?;
        self.encode_to(&mut &mut *list.descriptor_mut())?;
        self.push_to(&mut list);
        Ok(list)
    }

    /// As [`Tensor::order`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is handed out.
    pub fn order(&self, stream: &Stream) -> Result<Self, OrderError> {
        Ok(self.with_buffers(order::onto(&self.parts(), stream)?))
    }

    /// As [`Tensor::record`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; memory of the CPU takes no event.
    pub fn record(&self, stream: &Stream) -> Result<Self, OrderError> {
        Ok(self.with_buffers(order::record(&self.parts(), stream)?))
    }

    /// As [`Tensor::synchronize`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is known of the bytes.
    pub fn synchronize(&self) -> Result<Self, OrderError> {
        Ok(self.with_buffers(order::synchronize(&self.parts())?))
    }

    /// As [`Tensor::into_ordered`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; the composite is let go.
    pub fn into_ordered(self, stream: &Stream) -> Result<Self, OrderError> {
        if order::are_out_on(&self.parts(), stream) {
            return Ok(self);
        }
        self.order(stream)
    }

    /// As [`Tensor::record_stream`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; memory of the CPU remembers no stream.
    pub fn record_stream(&self, stream: &Stream) -> Result<(), OrderError> {
        order::record_stream(&self.parts(), stream)
    }

    /// As [`Tensor::order_after_readers`], of all members at once.
    ///
    /// # Errors
    /// [`OrderError`]; memory of the CPU remembers no stream.
    pub fn order_after_readers(&self, stream: &Stream) -> Result<(), OrderError> {
        order::order_after_readers(&self.parts(), stream)
    }

    /// The buffers of all members, in stream order.
    fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        for member in &*self.members {
            match member {
                Item::Tensor(tensor) => parts.extend_from_slice(&tensor.parts()),
                Item::Composite(composite) => parts.extend(composite.parts()),
            }
        }
        parts
    }

    /// The same composite over the same bytes, whose modes may be others.
    fn with_buffers(&self, buffers: impl IntoIterator<Item = Buffer>) -> Self {
        fn over(composite: &Composite, buffers: &mut dyn Iterator<Item = Buffer>) -> Composite {
            let member = |member: &Item| match member {
                Item::Tensor(tensor) => {
                    let own = (&mut *buffers).take(tensor.buffers().len()).collect();
                    Item::Tensor(tensor.with_buffers(own))
                }
                Item::Composite(composite) => Item::Composite(over(composite, buffers)),
            };
            Composite {
                head: Arc::clone(&composite.head),
                members: composite.members.iter().map(member).collect(),
            }
        }
        over(self, &mut buffers.into_iter())
    }

    /// As [`Tensor::return_to`], of all members that nobody else holds.
    fn return_to(&mut self, returns: &mut Returns) {
        for member in Arc::get_mut(&mut self.members).into_iter().flatten() {
            match member {
                Item::Tensor(tensor) => tensor.return_to(returns),
                Item::Composite(composite) => composite.return_to(returns),
            }
        }
    }

    /// Buffers and descriptor bytes of all members, and the head's bytes.
    fn size(&self) -> Result<(usize, usize), ListError> {
        let mut sum = (0_usize, self.head.encoded_len()?);
        for member in &*self.members {
            let (buffers, bytes) = match member {
                Item::Tensor(tensor) => {
                    (tensor.buffers().len(), tensor.descriptor().encoded_len()?)
                }
                Item::Composite(composite) => composite.size()?,
            };
            sum = (sum.0.saturating_add(buffers), sum.1.saturating_add(bytes));
        }
        Ok(sum)
    }

    /// Writes the descriptors in stream order to the front of `space`, which becomes what is left of it.
    fn encode_to(&self, space: &mut &mut [u8]) -> Result<(), ListError> {
        let encode = |descriptor: &TensorDescriptor, space: &mut &mut [u8]| {
            let len = descriptor.encoded_len()?;
            match space.split_off_mut(..len) {
                Some(own) => descriptor.encode_to_slice(own),
                None => descriptor.encode_to_slice(space),
            }
        };
        encode(&self.head, space)?;
        for member in &*self.members {
            match member {
                Item::Tensor(tensor) => encode(tensor.descriptor(), space)?,
                Item::Composite(composite) => composite.encode_to(space)?,
            }
        }
        Ok(())
    }

    fn push_to(&self, list: &mut BufferList) {
        for member in &*self.members {
            match member {
                Item::Tensor(tensor) => {
                    for buffer in tensor.buffers() {
                        list.push(buffer.clone());
                    }
                }
                Item::Composite(composite) => composite.push_to(list),
            }
        }
    }
}

impl Drop for Composite {
    fn drop(&mut self) {
        self.return_to(&mut Returns::default());
    }
}

/// Makes a composite of descriptors and buffers as they arrive in stream order, in linear time.
#[derive(Debug, Default)]
pub struct CompositeAssembler {
    rules: Assembler,
    descriptors: Vec<Arc<TensorDescriptor>>,
    buffers: Vec<Buffer>,
    /// Buffers of all `descriptors`.
    expected: usize,
}

impl CompositeAssembler {
    /// Waits for the outermost head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The heads that still wait for members.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.rules.depth()
    }

    /// Whether the outermost head, all its members and their buffers have come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rules.is_complete() && self.buffers.len() == self.expected
    }

    /// Takes the next descriptor. After an error the composite is lost.
    ///
    /// # Errors
    /// What [`TensorDescriptor::validate`] finds; the first rule of `layouts.md` § 8 that it breaks; a descriptor while the buffers of the one
    /// before it are missing.
    pub fn push(
        &mut self,
        descriptor: impl Into<Arc<TensorDescriptor>>,
    ) -> Result<(), TensorError> {
        let descriptor = descriptor.into();
        self.check_filled()?;
        descriptor.validate()?;
        self.rules
            .push(&descriptor)
            .map_err(hurray_core::Error::from)?;
        self.expected = self.expected.saturating_add(descriptor.buffers.len());
        self.descriptors.push(descriptor);
        Ok(())
    }

    /// Takes the buffers of the descriptor that came last, if it has any, whose rows then say what the memory has ([`measure_rows`]).
    ///
    /// # Errors
    /// Those of [`Tensor::new`]; buffers where none are missing.
    pub fn fill(&mut self, buffers: impl Into<SmallVec<[Buffer; 3]>>) -> Result<(), TensorError> {
        let buffers = buffers.into();
        match self.descriptors.last_mut() {
            Some(descriptor) if self.buffers.len() < self.expected => {
                measure_rows(&mut Arc::make_mut(descriptor).buffers, &buffers);
                tensor::check(descriptor, buffers.iter().map(Buffer::region))?;
            }
            _ if buffers.is_empty() => {}
            _ => {
                return Err(TensorError::BufferCount {
                    rows: 0,
                    buffers: buffers.len(),
                });
            }
        }
        self.buffers.extend(buffers);
        Ok(())
    }

    /// The composite, when everything has come.
    ///
    /// # Errors
    /// A9 for the innermost head that misses members; A0 if nothing came; missing buffers.
    pub fn finish(self) -> Result<Composite, TensorError> {
        self.check_filled()?;
        self.rules.finish().map_err(hurray_core::Error::from)?;
        let mut descriptors = self.descriptors.into_iter();
        match descriptors.next() {
            Some(head) => Ok(Composite::from_checked(
                head,
                descriptors.collect(),
                self.buffers,
            )),
            None => {
                Err(hurray_core::Error::from(CompositeError::NoHead { layout: "missing" }).into())
            }
        }
    }

    fn check_filled(&self) -> Result<(), TensorError> {
        if self.buffers.len() == self.expected {
            return Ok(());
        }
        Err(TensorError::BufferCount {
            rows: self.expected,
            buffers: self.buffers.len(),
        })
    }
}
