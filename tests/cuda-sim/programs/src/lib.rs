//! Small CUDA programs, the way to run any program on the stand-in driver, and what came of it.
//!
//! The programs themselves (`src/bin`) run unchanged on a real driver: `rules <library> <program>`.

#![expect(unsafe_code, reason = "the driver is a C library")]

pub mod cuda;
pub mod device;
mod run;
mod simulator;

pub use run::{Call, Count, Outcome, Report, Run};
pub use simulator::{directory, simulator};

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// A program: its name and what it does.
pub type Program = (&'static str, fn() -> cuda::Result);

/// Runs the program that the command line names: `<library> <program>`; `list` gives the names.
pub fn main(programs: &[Program]) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (library, wanted) = match arguments.as_slice() {
        [list] if list == "list" => {
            for (name, _) in programs {
                println!("{name}");
            }
            return ExitCode::SUCCESS;
        }
        [library, program] => (library, program),
        _ => {
            eprintln!("usage: <library> <program>, or list");
            return ExitCode::from(2);
        }
    };
    let Some((name, program)) = programs.iter().find(|(name, _)| name == wanted) else {
        eprintln!("no program {wanted}");
        return ExitCode::from(2);
    };
    if let Err(error) = cuda::load(Path::new(library)) {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:?}");
            ExitCode::FAILURE
        }
    }
}
