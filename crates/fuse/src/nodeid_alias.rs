//! Node ids: the numbers by which the kernel knows inodes. A node id is the inode number, with two
//! exceptions.
//!
//! **The root.** The root of a mount is `FUSE_ROOT_ID` to the kernel: node id and inode number differ when a
//! subdirectory is mounted. Another client can move that subdirectory below an open directory of this mount.
//! A lookup by name then finds the root, and is answered with an alias: the kernel refuses an entry with
//! `FUSE_ROOT_ID`.
//!
//! **Moved directories** (`docs/KERNEL_CACHE.md`, hazard 5). A directory has one place in the dcache. When a
//! lookup finds it under a new parent, `d_splice_alias` moves its dentry, and only tries the locks for that:
//! the inode lock of the old parent, and the file system's rename lock. Changes of names hold these locks;
//! one of them may be the rename(2) that looks up. If the trylock fails, the call ends with `ESTALE`: at once
//! for mkdir(2), mknod(2), symlink(2) and link(2), and after a second walk for other calls.
//!
//! So where another thread may hold these locks, or the calling thread is on its second walk, the reply
//! carries an *alias*: another node id for the same directory, which the kernel has never seen and so need
//! not move. Processes in the old directory stay there; operations on either node id are carried out on the
//! one inode. Where no other thread may hold the locks, the directory keeps its node id, and processes in it
//! get the new path.
//!
//! On the second walk a thread gets aliases of all moved directories on its paths. The kernel does not report
//! whether it has moved a dentry. If it may have failed, the directory counts as moved for the next lookup as
//! well.

use crate::limits::{ALIASES_MAX, ARRIVAL_AGAIN_MAX, ARRIVALS_MAX};
use shoal_channel::NodeId;
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::Mutex;
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The alias number is in the bits above the inode number.
const ALIAS_SHIFT: u32 = 48;

/// The inode of a node id, unless that is the root of the mount: see [`NodeIds::inode`].
pub(crate) fn inode_id(node: NodeId) -> InodeId {
    InodeId(node.0 & ((1 << ALIAS_SHIFT) - 1))
}

/// A directory that a lookup of a thread has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub ino: InodeId,
    /// The node id of the directory in which it was found.
    pub node: NodeId,
    /// Its parent in the last reply about it, if that is another one.
    pub moved_from: Option<InodeId>,
    /// Its parent in the reply before, where the dcache may still have it.
    pub may_be_in: Option<InodeId>,
    /// The thread will not look up again: this is its second walk, or the kernel would refuse to move the
    /// directory in any case.
    pub is_last: bool,
}

/// A reply to a thread said that a directory has moved.
#[derive(Debug)]
struct Arrival {
    ino: InodeId,
    place: InodeId,
    moved_from: InodeId,
    tid: u32,
    at: Instant,
}

/// A thread on its second walk: all its lookups belong to that.
#[derive(Debug)]
struct Again {
    tid: u32,
    at: Instant,
}

/// The aliases of one directory.
#[derive(Default, Debug)]
struct Aliases {
    last: u64,
    /// The aliases that the kernel refers to, with its number of references. The last one is current.
    live: Vec<(NodeId, u64)>,
    /// The node id of the parent under which the kernel has the current one, if that is certain.
    place: Option<NodeId>,
}

impl Aliases {
    fn another(&mut self, ino: InodeId, node: NodeId) -> NodeId {
        self.last = self.last % ALIASES_MAX + 1;
        self.place = Some(node);
        let alias = NodeId(ino.0 | self.last << ALIAS_SHIFT);
        match self.live.iter_mut().find(|(live, _)| *live == alias) {
            Some((_, count)) => *count += 1,
            None => self.live.push((alias, 1)),
        }
        alias
    }

    /// Adds a reference to the current alias.
    fn last(&mut self, ino: InodeId, node: NodeId) -> NodeId {
        let Some((alias, count)) = self.live.last_mut() else {
            // Under its own node id the directory is at another place in the dcache.
            return self.another(ino, node);
        };
        *count += 1;
        self.place = self.place.filter(|place| *place == node);
        *alias
    }

    fn forgotten(&mut self, node: NodeId, times: u64) {
        let last = self.live.last().map(|(alias, _)| *alias);
        if let Some((_, count)) = self.live.iter_mut().find(|(alias, _)| *alias == node) {
            *count = count.saturating_sub(times);
        }
        self.live.retain(|(_, count)| *count > 0);
        if self.live.last().map(|(alias, _)| *alias) != last {
            self.place = None;
        }
    }
}

#[derive(Default, Debug)]
struct State {
    arrivals: Vec<Arrival>,
    again: Vec<Again>,
    aliases: BTreeMap<InodeId, Aliases>,
}

