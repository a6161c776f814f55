//! References of the kernel to inodes, and which inodes are counted under a cover. Kept apart from the cache, which may forget.

use super::inherit::Unreported;
use rustc_hash::{FxHashMap, FxHashSet};
use shoal_types::InodeId;

/// Inodes by what they are counted under.
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
    /// What the inode was counted under when it was last looked at.
    cover: InodeId,
    /// Of a directory: where the kernel was told last that it is.
    place: Option<InodeId>,
    /// And before that, if that was elsewhere: the kernel may have failed to move it since.
    before: Option<InodeId>,
    /// Of a directory: the kernel was told of names in it, present or absent, and may have cached them.
    named: bool,
    unreported: Unreported,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct References {
    known: FxHashMap<InodeId, Refs>,
    under: ByCover,
}

impl References {
    /// One more.
    pub(super) fn add(&mut self, ino: InodeId, cover: InodeId) {
        self.known
            .entry(ino)
            .or_insert_with(|| Refs {
                count: 0,
                cover,
                place: None,
                before: None,
                named: false,
                unreported: Unreported::default(),
            })
            .count += 1;
        self.count_under(ino, cover);
        self.under.insert(cover, ino);
    }

    /// So many fewer. If those were the last, answers what the inode is counted under.
    pub(super) fn remove(&mut self, ino: InodeId, count: u64) -> Option<InodeId> {
        let refs = self.known.get_mut(&ino)?;
        if refs.count > count {
            refs.count -= count;
            return None;
        }
        let cover = refs.cover;
        self.under.remove(cover, ino);
        self.known.remove(&ino);
        Some(cover)
    }

    /// An inode is counted under this cover from now on.
    pub(super) fn count_under(&mut self, ino: InodeId, cover: InodeId) {
        if let Some(refs) = self.known.get_mut(&ino)
            && refs.cover != cover
        {
            self.under.remove(std::mem::replace(&mut refs.cover, cover), ino);
            self.under.insert(cover, ino);
        }
    }

    /// The kernel is told that a directory is in this one. Answers where it was told that it is, if that is another, and else where it may have it still.
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

    /// The kernel is told of a name in a directory.
    pub(super) fn name_in(&mut self, dir: InodeId) {
        if let Some(refs) = self.known.get_mut(&dir) {
            refs.named = true;
        }
    }

    /// Whether the kernel may have cached names in a directory.
    pub(super) fn has_names_in(&self, dir: InodeId) -> bool {
        self.known.get(&dir).is_some_and(|refs| refs.named)
    }

    /// The kernel has moved a directory to this one, or made it there.
    pub(super) fn has_placed(&mut self, ino: InodeId, dir: InodeId) {
        if let Some(refs) = self.known.get_mut(&ino) {
            (refs.place, refs.before) = (Some(dir), None);
        }
    }

    /// Whether the kernel has a directory somewhere below another, or takes it for the same.
    pub(super) fn is_below(&self, dir: InodeId, above: InodeId) -> bool {
        let mut here = Some(dir);
        // What others have moved may make a ring of it.
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

    /// Inodes that are referred to and counted under a cover.
    pub(super) fn under(&self, cover: InodeId) -> impl Iterator<Item = InodeId> {
        self.under.of(cover)
    }

    /// What is to be reported of an inode.
    pub(super) fn unreported(&mut self, ino: InodeId) -> Option<&mut Unreported> {
        self.known.get_mut(&ino).map(|refs| &mut refs.unreported)
    }

    /// What is to be reported of any of them.
    pub(super) fn all_unreported(&mut self) -> impl Iterator<Item = &mut Unreported> {
        self.known.values_mut().map(|refs| &mut refs.unreported)
    }

    /// What they are counted under.
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
    fn inodes_are_found_under_what_they_are_counted_under_now() {
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
