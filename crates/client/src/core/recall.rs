//! Carrying out recalls: giving rights back.
//!
//! Three steps: stop changing what is recalled, commit what was changed (the session waits for that), then
//! invalidate it in this cache and in the kernel's. Until the last step reads are answered from the cache:
//! no other client changes anything before the acknowledgement.

use super::Core;
use super::cache::Body;
use crate::kernel::Stale;
use crate::limits::{RECALLS_UNUSED_MAX, UNUSED_AT_ONCE_MAX};
use rustc_hash::FxHashSet;
use shoal_runtime::planted::mistake;
use shoal_types::{BatchSeq, InodeId, Name, Timestamp};
use shoal_wire::{Ack, Item, Recall, Reclaim};
use std::collections::{BTreeMap, BTreeSet};

/// The inode or cover that an item of a recall names.
pub(super) fn subject(item: &Item) -> InodeId {
    match item {
        Item::Downgrade(ino) | Item::Release(ino) | Item::Drop { ino, .. } => *ino,
    }
}

impl Core {
    /// Gives no more write permits for what is recalled; the kernel still writes to files that have one.
    /// Returns the files whose permit has to be revoked in the kernel. To be followed by
    /// [`begin_recall`](Self::begin_recall).
    pub(crate) fn close_to_writers(&mut self, recall: &Recall, now: Timestamp) -> Vec<InodeId> {
        let cache = &self.cache;
        self.writers.close(recall, |ino| cache.cover(ino), now)
    }

    /// From now on nothing that is recalled is changed here. Returns the batch up to which the journal must
    /// be committed.
    pub(crate) fn begin_recall(&mut self, recall: &Recall) -> BatchSeq {
        let mut needed = BatchSeq(0);
        let cache = &self.cache;
        self.writers.open(recall, |ino| cache.cover(ino));
        for item in &recall.items {
            match item {
                Item::Downgrade(cover) => {
                    // Rights to single inodes under a cover are given back with it: the servers count them as
                    // given back.
                    needed = needed.max(self.end_of(*cover)).max(self.rights.release_under(*cover));
                    let modified = self.rights.covers.get(cover).map_or(BatchSeq(0), |right| right.modified);
                    needed = needed.max(modified).max(self.rights.downgrade(*cover));
                }
                Item::Release(ino) => needed = needed.max(self.rights.release(*ino)).max(self.end_of(*ino)),
                Item::Drop { ino, .. } => {
                    let changed = self.rights.release(*ino).max(self.cache.modified(*ino));
                    let released = self.rights.released_holds.get(ino).copied().unwrap_or(BatchSeq(0));
                    needed = needed.max(changed).max(self.end_of(*ino)).max(released);
                }
            }
        }
        if needed > self.journal.last_sealed() {
            self.seal();
        }
        needed.min(self.journal.last_sealed())
    }

    /// The batch by which the deletion of an inode here will be committed, 0 if it is not deleted. Until then
    /// other clients find the inode.
    fn end_of(&self, ino: InodeId) -> BatchSeq {
        if self.cache.is_dead(ino) { self.cache.stamp() } else { BatchSeq(0) }
    }

