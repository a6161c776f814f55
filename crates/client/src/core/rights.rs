//! What this client may cache and change, as far as it knows.
//!
//! **Caching** needs no look in here: what is in the cache is right, because it is dropped before anybody else changes it. **Changing** needs
//! the right to the cover of an inode, or to the inode itself, and of a directory that others watch, to each name.
//!
//! Each right knows the batch that used it last: before it is given back, that batch is committed.

use rustc_hash::{FxHashMap, FxHashSet};
use shoal_types::{BatchSeq, InodeId, Name};
use shoal_wire::{Right, Want};
use std::collections::{BTreeSet, VecDeque};

/// A cover of which something is cached.
#[derive(Debug, Default)]
pub(super) struct CoverRight {
    /// All of it may be changed.
    pub(super) exclusive: bool,
    pub(super) modified: BatchSeq,
    /// How often something of it was taken back since somebody here looked at it.
    pub(super) unused: u32,
}

/// An inode that may be changed.
#[derive(Debug)]
pub(super) struct NodeRight {
    pub(super) cover: InodeId,
    pub(super) names: BTreeSet<Name>,
    pub(super) modified: BatchSeq,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// The leader's term that they are of.
    pub(crate) term: u64,
    pub(super) covers: FxHashMap<InodeId, CoverRight>,
    pub(super) nodes: FxHashMap<InodeId, NodeRight>,
    /// Rights to inodes that are given back, and the batches that used them last, until those are committed: several recalls of one inode are
    /// carried out at the same time, and none of them may be acknowledged before that.
    given_back: FxHashMap<InodeId, BatchSeq>,
    /// Inodes that died here, and the batches that say so, until those are committed: others find them alive so long, and ask whoever has the
    /// right to them.
    dying: VecDeque<(BatchSeq, InodeId)>,
    /// Inodes that the servers know this client to refer to, whatever becomes of their names.
    pub(super) held: FxHashSet<InodeId>,
    /// Those of them that the servers have not confirmed yet: a new leader is told them once more.
    pub(super) said_to_refer: FxHashSet<InodeId>,
    /// Inodes that the servers were told not to be held any more, and the batch that says so: it is committed before they may be held again.
    pub(super) let_go: FxHashMap<InodeId, BatchSeq>,
    /// Wanted inodes that the servers knew nothing of when they were asked last.
    pub(super) missing: Vec<InodeId>,
    /// Recalls carried out.
    pub(crate) recalled: u64,
}

impl Rights {
    /// Something that is counted here has been told.
    pub(super) fn watch(&mut self, cover: InodeId) {
        self.covers.entry(cover).or_default().unused = 0;
    }

    /// The right to change was given.
    pub(super) fn give(&mut self, right: Right, cover: InodeId, names: impl IntoIterator<Item = Name>) {
        match right {
            Right::Cover(cover) => {
                let right = self.covers.entry(cover).or_default();
                right.exclusive = true;
                // Held through the cover from now on.
                let mut modified = right.modified;
                self.nodes.retain(|_, node| {
                    let under = node.cover == cover;
                    modified = if under { modified.max(node.modified) } else { modified };
                    !under
                });
                if let Some(right) = self.covers.get_mut(&cover) {
                    right.modified = modified;
                }
            }
            Right::Node(ino) => {
                self.covers.entry(cover).or_default();
                let fresh = NodeRight { cover, names: BTreeSet::new(), modified: BatchSeq(0) };
                let right = self.nodes.entry(ino).or_insert(fresh);
                right.cover = cover;
                right.names.extend(names);
            }
        }
    }

    /// Whether everything under a cover may be changed.
    pub(super) fn has_cover(&self, cover: InodeId) -> bool {
        self.covers.get(&cover).is_some_and(|right| right.exclusive)
    }

    /// Whether this may be done to an inode that is counted under a cover, if that is known.
    pub(super) fn allow(&self, want: &Want, cover: Option<InodeId>) -> bool {
        if cover.is_some_and(|cover| self.has_cover(cover)) {
            return true;
        }
        let of_names = |right: &NodeRight| want.names.iter().all(|wanted| right.names.contains(&wanted.name));
        self.nodes.get(&want.ino).is_some_and(of_names)
    }

    /// An inode was changed in a batch.
    pub(super) fn used(&mut self, ino: InodeId, cover: InodeId, batch: BatchSeq) {
        if let Some(right) = self.nodes.get_mut(&ino) {
            right.modified = batch;
        }
        if let Some(right) = self.covers.get_mut(&cover) {
            right.modified = batch;
        }
    }

    /// A batch and all before it are committed.
    pub(super) fn committed(&mut self, acked: BatchSeq) {
        for waiting in [&mut self.let_go, &mut self.given_back] {
            if !waiting.is_empty() {
                waiting.retain(|_, batch| *batch > acked);
            }
        }
        while let Some((batch, ino)) = self.dying.front().copied()
            && batch <= acked
        {
            self.dying.pop_front();
            self.gone(ino);
        }
    }

    /// Gives the right to an inode back. Answers which batch has to be committed before that counts.
    pub(super) fn release(&mut self, ino: InodeId) -> BatchSeq {
        let now = self.nodes.remove(&ino).map_or(BatchSeq(0), |right| right.modified);
        let earlier = self.given_back.get(&ino).copied().unwrap_or(BatchSeq(0));
        let needed = now.max(earlier);
        if needed > earlier {
            self.given_back.insert(ino, needed);
        }
        needed
    }

    /// The same for all inodes that are counted under a cover.
    pub(super) fn release_under(&mut self, cover: InodeId) -> BatchSeq {
        let under = |(ino, right): (&InodeId, &NodeRight)| (right.cover == cover).then_some(*ino);
        let inodes: Vec<InodeId> = self.nodes.iter().filter_map(under).collect();
        inodes.into_iter().map(|ino| self.release(ino)).max().unwrap_or(BatchSeq(0))
    }

    /// Whether there is a right to an inode alone, or to what is counted under it.
    pub(super) fn is_held(&self, ino: InodeId) -> bool {
        self.nodes.contains_key(&ino) || self.covers.contains_key(&ino)
    }

    /// An inode has died here in a batch: the right to it ends when that is committed.
    pub(super) fn dies(&mut self, ino: InodeId, batch: BatchSeq) {
        self.used(ino, ino, batch);
        self.dying.push_back((batch, ino));
    }

    /// An inode is no more.
    pub(super) fn gone(&mut self, ino: InodeId) {
        self.nodes.remove(&ino);
        self.covers.remove(&ino);
    }
}
