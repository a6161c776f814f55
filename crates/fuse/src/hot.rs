//! The inodes with the most requests of each kind, for `shoal volume top`.
//!
//! **Model.** Space-saving counting: a table keeps a bounded number of inodes. When it is full, the less
//! frequent half is removed, and the largest removed count becomes the table's *floor*. An inode that is
//! added afterwards begins with the floor, since it may have been counted and removed before.
//!
//! **Promises.** The true count of a listed inode is at most `count` and at least `count - over_max`. An
//! inode with more requests than the floor is listed. Bytes are those counted while the inode was in the
//! table.

use crate::limits::{HOT_INODES_KEPT, HOT_SHARDS};
use parking_lot::Mutex;
use shoal_types::InodeId;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Instant;

/// An inode and what was counted of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotInode {
    /// The inode; of requests about names, their directory.
    pub ino: InodeId,
    /// Upper bound of the number of requests.
    pub count: u64,
    /// By how much `count` may be too high.
    pub over_max: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

/// Which inodes come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotBy {
    /// Those with the most requests.
    Count,
    /// Those of which the most bytes were read or written.
    Bytes,
}

#[derive(Clone, Copy)]
struct Counted {
    count: u64,
    over_max: u64,
    bytes: u64,
}

#[derive(Default)]
struct Table {
    inodes: HashMap<InodeId, Counted>,
    floor: u64,
}

impl Table {
    fn add(&mut self, ino: InodeId, bytes: u64) {
        if let Some(counted) = self.inodes.get_mut(&ino) {
            counted.count += 1;
            counted.bytes += bytes;
            return;
        }
        if self.inodes.len() >= 2 * HOT_INODES_KEPT {
            self.prune();
        }
        let over_max = self.floor;
        self.inodes.insert(ino, Counted { count: over_max + 1, over_max, bytes });
    }

    /// Keeps the more frequent half.
    fn prune(&mut self) {
        let mut all: Vec<(InodeId, Counted)> = self.inodes.drain().collect();
        all.sort_unstable_by_key(|(ino, counted)| (Reverse(counted.count), *ino));
        let dropped = all.split_off(HOT_INODES_KEPT.min(all.len()));
        self.floor = dropped.first().map_or(self.floor, |(_, counted)| counted.count.max(self.floor));
        self.inodes.extend(all);
    }
}

/// The tables of all kinds of requests.
pub(crate) struct HotInodes {
    /// By kind; inodes are spread over the tables of a kind, so that threads rarely meet on one.
    kinds: Vec<[Mutex<Table>; HOT_SHARDS]>,
    since: Mutex<Instant>,
}

impl HotInodes {
    pub(crate) fn new(kinds: usize) -> HotInodes {
        let tables = || std::array::from_fn(|_| Mutex::default());
        HotInodes { kinds: (0..kinds).map(|_| tables()).collect(), since: Mutex::new(Instant::now()) }
    }

    /// Counts a request of a kind.
    pub(crate) fn add(&self, kind: usize, ino: InodeId, bytes: u64) {
        let Some(tables) = self.kinds.get(kind) else { return };
        // Inode numbers count up, so neighbours are in different tables.
        if let Some(table) = tables.get(ino.0 as usize % HOT_SHARDS) {
            table.lock().add(ino, bytes);
        }
    }

    /// The first inodes of a kind.
    pub(crate) fn first(&self, kind: usize, by: HotBy, count_max: usize) -> Vec<HotInode> {
        let tables = self.kinds.get(kind).map(<[_; HOT_SHARDS]>::as_slice).unwrap_or_default();
        let mut all = Vec::new();
        for table in tables {
            let table = table.lock();
            all.extend(table.inodes.iter().map(|(ino, counted)| {
                let Counted { count, over_max, bytes } = *counted;
                HotInode { ino: *ino, count, over_max, bytes }
            }));
        }
        all.sort_unstable_by_key(|one| match by {
            HotBy::Count => (Reverse(one.count), Reverse(one.bytes), one.ino),
            HotBy::Bytes => (Reverse(one.bytes), Reverse(one.count), one.ino),
        });
        all.truncate(count_max);
        all
    }

    /// Since when it has been counting.
    pub(crate) fn since(&self) -> Instant {
        *self.since.lock()
    }

    /// Resets the counts.
    pub(crate) fn clear(&self) {
        let mut since = self.since.lock();
        for table in self.kinds.iter().flatten() {
            *table.lock() = Table::default();
        }
        *since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_inode_stays_while_many_rare_ones_are_counted() {
        let hot = HotInodes::new(2);
        let frequent = 7;
        for n in 0..200_000u64 {
            hot.add(1, InodeId(1000 + n), 1);
            if n % 20 == 0 {
                hot.add(1, InodeId(frequent), 100);
            }
        }
        let first = hot.first(1, HotBy::Count, 3);
        let HotInode { ino, count, over_max, bytes } = first[0];
        assert_eq!((ino, first.len()), (InodeId(frequent), 3));
        assert!(count - over_max <= 10_000 && count >= 10_000, "{first:?}");
        assert_eq!(bytes, 1_000_000, "it never left the table");
        assert_eq!(hot.first(1, HotBy::Bytes, 1)[0].ino, InodeId(frequent));
        let kept = hot.first(1, HotBy::Count, usize::MAX).len();
        assert!(kept <= HOT_SHARDS * (2 * HOT_INODES_KEPT + 1), "{kept}");
        assert_eq!(hot.first(0, HotBy::Count, 3), []);
        let since = hot.since();
        hot.clear();
        assert!(hot.first(1, HotBy::Count, 3).is_empty() && hot.since() >= since);
    }

    #[test]
    fn count_of_an_inode_that_came_back_bounds_its_true_count() {
        let mut table = Table::default();
        let (again, mut truth) = (InodeId(1), 0);
        for n in 0..50_000u64 {
            table.add(InodeId(10 + n), 0);
            if n % 1000 == 0 {
                table.add(again, 0);
                truth += 1;
            }
        }
        let Some(Counted { count, over_max, .. }) = table.inodes.get(&again).copied() else { return };
        assert!(count >= truth && count - over_max <= truth, "{count} {over_max} {truth}");
        assert!(table.floor > 0);
    }
}
