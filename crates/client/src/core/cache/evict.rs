//! Eviction from a cache that is above its limit.

use super::{Body, Cache, Content, NODE_BYTES, Node, extent_bytes};
use crate::limits::{
    EVICT_BURST_STEPS, EVICT_EXTENTS_REST, EVICT_REGIONS_MAX, EVICT_STEPS, EXTENTS_ALIGN_BYTES,
};
use shoal_types::{Extent, InodeId};

impl Cache {
    /// While the cache is above its limit, visits a few nodes and evicts those that are neither uncommitted
    /// nor recently used. Never called during an operation, so what an operation has read stays cached.
    ///
    /// Content that was read gets no second chance: content that was fetched ahead is still to be read. Of a
    /// file that is being written the committed extents are evicted.
    pub(in super::super) fn evict(&mut self) {
        // A listing can bring thousands of nodes at once, and each may have to be visited twice.
        let excess = self.bytes.saturating_sub(self.bytes_max) / NODE_BYTES;
        let mut pinned_left = EVICT_STEPS;
        for _ in 0..EVICT_STEPS + (2 * excess).min(EVICT_BURST_STEPS) {
            if self.bytes <= self.bytes_max {
                return;
            }
            let Some(ino) = self.clock.pop_front() else { return };
            let Some(node) = self.nodes.get_mut(&ino) else { continue };
            let pinned = node.modified > self.acked || node.inode.nlink == 0 || ino == InodeId::ROOT;
            if !pinned && node.is_read() {
                self.clock.push_back(ino);
                self.forget_extents(ino);
                continue;
            }
            if pinned || std::mem::take(&mut node.recent) {
                self.clock.push_back(ino);
                if pinned {
                    self.forget_committed_extents(ino);
                    pinned_left -= 1;
                    if pinned_left == 0 {
                        return;
                    }
                }
                continue;
            }
            self.remove(ino);
        }
    }

    /// Evicts the extents of a file, so that they are fetched again, unless one of them is uncommitted.
    pub(crate) fn forget_extents(&mut self, ino: InodeId) {
        let acked = self.acked;
        if let Some(Node { body: Body::File(content), modified, .. }) = self.peek_mut(ino)
            && *modified <= acked
        {
            let (modified, freed) = (*modified, content.extents.values().map(extent_bytes).sum::<usize>());
            *content = Content::default();
            self.bytes -= freed;
            self.note_eviction(modified);
        }
    }

    /// Evicts committed extents of a file that has others, region by region, until there is room for some
    /// time. An unlinked file is left alone: servers may not know it.
    fn forget_committed_extents(&mut self, ino: InodeId) {
        let excess = self.bytes.saturating_sub(self.bytes_max - self.bytes_max / EVICT_EXTENTS_REST);
        let Some(Node { body: Body::File(content), inode, .. }) = self.nodes.get_mut(&ino).map(Box::as_mut)
        else {
            return;
        };
        if inode.nlink == 0 || !content.extents.is_many() || self.uncommitted.was_looked_up(ino) {
            return;
        }
        let kept = self.uncommitted.look_up(ino);
        let (mut at, mut freed) = (content.evicted_to, 0);
        for _ in 0..EVICT_REGIONS_MAX {
            let next = content.extents.range(at..u64::MAX).next();
            let Some((first, _)) = next.or_else(|| content.extents.iter().next()) else { break };
            let start = first - first % EXTENTS_ALIGN_BYTES;
            let end = start.saturating_add(EXTENTS_ALIGN_BYTES);
            for (from, to) in kept.gaps(start, end) {
                freed += content.forget(from, to);
            }
            at = end;
            if freed >= excess {
                break;
            }
        }
        content.evicted_to = at;
        self.bytes -= freed;
        self.note_eviction(self.acked);
    }
}

