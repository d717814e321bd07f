use thiserror::Error;

use crate::ElementType;

/// Members that do not make the composite that their head declares: the A rules, C11.
///
/// An `item` is the number of a descriptor in stream order, the outermost head being 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompositeError {
    /// A first item that is no head (A0).
    #[error("the first item has the {layout} layout, and a composite begins with its head")]
    NoHead {
        /// The layout's name.
        layout: &'static str,
    },
    /// A member of a partition or overlay without a shard section, so without a place (A1).
    #[error("item {item} has no shard section, and every member of a partition or overlay has one")]
    NoShard {
        /// The member.
        item: usize,
    },
    /// A member whose parent is not the head's shape (A2).
    #[error(
        "item {item} is a shard of {parent_shape:?}, and its head has the shape {head_shape:?}"
    )]
    ParentShape {
        /// The member.
        item: usize,
        /// The member's `parent_shape`.
        parent_shape: Box<[u64]>,
        /// The head's shape.
        head_shape: Box<[u64]>,
    },
    /// A member that ends outside the head, or whose shape has another rank (A3).
    #[error("item {item} of shape {shape:?} at {offset:?} is not inside its head")]
    OutsideHead {
        /// The member.
        item: usize,
        /// The member's shape.
        shape: Box<[u64]>,
        /// Its offset in the head.
        offset: Box<[u64]>,
    },
    /// A member that is not quantized and has another type than its head (A4).
    #[error("item {item} is {member}, and its head {head}")]
    MemberType {
        /// The member.
        item: usize,
        /// The member's type.
        member: ElementType,
        /// The head's type.
        head: ElementType,
    },
    /// A member section outside an overlay (A5).
    #[error("item {item} has a member section, and only members of an overlay have one")]
    MemberSection {
        /// The member.
        item: usize,
    },
    /// A member of an overlay without a member section (A5).
    #[error("item {item} has no member section, and every member of an overlay has one")]
    NoMemberSection {
        /// The member.
        item: usize,
    },
    /// A head as the member of an overlay (A5, decision 7).
    #[error(
        "item {item} is a composite head, which cannot be the member of an overlay: it may not have the member section that tells base from correction"
    )]
    HeadInOverlay {
        /// The nested head.
        item: usize,
    },
    /// An overlay that begins with a correction (A6).
    #[error("item {item} is a correction, and an overlay begins with its base")]
    NoBase {
        /// The overlay's first member.
        item: usize,
    },
    /// A second base (A6).
    #[error("item {item} is a base, and its overlay already has one")]
    SecondBase {
        /// The member.
        item: usize,
    },
    /// A base that is not at offset 0 with the head's shape (A7).
    #[error("item {item} of shape {shape:?} at {offset:?} is the base, and does not span its head")]
    BaseSpan {
        /// The base.
        item: usize,
        /// The base's shape.
        shape: Box<[u64]>,
        /// Its offset in the head.
        offset: Box<[u64]>,
    },
    /// An item after the composite's last member (A8).
    #[error("the composite is complete with {items} items, and another one follows")]
    TooManyMembers {
        /// The composite's items, heads included.
        items: usize,
    },
    /// Fewer members than a head declares (A9).
    #[error("the head at item {head} declares {declared} members, and {found} came")]
    Torn {
        /// The head.
        head: usize,
        /// Its `member_count`.
        declared: u32,
        /// Members that came and are complete.
        found: u32,
    },
    /// Heads nested deeper than 64 (A10, decision 7).
    #[error("item {item} is a head at depth {depth}, and heads nest {max} levels deep at most", max = crate::composite::MAX_DEPTH)]
    Depth {
        /// The head.
        item: usize,
        /// Heads around it.
        depth: usize,
    },
    /// Two members of a partition that share an element (A11).
    #[error(
        "items {first} and {second} both cover the element {index:?} of the head at item {head}"
    )]
    Overlap {
        /// The head.
        head: usize,
        /// The earlier member.
        first: usize,
        /// The later one.
        second: usize,
        /// An element of the head that they share.
        index: Box<[u64]>,
    },
    /// An element of a partition's head that no member covers (A12).
    #[error("no member covers the element {index:?} of the head at item {head}")]
    Gap {
        /// The head.
        head: usize,
        /// The element.
        index: Box<[u64]>,
    },
    /// An overlay of no members (C11).
    #[error("the head at item {head} is an overlay without members, so without a base")]
    EmptyOverlay {
        /// The head.
        head: usize,
    },
    /// A partition's or overlay's head with a dimension that is not known (C10).
    #[error("dimension {dimension} of the partition's or overlay's head at item {head} is dynamic")]
    DynamicHead {
        /// The head.
        head: usize,
        /// The dimension.
        dimension: usize,
    },
}

impl CompositeError {
    /// The rule of `layouts.md` that does not hold.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::NoHead { .. } => "A0",
            Self::NoShard { .. } => "A1",
            Self::ParentShape { .. } => "A2",
            Self::OutsideHead { .. } => "A3",
            Self::MemberType { .. } => "A4",
            Self::MemberSection { .. }
            | Self::NoMemberSection { .. }
            | Self::HeadInOverlay { .. } => "A5",
            Self::NoBase { .. } | Self::SecondBase { .. } => "A6",
            Self::BaseSpan { .. } => "A7",
            Self::TooManyMembers { .. } => "A8",
            Self::Torn { .. } => "A9",
            Self::Depth { .. } => "A10",
            Self::Overlap { .. } => "A11",
            Self::Gap { .. } => "A12",
            Self::EmptyOverlay { .. } => "C11",
            Self::DynamicHead { .. } => "C10",
        }
    }
}
