//! Prefetches for programs that walk through a tree (tar, find, grep -r, cp -r, rm -r).
//!
//! **The model.** A program that lists a directory is expected in its sub-directories, in the order of the
//! listing, and in their sub-directories before the next one. When several sub-directories of one directory
//! have been listed, this is a *walk* through everything below that directory, the *scope*. Then the next
//! directories are prefetched, many at a time.
//!
//! **Scope.** Another client may work beside the tree, and would have to recall what is cached of it here
//! before each change. So nothing outside of the scope is prefetched. The scope grows to the parent when the
//! program continues with the next sub-directory there.
//!
//! **Recalls** of directories that were expected and not reached show that another client works there. A walk
//! that does not continue meanwhile is given up with all that it expected ([`Walks::recalled`]).
//!
//! **Bounds.** The number and the bytes of prefetched directories that the program has not reached are
//! limited; more are prefetched only when some have been reached. So prefetching stops with the walk. What
//! was prefetched and not reached is evicted first.
//!
//! **Contents** are prefetched as long as the program reads files; find(1), for example, does not.

mod ahead;

use super::Ticket;
use crate::limits::*;
use rustc_hash::FxHashMap;
use shoal_types::{BlockId, BlockRef, InodeId};
use std::collections::{BTreeMap, VecDeque};

/// Where a directory is in the order of a walk: its parent's place, followed by its number among the parent's
/// sub-directories.
type Place = Vec<u32>;

/// The progress of the prefetch of an expected directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Not requested.
    Expected,
    /// Requested, not arrived.
    Requested,
    /// In the cache, with the number of bytes that it takes there.
    Cached(usize),
}

/// A program that walks through a tree, or may begin to.
#[derive(Debug)]
struct Walk {
    order: BTreeMap<Place, (InodeId, Stage)>,
    places: FxHashMap<InodeId, Place>,
    /// Place of the directory that was listed last.
    at: Place,
    /// For each directory on the path there, from the first one of the walk on: how many of its
    /// sub-directories were listed.
    visited: Vec<u32>,
    /// Directories with files that were listed since one of their files was read.
    unread: u32,
    /// Recalls of directories that were not reached, since the last one was listed.
    recalls: u32,
    /// The directories that were listed last.
    entered: VecDeque<InodeId>,
    asked: usize,
    here: usize,
    /// Estimate of how many directories fit into a reply.
    fit: usize,
    /// Content in blocks of the files of these directories, in the order in which it will be read.
    runs: VecDeque<BlockRef>,
}

/// Directories to be prefetched.
#[derive(Debug)]
pub(crate) struct WalkPrefetch {
    pub(crate) dirs: Vec<InodeId>,
    /// The version of what is known of each now.
    versions: Vec<Option<u64>>,
    pub(crate) contents: bool,
    ticket: Ticket,
}

/// The walks of a mount.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// In the order in which they last continued.
    walks: Vec<Walk>,
    /// Bytes that were prefetched and not used.
    bytes: usize,
    /// Requests in flight.
    requests: usize,
    /// Set when something may have to be prefetched; cleared by [`Walks::take_news`].
    news: bool,
    /// Content that is to be read ahead.
    runs: Vec<BlockRef>,
    /// Directories that a program is waiting for, to be requested next.
    urgent: VecDeque<WalkPrefetch>,
    /// Directories that were prefetched, and those of them that were used.
    pub(crate) came: u64,
    pub(crate) used: u64,
}

impl Walk {
    fn new() -> Walk {
        Walk {
            order: BTreeMap::new(),
            places: FxHashMap::default(),
            at: Place::new(),
            visited: vec![0],
            unread: 0,
            recalls: 0,
            entered: VecDeque::new(),
            asked: 0,
            here: 0,
            fit: WALK_ASK_DIRS_MAX,
            runs: VecDeque::new(),
        }
    }

    /// Whether contents should be prefetched.
    fn reads(&self) -> bool {
        self.unread < WALK_UNREAD_MAX
    }

    /// How many more directories may be requested.
    fn free(&self) -> usize {
        let is_in_doubt = self.reads() && self.unread >= WALK_UNREAD_DOUBTFUL;
        let most = if is_in_doubt { WALK_AHEAD_DIRS_DOUBTFUL } else { WALK_AHEAD_DIRS_MAX };
        most.saturating_sub(self.asked + self.here)
    }

