//! The rights of this client: what it may cache and change.
//!
//! **Caching** needs no check here: what is in the cache is right, because it is recalled before another
//! client changes it. **Changing** an inode needs the right to its cover, or to the inode itself. In a
//! directory that another client watches it also needs the right to each name.
//!
//! Each right knows the batch that used it last. Before the right is given back, that batch is committed.

use super::references::ByCover;
use rustc_hash::{FxHashMap, FxHashSet};
use shoal_types::{BatchSeq, InodeId, Name};
use shoal_wire::{Right, Want};
use std::collections::BTreeSet;

/// A watched cover: something under it is or was cached.
#[derive(Debug, Default)]
pub(super) struct CoverRight {
    /// Everything under the cover may be changed.
    pub(super) exclusive: bool,
    pub(super) modified: BatchSeq,
    /// Recalls since something under it was last installed in the cache.
    pub(super) unused: u32,
}

/// An inode that may be changed.
#[derive(Debug)]
pub(super) struct NodeRight {
    pub(super) cover: InodeId,
    pub(super) names: BTreeSet<Name>,
    pub(super) modified: BatchSeq,
    /// All other sessions that refer to the inode are recorded as holders. A session that looks it up later
    /// causes a recall of this right first.
    pub(super) asked: bool,
}

/// The rights of a session.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// The leader's term in which they were granted.
    pub(crate) term: u64,
    pub(super) covers: FxHashMap<InodeId, CoverRight>,
    pub(super) nodes: FxHashMap<InodeId, NodeRight>,
    /// The keys of `nodes`, by cover.
    under: ByCover,
    /// Rights to single inodes that are given back, or whose inode is deleted, until the batches that used
    /// them last are committed. Several recalls of one inode run at the same time, and none of them may be
    /// acknowledged before that. These rights are reclaimed from a new leader too, so that no other client
    /// reads what is not committed.
    releasing: FxHashMap<InodeId, NodeRight>,
    /// Rights to whole covers that are given back, with the batches that used them last.
    downgraded: FxHashMap<InodeId, BatchSeq>,
    /// Deleted directories that are still the cover of referenced inodes.
    pub(super) dead_covers: FxHashSet<InodeId>,
    /// Inodes that this client is recorded to hold on the servers, also without a name.
    pub(super) held: FxHashSet<InodeId>,
    /// Members of `held` that no server has confirmed: they are reported again to a new leader.
    pub(super) unconfirmed_holds: FxHashSet<InodeId>,
    /// Inodes that this client has released, and the batch that says so. It is committed before they may be
    /// held again.
    pub(super) released_holds: FxHashMap<InodeId, BatchSeq>,
    /// Wanted inodes that did not exist on the servers when the current call requested them. They may exist
    /// by the next call.
    pub(crate) missing: Vec<InodeId>,
    /// Recalls carried out.
    pub(crate) recalled: u64,
}

impl Rights {
    /// The rights as lines of text, at most `lines_max` for each kind.
    pub(crate) fn describe(&self, lines_max: usize) -> Vec<String> {
        let exclusive = self.covers.iter().filter(|(_, right)| right.exclusive);
        let mut lines = vec![format!(
            "rights of term {}: {} directories watched, {} of them may be changed, and {} single inodes; {} are being \
             given back",
            self.term,
            self.covers.len(),
            exclusive.clone().count(),
            self.nodes.len(),
            self.releasing.len() + self.downgraded.len()
        )];
        lines.extend(exclusive.take(lines_max).map(|(cover, right)| {
            format!("  may change all under inode {}, last in batch {}", cover.0, right.modified.0)
        }));
        lines.extend(
            self.nodes.iter().take(lines_max).map(|(ino, right)| {
                format!("  may change inode {}, last in batch {}", ino.0, right.modified.0)
            }),
        );
        let releasing = self.releasing.iter().map(|(ino, right)| (ino, right.modified));
        let going = releasing.chain(self.downgraded.iter().map(|(ino, batch)| (ino, *batch)));
        lines.extend(
            going.take(lines_max).map(|(ino, batch)| {
                format!("  gives back inode {} when batch {} is committed", ino.0, batch.0)
            }),
        );
        lines
    }

    /// Something under this cover is installed in the cache.
    pub(super) fn watch(&mut self, cover: InodeId) {
        self.covers.entry(cover).or_default().unused = 0;
    }

