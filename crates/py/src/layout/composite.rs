//! `hurray.CompositeLayout`, and the strings for composition rules.

use hurray_core::{CombineOp, CompositeHead, CompositionRule, Layout as Core};
use pyo3::PyClassInitializer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{Layout, checked};

/// The head of a composite, which shows several tensors as one and has no buffers. Tag 0x0B.
///
/// `composition_rule` is "partition" (disjoint boxes that cover the head), "overlay" (a base and
/// corrections over it) or "group" (unrelated tensors). An overlay says in `combine_op` whether a
/// correction is a "replace" or an "add". Raises ValueError for another string or combination.
/// A `hurray.Composite` has this layout; a `hurray.Tensor` cannot.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct CompositeLayout(pub(super) CompositeHead);

#[pymethods]
impl CompositeLayout {
    #[new]
    #[pyo3(signature = (composition_rule, member_count, combine_op=None))]
    fn new(
        composition_rule: &str,
        member_count: u32,
        combine_op: Option<&str>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let head = CompositeHead {
            rule: rule(composition_rule, combine_op)?,
            member_count,
        };
        checked(Core::Composite(head), 0, Self(head))
    }

    /// How the members make one tensor: "partition", "overlay" or "group".
    #[getter]
    fn composition_rule(&self) -> &'static str {
        rule_name(self.0.rule)
    }

    /// How a correction meets what it covers: "replace" or "add"; None unless an overlay.
    #[getter]
    fn combine_op(&self) -> Option<&'static str> {
        match self.0.rule {
            CompositionRule::Overlay(CombineOp::Replace) => Some("replace"),
            CompositionRule::Overlay(CombineOp::Add) => Some("add"),
            CompositionRule::Partition | CompositionRule::Group => None,
        }
    }

    /// How many members follow the head.
    #[getter]
    fn member_count(&self) -> u32 {
        self.0.member_count
    }

    fn __repr__(&self) -> String {
        let start = format!(
            "CompositeLayout(composition_rule='{}', member_count={}",
            self.composition_rule(),
            self.0.member_count
        );
        match self.combine_op() {
            Some(combine_op) => format!("{start}, combine_op='{combine_op}')"),
            None => format!("{start})"),
        }
    }
}

/// What `composition_rule` says of a rule.
pub(crate) const fn rule_name(rule: CompositionRule) -> &'static str {
    match rule {
        CompositionRule::Partition => "partition",
        CompositionRule::Overlay(_) => "overlay",
        CompositionRule::Group => "group",
    }
}

/// The rule that the two strings name.
///
/// # Errors
/// `ValueError` for another string, an overlay without `combine_op`, or a `combine_op` without an overlay.
pub(crate) fn rule(composition_rule: &str, combine_op: Option<&str>) -> PyResult<CompositionRule> {
    match (composition_rule, combine_op) {
        ("partition", None) => Ok(CompositionRule::Partition),
        ("group", None) => Ok(CompositionRule::Group),
        ("overlay", Some("replace")) => Ok(CompositionRule::Overlay(CombineOp::Replace)),
        ("overlay", Some("add")) => Ok(CompositionRule::Overlay(CombineOp::Add)),
        ("overlay", Some(other)) => Err(PyValueError::new_err(format!(
            "combine_op is 'replace' or 'add', got '{other}'"
        ))),
        ("overlay", None) => Err(PyValueError::new_err(
            "an overlay needs combine_op='replace' or combine_op='add'",
        )),
        ("partition" | "group", Some(other)) => Err(PyValueError::new_err(format!(
            "combine_op is for overlays, got '{other}' with '{composition_rule}'"
        ))),
        _ => Err(PyValueError::new_err(format!(
            "composition_rule is 'partition', 'overlay' or 'group', got '{composition_rule}'"
        ))),
    }
}
