use std::sync::Arc;

use hurray_core::TensorDescriptor;

use crate::{BufferList, ListError, Tensor, TensorError};

/// What crosses in one capsule: a tensor, or a composite with all its members.
#[derive(Clone, Debug)]
pub enum Item {
    /// One tensor.
    Tensor(Tensor),
    /// A head and its members.
    Composite(Composite),
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
    /// The first rule of `layouts.md` § 8 that does not hold.
    pub fn new(
        head: impl Into<Arc<TensorDescriptor>>,
        members: impl Into<Arc<[Item]>>,
    ) -> Result<Self, TensorError> {
        let composite = Self {
            head: head.into(),
            members: members.into(),
        };
        composite.head.validate()?;
        Ok(composite)
    }

    /// A composite of parts that were checked.
    pub(crate) fn from_checked(head: Arc<TensorDescriptor>, members: Arc<[Item]>) -> Self {
        Self { head, members }
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
