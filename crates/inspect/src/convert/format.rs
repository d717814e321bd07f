use std::fmt;
use std::path::Path;

use clap::ValueEnum;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Format {
    /// A file of this project, `.hrry`.
    Hurray,
    /// `.safetensors`.
    Safetensors,
    /// One NumPy array, `.npy`; read only.
    Npy,
    /// NumPy arrays in a zip archive, `.npz`; read only.
    Npz,
    /// `.gguf`; read only.
    Gguf,
}

impl Format {
    /// The format that the end of a file's name says, in either case.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "hrry" | "hurray" => Self::Hurray,
            "safetensors" => Self::Safetensors,
            "npy" => Self::Npy,
            "npz" => Self::Npz,
            "gguf" => Self::Gguf,
            _ => return None,
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hurray => "hurray",
            Self::Safetensors => "safetensors",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Gguf => "gguf",
        })
    }
}
