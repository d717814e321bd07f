//! What saving does to the file that is there, and what is left where it fails.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod counting;
mod tensors;

use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hurray_ffi::Item;
use hurray_io::{AtomicFile, FileError, FileOptions, FileReader, FileWriter, Target, Value, save};
use tensors::{bytes_of, bytes_tensor, rows_partition};

fn tensor(bytes: &[u8]) -> Item {
    Item::Tensor(bytes_tensor(bytes))
}

fn save_one(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    save(
        path,
        [("w", &tensor(bytes))],
        &[],
        FileOptions::default(),
        &mut |_, _| ControlFlow::Continue(()),
    )
}

/// The bytes of the tensor that `save_one` wrote.
fn saved(path: &Path) -> Vec<u8> {
    let reader = FileReader::open(path).unwrap();
    bytes_of(&reader.tensor("w").unwrap(), 0).to_vec()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_saved_file_is_what_the_writer_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    let items = [
        ("p", Item::Composite(rows_partition(3))),
        ("w", tensor(&[7; 5000])),
    ];
    let metadata = [("k".to_owned(), Value::Int64(4))];
    let mut options = FileOptions::default();
    options.sorted_index = true;
    options.alignment = 65536;
    let mut told = Vec::new();
    let borrowed = items.iter().map(|(name, item)| (*name, item));
    save(&path, borrowed, &metadata, options, &mut |done, total| {
        told.push((done, total));
        ControlFlow::Continue(())
    })
    .unwrap();

    let mut writer = FileWriter::new(Vec::new(), options).unwrap();
    writer.push_metadata("k", Value::Int64(4));
    for (name, item) in &items {
        writer.write_item(name, item).unwrap();
    }
    let expected = writer.finish().unwrap();
    assert!(fs::read(&path).unwrap() == expected);
    let total = expected.len() as u64;
    assert!(told.iter().all(|&(_, of)| of == total));
    assert!(told.is_sorted_by(|(a, _), (b, _)| a < b));
    assert_eq!(told.last(), Some(&(total, total)));
}

/// I2: safetensors truncates the file that its own tensors are mapped from.
#[test]
fn i2_saving_over_the_file_that_is_mapped_keeps_live_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    save_one(&path, &[1; 100_000]).unwrap();
    let reader = FileReader::open(&path).unwrap();
    let live = reader.tensor("w").unwrap();
    // The file's own bytes again, and something shorter.
    let item = Item::Tensor(live.clone());
    let unwatched = &mut |_, _| ControlFlow::Continue(());
    save(
        &path,
        [("w", &item)],
        &[],
        FileOptions::default(),
        unwatched,
    )
    .unwrap();
    assert_eq!(saved(&path), [1; 100_000]);
    save_one(&path, &[2; 10]).unwrap();
    assert_eq!(bytes_of(&live, 0), [1; 100_000]);
    assert_eq!(bytes_of(&reader.tensor("w").unwrap(), 0), [1; 100_000]);
    assert_eq!(saved(&path), [2; 10]);
    assert_eq!(names(folder.path()), ["w.hrry"]);
}

#[test]
fn permissions_are_those_of_a_plain_create_or_of_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let plain = folder.path().join("plain");
    File::create(&plain).unwrap();
    let path = folder.path().join("w.hrry");
    save_one(&path, &[1]).unwrap();
    assert_eq!(mode(&path), mode(&plain));
    for old in [0o600, 0o640, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(old)).unwrap();
        save_one(&path, &[2]).unwrap();
        assert_eq!(mode(&path), old);
    }
    // Where the test may give a file away, so may the save.
    if std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).is_ok() {
        save_one(&path, &[2]).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12_345, 54_321));
    }
    // A write takes such bits away.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    save_one(&path, &[3]).unwrap();
    assert_eq!(mode(&path), 0o755);
}

#[test]
fn a_link_is_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let target = inner.join("w.hrry");
    let (first, second) = (folder.path().join("first"), inner.join("second"));
    symlink("inner/second", &first).unwrap();
    symlink("w.hrry", &second).unwrap();
    // What it points to is not there yet, and then it is.
    for byte in [1, 2] {
        save_one(&first, &[byte; 10]).unwrap();
        assert_eq!(saved(&target), [byte; 10]);
    }
    for link in [&first, &second] {
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
    }
    assert_eq!(names(folder.path()), ["first", "inner"]);
    assert_eq!(names(&inner), ["second", "w.hrry"]);

    let circle = folder.path().join("circle");
    symlink("circle", &circle).unwrap();
    assert!(matches!(save_one(&circle, &[1]), Err(FileError::Io(_))));
}

