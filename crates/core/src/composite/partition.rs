//! Whether boxes tile a shape, in time members × rank (decision 22).

use std::hash::{BuildHasher, RandomState};

use crate::{CompositeError, Shape};

/// The modulus of the check, a Mersenne prime.
const PRIME: u64 = (1 << 61) - 1;

/// The boxes of a partition's members inside its head.
#[derive(Debug)]
pub(super) struct Partition {
    head: usize,
    shape: Shape,
    /// The members' item numbers.
    items: Vec<usize>,
    /// Each member's offset and end per dimension, all members in a row.
    bounds: Vec<(u64, u64)>,
    hash: RandomState,
}

/// A part of the head, as offset and end per dimension.
type Region = Vec<(u64, u64)>;

impl Partition {
    pub(super) fn new(head: usize, shape: &[u64]) -> Self {
        Self {
            head,
            shape: Shape::from_slice(shape),
            items: Vec::new(),
            bounds: Vec::new(),
            hash: RandomState::new(),
        }
    }

    /// Adds a member that lies inside the head.
    pub(super) fn push(&mut self, item: usize, offset: &[u64], shape: &[u64]) {
        self.items.push(item);
        let bounds = offset.iter().zip(shape);
        self.bounds
            .extend(bounds.map(|(&at, &size)| (at, at.saturating_add(size))));
    }

    fn boxed(&self, member: usize) -> &[(u64, u64)] {
        let rank = self.shape.len();
        let start = member.saturating_mul(rank);
        self.bounds
            .get(start..start.saturating_add(rank))
            .unwrap_or_default()
    }

    /// A11, A12: with a random function `H_k` per dimension, the boxes are disjoint and cover the head exactly when `Σ Π_k (H_k(end) −
    /// H_k(offset))` over the boxes is `Π_k (H_k(n_k) − H_k(0))`, up to a chance of rank / 2^61.
    ///
    /// Both sides are sums over the cells of the grid that all bounds span, each cell weighted with how many boxes cover it; they differ
    /// as polynomials in the values of `H` unless every weight is 1 (Schwartz–Zippel).
    pub(super) fn check(&self) -> Result<(), CompositeError> {
        let head: Region = self.shape.iter().map(|&size| (0, size)).collect();
        // An empty box covers nothing, wherever it is.
        let members = self.members_in(&head, 0..self.items.len());
        if self.is_tiled(&head, &members) {
            return Ok(());
        }
        Err(self.find(head, members))
    }

    fn is_tiled(&self, region: &[(u64, u64)], members: &[usize]) -> bool {
        let covered = members.iter().fold(0, |sum, &member| {
            let clipped = self
                .boxed(member)
                .iter()
                .zip(region)
                .map(|(&bounds, &region)| clip(bounds, region));
            add(sum, self.measure(clipped))
        });
        covered == self.measure(region.iter().copied())
    }

    /// `Π_k (H_k(end) − H_k(offset))`.
    fn measure(&self, bounds: impl Iterator<Item = (u64, u64)>) -> u64 {
        bounds
            .enumerate()
            .fold(1, |measure, (dimension, (start, end))| {
                let side = subtract(self.value(dimension, end), self.value(dimension, start));
                multiply(measure, side)
            })
    }

    /// `H_dimension(coordinate)`.
    fn value(&self, dimension: usize, coordinate: u64) -> u64 {
        self.hash
            .hash_one((dimension, coordinate))
            .checked_rem(PRIME)
            .unwrap_or(0)
    }

    /// An element that no member covers or that two do, in a head that is not tiled. Halves the head at a bound of the members in it until
    /// no bound is left inside: of two halves at least one is not tiled, for the sums of both add up to the whole's. Each step drops half of
    /// one dimension's bounds, so that there are rank · log2(2 · members) steps of at most members · rank each.
    fn find(&self, mut region: Region, mut members: Vec<usize>) -> CompositeError {
        let mut cuts = Vec::new();
        for dimension in 0..region.len() {
            while let Some(&(start, end)) = region.get(dimension) {
                cuts.clear();
                cuts.extend(
                    members
                        .iter()
                        .filter_map(|&member| self.boxed(member).get(dimension))
                        .flat_map(|&(low, high)| [low, high])
                        .filter(|&cut| start < cut && cut < end),
                );
                if cuts.is_empty() {
                    break;
                }
                let middle = cuts.len() >> 1;
                let (_, &mut cut, _) = cuts.select_nth_unstable(middle);
                let mut half = region.clone();
                set(&mut half, dimension, (start, cut));
                let inside = self.members_in(&half, members.iter().copied());
                if self.is_tiled(&half, &inside) {
                    set(&mut half, dimension, (cut, end));
                    members = self.members_in(&half, members.into_iter());
                } else {
                    members = inside;
                }
                region = half;
            }
        }
        let index = region.iter().map(|&(start, _)| start).collect();
        let mut covering = members
            .iter()
            .filter_map(|&member| self.items.get(member).copied());
        match (covering.next(), covering.next()) {
            (Some(first), Some(second)) => CompositeError::Overlap {
                head: self.head,
                first,
                second,
                index,
            },
            _ => CompositeError::Gap {
                head: self.head,
                index,
            },
        }
    }

    /// Those of `members` that have an element in `region`.
    fn members_in(
        &self,
        region: &[(u64, u64)],
        members: impl Iterator<Item = usize>,
    ) -> Vec<usize> {
        members
            .filter(|&member| {
                self.boxed(member)
                    .iter()
                    .zip(region)
                    .map(|(&bounds, &region)| clip(bounds, region))
                    .all(|(start, end)| start < end)
            })
            .collect()
    }
}

fn clip(bounds: (u64, u64), region: (u64, u64)) -> (u64, u64) {
    (bounds.0.max(region.0), bounds.1.min(region.1))
}

fn set(region: &mut Region, dimension: usize, bounds: (u64, u64)) {
    if let Some(place) = region.get_mut(dimension) {
        *place = bounds;
    }
}

fn add(left: u64, right: u64) -> u64 {
    // Both are below 2^61.
    reduce(u128::from(left).saturating_add(right.into()))
}

fn subtract(left: u64, right: u64) -> u64 {
    add(left, PRIME.saturating_sub(right))
}

fn multiply(left: u64, right: u64) -> u64 {
    reduce(u128::from(left).saturating_mul(right.into()))
}

/// The remainder by 2^61 − 1 of a number below 2^122, from its lower and upper 61 bits.
fn reduce(number: u128) -> u64 {
    let low = u64::try_from(number & u128::from(PRIME)).unwrap_or(0);
    let high = u64::try_from(number >> 61).unwrap_or(0);
    let sum = low.saturating_add(high);
    if sum >= PRIME {
        sum.saturating_sub(PRIME)
    } else {
        sum
    }
}
