//! What the conversions refuse, with bounded memory, and what they make of tensors that the other format cannot express. Against the real packages:
//! `tests/python/test_convert.py`.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

#[path = "../../io/tests/counting/mod.rs"]
mod counting;
#[path = "../../io/tests/tensors/mod.rs"]
mod tensors;

use std::fs;
use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hurray_core::{
    BlockAffine, ChannelAffine, ElementType, Layout, QuantizationScheme, ScaleType, TensorAffine,
    TensorDescriptor,
};
use hurray_ffi::Item;
use hurray_inspect::convert::{
    ConvertError, GgufError, NpyError, Options, Refusal, Refused, Report, convert,
};
use hurray_io::{Array, FileError, FileOptions, FileReader, FileWriter, Value};
use proptest::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::json;
use tempfile::TempDir;
use tensors::{bytes_of, row, rows_partition};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// A folder, and files in it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn run(input: &Path, output: &Path, options: &Options) -> Result<Report, ConvertError> {
    convert(
        input,
        output,
        options,
        &mut |_, _| ControlFlow::Continue(()),
    )
}

fn to_hurray(name: &str, bytes: &[u8], options: &Options) -> Result<FileReader, ConvertError> {
    let folder = Folder::new();
    let output = folder.path("out.hrry");
    run(&folder.write(name, bytes), &output, options)?;
    Ok(FileReader::open(output).unwrap())
}

/// What a malformed input gives. What is at the output's path stays, and nothing is left beside it.
fn refused(name: &str, bytes: &[u8]) -> ConvertError {
    let folder = Folder::new();
    let input = folder.write(name, bytes);
    let output = folder.write("out.hrry", b"the old file");
    let (peak, result) = counting::peak(|| run(&input, &output, &Options::default()));
    assert!(peak < bytes.len() * 16 + (1 << 18), "{peak} bytes");
    assert_eq!(fs::read(&output).unwrap(), b"the old file");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 2);
    result.unwrap_err()
}