    /// The changes are committed: invalidates what is recalled in this cache, and adds to `stale` what must
    /// be invalidated in the kernel before the acknowledgement is sent.
    /// Returns `None` if an inode has been changed again meanwhile, or released and referred to anew. Then
    /// the recall starts over.
    pub(crate) fn finish_recall(&mut self, recall: &Recall, stale: &mut Vec<Stale>) -> Option<Ack> {
        let dirty = |item: &Item| match item {
            Item::Drop { ino, hold, .. } => {
                let released = *hold && self.rights.released_holds.contains_key(ino);
                released || self.cache.modified(*ino) > self.cache.acked()
            }
            Item::Downgrade(_) | Item::Release(_) => false,
        };
        if self.alive().is_ok() && recall.items.iter().any(dirty) {
            return None;
        }
        self.rights.recalled += 1;
        let mut ack = Ack { id: recall.id, ..Ack::default() };
        for item in &recall.items {
            let Item::Drop { ino, cover, names, hold } = item else { continue };
            if *hold && self.referred(*ino) {
                self.rights.held.insert(*ino);
                ack.refers.push(*ino);
            }
            let has_attributes_only = self.has_attributes_only(*cover);
            names.iter().for_each(|name| self.forget_name(*ino, name));
            self.cache.drop_node(*ino, names);
            stale.push(Stale::Node(*ino));
            stale.extend(names.iter().map(|name| Stale::Name { dir: *ino, name: name.clone() }));
            self.drop_unused_watch(*cover, has_attributes_only, &mut ack, stale);
        }
        self.rights.unconfirmed_holds.extend(&ack.refers);
        Some(ack)
    }

    /// Whether a recall concerns the names in a directory, or the content of a file, as far as is known.
    pub(crate) fn is_about(&self, recall: &Recall, ino: InodeId) -> bool {
        let cover = self.cache.cover(ino);
        recall.items.iter().any(|item| match item {
            Item::Downgrade(of) => cover.is_none_or(|cover| cover == *of),
            item => subject(item) == ino,
        })
    }

    /// The servers have recorded what an acknowledgement said.
    pub(crate) fn acknowledged(&mut self, ack: &Ack) {
        for ino in &ack.refers {
            self.rights.unconfirmed_holds.remove(ino);
        }
    }

    /// Whether nothing is cached of a directory but its own attributes, which came with the listing of its
    /// parent.
    fn has_attributes_only(&self, cover: InodeId) -> bool {
        let knows_no_names = match self.cache.peek(cover).map(|node| &node.body) {
            Some(Body::Directory(names)) => names.is_empty() && !names.is_complete(),
            _ => false,
        };
        knows_no_names && self.refs.under(cover).all(|ino| ino == cover)
    }

    /// Something under this cover was recalled. If no program here has used the cover during the last
    /// recalls, or ever, the watch on it is given up: then other clients can work there without a recall. So
    /// are other directories that were prefetched for a walk that does not continue.
    fn drop_unused_watch(
        &mut self,
        cover: InodeId,
        has_attributes_only: bool,
        ack: &mut Ack,
        stale: &mut Vec<Stale>,
    ) {
        let mut unreached = self.walks.recalled(cover);
        let is_used = unreached.is_empty() && !has_attributes_only;
        self.drop_unused_watch_on(cover, is_used, ack, stale);
        unreached.retain(|dir| *dir != cover);
        self.drop_unseen_watches(unreached, ack, stale);
    }

    fn drop_unused_watch_on(&mut self, cover: InodeId, is_used: bool, ack: &mut Ack, stale: &mut Vec<Stale>) {
        let holds = self.rights.holds_under(cover);
        let Some(right) = self.rights.covers.get_mut(&cover) else {
            // Nothing under it is cached.
            if self.refs.under(cover).next().is_none() {
                ack.unwatched.push(cover);
            }
            return;
        };
        right.unused += 1;
        let is_wanted = is_used && right.unused < RECALLS_UNUSED_MAX;
        if is_wanted || right.exclusive || holds || cover == InodeId::ROOT {
            return;
        }
        right.unused = 0;
        let is_other = |ino: &InodeId| *ino != cover && !self.rights.held.contains(ino);
        let before = stale.len();
        stale.extend(self.refs.under(cover).filter(is_other).take(UNUSED_AT_ONCE_MAX).map(Stale::Unused));
        if stale.len() > before {
            // The kernel forgets those that are not in use; a later recall may find none left.
            return;
        }
        let covers = FxHashSet::from_iter([cover]);
        if !self.cache.modified_among(&covers).is_empty() || self.rights.released_holds.contains_key(&cover) {
            return;
        }
        if self.referred(cover) {
            self.rights.held.insert(cover);
            ack.refers.push(cover);
        }
        // This invalidates all dentries of the mount, so it is done only if needed.
        if self.refs.has_names_in(cover) {
            stale.push(Stale::Names(cover));
        }
        let known = self.refs.under(cover);
        stale.extend(known.map(Stale::Node));
        self.cache.drop_covers(&covers);
        self.rights.covers.remove(&cover);
        ack.unwatched.push(cover);
    }

