//! `with` blocks that are open in a context (see Python's `contextvars`): each thread and each task has its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

/// The blocks of one kind.
pub(crate) struct OpenBlocks {
    /// The context variable's name.
    name: &'static str,
    /// How many are open in any context: where there is none, nobody's context is asked.
    count: AtomicUsize,
    /// A tuple of the blocks that are open, the innermost last.
    variable: PyOnceLock<Py<PyAny>>,
}

impl OpenBlocks {
    /// No blocks.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            count: AtomicUsize::new(0),
            variable: PyOnceLock::new(),
        }
    }

    fn variable<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        self.variable
            .get_or_try_init(py, || {
                let options = PyDict::new(py);
                options.set_item("default", PyTuple::empty(py))?;
                let class = py.import("contextvars")?.getattr("ContextVar")?;
                Ok(class.call((self.name,), Some(&options))?.unbind())
            })
            .map(|variable| variable.bind(py))
    }

    fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        Ok(self.variable(py)?.call_method0("get")?.cast_into()?)
    }

    /// Those that are open in this context, the innermost last; `None` where there are none.
    pub(crate) fn in_context<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        Ok(Some(self.get(py)?).filter(|blocks| !blocks.is_empty()))
    }

    /// Opens `block` inside those that are open.
    pub(crate) fn open(&self, block: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = block.py();
        let mut blocks: Vec<_> = self.get(py)?.iter().collect();
        blocks.push(block.clone());
        let blocks = PyTuple::new(py, blocks)?;
        self.variable(py)?.call_method1("set", (blocks,))?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Closes the innermost opening of `block`. Whether there was one in this context.
    pub(crate) fn close(&self, block: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = block.py();
        let mut blocks: Vec<_> = self.get(py)?.iter().collect();
        let Some(position) = blocks.iter().rposition(|open| open.is(block)) else {
            return Ok(false);
        };
        blocks.remove(position);
        let blocks = PyTuple::new(py, blocks)?;
        self.variable(py)?.call_method1("set", (blocks,))?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Ok(true)
    }
}
