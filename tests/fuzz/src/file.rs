//! Containers.

use std::io::Write;
use std::ops::ControlFlow;

use fastrand::Rng;
use hurray_ffi::{Buffer, Item, Tensor};
use hurray_io::{FileError, FileOptions, FileReader, FileWriter, Target};

use crate::tensors::{assert_equal, bytes, check, each_tensor, memory};
use crate::{Reached, allowance, numbers_of, within};

pub(crate) fn read(input: &[u8]) -> Reached {
    let file = memory(input);
    let mut rng = numbers_of(input);
    let reached = within(allowance(input), || follow(&file, &mut rng));
    if reached.items > 0 {
        check_rewritten(&file);
    }
    // Files take longer than memory.
    if rng.u8(..16) == 0 {
        check_unmapped(&file);
    }
    reached
}

/// Reads everything that a file has.
fn follow(file: &Buffer, rng: &mut Rng) -> Reached {
    let mut reached = Reached::default();
    let reader = match FileReader::new(file.clone()) {
        Ok(reader) => reader,
        Err(error) => {
            reached.refused(error.rule(), &error);
            return reached;
        }
    };
    reached.is_open = true;
    if let Err(error) = reader.roots() {
        reached.refused(error.rule(), &error);
    }
    for entry in reader.container().entries() {
        let descriptor = reader.descriptor(&entry.name);
        match reader.item(&entry.name) {
            Ok(item) => {
                assert!(descriptor.is_ok());
                reached.items += 1;
                check_item(file, &item);
            }
            Err(error) => reached.refused(error.rule(), &error),
        }
        match (descriptor, reader.tensor(&entry.name)) {
            (_, Err(FileError::IsComposite { .. })) => {}
            (Err(error), _) => reached.refused(error.rule(), &error),
            (_, Err(error)) => reached.refused(error.rule(), &error),
            (_, Ok(tensor)) => check_slice(&reader, &entry.name, &tensor, rng),
        }
    }
    let absent = reader.item("\u{0}absent\u{0}");
    assert!(absent.is_err() || reader.container().find("\u{0}absent\u{0}").is_some());
    reached
}

/// Every buffer lies in the file.
fn check_item(file: &Buffer, item: &Item) {
    let start = file.as_ptr().addr();
    let end = start + file.len();
    each_tensor(item, &mut |tensor| {
        for buffer in tensor.buffers() {
            let first = buffer.as_ptr().addr();
            assert!(start <= first && first + buffer.len() <= end);
        }
        check(tensor);
    });
}

/// A slice's elements are those of the tensor, where they are.
fn check_slice(reader: &FileReader, name: &str, whole: &Tensor, rng: &mut Rng) {
    let shape = &whole.descriptor().shape;
    let len = shape.first().copied().unwrap_or(0);
    let start = rng.u64(..) % len.saturating_add(2).max(1);
    let end = rng.u64(..) % len.saturating_add(2).max(1);
    let slice = match reader.slice(name, start..end, Target::Declared) {
        Ok(slice) => slice,
        Err(error) => {
            assert!(matches!(error, FileError::Slice { .. }), "{error}");
            return;
        }
    };
    assert!(start <= end && end <= len);
    check(&slice);
    assert_eq!(slice.descriptor().shape[0], end - start);
    if slice.descriptor().shape.contains(&0) {
        return;
    }
    let at: Vec<u64> = slice
        .descriptor()
        .shape
        .iter()
        .map(|&dim| rng.u64(..dim))
        .collect();
    let mut at_whole = at.clone();
    at_whole[0] += start;
    let [part, whole] = [(&slice, at), (whole, at_whole)].map(|(tensor, at)| {
        let address = tensor
            .descriptor()
            .element_address(&at)
            .expect("an address");
        let first = tensor.buffers()[0].as_ptr().addr() as u64;
        (first + address.byte, address.length, address.bit_shift)
    });
    assert_eq!(part, whole);
}

/// Without a map a file is the same, and on the host it has the same bytes.
fn check_unmapped(file: &Buffer) {
    let mut path = tempfile::NamedTempFile::new().expect("a file");
    path.write_all(bytes(file)).expect("room for a file");
    let mapped = FileReader::open(path.path());
    let (unmapped, reader) = match (
        FileReader::open_unmapped(path.path()),
        FileReader::new(file.clone()),
    ) {
        (Ok(unmapped), Ok(reader)) => (unmapped, reader),
        (unmapped, reader) => {
            let [unmapped, reader, mapped] = [unmapped, reader, mapped]
                .map(|result| result.map(drop).map_err(|error| error.to_string()));
            assert_eq!(unmapped, reader);
            assert_eq!(mapped, reader);
            return;
        }
    };
    mapped.expect("a file that is read without a map");
    for entry in reader.container().entries() {
        let name = &*entry.name;
        match (unmapped.item(name), reader.item(name)) {
            (Ok(item), Ok(expected)) => {
                assert_equal(&item, &expected);
                let mut unwatched = |_, _| ControlFlow::Continue(());
                let host = unmapped
                    .items(&[name], Target::Host, &mut unwatched)
                    .expect("the item");
                each_tensor(&host[0], &mut |tensor| check(tensor));
            }
            (item, expected) => {
                let [item, expected] = [item, expected]
                    .map(|result| result.map(drop).map_err(|error| error.to_string()));
                assert_eq!(item, expected);
            }
        }
    }
}

/// What can be read can be written, and is then read as it was.
fn check_rewritten(file: &Buffer) {
    let items = items(file);
    let written = write(&items);
    let again = self::items(&memory(&written));
    assert_eq!(items.len(), again.len());
    for ((_, item), (_, again)) in items.iter().zip(&again) {
        assert_equal(item, again);
    }
    assert!(write(&again) == written);
}

/// The items that can be read, under names that no member gets.
fn items(file: &Buffer) -> Vec<(String, Item)> {
    let reader = FileReader::new(file.clone()).expect("it was read before");
    let roots = reader.roots().unwrap_or_default();
    roots
        .into_iter()
        .filter_map(|name| reader.item(name).ok())
        .zip(0..)
        .map(|(item, number)| (format!("t{number}"), item))
        .collect()
}

fn write(items: &[(String, Item)]) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), FileOptions::default()).expect("a file");
    for (name, item) in items {
        writer
            .write_item(name, item)
            .expect("what was read can be written");
    }
    writer.finish().expect("a whole file")
}
