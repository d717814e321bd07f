//! What the simulator found.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Where an access or an order came from: one call of the program.
#[derive(Debug)]
pub(crate) struct Site {
    /// The number of the call in the log.
    pub(crate) call: u64,
    pub(crate) function: &'static str,
    /// The stream, or the thread, that it ran on.
    pub(crate) place: Arc<str>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} on {}", self.call, self.function, self.place)
    }
}

/// What kind of defect it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Race,
    UseAfterFree,
    OutOfBounds,
    HostTouch,
    DestroyedHandle,
    DoubleFree,
    UnknownAddress,
    Peer,
    HostFunctionCall,
    ForkedCall,
    NotModelled,
    LeakMemory,
    LeakHandle,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::UseAfterFree => "use-after-free",
            Self::OutOfBounds => "out-of-bounds",
            Self::HostTouch => "host-touch",
            Self::DestroyedHandle => "destroyed-handle",
            Self::DoubleFree => "double-free",
            Self::UnknownAddress => "unknown-address",
            Self::Peer => "peer",
            Self::HostFunctionCall => "host-function-call",
            Self::ForkedCall => "forked-call",
            Self::NotModelled => "not-modelled",
            Self::LeakMemory => "leak-memory",
            Self::LeakHandle => "leak-handle",
        }
    }
}

/// The reports of the process.
pub(crate) struct Reports {
    file: Option<File>,
    lines: Vec<String>,
    /// Pairs of calls that were reported: a copy of many rows is one defect.
    pairs: Vec<(u64, u64)>,
}

impl Reports {
    pub(crate) fn new(out: Option<&Path>) -> Self {
        Self {
            file: out.and_then(|out| open(&out.join("report"))),
            lines: Vec::new(),
            pairs: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, kind: Kind, text: impl fmt::Display) {
        let line = format!(
            "{}\t{}",
            kind.name(),
            text.to_string().replace(['\n', '\t'], " ")
        );
        match &mut self.file {
            Some(file) => drop(writeln!(file, "{line}")),
            None => eprintln!("cuda-sim: {line}"),
        }
        self.lines.push(line);
    }

    /// Reports two unordered accesses once, however many ranges they share.
    pub(crate) fn pair(
        &mut self,
        kind: Kind,
        first: &Arc<Site>,
        second: &Arc<Site>,
        text: impl fmt::Display,
    ) {
        let pair = (first.call, second.call);
        if !self.pairs.contains(&pair) {
            self.pairs.push(pair);
            self.push(kind, text);
        }
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// Appends, so that a child that forks or a second simulator adds to what is there.
pub(crate) fn open(path: &Path) -> Option<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = &opened {
        eprintln!("cuda-sim: {}: {error}", path.display());
    }
    opened.ok()
}
