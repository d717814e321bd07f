//! The driver probe: whatever there is, an error value with a sentence for people, and never a panic.

use std::fs;
use std::path::Path;
use std::process::Command;

use hurray_core::{DeviceError, DeviceLayer};
use hurray_cuda::{CudaStream, LAYER};
use libtest_mimic::Trial;

use crate::harness::{Done, SCENARIO, Scenario, child};

pub(crate) const SCENARIOS: &[Scenario] = &[("a_device_is_asked_for", a_device_is_asked_for)];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        Trial::test("a_driver_that_does_not_start_is_described", described),
        Trial::test("no_library_is_described", no_library),
        Trial::test("a_missing_function_is_described", missing_function),
        Trial::test("the_driver_is_started_once", started_once),
    ]
}

fn a_device_is_asked_for() -> Done {
    let first = LAYER.device_count();
    assert_eq!(first, LAYER.device_count());
    match first {
        Ok(count) => println!("{count} device"),
        Err(DeviceError::Unavailable { reason }) => {
            assert!(matches!(
                CudaStream::new(0),
                Err(DeviceError::Unavailable { .. })
            ));
            assert!(matches!(
                LAYER.own(Box::new(())),
                Err(DeviceError::Unavailable { .. })
            ));
            println!("{reason}");
        }
        Err(other) => panic!("{other:?}"),
    }
    Ok(())
}

fn described() -> Result<(), libtest_mimic::Failed> {
    let said = |code: u32| {
        let outcome = child("a_device_is_asked_for").fail("cuInit", 1, code).run();
        assert!(outcome.succeeded(), "{outcome:#?}");
        outcome.stdout.trim().to_owned()
    };
    assert_eq!(
        said(999),
        "the CUDA driver does not start: cuInit answers CUDA_ERROR_UNKNOWN"
    );
    assert_eq!(
        said(12345),
        "the CUDA driver does not start: cuInit answers error 12345, which this driver has no name for"
    );
    let none = "the CUDA driver finds no device: none is installed, or CUDA_VISIBLE_DEVICES hides them all";
    assert_eq!(said(100), none);
    let outcome = child("a_device_is_asked_for").devices(0).run();
    assert_eq!(outcome.stdout.trim(), none);
    let outcome = child("a_device_is_asked_for")
        .fail("cuDeviceGetCount", 1, 999)
        .run();
    assert!(
        outcome
            .stdout
            .contains("cuDeviceGetCount answers CUDA_ERROR_UNKNOWN"),
        "{outcome:?}"
    );
    Ok(())
}

/// The child's words, with this directory searched for libraries first.
fn said_with(directory: &Path) -> String {
    let output = Command::new(std::env::current_exe().expect("this executable"))
        .env(SCENARIO, "a_device_is_asked_for")
        .env("LD_LIBRARY_PATH", directory)
        .output()
        .expect("a child");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn no_library() -> Result<(), libtest_mimic::Failed> {
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-driver");
    fs::create_dir_all(&empty)?;
    let said = said_with(&empty);
    // Where this machine has a driver, that one is found.
    assert!(
        said.starts_with("no CUDA driver: the library libcuda.so is not installed")
            || said.ends_with("device"),
        "{said}"
    );
    Ok(())
}

/// A library of that name with none of the functions.
fn missing_function() -> Result<(), libtest_mimic::Failed> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("old-driver");
    fs::create_dir_all(&directory)?;
    let source = directory.join("old.c");
    fs::write(&source, "int cuInit(unsigned flags) { return 0; }\n")?;
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so", "-o"])
        .arg(directory.join("libcuda.so"))
        .arg(&source)
        .status()?;
    assert!(built.success());
    assert_eq!(
        said_with(&directory),
        "the CUDA driver is too old: it has no cuDeviceGetCount; drivers for CUDA 12.3 and newer do"
    );
    Ok(())
}

fn started_once() -> Result<(), libtest_mimic::Failed> {
    let outcome = child("a_device_is_asked_for").run();
    assert_eq!(outcome.stdout.trim(), "1 device");
    assert_eq!(outcome.count("cuInit").program, 1);
    Ok(())
}
