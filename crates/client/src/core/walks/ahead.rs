//! Connects walks with the cache: where programs are, what is prefetched, what has arrived.

use super::{Stage, WalkPrefetch};
use crate::core::Core;
use crate::core::cache::{Body, Node};
use crate::limits::*;
use shoal_types::{BlockRef, Cookie, Extent, FileKind, InodeId};
use shoal_wire::{DirEntry, WalkReply};

impl Core {
    /// A program lists a directory. `begins`: a new walk may begin with it.
    pub(in crate::core) fn walks_into(&mut self, dir: InodeId, begins: bool) {
        if !self.follows_walks {
            return;
        }
        let walks = &self.walks;
        let known = walks.position_of(dir).is_some();
        if !known && (!begins || walks.walks.iter().any(|walk| walk.entered.contains(&dir))) {
            return;
        }
        let Some((children, has_files)) = self.subdirectories(dir) else { return };
        for unneeded in self.walks.enter(dir, &children, has_files) {
            self.cache.give_up(unneeded);
        }
        let Some(walk) = self.walks.walks.last() else { return };
        if walk.scope().is_none() || !walk.reads() {
            return;
        }
        let next: Vec<BlockRef> = walk.next_here().flat_map(|dir| self.runs_in(dir)).collect();
        let runs = self.runs_in(dir);
        if let Some(walk) = self.walks.walks.last_mut() {
            walk.runs.truncate(WALK_RUNS_MAX.saturating_sub(runs.len()));
            runs.into_iter().rev().for_each(|run| walk.runs.push_front(run));
            self.walks.runs = walk.runs_ahead(&next);
        }
    }

    /// The blocks of the files of a directory, in the order in which the files are listed.
    fn runs_in(&self, dir: InodeId) -> Vec<BlockRef> {
        let Some(Node { body: Body::Directory(names), .. }) = self.cache.peek(dir) else { return Vec::new() };
        let files = names.after(Cookie::START).filter(|(_, dentry)| dentry.kind == FileKind::Regular);
        let content = files.filter_map(|(_, dentry)| match &self.cache.peek(dentry.ino)?.body {
            Body::File(content) => Some(content),
            _ => None,
        });
        let blocks = content.flat_map(|content| content.extents.values()).filter_map(|extent| match extent {
            Extent::Block(block) if self.blocks.is_stored(block.id) => Some(*block),
            _ => None,
        });
        blocks.take(WALK_RUNS_MAX).collect()
    }

    /// Sub-directories in the order in which they are listed, and whether there are files, too. `None` if not
    /// all names are known.
    fn subdirectories(&self, dir: InodeId) -> Option<(Vec<InodeId>, bool)> {
        let Some(Node { body: Body::Directory(names), .. }) = self.cache.peek(dir) else { return None };
        if !names.is_complete() {
            return None;
        }
        let (mut children, mut has_files) = (Vec::new(), false);
        for (_, dentry) in names.after(Cookie::START) {
            match dentry.kind {
                FileKind::Directory => children.push(dentry.ino),
                kind => has_files |= kind == FileKind::Regular,
            }
        }
        Some((children, has_files))
    }

    /// The next prefetch, if there is one.
    pub(crate) fn next_prefetch(&mut self) -> Option<WalkPrefetch> {
        if let Some(ahead) = self.walks.urgent.pop_front() {
            return Some(ahead);
        }
        for number in (0..self.walks.walks.len()).rev() {
            if let Some(ahead) = self.prefetch_of(number) {
                self.walks.requests += 1;
                return Some(ahead);
            }
        }
        None
    }

    /// A program needs a directory. Returns whether a walk has requested it, or requests it now together with
    /// the next ones.
    pub(crate) fn join_prefetch(&mut self, dir: InodeId) -> bool {
        let Some(number) = self.walks.position_of(dir) else { return false };
        let Some(walk) = self.walks.walks.get_mut(number) else { return false };
        match walk.stage(dir) {
            Some(Stage::Requested) => return true,
            Some(Stage::Expected) => {}
            _ => return false,
        }
        let goes_on = walk.scope().is_some();
        if let Some(place) = walk.places.get(&dir).cloned() {
            walk.arrive(&place);
        }
        // Not a walk yet: that is decided when the directory is listed.
        if !goes_on {
            return false;
        }
        if let Some(ahead) = self.prefetch_of(number) {
            self.walks.requests += 1;
            self.walks.urgent.push_back(ahead);
        }
        self.walks.is_asked(dir)
    }