impl State {
    /// Whether a reply has to carry another node id, because the kernel may fail to move the dentry of the
    /// directory to where a thread has found it.
    fn is_to_be_another(
        &mut self,
        tid: u32,
        found: &Found,
        belongs_to_another: impl Fn(InodeId) -> bool,
    ) -> bool {
        let Found { ino, node, moved_from, may_be_in, is_last } = *found;
        let place = inode_id(node);
        let aliases = self.aliases.get(&ino);
        let is_here = aliases.is_some_and(|aliases| aliases.place == Some(node));
        // When the kernel forgets an alias, an earlier one becomes current, which may be anywhere.
        let is_elsewhere = !is_here && aliases.is_some_and(|aliases| !aliases.live.is_empty());
        // A directory below one with several node ids may be under another of them in the dcache.
        let has_several = self.aliases.get(&place).is_some_and(|aliases| !aliases.live.is_empty());
        let moved_from = moved_from.or((is_elsewhere || has_several && !is_here).then_some(place));
        if moved_from.is_none() && may_be_in.is_none() && self.arrivals.is_empty() {
            return false;
        }
        self.arrivals.retain(|arrival| arrival.at.elapsed() < ARRIVAL_AGAIN_MAX);
        self.again.retain(|again| again.at.elapsed() < ARRIVAL_AGAIN_MAX);
        let mut arrivals =
            self.arrivals.iter().filter(|arrival| arrival.ino == ino && arrival.place == place);
        // Other threads that look it up meanwhile may need a second walk as well.
        let moved_from = moved_from.or_else(|| arrivals.clone().next().map(|arrival| arrival.moved_from));
        let asks_again = arrivals.any(|arrival| arrival.tid == tid);
        if asks_again && self.again.len() < ARRIVALS_MAX {
            self.again.push(Again { tid, at: Instant::now() });
        }
        let is_last = is_last || self.again.iter().any(|again| again.tid == tid);
        let Some(moved_from) = moved_from else {
            return !is_here && may_be_in.is_some_and(|from| is_last || belongs_to_another(from));
        };
        if is_last || belongs_to_another(moved_from) {
            return true;
        }
        if self.arrivals.len() < ARRIVALS_MAX {
            self.arrivals.push(Arrival { ino, place, moved_from, tid, at: Instant::now() });
        }
        false
    }
}

/// The node ids of one mount.
#[derive(Debug)]
pub(crate) struct NodeIds {
    /// The directory of the volume that is mounted.
    root: InodeId,
    state: Mutex<State>,
    /// There may be aliases; false saves the lock.
    any: AtomicBool,
}

