//! The numbers by which the kernel knows inodes: their own, with few exceptions.
//!
//! The kernel has each directory in one place. When it is told that one which others have moved stands elsewhere now, and something below it is in use, it
//! moves it there. For that it takes locks, without waiting for them: one is held by whoever changes names in the directory that it was in, another by each
//! rename(2) across directories, also the very one that asks. If it does not get them it gives up, looks once more, and then fails with `ESTALE`. So
//! a thread that asks for the second time is told another number, an *alias*. To the kernel that is another directory, which it has not seen before. Whoever
//! is in the old one stays there, and all that is done to either is done to the one that we know. The same for whatever has moved further down the path
//! that such a thread walks for the second time, and where a call that looks again was refused for another reason.

use crate::limits::{ALIASES_MAX, ARRIVAL_AGAIN_MAX, ARRIVALS_MAX};
use fuser::INodeNo;
use parking_lot::Mutex;
use shoal_types::InodeId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// Above the numbers of inodes.
const ALIAS_SHIFT: u32 = 48;

/// The inode that the kernel knows by a number.
pub(crate) fn inode_id(node: INodeNo) -> InodeId {
    InodeId(node.0 & ((1 << ALIAS_SHIFT) - 1))
}

/// A thread was told that a directory has come to another place.
#[derive(Debug)]
struct Arrival {
    ino: InodeId,
    place: InodeId,
    tid: u32,
    at: Instant,
}

/// A thread that asks again was told another number of a directory, and may walk on from there.
#[derive(Debug)]
struct Onward {
    ino: InodeId,
    tid: u32,
    at: Instant,
}

/// Of one directory.
#[derive(Default, Debug)]
struct Aliases {
    last: u64,
    /// Those that the kernel refers to, and how often; the one that counts is the last.
    live: Vec<(INodeNo, u64)>,
}

impl Aliases {
    fn another(&mut self, ino: InodeId) -> INodeNo {
        self.last = self.last % ALIASES_MAX + 1;
        let alias = INodeNo(ino.0 | self.last << ALIAS_SHIFT);
        match self.live.iter_mut().find(|(node, _)| *node == alias) {
            Some((_, count)) => *count += 1,
            None => self.live.push((alias, 1)),
        }
        alias
    }
}

#[derive(Default, Debug)]
struct State {
    arrivals: Vec<Arrival>,
    onwards: Vec<Onward>,
    aliases: HashMap<InodeId, Aliases>,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Nodes {
    state: Mutex<State>,
    /// There may be aliases.
    any: AtomicBool,
}

impl Nodes {
    /// By which number a thread is told of a directory that it has found in a place. `has_moved`: it was elsewhere when the kernel heard of it last.
    /// `again`: the thread is known to look for the second time.
    pub(crate) fn found(
        &self,
        tid: u32,
        place: INodeNo,
        ino: InodeId,
        has_moved: bool,
        again: bool,
    ) -> INodeNo {
        let place = inode_id(place);
        let mut state = self.state.lock();
        let State { arrivals, onwards, aliases } = &mut *state;
        if has_moved || !arrivals.is_empty() {
            arrivals.retain(|arrival| arrival.at.elapsed() < ARRIVAL_AGAIN_MAX);
            onwards.retain(|onward| onward.at.elapsed() < ARRIVAL_AGAIN_MAX);
            let mut here = arrivals.iter().filter(|arrival| arrival.ino == ino && arrival.place == place);
            let others = here.clone().count();
            let walks_on = || onwards.iter().any(|onward| onward.tid == tid && onward.ino == place);
            if here.any(|arrival| arrival.tid == tid) || (has_moved && (again || walks_on())) {
                arrivals.retain(|arrival| arrival.ino != ino);
                onwards.retain(|onward| onward.tid != tid);
                if onwards.len() < ARRIVALS_MAX {
                    onwards.push(Onward { ino, tid, at: Instant::now() });
                }
                self.any.store(true, SeqCst);
                return aliases.entry(ino).or_default().another(ino);
            }
            // Whoever asks meanwhile may have to ask again as well.
            if (has_moved || others > 0) && arrivals.len() < ARRIVALS_MAX {
                arrivals.push(Arrival { ino, place, tid, at: Instant::now() });
            }
        }
        match aliases.get_mut(&ino) {
            None => INodeNo(ino.0),
            Some(aliases) => match aliases.live.last_mut() {
                Some((alias, count)) => {
                    *count += 1;
                    *alias
                }
                // By its own number the kernel knows it elsewhere.
                None => aliases.another(ino),
            },
        }
    }