    fn prefetch_of(&mut self, number: usize) -> Option<WalkPrefetch> {
        self.walks.walks.get(number)?.scope()?;
        loop {
            let walk = self.walks.walks.get(number)?;
            if !self.walks.is_full() && walk.free() >= walk.fewest() {
                break;
            }
            let passed = walk.least_needed(false)?;
            self.give_up_ahead(passed);
        }
        let mut dirs: Vec<InodeId> = Vec::new();
        loop {
            let walk = self.walks.walks.get(number)?;
            if dirs.len() >= walk.fit || walk.free() == 0 {
                break;
            }
            let Some((place, dir)) = walk.next_expected() else { break };
            let here = self.subdirectories(dir);
            let fetchable = matches!(self.cache.peek(dir), Some(node) if is_fetchable(node));
            let walk = self.walks.walks.get_mut(number)?;
            match here {
                // It was cached for another reason.
                Some((children, _)) => {
                    walk.set(&place, Stage::Cached(0));
                    walk.expect(&place, &children);
                }
                None if fetchable => {
                    walk.set(&place, Stage::Requested);
                    dirs.push(dir);
                }
                None => drop(walk.take(dir)),
            }
        }
        let walk = self.walks.walks.get_mut(number)?;
        // Too few for a request while another is in flight.
        if dirs.is_empty() || (dirs.len() < walk.fewest() && walk.asked > dirs.len()) {
            for dir in dirs {
                if let Some(place) = walk.places.get(&dir).cloned() {
                    walk.set(&place, Stage::Expected);
                }
            }
            return None;
        }
        let contents = walk.reads();
        let versions = dirs.iter().map(|dir| self.version(*dir)).collect();
        Some(WalkPrefetch { dirs, versions, contents, ticket: self.ticket() })
    }

    /// A request was answered, or failed: the directories of it that have not arrived are not in flight any
    /// more.
    pub(crate) fn prefetch_answered(&mut self, ahead: &WalkPrefetch, reply: Option<&WalkReply>) {
        self.walks.requests = self.walks.requests.saturating_sub(1);
        self.walks.news = true;
        let last = reply.and_then(|reply| reply.dirs.last()).map(|(dir, _)| *dir);
        let begun = last.and_then(|last| ahead.dirs.iter().position(|dir| *dir == last));
        if let Some(begun) = begun
            && let Some(walk) = ahead.dirs.iter().find_map(|dir| self.walks.position_of(*dir))
            && let Some(walk) = self.walks.walks.get_mut(walk)
        {
            let all = begun + 1 == ahead.dirs.len();
            walk.fit = if all { (2 * walk.fit).min(WALK_ASK_DIRS_MAX) } else { begun + 1 };
        }
        for (number, dir) in ahead.dirs.iter().enumerate() {
            let Some(walk) = self.walks.of(*dir) else { continue };
            if walk.stage(*dir) != Some(Stage::Requested) {
                continue;
            }
            match walk.places.get(dir).cloned() {
                // There was no room for it in the reply.
                Some(place) if begun.is_some_and(|begun| number > begun) => walk.set(&place, Stage::Expected),
                _ => self.walks.drop_expected(*dir),
            }
        }
    }

    /// Installs the exclusive right to a directory that has arrived and that no other client watches.
    pub(crate) fn install_prefetched_right(&mut self, ahead: &WalkPrefetch, dir: InodeId) {
        self.install_exclusive(ahead.ticket, &[dir]);
    }

    /// Installs a directory that has arrived.
    pub(crate) fn install_prefetched_dir(
        &mut self,
        ahead: &WalkPrefetch,
        dir: InodeId,
        entries: Vec<DirEntry>,
    ) {
        let before = self.cache.bytes();
        let version = ahead.dirs.iter().position(|one| *one == dir).and_then(|at| *ahead.versions.get(at)?);
        self.install_page(ahead.ticket, dir, entries);
        let contents_after = (!ahead.contents).then_some(Cookie::START);
        self.install_end(ahead.ticket, dir, version, contents_after);
        let bytes = self.cache.bytes().saturating_sub(before);
        self.walks.came += 1;
        let Some((children, _)) = self.subdirectories(dir) else { return self.walks.drop_expected(dir) };
        let Some(walk) = self.walks.of(dir) else { return };
        let Some(place) = walk.places.get(&dir).cloned() else { return };
        if walk.stage(dir) == Some(Stage::Requested) {
            walk.set(&place, Stage::Cached(bytes));
            walk.expect(&place, &children);
            self.walks.bytes += bytes;
        }
    }

    /// Evicts some directories that were prefetched and not used, while the cache is above its limit.
    pub(in crate::core) fn make_room_of_walks(&mut self) {
        for _ in 0..EVICT_STEPS {
            let mut walks = self.walks.walks.iter();
            let Some(dir) = walks.find_map(|walk| walk.least_needed(true)) else { return };
            self.give_up_ahead(dir);
            if !self.cache.is_full() {
                return;
            }
        }
    }

    fn give_up_ahead(&mut self, dir: InodeId) {
        self.walks.drop_expected(dir);
        self.cache.give_up(dir);
    }
}

/// Whether a directory can be fetched whole.
fn is_fetchable(node: &Node) -> bool {
    matches!(node.body, Body::Directory(_)) && !node.stale && node.inode.entries <= DIR_FETCH_ENTRIES_MAX
}