fn safetensors_of(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn safetensors_refused(bytes: &[u8]) -> SafeTensorError {
    match refused("in.safetensors", bytes) {
        ConvertError::Safetensors(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_safetensors_header_of_2_to_the_63_is_refused() {
    let mut file = (1_u64 << 63).to_le_bytes().to_vec();
    file.extend(b"{}");
    let error = safetensors_refused(&file);
    assert!(matches!(error, SafeTensorError::HeaderTooLarge), "{error}");
}

#[test]
fn safetensors_ranges_that_overlap_leave_gaps_or_pass_the_end_are_refused() {
    let two = |a: &str, b: &str| {
        let entry = |range: &str| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":{range}}}"#);
        format!(r#"{{"a":{},"b":{}}}"#, entry(a), entry(b))
    };
    let overlap = safetensors_of(&two("[0,4]", "[2,6]"), &[0; 6]);
    let error = safetensors_refused(&overlap);
    assert!(matches!(error, SafeTensorError::InvalidOffset(_)));
    let gap = safetensors_of(&two("[0,4]", "[8,12]"), &[0; 12]);
    let error = safetensors_refused(&gap);
    assert!(matches!(error, SafeTensorError::InvalidOffset(_)));
    let cut = safetensors_of(&two("[0,4]", "[4,8]"), &[0; 7]);
    let error = safetensors_refused(&cut);
    assert!(matches!(error, SafeTensorError::MetadataIncompleteBuffer));
    let huge = r#"{"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#;
    let error = safetensors_refused(&safetensors_of(huge, &[0; 8]));
    assert!(matches!(error, SafeTensorError::ValidationOverflow));
}

/// A GGUF file: `header` behind the magic and the version, then `data` at the next multiple of 32.
fn gguf_of(header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(header);
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    file
}

fn counts(tensors: u64, keys: u64) -> Vec<u8> {
    [tensors.to_le_bytes(), keys.to_le_bytes()].concat()
}

fn gguf_string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn gguf_tensor(name: &str, dimensions: &[u64], number: u32, offset: u64) -> Vec<u8> {
    let mut bytes = gguf_string(name);
    bytes.extend((dimensions.len() as u32).to_le_bytes());
    bytes.extend(dimensions.iter().flat_map(|size| size.to_le_bytes()));
    bytes.extend(number.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

fn gguf_refused(bytes: &[u8]) -> GgufError {
    match refused("in.gguf", bytes) {
        ConvertError::Gguf(error) => error,
        other => panic!("{other:?}"),
    }
}

const Q8_0: u32 = 8;
const Q4_1: u32 = 3;

#[test]
fn gguf_counts_that_claim_more_than_there_is_are_refused() {
    let truncated = |header: &[u8]| {
        let error = gguf_refused(&gguf_of(header, &[]));
        assert!(matches!(error, GgufError::Truncated { .. }), "{error}");
    };
    truncated(&counts(u64::MAX, 0));
    truncated(&counts(0, u64::MAX));
    let array_of = |tag: u32, count: u64| {
        let mut header = counts(0, 1);
        header.extend(gguf_string("k"));
        header.extend(9_u32.to_le_bytes());
        header.extend(tag.to_le_bytes());
        header.extend(count.to_le_bytes());
        header
    };
    for tag in 0..=12 {
        truncated(&array_of(tag, u64::MAX));
    }
    let mut string = counts(0, 1);
    string.extend(u64::MAX.to_le_bytes());
    truncated(&string);
}

#[test]
fn gguf_headers_that_contradict_themselves_are_refused() {
    let one = |tensor: &[u8], data: &[u8]| {
        gguf_refused(&gguf_of(&[counts(1, 0), tensor.to_vec()].concat(), data))
    };
    let error = one(&gguf_tensor("w", &[4], 0, 0), &[0; 15]);
    assert!(
        matches!(error, GgufError::DataRange { len: 16, .. }),
        "{error}"
    );
    let error = one(&gguf_tensor("w", &[1 << 40, 1 << 40], 0, 0), &[]);
    assert!(matches!(error, GgufError::Overflow { .. }), "{error}");
    let error = one(&gguf_tensor("w", &[9], 0, u64::MAX - 31), &[]);
    assert!(matches!(error, GgufError::Overflow { .. }), "{error}");
    let error = one(&gguf_tensor("w", &[4], 0, 8), &[0; 64]);
    assert!(matches!(error, GgufError::Misaligned { .. }), "{error}");
    let error = one(&gguf_tensor("w", &[33], Q8_0, 0), &[0; 64]);
    assert!(matches!(error, GgufError::PartialBlock { .. }), "{error}");
    let error = one(&gguf_tensor("w", &[], Q8_0, 0), &[0; 64]);
    assert!(matches!(error, GgufError::PartialBlock { .. }), "{error}");
    let error = one(&gguf_tensor("w", &[1; 5], 0, 0), &[0; 64]);
    assert!(matches!(error, GgufError::Rank { rank: 5, .. }), "{error}");
    let two =
        |a: Vec<u8>, b: Vec<u8>| gguf_refused(&gguf_of(&[counts(2, 0), a, b].concat(), &[0; 96]));
    let error = two(gguf_tensor("a", &[9], 0, 0), gguf_tensor("b", &[9], 0, 32));
    assert!(matches!(error, GgufError::Overlap { .. }), "{error}");
    let error = two(gguf_tensor("a", &[8], 0, 0), gguf_tensor("a", &[8], 0, 32));
    assert!(matches!(error, GgufError::Duplicate { .. }), "{error}");
    let alignment = |alignment: u32| {
        let mut header = counts(0, 1);
        header.extend(gguf_string("general.alignment"));
        header.extend(4_u32.to_le_bytes());
        header.extend(alignment.to_le_bytes());
        gguf_refused(&gguf_of(&header, &[]))
    };
    for wrong in [0, 24] {
        let error = alignment(wrong);
        assert!(matches!(error, GgufError::Alignment { .. }), "{error}");
    }
    assert_eq!(gguf_refused(b"GGML\x03\0\0\0"), GgufError::Magic);
    let big_endian = b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0";
    assert_eq!(gguf_refused(big_endian), GgufError::BigEndian);
    let version = b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(gguf_refused(version), GgufError::Version { version: 1 });
}

#[test]
fn gguf_types_with_a_minimum_are_refused_by_name_with_what_is_supported() {
    let tensors = [
        gguf_tensor("odd", &[32], Q4_1, 0),
        gguf_tensor("w", &[2], 0, 32),
        gguf_tensor("new", &[32], 999, 64),
    ];
    let file = gguf_of(&[counts(3, 0), tensors.concat()].concat(), &[0; 96]);
    let error = refused("in.gguf", &file);
    assert!(!error.is_malformed_input());
    let text = error.to_string();
    for said in ["\"odd\"", "Q4_1", "\"new\"", "number 999", "Q8_0", "MXFP4"] {
        assert!(text.contains(said), "{said} in {text}");
    }
    let options = only(&["w"]);
    let reader = to_hurray("in.gguf", &file, &options).unwrap();
    assert_eq!(reader.roots().unwrap(), ["w"]);
}

fn only(names: &[&str]) -> Options {
    let mut options = Options::default();
    options.names = Some(names.iter().map(|&name| name.to_owned()).collect());
    options
}

#[test]
fn a_name_that_the_input_lacks_is_refused() {
    let folder = Folder::new();
    let input = folder.write("in.gguf", &gguf_of(&counts(0, 0), &[]));
    let error = run(&input, &folder.path("out.hrry"), &only(&["w"])).unwrap_err();
    assert!(matches!(error, ConvertError::NoTensor { name } if name == "w"));
}

#[test]
fn gguf_metadata_becomes_the_formats() {
    let mut header = counts(0, 6);
    let key = |header: &mut Vec<u8>, name: &str, tag: u32, value: &[u8]| {
        header.extend(gguf_string(name));
        header.extend(tag.to_le_bytes());
        header.extend(value);
    };
    key(&mut header, "name", 8, &gguf_string("tiny"));
    key(&mut header, "small", 1, &[0xFF]);
    key(&mut header, "large", 10, &u64::MAX.to_le_bytes());
    key(&mut header, "float", 6, &0.1_f32.to_le_bytes());
    let mut tokens = [8_u32.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec()].concat();
    tokens.extend(gguf_string("a"));
    tokens.extend(gguf_string(""));
    key(&mut header, "tokens", 9, &tokens);
    // An array of one array of two int16.
    let mut nested = [9_u32.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec()].concat();
    nested.extend(3_u32.to_le_bytes());
    nested.extend(2_u64.to_le_bytes());
    nested.extend([0; 4]);
    key(&mut header, "nested", 9, &nested);
    let folder = Folder::new();
    let input = folder.write("in.gguf", &gguf_of(&header, &[]));
    let output = folder.path("out.hrry");
    let report = run(&input, &output, &Options::default()).unwrap();
    assert_eq!(report.notes.len(), 1);
    assert!(report.notes[0].contains("\"nested\""));
    let reader = FileReader::open(output).unwrap();
    let expected = [
        ("name", Value::String("tiny".into())),
        ("small", Value::Int64(-1)),
        ("large", Value::Uint64(u64::MAX)),
        ("float", Value::Float64(0.1_f32.into())),
        (
            "tokens",
            Value::Array(Array::String(vec!["a".into(), String::new()])),
        ),
    ];
    let found: Vec<_> = reader
        .metadata()
        .iter()
        .map(|(k, v)| (&**k, v.clone()))
        .collect();
    assert_eq!(found, expected);
}

/// A version 1.0 array file of this header text.
fn npy_of(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn npy_refused(bytes: &[u8]) -> NpyError {
    match refused("in.npy", bytes) {
        ConvertError::Npy { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn npy_headers_are_read_without_evaluating_anything() {
    let good = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }";
    let reader = to_hurray("in.npy", &npy_of(good, &[1, 0, 2, 0]), &Options::default()).unwrap();
    assert_eq!(bytes_of(&reader.tensor("in").unwrap(), 0), [1, 0, 2, 0]);
    let python2 = r#"{"shape":(2L,),"descr":"<i2","fortran_order":True}"#;
    to_hurray("in.npy", &npy_of(python2, &[0; 4]), &Options::default()).unwrap();
    for malformed in [
        "",
        "{",
        "{}",
        "{'descr': '<i2', 'fortran_order': False}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<i2', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': __import__('os')}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)} more",
        "{'descr': '<i\\x32', 'fortran_order': False, 'shape': (2,)}",
    ] {
        let error = npy_refused(&npy_of(malformed, &[0; 4]));
        assert!(
            matches!(error, NpyError::Header { .. }),
            "{malformed}: {error}"
        );
    }
    let deep = format!("{{'descr': '<i2', 'shape': {}", "(".repeat(60_000));
    let error = npy_refused(&npy_of(&deep, &[]));
    assert!(matches!(error, NpyError::Header { .. }));
}

#[test]
fn npy_sizes_are_claims() {
    let shape =
        |shape: &str| format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}");
    let error = npy_refused(&npy_of(&shape("(1099511627776,)"), &[0; 8]));
    let needed = 8 << 40;
    assert_eq!(error, NpyError::DataLength { needed, found: 8 });
    let error = npy_refused(&npy_of(&shape("(1,)"), &[0; 9]));
    assert_eq!(
        error,
        NpyError::DataLength {
            needed: 8,
            found: 9
        }
    );
    let error = npy_refused(&npy_of(&shape("(4294967296, 4294967296)"), &[]));
    assert_eq!(error, NpyError::Overflow);
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    let error = npy_refused(&long);
    assert!(matches!(error, NpyError::HeaderLength { .. }));
    assert_eq!(npy_refused(b"\x93NUMPY"), NpyError::Magic);
    assert_eq!(
        npy_refused(b"\x93NUMPY\x09\x00"),
        NpyError::Version { major: 9 }
    );
}

#[test]
fn npy_types_without_a_counterpart_are_refused_by_name() {
    for descr in [
        "'|O'",
        "'<U3'",
        "'<f16'",
        "'|V2'",
        "'<M8[ns]'",
        "'=i4'",
        "[('a', '<i4')]",
    ] {
        let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (0,)}}");
        let error = refused("in.npy", &npy_of(&header, &[]));
        let ConvertError::Refused(refused) = &error else {
            panic!("{descr}: {error:?}");
        };
        assert!(matches!(&refused.0[..], [(name, Refusal::ForeignType { .. })] if name == "in"));
    }
}

fn npz_of(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn bytes_npy(len: usize) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({len},)}}");
    npy_of(&header, &vec![0; len])
}

#[test]
fn an_archive_that_unpacks_to_more_than_is_allowed_is_refused() {
    let array = bytes_npy(8 << 20);
    let archive = npz_of(&[("a.npy", &array)], CompressionMethod::Deflated);
    assert!(archive.len() < 1 << 14);
    let folder = Folder::new();
    let input = folder.write("in.npz", &archive);
    let output = folder.path("out.hrry");
    let mut options = Options::default();
    options.most_unpacked = Some(1 << 20);
    let (peak, result) = counting::peak(|| run(&input, &output, &options));
    let error = result.unwrap_err();
    assert!(matches!(error, ConvertError::Unpacked { .. }), "{error}");
    assert!(peak < 1 << 19, "{peak}");
    // Unpacking takes no memory of its own where it is allowed.
    let (peak, result) = counting::peak(|| run(&input, &output, &Options::default()));
    result.unwrap();
    assert!(peak < 1 << 19, "{peak}");
    let reader = FileReader::open(output).unwrap();
    assert_eq!(bytes_of(&reader.tensor("a").unwrap(), 0).len(), 8 << 20);
}

#[test]
fn archive_members_that_share_bytes_are_refused() {
    let array = bytes_npy(64);
    let mut archive = npz_of(
        &[("a.npy", &array), ("b.npy", &array)],
        CompressionMethod::Stored,
    );
    // The second entry of the directory: its offset is 42 bytes into it.
    let entry = archive
        .windows(4)
        .rposition(|w| w == b"PK\x01\x02")
        .unwrap();
    archive[entry + 42..entry + 46].fill(0);
    let error = refused("in.npz", &archive);
    assert!(error.is_malformed_input(), "{error}");
}

#[test]
fn archive_members_of_one_name_are_refused() {
    let array = bytes_npy(64);
    let members: [(&str, &[u8]); 2] = [("a.npy", &array), ("b.npy", &array)];
    let mut archive = npz_of(&members, CompressionMethod::Stored);
    while let Some(at) = archive.windows(5).position(|window| window == b"b.npy") {
        archive[at] = b'a';
    }
    let error = refused("in.npz", &archive);
    assert!(matches!(error, ConvertError::DuplicateMembers), "{error:?}");
}

#[test]
fn archive_members_are_checked_against_their_crc() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let mut array = bytes_npy(64);
        array.splice(array.len() - 64.., 0..64);
        let mut archive = npz_of(&[("a.npy", &array)], method);
        let crc = archive
            .windows(4)
            .rposition(|w| w == b"PK\x01\x02")
            .unwrap()
            + 16;
        archive[crc] ^= 1;
        let error = refused("in.npz", &archive);
        assert!(matches!(error, ConvertError::Member { .. }), "{error:?}");
        assert!(error.is_malformed_input());
    }
}

#[test]
fn what_is_no_array_in_an_archive_is_refused_by_name() {
    let archive = npz_of(&[("notes.txt", b"hello")], CompressionMethod::Stored);
    let error = refused("in.npz", &archive);
    assert!(error.to_string().contains("notes.txt"), "{error}");
}

/// A file of this project.
fn hurray_of(tensors: &[(&str, TensorDescriptor, &[&[u8]])]) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    writer.push_metadata("count", Value::Int64(3));
    for (name, descriptor, bytes) in tensors {
        writer.write_bytes(name, descriptor.clone(), bytes).unwrap();
    }
    writer.finish().unwrap()
}

fn plain(element_type: ElementType, shape: &[u64], layout: Layout, len: usize) -> TensorDescriptor {
    TensorDescriptor::new(element_type, shape, layout, [row(len)])
}

fn to_safetensors(bytes: &[u8], split: bool) -> Result<Vec<u8>, ConvertError> {
    let folder = Folder::new();
    let input = folder.write("in.hrry", bytes);
    let output = folder.path("out.safetensors");
    let mut options = Options::default();
    options.split = split;
    run(&input, &output, &options)?;
    Ok(fs::read(output).unwrap())
}

fn view<'a>(file: &SafeTensors<'a>, name: &str) -> (Dtype, Vec<usize>, &'a [u8]) {
    let view: TensorView<'a> = file.tensor(name).unwrap();
    (view.dtype(), view.shape().to_vec(), view.data())
}

/// A tensor of every kind that safetensors cannot express.
fn inexpressible() -> Vec<u8> {
    let csr = TensorDescriptor::new(
        ElementType::Float32,
        [2, 3].as_slice(),
        Layout::Csr { nnz: 1 },
        [row(4), row(8), row(24)],
    );
    let mut per_tensor = plain(ElementType::Int8, &[2], Layout::RowMajor, 2);
    let scheme = TensorAffine {
        scale: 0.5,
        zero_point: -1,
    };
    per_tensor.quantization = Some(QuantizationScheme::TensorAffine(scheme).encode());
    let mut per_channel = plain(ElementType::Int4, &[2, 3], Layout::RowMajor, 3);
    per_channel.buffers.push(row(20));
    let scheme = ChannelAffine {
        axis: 1,
        scale_buffer: 1,
        zero_point_buffer: Some(1),
    };
    // Scales and zero points share a buffer: three of each.
    per_channel.buffers[1] = row(24);
    per_channel.quantization = Some(QuantizationScheme::ChannelAffine(scheme).encode());
    let mut per_block = plain(ElementType::Uint8, &[4, 2], Layout::RowMajor, 8);
    per_block.buffers.push(row(8));
    let scheme = BlockAffine {
        axis: 0,
        block_size: 2,
        scale_buffer: 1,
        zero_point_buffer: None,
        scale_type: ScaleType::Float16,
    };
    per_block.quantization = Some(QuantizationScheme::BlockAffine(scheme).encode());
    let parameters: Vec<u8> = [1_f32, 2.0, 3.0]
        .iter()
        .flat_map(|scale| scale.to_le_bytes())
        .chain([-1_i32, 0, 1].iter().flat_map(|zero| zero.to_le_bytes()))
        .collect();
    hurray_of(&[
        (
            "sparse",
            csr,
            &[&[0, 0, 128, 63], &[2, 0, 0, 0, 0, 0, 0, 0], &[0; 24]],
        ),
        ("tensor", per_tensor, &[&[1, 255]]),
        // 1, -8, 7, 0, -1, 2
        ("channel", per_channel, &[&[0x81, 0x07, 0x2F], &parameters]),
        // Entries lie with the blocks last: column 0 has 1 and 2, column 1 has 3 and 4.
        (
            "block",
            per_block,
            &[&[0, 1, 2, 3, 4, 5, 6, 7], &[1, 0, 2, 0, 3, 0, 4, 0]],
        ),
        (
            "wide",
            plain(ElementType::Complex128, &[1], Layout::RowMajor, 16),
            &[&[7; 16]],
        ),
        (
            "odd",
            plain(ElementType::Float4E2m1, &[3], Layout::RowMajor, 2),
            &[&[0x21, 0x03]],
        ),
    ])
}

#[test]
fn what_safetensors_cannot_express_is_refused_by_name() {
    let error = to_safetensors(&inexpressible(), false).unwrap_err();
    let ConvertError::Refused(refused) = &error else {
        panic!("{error:?}");
    };
    let names: Vec<&str> = refused.0.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["sparse", "tensor", "channel", "block", "wide", "odd"]
    );
    assert!(error.to_string().contains("per_block_affine"));
}

