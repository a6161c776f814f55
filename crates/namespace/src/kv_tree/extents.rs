//! Content maps: extents of the store, less those that are superseded, plus the new ones.

use super::KvTree;
use crate::kv::{Flow, KvRead};
use crate::stored::{TreeError, decode_extent_within, scan};
use crate::{Tree, keys};
use shoal_types::{Extent, InodeId};
use std::collections::BTreeMap;

/// What has become of a file's extents.
#[derive(Default)]
pub(super) struct FileExtents {
    /// Extents that were put, by offset. They do not overlap each other, nor what the store has beside
    /// `gone`.
    pub(super) live: BTreeMap<u64, Extent>,
    /// Extents of the store that are there no more: offset and end.
    pub(super) gone: BTreeMap<u64, u64>,
    /// Extents of the store that have been read: offset and end.
    seen: BTreeMap<u64, u64>,
    /// Between these offsets the store has no other extents than those seen.
    scanned: (u64, u64),
}

impl FileExtents {
    /// Extents put that overlap a range, in order.
    fn live_within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Extent)> {
        let before =
            self.live.range(..start).next_back().filter(|(offset, live)| *offset + live.len() > start);
        before.into_iter().chain(self.live.range(start..end)).map(|(offset, live)| (*offset, live))
    }
}

impl<S: KvRead + ?Sized> KvTree<'_, S> {
    /// The extents that overlap `[start, end)`, in order, at most `count_max`. Of inline extents of the store
    /// within the range `replaced` only the lengths are true.
    pub(super) fn load_extents(
        &mut self,
        ino: InodeId,
        (start, end): (u64, u64),
        replaced: Option<(u64, u64)>,
        count_max: usize,
    ) -> Result<Vec<(u64, Extent)>, TreeError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let is_new = self.is_new(ino);
        let file = self.extents.entry(ino).or_default();
        let mut found = Vec::new();
        if !is_new {
            let mut all = true;
            let FileExtents { gone, seen, .. } = file;
            scan(self.store, &keys::extents_range(ino, start), |key, value| {
                let (offset, extent) = decode_extent_within(key, value, replaced)?;
                if offset >= end {
                    return Ok(Flow::Break(()));
                }
                if found.len() >= count_max {
                    all = false;
                    return Ok(Flow::Break(()));
                }
                seen.insert(offset, offset + extent.len());
                if !gone.contains_key(&offset) {
                    found.push((offset, extent));
                }
                Ok(Flow::Continue(()))
            })?;
            if all {
                file.scanned = (start, end);
            }
        }
        let from_store = found.len();
        found.extend(file.live_within(start, end).map(|(offset, extent)| (offset, extent.clone())));
        if from_store > 0 && found.len() > from_store {
            found.sort_unstable_by_key(|(offset, _)| *offset);
        }
        found.truncate(count_max);
        Ok(found)
    }

    /// Where the store's extent that begins exactly here ends.
    fn stored_end(&mut self, ino: InodeId, offset: u64) -> Result<Option<u64>, TreeError> {
        if self.is_new(ino) {
            return Ok(None);
        }
        let file = self.extents.entry(ino).or_default();
        if let Some(end) = file.seen.get(&offset) {
            return Ok(Some(*end));
        }
        if (file.scanned.0..file.scanned.1).contains(&offset) {
            return Ok(None);
        }
        let mut found = None;
        scan(self.store, &keys::extents_range(ino, offset), |key, value| {
            let (at, extent) = decode_extent_within(key, value, Some((0, u64::MAX)))?;
            found = (at == offset).then(|| at + extent.len());
            Ok(Flow::Break(()))
        })?;
        if let Some(end) = found {
            file.seen.insert(offset, end);
        }
        Ok(found)
    }

    /// Puts or removes the extent that begins at `offset`, and keeps count.
    pub(super) fn set_extent(&mut self, ino: InodeId, offset: u64, extent: Option<Extent>) {
        let stored = match self.stored_end(ino, offset) {
            Ok(stored) => stored,
            Err(error) => return self.fail(error),
        };
        let file = self.extents.entry(ino).or_default();
        let mut existed = false;
        if let Some(end) = stored {
            existed = file.gone.insert(offset, end).is_none();
        }
        let exists = extent.is_some();
        existed |= match extent {
            Some(extent) => file.live.insert(offset, extent).is_some(),
            None => file.live.remove(&offset).is_some(),
        };
        if existed == exists {
            return;
        }
        if let Some(record) = self.slot_for_write(ino).and_then(|slot| slot.now.as_mut()) {
            record.extents = if exists { record.extents + 1 } else { record.extents.saturating_sub(1) };
        }
    }

    /// Removes an extent of an inode that dies, and its reference.
    pub(super) fn free_extent(&mut self, ino: InodeId, offset: u64, extent: &Extent) {
        self.set_extent(ino, offset, None);
        if let Extent::Block(block) = extent {
            self.drop_block_ref(block.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvStore, MemStore, WriteBatch};
    use crate::records;
    use shoal_types::SessionId;

    #[test]
    fn bytes_that_are_replaced_are_not_copied() {
        let (ino, store) = (InodeId(7), MemStore::new());
        let mut batch = WriteBatch::default();
        for (n, text) in ["one", "two", "six"].into_iter().enumerate() {
            let end = n as u64 * 10 + 3;
            let value = records::encode_extent(&Extent::Inline(text.into()));
            batch.changes.insert(keys::extent(ino, end), Some(value));
        }
        store.write(&batch).unwrap();
        let mut tree = KvTree::new(&store, SessionId::SERVER);
        let found = tree.extents_to_replace(ino, 10, 22).unwrap();
        assert_eq!(found, [(10, Extent::Inline(vec![0; 3].into())), (20, Extent::Inline("six".into()))]);
        assert_eq!(tree.extents(ino, 10, 22).unwrap()[0], (10, Extent::Inline("two".into())));
    }
}
