//! Conversion from and to other formats.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use thiserror::Error;

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// What to convert
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// What to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
}

/// Why a conversion failed.
#[derive(Debug, Error)]
pub(crate) enum ConvertError {
    /// No format of that name.
    #[error("{} cannot be converted to {}", .input.display(), .output.display())]
    Format {
        /// The input.
        input: PathBuf,
        /// The output.
        output: PathBuf,
    },
}

/// Converts.
pub(crate) fn run(args: &ConvertArgs, _out: &mut dyn Write) -> Result<(), ConvertError> {
    Err(ConvertError::Format {
        input: args.input.clone(),
        output: args.output.clone(),
    })
}