    /// The fewest directories that are worth a request while another is in flight.
    fn fewest(&self) -> usize {
        WALK_ASK_DIRS_MIN.min(self.fit)
    }

    fn set(&mut self, place: &Place, stage: Stage) {
        if let Some((_, old)) = self.order.get_mut(place) {
            let old = std::mem::replace(old, stage);
            self.count(old, stage);
        }
    }

    fn count(&mut self, old: Stage, new: Stage) {
        for (stage, by) in [(old, -1isize), (new, 1)] {
            match stage {
                Stage::Expected => {}
                Stage::Requested => self.asked = self.asked.saturating_add_signed(by),
                Stage::Cached(_) => self.here = self.here.saturating_add_signed(by),
            }
        }
    }

    /// The directory at a place is listed, or about to be.
    fn arrive(&mut self, place: &Place) {
        if self.at == *place {
            return;
        }
        let common = self.at.iter().zip(place).take_while(|(one, other)| one == other).count();
        self.visited.truncate(common + 1);
        self.visited.resize(place.len().max(1), 0);
        if let Some(parent) = self.visited.last_mut() {
            *parent += 1;
        }
        self.visited.push(0);
        self.at.clone_from(place);
        self.recalls = 0;
    }

    /// The place of the scope: the topmost directory on the path of which several sub-directories were
    /// listed. `None`: this is not a walk (yet).
    fn scope(&self) -> Option<&[u32]> {
        let depth = self.visited.iter().position(|visited| *visited >= WALK_SIBLINGS_MIN)?;
        self.at.get(..depth)
    }

    /// The directory is not expected any more.
    fn take(&mut self, dir: InodeId) -> Option<(Place, Stage)> {
        let place = self.places.remove(&dir)?;
        let (_, stage) = self.order.remove(&place)?;
        self.count(stage, Stage::Expected);
        Some((place, stage))
    }

    /// The sub-directories of a directory are expected next.
    fn expect(&mut self, place: &Place, children: &[InodeId]) {
        for (number, child) in children.iter().enumerate() {
            if self.order.len() >= WALK_EXPECTED_MAX {
                return;
            }
            let mut at = place.clone();
            at.push(number as u32);
            if !self.places.contains_key(child) && !self.order.contains_key(&at) {
                self.places.insert(*child, at.clone());
                self.order.insert(at, (*child, Stage::Expected));
            }
        }
    }

    fn stage(&self, dir: InodeId) -> Option<Stage> {
        Some(self.order.get(self.places.get(&dir)?)?.1)
    }

    /// The next directory in the scope that has not been requested. Those after the place that was listed
    /// last come first.
    fn next_expected(&self) -> Option<(Place, InodeId)> {
        let scope = self.scope()?;
        let behind = self.order.range(self.at.clone()..).take_while(|(place, _)| place.starts_with(scope));
        let before = self.order.range(scope.to_vec()..self.at.clone());
        let expected = |(_, (_, stage)): &(&Place, &(InodeId, Stage))| *stage == Stage::Expected;
        behind.chain(before).find(expected).map(|(place, (dir, _))| (place.clone(), *dir))
    }

    /// The first prefetched directory that the walk has passed. If there is none and `whatever` is set, the
    /// last prefetched one.
    fn least_needed(&self, whatever: bool) -> Option<InodeId> {
        let here = |(_, (dir, stage)): (&Place, &(InodeId, Stage))| {
            matches!(stage, Stage::Cached(_)).then_some(*dir)
        };
        let passed = self.order.range(..self.at.clone()).find_map(here);
        passed.or_else(|| if whatever { self.order.iter().rev().find_map(here) } else { None })
    }

    /// Prefetched directories that will be listed next.
    fn next_here(&self) -> impl Iterator<Item = InodeId> {
        let behind = self.order.range(self.at.clone()..).take(WALK_RUNS_DIRS_AHEAD);
        behind.filter_map(|(_, (dir, stage))| matches!(stage, Stage::Cached(_)).then_some(*dir))
    }

    /// The content to read ahead: that of this directory, then `next`, up to the limits of read-ahead.
    fn runs_ahead(&self, next: &[BlockRef]) -> Vec<BlockRef> {
        let mut bytes = 0;
        let fits = |run: &&BlockRef| {
            bytes += u64::from(run.len);
            bytes <= WALK_RUNS_AHEAD_BYTES_MAX
        };
        self.runs.iter().chain(next).take(WALK_RUNS_AHEAD_MAX).take_while(fits).copied().collect()
    }
}

