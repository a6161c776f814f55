//! The tree over a store: reads come from the store, changes are gathered on top of it and become one write
//! batch.
//!
//! **Models** one command of the log. Everything an operation has read or changed stays decoded until
//! [`KvTree::finish`], so that a batch of a thousand operations in one directory decodes and encodes that
//! directory once.
//!
//! **Promises.** The same store and the same calls give the same batch. Nothing reaches the store but through
//! that batch. A write that cannot be carried through, because the store fails under it or is damaged, makes
//! `finish` fail; nothing of it is ever half done.
//!
//! **Maintains**, besides the tree: the counts of inodes and bytes, the list of files worth compacting, each
//! session's list of the inodes it holds, how many extents refer to each block, and the garbage list.
//! [`check`](crate::check) verifies that they agree.

mod blocks;
mod extents;
mod finish;

use crate::kv::{Flow, KvRead};
use crate::records::{BlockRecord, InodeRecord, Life};
use crate::stored::{TreeError, read, read_xattr, scan, split_xattr};
use crate::{Dentry, Fault, Tree, keys, limits};
use blocks::BlockSlot;
use bytes::Bytes;
use extents::FileExtents;
use shoal_types::{BlockId, BlockInfo, Extent, Inode, InodeId, Name, SessionId, XattrName};
use std::collections::BTreeMap;

/// A record of the store, and its present value.
struct Slot<T> {
    /// The value in the store.
    stored: Option<T>,
    /// The value after the command.
    now: Option<T>,
}

/// A tree over a store, with changes that a session makes.
pub struct KvTree<'a, S: KvRead + ?Sized> {
    store: &'a S,
    session: SessionId,
    inodes: BTreeMap<InodeId, Slot<InodeRecord>>,
    dentries: BTreeMap<(InodeId, Name), Slot<Dentry>>,
    xattrs: BTreeMap<InodeId, BTreeMap<XattrName, Slot<Bytes>>>,
    extents: BTreeMap<InodeId, FileExtents>,
    blocks: BTreeMap<BlockId, BlockSlot>,
    /// The first failure of a write.
    fault: Option<TreeError>,
}

