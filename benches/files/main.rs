//! Saving and reading files, beside plain system calls on the same bytes.
//!
//! `HURRAY_BENCH_FOLDER` names the folder whose file system is measured, else the system's for temporary files; `HURRAY_BENCH_MIB` the size.

#![expect(
    clippy::expect_used,
    reason = "a bench that can't run says so by a panic"
)]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{IoSlice, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use hurray_core::memory::AlignedBytes;
use hurray_core::{ElementType, Layout, TensorDescriptor};
use hurray_ffi::{Buffer, Item, Tensor};
use hurray_io::{FileOptions, FileReader, Target, save};

const TENSORS: usize = 64;

fn main() {
    let size = std::env::var("HURRAY_BENCH_MIB").map_or(1024, |size| size.parse().expect("MiB"));
    let len = (size << 20) / TENSORS;
    let folder = std::env::var_os("HURRAY_BENCH_FOLDER").unwrap_or(std::env::temp_dir().into());
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let path = folder.path().join("bench.hrry");
    let names: Vec<String> = (0..TENSORS).map(|number| format!("t{number}")).collect();
    let tensors: Vec<Tensor> = (0..TENSORS).map(|number| tensor(number, len)).collect();
    let items: Vec<Item> = tensors.iter().cloned().map(Item::Tensor).collect();
    let wanted: Vec<&str> = names.iter().map(String::as_str).collect();

    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(20))
        .configure_from_args();
    let mut group = criterion.benchmark_group("files");
    group.throughput(Throughput::Bytes((len * TENSORS) as u64));
    group.bench_function("plain write, synced and renamed", |bencher| {
        bencher.iter(|| plain_write(&path, &tensors));
    });
    group.bench_function("save", |bencher| {
        bencher.iter(|| {
            let items = wanted.iter().copied().zip(&items);
            save(&path, items, &[], FileOptions::default(), &mut |_, _| {
                ControlFlow::Continue(())
            })
            .expect("saved");
        });
    });
    group.bench_function("plain read", |bencher| {
        bencher.iter(|| {
            let mut file = File::open(&path).expect("a file");
            let mut bytes = Vec::with_capacity(len * TENSORS + 4096);
            file.read_to_end(&mut bytes).expect("read");
            black_box(bytes.len())
        });
    });
    group.bench_function("read, unmapped", |bencher| {
        bencher.iter(|| {
            let reader = FileReader::open_unmapped(&path).expect("a file");
            let items = reader.items(&wanted, Target::Host, &mut |_, _| ControlFlow::Continue(()));
            black_box(items.expect("read").len())
        });
    });
    group.bench_function("open mapped, every tensor", |bencher| {
        bencher.iter(|| {
            let reader = FileReader::open(&path).expect("a file");
            let items = reader.items(&wanted, Target::Host, &mut |_, _| ControlFlow::Continue(()));
            black_box(items.expect("mapped").len())
        });
    });
    group.finish();
}

fn tensor(number: usize, len: usize) -> Tensor {
    let mut bytes = AlignedBytes::zeroed(len).expect("memory");
    bytes.fill(number as u8 + 1);
    let buffer = Buffer::from(bytes);
    let shape = [len as u64];
    let rows = [buffer.handle()];
    let descriptor =
        TensorDescriptor::new(ElementType::Uint8, shape.as_slice(), Layout::RowMajor, rows);
    Tensor::new(descriptor, vec![buffer]).expect("a tensor")
}

/// The bytes in one go into a file beside, which takes the other's place.
fn plain_write(path: &Path, tensors: &[Tensor]) {
    let new = path.with_extension("new");
    let mut file = File::create(&new).expect("a file");
    let parts: Vec<_> = tensors
        .iter()
        .map(|tensor| IoSlice::new(bytes(tensor)))
        .collect();
    let mut parts = parts;
    let mut parts = parts.as_mut_slice();
    while !parts.is_empty() {
        let written = file.write_vectored(parts).expect("written");
        IoSlice::advance_slices(&mut parts, written);
    }
    file.sync_all().expect("synced");
    fs::rename(&new, path).expect("renamed");
    let folder = path.parent().expect("a folder");
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .expect("synced");
}

fn bytes(tensor: &Tensor) -> &[u8] {
    let buffer = &tensor.buffers()[0];
    // SAFETY: the buffer is memory of ours, which nobody writes to.
    unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) }
}