    /// The right to change has been granted.
    pub(super) fn grant(
        &mut self,
        right: Right,
        cover: InodeId,
        names: impl IntoIterator<Item = Name>,
        asked: bool,
    ) {
        match right {
            Right::Cover(cover) => {
                // The right to the cover replaces those to single inodes under it. But an inode that was
                // moved here is still recalled by itself, until the move is committed.
                let nodes: Vec<InodeId> = self.under.of(cover).collect();
                let mut modified = BatchSeq(0);
                for ino in nodes {
                    let Some(right) = self.remove(ino) else { continue };
                    modified = modified.max(right.modified);
                    if right.modified > BatchSeq(0) {
                        self.begin_release(ino, right);
                    }
                }
                let right = self.covers.entry(cover).or_default();
                right.exclusive = true;
                right.modified = right.modified.max(modified);
            }
            Right::Node(ino) => {
                self.covers.entry(cover).or_default();
                let fresh = NodeRight { cover, names: BTreeSet::new(), modified: BatchSeq(0), asked };
                let right = self.nodes.entry(ino).or_insert(fresh);
                right.asked |= asked;
                right.names.extend(names);
                self.under.insert(right.cover, ino);
                self.count_under(ino, cover);
            }
        }
    }

    /// Removes the right to a single inode.
    fn remove(&mut self, ino: InodeId) -> Option<NodeRight> {
        let right = self.nodes.remove(&ino)?;
        self.under.remove(right.cover, ino);
        Some(right)
    }

    /// The inode has this cover from now on. Returns whether there is a right to the inode alone.
    pub(super) fn count_under(&mut self, ino: InodeId, cover: InodeId) -> bool {
        let Some(right) = self.nodes.get_mut(&ino) else { return false };
        if right.cover != cover {
            self.under.remove(std::mem::replace(&mut right.cover, cover), ino);
            self.under.insert(cover, ino);
        }
        true
    }

    /// Whether there are rights to single inodes under a cover.
    pub(super) fn holds_under(&self, cover: InodeId) -> bool {
        self.under.of(cover).next().is_some()
    }

    /// Whether everything under a cover may be changed.
    pub(super) fn has_cover(&self, cover: InodeId) -> bool {
        self.covers.get(&cover).is_some_and(|right| right.exclusive)
    }

    /// Whether the wanted change of an inode is allowed. `cover`: its cover, if that is known.
    pub(super) fn allow(&self, want: &Want, cover: Option<InodeId>) -> bool {
        if cover.is_some_and(|cover| self.has_cover(cover)) {
            return true;
        }
        let of_names = |right: &NodeRight| want.names.iter().all(|wanted| right.names.contains(&wanted.name));
        self.nodes.get(&want.ino).is_some_and(|right| (right.asked || !want.hold) && of_names(right))
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
        for waiting in [&mut self.released_holds, &mut self.downgraded] {
            if !waiting.is_empty() {
                waiting.retain(|_, batch| *batch > acked);
            }
        }
        if !self.releasing.is_empty() {
            self.releasing.retain(|_, right| right.modified > acked);
        }
    }

    /// Gives the right to an inode back. Returns the batch that must be committed before this may be
    /// acknowledged.
    pub(super) fn release(&mut self, ino: InodeId) -> BatchSeq {
        let own = self.downgrade(ino);
        if let Some(right) = self.remove(ino) {
            self.begin_release(ino, right);
        }
        own.max(self.releasing.get(&ino).map_or(BatchSeq(0), |right| right.modified))
    }

    fn begin_release(&mut self, ino: InodeId, right: NodeRight) {
        match self.releasing.get_mut(&ino) {
            None => _ = self.releasing.insert(ino, right),
            Some(given) => {
                (given.cover, given.modified) = (right.cover, given.modified.max(right.modified));
                given.names.extend(right.names);
            }
        }
    }

    /// Gives back the right to change a whole cover. Returns the batch that must be committed before this may
    /// be acknowledged. Also called for a right to a single inode: a file that has gained another name here
    /// since is its own cover.
    pub(super) fn downgrade(&mut self, cover: InodeId) -> BatchSeq {
        if let Some(right) = self.covers.get_mut(&cover)
            && std::mem::take(&mut right.exclusive)
        {
            let modified = right.modified;
            self.record_downgrade(cover, modified);
        }
        self.downgraded.get(&cover).copied().unwrap_or(BatchSeq(0))
    }

    fn record_downgrade(&mut self, cover: InodeId, modified: BatchSeq) {
        let known = self.downgraded.entry(cover).or_insert(modified);
        *known = modified.max(*known);
    }

