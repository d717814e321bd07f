//! Composites: a head and the members that follow it (`layouts.md` § 8).

mod partition;

use std::ops::Range;

use crate::{
    CompositeError, CompositionRule, DYNAMIC, ElementType, ExtensionType, Layout, MemberRole,
    Shape, Shard, TensorDescriptor,
};
use partition::Partition;

/// How many heads may lie inside each other, the outermost included (decision 7).
pub const MAX_DEPTH: usize = 64;

/// One item of a composite: a head or a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The item number of its head; `None` for the outermost head.
    pub head: Option<usize>,
    /// The heads around it.
    pub depth: usize,
    /// Whether it is a head itself.
    pub is_head: bool,
    /// The items it stands for: itself and, for a head, everything inside it.
    pub items: Range<usize>,
    /// Its buffers in the flat list of the composite's, in stream order; for a head, those of everything inside it. A member's own indices
    /// count from its first buffer.
    pub buffers: Range<usize>,
}

/// A composite's items in stream order: the outermost head first, nested heads before their members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composite {
    items: Vec<Item>,
}

impl Composite {
    /// The items in stream order, one per descriptor.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The item numbers of the members of the head `head`, in order; none for an item that is no head.
    pub fn members(&self, head: usize) -> impl Iterator<Item = usize> {
        let items = self.items.get(head).map_or(0..0, |item| item.items.clone());
        let mut next = items.start.saturating_add(1);
        std::iter::from_fn(move || {
            let member = items.contains(&next).then_some(next)?;
            next = self.items.get(member)?.items.end;
            Some(member)
        })
    }

    /// The buffers of all items.
    #[must_use]
    pub fn buffer_count(&self) -> usize {
        self.items.first().map_or(0, |head| head.buffers.end)
    }
}

/// Checks the descriptors of one composite in stream order and says what belongs to what.
///
/// # Errors
/// As [`Assembler::push`] and [`Assembler::finish`].
pub fn assemble<'a>(
    descriptors: impl IntoIterator<Item = &'a TensorDescriptor>,
) -> Result<Composite, CompositeError> {
    let mut assembler = Assembler::new();
    for descriptor in descriptors {
        assembler.push(descriptor)?;
    }
    assembler.finish()
}

/// Takes the descriptors of a composite as they arrive.
///
/// It compares members with their heads only; that each descriptor is one that a tensor can have is
/// [`validate`](TensorDescriptor::validate)'s to say. Time and memory follow the items that came, never a `member_count`.
#[derive(Debug, Default)]
pub struct Assembler {
    composite: Composite,
    /// The heads that wait for members, the outermost first.
    open: Vec<OpenHead>,
}

#[derive(Debug)]
struct OpenHead {
    item: usize,
    rule: CompositionRule,
    shape: Shape,
    element_type: ElementType,
    extension_type: Option<ExtensionType>,
    declared: u32,
    /// Members that came and are complete.
    found: u32,
    /// The members' boxes, where they have to tile the head.
    partition: Option<Partition>,
}

impl Assembler {
    /// Waits for the outermost head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the outermost head and all its members have come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.open.is_empty() && !self.composite.items.is_empty()
    }

    /// The heads that still wait for members.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Takes the next descriptor in stream order; gives its item number. After an error the composite is lost.
    ///
    /// # Errors
    /// Before the first member: A0, C10. For each member: A1–A7, A10, and A8 for one too many. With the last member of a head: C11, A11,
    /// A12.
    pub fn push(&mut self, descriptor: &TensorDescriptor) -> Result<usize, CompositeError> {
        let item = self.composite.items.len();
        let head = match &descriptor.layout {
            Layout::Composite(head) => Some(head),
            _ => None,
        };
        let depth = self.open.len();
        match self.open.last_mut() {
            Some(open) => open.accept(item, descriptor)?,
            None if item > 0 => return Err(CompositeError::TooManyMembers { items: item }),
            None if head.is_none() => {
                return Err(CompositeError::NoHead {
                    layout: descriptor.layout.name(),
                });
            }
            None => {}
        }
        if head.is_some() && depth >= MAX_DEPTH {
            return Err(CompositeError::Depth { item, depth });
        }
        let first = match self.composite.items.last() {
            Some(before) => before.buffers.end,
            None => 0,
        };
        self.composite.items.push(Item {
            head: self.open.last().map(|open| open.item),
            depth,
            is_head: head.is_some(),
            items: item..item.saturating_add(1),
            buffers: first..first.saturating_add(descriptor.buffers.len()),
        });
        match head {
            Some(head) => {
                let open = OpenHead::new(item, descriptor, head.rule, head.member_count)?;
                self.open.push(open);
            }
            None => self.count_member(),
        }
        self.close()?;
        Ok(item)
    }

    /// The composite, when all its members have come.
    ///
    /// # Errors
    /// A9 for the innermost head that misses members; A0 if nothing came.
    pub fn finish(self) -> Result<Composite, CompositeError> {
        match self.open.last() {
            Some(open) => Err(CompositeError::Torn {
                head: open.item,
                declared: open.declared,
                found: open.found,
            }),
            None if self.composite.items.is_empty() => {
                Err(CompositeError::NoHead { layout: "missing" })
            }
            None => Ok(self.composite),
        }
    }

    fn count_member(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.found = open.found.saturating_add(1);
        }
    }

    /// Closes every head that is complete, the innermost first.
    fn close(&mut self) -> Result<(), CompositeError> {
        while let Some(open) = self.open.pop_if(|open| open.found == open.declared) {
            open.finish()?;
            let items = self.composite.items.len();
            let buffers = match self.composite.items.last() {
                Some(last) => last.buffers.end,
                None => 0,
            };
            if let Some(head) = self.composite.items.get_mut(open.item) {
                head.items.end = items;
                head.buffers.end = buffers;
            }
            self.count_member();
        }
        Ok(())
    }
}

