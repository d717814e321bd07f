//! How a command ends, and the exit status that says so.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::convert::ConvertError;
use crate::fault::Fault;
use crate::report::printable;

/// How a command that ran to its end found things; the worst is the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// As they should be, or equal.
    Done,
    /// Malformed, or different.
    Found,
    /// No answer could be had.
    Trouble,
}

impl Outcome {
    /// What a shell reports of a program that SIGPIPE ended.
    const CLOSED_PIPE: u8 = 128 + 13;

    /// The exit status.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Found => 1,
            Self::Trouble => 2,
        }
    }
}

/// Why a command gave no answer.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    /// The input could not be read.
    #[error("{}: {source}", .input.display())]
    Read {
        /// Its path.
        input: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An input that has to be well-formed is not.
    #[error("{}: {fault}", .input.display())]
    Malformed {
        /// Its path.
        input: PathBuf,
        /// The first thing that is wrong.
        fault: Box<Fault>,
    },
    /// The input has no tensor of that name.
    #[error("there is no tensor {0:?}")]
    NoTensor(String),
    /// A file where it cannot be read from its end.
    #[error("{}: a file is read from its end, and this can be read only from the front", .0.display())]
    FileInPipe(PathBuf),
    /// No temporary file for what can be read only once.
    #[error("temporary file: {0}")]
    Temporary(io::Error),
    /// There is no such subcommand to write a manual page of.
    #[error("there is no command {0:?}")]
    NoCommand(String),
    /// A conversion failed.
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

impl CommandError {
    /// Whether the reader of standard output went away, as `head` does.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Convert(error) if error.is_malformed_input() => Outcome::Found.status(),
            _ if self.is_closed_pipe() => Outcome::CLOSED_PIPE,
            _ => Outcome::Trouble.status(),
        }
    }

    /// Says what went wrong.
    pub(crate) fn report(&self) {
        let style = clap::builder::Styles::default();
        let error = style.get_error();
        let text = self.to_string();
        let lines: Vec<_> = text.lines().map(printable).collect();
        anstream::eprintln!("{error}error:{error:#} {}", lines.join("\n"));
    }
}
