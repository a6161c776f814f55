//! Programs that walk through a tree (tar, find, grep -r, cp -r, rm -r), and what they will look at next.
//!
//! **The model.** Whoever looks into a directory is expected in its sub-directories, in the order in which they are listed, and in theirs
//! before the next. When a few have been looked into that were expected, it is a *walk*, and the next ones are asked for ahead, many at a time.
//!
//! **Bounds.** So many directories, and so many bytes, are here that nobody has looked at yet; more are asked for only when some have been
//! looked at. So a walk that stops stops this, too. What was asked for and not looked at is the first to go when room is needed.
//!
//! **Contents** come along as long as files are read on the way; so they do not for find(1).

mod ahead;

use super::Ticket;
use crate::limits::*;
use rustc_hash::FxHashMap;
use shoal_types::{BlockId, BlockRef, InodeId};
use std::collections::{BTreeMap, VecDeque};

/// Where a directory is in the order of a walk: its number among those of its parent, behind the parent's place.
type Place = Vec<u32>;

/// How far an expected directory has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Not asked for.
    Expected,
    /// Asked for ahead.
    Asked,
    /// In the cache, of which it takes so many bytes.
    Here(usize),
}

/// A program on its way through a tree, or what may become one.
#[derive(Debug)]
struct Walk {
    order: BTreeMap<Place, (InodeId, Stage)>,
    places: FxHashMap<InodeId, Place>,
    /// Of the directory that was looked into last.
    at: Place,
    /// Expected directories that were looked into.
    steps: u32,
    /// The same, those with files, since one of their files was read.
    unread: u32,
    /// The latest of them.
    entered: VecDeque<InodeId>,
    asked: usize,
    here: usize,
    /// About how many fit an answer.
    fit: usize,
    /// Content in blocks of the files of these directories, in the order in which it will be read.
    runs: VecDeque<BlockRef>,
}

/// Directories to be asked for ahead.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) dirs: Vec<InodeId>,
    /// What is known of each now.
    versions: Vec<Option<u64>>,
    pub(crate) contents: bool,
    ticket: Ticket,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// The one that went on last is the last.
    walks: Vec<Walk>,
    /// Bytes that are here and were not looked at.
    bytes: usize,
    /// Requests under way.
    requests: usize,
    /// Something may have to be asked for.
    news: bool,
    /// Content that is to be read ahead.
    runs: Vec<BlockRef>,
    /// What a program is waiting for, to be asked for next.
    urgent: VecDeque<Ahead>,
    /// Directories that came ahead, and those of them that were looked at.
    pub(crate) came: u64,
    pub(crate) used: u64,
}

impl Walk {
    fn new() -> Walk {
        Walk {
            order: BTreeMap::new(),
            places: FxHashMap::default(),
            at: Place::new(),
            steps: 0,
            unread: 0,
            entered: VecDeque::new(),
            asked: 0,
            here: 0,
            fit: WALK_ASK_DIRS_MAX,
            runs: VecDeque::new(),
        }
    }

    /// Whether contents are worth bringing along.
    fn reads(&self) -> bool {
        self.unread < WALK_UNREAD_MAX
    }

    /// How many more may be on their way.
    fn free(&self) -> usize {
        let is_in_doubt = self.reads() && self.unread >= WALK_UNREAD_DOUBTFUL;
        let most = if is_in_doubt { WALK_AHEAD_DIRS_DOUBTFUL } else { WALK_AHEAD_DIRS_MAX };
        most.saturating_sub(self.asked + self.here)
    }

    /// The fewest that are worth a request as long as more are on their way.
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
                Stage::Asked => self.asked = self.asked.saturating_add_signed(by),
                Stage::Here(_) => self.here = self.here.saturating_add_signed(by),
            }
        }
    }

    /// It is not expected any more.
    fn take(&mut self, dir: InodeId) -> Option<(Place, Stage)> {
        let place = self.places.remove(&dir)?;
        let (_, stage) = self.order.remove(&place)?;
        self.count(stage, Stage::Expected);
        Some((place, stage))
    }

    /// Those in a directory are expected next.
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

    /// The next one that is only expected: those behind the place that was looked into last come first.
    fn next_expected(&self) -> Option<(Place, InodeId)> {
        let behind = self.order.range(self.at.clone()..);
        let before = self.order.range(..self.at.clone());
        let expected = |(_, (_, stage)): &(&Place, &(InodeId, Stage))| *stage == Stage::Expected;
        behind.chain(before).find(expected).map(|(place, (dir, _))| (place.clone(), *dir))
    }

    /// One that is here although the walk has passed it; else, if whatever is, the last one.
    fn least_needed(&self, whatever: bool) -> Option<InodeId> {
        let here =
            |(_, (dir, stage)): (&Place, &(InodeId, Stage))| matches!(stage, Stage::Here(_)).then_some(*dir);
        let passed = self.order.range(..self.at.clone()).find_map(here);
        passed.or_else(|| if whatever { self.order.iter().rev().find_map(here) } else { None })
    }

    /// Directories that are here, and the next to be looked into.
    fn next_here(&self) -> impl Iterator<Item = InodeId> {
        let behind = self.order.range(self.at.clone()..).take(WALK_RUNS_DIRS_AHEAD);
        behind.filter_map(|(_, (dir, stage))| matches!(stage, Stage::Here(_)).then_some(*dir))
    }

    /// What will be read next, as much as is read ahead: here, and then in the next directories.
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

    /// Whether a directory has been asked for ahead and is on its way.
    pub(crate) fn is_asked(&self, dir: InodeId) -> bool {
        self.walks.iter().any(|walk| walk.stage(dir) == Some(Stage::Asked))
    }

    /// It is not expected any more, if it was.
    pub(crate) fn unexpect(&mut self, dir: InodeId) {
        while let Some((_, stage)) = self.of(dir).and_then(|walk| walk.take(dir)) {
            self.left(stage);
        }
    }

    fn left(&mut self, stage: Stage) {
        if let Stage::Here(bytes) = stage {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Whether files' contents are worth bringing along with a directory.
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

    /// Content in a block was read: what comes next is to be read ahead.
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

    /// Bytes that came ahead and were not looked at.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether something may have to be asked for, once.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether no more may come for now.
    fn is_full(&self) -> bool {
        self.bytes + self.requests * WALK_REPLY_BYTES_TARGET >= WALK_AHEAD_BYTES_MAX
    }

    /// A program looks into a directory with these sub-directories. Answers what is not going to be used any more.
    fn enter(&mut self, dir: InodeId, children: &[InodeId], has_files: bool) -> Vec<InodeId> {
        let mut unneeded = Vec::new();
        let mut walk = match self.position_of(dir) {
            Some(number) => self.walks.remove(number),
            None => {
                if self.walks.len() >= WALKS_MAX {
                    let old = self.walks.remove(0);
                    for (dir, stage) in old.order.into_values() {
                        self.left(stage);
                        unneeded.extend(matches!(stage, Stage::Here(_)).then_some(dir));
                    }
                }
                Walk::new()
            }
        };
        let mut place = Place::new();
        if let Some((at, stage)) = walk.take(dir) {
            self.used += u64::from(matches!(stage, Stage::Here(_)));
            self.left(stage);
            walk.steps += 1;
            place = at;
        }
        walk.unread += u32::from(has_files);
        if walk.entered.len() >= WALK_ENTERED_MAX {
            walk.entered.pop_front();
        }
        walk.entered.push_back(dir);
        walk.expect(&place, children);
        walk.at = place;
        self.news |= walk.steps >= WALK_STEPS_MIN;
        self.walks.push(walk);
        unneeded
    }
}
