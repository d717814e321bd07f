use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hurray_ffi::gather::GatherError;
use hurray_io::FileError;
use safetensors::SafeTensorError;
use thiserror::Error;
use zip::result::ZipError;

use super::gguf::GgufError;
use super::npy_header::NpyError;
use super::{Format, Refusal};

/// Tensors that are named in a message before it says how many more there are.
const MOST_NAMED: usize = 20;

/// Why a conversion failed. What was at the output's path is unchanged then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// A name that says no format.
    #[error("the name {} says no format: --from and --to do", .path.display())]
    UnknownFormat {
        /// The name.
        path: PathBuf,
    },
    /// A format that is only read.
    #[error("{format} is read, and not written")]
    ReadOnly {
        /// The format.
        format: Format,
    },
    /// Nothing to convert.
    #[error("both are {format}")]
    SameFormat {
        /// The format.
        format: Format,
    },
    /// The input could not be opened or mapped.
    #[error("{}: {source}", .path.display())]
    Input {
        /// The input.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The output could not be written.
    #[error("{}: {source}", .path.display())]
    Output {
        /// The output.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An output that its format does not allow: a name or a key of another length, an alignment that is not offered.
    #[error("{}: {source}", .path.display())]
    Unwritable {
        /// The output.
        path: PathBuf,
        /// What is not allowed.
        source: Box<FileError>,
    },
    /// A file of this project that is malformed; a conversion that was stopped.
    #[error(transparent)]
    File(#[from] FileError),
    /// A malformed safetensors file.
    #[error("safetensors: {0}")]
    Safetensors(#[from] SafeTensorError),
    /// A safetensors file that cannot be made.
    #[error("safetensors cannot hold all of it: {0}")]
    Header(SafeTensorError),
    /// A malformed GGUF file.
    #[error("GGUF: {0}")]
    Gguf(#[from] GgufError),
    /// A malformed archive.
    #[error("zip: {0}")]
    Zip(#[from] ZipError),
    /// An archive whose members share bytes, as those do that unpack to far more than they are.
    #[error("members of the archive lie over each other")]
    OverlappingMembers,
    /// An archive with two members of one name.
    #[error("two members of the archive have one name")]
    DuplicateMembers,
    /// A member of an archive that cannot be read, or whose bytes its checksum does not fit.
    #[error("{name:?}: {source}")]
    Member {
        /// The array's name.
        name: String,
        /// What reading it gave.
        source: io::Error,
    },
    /// More bytes than are wanted.
    #[error("the input becomes {bytes} bytes or more, and --max-unpacked allows {most}")]
    Unpacked {
        /// What it becomes.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// A malformed array.
    #[error("{name:?}: {source}")]
    Npy {
        /// The array's name.
        name: String,
        /// What is wrong.
        source: NpyError,
    },
    /// A name that the input lacks.
    #[error("the input has no tensor {name:?}")]
    NoTensor {
        /// The name.
        name: String,
    },
    /// Two parts of the output with one name.
    #[error("two tensors would be named {name:?}")]
    Collision {
        /// The name.
        name: String,
    },
    /// Tensors that cannot be taken over or written.
    #[error("{0}")]
    Refused(Refused),
    /// Elements that could not be copied into row-major order.
    #[error("{name:?}: {source}")]
    Gather {
        /// The tensor's name.
        name: String,
        /// What is wrong.
        source: GatherError,
    },
    /// No memory for a tensor.
    #[error("there is no memory for {bytes} bytes")]
    Memory {
        /// Bytes that were wanted.
        bytes: usize,
    },
}

impl ConvertError {
    /// Of a file of this project that could not be written.
    pub(crate) fn unwritable(path: &Path, error: FileError) -> Self {
        let path = path.to_owned();
        match error {
            FileError::Io(source) => Self::Output { path, source },
            source => {
                let source = Box::new(source);
                Self::Unwritable { path, source }
            }
        }
    }

    pub(crate) fn member(name: &str, source: io::Error) -> Self {
        Self::Member {
            name: name.to_owned(),
            source,
        }
    }

    /// Whether the input breaks a rule of its format.
    #[must_use]
    pub fn is_malformed_input(&self) -> bool {
        match self {
            Self::Gguf(_)
            | Self::OverlappingMembers
            | Self::DuplicateMembers
            | Self::Npy { .. } => true,
            Self::Zip(error) => !matches!(error, ZipError::Io(_)),
            Self::Member { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::Other
            ),
            Self::File(error) => !error.rule().is_empty(),
            Self::Safetensors(error) => !matches!(error, SafeTensorError::IoError(_)),
            _ => false,
        }
    }
}

/// Every tensor that cannot be taken over or written, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused(pub Vec<(String, Refusal)>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, reason)) in self.0.iter().take(MOST_NAMED).enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{name:?} is not converted: {reason}")?;
        }
        match self.0.len().checked_sub(MOST_NAMED) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\nand {more} more"),
        }
    }
}