impl<'a, S: KvRead + ?Sized> KvTree<'a, S> {
    /// The tree of the store, in which `session` acts.
    pub fn new(store: &'a S, session: SessionId) -> KvTree<'a, S> {
        KvTree {
            store,
            session,
            inodes: BTreeMap::new(),
            dentries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            extents: BTreeMap::new(),
            blocks: BTreeMap::new(),
            fault: None,
        }
    }

    /// Whether the number is in use, be it by an inode that is being taken apart.
    pub fn is_taken(&mut self, ino: InodeId) -> Result<bool, TreeError> {
        Ok(self.slot(ino)?.now.is_some())
    }

    /// The acting session holds the inode, unless that is missing or dead. If it is held by key alone
    /// ([`Life`]), the holder had it to itself, so that no other session can refer to it.
    pub fn hold_if_there(&mut self, ino: InodeId) -> Result<(), TreeError> {
        let session = self.session;
        match &mut self.slot(ino)?.now {
            Some(record) if !record.is_held_by_key_alone() => record.hold(session),
            _ => {}
        }
        Ok(())
    }

    /// Compaction has found nothing to merge in a file: it is left alone until it has twice as many extents.
    pub fn rest_from_compaction(&mut self, ino: InodeId) -> Result<(), TreeError> {
        if let Some(record) = &mut self.slot(ino)?.now {
            record.compact_at = record.extents.saturating_mul(2);
        }
        Ok(())
    }

    /// Removes up to `extents_max` extents of a dead inode, and returns whether there are more.
    pub fn reap(&mut self, ino: InodeId, extents_max: usize) -> Result<bool, TreeError> {
        match &self.slot(ino)?.now {
            Some(record) if record.is_dead() => {}
            _ => return Ok(false),
        }
        let found =
            self.load_extents(ino, (0, u64::MAX), Some((0, u64::MAX)), extents_max.saturating_add(1))?;
        let more = found.len() > extents_max;
        for (offset, extent) in found.into_iter().take(extents_max) {
            self.free_extent(ino, offset, &extent);
        }
        if !more {
            self.slot(ino)?.now = None;
        }
        Ok(more)
    }

    fn slot(&mut self, ino: InodeId) -> Result<&mut Slot<InodeRecord>, TreeError> {
        use std::collections::btree_map::Entry;
        match self.inodes.entry(ino) {
            Entry::Occupied(slot) => Ok(slot.into_mut()),
            Entry::Vacant(place) => {
                let mut stored: Option<InodeRecord> = read(self.store, &keys::inode(ino))?;
                if let Some(record) = &mut stored
                    && record.is_held_by_key_alone()
                    && self.store.get(&keys::hold(self.session, ino))?.is_some()
                {
                    // The session is the one that the record does not tell yet.
                    record.hold(self.session);
                }
                Ok(place.insert(Slot { now: stored.clone(), stored }))
            }
        }
    }

    /// The slot of an inode in a method that must not fail: the failure is kept for `finish`.
    fn slot_for_write(&mut self, ino: InodeId) -> Option<&mut Slot<InodeRecord>> {
        if let Err(error) = self.slot(ino) {
            self.fail(error);
        }
        self.inodes.get_mut(&ino)
    }

    /// Whether the store holds nothing of the inode yet: then there is nothing to look for either.
    fn is_new(&self, ino: InodeId) -> bool {
        self.inodes.get(&ino).is_some_and(|slot| slot.stored.is_none())
    }

    fn fail(&mut self, error: TreeError) {
        self.fault.get_or_insert(error);
    }

    fn xattr_slot(&mut self, ino: InodeId, name: &XattrName) -> Result<&mut Slot<Bytes>, TreeError> {
        use std::collections::btree_map::Entry;
        let is_new = self.is_new(ino);
        match self.xattrs.entry(ino).or_default().entry(name.clone()) {
            Entry::Occupied(slot) => Ok(slot.into_mut()),
            Entry::Vacant(place) => {
                let stored = if is_new { None } else { read_xattr(self.store, &keys::xattr(ino, name))? };
                Ok(place.insert(Slot { now: stored.clone(), stored }))
            }
        }
    }

    fn set_xattr(&mut self, ino: InodeId, name: &XattrName, value: Option<Bytes>) {
        match self.xattr_slot(ino, name) {
            Ok(slot) => slot.now = value,
            Err(error) => self.fail(error),
        }
    }

    fn set_dentry(&mut self, dir: InodeId, name: &Name, dentry: Option<Dentry>) {
        match self.dentry_slot(dir, name) {
            Ok(slot) => slot.now = dentry,
            Err(error) => self.fail(error),
        }
    }

    fn dentry_slot(&mut self, dir: InodeId, name: &Name) -> Result<&mut Slot<Dentry>, TreeError> {
        use std::collections::btree_map::Entry;
        let is_new = self.is_new(dir);
        match self.dentries.entry((dir, name.clone())) {
            Entry::Occupied(slot) => Ok(slot.into_mut()),
            Entry::Vacant(place) => {
                let stored = if is_new { None } else { read(self.store, &keys::dentry(dir, name))? };
                Ok(place.insert(Slot { stored, now: stored }))
            }
        }
    }

    /// Names and sizes of the attributes that the store has and the ones that are changed.
    fn merged_xattr_sizes(&mut self, ino: InodeId) -> Result<BTreeMap<XattrName, usize>, TreeError> {
        let mut sizes = BTreeMap::new();
        if !self.is_new(ino) {
            scan(self.store, &keys::xattrs_range(ino), |key, value| {
                let (name, value) = split_xattr(key, value)?;
                sizes.insert(name, value.len());
                Ok(Flow::Continue(()))
            })?;
        }
        for (name, slot) in self.xattrs.get(&ino).into_iter().flatten() {
            match &slot.now {
                Some(value) => sizes.insert(name.clone(), value.len()),
                None => sizes.remove(name),
            };
        }
        Ok(sizes)
    }

    fn destroy(&mut self, ino: InodeId, last: &Inode) -> Result<(), TreeError> {
        if last.xattrs > 0 {
            let names = self.merged_xattr_sizes(ino)?.into_keys();
            let slots = self.xattrs.entry(ino).or_default();
            for name in names {
                // The values are not read: what the store has of them goes.
                slots.entry(name).or_insert(Slot { stored: Some(Bytes::new()), now: None }).now = None;
            }
        }
        let Some(record) = &mut self.slot(ino)?.now else { return Ok(()) };
        if record.extents > limits::DESTROY_EXTENTS_MAX {
            // The counts no longer know it from now on; only its extents are still there.
            record.life = Life::Dead;
            record.inode = last.clone();
            record.inode.allocated = 0;
            return Ok(());
        }
        if record.extents > 0 {
            for (offset, extent) in self.load_extents(ino, (0, u64::MAX), Some((0, u64::MAX)), usize::MAX)? {
                self.free_extent(ino, offset, &extent);
            }
        }
        self.slot(ino)?.now = None;
        Ok(())
    }
}

impl<S: KvRead + ?Sized> Tree for KvTree<'_, S> {
    type Error = TreeError;