impl Walks {
    fn position_of(&self, dir: InodeId) -> Option<usize> {
        self.walks.iter().rposition(|walk| walk.places.contains_key(&dir))
    }

    fn of(&mut self, dir: InodeId) -> Option<&mut Walk> {
        let position = self.position_of(dir)?;
        self.walks.get_mut(position)
    }

    /// Whether a directory has been requested ahead and has not arrived.
    pub(crate) fn is_asked(&self, dir: InodeId) -> bool {
        self.walks.iter().any(|walk| walk.stage(dir) == Some(Stage::Requested))
    }

    /// The directory is not expected any more, if it was.
    pub(crate) fn drop_expected(&mut self, dir: InodeId) {
        while let Some((_, stage)) = self.of(dir).and_then(|walk| walk.take(dir)) {
            self.left(stage);
        }
    }

    /// Something in a directory was recalled, because another client changes it. If the directory was
    /// expected and not reached, returns the directories whose watch should be given up. This is the one
    /// directory at first. It is everything that the walk expected, if the walk does not continue and recalls
    /// keep coming.
    pub(super) fn recalled(&mut self, dir: InodeId) -> Vec<InodeId> {
        let Some(number) = self.position_of(dir) else { return Vec::new() };
        let Some(walk) = self.walks.get_mut(number) else { return Vec::new() };
        walk.recalls += 1;
        if walk.recalls < WALK_RECALLS_MAX {
            self.drop_expected(dir);
            return vec![dir];
        }
        let walk = self.walks.remove(number);
        walk.order.values().for_each(|(_, stage)| self.left(*stage));
        walk.order.into_values().map(|(dir, _)| dir).collect()
    }

