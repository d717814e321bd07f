//! Where the stand-in driver is.

#![expect(clippy::panic, reason = "a test whose driver can't be built must fail")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The stand-in driver, a file named `libcuda.so`, built if it is not there or not up to date. `HURRAY_SIM` names one that is built.
///
/// # Panics
/// When it can't be built: a test without it can show nothing.
#[must_use]
pub fn simulator() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        env::var_os("HURRAY_SIM").map_or_else(
            || build().unwrap_or_else(|error| panic!("the stand-in driver: {error}")),
            PathBuf::from,
        )
    })
}

/// The directory that holds `libcuda.so`, for `LD_LIBRARY_PATH`.
#[must_use]
pub fn directory() -> &'static Path {
    simulator().parent().unwrap_or(Path::new("."))
}

/// Builds it with the cargo that built the test. A cdylib is nobody's dependency, so cargo would not build it for the test's sake.
fn build() -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--package",
        "hurray-cuda-sim",
        "--message-format=json-render-diagnostics",
        "--quiet",
    ]);
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let library = text
        .split('"')
        .find(|part| part.ends_with("libhurray_cuda_sim.so"))
        .ok_or("cargo built no libhurray_cuda_sim.so")?;
    let library = Path::new(library);
    let directory = library.with_file_name("cuda-sim");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    // The second is the name that NVIDIA's own Python bindings ask for.
    for name in ["libcuda.so", "libcuda.so.1"] {
        let fresh = directory.join(format!("{name}.{}", std::process::id()));
        std::os::unix::fs::symlink(library, &fresh).map_err(|error| error.to_string())?;
        // Renamed into place, since several tests do so at once.
        fs::rename(&fresh, directory.join(name)).map_err(|error| error.to_string())?;
    }
    Ok(directory.join("libcuda.so"))
}