impl Content {
    /// Forgets what is known of `[start, end)`. Returns the freed bytes.
    fn forget(&mut self, start: u64, end: u64) -> usize {
        let mut freed = 0;
        let found: Vec<(u64, Extent)> =
            self.overlapping(start, end).map(|(at, extent)| (at, extent.clone())).collect();
        for (at, extent) in found {
            self.extents.remove(at);
            freed += extent_bytes(&extent);
            let (from, to) = (at, at + extent.len());
            for (from, to) in [(from, start.min(to)), (end.max(from), to)] {
                if from < to {
                    let part = extent.slice(from - at, to - from);
                    freed -= extent_bytes(&part).min(freed);
                    self.extents.insert(from, part);
                }
            }
        }
        self.known.remove(start, end);
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{commit, core, make_file};
    use super::*;
    use crate::core::{Core, Piece};
    use crate::limits::EXTENTS_PAGE_EVICTED;
    use bytes::Bytes;
    use shoal_namespace::Tree;
    use shoal_types::{BatchSeq, FileKind, Inode, Name, Timestamp};

    const KIB: usize = 1 << 10;

    fn name(n: usize) -> Name {
        Name::try_from(format!("file{n}").as_str()).expect("a name")
    }

    #[test]
    fn full_cache_visits_few_uncommitted_inodes_for_one_call() {
        let mut core = core();
        (0..100).for_each(|n| _ = make_file(&mut core, InodeId::ROOT, &name(n)));
        let cache = &mut core.cache;
        cache.set_bytes_max(0);
        let before = cache.clock.clone();
        cache.evict();
        assert_eq!(cache.clock.len(), before.len(), "none can be evicted");
        assert_eq!(cache.clock.front(), before.get(EVICT_STEPS), "the next one to be visited");
    }

    #[test]
    fn committed_extents_of_a_file_that_is_being_written_are_evicted_and_others_are_not() {
        let mut core = core();
        let ino = make_file(&mut core, InodeId::ROOT, &name(0));
        core.room = u64::MAX / 2;
        let now = Timestamp::default();
        let write = |core: &mut Core, n: usize| {
            let offset = (n * 64 * KIB) as u64;
            core.write(ino, offset, &Bytes::from(vec![n as u8; KIB]), false, now).expect("nothing is needed");
        };
        // As a whole in regions that are evicted together, with holes between the extents.
        write(&mut core, 4095);
        (0..4095).for_each(|n| write(&mut core, n));
        commit(&mut core);
        [1000, 1001, 2000].into_iter().for_each(|n| write(&mut core, n));
        core.cache.set_bytes_max(1 << 20);
        core.cache.evict();
        assert!(core.cache.bytes() <= 1 << 20, "{} bytes", core.cache.bytes());
        for n in [1000, 1001, 2000] {
            let read = core.read(ino, (n * 64 * KIB) as u64, KIB as u64).expect("uncommitted");
            assert_eq!(read, [Piece::Bytes(vec![n as u8; KIB].into())]);
        }
        assert_eq!(core.extents_page(ino), EXTENTS_PAGE_EVICTED);
        let lacking = (0..4096).filter(|n| core.read(ino, (n * 64 * KIB) as u64, 1).is_err()).count();
        assert!((3000..4093).contains(&lacking), "{lacking}");
        // When they are committed, too, nothing of the file has to stay.
        commit(&mut core);
        core.cache.nodes.get_mut(&ino).expect("cached").modified = BatchSeq(u64::MAX);
        core.cache.set_bytes_max(64 * KIB);
        core.cache.evict();
        assert!(core.cache.bytes() < 128 * KIB, "{} bytes", core.cache.bytes());
    }

    #[test]
    fn file_without_a_name_keeps_its_extents_also_when_it_has_got_one() {
        let mut cache = Cache::new(0);
        cache.set_stamp(BatchSeq(1));
        let inode = core().cache.peek(InodeId::ROOT).expect("cached").inode.clone();
        let (ino, unnamed) = (InodeId(9), Inode { kind: FileKind::Regular, nlink: 0, ..inode });
        cache.put_inode(ino, unnamed.clone());
        (0..8).for_each(|n| cache.put_extent(ino, n * 8192, Extent::Inline(vec![1; KIB].into())));
        let extents = |cache: &Cache| match &cache.peek(ino).expect("cached").body {
            Body::File(content) => content.extents.iter().count(),
            _ => 0,
        };
        // Nothing of it was sent: there was no name.
        cache.set_acked(BatchSeq(1));
        cache.evict();
        assert_eq!(extents(&cache), 8);
        cache.set_stamp(BatchSeq(2));
        cache.put_inode(ino, Inode { nlink: 1, ..unnamed });
        cache.evict();
        assert_eq!(extents(&cache), 8);
        cache.set_acked(BatchSeq(2));
        cache.set_stamp(BatchSeq(3));
        cache.put_extent(ino, 0, Extent::Inline(vec![2; KIB].into()));
        cache.nodes.get_mut(&ino).expect("cached").modified = BatchSeq(3);
        cache.evict();
        assert_eq!(extents(&cache), 1);
    }
}