impl NodeIds {
    /// For a mount of this directory of the volume.
    pub(crate) fn new(root: InodeId) -> NodeIds {
        NodeIds { root, state: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// The directory that is the root of the mount.
    pub(crate) fn root(&self) -> InodeId {
        self.root
    }

    /// The inode of a node id.
    pub(crate) fn inode(&self, node: NodeId) -> InodeId {
        if node == NodeId::ROOT { self.root } else { inode_id(node) }
    }

    /// Whether the inode is the root of the mount.
    pub(crate) fn is_root(&self, ino: InodeId) -> bool {
        ino == self.root
    }

    /// The node id for a lookup by file handle (NFS): the kernel connects the inode to no parent.
    pub(crate) fn by_number(&self, ino: InodeId) -> NodeId {
        if ino == self.root { NodeId::ROOT } else { NodeId(ino.0) }
    }

    /// The node id in the reply to a thread that has found a directory. `belongs_to_another`: other threads
    /// may hold the inode lock of that directory or the rename lock at this moment.
    pub(crate) fn found(
        &self,
        tid: u32,
        found: Found,
        belongs_to_another: impl Fn(InodeId) -> bool,
    ) -> NodeId {
        let mut state = self.state.lock();
        let found = Found { node: self.own(found.node), ..found };
        if found.ino == self.root {
            self.any.store(true, SeqCst);
            return state.aliases.entry(found.ino).or_default().last(found.ino, found.node);
        }
        if state.is_to_be_another(tid, &found, belongs_to_another)
            && !mistake("give a moved directory no alias")
        {
            state.arrivals.retain(|arrival| arrival.ino != found.ino);
            self.any.store(true, SeqCst);
            return state.aliases.entry(found.ino).or_default().another(found.ino, found.node);
        }
        match state.aliases.get_mut(&found.ino) {
            None => NodeId(found.ino.0),
            Some(aliases) => aliases.last(found.ino, found.node),
        }
    }

    /// The kernel has dropped so many references to a node id. `is_known`: it still has references to other
    /// node ids of the inode.
    pub(crate) fn forgotten(&self, node: NodeId, times: u64, is_known: impl FnOnce() -> bool) {
        if !self.any.load(SeqCst) {
            return;
        }
        let (ino, mut state) = (self.inode(node), self.state.lock());
        let Some(aliases) = state.aliases.get_mut(&ino) else { return };
        aliases.forgotten(node, times);
        if !is_known() {
            state.aliases.remove(&ino);
            self.any.store(!state.aliases.is_empty(), SeqCst);
        }
    }

    /// All node ids of all inodes that have aliases.
    pub(crate) fn of_aliased(&self) -> Vec<InodeId> {
        if !self.any.load(SeqCst) {
            return Vec::new();
        }
        let aliased: Vec<InodeId> = self.state.lock().aliases.keys().copied().collect();
        aliased.into_iter().flat_map(|ino| self.of(ino)).collect()
    }

    /// All node ids by which the kernel may know an inode, the current one last.
    pub(crate) fn of(&self, ino: InodeId) -> Vec<InodeId> {
        let mut all = vec![ino];
        if self.any.load(SeqCst)
            && let Some(aliases) = self.state.lock().aliases.get(&ino)
        {
            all.extend(aliases.live.iter().map(|(alias, _)| InodeId(alias.0)));
        }
        if ino == self.root && ino.0 != NodeId::ROOT.0 {
            all.push(InodeId(NodeId::ROOT.0));
        }
        all
    }

    /// Replaces the node id of the root by its inode number, so that places are compared by inode.
    fn own(&self, node: NodeId) -> NodeId {
        if node == NodeId::ROOT { NodeId(self.root.0) } else { node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(77);
    const OWN: NodeId = NodeId(77);
    const HERE: NodeId = NodeId(5);
    const THERE: NodeId = NodeId(6);

    fn found(ino: InodeId, node: NodeId) -> Found {
        Found { ino, node, moved_from: None, may_be_in: None, is_last: false }
    }

    fn moved(ino: InodeId, node: NodeId) -> Found {
        Found { moved_from: Some(InodeId(HERE.0)), ..found(ino, node) }
    }

    /// The node id in the reply to a thread while no other thread works with names.
    fn told(nodes: &NodeIds, tid: u32, found: Found) -> NodeId {
        nodes.found(tid, found, |_| false)
    }

    #[test]
    fn repeated_lookup_of_a_moved_directory_gets_an_alias() {
        let nodes = NodeIds::new(InodeId::ROOT);
        assert_eq!(told(&nodes, 1, found(DIR, HERE)), OWN);
        assert_eq!(told(&nodes, 1, found(DIR, HERE)), OWN, "it has not moved");
        assert_eq!(told(&nodes, 1, moved(DIR, THERE)), OWN);
        assert_eq!(told(&nodes, 2, found(DIR, THERE)), OWN, "the first lookup of another thread");
        let alias = told(&nodes, 1, found(DIR, THERE));
        assert!(alias != OWN && inode_id(alias) == DIR);
        assert_eq!(told(&nodes, 2, found(DIR, THERE)), alias);
        assert_eq!(nodes.of(DIR), [DIR, InodeId(alias.0)]);
        assert_eq!(nodes.of_aliased(), nodes.of(DIR));
        assert_eq!(nodes.of(InodeId(5)), [InodeId(5)]);
    }

    #[test]
    fn repeated_lookup_gets_an_alias_of_every_moved_directory() {
        let nodes = NodeIds::new(InodeId::ROOT);
        let (below, deeper, other) = (InodeId(78), InodeId(79), InodeId(80));
        assert_eq!(told(&nodes, 1, moved(DIR, THERE)), OWN);
        assert_eq!(told(&nodes, 1, moved(below, OWN)), NodeId(below.0), "here the kernel fails");
        let alias = told(&nodes, 1, found(DIR, THERE));
        let alias_below = told(&nodes, 1, moved(below, alias));
        assert!(
            inode_id(alias_below) == below && nodes.of(below).len() == 2,
            "also below an alias of its parent"
        );
        told(&nodes, 1, moved(deeper, alias_below));
        assert_eq!(nodes.of(deeper).len(), 2, "its first lookup there, but the call has no third walk");
        assert_eq!(told(&nodes, 2, moved(other, alias)), NodeId(other.0), "another thread");
        assert_ne!(told(&nodes, 1, moved(other, HERE)), NodeId(other.0), "the second path of a rename");
        let refused = Found { is_last: true, ..moved(InodeId(81), THERE) };
        assert_ne!(
            told(&nodes, 3, refused),
            NodeId(81),
            "its call was refused, or the kernel would refuse a loop"
        );
    }

    #[test]
    fn directory_moved_out_of_a_busy_directory_gets_an_alias_at_once() {
        let nodes = NodeIds::new(InodeId::ROOT);
        let belongs_to_another = |dir: InodeId| dir == InodeId(HERE.0);
        assert_eq!(nodes.found(1, found(DIR, THERE), belongs_to_another), OWN, "it has not moved");
        let alias = nodes.found(1, moved(DIR, THERE), belongs_to_another);
        assert_ne!(alias, OWN);
        let still = Found { may_be_in: Some(InodeId(HERE.0)), ..found(DIR, THERE) };
        assert_eq!(nodes.found(1, still, belongs_to_another), alias, "the alias is at this place only");
    }

    #[test]
    fn directory_that_the_kernel_may_not_have_moved_gets_an_alias_if_its_old_parent_is_busy() {
        let nodes = NodeIds::new(InodeId::ROOT);
        let still = Found { may_be_in: Some(InodeId(HERE.0)), ..found(DIR, THERE) };
        assert_eq!(told(&nodes, 1, moved(DIR, THERE)), OWN, "the thread does not look up again");
        assert_eq!(told(&nodes, 2, still), OWN);
        let alias = nodes.found(3, still, |dir| dir == InodeId(HERE.0));
        assert_ne!(alias, OWN);
        assert_eq!(told(&nodes, 4, still), alias);
    }

    #[test]
    fn directory_below_an_aliased_parent_may_be_below_another_alias_of_it() {
        let nodes = NodeIds::new(InodeId::ROOT);
        let below = InodeId(78);
        let alias = nodes.found(1, moved(DIR, THERE), |_| true);
        let first = nodes.found(1, found(below, alias), |dir| dir == DIR);
        assert_ne!(first, NodeId(below.0));
        assert_eq!(nodes.found(1, found(below, alias), |_| true), first, "its place is known now");
        let again = nodes.found(1, moved(DIR, HERE), |_| true);
        assert_eq!(told(&nodes, 1, found(below, again)), first, "the kernel moves it");
        assert_ne!(nodes.found(2, found(below, again), |_| true), first, "or has failed to");
    }

    #[test]
    fn repeated_lookup_gets_another_alias_if_the_current_one_is_at_an_unknown_place() {
        let nodes = NodeIds::new(InodeId::ROOT);
        let early = nodes.found(1, moved(DIR, THERE), |_| true);
        let late = nodes.found(1, moved(DIR, HERE), |_| true);
        assert_ne!(early, late);
        nodes.forgotten(late, 1, || true);
        assert_eq!(told(&nodes, 1, found(DIR, HERE)), early, "the kernel may fail to move it");
        let another = told(&nodes, 1, found(DIR, HERE));
        assert_ne!(another, early);
        assert_eq!(told(&nodes, 1, found(DIR, HERE)), another, "its place is known");
    }

    #[test]
    fn root_of_subdirectory_mount_is_node_one_to_the_kernel() {
        let nodes = NodeIds::new(DIR);
        assert_eq!((nodes.inode(NodeId::ROOT), nodes.inode(HERE)), (DIR, InodeId(HERE.0)));
        assert_eq!((nodes.by_number(DIR), nodes.by_number(InodeId(5))), (NodeId::ROOT, HERE));
        assert_eq!(nodes.of(DIR), [DIR, InodeId::ROOT], "node 1 is the current one, and the last");
        assert_eq!(nodes.of(InodeId(5)), [InodeId(5)]);
        assert_eq!(NodeIds::new(InodeId::ROOT).of(InodeId::ROOT), [InodeId::ROOT]);
    }

    #[test]
    fn root_of_subdirectory_mount_found_by_name_is_told_an_alias() {
        let nodes = NodeIds::new(DIR);
        let alias = told(&nodes, 1, found(DIR, HERE));
        assert!(alias != NodeId::ROOT && alias != OWN && nodes.inode(alias) == DIR);
        assert_eq!(told(&nodes, 1, found(DIR, HERE)), alias);
        assert_eq!(nodes.of(DIR), [DIR, InodeId(alias.0), InodeId::ROOT]);
        assert_eq!(told(&nodes, 1, found(InodeId(78), NodeId::ROOT)), NodeId(78), "an entry of the root");
    }

    #[test]
    fn an_alias_lasts_as_long_as_the_kernel_refers_to_it() {
        let nodes = NodeIds::new(InodeId::ROOT);
        told(&nodes, 1, moved(DIR, THERE));
        let alias = told(&nodes, 1, found(DIR, THERE));
        told(&nodes, 2, found(DIR, THERE));
        nodes.forgotten(alias, 1, || true);
        assert_eq!(nodes.of(DIR).len(), 2);
        nodes.forgotten(alias, 1, || true);
        assert_eq!(nodes.of(DIR).len(), 1);
        assert_ne!(told(&nodes, 1, found(DIR, THERE)), OWN, "that node id is at another place");
        nodes.forgotten(OWN, 2, || false);
        assert_eq!((nodes.of(DIR).len(), told(&nodes, 1, found(DIR, THERE))), (1, OWN));
    }
}