#[test]
fn a_split_names_the_components() {
    let file = to_safetensors(&inexpressible(), true).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let is = |name: &str, dtype: Dtype, shape: &[usize], data: &[u8]| {
        assert_eq!(view(&file, name), (dtype, shape.to_vec(), data), "{name}");
    };
    is("sparse.values", Dtype::F32, &[1], &[0, 0, 128, 63]);
    is(
        "sparse.col_indices",
        Dtype::U64,
        &[1],
        &[2, 0, 0, 0, 0, 0, 0, 0],
    );
    is("sparse.row_ptr", Dtype::U64, &[3], &[0; 24]);
    is("tensor", Dtype::I8, &[2], &[1, 255]);
    is("tensor_scale", Dtype::F32, &[], &0.5_f32.to_le_bytes());
    is(
        "tensor_zero_point",
        Dtype::I32,
        &[],
        &(-1_i32).to_le_bytes(),
    );
    is("channel", Dtype::I8, &[2, 3], &[1, 0xF8, 7, 0, 0xFF, 2]);
    let scales = [1_f32, 2.0, 3.0].map(f32::to_le_bytes).concat();
    is("channel_scale", Dtype::F32, &[1, 3], &scales);
    let zeros = [-1_i32, 0, 1].map(i32::to_le_bytes).concat();
    is("channel_zero_point", Dtype::I32, &[1, 3], &zeros);
    is("block", Dtype::U8, &[4, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
    is(
        "block_scale",
        Dtype::F16,
        &[2, 2],
        &[1, 0, 3, 0, 2, 0, 4, 0],
    );
    is("wide.data", Dtype::U8, &[16], &[7; 16]);
    is("odd.data", Dtype::U8, &[2], &[0x21, 0x03]);
}

#[test]
fn what_a_split_took_apart_is_joined_again() {
    let folder = Folder::new();
    let input = folder.write(
        "in.safetensors",
        &to_safetensors(&inexpressible(), true).unwrap(),
    );
    let output = folder.path("out.hrry");
    let mut options = Options::default();
    options.join_quantized = true;
    let report = run(&input, &output, &options).unwrap();
    let joined = report.notes.iter().filter(|note| note.contains("joined"));
    assert_eq!(joined.count(), 3, "{:?}", report.notes);
    let reader = FileReader::open(output).unwrap();
    let block = reader.tensor("block").unwrap();
    let scheme = block.descriptor().quantization.as_ref().unwrap().scheme();
    let expected = BlockAffine {
        axis: 0,
        block_size: 2,
        scale_buffer: 1,
        zero_point_buffer: None,
        scale_type: ScaleType::Float16,
    };
    assert_eq!(scheme.unwrap(), QuantizationScheme::BlockAffine(expected));
    assert_eq!(bytes_of(&block, 1), [1, 0, 2, 0, 3, 0, 4, 0]);
    let channel = reader.tensor("channel").unwrap();
    // Codes of four bits were unpacked, so they come back as int8.
    assert_eq!(channel.descriptor().element_type, ElementType::Int8);
    assert_eq!(
        bytes_of(&channel, 2),
        [-1_i32, 0, 1].map(i32::to_le_bytes).concat()
    );
    assert_eq!(bytes_of(&reader.tensor("tensor").unwrap(), 0), [1, 255]);
}

#[test]
fn a_composite_is_refused_or_written_as_its_members() {
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    let item = Item::Composite(rows_partition(2));
    writer.write_item("c", &item).unwrap();
    let bytes = writer.finish().unwrap();
    let error = to_safetensors(&bytes, false).unwrap_err();
    assert!(matches!(error, ConvertError::Refused(_)), "{error}");
    let file = to_safetensors(&bytes, true).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let mut names = file.names();
    names.sort();
    assert_eq!(names, ["c.0", "c.1"]);
}

#[test]
fn dense_layouts_become_row_major() {
    let strided = Layout::Strided([-1, 2].as_slice().into());
    let mut reversed = plain(ElementType::Uint8, &[2, 2], strided, 4);
    reversed.byte_offset = 1;
    let file = hurray_of(&[
        (
            "column",
            plain(ElementType::Uint8, &[2, 2], Layout::ColumnMajor, 4),
            &[&[0, 1, 2, 3]],
        ),
        (
            "bools",
            plain(ElementType::Bool, &[2, 5], Layout::ColumnMajor, 2),
            &[&[0b1110_0001, 0b10]],
        ),
        ("reversed", reversed, &[&[0, 1, 2, 3]]),
    ]);
    let file = to_safetensors(&file, false).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(view(&file, "column").2, [0, 2, 1, 3]);
    assert_eq!(view(&file, "bools").2, [1, 0, 0, 1, 0, 0, 0, 1, 1, 1]);
    assert_eq!(view(&file, "reversed").2, [1, 3, 0, 2]);
    let (_, header) =
        SafeTensors::read_metadata(&to_safetensors(&hurray_of(&[]), false).unwrap()).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["count"], "3");
}

/// What an earlier split told of a tensor of this name may be wrong by now.
#[test]
fn a_split_tells_of_itself() {
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    writer.push_metadata("hurray.split.w", Value::String("stale".into()));
    let codes = plain(ElementType::Int4, &[4], Layout::RowMajor, 2);
    writer.write_bytes("w", codes, &[&[1, 2]]).unwrap();
    let file = to_safetensors(&writer.finish().unwrap(), true).unwrap();
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    let told = &header.metadata().as_ref().unwrap()["hurray.split.w"];
    assert!(told.contains("int4"), "{told}");
}

/// Text stays; what is none becomes the JSON that `hurray inspect --json` shows.
#[test]
fn metadata_that_are_no_text_become_json() {
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).unwrap();
    for (key, value) in [
        ("text", Value::String("5".into())),
        ("bytes", Value::Bytes(vec![0, 0xAB])),
        ("infinite", Value::Float64(f64::NEG_INFINITY)),
        ("list", Value::Array(Array::Float64(vec![0.5, f64::NAN]))),
    ] {
        writer.push_metadata(key, value);
    }
    let file = to_safetensors(&writer.finish().unwrap(), false).unwrap();
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    let metadata = header.metadata().as_ref().unwrap();
    assert_eq!(metadata["text"], "5");
    assert_eq!(metadata["bytes"], r#""00ab""#);
    assert_eq!(metadata["infinite"], r#""-inf""#);
    assert_eq!(metadata["list"], r#"[0.5,"nan"]"#);
}

#[test]
fn repeated_elements_count_as_claims() {
    let broadcast = plain(
        ElementType::Uint8,
        &[1 << 50],
        Layout::Strided([0].as_slice().into()),
        1,
    );
    let file = hurray_of(&[("w", broadcast, &[&[1]])]);
    let (peak, result) = counting::peak(|| to_safetensors(&file, false));
    let error = result.unwrap_err();
    assert!(matches!(error, ConvertError::Unpacked { .. }), "{error}");
    assert!(peak < 1 << 18, "{peak}");
}

#[test]
fn formats_are_told_by_name_or_by_option() {
    let folder = Folder::new();
    let input = folder.write(
        "in",
        &npy_of(
            "{'descr': '|u1', 'fortran_order': False, 'shape': ()}",
            &[7],
        ),
    );
    let output = folder.path("out.hrry");
    let mut options = Options::default();
    let error = run(&input, &output, &options).unwrap_err();
    assert!(matches!(error, ConvertError::UnknownFormat { .. }));
    options.from = Some(hurray_inspect::convert::Format::Npy);
    run(&input, &output, &options).unwrap();
    let error = run(&output, &folder.path("o.hrry"), &Options::default()).unwrap_err();
    assert!(matches!(error, ConvertError::SameFormat { .. }));
    let error = run(&output, &folder.path("o.gguf"), &Options::default()).unwrap_err();
    assert!(matches!(error, ConvertError::ReadOnly { .. }));
}

/// What the output cannot be is no fault of the input, and is told of the output.
#[test]
fn an_output_that_cannot_be_is_no_malformed_input() {
    let folder = Folder::new();
    let output = folder.path("out.hrry");
    let named = |name: &str| {
        let info = json!({"dtype": "U8", "shape": [1], "data_offsets": [0, 1]});
        let header = json!({ name: info }).to_string();
        folder.write("in.safetensors", &safetensors_of(&header, &[7]))
    };
    let mut odd = Options::default();
    odd.alignment = 5;
    let failed = |input: &Path, options: &Options, rule: &str| {
        let error = run(input, &output, options).unwrap_err();
        assert!(!error.is_malformed_input(), "{error}");
        assert!(error.to_string().contains("out.hrry: "), "{error}");
        let ConvertError::Unwritable { source, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(source.rule(), rule);
        assert!(!output.exists());
    };
    failed(&named("w"), &odd, "FC29");
    failed(&named(&"w".repeat(1 << 16)), &Options::default(), "");
    failed(&named(""), &Options::default(), "");
}

/// More dimensions than the format has: as every other, refused by name before anything is written.
#[test]
fn a_tensor_that_the_format_does_not_allow_is_refused_by_name() {
    let info = |at: usize| {
        let shape = vec![1; 65];
        json!({"dtype": "U8", "shape": shape, "data_offsets": [at, at + 1]})
    };
    let header = json!({"a": info(0), "b": info(1)}).to_string();
    match refused("in.safetensors", &safetensors_of(&header, &[7, 7])) {
        ConvertError::Refused(Refused(all)) => {
            let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["a", "b"]);
            assert!(matches!(all[0].1, Refusal::Descriptor(_)));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn a_conversion_can_be_stopped() {
    let folder = Folder::new();
    let input = folder.write("in.npy", &bytes_npy(64));
    let output = folder.write("out.hrry", b"the old file");
    let mut stop = |_, _| ControlFlow::Break(());
    let error = convert(&input, &output, &Options::default(), &mut stop).unwrap_err();
    assert!(
        matches!(error, ConvertError::File(FileError::Stopped)),
        "{error}"
    );
    assert_eq!(fs::read(&output).unwrap(), b"the old file");
}

/// A small file of each format that is read.
static SPECIMENS: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let mut header = counts(2, 1);
    header.extend(gguf_string("k"));
    header.extend(8_u32.to_le_bytes());
    header.extend(gguf_string("v"));
    header.extend(gguf_tensor("q", &[32, 2], Q8_0, 0));
    header.extend(gguf_tensor("w", &[2], 0, 96));
    let safetensors = to_safetensors(&inexpressible(), true).unwrap();
    let array = bytes_npy(64);
    vec![
        ("in.hrry", inexpressible()),
        ("in.gguf", gguf_of(&header, &[1; 104])),
        ("in.safetensors", safetensors),
        ("in.npy", array.clone()),
        (
            "in.npz",
            npz_of(&[("a.npy", &array)], CompressionMethod::Deflated),
        ),
        (
            "in.npz",
            npz_of(&[("a.npy", &array)], CompressionMethod::Stored),
        ),
    ]
});

/// Converts it with all that there is to do.
fn run_specimen(folder: &Folder, name: &str, bytes: &[u8]) -> Result<Report, ConvertError> {
    let mut options = Options::default();
    options.join_quantized = true;
    options.split = true;
    let to = match name {
        "in.hrry" => "out.safetensors",
        _ => "out.hrry",
    };
    run(&folder.write(name, bytes), &folder.path(to), &options)
}

#[test]
fn specimens_are_converted_and_cut_ones_are_refused() {
    let folder = Folder::new();
    for (name, bytes) in &*SPECIMENS {
        run_specimen(&folder, name, bytes).unwrap();
        for len in (0..bytes.len()).filter(|len| *len < 128 || len % 97 == 0) {
            let error = run_specimen(&folder, name, &bytes[..len]).unwrap_err();
            assert!(error.is_malformed_input(), "{name} {len}: {error:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// No panic, and no more memory than a small multiple. Zeros, of which files of this project are full, are left alone.
    #[test]
    fn changed_bytes_end_well(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (name, mut bytes) = SPECIMENS[which.index(SPECIMENS.len())].clone();
        let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
        for (at, byte) in changes {
            bytes[places[at.index(places.len())]] = byte;
        }
        let folder = Folder::new();
        let (peak, _) = counting::peak(|| run_specimen(&folder, name, &bytes));
        prop_assert!(peak < 1 << 20, "{} bytes", peak);
    }
}