    /// The kernel refers to a number so many times fewer; `is_known`: to others of the inode it still does.
    pub(crate) fn forgotten(&self, node: INodeNo, times: u64, is_known: impl FnOnce() -> bool) {
        if !self.any.load(SeqCst) {
            return;
        }
        let (ino, mut state) = (inode_id(node), self.state.lock());
        let Some(aliases) = state.aliases.get_mut(&ino) else { return };
        if let Some((_, count)) = aliases.live.iter_mut().find(|(alias, _)| *alias == node) {
            *count = count.saturating_sub(times);
        }
        aliases.live.retain(|(_, count)| *count > 0);
        if !is_known() {
            state.aliases.remove(&ino);
            self.any.store(!state.aliases.is_empty(), SeqCst);
        }
    }

    /// All numbers of all inodes that have several.
    pub(crate) fn of_aliased(&self) -> Vec<InodeId> {
        if !self.any.load(SeqCst) {
            return Vec::new();
        }
        let aliased: Vec<InodeId> = self.state.lock().aliases.keys().copied().collect();
        aliased.into_iter().flat_map(|ino| self.of(ino)).collect()
    }

    /// All numbers by which the kernel may know an inode, the one that counts last.
    pub(crate) fn of(&self, ino: InodeId) -> Vec<InodeId> {
        let mut all = vec![ino];
        if self.any.load(SeqCst)
            && let Some(aliases) = self.state.lock().aliases.get(&ino)
        {
            all.extend(aliases.live.iter().map(|(alias, _)| InodeId(alias.0)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(77);
    const OWN: INodeNo = INodeNo(77);
    const HERE: INodeNo = INodeNo(5);
    const THERE: INodeNo = INodeNo(6);

    #[test]
    fn whoever_asks_again_for_what_was_moved_is_told_another_number() {
        let nodes = Nodes::default();
        assert_eq!(nodes.found(1, HERE, DIR, false, false), OWN);
        assert_eq!(nodes.found(1, HERE, DIR, false, false), OWN, "it has not moved");
        assert_eq!(nodes.found(1, THERE, DIR, true, false), OWN);
        assert_eq!(nodes.found(2, THERE, DIR, false, false), OWN, "another one asks for the first time");
        let alias = nodes.found(1, THERE, DIR, false, false);
        assert!(alias != OWN && inode_id(alias) == DIR);
        assert_eq!(nodes.found(2, THERE, DIR, false, false), alias);
        assert_eq!(nodes.of(DIR), [DIR, InodeId(alias.0)]);
        assert_eq!(nodes.of_aliased(), nodes.of(DIR));
        assert_eq!(nodes.of(InodeId(5)), [InodeId(5)]);
    }

    #[test]
    fn whoever_asks_again_is_told_another_number_of_all_that_has_moved_on_his_path() {
        let nodes = Nodes::default();
        let (below, deeper) = (InodeId(78), InodeId(79));
        assert_eq!(nodes.found(1, THERE, DIR, true, false), OWN);
        assert_eq!(nodes.found(1, OWN, below, true, false), INodeNo(below.0), "here the kernel fails");
        let alias = nodes.found(1, THERE, DIR, false, false);
        assert_eq!(inode_id(nodes.found(1, alias, below, true, false)), below);
        assert_eq!(nodes.of(below).len(), 2, "also in another number of its place");
        nodes.found(1, nodes.found(1, alias, below, true, false), deeper, true, false);
        assert_eq!(
            nodes.of(deeper).len(),
            2,
            "it is there for the first time, but the kernel fails only once more"
        );
        let other = InodeId(80);
        assert_eq!(nodes.found(2, alias, other, true, false), INodeNo(other.0), "another thread");
        assert_eq!(nodes.found(1, HERE, other, true, false), INodeNo(other.0), "another path");
        assert_ne!(nodes.found(3, THERE, other, true, true), INodeNo(other.0), "its call was refused");
    }

    #[test]
    fn an_alias_lasts_as_long_as_the_kernel_refers_to_it() {
        let nodes = Nodes::default();
        nodes.found(1, THERE, DIR, true, false);
        let alias = nodes.found(1, THERE, DIR, false, false);
        nodes.found(2, THERE, DIR, false, false);
        nodes.forgotten(alias, 1, || true);
        assert_eq!(nodes.of(DIR).len(), 2);
        nodes.forgotten(alias, 1, || true);
        assert_eq!(nodes.of(DIR).len(), 1);
        assert_ne!(nodes.found(1, THERE, DIR, false, false), OWN, "that one is elsewhere");
        nodes.forgotten(OWN, 2, || false);
        assert_eq!((nodes.of(DIR).len(), nodes.found(1, THERE, DIR, false, false)), (1, OWN));
    }
}