    fn left(&mut self, stage: Stage) {
        if let Stage::Cached(bytes) = stage {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Whether a directory should be fetched with the contents of its files.
    pub(crate) fn wants_contents(&self, dir: InodeId) -> bool {
        let walk = self.position_of(dir).and_then(|position| self.walks.get(position));
        walk.is_none_or(Walk::reads)
    }

    /// A file in a directory was read.
    pub(super) fn read(&mut self, parent: InodeId) {
        for walk in &mut self.walks {
            if walk.unread > 0 && walk.entered.contains(&parent) {
                walk.unread = 0;
            }
        }
    }

    /// A block was read: sets the content that is to be read ahead after it.
    pub(super) fn read_block(&mut self, id: BlockId) {
        for walk in &mut self.walks {
            let near = walk.runs.iter().take(WALK_RUNS_AHEAD_MAX).position(|run| run.id == id);
            if let Some(at) = near {
                walk.runs.drain(..=at);
                self.runs = walk.runs_ahead(&[]);
                return;
            }
        }
    }

    /// Content that is to be read ahead now.
    pub(crate) fn take_runs(&mut self) -> Vec<BlockRef> {
        std::mem::take(&mut self.runs)
    }

    /// Bytes that were prefetched and not used.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether something may have to be prefetched. Resets the flag.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether the bytes prefetched and in flight have reached their limit.
    fn is_full(&self) -> bool {
        self.bytes + self.requests * WALK_REPLY_BYTES_TARGET >= WALK_AHEAD_BYTES_MAX
    }

    /// A program lists a directory with these sub-directories. Returns directories that are not needed any
    /// more.
    fn enter(&mut self, dir: InodeId, children: &[InodeId], has_files: bool) -> Vec<InodeId> {
        let mut unneeded = Vec::new();
        let mut walk = match self.position_of(dir) {
            Some(number) => self.walks.remove(number),
            None => {
                if self.walks.len() >= WALKS_MAX {
                    let old = self.walks.remove(0);
                    for (dir, stage) in old.order.into_values() {
                        self.left(stage);
                        unneeded.extend(matches!(stage, Stage::Cached(_)).then_some(dir));
                    }
                }
                Walk::new()
            }
        };
        let mut place = Place::new();
        if let Some((at, stage)) = walk.take(dir) {
            self.used += u64::from(matches!(stage, Stage::Cached(_)));
            self.left(stage);
            place = at;
        }
        walk.unread += u32::from(has_files);
        if walk.entered.len() >= WALK_ENTERED_MAX {
            walk.entered.pop_front();
        }
        walk.entered.push_back(dir);
        walk.expect(&place, children);
        walk.arrive(&place);
        self.news |= walk.scope().is_some();
        self.walks.push(walk);
        unneeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: InodeId = InodeId(1);

    /// Directories with `count` consecutive numbers from the first one on.
    fn dirs(first: u64, count: u64) -> Vec<InodeId> {
        (first..first + count).map(InodeId).collect()
    }

    /// All that would be prefetched now, in order.
    fn ahead(walks: &mut Walks) -> Vec<u64> {
        let Some(walk) = walks.walks.last_mut() else { return Vec::new() };
        let mut found = Vec::new();
        while let Some((place, dir)) = walk.next_expected() {
            walk.set(&place, Stage::Requested);
            found.push(dir.0);
        }
        let order: Vec<Place> = walk.order.keys().cloned().collect();
        order.iter().for_each(|place| walk.set(place, Stage::Expected));
        found
    }

    /// A top directory with 11, 12, 13; in 11 are 111 to 113, in 12 are 121 to 123.
    fn walk_into(walks: &mut Walks, path: &[u64]) {
        for dir in path {
            let children = match dir {
                1 => dirs(11, 3),
                11 => dirs(111, 3),
                12 => dirs(121, 3),
                _ => Vec::new(),
            };
            walks.enter(InodeId(*dir), &children, false);
        }
    }

    #[test]
    fn directory_outside_the_scope_is_not_prefetched() {
        let mut walks = Walks::default();
        walk_into(&mut walks, &[1, 11, 111]);
        assert_eq!(ahead(&mut walks), [], "it may be a path lookup and no walk");
        walk_into(&mut walks, &[112]);
        assert_eq!(ahead(&mut walks), [113]);
        walk_into(&mut walks, &[113]);
        assert_eq!(ahead(&mut walks), [], "12 is beside the tree");
    }

    #[test]
    fn scope_grows_to_the_parent_when_the_walk_continues_there() {
        let mut walks = Walks::default();
        walk_into(&mut walks, &[1, 11, 111, 112, 113, 12]);
        assert_eq!(ahead(&mut walks), [121, 122, 123, 13]);
        walk_into(&mut walks, &[121]);
        assert_eq!(ahead(&mut walks), [122, 123, 13]);
    }

    #[test]
    fn directories_that_the_walk_has_skipped_are_prefetched_last() {
        let mut walks = Walks::default();
        walk_into(&mut walks, &[1, 11, 112, 113]);
        assert_eq!(ahead(&mut walks), [111]);
        walk_into(&mut walks, &[13]);
        assert_eq!(ahead(&mut walks), [111, 12]);
    }

    #[test]
    fn recalled_directory_ahead_of_the_walk_is_given_up_alone_at_first() {
        let mut walks = Walks::default();
        walk_into(&mut walks, &[1, 11, 12]);
        assert_eq!(walks.recalled(InodeId(121)), [InodeId(121)]);
        assert_eq!(walks.recalled(InodeId(121)), [], "it is not expected any more");
        assert_eq!(walks.recalled(InodeId(12)), [], "it was reached");
        assert_eq!(walks.recalled(TOP), []);
        assert_eq!(ahead(&mut walks), [122, 123, 13, 111, 112, 113]);
    }

    #[test]
    fn walk_that_does_not_continue_is_given_up_after_repeated_recalls() {
        let mut walks = Walks::default();
        walk_into(&mut walks, &[1, 11, 12]);
        let recalled: Vec<Vec<InodeId>> =
            [111, 112, 113, 121].into_iter().map(|dir| walks.recalled(InodeId(dir))).collect();
        let last = [121, 122, 123, 13].map(InodeId).to_vec();
        assert_eq!(recalled, [dirs(111, 1), dirs(112, 1), dirs(113, 1), last]);
        assert_eq!((ahead(&mut walks), walks.walks.len()), (Vec::new(), 0));
    }

    #[test]
    fn count_of_recalls_is_reset_when_the_walk_continues() {
        let mut walks = Walks::default();
        walk_into(&mut walks, &[1, 11, 12]);
        for dir in [111, 112, 113] {
            assert_eq!(walks.recalled(InodeId(dir)).len(), 1);
        }
        walk_into(&mut walks, &[121]);
        assert_eq!(walks.recalled(InodeId(122)), [InodeId(122)]);
    }
}
