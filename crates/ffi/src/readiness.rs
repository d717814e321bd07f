use hurray_core::SyncMode;

/// When a buffer's bytes may be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Readiness {
    /// All writes are complete.
    #[default]
    Ready,
    /// A C producer, a foreign list or a descriptor states this mode. It is relayed, with the event or stream that came with it; the bytes are
    /// refused, since nothing here can wait.
    Declared(SyncMode),
}

impl Readiness {
    /// The mode of a row over such a buffer.
    #[must_use]
    pub const fn mode(self) -> SyncMode {
        match self {
            Self::Ready => SyncMode::ProducerSynced,
            Self::Declared(mode) => mode,
        }
    }

    /// Whether the bytes may be read at once.
    #[must_use]
    pub const fn is_ready(self) -> bool {
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
