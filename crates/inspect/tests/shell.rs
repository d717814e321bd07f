//! How the commands behave in a shell: pipes, colours, exit statuses, completions, manual pages.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod run;

use std::io::Read as _;
use std::process::{Command, Stdio};

use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};
use run::{err, hurray, json, out, status, vectors, written};

const FILE: &str = "files/03-odd-sizes.hrry";

#[test]
fn what_cannot_be_answered_is_2() {
    for arguments in [
        ["inspect"].as_slice(),
        &["inspect", "--json", "--bytes", FILE],
        &["inspect", "files/none.hrry"],
        &["inspect", "."],
        &["verify", FILE, "files/none.hrry"],
        &["convert", "files/none.safetensors", "none.hrry"],
        &["man", "none"],
        &["nothing"],
    ] {
        let output = hurray(arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(err(&output).starts_with("error: "), "{}", err(&output));
    }
}

#[test]
fn help_and_version_are_no_mistake() {
    for arguments in [["--help"], ["--version"]] {
        let output = hurray(&arguments);
        assert_eq!(status(&output), 0);
        assert_eq!(err(&output), "");
        assert!(out(&output).contains("hurray") || out(&output).contains("Usage"));
    }
    assert!(out(&hurray(&["--help"])).contains("Exit status:"));
}

#[test]
fn hurray_inspect_is_hurray_inspect() {
    for arguments in [[FILE].as_slice(), &["--json", FILE], &["--bytes=a", FILE]] {
        let alias = cargo_bin_cmd!("hurray-inspect")
            .current_dir(vectors())
            .args(arguments)
            .output()
            .unwrap();
        let command = hurray(&[&["inspect"], arguments].concat());
        assert_eq!(status(&alias), 0);
        assert_eq!(out(&alias), out(&command));
    }
    let malformed = cargo_bin_cmd!("hurray-inspect")
        .current_dir(vectors())
        .arg("files/bad-index-crc.hrry")
        .output()
        .unwrap();
    assert_eq!(status(&malformed), 1);
}

#[test]
fn a_stream_is_read_from_standard_input() {
    let stream = std::fs::read(vectors().join("streams/11-nested.bin")).unwrap();
    let mut command = cargo_bin_cmd!("hurray");
    let output = command
        .args(["inspect", "--json", "-"])
        .write_stdin(stream)
        .output()
        .unwrap();
    assert_eq!(status(&output), 0, "{}", err(&output));
    let mut piped = json(&output.stdout);
    let mut read = json(&hurray(&["inspect", "--json", "streams/11-nested.bin"]).stdout);
    assert_ne!(piped["input"].take(), read["input"].take());
    assert_eq!(piped, read);
    // A descriptor alone ends where it says.
    let descriptor = std::fs::read(vectors().join("descriptors/flagset_03.bin")).unwrap();
    let mut command = cargo_bin_cmd!("hurray");
    let output = command
        .args(["inspect", "--json", "-"])
        .write_stdin(descriptor)
        .output()
        .unwrap();
    assert_eq!(json(&output.stdout)["format"], "descriptor");
    let file = std::fs::read(vectors().join(FILE)).unwrap();
    let mut command = cargo_bin_cmd!("hurray");
    let output = command
        .args(["inspect", "-"])
        .write_stdin(file)
        .output()
        .unwrap();
    assert_eq!(status(&output), 2);
    assert!(err(&output).contains("from its end"), "{}", err(&output));
}

/// The output is more than a pipe holds, so that the command still writes when its reader goes away.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let stream = std::fs::read(vectors().join("streams/f04-nesting-64.bin")).unwrap();
    let file = written(&stream.repeat(10));
    let mut child = Command::new(cargo_bin!("hurray"))
        .args(["inspect", "--bytes"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(err(&output), "");
    assert_eq!(status(&output), 141);
}

#[test]
fn colours_are_for_terminals() {
    let colours = |color: &str, no_color: Option<&str>, force: Option<&str>| {
        let mut command = cargo_bin_cmd!("hurray");
        command
            .current_dir(vectors())
            .args(["inspect", color, FILE]);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        command.envs(force.map(|value| ("CLICOLOR_FORCE", value)));
        command.output().unwrap().stdout.contains(&0x1B)
    };
    assert!(!colours("--color=auto", None, None));
    assert!(colours("--color=auto", None, Some("1")));
    assert!(!colours("--color=auto", Some("1"), Some("1")));
    assert!(colours("--color=always", None, None));
    assert!(!colours("--color=never", None, Some("1")));
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = hurray(&["completions", shell]);
        assert_eq!(status(&output), 0);
        assert!(out(&output).contains("inspect"), "{shell}");
    }
    let page = hurray(&["man"]);
    assert!(out(&page).starts_with(".ie"), "{}", out(&page));
    assert!(out(&page).contains("Exit status"));
    let page = hurray(&["man", "verify"]);
    assert!(out(&page).contains("hash"));
    assert!(out(&page).contains("Exit status"));
}
