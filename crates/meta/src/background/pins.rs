//! Pinned directories and files: which of their blocks are on the wrong tier.
//!
//! **Model.** A pin decides for all content below it that no nearer pin decides for. A file with several
//! names is below the directory in which it got its first one.
//!
//! **Upward,** the pin of a block's file is found as all [policies](super::policies) are. That is asked only
//! for blocks that would be moved, and only if there are pins.
//!
//! **Downward,** a walk visits all files below the pins in bounded steps, and finds the blocks that are on
//! the other tier. What is pinned hot and lies there is noted as used in the future, so that the index of the
//! hot tier has it behind everything that may leave: it costs the mover nothing. The next walks renew that.

use crate::limits::{
    CLOCK_AHEAD_MAX_S, COMPACT_EXTENTS_PAGE, PIN_LIST_BYTES, PIN_USED_AHEAD_S, PINNED_COLD_MAX, TIER_PLAN_MAX,
};
use shoal_namespace::kv::KvRead;
use shoal_namespace::query::{self, Prefetch};
use shoal_namespace::{Fault, TreeError, heat};
use shoal_types::limits::FILE_BYTES_MAX;
use shoal_types::{BlockId, Cookie, Extent, FileKind, InodeId, Pins, Tier};
use std::collections::{HashSet, VecDeque};

/// The part of a file that is to be visited next.
struct Part {
    ino: InodeId,
    tier: Tier,
    from: u64,
}

/// What a step has found.
#[derive(Default)]
pub(super) struct Found {
    /// Blocks on the other tier, with their files and the tiers that they are pinned to.
    pub(super) misplaced: Vec<(BlockId, InodeId, Tier)>,
    /// Blocks that are pinned hot, lie there, and are to be noted as used in the future.
    pub(super) renewals: Vec<BlockId>,
    /// The walk is at its end.
    pub(super) is_done: bool,
}

/// A walk over the files below all pins.
pub(super) struct Walk {
    pins: Pins,
    roots: VecDeque<(InodeId, Tier)>,
    /// Directories with their pins, and where to continue in each.
    dirs: Vec<(InodeId, Tier, Cookie)>,
    files: VecDeque<Part>,
    /// Blocks that are pinned cold: reads do not bring them to the hot tier.
    pub(super) cold: HashSet<BlockId>,
}

impl Walk {
    pub(super) fn new(pins: &Pins) -> Walk {
        let roots = pins.iter().map(|(ino, tier)| (*ino, *tier)).collect();
        Walk { pins: pins.clone(), roots, dirs: Vec::new(), files: VecDeque::new(), cold: HashSet::new() }
    }

    /// Visits about `looks_max` names and extents. `now` is in seconds since 1970.
    pub(super) fn step(
        &mut self,
        store: &(impl KvRead + ?Sized),
        now: u64,
        looks_max: usize,
    ) -> Result<Found, TreeError> {
        let (mut found, mut looks) = (Found::default(), 0);
        while looks < looks_max
            && found.misplaced.len() < TIER_PLAN_MAX
            && found.renewals.len() < TIER_PLAN_MAX
        {
            looks += 1;
            if let Some(part) = self.files.pop_front() {
                looks += self.visit(store, part, now, &mut found)?;
            } else if let Some((dir, tier, after)) = self.dirs.pop() {
                looks += self.list(store, dir, tier, after)?;
            } else if let Some((root, tier)) = self.roots.pop_front() {
                match query::record(store, root)?.map(|inode| inode.kind) {
                    Some(FileKind::Directory) => self.dirs.push((root, tier, Cookie::START)),
                    Some(FileKind::Regular) => self.files.push_back(Part { ino: root, tier, from: 0 }),
                    _ => {}
                }
            } else {
                found.is_done = true;
                break;
            }
        }
        Ok(found)
    }

    /// Takes in the next names of a directory.
    fn list(
        &mut self,
        store: &(impl KvRead + ?Sized),
        dir: InodeId,
        tier: Tier,
        after: Cookie,
    ) -> Result<usize, TreeError> {
        let listed = match query::list(store, dir, after, Prefetch::Names, PIN_LIST_BYTES) {
            Ok(listed) => listed,
            // It was removed meanwhile.
            Err(Fault::Errno(_)) => return Ok(0),
            Err(Fault::Tree(error)) => return Err(error),
        };
        if let Some(last) = listed.entries.last().filter(|_| !listed.end) {
            self.dirs.push((dir, tier, last.name.cookie()));
        }
        for entry in &listed.entries {
            let ino = entry.dentry.ino;
            match entry.dentry.kind {
                _ if self.pins.contains_key(&ino) => {}
                FileKind::Directory => self.dirs.push((ino, tier, Cookie::START)),
                FileKind::Regular if query::record(store, ino)?.is_some_and(|it| it.parent == dir) => {
                    self.files.push_back(Part { ino, tier, from: 0 });
                }
                _ => {}
            }
        }
        Ok(listed.entries.len())
    }

    /// Looks at the blocks of a part of a file.
    fn visit(
        &mut self,
        store: &(impl KvRead + ?Sized),
        part: Part,
        now: u64,
        found: &mut Found,
    ) -> Result<usize, TreeError> {
        let Part { ino, tier, from } = part;
        let page = match query::extents(store, ino, from, FILE_BYTES_MAX, COMPACT_EXTENTS_PAGE) {
            Ok(page) => page,
            Err(Fault::Errno(_)) => return Ok(0),
            Err(Fault::Tree(error)) => return Err(error),
        };
        let mut last = None;
        for (_, extent) in &page.extents {
            let Extent::Block(block) = extent else { continue };
            if last.replace(block.id) != Some(block.id) {
                self.classify(store, (block.id, ino, tier), now, found)?;
            }
        }
        if let Some((offset, extent)) = page.extents.last().filter(|_| page.more) {
            self.files.push_front(Part { ino, tier, from: offset + extent.len() });
        }
        Ok(page.extents.len())
    }

    fn classify(
        &mut self,
        store: &(impl KvRead + ?Sized),
        (id, ino, tier): (BlockId, InodeId, Tier),
        now: u64,
        found: &mut Found,
    ) -> Result<(), TreeError> {
        let Some(block) = query::block(store, id)?.filter(|block| block.refs > 0) else { return Ok(()) };
        let since = heat::hot(store, id)?.map_or(0, |hot| hot.since);
        if tier == Tier::Cold && self.cold.len() < PINNED_COLD_MAX {
            self.cold.insert(id);
        }
        match (tier, block.info.group.tier()) {
            (Tier::Hot, Tier::Hot) if since < now + PIN_USED_AHEAD_S / 2 => found.renewals.push(id),
            (Tier::Hot, Tier::Hot) | (Tier::Cold, Tier::Cold) => {}
            // Another file shares it that is pinned hot.
            (Tier::Cold, Tier::Hot) if block.refs > 1 && since > now + CLOCK_AHEAD_MAX_S => {}
            _ => found.misplaced.push((id, ino, tier)),
        }
        Ok(())
    }
}
