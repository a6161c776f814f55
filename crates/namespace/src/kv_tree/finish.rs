//! Turns what has been gathered into one write batch.

use super::blocks::BlockSlot;
use super::{KvTree, Slot};
use crate::heat::{self, HotRecord};
use crate::kv::{KvRead, WriteBatch};
use crate::records::{self, BlockRecord, Counters, InodeRecord};
use crate::stored::{TreeError, read};
use crate::{keys, limits};
use bytes::Bytes;
use shoal_types::{BlockId, InodeId};

impl<S: KvRead + ?Sized> KvTree<'_, S> {
    /// All changes, as one batch; or why there can be none.
    pub fn finish(mut self) -> Result<WriteBatch, TreeError> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let mut batch = Batch(WriteBatch::default());
        self.finish_inodes(&mut batch)?;
        for ((dir, name), slot) in &self.dentries {
            batch.put_difference(slot, || keys::dentry(*dir, name), records::encode);
        }
        for (ino, slots) in &self.xattrs {
            for (name, slot) in slots {
                batch.put_difference(slot, || keys::xattr(*ino, name), |value| records::encode_xattr(value));
            }
        }
        for (ino, file) in &self.extents {
            for end in file.gone.values() {
                batch.remove(keys::extent(*ino, *end));
            }
            for (offset, extent) in &file.live {
                batch.put(keys::extent(*ino, offset + extent.len()), records::encode_extent(extent));
            }
        }
        let replica = if self.blocks.is_empty() { 0 } else { crate::query::replica(self.store)? };
        for (id, slot) in &self.blocks {
            finish_block(&mut batch, *id, slot, replica)?;
            self.finish_heat(&mut batch, *id, slot)?;
        }
        Ok(batch.0)
    }

    /// Keeps the index of the hot tier in step with the records of blocks.
    fn finish_heat(&self, batch: &mut Batch, id: BlockId, slot: &BlockSlot) -> Result<(), TreeError> {
        let was = slot.stored.as_ref().is_some_and(heat::is_indexed);
        let is = slot.now().as_ref().is_some_and(heat::is_indexed);
        match (was, is) {
            (false, true) => {
                let owner = self.inodes.get(&slot.owner).and_then(|inode| inode.now.as_ref());
                let since = owner.map_or(0, |record| heat::seconds(record.inode.ctime));
                heat::insert(&mut batch.0, id, HotRecord { since, owner: slot.owner });
                Ok(())
            }
            (true, false) => heat::remove(self.store, &mut batch.0, id),
            _ => Ok(()),
        }
    }

    fn finish_inodes(&mut self, batch: &mut Batch) -> Result<(), TreeError> {
        // Sums modulo 2^64: exact in the end whatever they run through on the way.
        let (mut inodes, mut bytes) = (0u64, 0u64);
        for (ino, slot) in &mut self.inodes {
            let Slot { stored, now } = slot;
            if let Some(now) = now
                && now.extents < limits::COMPACT_EXTENTS_MIN
            {
                now.compact_at = limits::COMPACT_EXTENTS_MIN;
            }
            if stored == now {
                continue;
            }
            let counts = |record: &Option<InodeRecord>| match record {
                Some(record) if !record.is_dead() => (1, record.inode.allocated),
                _ => (0, 0),
            };
            let (before, after) = (counts(stored), counts(now));
            inodes = inodes.wrapping_add(after.0).wrapping_sub(before.0);
            bytes = bytes.wrapping_add(after.1).wrapping_sub(before.1);
            finish_marks(batch, *ino, stored.as_ref(), now.as_ref());
            finish_holds(batch, *ino, stored.as_ref(), now.as_ref());
            batch.put_difference(slot, || keys::inode(*ino), records::encode);
        }
        if inodes == 0 && bytes == 0 {
            return Ok(());
        }
        let key = keys::singleton(keys::Singleton::Counters);
        let mut counters: Counters =
            read(self.store, &key)?.ok_or_else(|| TreeError::damaged(&key, "it is not there"))?;
        counters.inodes = counters.inodes.wrapping_add(inodes);
        counters.used_bytes = counters.used_bytes.wrapping_add(bytes);
        batch.put(key, records::encode(&counters));
        Ok(())
    }
}

/// Keeps the lists of files to compact and of dead inodes in step with the records.
fn finish_marks(batch: &mut Batch, ino: InodeId, stored: Option<&InodeRecord>, now: Option<&InodeRecord>) {
    let mut mark = |is: fn(&InodeRecord) -> bool, key: fn(InodeId) -> Vec<u8>| {
        let slot =
            Slot { stored: stored.filter(|r| is(r)).map(|_| ()), now: now.filter(|r| is(r)).map(|_| ()) };
        batch.put_difference(&slot, || key(ino), |()| records::present());
    };
    mark(InodeRecord::wants_compaction, keys::compact);
    mark(InodeRecord::is_dead, keys::reap);
}

/// Keeps the sessions' lists of what they hold in step with the records.
fn finish_holds(batch: &mut Batch, ino: InodeId, stored: Option<&InodeRecord>, now: Option<&InodeRecord>) {
    let before = stored.map_or(&[][..], InodeRecord::holders);
    let after = now.map_or(&[][..], InodeRecord::holders);
    for session in before.iter().filter(|session| !after.contains(session)) {
        batch.remove(keys::hold(*session, ino));
    }
    for session in after.iter().filter(|session| !before.contains(session)) {
        batch.put(keys::hold(*session, ino), records::present());
    }
}

fn finish_block(batch: &mut Batch, id: BlockId, slot: &BlockSlot, replica: u8) -> Result<(), TreeError> {
    let BlockSlot { stored, declared, gained, .. } = slot;
    let Some(record) = declared.or(*stored).filter(|_| declared.is_some() || *gained != 0) else {
        return Ok(());
    };
    let key = keys::block(id);
    let now = slot.now().ok_or_else(|| {
        TreeError::damaged(&key, format!("{} references, of which {} go", record.refs, -gained))
    })?;
    if now.refs == 0 {
        batch.put(keys::garbage(id), records::encode(&record.info));
    }
    let mark = |record: &BlockRecord| record.is_degraded(replica).then_some(());
    let marks = Slot { stored: stored.as_ref().and_then(mark), now: mark(&now) };
    batch.put_difference(&marks, || keys::degraded(id), |()| records::present());
    batch.put(key, records::encode(&now));
    Ok(())
}

struct Batch(WriteBatch);

impl Batch {
    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.0.changes.insert(key, Some(value));
    }

    fn remove(&mut self, key: Vec<u8>) {
        self.0.changes.insert(key, None);
    }

    /// Puts what is new or different, removes what is gone, and leaves the rest alone.
    fn put_difference<T: PartialEq>(
        &mut self,
        slot: &Slot<T>,
        key: impl FnOnce() -> Vec<u8>,
        encode: impl FnOnce(&T) -> Bytes,
    ) {
        match (&slot.stored, &slot.now) {
            (before, Some(now)) if before.as_ref() != Some(now) => self.put(key(), encode(now)),
            (Some(_), None) => self.remove(key()),
            _ => {}
        }
    }
}
