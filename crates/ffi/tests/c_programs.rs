//! Compiles and runs the programs in `tests/c` with the system's compiler, under AddressSanitizer.
#![cfg(target_os = "linux")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the foreign side is tests/c/producer.c, whose header says what its functions take"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod tensors;

use std::ffi::{CString, OsStr, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, ptr};

use hurray_core::{BufferHandle, SyncMode};
use hurray_ffi::abi::{HURRAY_OK, HurrayBufferList, HurrayCapsuleContext};
use hurray_ffi::{Item, Readiness, consume};
use tensors::{SIZES, cuda_row, host_row, quantized};

const STRICT: [&str; 7] = [
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
    "-g",
    "-fsanitize=address,undefined",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn include() -> String {
    format!("-I{}/include", env!("CARGO_MANIFEST_DIR"))
}

fn source(name: &str) -> PathBuf {
    root().join("tests/c").join(name)
}

/// A file that this test builds.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

fn compile<S: AsRef<OsStr>>(out: &Path, arguments: impl IntoIterator<Item = S>) {
    let mut command = Command::new("cc");
    command.args(STRICT).arg(include()).arg("-o").arg(out);
    run(command.args(arguments));
}

#[test]
fn the_header_is_c11_and_cpp_on_its_own() {
    let file = built("only_header.c");
    fs::write(&file, "#include \"hurray.h\"\n").unwrap();
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    let c = ["-std=c11", "-x", "c"];
    let cpp = ["-std=c++11", "-x", "c++"];
    for (compiler, language) in [("cc", c), ("c++", cpp)] {
        let mut command = Command::new(compiler);
        run(command
            .args(language)
            .args(strict)
            .arg(include())
            .arg(&file));
    }
}

#[test]
fn a_consumer_links_nothing() {
    let object = built("consumer.o");
    compile(
        &object,
        [OsStr::new("-c"), source("consumer.c").as_os_str()],
    );
    let undefined = run(Command::new("nm").arg("--undefined-only").arg(&object));
    assert!(!undefined.contains("hurray"), "{undefined}");

    let program = built("own_table");
    compile(
        &program,
        ["own_table.c", "consumer.c", "producer.c"].map(source),
    );
    run(&mut Command::new(program));
}

/// The library as C links it; a build of its own, since no other needs a static library.
fn static_library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root());
    cargo.args([
        "rustc",
        "--quiet",
        "--locked",
        "--package",
        "hurray-ffi",
        "--lib",
    ]);
    cargo.args(["--crate-type", "staticlib"]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    run(cargo.arg("--target-dir").arg(profile.parent().unwrap()));
    profile.join("libhurray_ffi.a")
}

#[test]
fn linked_symbols_serve_both_libraries() {
    let program = built("linked");
    let mut arguments = ["linked.c", "consumer.c", "producer.c"]
        .map(source)
        .to_vec();
    arguments.push(static_library());
    arguments.extend(["-lpthread", "-ldl", "-lm"].map(PathBuf::from));
    compile(&program, arguments);
    run(&mut Command::new(program));
}

/// AddressSanitizer has to be first in a process that it did not compile.
#[test]
fn we_consume_the_list_of_a_c_producer() {
    let library = built("libproducer.so");
    compile(
        &library,
        [
            OsStr::new("-shared"),
            OsStr::new("-fPIC"),
            source("producer.c").as_os_str(),
        ],
    );
    let sanitizer = run(Command::new("cc").arg("-print-file-name=libasan.so"));
    let stdout = run(Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "consumer_of_a_c_producer"])
        .env("LD_PRELOAD", sanitizer.trim())
        .env("PRODUCER", &library));
    assert!(stdout.contains("1 passed"), "{stdout}");
}

/// `ProducerBuffer` of `tests/c/producer.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProducerBuffer {
    byte_size: u64,
    offset: u64,
    flags: u32,
    device_id: u32,
    device_tag: u8,
    memory_class: u8,
    sync_mode: u8,
    fill: u8,
}

type NewList = unsafe extern "C" fn(
    *const u8,
    u64,
    *const ProducerBuffer,
    u64,
    *mut *mut HurrayBufferList,
    *mut *mut HurrayCapsuleContext,
) -> i32;
type Count = unsafe extern "C" fn() -> u64;

