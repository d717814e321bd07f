use std::cell::RefCell;
use std::time::Duration;

use parking_lot::ReentrantMutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::owner::detached;

/// How long a thread waits before it looks for signals again.
const PATIENCE: Duration = Duration::from_millis(50);

/// A value that threads use in turns, each for as long as a read or write takes: whoever waits does so without the interpreter, and can be interrupted.
pub(super) struct Turns<T>(ReentrantMutex<RefCell<T>>);

impl<T: Send> Turns<T> {
    pub(super) fn new(value: T) -> Self {
        Self(ReentrantMutex::new(RefCell::new(value)))
    }

    /// Does `work` with the value, once nobody else has it.
    ///
    /// # Errors
    /// `RuntimeError` where this thread has it already; what a signal's handler raises; the work's.
    pub(super) fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        let turn = loop {
            if let Some(turn) = self.0.try_lock() {
                break turn;
            }
            detached(py, || drop(self.0.try_lock_for(PATIENCE)));
            py.check_signals()?;
        };
        let Ok(mut value) = turn.try_borrow_mut() else {
            return Err(PyRuntimeError::new_err(
                "called again by what it calls itself to read or write",
            ));
        };
        work(&mut value)
    }
}
