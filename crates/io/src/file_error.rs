use std::{fmt, io};

use hurray_core::memory::AllocationError;
use hurray_core::{CompositeError, DeviceError};
use hurray_ffi::access::AccessError;
use hurray_ffi::{OrderError, TensorError};
use thiserror::Error;

use crate::outflow::WriteError;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Section {
    /// The first 64 bytes.
    Header,
    /// The descriptor of the tensor of this name.
    Descriptor(Box<str>),
    /// The buffers of the tensor of this name and the gaps between them.
    Data(Box<str>),
    /// The metadata section.
    Metadata,
    /// The index section.
    Index,
    /// The last 40 bytes.
    Trailer,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.pad("the header"),
            Self::Descriptor(name) => write!(f, "the descriptor of {name:?}"),
            Self::Data(name) => write!(f, "the data of {name:?}"),
            Self::Metadata => f.pad("the metadata"),
            Self::Index => f.pad("the index"),
            Self::Trailer => f.pad("the trailer"),
        }
    }
}

/// What can be wrong with a file, and with what is written to one. Entries are numbered from 0; offsets and lengths are in bytes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Less than a header (FC1).
    #[error("a file of {size} bytes has no 64-byte header")]
    NoHeader {
        /// The file's bytes.
        size: u64,
    },
    /// Not a container (FC2).
    #[error("the file begins with {found:02x?}, not with HRRYFILE")]
    Magic {
        /// The first bytes.
        found: [u8; 8],
    },
    /// A container version that is not known (FC3).
    #[error("the container version is {major}.x, and 1.x is known")]
    Version {
        /// The major version.
        major: u8,
    },
    /// Reserved file flags (FC4).
    #[error("the file flags {flags:#010x} have reserved bits")]
    Flags {
        /// All flags.
        flags: u32,
    },
    /// No room for a trailer (FC5).
    #[error("a file of {size} bytes has no 40-byte trailer behind its header")]
    NoTrailer {
        /// The file's bytes.
        size: u64,
    },
    /// The file was cut, or appended to (FC6).
    #[error("the file ends with {found:02x?}, not with HRRY: it was cut or appended to")]
    TrailerMagic {
        /// The last bytes.
        found: [u8; 4],
    },
    /// An index that does not lie before the trailer (FC7).
    #[error("the index is {length} bytes at {offset}, and the trailer begins at {trailer}")]
    IndexRange {
        /// The index's first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
        /// The trailer's first byte.
        trailer: u64,
    },
    /// An index with another checksum (FC8).
    #[error("the index has the CRC-32C {computed:08x}, and the trailer states {stated:08x}")]
    Checksum {
        /// What the trailer says.
        stated: u32,
        /// What the bytes have.
        computed: u32,
    },
    /// An index that ends inside an entry, or cannot hold as many as it states (FC9).
    #[error("the index ends in entry {entry} of {count}")]
    IndexTruncated {
        /// The first entry that is not there.
        entry: u64,
        /// Entries that the index states.
        count: u64,
    },
    /// A tensor without a name (FC10).
    #[error("entry {entry} of the index has an empty name")]
    EmptyName {
        /// The entry.
        entry: u64,
    },
    /// A name that is not UTF-8 (FC11).
    #[error("the name of entry {entry} of the index is not UTF-8")]
    NameUtf8 {
        /// The entry.
        entry: u64,
    },
    /// Two tensors of one name (FC12).
    #[error("two tensors are named {name:?}")]
    DuplicateName {
        /// The name.
        name: Box<str>,
    },
    /// Metadata that does not lie before the trailer (FC13).
    #[error("the metadata is {length} bytes at {offset}, and the trailer begins at {trailer}")]
    MetadataRange {
        /// The section's first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
        /// The trailer's first byte.
        trailer: u64,
    },
    /// Metadata that ends inside an entry (FC14).
    #[error("the metadata ends in entry {entry}")]
    MetadataTruncated {
        /// The entry.
        entry: u32,
    },
    /// An empty key (FC15).
    #[error("entry {entry} of the metadata has an empty key")]
    EmptyKey {
        /// The entry.
        entry: u32,
    },
    /// A key that is not UTF-8 (FC16).
    #[error("the key of entry {entry} of the metadata is not UTF-8")]
    KeyUtf8 {
        /// The entry.
        entry: u32,
    },
    /// Two values of one key (FC17).
    #[error("the metadata has the key {key:?} twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A value of no known type (FC18).
    #[error("entry {entry} of the metadata has a value of type {tag:#04x}")]
    ValueTag {
        /// The entry.
        entry: u32,
        /// The tag of the value or of an array's elements.
        tag: u8,
    },
    /// A boolean that is neither 0 nor 1 (FC19).
    #[error("entry {entry} of the metadata has the boolean {byte}")]
    BoolByte {
        /// The entry.
        entry: u32,
        /// The byte.
        byte: u8,
    },
    /// A text that is not UTF-8 (FC20).
    #[error("a string in entry {entry} of the metadata is not UTF-8")]
    StringUtf8 {
        /// The entry.
        entry: u32,
    },
    /// A descriptor that does not lie before the trailer (FC21).
    #[error(
        "the descriptor of {name:?} is {length} bytes at {offset}, and the trailer begins at {trailer}"
    )]
    DescriptorRange {
        /// The tensor.
        name: Box<str>,
        /// The descriptor's first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
        /// The trailer's first byte.
        trailer: u64,
    },
    /// A descriptor that cannot be read (FC22).
    #[error("the descriptor of {name:?}: {source}")]
    Descriptor {
        /// The tensor.
        name: Box<str>,
        /// What is wrong with it.
        source: hurray_core::Error,
    },
    /// A descriptor of another length than its entry says (FC23).
    #[error("the index gives {stated} bytes to the descriptor of {name:?}, {}", match .found {
        Some(found) => format!("which has {found}"),
        None => "too few to say how many it has".into(),
    })]
    DescriptorLength {
        /// The tensor.
        name: Box<str>,
        /// What the index says.
        stated: u32,
        /// What the descriptor says, if the index leaves it the bytes to say so.
        found: Option<u32>,
    },
    /// Data that do not lie in the file (FC24).
    #[error("the data of {name:?} are {length} bytes at {offset}, and the file has {size}")]
    DataRange {
        /// The tensor.
        name: Box<str>,
        /// The first byte.
        offset: u64,
        /// Bytes, gaps included, as the entry or the rows say; 2^64 − 1 where they are more.
        length: u64,
        /// The file's bytes.
        size: u64,
    },
    /// Members that do not make their composite (FC25, FC26, FC27).
    #[error("the composite {name:?}: {source}")]
    Composite {
        /// The outermost head.
        name: Box<str>,
        /// What is wrong; its items count from the outermost head.
        source: CompositeError,
    },
    /// Reserved bytes in use (FC28).
    #[error("reserved bytes of {section} are not 0")]
    Reserved {
        /// Header or trailer.
        section: Section,
    },
    /// An alignment that is not offered (FC29).
    #[error("the data alignment {alignment} is not a power of two from 4096 to 2097152")]
    Alignment {
        /// The alignment.
        alignment: u32,
    },
    /// The first descriptor is not where the header says (FC30).
    #[error("the header says that the first descriptor is at {stated}{}", match .found {
        Some(found) => format!(", and it is at {found}"),
        None => ", where none can be".into(),
    })]
    FirstDescriptor {
        /// What the header says: a multiple of 8, 64 or more.
        stated: u64,
        /// The lowest descriptor; `None` without tensors.
        found: Option<u64>,
    },
    /// A descriptor at an offset that it cannot have (FC31).
    #[error("the descriptor of {name:?} is at {offset}: not a multiple of 8 from {first} on")]
    DescriptorOffset {
        /// The tensor.
        name: Box<str>,
        /// The offset.
        offset: u64,
        /// The header's `first_descriptor_offset`.
        first: u64,
    },
    /// Data that are not aligned as the header says (FC32).
    #[error("the data of {name:?} are at {offset}, which is no multiple of {alignment}")]
    DataOffset {
        /// The tensor.
        name: Box<str>,
        /// The offset.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },
    /// Data of another length than the descriptor's rows give (FC33).
    #[error("the data of {name:?} take {needed} bytes, and the index says {stated}")]
    DataLength {
        /// The tensor.
        name: Box<str>,
        /// What the index says.
        stated: u64,
        /// What the rows give.
        needed: u64,
    },
    /// Flags of an entry (FC34).
    #[error("the index has the flags {flags:#x} for {name:?}, and none are known")]
    EntryFlags {
        /// The tensor.
        name: Box<str>,
        /// The flags.
        flags: u32,
    },
    /// Two parts that share bytes (FC35).
    #[error("{first} and {second} share bytes")]
    Overlap {
        /// The part that begins first.
        first: Section,
        /// The other.
        second: Section,
    },
    /// A section at an offset that is no multiple of 8 (FC36).
    #[error("{section} is at {offset}, which is no multiple of 8")]
    SectionOffset {
        /// Metadata or index.
        section: Section,
        /// The offset.
        offset: u64,
    },
    /// Metadata that are half there (FC37).
    #[error("the metadata is {length} bytes at {offset}, and the header {}", if *.announced { "announces it" } else { "does not announce it" })]
    MetadataPresence {
        /// The trailer's offset.
        offset: u64,
        /// The trailer's length.
        length: u32,
        /// Flag bit 0.
        announced: bool,
    },
    /// A checksum without the flag that says so (FC38).
    #[error(
        "the trailer states the CRC-32C {stated:08x}, and the file flags say that there is none"
    )]
    UnannouncedChecksum {
        /// What the trailer says.
        stated: u32,
    },
    /// An index that says that it is sorted, and is not (FC39).
    #[error("the index is said to be sorted, and {name:?} follows {before:?}")]
    Unsorted {
        /// The name before.
        before: Box<str>,
        /// The lower name that follows.
        name: Box<str>,
    },
    /// Bytes left over in a section (FC40).
    #[error("{bytes} bytes are left over in {section}")]
    Trailing {
        /// Metadata or index.
        section: Section,
        /// Bytes.
        bytes: usize,
    },
    /// Buffers that are too small for the descriptor (FC41), or that cannot be what its rows say.
    #[error("the tensor {name:?}: {source}")]
    Tensor {
        /// The tensor.
        name: Box<str>,
        /// What is wrong.
        source: TensorError,
    },
    /// A name that the file does not have (FC42).
    #[error("there is no tensor {name:?}")]
    NoTensor {
        /// The name.
        name: Box<str>,
    },
    /// A head where a tensor was asked for.
    #[error("{name:?} is the head of a composite")]
    IsComposite {
        /// The name.
        name: Box<str>,
    },
    /// A part of a tensor that cannot be had without the rest.
    #[error("a slice of {name:?}: {source}")]
    Slice {
        /// The tensor.
        name: Box<str>,
        /// Why.
        source: crate::SliceError,
    },
    /// The system has no memory for what is read.
    #[error(transparent)]
    Memory(#[from] AllocationError),
    /// A device that cannot be used, or bytes that could not be brought onto a stream of it.
    #[error(transparent)]
    Device(#[from] OrderError),
    /// Whoever was told of the progress stopped the work.
    #[error("stopped before it was done")]
    Stopped,
    /// Bytes of the file that cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A name that no entry can hold.
    #[error("a name has 1 to 65535 bytes, not {len}")]
    NameLength {
        /// Its bytes.
        len: usize,
    },
    /// A key that no entry can hold.
    #[error("a key has 1 to 65535 bytes, not {len}")]
    KeyLength {
        /// Its bytes.
        len: usize,
    },
    /// Metadata, or a part of it, of 4 GiB or more.
    #[error("{len} bytes or values are more than metadata can hold")]
    MetadataLength {
        /// Bytes or values.
        len: usize,
    },
    /// An array without values, which has no type.
    #[error("the array {key:?} is empty")]
    EmptyArray {
        /// The key.
        key: Box<str>,
    },
    /// A file that an earlier error left unfinished, or a composite that misses members.
    #[error("the file cannot be finished: an earlier write failed, or a composite misses members")]
    Unfinished,
    /// A tensor that cannot be written.
    #[error("the tensor {name:?} cannot be written: {source}")]
    Unwritable {
        /// The tensor.
        name: Box<str>,
        /// Why.
        source: crate::OutgoingError,
    },
}

impl From<WriteError> for FileError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Io(error) => Self::Io(error),
            WriteError::Order(error) => Self::Device(error),
        }
    }
}