    fn inode(&mut self, ino: InodeId) -> Result<Option<Inode>, Fault<TreeError>> {
        let record = self.slot(ino)?.now.as_ref();
        Ok(record.filter(|record| !record.is_dead()).map(|record| record.inode.clone()))
    }

    fn put_inode(&mut self, ino: InodeId, inode: Inode) {
        if let Some(slot) = self.slot_for_write(ino) {
            match &mut slot.now {
                Some(record) => record.inode = inode,
                None => slot.now = Some(InodeRecord::new(inode)),
            }
        }
    }

    fn destroy_inode(&mut self, ino: InodeId, last: &Inode) {
        if let Err(error) = self.destroy(ino, last) {
            self.fail(error);
        }
    }

    fn dentry(&mut self, dir: InodeId, name: &Name) -> Result<Option<Dentry>, Fault<TreeError>> {
        Ok(self.dentry_slot(dir, name)?.now)
    }

    fn put_dentry(&mut self, dir: InodeId, name: &Name, dentry: Dentry) {
        self.set_dentry(dir, name, Some(dentry));
    }

    fn remove_dentry(&mut self, dir: InodeId, name: &Name) {
        self.set_dentry(dir, name, None);
    }

    fn xattr(&mut self, ino: InodeId, name: &XattrName) -> Result<Option<Bytes>, Fault<TreeError>> {
        Ok(self.xattr_slot(ino, name)?.now.clone())
    }

    fn xattr_sizes(&mut self, ino: InodeId) -> Result<Vec<(XattrName, usize)>, Fault<TreeError>> {
        Ok(self.merged_xattr_sizes(ino)?.into_iter().collect())
    }

    fn put_xattr(&mut self, ino: InodeId, name: &XattrName, value: Bytes) {
        self.set_xattr(ino, name, Some(value));
    }

    fn remove_xattr(&mut self, ino: InodeId, name: &XattrName) {
        self.set_xattr(ino, name, None);
    }

    fn extents(
        &mut self,
        ino: InodeId,
        start: u64,
        end: u64,
    ) -> Result<Vec<(u64, Extent)>, Fault<TreeError>> {
        Ok(self.load_extents(ino, (start, end), None, usize::MAX)?)
    }

    fn extents_to_replace(
        &mut self,
        ino: InodeId,
        start: u64,
        end: u64,
    ) -> Result<Vec<(u64, Extent)>, Fault<TreeError>> {
        let around = (start.saturating_sub(1), end.saturating_add(1));
        Ok(self.load_extents(ino, around, Some((start, end)), usize::MAX)?)
    }

    fn put_extent(&mut self, ino: InodeId, offset: u64, extent: Extent) {
        self.set_extent(ino, offset, Some(extent));
    }

    fn remove_extent(&mut self, ino: InodeId, offset: u64) {
        self.set_extent(ino, offset, None);
    }

    fn declare_block(&mut self, ino: InodeId, id: BlockId, info: BlockInfo) {
        self.blocks.insert(id, BlockSlot::declared(BlockRecord { refs: 0, info }, ino));
    }

    fn add_block_ref(&mut self, id: BlockId) {
        self.count_block(id, 1);
    }

    fn drop_block_ref(&mut self, id: BlockId) {
        self.count_block(id, -1);
    }

    fn is_held_elsewhere(&mut self, ino: InodeId) -> Result<bool, Fault<TreeError>> {
        let session = self.session;
        let Some(record) = &self.slot(ino)?.now else { return Ok(false) };
        Ok(record.is_held_by_key_alone() || record.holders().iter().any(|holder| *holder != session))
    }

    fn hold(&mut self, ino: InodeId) {
        let session = self.session;
        if let Some(Slot { now: Some(record), .. }) = self.slot_for_write(ino) {
            record.hold(session);
        }
    }

    fn release(&mut self, ino: InodeId) {
        let session = self.session;
        if let Some(Slot { now: Some(record), .. }) = self.slot_for_write(ino) {
            record.release(session);
        }
    }
}