#[test]
fn what_is_no_regular_file_is_written_to_directly() {
    let before = fs::metadata("/dev/null").unwrap().ino();
    save_one(Path::new("/dev/null"), &[1; 10]).unwrap();
    assert_eq!(fs::metadata("/dev/null").unwrap().ino(), before);

    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut bytes = Vec::new();
            File::open(pipe).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        }
    });
    save_one(&pipe, &[5; 100_000]).unwrap();
    let reader = FileReader::new(tensors::memory(&reader.join().unwrap())).unwrap();
    assert_eq!(bytes_of(&reader.tensor("w").unwrap(), 0), [5; 100_000]);
    assert_eq!(names(folder.path()), ["pipe"]);
}

#[test]
fn a_path_that_cannot_be_written_to_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for path in [
        folder.path().into(),
        folder.path().join("missing/w.hrry"),
        "".into(),
    ] {
        assert!(matches!(save_one(&path, &[1]), Err(FileError::Io(_))));
    }
    assert!(matches!(
        save_one(Path::new("/dev/full"), &[1]),
        Err(FileError::Io(_))
    ));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn long_and_bare_names_can_be_saved_to() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("n".repeat(255));
    save_one(&long, &[1]).unwrap();
    assert_eq!(saved(&long), [1]);
    assert_eq!(names(folder.path()).len(), 1);
    // Relative to the working folder, which is the package's.
    let bare = format!("saving-{}.hrry", std::process::id());
    save_one(Path::new(&bare), &[2]).unwrap();
    assert_eq!(saved(Path::new(&bare)), [2]);
    fs::remove_file(bare).unwrap();
}

/// What is wrong with the items is found first; a stop comes at any byte.
#[test]
fn an_error_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    save_one(&path, &[1; 10]).unwrap();
    let unwatched = &mut |_, _| ControlFlow::Continue(());
    let item = tensor(&[2; 10]);
    let twice = [("w", &item), ("w", &item)];
    let error = save(&path, twice, &[], FileOptions::default(), unwatched).unwrap_err();
    assert_eq!(error.rule(), "FC12");
    let empty_key = [(String::new(), Value::Bool(true))];
    let error = save(
        &path,
        [("w", &item)],
        &empty_key,
        FileOptions::default(),
        unwatched,
    );
    assert!(matches!(error, Err(FileError::KeyLength { len: 0 })));
    for stop in 1.. {
        let mut calls = 0;
        let result = save(
            &path,
            [("w", &item)],
            &[],
            FileOptions::default(),
            &mut |_, _| {
                calls += 1;
                assert_eq!(names(folder.path()).len(), 2);
                if calls == stop {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        assert_eq!(names(folder.path()), ["w.hrry"]);
        if calls < stop {
            result.unwrap();
            break;
        }
        assert!(matches!(result, Err(FileError::Stopped)));
        assert_eq!(saved(&path), [1; 10]);
    }
    assert_eq!(saved(&path), [2; 10]);
}

#[test]
fn a_file_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    drop(AtomicFile::create(&path).unwrap());
    assert!(names(folder.path()).is_empty());
}

/// Buffers go to the file from where they lie, and a large write can be stopped on the way.
#[test]
fn a_large_tensor_is_saved_in_steps_without_a_copy() {
    const LEN: usize = 100 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    let item = tensor(&vec![9; LEN]);
    let mut calls = 0;
    let (peak, ()) = counting::peak(|| {
        save(
            &path,
            [("w", &item)],
            &[],
            FileOptions::default(),
            &mut |_, _| {
                calls += 1;
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    });
    assert!(peak < 1 << 16, "{peak}");
    assert!(calls >= 4, "{calls}");
    let reader = FileReader::open(&path).unwrap();
    let items = reader
        .items(&["w"], Target::Host, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    let Item::Tensor(tensor) = &items[0] else {
        panic!("a tensor");
    };
    assert!(bytes_of(tensor, 0) == vec![9; LEN]);
}

const CHILD: &str = "HURRAY_TEST_SAVE_OVER";
const TENSORS: usize = 20;
const TENSOR_LEN: usize = 60_000;

/// Not a test of its own: the process that is killed below. It saves over one file again and again, every tensor of a file full of one byte.
#[test]
fn child_that_saves_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let names: Vec<_> = (0..TENSORS).map(|number| format!("t{number}")).collect();
    for generation in 1_u8.. {
        let items: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), tensor(&vec![generation; TENSOR_LEN])))
            .collect();
        let borrowed = items.iter().map(|(name, item)| (*name, item));
        let unwatched = &mut |_, _| ControlFlow::Continue(());
        save(&path, borrowed, &[], FileOptions::default(), unwatched).unwrap();
    }
}

