use hurray_core::{Dependency, SyncMode};

/// When a buffer's bytes may be read.
#[derive(Clone, Debug, Default)]
pub enum Readiness {
    /// All writes are complete.
    #[default]
    Ready,
    /// Once this device work is done.
    Held(Dependency),
    /// A C producer, a foreign list or a descriptor states this mode, and nothing here can wait: no event or stream came, or there is no driver. It is
    /// relayed, with the event or stream if there is one; the bytes are refused.
    Declared(SyncMode),
}

impl Readiness {
    /// The mode of a row over such a buffer.
    #[must_use]
    pub const fn mode(&self) -> SyncMode {
        match self {
            Self::Ready => SyncMode::ProducerSynced,
            Self::Held(dependency) => Self::mode_of(dependency),
            Self::Declared(mode) => *mode,
        }
    }

    /// The mode of bytes that depend on this work.
    pub(crate) const fn mode_of(dependency: &Dependency) -> SyncMode {
        match dependency {
            Dependency::Event(_) => SyncMode::Event,
            Dependency::Stream(_) => SyncMode::ConsumerStream,
        }
    }

    /// Whether the bytes may be read at once.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self.mode(), SyncMode::ProducerSynced)
    }
}

/// Ready where `mode` is producer-synced, else declared.
impl From<SyncMode> for Readiness {
    fn from(mode: SyncMode) -> Self {
        match mode {
            SyncMode::ProducerSynced => Self::Ready,
            mode => Self::Declared(mode),
        }
    }
}