    /// Gives up directories of which the kernel knows only the entry in their parent. The right to cache them
    /// goes too, unless something in them is held.
    fn drop_unseen_watches(&mut self, dirs: Vec<InodeId>, ack: &mut Ack, stale: &mut Vec<Stale>) {
        let is_unseen = |dir: &InodeId| {
            let watched = self.rights.covers.get(dir).is_some_and(|right| !right.exclusive);
            let held = self.rights.holds_under(*dir) || self.rights.released_holds.contains_key(dir);
            let is_seen = self.refs.has_names_in(*dir) || self.refs.under(*dir).any(|ino| ino != *dir);
            watched && !held && !is_seen && *dir != InodeId::ROOT
        };
        let mut unseen: FxHashSet<InodeId> = dirs.into_iter().filter(is_unseen).collect();
        if unseen.is_empty() {
            return;
        }
        for modified in self.cache.modified_among(&unseen) {
            unseen.remove(&modified);
        }
        self.cache.drop_covers(&unseen);
        for dir in unseen {
            if self.referred(dir) {
                self.rights.held.insert(dir);
                ack.refers.push(dir);
                stale.push(Stale::Node(dir));
            }
            self.rights.covers.remove(&dir);
            ack.unwatched.push(dir);
        }
    }

    /// What this session holds, for a leader of another term, in messages of at most `part` entries. From now
    /// on replies of earlier terms grant no rights and are not cached.
    pub(crate) fn reclaim(&mut self, term: u64, part: usize) -> Vec<Reclaim> {
        self.rights.term = term;
        let session = self.session();
        let all = mistake("reclaim no rights of uncommitted changes");
        let acked = if all { BatchSeq(u64::MAX) } else { self.cache.acked() };
        let (down, given_back) = self.rights.used_after(acked);
        let mut covers: BTreeMap<InodeId, bool> =
            self.rights.covers.iter().map(|(ino, right)| (*ino, right.exclusive)).collect();
        covers.extend(down.into_iter().map(|ino| (ino, true)));
        let covers: Vec<(InodeId, bool)> = covers.into_iter().collect();
        let empty = || Reclaim::part(session, term);
        let covers = covers.chunks(part).map(|covers| Reclaim { covers: covers.to_vec(), ..empty() });
        let mut said: Vec<Reclaim> = covers.collect();
        let mut nodes: BTreeMap<InodeId, (InodeId, BTreeSet<Name>)> = BTreeMap::new();
        for (ino, right) in
            given_back.into_iter().chain(self.rights.nodes.iter().map(|(ino, right)| (*ino, right)))
        {
            let (cover, names) = nodes.entry(ino).or_insert((right.cover, BTreeSet::new()));
            *cover = right.cover;
            names.extend(right.names.iter().cloned());
        }
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|(ino, (cover, names))| (ino, cover, names.into_iter().collect()))
            .collect();
        said.extend(nodes.chunks(part).map(|nodes| Reclaim { nodes: nodes.to_vec(), ..empty() }));
        let refers: Vec<InodeId> = self.rights.unconfirmed_holds.iter().copied().collect();
        said.extend(refers.chunks(part).map(|refers| Reclaim { refers: refers.to_vec(), ..empty() }));
        said.push(Reclaim { last: true, ..empty() });
        said
    }

    /// Inodes that the kernel refers to. The root is one of them: the kernel knows it without a lookup.
    pub(crate) fn referred_inodes(&self) -> Vec<InodeId> {
        self.refs.inodes().chain([InodeId::ROOT]).collect()
    }
}
