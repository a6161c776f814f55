//! What the checks of a world have found so far, and what they compare with.

use crate::faults::Spans;
use crate::trace::say;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Filled by all checks of one world.
#[derive(Default)]
pub struct Findings {
    /// What was wrong, in the order in which it was found.
    pub list: RefCell<Vec<String>>,
    /// Digests of the replicas' state, by the index in the log.
    pub states: RefCell<BTreeMap<u64, u128>>,
    /// Blocks on all bricks at the end.
    pub blocks: Cell<usize>,
    /// The times of faults.
    pub spans: Spans,
}

impl Findings {
    /// Adds a finding.
    pub fn add(&self, what: String) {
        say(&format!("FOUND {what}"));
        self.list.borrow_mut().push(what);
    }
}
