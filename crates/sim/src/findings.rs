//! What the checks of a world have found so far, and what they compare with.

use crate::faults::Spans;
use crate::trace::say;
use shoal_types::{BlockGroup, BlockId, Tier};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Where blocks were seen.
    pub places: RefCell<Places>,
}

/// Where blocks were seen, as often as they are looked at.
#[derive(Default)]
pub struct Places {
    groups: BTreeMap<BlockId, BlockGroup>,
    sharded: BTreeSet<BlockId>,
    /// Blocks that had all their copies or shards, or were stored anew in another scheme or on another tier.
    whole: BTreeSet<BlockId>,
    /// Moves to the cold tier.
    pub demoted: usize,
    /// Moves to the hot tier.
    pub promoted: usize,
    /// Changes of the scheme on one tier.
    pub converted: usize,
}

impl Places {
    /// A block is in this group. Returns whether the group must have all its copies or shards: it had them
    /// once, or the block was stored anew. `original`: copies when the world began.
    pub fn see(&mut self, id: BlockId, group: &BlockGroup, original: u8) -> bool {
        if group.is_sharded() {
            self.sharded.insert(id);
        }
        let before = self.groups.insert(id, *group);
        match (before.map(|before| before.tier()), group.tier()) {
            (Some(Tier::Hot), Tier::Cold) => self.demoted += 1,
            (Some(Tier::Cold), Tier::Hot) => self.promoted += 1,
            _ => {}
        }
        let scheme = |group: &BlockGroup| (group.tier(), group.scheme(original));
        let is_anew = before.is_some_and(|before| scheme(&before) != scheme(group));
        let is_converted = is_anew && before.is_some_and(|before| before.tier() == group.tier());
        self.converted += usize::from(is_converted);
        if is_anew || !group.is_short(original) {
            self.whole.insert(id);
        }
        self.whole.contains(&id)
    }

    /// Blocks that were seen in shards.
    pub fn sharded(&self) -> usize {
        self.sharded.len()
    }
}

impl Findings {
    /// Adds a finding.
    pub fn add(&self, what: String) {
        say(&format!("FOUND {what}"));
        self.list.borrow_mut().push(what);
    }
}
