use std::sync::Arc;

use hurray_core::TensorDescriptor;

use crate::{Buffer, BufferList, ListError, Tensor, TensorError};

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
        let mut descriptors = Vec::new();
        let mut buffers = Vec::new();
        self.collect(&mut descriptors, &mut buffers)?;
        BufferList::of_parts(&descriptors, &buffers)
    }

    fn collect<'a>(
        &'a self,
        descriptors: &mut Vec<u8>,
        buffers: &mut Vec<&'a Buffer>,
    ) -> Result<(), ListError> {
        descriptors.extend(self.head.encode()?);
        for member in &*self.members {
            match member {
                Item::Tensor(tensor) => {
                    descriptors.extend(tensor.descriptor().encode()?);
                    buffers.extend(tensor.buffers());
                }
                Item::Composite(composite) => composite.collect(descriptors, buffers)?,
            }
        }
        Ok(())
    }
}
