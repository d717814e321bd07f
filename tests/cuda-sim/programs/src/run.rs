//! Runs a program on the stand-in driver, in a process of its own.

#![expect(
    clippy::panic,
    reason = "a test whose program can't be started must fail"
)]

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A program about to run on the stand-in driver.
#[derive(Debug)]
pub struct Run {
    command: Command,
    out: PathBuf,
    limit: Duration,
    fail: String,
}

/// A report of the stand-in driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What kind of defect, as `docs/cuda-sim.md` lists them.
    pub kind: String,
    /// The defect in words.
    pub text: String,
}

/// A call in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number, from 1.
    pub index: u64,
    /// The calling thread's number.
    pub thread: u64,
    /// `program` or `reclaimer`.
    pub who: String,
    /// The entry point.
    pub function: String,
    /// Parameters, `name=value` with blanks between.
    pub arguments: String,
    /// The code that it returned.
    pub result: u32,
}

/// Calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// By the program's threads.
    pub program: u64,
    /// By the reclaimer.
    pub reclaimer: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the program ended; `None` if it was ended because it took too long.
    pub status: Option<ExitStatus>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// The defects found.
    pub reports: Vec<Report>,
    /// The calls in order, if the run was logged.
    pub log: Vec<Call>,
    counts: Vec<(String, Count)>,
}

impl Run {
    /// A run of a command, with the stand-in driver where the dynamic loader looks first.
    #[must_use]
    pub fn new(mut command: Command) -> Self {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let out = env::temp_dir().join(format!(
            "cuda-sim-{}-{}",
            std::process::id(),
            RUNS.fetch_add(1, Ordering::Relaxed)
        ));
        let stale = env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| name.to_string_lossy().starts_with("HURRAY_SIM_"));
        for name in stale {
            command.env_remove(name);
        }
        command
            .env("LD_LIBRARY_PATH", search_path())
            .env("HURRAY_SIM_OUT", &out);
        Self {
            command,
            out,
            limit: Duration::from_secs(60),
            fail: String::new(),
        }
    }

    fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.command.env(name, value.to_string());
        self
    }

    /// The seed of everything that a device may do either way.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.set("HURRAY_SIM_SEED", seed)
    }

    /// How many devices there are.
    #[must_use]
    pub fn devices(self, count: u32) -> Self {
        self.set("HURRAY_SIM_DEVICES", count)
    }

    /// Whether devices can reach each other's memory.
    #[must_use]
    pub fn peer(self, possible: bool) -> Self {
        self.set("HURRAY_SIM_PEER", u8::from(possible))
    }

    /// Whether devices have stream-ordered pools.
    #[must_use]
    pub fn pools(self, present: bool) -> Self {
        self.set("HURRAY_SIM_POOLS", u8::from(present))
    }

    /// Bytes of memory of each device.
    #[must_use]
    pub fn memory(self, bytes: usize) -> Self {
        self.set("HURRAY_SIM_MEMORY", bytes)
    }

    /// Operations that a stream's queue holds.
    #[must_use]
    pub fn queue(self, operations: usize) -> Self {
        self.set("HURRAY_SIM_QUEUE", operations)
    }

    /// The n-th call of `function` (`*` for any) returns `code`. `nth` counts from 1, `"3+"` is the third and all after it.
    #[must_use]
    pub fn fail(mut self, function: &str, nth: impl ToString, code: u32) -> Self {
        let _ = write!(
            self.fail,
            "{}{function}:{}:{code}",
            if self.fail.is_empty() { "" } else { "," },
            nth.to_string()
        );
        let fail = self.fail.clone();
        self.set("HURRAY_SIM_FAIL", fail)
    }

    /// The n-th call of `cuStreamWaitEvent` or `cuEventRecord` succeeds and does nothing.
    #[must_use]
    pub fn swallow(self, function: &str, nth: u64) -> Self {
        self.set("HURRAY_SIM_SWALLOW", format!("{function}:{nth}"))
    }

    /// The n-th free runs before the work that it should follow.
    #[must_use]
    pub fn free_early(self, nth: u64) -> Self {
        self.set("HURRAY_SIM_EARLY", nth)
    }

    /// Logs every call.
    #[must_use]
    pub fn logged(self) -> Self {
        self.set("HURRAY_SIM_LOG", 1)
    }

    /// How long the program may take; 60 s if nothing is said.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the program.
    ///
    /// # Panics
    /// When the program can't be started.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        fs::create_dir_all(&self.out)
            .unwrap_or_else(|error| panic!("{}: {error}", self.out.display()));
        self.command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let end = Instant::now() + self.limit;
        let mut pause = Duration::from_micros(200);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < end => thread::sleep(pause),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
            pause = (pause * 2).min(Duration::from_millis(10));
        };
        let read = |name: &str| fs::read_to_string(self.out.join(name)).unwrap_or_default();
        let outcome = Outcome {
            status,
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
            reports: read("report").lines().filter_map(report).collect(),
            log: read("log").lines().filter_map(call).collect(),
            counts: read("counts").lines().filter_map(count).collect(),
        };
        let _ = fs::remove_dir_all(&self.out);
        outcome
    }
}

impl Outcome {
    /// Whether the program ended with status 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether a defect of a kind was reported.
    #[must_use]
    pub fn reported(&self, kind: &str) -> bool {
        self.reports.iter().any(|report| report.kind == kind)
    }

    /// Calls of a function; `host-waits` are the host synchronisations, `peak-bytes-0` the most memory of device 0 in use (as `program`).
    #[must_use]
    pub fn count(&self, function: &str) -> Count {
        self.counts
            .iter()
            .find(|(name, _)| name == function)
            .map(|&(_, count)| count)
            .unwrap_or_default()
    }

    /// # Panics
    /// Unless the program ended well and nothing was reported.
    pub fn assert_clean(&self) {
        assert!(self.succeeded() && self.reports.is_empty(), "{self:#?}");
    }
}

/// Where the dynamic loader looks: for the stand-in driver first, then where it looked before.
fn search_path() -> OsString {
    let mut path = crate::directory().as_os_str().to_owned();
    if let Some(before) = env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(before);
    }
    path
}

/// Reads a pipe to its end, so that the program never waits for room in it.
fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn report(line: &str) -> Option<Report> {
    let (kind, text) = line.split_once('\t')?;
    Some(Report {
        kind: kind.to_owned(),
        text: text.to_owned(),
    })
}

fn call(line: &str) -> Option<Call> {
    let parts: Vec<&str> = line.split('\t').collect();
    let &[index, thread, who, function, arguments, result] = parts.as_slice() else {
        return None;
    };
    Some(Call {
        index: index.parse().ok()?,
        thread: thread.parse().ok()?,
        who: who.to_owned(),
        function: function.to_owned(),
        arguments: arguments.to_owned(),
        result: result.parse().ok()?,
    })
}

fn count(line: &str) -> Option<(String, Count)> {
    let mut parts = line.split('\t');
    let function = parts.next()?.to_owned();
    Some((
        function,
        Count {
            program: parts.next()?.parse().ok()?,
            reclaimer: parts.next()?.parse().ok()?,
        },
    ))
}