/// The C producer as a loaded library.
struct Producer(*mut c_void);

impl Producer {
    fn load() -> Self {
        let path = CString::new(env::var("PRODUCER").unwrap()).unwrap();
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Self(library)
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    }

    /// Buffers and events that live, lists that do, and double releases.
    fn counts(&self) -> [u64; 4] {
        [
            "live_buffers",
            "live_events",
            "live_lists",
            "double_releases",
        ]
        .map(|name| {
            let symbol = self.symbol(&format!("producer_{name}"));
            let count = unsafe { std::mem::transmute::<*mut c_void, Count>(symbol) };
            unsafe { count() }
        })
    }

    /// A capsule of the quantized tensor of these rows, whose buffer i is filled with i + 1.
    fn capsule(
        &self,
        rows: [BufferHandle; 3],
    ) -> (*mut HurrayBufferList, *mut HurrayCapsuleContext) {
        let new = self.symbol("producer_list_new");
        let new = unsafe { std::mem::transmute::<*mut c_void, NewList>(new) };
        let descriptor = quantized(rows).encode().unwrap();
        let mut fill = 0;
        let buffers = rows.map(|row| {
            fill += 1;
            ProducerBuffer {
                byte_size: row.byte_size,
                device_tag: row.device.to_byte(),
                sync_mode: row.sync_mode.to_byte(),
                fill,
                ..ProducerBuffer::default()
            }
        });
        let (mut list, mut context) = (ptr::null_mut(), ptr::null_mut());
        let status = unsafe {
            new(
                descriptor.as_ptr(),
                descriptor.len() as u64,
                buffers.as_ptr(),
                buffers.len() as u64,
                &raw mut list,
                &raw mut context,
            )
        };
        assert_eq!(status, HURRAY_OK);
        (list, context)
    }
}

#[test]
#[ignore = "run by we_consume_the_list_of_a_c_producer, under AddressSanitizer"]
fn consumer_of_a_c_producer() {
    let producer = Producer::load();

    let (list, context) = producer.capsule(SIZES.map(host_row));
    let Item::Tensor(tensor) = unsafe { consume(list, context) }.unwrap() else {
        panic!("a composite")
    };
    for (fill, buffer) in (1..).zip(tensor.buffers()) {
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
        assert!(bytes.iter().all(|&byte| byte == fill));
    }
    assert_eq!(producer.counts(), [3, 0, 1, 0]);
    let view = tensor.buffers()[1].slice(8, 8).unwrap();
    let list = tensor.export().unwrap();
    drop(tensor);
    drop(list);
    assert_eq!(producer.counts(), [1, 0, 1, 0]);
    drop(view);
    assert_eq!(producer.counts(), [0, 0, 0, 0]);

    let rows = SIZES.map(|size| cuda_row(size, SyncMode::Event));
    let (list, context) = producer.capsule(rows);
    let Item::Tensor(tensor) = unsafe { consume(list, context) }.unwrap() else {
        panic!("a composite")
    };
    let readiness = tensor.buffers()[0].readiness();
    assert!(matches!(readiness, Readiness::Declared(SyncMode::Event)));
    assert_eq!(producer.counts(), [3, 3, 1, 0]);
    drop(tensor);
    assert_eq!(producer.counts(), [0, 0, 0, 0]);

    let (mut list, context) = producer.capsule(SIZES.map(host_row));
    unsafe { (*context).abi_version = 4 };
    assert!(unsafe { consume(list, context) }.is_err());
    unsafe { (*context).abi_version = 3 };
    assert_eq!(producer.counts(), [3, 0, 1, 0]);
    let destroy = unsafe { (*(*context).api).list_destroy }.unwrap();
    assert_eq!(unsafe { destroy(&raw mut list) }, HURRAY_OK);
    assert_eq!(producer.counts(), [0, 0, 0, 0]);
}

#[test]
fn the_documentation_quotes_the_consumer_that_runs() {
    let code = fs::read_to_string(source("consumer.c")).unwrap();
    let (_, code) = code.split_once("/* [begin] */\n").unwrap();
    let (code, _) = code.split_once("/* [end] */").unwrap();
    let page = fs::read_to_string(root().join("docs/c-abi.md")).unwrap();
    assert!(page.contains(&format!("```c\n{code}```")));
}
