//! How a command ends, and the exit status that says so.

use std::io;

use thiserror::Error;

use crate::convert::ConvertError;

/// How a command that ran to its end found things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As they should be, or equal.
    Done,
    /// Malformed, or different.
    #[allow(dead_code, reason = "verify and diff give it")]
    Found,
}

impl Outcome {
    /// The exit status where no answer could be had.
    pub(crate) const TROUBLE: u8 = 2;
    /// What a shell reports of a program that SIGPIPE ended.
    const CLOSED_PIPE: u8 = 128 + 13;

    /// The exit status.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Found => 1,
        }
    }
}

/// Why a command gave no answer.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
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
        if self.is_closed_pipe() {
            Outcome::CLOSED_PIPE
        } else {
            Outcome::TROUBLE
        }
    }

    /// Says what went wrong.
    pub(crate) fn report(&self) {
        let style = clap::builder::Styles::default();
        let error = style.get_error();
        anstream::eprintln!("{error}error:{error:#} {self}");
    }
}
