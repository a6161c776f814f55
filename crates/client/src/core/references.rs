//! The kernel's references to inodes, and the covers of these inodes. Kept apart from the cache, which may
//! evict them.

use super::inherit::Unreported;
use crate::limits::STALE_REFERENCES_MIN;
use rustc_hash::{FxHashMap, FxHashSet};
use shoal_types::InodeId;
use std::collections::VecDeque;

/// Inodes by cover.
#[derive(Debug, Default)]
pub(super) struct ByCover(FxHashMap<InodeId, FxHashSet<InodeId>>);

impl ByCover {
    pub(super) fn insert(&mut self, cover: InodeId, ino: InodeId) {
        self.0.entry(cover).or_default().insert(ino);
    }

    pub(super) fn remove(&mut self, cover: InodeId, ino: InodeId) {
        if let Some(inodes) = self.0.get_mut(&cover) {
            inodes.remove(&ino);
            if inodes.is_empty() {
                self.0.remove(&cover);
            }
        }
    }

    pub(super) fn of(&self, cover: InodeId) -> impl Iterator<Item = InodeId> {
        self.0.get(&cover).into_iter().flatten().copied()
    }
}

#[derive(Debug)]
struct Refs {
    count: u64,
    /// The inode's cover, as last known.
    cover: InodeId,
    /// For a directory: its parent in the last reply to the kernel.
    place: Option<InodeId>,
    /// The parent before that, where the dcache may still have it: `d_splice_alias` may have failed.
    before: Option<InodeId>,
    /// For a directory: the kernel may have cached dentries of it, positive or negative.
    named: bool,
    unreported: Unreported,
    /// The number of its entry in the order.
    since: u64,
}

/// All references of the kernel.
#[derive(Debug, Default)]
pub(super) struct References {
    known: FxHashMap<InodeId, Refs>,
    under: ByCover,
    /// Inodes in the order in which they were first referred to, or last returned by
    /// [`oldest`](Self::oldest). An entry is valid if its number is that of the inode.
    order: VecDeque<(InodeId, u64)>,
    last_place: u64,
    forgotten: u64,
}

/// The inodes that the kernel refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Referred {
    /// How many.
    pub inodes: usize,
    /// How many the kernel has forgotten so far (FORGET).
    pub forgotten: u64,
}

impl References {
    /// The kernel has gained a reference.
    pub(super) fn add(&mut self, ino: InodeId, cover: InodeId) {
        match self.known.get_mut(&ino) {
            Some(refs) => refs.count += 1,
            None => {
                let since = self.append(ino);
                let refs = Refs {
                    count: 1,
                    cover,
                    place: None,
                    before: None,
                    named: false,
                    unreported: Unreported::default(),
                    since,
                };
                self.known.insert(ino, refs);
            }
        }
        self.count_under(ino, cover);
        self.under.insert(cover, ino);
    }

    /// The kernel has dropped `count` references. If those were the last, returns the inode's cover.
    pub(super) fn remove(&mut self, ino: InodeId, count: u64) -> Option<InodeId> {
        let refs = self.known.get_mut(&ino)?;
        if refs.count > count {
            refs.count -= count;
            return None;
        }
        let cover = refs.cover;
        self.under.remove(cover, ino);
        self.known.remove(&ino);
        self.forgotten += 1;
        if self.order.len() > 2 * self.known.len() + STALE_REFERENCES_MIN {
            let known = &self.known;
            self.order.retain(|(ino, place)| known.get(ino).is_some_and(|refs| refs.since == *place));
        }
        Some(cover)
    }

    /// Appends an inode to the order; returns the number of the entry.
    fn append(&mut self, ino: InodeId) -> u64 {
        self.last_place += 1;
        self.order.push_back((ino, self.last_place));
        self.last_place
    }

    /// Counts of inodes that are referred to, and that were forgotten.
    pub(super) fn referred(&self) -> Referred {
        Referred { inodes: self.known.len(), forgotten: self.forgotten }
    }

    /// The `count` inodes that have been referred to for longest. They move to the end of the order, so the
    /// next call returns the next ones.
    pub(super) fn oldest(&mut self, count: usize) -> Vec<InodeId> {
        let mut oldest = Vec::new();
        for _ in 0..self.order.len() {
            if oldest.len() >= count {
                break;
            }
            let Some((ino, place)) = self.order.pop_front() else { break };
            if self.known.get(&ino).is_some_and(|refs| refs.since == place) {
                let since = self.append(ino);
                if let Some(refs) = self.known.get_mut(&ino) {
                    refs.since = since;
                }
                oldest.push(ino);
            }
        }
        oldest
    }

    /// An inode has this cover from now on. Returns its cover before, if that was another one.
    pub(super) fn count_under(&mut self, ino: InodeId, cover: InodeId) -> Option<InodeId> {
        let refs = self.known.get_mut(&ino).filter(|refs| refs.cover != cover)?;
        let before = std::mem::replace(&mut refs.cover, cover);
        self.under.remove(before, ino);
        self.under.insert(cover, ino);
        Some(before)
    }

