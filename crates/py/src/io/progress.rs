//! The `progress=` argument, and what long reads and writes do now and then: tell of it, and look for signals.

use std::io;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::ingest::library;
use crate::owner::{attached, calling};

/// Bytes between two looks.
pub(super) const STEP: usize = 16 << 20;

/// Who is told of the progress.
enum Listener {
    /// Called with the bytes that are done, and all, None where that is not known.
    Function(Py<PyAny>),
    /// A bar of tqdm, which is told what is new.
    Bar {
        bar: Py<PyAny>,
        total: Option<u64>,
        told: u64,
    },
}

/// A read or write that goes on.
pub(super) struct Progress {
    listener: Option<Listener>,
    total: Option<u64>,
    done: u64,
    /// Bytes since the last look.
    unseen: usize,
}

impl Progress {
    /// Progress of `total` bytes, as the argument asks; `title` is what a bar says before its numbers.
    ///
    /// # Errors
    /// `ImportError` where `True` asks for tqdm and it is not installed; `TypeError` for what is not callable.
    pub(super) fn new(
        argument: Option<&Bound<'_, PyAny>>,
        total: Option<u64>,
        title: &str,
    ) -> PyResult<Self> {
        Ok(Self {
            listener: argument
                .map(|argument| listener(argument, total, title))
                .transpose()?
                .flatten(),
            total,
            done: 0,
            unseen: 0,
        })
    }

    /// Says that `total` bytes are there, none of which had to be moved, unless that was told.
    pub(super) fn end(&mut self, py: Python<'_>, total: u64) -> PyResult<()> {
        if (self.done, self.total) == (total, Some(total)) {
            return Ok(());
        }
        (self.done, self.total) = (total, Some(total));
        self.tell(py)
    }

    /// Counts bytes that were read or written.
    pub(super) fn count(&mut self, bytes: usize) {
        self.done = self.done.saturating_add(bytes as u64);
        self.unseen = self.unseen.saturating_add(bytes);
    }

    /// Looks, where it is time to. Called between two reads or writes, so that an exception loses no bytes.
    ///
    /// # Errors
    /// What a signal's handler or the listener raises, inside [`io::Error::other`].
    pub(super) fn look_in_time(&mut self) -> io::Result<()> {
        if self.unseen < STEP {
            return Ok(());
        }
        self.look()
    }

    /// Looks now.
    ///
    /// # Errors
    /// As [`look_in_time`](Self::look_in_time).
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.unseen = 0;
        // Nobody is left to tell once the interpreter ends.
        let looked = attached(|py| {
            py.check_signals()?;
            self.tell(py)
        });
        looked.unwrap_or(Ok(())).map_err(io::Error::other)
    }

    /// Tells how far the work is.
    ///
    /// # Errors
    /// What the listener raises.
    pub(super) fn tell(&mut self, py: Python<'_>) -> PyResult<()> {
        match &mut self.listener {
            None => Ok(()),
            Some(Listener::Function(function)) => {
                let numbers = (self.done, self.total);
                calling(py, || function.call1(py, numbers)).map(drop)
            }
            Some(Listener::Bar { bar, total, told }) => {
                if *total != self.total {
                    *total = self.total;
                    bar.setattr(py, "total", self.total)?;
                }
                let new = self.done.saturating_sub(*told);
                *told = self.done;
                calling(py, || bar.call_method1(py, "update", (new,))).map(drop)
            }
        }
    }

    /// Tells so far, `done` of `total` bytes, instead of counting.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub(super) fn look_at(&mut self, done: u64, total: u64) -> io::Result<()> {
        let new = done.saturating_sub(self.done);
        self.unseen = self
            .unseen
            .saturating_add(usize::try_from(new).unwrap_or(usize::MAX));
        self.done = done;
        self.total = Some(total);
        // A listener wants to hear the end.
        if done < total || self.listener.is_none() {
            self.look_in_time()
        } else {
            self.look()
        }
    }

    /// Lets a bar stay as it is.
    pub(super) fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.listener.take() {
            Some(Listener::Bar { bar, .. }) => {
                calling(py, || bar.call_method0(py, "close")).map(drop)
            }
            _ => Ok(()),
        }
    }
}

fn listener(
    argument: &Bound<'_, PyAny>,
    total: Option<u64>,
    title: &str,
) -> PyResult<Option<Listener>> {
    let py = argument.py();
    if let Ok(wanted) = argument.cast::<PyBool>() {
        if !wanted.is_true() {
            return Ok(None);
        }
        let module = library(py, "tqdm.auto", "tqdm")?;
        let options = PyDict::new(py);
        options.set_item("total", total)?;
        options.set_item("desc", title)?;
        options.set_item("unit", "B")?;
        options.set_item("unit_scale", true)?;
        options.set_item("unit_divisor", 1024)?;
        let bar = calling(py, || module.call_method("tqdm", (), Some(&options)))?.unbind();
        return Ok(Some(Listener::Bar {
            bar,
            total,
            told: 0,
        }));
    }
    if argument.is_callable() {
        return Ok(Some(Listener::Function(argument.clone().unbind())));
    }
    Err(PyTypeError::new_err(format!(
        "progress is None, True or a callable that takes (bytes done, bytes in all or None), not {}",
        argument.get_type().name()?
    )))
}