    /// Gives back the rights to all single inodes under a cover. Returns the batch that must be committed
    /// before this may be acknowledged.
    pub(super) fn release_under(&mut self, cover: InodeId) -> BatchSeq {
        let inodes: Vec<InodeId> = self.under.of(cover).collect();
        inodes.into_iter().map(|ino| self.release(ino)).max().unwrap_or(BatchSeq(0))
    }

    /// Whether there is a right to an inode alone, or to what is under it as a cover.
    pub(super) fn is_held(&self, ino: InodeId) -> bool {
        self.nodes.contains_key(&ino) || self.covers.contains_key(&ino)
    }

    /// An inode is deleted, in this batch.
    pub(super) fn gone(&mut self, ino: InodeId, batch: BatchSeq) {
        if let Some(right) = self.remove(ino) {
            self.begin_release(ino, NodeRight { modified: batch, ..right });
        }
        if self.covers.remove(&ino).is_some_and(|right| right.exclusive) {
            self.record_downgrade(ino, batch);
        }
    }

    /// An inode is deleted that was never sent to the servers.
    pub(super) fn forget(&mut self, ino: InodeId) {
        self.remove(ino);
        self.covers.remove(&ino);
    }

    /// Rights that were given back, but used in batches that are not committed: covers, and single inodes. A
    /// new leader gets them in the reclaim, too.
    pub(super) fn used_after(&self, acked: BatchSeq) -> (Vec<InodeId>, Vec<(InodeId, &NodeRight)>) {
        let covers = self.downgraded.iter().filter(|(_, batch)| **batch > acked).map(|(ino, _)| *ino);
        let nodes = self.releasing.iter().filter(|(_, right)| right.modified > acked);
        (covers.collect(), nodes.map(|(ino, right)| (*ino, right)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(1);
    const FILE: InodeId = InodeId(18);

    #[test]
    fn a_right_that_was_used_is_told_to_a_new_leader_until_that_is_committed_also_when_it_was_given_back() {
        let mut rights = Rights::default();
        let name = Name::new("a").expect("a name");
        rights.grant(Right::Node(DIR), DIR, [name.clone()], true);
        rights.used(DIR, DIR, BatchSeq(3));
        assert_eq!(rights.release(DIR), BatchSeq(3));
        let (covers, nodes) = rights.used_after(BatchSeq(2));
        assert_eq!((covers.len(), nodes.len()), (0, 1));
        assert_eq!((nodes[0].0, &nodes[0].1.names), (DIR, &BTreeSet::from([name])));
        assert!(rights.used_after(BatchSeq(3)).1.is_empty(), "no thread waits for what is committed");
        rights.committed(BatchSeq(3));
        assert!(rights.used_after(BatchSeq(0)).1.is_empty());

        rights.grant(Right::Cover(DIR), DIR, [], true);
        rights.used(FILE, DIR, BatchSeq(5));
        assert_eq!(rights.downgrade(DIR), BatchSeq(5));
        assert_eq!(rights.used_after(BatchSeq(4)).0, [DIR]);
        assert_eq!(rights.downgrade(DIR), BatchSeq(5), "asked once more, it is the same");

        rights.grant(Right::Node(FILE), DIR, [], true);
        rights.gone(FILE, BatchSeq(6));
        assert_eq!(rights.used_after(BatchSeq(5)).1.len(), 1, "its end is not committed either");
    }

    #[test]
    fn what_was_moved_under_a_cover_that_is_held_since_is_given_back_when_that_is_committed() {
        let (mut rights, elsewhere) = (Rights::default(), InodeId(2));
        rights.grant(Right::Node(FILE), elsewhere, [], true);
        rights.used(FILE, elsewhere, BatchSeq(4));
        assert!(rights.count_under(FILE, DIR));
        rights.grant(Right::Cover(DIR), DIR, [], true);
        // The servers still find it elsewhere, and know of a right to the file alone.
        assert_eq!(rights.release(FILE), BatchSeq(4));
        assert!(rights.has_cover(DIR));
        rights.committed(BatchSeq(4));
        assert_eq!(rights.release(FILE), BatchSeq(0));
    }

    #[test]
    fn released_inode_is_not_held_as_a_cover_either() {
        let mut rights = Rights::default();
        // For example a file that got a second name here, while the servers know of a right to the file
        // alone.
        rights.grant(Right::Cover(FILE), FILE, [], true);
        rights.used(FILE, FILE, BatchSeq(7));
        assert_eq!(rights.release(FILE), BatchSeq(7));
        assert!(!rights.has_cover(FILE));
    }
}
