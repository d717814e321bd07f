//! When the bytes of a buffer may be read.

use std::fmt;

/// How a consumer learns that a buffer's bytes may be read (`buffers.md` § 6). `Display` gives the mode's one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SyncMode {
    /// All writes are complete: the bytes may be read at once.
    #[default]
    ProducerSynced = 0,
    /// An event, recorded after the last write, travels beside the row; every stream that touches the bytes waits for it.
    Event = 1,
    /// A stream that is already ordered after the writes travels beside the row; any other stream needs a wait of its own.
    ConsumerStream = 2,
}

impl SyncMode {
    /// The mode for a byte of the wire; `None` for a byte the format does not define (R36).
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::ProducerSynced),
            1 => Some(Self::Event),
            2 => Some(Self::ConsumerStream),
            _ => None,
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::ProducerSynced => 0,
            Self::Event => 1,
            Self::ConsumerStream => 2,
        }
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ProducerSynced => "producer_synced",
            Self::Event => "event",
            Self::ConsumerStream => "consumer_stream",
        })
    }
}
