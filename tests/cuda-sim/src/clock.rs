//! Vector clocks: what has happened before what.

/// Whose steps a clock counts: the program's threads together, the reclaimer, and each stream.
pub(crate) type Actor = usize;

/// All threads of the program. One actor, since channels and joins between them can't be seen.
pub(crate) const PROGRAM: Actor = 0;
/// The reclaimer's thread, which learns what the program knows and tells nothing.
pub(crate) const RECLAIMER: Actor = 1;
/// The first stream's actor.
pub(crate) const FIRST_STREAM: Actor = 2;

/// One step of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) actor: Actor,
    pub(crate) step: u32,
}

/// The last step of every actor that is known to have happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<u32>);

impl Clock {
    /// Whether `epoch` has happened before this clock.
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        self.0.get(epoch.actor).copied().unwrap_or(0) >= epoch.step
    }

    /// Learns what another clock knows.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, &theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(theirs);
        }
    }

    /// Learns one actor's step.
    pub(crate) fn learn(&mut self, epoch: Epoch) {
        if self.0.len() <= epoch.actor {
            self.0.resize(epoch.actor + 1, 0);
        }
        if let Some(step) = self.0.get_mut(epoch.actor) {
            *step = (*step).max(epoch.step);
        }
    }

    /// The last step of an actor that it knows.
    pub(crate) fn epoch(&self, actor: Actor) -> Epoch {
        Epoch {
            actor,
            step: self.0.get(actor).copied().unwrap_or(0),
        }
    }

    /// Takes the actor's next step.
    pub(crate) fn tick(&mut self, actor: Actor) -> Epoch {
        let epoch = Epoch {
            actor,
            step: self.epoch(actor).step + 1,
        };
        self.learn(epoch);
        epoch
    }
}
