//! The shard section: which part of a larger tensor this one is (`descriptor.md` § 11.1).

use crate::Shape;

/// A tensor's place in its parent: it covers `offset[k] .. offset[k] + shape[k]` of dimension k.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The parent's dimensions, as many as the tensor has.
    pub parent_shape: Shape,
    /// The position of the tensor's first element in the parent, per dimension.
    pub offset: Shape,
}
