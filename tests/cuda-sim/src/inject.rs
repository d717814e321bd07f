//! Planted errors (`HURRAY_SIM_FAIL`), swallowed calls (`HURRAY_SIM_SWALLOW`) and early frees (`HURRAY_SIM_EARLY`).

use std::env;

use crate::config::refuse;

/// The functions that a test can have swallowed: success is returned and nothing done.
const SWALLOWED: [&str; 2] = ["cuStreamWaitEvent", "cuEventRecord"];
/// The functions that free memory.
const FREES: [&str; 3] = ["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost"];

/// One rule: the n-th call of one of `functions`.
struct Rule {
    /// `None` is every function.
    functions: Option<Vec<String>>,
    /// Which call, counted from 1.
    nth: u64,
    /// Every call from `nth` on, not it alone.
    onwards: bool,
    /// The error to return; unused by swallowed calls and early frees.
    code: u32,
    /// Calls seen.
    seen: u64,
}

impl Rule {
    /// Counts a call and says whether it is the one.
    fn strikes(&mut self, function: &str) -> bool {
        if !self
            .functions
            .as_ref()
            .is_none_or(|functions| functions.iter().any(|name| name == function))
        {
            return false;
        }
        self.seen += 1;
        if self.onwards {
            self.seen >= self.nth
        } else {
            self.seen == self.nth
        }
    }
}

/// All rules of the process.
pub(crate) struct Injections {
    fail: Vec<Rule>,
    swallow: Vec<Rule>,
    early: Vec<Rule>,
}

impl Injections {
    pub(crate) fn from_environment() -> Self {
        Self {
            fail: rules("HURRAY_SIM_FAIL", |parts| match parts {
                [function, nth, code] => Some(Rule {
                    code: code.parse().ok()?,
                    ..rule(&[function], nth)?
                }),
                _ => None,
            }),
            swallow: rules("HURRAY_SIM_SWALLOW", |parts| match parts {
                [function, nth] if SWALLOWED.contains(function) => rule(&[function], nth),
                _ => None,
            }),
            early: rules("HURRAY_SIM_EARLY", |parts| match parts {
                [nth] => rule(&FREES, nth),
                [function, nth] if FREES.contains(function) => rule(&[function], nth),
                _ => None,
            }),
        }
    }

    /// The error that this call must return.
    pub(crate) fn failure(&mut self, function: &str) -> Option<u32> {
        // Every rule counts, whichever strikes.
        self.fail
            .iter_mut()
            .filter_map(|rule| rule.strikes(function).then_some(rule.code))
            .last()
    }

    /// Whether this call must do nothing.
    pub(crate) fn swallowed(&mut self, function: &str) -> bool {
        self.swallow
            .iter_mut()
            .fold(false, |struck, rule| rule.strikes(function) | struck)
    }

    /// Whether this free must run before the work that it should follow.
    pub(crate) fn early(&mut self, function: &str) -> bool {
        self.early
            .iter_mut()
            .fold(false, |struck, rule| rule.strikes(function) | struck)
    }
}

fn rules(variable: &str, parse: impl Fn(&[&str]) -> Option<Rule>) -> Vec<Rule> {
    let text = env::var(variable).unwrap_or_default();
    let entries = text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            parse(&entry.split(':').collect::<Vec<_>>()).unwrap_or_else(|| refuse(variable, entry))
        })
        .collect()
}

fn rule(functions: &[&str], nth: &str) -> Option<Rule> {
    let (number, onwards) = nth
        .strip_suffix('+')
        .map_or((nth, false), |number| (number, true));
    let functions =
        (functions != ["*"]).then(|| functions.iter().map(|&name| name.to_owned()).collect());
    Some(Rule {
        functions,
        nth: number.parse().ok()?,
        onwards,
        code: 0,
        seen: 0,
    })
}
