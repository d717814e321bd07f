//! `hurray verify`: what it finds in damaged copies of golden files.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod run;

use hurray_core::{Coo, ElementType, Layout, TensorDescriptor};
use hurray_ffi::Buffer;
use run::{damaged, err, hurray, json, manifest, out, status, text, vectors};
use serde_json::Value;

#[test]
fn golden_inputs_have_nothing_wrong() {
    for (folder, format) in [("files", "file"), ("streams", "stream")] {
        let vectors = manifest(&format!("{folder}/manifest.json"), "good");
        let files = vectors
            .iter()
            .map(|vector| format!("{folder}/{}", text(vector, "file")));
        let files: Vec<_> = files.collect();
        let mut arguments = vec!["verify", "--as", format];
        arguments.extend(files.iter().map(String::as_str));
        let output = hurray(&arguments);
        assert_eq!(status(&output), 0, "{}", out(&output));
        assert_eq!(out(&output).lines().count(), files.len());
        assert!(out(&output).lines().all(|line| line.contains(": ok, a ")));
    }
}

#[test]
fn an_input_that_cannot_be_read_does_not_stop_the_others() {
    let files = [
        "files/none.hrry",
        "files/bad-index-crc.hrry",
        "files/02-one.hrry",
    ];
    let output = hurray(&[&["verify"], files.as_slice()].concat());
    assert_eq!(status(&output), 2);
    assert!(
        err(&output).starts_with("error: files/none.hrry: "),
        "{}",
        err(&output)
    );
    let lines: Vec<_> = out(&output).lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("files/bad-index-crc.hrry: FC8 at byte "));
    assert_eq!(lines[1], "files/02-one.hrry: ok, a file of 1 tensor");
}

/// The indices of `08-csr`: values at 4096, columns at 8192, row pointers at 12288.
#[test]
fn indices_that_lead_astray_are_found() {
    let columns = damaged("files/08-csr.hrry", 8192 + 8, &[7]);
    let rows = damaged("files/08-csr.hrry", 12288, &[1]);
    for (copy, rule, place) in [(&columns, "R5", 8200), (&rows, "R2", 12288)] {
        let path = copy.path().to_str().unwrap();
        let inspected = hurray(&["inspect", path]);
        assert_eq!(status(&inspected), 0, "{}", err(&inspected));
        let output = hurray(&["verify", "--json", path]);
        assert_eq!(status(&output), 1);
        let verdict = json(&output.stdout);
        let fault = &verdict["faults"][0];
        assert_eq!(fault["rules"], Value::from(vec![rule]), "{verdict}");
        assert_eq!(fault["offset"], place, "{verdict}");
        assert_eq!(fault["tensor"], "m");
    }
}

/// The place of an entry of a coordinate list is that of its first coordinate.
#[test]
fn a_coordinate_that_comes_twice_is_found() {
    let indices: Vec<u8> = [1_u64, 2, 1, 2]
        .iter()
        .flat_map(|index| index.to_le_bytes())
        .collect();
    let buffers = vec![run::buffer(&[5, 6]), run::buffer(&indices)];
    let coo = Coo {
        nnz: 2,
        is_sorted: false,
    };
    let rows = buffers.iter().map(Buffer::handle);
    let descriptor = TensorDescriptor::new(ElementType::Int8, vec![3, 3], Layout::Coo(coo), rows);
    let stream = run::stream(descriptor, buffers);
    let file = run::written(&stream);
    let output = hurray(&["verify", "--json", file.path().to_str().unwrap()]);
    assert_eq!(status(&output), 1, "{}", err(&output));
    let fault = json(&output.stdout)["faults"][0].take();
    assert_eq!(fault["rules"], Value::from(vec!["O4"]));
    assert_eq!(fault["offset"], stream.len() - 16, "{fault}");
}

/// Every tensor that is wrong is named, not only the first.
#[test]
fn every_finding_is_listed() {
    // The type tags of the descriptors of `a` and `c`.
    let copy = damaged("files/03-odd-sizes.hrry", 64 + 14, &[0xFF]);
    let report = json(&hurray(&["inspect", "--json", "files/03-odd-sizes.hrry"]).stdout);
    let third = report["tensors"][2]["descriptor_offset"].as_u64().unwrap();
    std::os::unix::fs::FileExt::write_all_at(copy.as_file(), &[0], third + 14).unwrap();
    let output = hurray(&["verify", "--json", copy.path().to_str().unwrap()]);
    assert_eq!(status(&output), 1);
    let faults = json(&output.stdout)["faults"].take();
    let faults = faults.as_array().unwrap();
    let tensors: Vec<_> = faults.iter().map(|fault| text(fault, "tensor")).collect();
    assert_eq!(tensors, ["a", "c"]);
    assert_eq!(faults[0]["offset"], 64 + 14);
    assert_eq!(faults[1]["offset"], third + 14);
}

#[test]
fn a_hash_is_of_the_bytes_of_its_buffer() {
    let file = "files/06-quantized.hrry";
    let verdict = json(&hurray(&["verify", "--json", "--hash", file]).stdout);
    let hashes = verdict["hashes"].as_array().unwrap();
    let bytes = std::fs::read(vectors().join(file)).unwrap();
    let report = json(&hurray(&["inspect", "--json", file]).stdout);
    let mut expected = Vec::new();
    for tensor in report["tensors"].as_array().unwrap() {
        let rows = tensor["buffers"].as_array().unwrap().iter();
        let offsets = tensor["buffer_offsets"].as_array().unwrap();
        for (row, offset) in rows.zip(offsets) {
            let start = offset.as_u64().unwrap() as usize;
            let len = row["byte_size"].as_u64().unwrap() as usize;
            let hash = blake3::hash(&bytes[start..start + len])
                .to_hex()
                .to_string();
            expected.push((text(tensor, "name"), text(row, "name"), hash));
        }
    }
    let found = hashes.iter().map(|hash| {
        let blake3 = text(hash, "blake3").to_owned();
        (text(hash, "tensor"), text(hash, "name"), blake3)
    });
    assert!(expected.len() > 3);
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

/// Larger than a piece, so that several are hashed as one buffer.
#[test]
fn a_large_buffer_is_hashed_as_one() {
    let data: Vec<u8> = (0..9_000_001_u32).map(|at| (at >> 7) as u8).collect();
    let stream = run::stream_of(&data);
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("hurray");
    let output = command
        .args(["verify", "--hash", "-"])
        .write_stdin(stream)
        .output()
        .unwrap();
    assert_eq!(status(&output), 0, "{}", err(&output));
    let hash = blake3::hash(&data).to_hex();
    assert!(out(&output).starts_with(hash.as_str()), "{}", out(&output));
}

/// A stream that comes through a pipe is checked as one that lies in a file.
#[test]
fn a_pipe_is_verified_as_a_file_is() {
    for vector in manifest("streams/manifest.json", "good") {
        let path = vectors().join("streams").join(text(&vector, "file"));
        let arguments = ["verify", "--json", "--hash", "--as", "stream"];
        let mut command = assert_cmd::cargo::cargo_bin_cmd!("hurray");
        command.args(arguments).arg("-").pipe_stdin(&path).unwrap();
        let mut piped = json(&command.output().unwrap().stdout);
        let output = hurray(&[arguments.as_slice(), &[path.to_str().unwrap()]].concat());
        let mut read = json(&output.stdout);
        piped["input"].take();
        read["input"].take();
        assert_eq!(piped, read);
    }
}
