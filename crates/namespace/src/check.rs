//! Whether a volume's state is consistent. For offline use: pass a store without writers.
//!
//! **Reads** every record once, in the order of the keys, and compares what is counted with what is there:
//! names, links, extents, references, lists. Whatever does not fit is a [`Finding`]; nothing is repaired.
//!
//! **Needs** memory for each inode (about 64 bytes) and each block and hold (about 40). Findings go to the
//! [`Visitor`] as they are made.
//!
//! **Does not read** blocks: the visitor is told each block that is referred to, and can compare it with the
//! bricks.

mod blocks;
mod files;
mod finding;
mod lists;
mod names;
mod reach;

pub use finding::Finding;

use crate::keys::{self, Key, KeyRange};
use crate::kv::{Flow, KvRead, StoreError};
use crate::limits::CHECK_PROGRESS_RECORDS;
use crate::records;
use serde::de::DeserializeOwned;
use shoal_types::{BlockId, BlockInfo, FileKind, InodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// The parts of a check, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Inodes, extended attributes, extents.
    Files,
    /// Directory entries, and how everything hangs together.
    Names,
    /// Blocks, their references and copies, and the lists of garbage and of what has too few copies.
    Blocks,
    /// Sessions, what they hold, lists of work, counters.
    Lists,
}

/// Hears what a check finds.
pub trait Visitor {
    /// Something does not fit.
    fn finding(&mut self, finding: Finding);
    /// So many records of this phase have been read; called every few thousand.
    fn progress(&mut self, phase: Phase, records: u64) {
        let _ = (phase, records);
    }
    /// Content refers to this block, so the bricks of its group must hold it.
    fn block(&mut self, id: BlockId, info: BlockInfo) {
        let _ = (id, info);
    }
}

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Things that do not fit.
    pub findings: u64,
    /// Inodes.
    pub inodes: u64,
    /// Names.
    pub names: u64,
    /// Extents.
    pub extents: u64,
    /// Blocks that content refers to.
    pub blocks: u64,
    /// Bytes of content, reserved room included.
    pub allocated_bytes: u64,
}

/// Checks a whole volume. Fails only if the store cannot be read.
pub fn check<S: KvRead + ?Sized>(store: &S, visitor: &mut dyn Visitor) -> Result<Summary, StoreError> {
    let mut check = Check {
        store,
        visitor,
        summary: Summary::default(),
        nodes: Vec::new(),
        blocks: BTreeMap::new(),
        to_compact: BTreeSet::new(),
        to_reap: BTreeSet::new(),
        held: BTreeSet::new(),
        used_bytes: 0,
        flagged: None,
    };
    check.files()?;
    check.names()?;
    check.blocks()?;
    check.lists()?;
    Ok(check.summary)
}

/// What is remembered of an inode.
struct Node {
    ino: InodeId,
    kind: FileKind,
    multi_link: bool,
    nlink: u32,
    parent: InodeId,
    /// What its record says, and what there is.
    entries: u64,
    names_found: u64,
    subdirs_found: u32,
    links_found: u32,
}

/// What is remembered of a block.
#[derive(Default)]
struct Found {
    refs: u64,
    /// The furthest byte that an extent reaches.
    end: u32,
}

struct Check<'a, S: ?Sized> {
    store: &'a S,
    visitor: &'a mut dyn Visitor,
    summary: Summary,
    /// All living inodes, by number.
    nodes: Vec<Node>,
    blocks: BTreeMap<BlockId, Found>,
    to_compact: BTreeSet<InodeId>,
    to_reap: BTreeSet<InodeId>,
    /// Who holds what, as the inodes' records say.
    held: BTreeSet<(SessionId, InodeId)>,
    used_bytes: u64,
    /// An inode with flags.
    flagged: Option<InodeId>,
}

impl<S: KvRead + ?Sized> Check<'_, S> {
    fn found(&mut self, finding: Finding) {
        self.summary.findings += 1;
        self.visitor.finding(finding);
    }

    fn damaged(&mut self, key: &[u8], what: impl ToString) {
        let key = match Key::decode(key) {
            Some(key) => format!("{key:?}"),
            None => format!("{key:02x?}"),
        };
        self.found(Finding::Damaged { key, what: what.to_string() });
    }

    fn node(&mut self, ino: InodeId) -> Option<&mut Node> {
        let index = self.nodes.binary_search_by_key(&ino, |node| node.ino).ok()?;
        self.nodes.get_mut(index)
    }

    /// Reads a range of keys; those that are no keys are findings.
    fn scan(
        &mut self,
        phase: Phase,
        (from, to): &KeyRange,
        mut each: impl FnMut(&mut Self, Key, &[u8]),
    ) -> Result<(), StoreError> {
        let store = self.store;
        let mut records = 0u64;
        store.scan(from, to, &mut |key, value| {
            records += 1;
            if records.is_multiple_of(CHECK_PROGRESS_RECORDS) {
                self.visitor.progress(phase, records);
            }
            match Key::decode(key) {
                Some(key) => each(self, key, value),
                None => self.damaged(key, "it is no key that this program knows"),
            }
            Flow::Continue(())
        })
    }

    /// Decodes a record; one that cannot be decoded is a finding.
    fn decode<T: DeserializeOwned>(&mut self, key: &Key, value: &[u8]) -> Option<T> {
        match records::decode(value) {
            Ok(record) => Some(record),
            Err(error) => {
                self.damaged(&key.encode(), error);
                None
            }
        }
    }

    fn singleton<T: DeserializeOwned>(&mut self, which: keys::Singleton) -> Result<Option<T>, StoreError> {
        let key = Key::Singleton(which);
        match self.store.get(&key.encode())? {
            Some(value) => Ok(self.decode(&key, &value)),
            None => {
                self.damaged(&key.encode(), "it is not there");
                Ok(None)
            }
        }
    }
}
