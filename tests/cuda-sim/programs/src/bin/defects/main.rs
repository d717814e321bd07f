//! Programs with a defect, and their mended twins: `<library> <program> broken|mended`, or `list` for the names and the kinds of report.
//!
//! They run on the stand-in driver alone: on a real one the defect is undefined behaviour.

mod capture;
mod host;
mod lifetime;
mod misuse;
mod order;
mod reclaimer;
mod scene;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use hurray_cuda_programs::cuda::{self, Result};

/// A defect: its name, how it is reported, and the program, which has the defect if it is told to.
pub(crate) type Defect = (&'static str, &'static str, fn(bool) -> Result);

fn main() -> ExitCode {
    let defects = [
        order::DEFECTS,
        lifetime::DEFECTS,
        host::DEFECTS,
        misuse::DEFECTS,
        reclaimer::DEFECTS,
        capture::DEFECTS,
    ]
    .concat();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (library, wanted, broken) = match arguments.as_slice() {
        [list] if list == "list" => {
            for (name, kind, _) in defects {
                println!("{name}\t{kind}");
            }
            return ExitCode::SUCCESS;
        }
        [library, program, twin] => (library, program, twin == "broken"),
        _ => {
            eprintln!("usage: <library> <program> broken|mended, or list");
            return ExitCode::from(2);
        }
    };
    let Some((name, _, program)) = defects.iter().find(|(name, _, _)| name == wanted) else {
        eprintln!("no program {wanted}");
        return ExitCode::from(2);
    };
    if let Err(error) = cuda::load(Path::new(library)) {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    match program(broken) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:?}");
            ExitCode::FAILURE
        }
    }
}