fn spawn_child(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_saves_until_it_is_killed"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Wherever the process is killed, one generation is there, whole.
#[test]
fn a_killed_process_leaves_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.hrry");
    let mut generations = std::collections::BTreeSet::new();
    let mut random = 88_172_645_463_325_252_u64;
    for round in 0..40 {
        let mut child = spawn_child(&path);
        let started = std::time::Instant::now();
        // The first file of this child, or the first that it began.
        while names(folder.path()).len() < 1 + usize::from(round > 0) {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(random % 30_000));
        child.kill().unwrap();
        child.wait().unwrap();

        // Only what was being written is left beside it.
        let mut litter = 0;
        for name in names(folder.path()) {
            if name != "w.hrry" {
                assert!(
                    name.starts_with(".w.hrry.") && name.ends_with(".tmp"),
                    "{name}"
                );
                fs::remove_file(folder.path().join(name)).unwrap();
                litter += 1;
            }
        }
        assert!(litter <= 1);
        if round == 0 && !path.exists() {
            continue;
        }
        let reader = FileReader::open(&path).unwrap();
        let entries = reader.container().entries();
        assert_eq!(entries.len(), TENSORS);
        let first = bytes_of(&reader.tensor("t0").unwrap(), 0)[0];
        for entry in entries {
            let tensor = reader.tensor(&entry.name).unwrap();
            assert!(
                bytes_of(&tensor, 0) == [first; TENSOR_LEN],
                "{}",
                entry.name
            );
        }
        generations.insert(first);
    }
    assert!(generations.len() > 1, "{generations:?}");
}

const SAVE_ONCE: &str = "HURRAY_TEST_SAVE_ONCE";

/// Not a test of its own: the process that is traced below.
#[test]
fn child_that_saves_once() {
    if let Some(path) = std::env::var_os(SAVE_ONCE) {
        save_one(Path::new(&path), &[1]).unwrap();
    }
}

/// The bytes are on the disk before they get their name, and the name before the save returns. Only strace sees that: nothing is tested where it is
/// missing or may not trace.
#[test]
fn the_file_is_synced_then_renamed_and_then_its_folder_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().canonicalize().unwrap().join("inner");
    fs::create_dir(&inner).unwrap();
    let path = inner.join("w.hrry");
    let log = folder.path().join("log");
    // Once where nothing is, and once over a file.
    for _ in 0..2 {
        let traced = Command::new("strace")
            .args(["--follow-forks", "--decode-fds=path", "--trace=desc,file"])
            .arg("--output")
            .arg(&log)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_saves_once"])
            .env(SAVE_ONCE, &path)
            .output();
        if !traced.is_ok_and(|output| output.status.success()) {
            eprintln!("not tested: strace could not be run");
            return;
        }
        assert_eq!(saved(&path), [1]);
        let log = fs::read_to_string(&log).unwrap();
        let calls: Vec<_> = log.lines().filter(|line| line.contains("inner")).collect();
        let position = |is_wanted: &dyn Fn(&str) -> bool| {
            let found = calls.iter().position(|call| is_wanted(call));
            found.unwrap_or_else(|| panic!("{calls:#?}"))
        };
        let written = calls.iter().rposition(|call| call.contains(" write"));
        let synced = position(&|call| call.contains(" fsync(") && call.contains(".tmp>"));
        let renamed = position(&|call| call.contains(" rename"));
        let kept = position(&|call| call.contains(" fsync(") && call.contains("inner>"));
        assert!(
            written < Some(synced) && synced < renamed && renamed < kept,
            "{calls:#?}"
        );
    }
}