impl OpenHead {
    fn new(
        item: usize,
        head: &TensorDescriptor,
        rule: CompositionRule,
        declared: u32,
    ) -> Result<Self, CompositeError> {
        let dynamic = head.shape.iter().position(|&dim| dim == DYNAMIC);
        if let Some(dimension) = dynamic
            && rule != CompositionRule::Group
        {
            return Err(CompositeError::DynamicHead {
                head: item,
                dimension,
            });
        }
        Ok(Self {
            item,
            rule,
            shape: head.shape.clone(),
            element_type: head.element_type,
            extension_type: head.extension_type,
            declared,
            found: 0,
            partition: (rule == CompositionRule::Partition)
                .then(|| Partition::new(item, &head.shape)),
        })
    }

    /// A1–A7 for the next member.
    fn accept(&mut self, item: usize, member: &TensorDescriptor) -> Result<(), CompositeError> {
        let is_overlay = matches!(self.rule, CompositionRule::Overlay(_));
        if is_overlay && member.layout.is_virtual() {
            return Err(CompositeError::HeadInOverlay { item });
        }
        match (member.member, is_overlay) {
            (Some(_), false) => return Err(CompositeError::MemberSection { item }),
            (None, true) => return Err(CompositeError::NoMemberSection { item }),
            _ => {}
        }
        if self.rule == CompositionRule::Group {
            return Ok(());
        }
        let shard = member
            .shard
            .as_ref()
            .ok_or(CompositeError::NoShard { item })?;
        if shard.parent_shape != self.shape {
            return Err(CompositeError::ParentShape {
                item,
                parent_shape: shard.parent_shape.as_slice().into(),
                head_shape: self.shape.as_slice().into(),
            });
        }
        if !is_inside(&member.shape, shard) {
            return Err(CompositeError::OutsideHead {
                item,
                shape: member.shape.as_slice().into(),
                offset: shard.offset.as_slice().into(),
            });
        }
        // Quantized members decode to float32, which composing converts (decision 5).
        let same_type = member.element_type == self.element_type
            && member.extension_type == self.extension_type;
        if member.quantization.is_none() && !same_type {
            return Err(CompositeError::MemberType {
                item,
                member: member.element_type,
                head: self.element_type,
            });
        }
        match (&mut self.partition, member.member) {
            (Some(partition), _) => partition.push(item, &shard.offset, &member.shape),
            (None, Some(role)) => self.accept_layer(item, role, member, shard)?,
            (None, None) => {}
        }
        Ok(())
    }

    /// A6, A7. Members of an overlay are never heads, so those that came are complete and counted.
    fn accept_layer(
        &self,
        item: usize,
        role: MemberRole,
        member: &TensorDescriptor,
        shard: &Shard,
    ) -> Result<(), CompositeError> {
        match (role, self.found) {
            (MemberRole::Correction, 0) => Err(CompositeError::NoBase { item }),
            (MemberRole::Correction, _) => Ok(()),
            (MemberRole::Base, 0) => {
                let spans = member.shape == self.shape && shard.offset.iter().all(|&at| at == 0);
                if spans {
                    return Ok(());
                }
                Err(CompositeError::BaseSpan {
                    item,
                    shape: member.shape.as_slice().into(),
                    offset: shard.offset.as_slice().into(),
                })
            }
            (MemberRole::Base, _) => Err(CompositeError::SecondBase { item }),
        }
    }

    /// C11, A11, A12.
    fn finish(&self) -> Result<(), CompositeError> {
        match (&self.rule, &self.partition) {
            (CompositionRule::Overlay(_), _) if self.declared == 0 => {
                Err(CompositeError::EmptyOverlay { head: self.item })
            }
            (_, Some(partition)) => partition.check(),
            _ => Ok(()),
        }
    }
}

/// A3, with the parent's shape for the head's.
fn is_inside(shape: &[u64], shard: &Shard) -> bool {
    shape.len() == shard.parent_shape.len()
        && shard.offset.len() == shape.len()
        && shape
            .iter()
            .zip(&shard.offset)
            .zip(&shard.parent_shape)
            .all(|((&size, &at), &parent)| at.checked_add(size).is_some_and(|end| end <= parent))
}
