//! Handles that are given out again as soon as they are destroyed, as a driver's are: a stale one is either reported or somebody else's.

use std::fmt;
use std::marker::PhantomData;

use cudarc::driver::sys::CUresult;

/// Bytes between two handles of a kind.
const STEP: usize = 16;
/// Handles are not canonical addresses, so that reading through one faults.
const BASE: usize = 0x0cda_0000_0000_0000;
/// Address bits that tell the kinds apart.
const KIND_SHIFT: u32 = 36;

/// What a handle is found to be.
pub(crate) enum Misuse {
    /// It was one, and has been destroyed.
    Destroyed,
    /// It never was one.
    Unknown,
}

impl From<Misuse> for CUresult {
    fn from(_: Misuse) -> Self {
        Self::CUDA_ERROR_INVALID_HANDLE
    }
}

/// All things of one kind.
pub(crate) struct Handles<T, P> {
    kind: &'static str,
    base: usize,
    slots: Vec<Option<T>>,
    free: Vec<usize>,
    pointer: PhantomData<fn() -> P>,
}

impl<T, P> Handles<T, *mut P> {
    pub(crate) fn new(kind: &'static str, number: usize) -> Self {
        Self {
            kind,
            base: BASE | (number << KIND_SHIFT),
            slots: Vec::new(),
            free: Vec::new(),
            pointer: PhantomData,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn insert(&mut self, thing: T) -> *mut P {
        // The handle that was destroyed last is the first to come back: the worst for a program that kept it.
        let index = self.free.pop().unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(None);
        }
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Some(thing);
        }
        std::ptr::without_provenance_mut(self.base + (index + 1) * STEP)
    }

    fn index(&self, handle: *mut P) -> Result<usize, Misuse> {
        let offset = handle
            .addr()
            .checked_sub(self.base + STEP)
            .ok_or(Misuse::Unknown)?;
        let index = offset / STEP;
        if !offset.is_multiple_of(STEP) || index >= self.slots.len() {
            Err(Misuse::Unknown)
        } else {
            Ok(index)
        }
    }

    pub(crate) fn get(&self, handle: *mut P) -> Result<&T, Misuse> {
        let index = self.index(handle)?;
        self.slots
            .get(index)
            .and_then(Option::as_ref)
            .ok_or(Misuse::Destroyed)
    }

    pub(crate) fn get_mut(&mut self, handle: *mut P) -> Result<&mut T, Misuse> {
        let index = self.index(handle)?;
        self.slots
            .get_mut(index)
            .and_then(Option::as_mut)
            .ok_or(Misuse::Destroyed)
    }

    pub(crate) fn remove(&mut self, handle: *mut P) -> Result<T, Misuse> {
        let index = self.index(handle)?;
        let thing = self
            .slots
            .get_mut(index)
            .and_then(Option::take)
            .ok_or(Misuse::Destroyed)?;
        self.free.push(index);
        Ok(thing)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (*mut P, &T)> {
        let base = self.base;
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(index, slot)| {
                slot.as_ref().map(|thing| {
                    (
                        std::ptr::without_provenance_mut(base + (index + 1) * STEP),
                        thing,
                    )
                })
            })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(Option::as_mut)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<T, P> fmt::Debug for Handles<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}s", self.slots.len() - self.free.len(), self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destroyed_handle_comes_back_first() {
        let mut things: Handles<u8, *mut u8> = Handles::new("thing", 3);
        let (first, second) = (things.insert(1), things.insert(2));
        assert!(matches!(things.remove(first), Ok(1)));
        assert!(matches!(things.get(first), Err(Misuse::Destroyed)));
        assert!(matches!(things.remove(first), Err(Misuse::Destroyed)));
        assert_eq!(things.insert(3), first);
        assert!(matches!(
            (things.get(first), things.get(second)),
            (Ok(3), Ok(2))
        ));
    }

    #[test]
    fn what_never_was_a_handle_is_none() {
        let mut things: Handles<u8, *mut u8> = Handles::new("thing", 3);
        let mut others: Handles<u8, *mut u8> = Handles::new("other", 4);
        let (thing, other) = (things.insert(1), others.insert(2));
        for wrong in [
            std::ptr::null_mut(),
            other,
            thing.wrapping_add(1),
            thing.wrapping_add(STEP),
        ] {
            assert!(matches!(things.get(wrong), Err(Misuse::Unknown)));
        }
    }
}
