//! `hurray diff`.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod run;

use run::{damaged, err, hurray, json, out, status};
use serde_json::json;

const ODD: &str = "files/03-odd-sizes.hrry";

#[test]
fn equal_inputs_differ_in_nothing() {
    for file in [
        ODD,
        "files/11-composite-nested.hrry",
        "streams/11-nested.bin",
        "descriptors/flagset_03.bin",
    ] {
        let output = hurray(&["diff", file, file]);
        assert_eq!(status(&output), 0, "{}", err(&output));
        assert_eq!(out(&output), "");
    }
}

#[test]
fn what_is_declared_is_compared_field_by_field() {
    let output = hurray(&["diff", "files/02-one.hrry", ODD]);
    assert_eq!(status(&output), 1);
    insta::assert_snapshot!("declared", out(&output));
    let back = hurray(&["diff", "--json", ODD, "files/04-kv.hrry"]);
    assert_eq!(status(&back), 1);
    let difference = json(&back.stdout);
    assert_eq!(difference["removed"], json!(["b", "c"]));
    assert_eq!(difference["added"], json!([]));
    let keys = difference["metadata"].as_array().unwrap();
    assert_eq!(keys.len(), 14);
    assert!(
        keys.iter()
            .all(|pair| pair["old"].is_null() && !pair["new"].is_null())
    );
}

#[test]
fn bytes_are_compared_and_counted() {
    let report = json(&hurray(&["inspect", "--json", ODD]).stdout);
    let buffer = |tensor: usize| {
        report["tensors"][tensor]["buffer_offsets"][0]
            .as_u64()
            .unwrap()
    };
    let copy = damaged(ODD, buffer(1) + 1, &[0xA5, 0xA5]);
    let path = copy.path().to_str().unwrap();
    let output = hurray(&["diff", "--json", ODD, path]);
    assert_eq!(status(&output), 1);
    let changed = json(&output.stdout)["changed"].take();
    assert_eq!(changed.as_array().unwrap().len(), 1);
    assert_eq!(changed[0]["name"], "b");
    assert_eq!(changed[0]["fields"], json!([]));
    let size = &report["tensors"][1]["buffers"][0]["byte_size"];
    assert_eq!(
        changed[0]["buffers"],
        json!([{"buffer": 0, "name": "data", "old_bytes": size, "new_bytes": size, "differing": 2, "first": 1}])
    );
    let said = hurray(&["diff", ODD, path]);
    assert!(out(&said).contains("2 of "), "{}", out(&said));
    assert!(out(&said).contains("the first at 1"), "{}", out(&said));
}

/// In streams too, and beyond what is read as one piece.
#[test]
fn the_first_difference_may_be_far_in() {
    let mut data = vec![7; 5_000_000];
    let old = run::written(&run::stream_of(&data));
    data[4_500_000] = 8;
    data[4_999_999] = 8;
    let new = run::written(&run::stream_of(&data));
    let paths = [&old, &new].map(|file| file.path().to_str().unwrap());
    let output = hurray(&["diff", "--json", paths[0], paths[1]]);
    assert_eq!(status(&output), 1, "{}", err(&output));
    let buffer = json(&output.stdout)["changed"][0]["buffers"][0].take();
    assert_eq!(buffer["differing"], 2);
    assert_eq!(buffer["first"], 4_500_000);
}

#[test]
fn trouble_is_2() {
    let missing = hurray(&["diff", ODD, "files/none.hrry"]);
    assert_eq!(status(&missing), 2);
    let malformed = hurray(&["diff", ODD, "files/bad-index-crc.hrry"]);
    assert_eq!(status(&malformed), 2);
    assert!(
        err(&malformed).contains("FC8 at byte "),
        "{}",
        err(&malformed)
    );
}
