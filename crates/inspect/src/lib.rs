//! The command line: what a file, a stream or a descriptor holds, whether it is whole, what differs between two, and conversion from and to other
//! formats.
//!
//! The binaries and the Python package call [`run`] and [`run_inspect`], which write to the process's standard output and standard error and give
//! its exit status.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![forbid(unsafe_code)]

mod arguments;
mod command_error;
pub mod convert;
mod data;
mod diff;
mod fault;
mod fields;
mod input;
mod inspect;
mod progress;
mod report;
mod spent;
mod verify;

use std::ffi::OsString;
use std::io::{BufWriter, Write};

use clap::Parser;

use arguments::{Alias, Command, CommandLine};
use command_error::{CommandError, Outcome};

/// Runs `hurray` with the arguments of its command line, the program's name first; gives the exit status.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    match CommandLine::try_parse_from(args) {
        Ok(line) => {
            line.color.write_global();
            status(dispatch(line.command, &mut standard_output()))
        }
        Err(error) => refuse(&error),
    }
}

/// Runs `hurray-inspect`, which is `hurray inspect`.
pub fn run_inspect(args: impl IntoIterator<Item = OsString>) -> u8 {
    match Alias::try_parse_from(args) {
        Ok(line) => {
            line.color.write_global();
            let command = Command::Inspect(line.args);
            status(dispatch(command, &mut standard_output()))
        }
        Err(error) => refuse(&error),
    }
}

fn dispatch(command: Command, out: &mut dyn Write) -> Result<Outcome, CommandError> {
    let outcome = match command {
        Command::Inspect(args) => inspect::run(&args, out)?,
        Command::Verify(args) => verify::run(&args, out)?,
        Command::Diff(args) => diff::run(&args, out)?,
        Command::Convert(args) => {
            convert::run(&args, out)?;
            Outcome::Done
        }
        Command::Completions { shell } => {
            arguments::completions(shell, out)?;
            Outcome::Done
        }
        Command::Man { command } => {
            arguments::manual(command.as_deref(), out)?;
            Outcome::Done
        }
    };
    out.flush()?;
    Ok(outcome)
}

/// Standard output, without colours where they are not wanted.
fn standard_output() -> impl Write {
    BufWriter::new(anstream::stdout())
}

/// The exit status; what went wrong goes to standard error.
fn status(result: Result<Outcome, CommandError>) -> u8 {
    match result {
        Ok(outcome) => outcome.status(),
        Err(error) => {
            if !error.is_closed_pipe() {
                error.report();
            }
            error.status()
        }
    }
}

/// Prints what clap says: help to standard output, a mistake to standard error.
fn refuse(error: &clap::Error) -> u8 {
    // Nobody is left to tell where that fails.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(Outcome::Trouble.status())
}
