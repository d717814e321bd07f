//! `hurray inspect` over the golden files of `tests/vectors`.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod run;

use std::fmt::Write as _;

use hurray_core::{ElementType, Layout, TensorDescriptor};
use hurray_io::{FileOptions, FileWriter};
use run::{err, hurray, json, manifest, out, status, text};
use serde_json::Value;

/// What every well-formed file and stream looks like.
#[test]
fn every_golden_input_is_shown() {
    for (folder, snapshot) in [("files", "golden_files"), ("streams", "golden_streams")] {
        let mut shown = String::new();
        for vector in manifest(&format!("{folder}/manifest.json"), "good") {
            let file = format!("{folder}/{}", text(&vector, "file"));
            let output = hurray(&["inspect", "--as", &folder[..folder.len() - 1], &file]);
            assert_eq!(status(&output), 0, "{}", err(&output));
            assert_eq!(err(&output), "");
            writeln!(shown, "{}", out(&output)).unwrap();
            if folder == "files" {
                let plain = hurray(&["inspect", &file]);
                assert_eq!(out(&plain), out(&output), "a file is known by its magic");
            }
        }
        insta::assert_snapshot!(snapshot, shown);
    }
}

/// The offsets and names that the manifest gives are those that are said.
#[test]
fn json_of_golden_files_says_where_everything_is() {
    for vector in manifest("files/manifest.json", "good") {
        let file = format!("files/{}", text(&vector, "file"));
        let output = hurray(&["inspect", "--json", &file]);
        let report = json(&output.stdout);
        assert_eq!(report["format"], "file");
        assert_eq!(report["byte_size"], vector["size"], "{file}");
        assert_eq!(report["alignment"], vector["alignment"], "{file}");
        let mut tensors = report["tensors"].as_array().unwrap().clone();
        let mut found = 0;
        while let Some(tensor) = tensors.pop() {
            let expected = &vector["tensors"][text(&tensor, "name")];
            for field in ["descriptor_offset", "descriptor_length"] {
                assert_eq!(tensor[field], expected[field], "{file}");
            }
            let buffers = expected["buffers"].as_array().unwrap().iter();
            let offsets: Vec<_> = buffers.map(|buffer| buffer["offset"].clone()).collect();
            assert_eq!(tensor["buffer_offsets"], Value::Array(offsets), "{file}");
            tensors.extend(tensor["members"].as_array().unwrap().iter().cloned());
            found += 1;
        }
        assert_eq!(
            found,
            vector["tensors"].as_object().unwrap().len(),
            "{file}"
        );
        let spent = report["bytes_spent"].as_object().unwrap();
        let spent: u64 = spent.values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(report["byte_size"], spent, "{file}");
    }
}

/// A malformed vector that breaks another rule first (`hurray-io` says which); the manifest takes it only for the one it means.
const ALSO: [(&str, &str, &str); 2] = [
    ("files", "descriptor-offset-in-data", "FC30"),
    // A row of too many is found before the bytes that miss.
    ("streams", "cut-between-buffers", "ST10"),
];

/// Every malformed file, stream and descriptor exits 1 and names its rule and the place; `verify` finds the same.
#[test]
fn every_malformed_input_is_refused_by_its_rule() {
    let mut said = String::new();
    let mut inputs = Vec::new();
    for (folder, format) in [("files", "file"), ("streams", "stream")] {
        for vector in manifest(&format!("{folder}/manifest.json"), "bad") {
            // Limits that a reader may set are not the command's to set.
            if vector["options"]
                .as_object()
                .is_some_and(|options| !options.is_empty())
            {
                continue;
            }
            let id = text(&vector, "id");
            let also = ALSO
                .iter()
                .find(|(of, known, _)| *of == folder && *known == id);
            let rule = also.map_or(text(&vector, "rule"), |(_, _, rule)| rule);
            inputs.push((
                format,
                format!("{folder}/{}", text(&vector, "file")),
                rule.to_owned(),
            ));
        }
    }
    for vector in manifest("descriptors_malformed.json", "vectors") {
        // Major version 0 is refused before anything else of it (decision 1).
        let rule = match text(&vector, "name") {
            "major_0_trailing" => "S1",
            _ => text(&vector, "rule"),
        };
        inputs.push((
            "descriptor",
            text(&vector, "file").to_owned(),
            rule.to_owned(),
        ));
    }
    for (format, file, rule) in inputs {
        let output = hurray(&["inspect", "--as", format, &file]);
        assert_eq!(status(&output), 1, "{file}");
        let rules = err(&output).split(" at byte").next().unwrap_or_default();
        let mut words = rules.split([' ', ',']);
        assert!(words.any(|word| word == rule), "{rule}: {}", err(&output));
        assert!(err(&output).contains(" at byte "), "{}", err(&output));
        said.push_str(err(&output));
        let output = hurray(&["verify", "--json", "--as", format, &file]);
        assert_eq!(status(&output), 1, "{file}");
        let faults = json(&output.stdout)["faults"].take();
        let found = faults.as_array().unwrap().iter();
        let mut found = found.flat_map(|fault| fault["rules"].as_array().unwrap());
        assert!(found.any(|found| *found == *rule), "{rule}: {faults}");
    }
    insta::assert_snapshot!("malformed", said);
}

