//! The shard section: which part of a larger tensor this one is (`descriptor.md` § 11.1).

use crate::{DYNAMIC, DescriptorError, Shape};

/// A tensor's place in its parent: it covers `offset[k] .. offset[k] + shape[k]` of dimension k.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The parent's dimensions, as many as the tensor has.
    pub parent_shape: Shape,
    /// The position of the tensor's first element in the parent, per dimension.
    pub offset: Shape,
}

impl Shard {
    /// Checks that a tensor of `shape` lies inside the parent, in exact arithmetic.
    ///
    /// # Errors
    /// `parent_shape` or `offset` of another rank than `shape` (W3), a dynamic parent (S12), a box that ends outside the parent (R43,
    /// S13). A dynamic dimension of the shape or the offset never lies inside a parent that is known.
    pub fn validate(&self, shape: &[u64]) -> Result<(), DescriptorError> {
        for (parameter, list) in [
            ("parent_shape", &self.parent_shape),
            ("shard_offset", &self.offset),
        ] {
            if list.len() != shape.len() {
                return Err(DescriptorError::ParameterLength {
                    parameter,
                    length: list.len(),
                    rank: shape.len(),
                });
            }
        }
        let boxes = self.parent_shape.iter().zip(&self.offset).zip(shape);
        for (dimension, ((&parent, &offset), &extent)) in boxes.enumerate() {
            if parent == DYNAMIC {
                return Err(DescriptorError::ShardDynamic { dimension });
            }
            if offset.checked_add(extent).is_none_or(|end| end > parent) {
                return Err(DescriptorError::ShardOutOfBounds {
                    dimension,
                    offset,
                    extent,
                    parent,
                });
            }
        }
        Ok(())
    }
}