impl From<DeviceError> for FileError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error.into())
    }
}

impl FileError {
    /// The rule of `file.md` § 8 that does not hold; empty where it is none of those.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::NoHeader { .. } => "FC1",
            Self::Magic { .. } => "FC2",
            Self::Version { .. } => "FC3",
            Self::Flags { .. } => "FC4",
            Self::NoTrailer { .. } => "FC5",
            Self::TrailerMagic { .. } => "FC6",
            Self::IndexRange { .. } => "FC7",
            Self::Checksum { .. } => "FC8",
            Self::IndexTruncated { .. } => "FC9",
            Self::EmptyName { .. } => "FC10",
            Self::NameUtf8 { .. } => "FC11",
            Self::DuplicateName { .. } => "FC12",
            Self::MetadataRange { .. } => "FC13",
            Self::MetadataTruncated { .. } => "FC14",
            Self::EmptyKey { .. } => "FC15",
            Self::KeyUtf8 { .. } => "FC16",
            Self::DuplicateKey { .. } => "FC17",
            Self::ValueTag { .. } => "FC18",
            Self::BoolByte { .. } => "FC19",
            Self::StringUtf8 { .. } => "FC20",
            Self::DescriptorRange { .. } => "FC21",
            Self::Descriptor { .. } => "FC22",
            Self::DescriptorLength { .. } => "FC23",
            Self::DataRange { .. } => "FC24",
            Self::Composite { source, .. } => match source {
                CompositeError::Torn { .. } => "FC25",
                CompositeError::Depth { .. } => "FC27",
                _ => "FC26",
            },
            Self::Reserved { .. } => "FC28",
            Self::Alignment { .. } => "FC29",
            Self::FirstDescriptor { .. } => "FC30",
            Self::DescriptorOffset { .. } => "FC31",
            Self::DataOffset { .. } => "FC32",
            Self::DataLength { .. } => "FC33",
            Self::EntryFlags { .. } => "FC34",
            Self::Overlap { .. } => "FC35",
            Self::SectionOffset { .. } => "FC36",
            Self::MetadataPresence { .. } => "FC37",
            Self::UnannouncedChecksum { .. } => "FC38",
            Self::Unsorted { .. } => "FC39",
            Self::Trailing { .. } => "FC40",
            Self::Tensor {
                source: TensorError::Descriptor(_),
                ..
            } => "FC41",
            Self::NoTensor { .. } => "FC42",
            _ => "",
        }
    }
}