    /// A reply tells the kernel that a directory is in `dir`. Returns the parent in the reply before, if that
    /// is another one. Otherwise returns, as the second value, the parent that the dcache may still have.
    pub(super) fn place(&mut self, ino: InodeId, dir: InodeId) -> (Option<InodeId>, Option<InodeId>) {
        let Some(refs) = self.known.get_mut(&ino) else { return (None, None) };
        match refs.place.replace(dir).filter(|last| *last != dir) {
            Some(last) => {
                refs.before = Some(last);
                (Some(last), None)
            }
            None => (None, refs.before),
        }
    }

    /// A reply tells the kernel of a name in a directory.
    pub(super) fn name_in(&mut self, dir: InodeId) {
        if let Some(refs) = self.known.get_mut(&dir) {
            refs.named = true;
        }
    }

    /// Whether the kernel may have cached names in a directory.
    pub(super) fn has_names_in(&self, dir: InodeId) -> bool {
        self.known.get(&dir).is_some_and(|refs| refs.named)
    }

    /// The kernel itself has moved a directory to `dir`, or created it there.
    pub(super) fn has_placed(&mut self, ino: InodeId, dir: InodeId) {
        if let Some(refs) = self.known.get_mut(&ino) {
            (refs.place, refs.before) = (Some(dir), None);
        }
    }

    /// Whether the kernel has the directory `dir` at or below `above`.
    pub(super) fn is_below(&self, dir: InodeId, above: InodeId) -> bool {
        let mut here = Some(dir);
        // After moves by other clients the recorded parents may form a loop.
        for _ in 0..self.known.len() + 1 {
            match here {
                Some(ino) if ino == above => return true,
                Some(ino) => here = self.known.get(&ino).and_then(|refs| refs.place),
                None => return false,
            }
        }
        false
    }

    pub(super) fn contains(&self, ino: InodeId) -> bool {
        self.known.contains_key(&ino)
    }

    /// Referenced inodes with this cover.
    pub(super) fn under(&self, cover: InodeId) -> impl Iterator<Item = InodeId> {
        self.under.of(cover)
    }

    /// The losses that calls on an inode have yet to report.
    pub(super) fn unreported(&mut self, ino: InodeId) -> Option<&mut Unreported> {
        self.known.get_mut(&ino).map(|refs| &mut refs.unreported)
    }

    /// The losses that calls on each of the inodes have yet to report.
    pub(super) fn all_unreported(&mut self) -> impl Iterator<Item = &mut Unreported> {
        self.known.values_mut().map(|refs| &mut refs.unreported)
    }

    /// The covers of all referenced inodes.
    pub(super) fn covers(&self) -> impl Iterator<Item = InodeId> {
        self.under.0.keys().copied()
    }

    pub(super) fn inodes(&self) -> impl Iterator<Item = InodeId> {
        self.known.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reference_is_returned_once_before_any_is_returned_again() {
        let mut refs = References::default();
        let inode = |number: u64| InodeId(number);
        (10..15).for_each(|number| refs.add(inode(number), inode(1)));
        refs.add(inode(10), inode(1));
        assert_eq!(refs.oldest(2), [inode(10), inode(11)]);
        assert_eq!(refs.remove(inode(12), 1), Some(inode(1)));
        refs.add(inode(12), inode(1));
        assert_eq!(refs.oldest(9), [13, 14, 10, 11, 12].map(inode));
        assert_eq!(refs.referred(), Referred { inodes: 5, forgotten: 1 });
    }

    #[test]
    fn order_of_references_does_not_grow_with_forgotten_inodes() {
        let mut refs = References::default();
        refs.add(InodeId(2), InodeId(1));
        for _ in 0..10 * STALE_REFERENCES_MIN {
            refs.add(InodeId(3), InodeId(1));
            refs.remove(InodeId(3), 1);
        }
        assert!(refs.order.len() <= STALE_REFERENCES_MIN + 4, "{}", refs.order.len());
        assert_eq!(refs.oldest(9), [InodeId(2)]);
    }

    #[test]
    fn inode_is_found_under_its_present_cover_only() {
        let mut refs = References::default();
        let [one, other, file] = [InodeId(10), InodeId(11), InodeId(12)];
        refs.add(file, one);
        refs.add(file, other);
        assert_eq!(refs.under(one).count(), 0);
        assert_eq!(refs.under(other).collect::<Vec<_>>(), [file]);
        refs.count_under(file, one);
        assert_eq!(refs.remove(file, 1), None);
        assert_eq!(refs.under(one).collect::<Vec<_>>(), [file]);
        assert!(refs.remove(file, 1) == Some(one) && !refs.contains(file));
        assert_eq!(refs.under(one).count(), 0);
    }
}