/// Every descriptor that decodes is shown, and what no tensor can have is said.
#[test]
fn descriptors_are_shown_alone() {
    let mut said = String::new();
    for list in ["descriptors.json", "descriptors_lenient.json"] {
        for vector in manifest(list, "vectors") {
            let file = text(&vector, "file");
            let output = hurray(&["inspect", "--as", "descriptor", "--json", file]);
            let report = json(&output.stdout);
            let faults = report["faults"].as_array().unwrap();
            assert_eq!(status(&output), i32::from(!faults.is_empty()), "{file}");
            said.push_str(err(&output));
            // What cannot be decoded breaks a rule of those that were suggested (S1, S2, S12, S13).
            let tensor = &report["tensors"][0];
            if tensor["dtype"].is_null() {
                assert!(faults[0]["rules"][0].as_str().unwrap().starts_with('S'));
            } else {
                assert!(tensor["shape"].is_array(), "{file}");
            }
        }
    }
    insta::assert_snapshot!("descriptors_without_tensors", said);
}

#[test]
fn bytes_are_shown_field_by_field() {
    let mut shown = String::new();
    for file in [
        "descriptors/flags_all.bin",
        "layouts/tiled_u8_12x12_nested3.bin",
        "malformed/magic_case.bin",
        "malformed/row_reserved.bin",
        "streams/11-nested.bin",
    ] {
        let output = hurray(&["inspect", "--bytes", file]);
        writeln!(shown, "{file}\n{}", out(&output)).unwrap();
    }
    insta::assert_snapshot!("bytes", shown);
    let one = hurray(&["inspect", "--bytes=b", "files/03-odd-sizes.hrry"]);
    assert!(out(&one).starts_with("b: "));
    assert!(!out(&one).contains("\na: "));
    let none = hurray(&["inspect", "--bytes=nobody", "files/03-odd-sizes.hrry"]);
    assert_eq!(status(&none), 2);
    assert!(err(&none).contains("there is no tensor \"nobody\""));
}

/// A stream may be empty, a file not.
#[test]
fn an_empty_input_is_what_its_name_says() {
    let folder = tempfile::tempdir().unwrap();
    for (name, code) in [("e.hrry", 1), ("e.HURRAY", 1), ("e", 0)] {
        let path = folder.path().join(name);
        std::fs::write(&path, "").unwrap();
        let output = hurray(&["inspect", path.to_str().unwrap()]);
        assert_eq!(status(&output), code, "{name}");
        assert_eq!(err(&output).contains(": FC1 at byte 0"), code == 1);
    }
}

/// A name is any text; one that would steer a terminal is shown and does not.
#[test]
fn names_do_not_steer_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p\x1b[45m.hrry");
    let row = run::buffer(&[0; 4]);
    let descriptor =
        TensorDescriptor::new(ElementType::Int8, vec![4], Layout::RowMajor, [row.handle()]);
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = FileWriter::new(file, FileOptions::default()).unwrap();
    writer
        .write_tensor("a\x1b[45m\n\0", descriptor, vec![row])
        .unwrap();
    writer.finish().unwrap();
    let path = path.to_str().unwrap();
    for arguments in [
        ["inspect", "--color=always", path].as_slice(),
        &["inspect", "--color=always", "--bytes", path],
        &["verify", "--color=always", "--hash", path],
    ] {
        let output = hurray(arguments);
        assert_eq!(status(&output), 0, "{}", err(&output));
        assert!(out(&output).contains("a\\u{1b}[45m\\n"), "{}", out(&output));
        assert!(!out(&output).contains("\x1b[45m"));
    }
    // A path is one too.
    let missing = folder.path().join("missing\x1b[45m");
    let cut = folder.path().join("cut\x1b[45m.hrry");
    std::fs::write(&cut, [0; 100]).unwrap();
    for (path, code) in [(missing, 2), (cut, 1)] {
        for command in ["inspect", "verify"] {
            let output = hurray(&[command, "--color=always", path.to_str().unwrap()]);
            assert_eq!(status(&output), code);
            let said = [out(&output), err(&output)].concat();
            assert!(said.contains("\\u{1b}[45m"), "{said}");
            assert!(!said.contains("\x1b[45m"), "{said}");
        }
    }
    let report = json(&hurray(&["inspect", "--json", path]).stdout);
    assert_eq!(report["tensors"][0]["name"], "a\x1b[45m\n\0");
}
