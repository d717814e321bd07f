//! The command line as clap reads it, and what clap makes of it: completions and manual pages.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use colorchoice_clap::Color;

use crate::command_error::CommandError;
use crate::convert::ConvertArgs;
use crate::input::Format;

const EXIT_STATUS: &str = "\
Exit status:
  0    all is well; the two are equal
  1    the input breaks a rule of the format; the two differ
  2    no answer: a wrong argument, a file that cannot be read or written
  141  whoever read the output went away";

/// Tensors in files and streams
#[derive(Debug, Parser)]
#[command(name = "hurray", version, after_help = EXIT_STATUS)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) color: Color,
}

/// Show what a file, a stream or a descriptor holds
#[derive(Debug, Parser)]
#[command(name = "hurray-inspect", version, after_help = EXIT_STATUS)]
pub(crate) struct Alias {
    #[command(flatten)]
    pub(crate) args: InspectArgs,
    #[command(flatten)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a file, a stream or a descriptor holds
    #[command(after_help = EXIT_STATUS)]
    Inspect(InspectArgs),
    /// Check a file, a stream or a descriptor in full
    #[command(after_help = EXIT_STATUS)]
    Verify(VerifyArgs),
    /// Compare two files, tensor by tensor
    #[command(after_help = EXIT_STATUS)]
    Diff(DiffArgs),
    /// Convert from and to other formats
    #[command(after_help = EXIT_STATUS)]
    Convert(ConvertArgs),
    /// Write a script that completes this command line
    Completions {
        /// The shell to write it for
        shell: Shell,
    },
    /// Write a manual page
    Man {
        /// The command to describe, in place of all
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A file, stream or descriptor; - is a stream or descriptor on standard input
    #[arg(value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// What the input is, in place of what it begins with
    #[arg(long = "as", value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    /// Write JSON
    #[arg(long, conflicts_with = "bytes")]
    pub(crate) json: bool,
    /// Show the bytes of a descriptor, field by field; NAME is a tensor's name, or its number in a stream
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) bytes: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Files, streams and descriptors; - is a stream or descriptor on standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) inputs: Vec<PathBuf>,
    /// What the input is, in place of what it begins with
    #[arg(long = "as", value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    /// Write the BLAKE3 hash of each buffer
    #[arg(long)]
    pub(crate) hash: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A file, stream or descriptor
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// What it is compared with
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes the completions of `shell`.
pub(crate) fn completions(shell: Shell, out: &mut dyn Write) -> Result<(), CommandError> {
    // What cannot be written makes the generator panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "hurray", &mut script);
    out.write_all(&script)?;
    Ok(())
}

/// Writes the manual page of `hurray`, or of one of its commands.
pub(crate) fn manual(command: Option<&str>, mut out: &mut dyn Write) -> Result<(), CommandError> {
    let mut all = CommandLine::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => all
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| CommandError::NoCommand(name.into()))?,
    };
    clap_mangen::Man::new(page).render(&mut out)?;
    Ok(())
}
