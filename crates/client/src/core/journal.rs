//! The journal: operations in the order in which they were done, cut into batches.
//!
//! The *open* batch still grows. A batch is applied as a whole or not at all. So inside it operations may be
//! merged, and those that cancel out dropped: the final state is the same, and no client sees a state in
//! between. A *sealed* batch never changes again. Commit order is journal order.
//!
//! Merging is exact: the server must end with the very state that this client shows, times included. So an
//! operation is merged only into the latest one on its inode, with nothing in between that touched it.

use super::blocks::Blocks;
use super::cache::Cache;
use crate::limits::{BATCH_INLINED_BYTES_MAX, OP_OVERHEAD_BYTES};
use rustc_hash::FxHashMap;
use shoal_namespace::{Op, SetAttr};
use shoal_types::{BatchSeq, BlockId, BlockInfo, BlockRef, Extent, InodeId, Timestamp, limits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A batch to be sent.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) seq: BatchSeq,
    pub(crate) ops: Vec<Op>,
    /// Blocks that must be durable first.
    pub(crate) blocks: Vec<BlockId>,
    /// Inodes created or moved to another cover, each with its cover: `born` of [`shoal_wire::Commit`].
    pub(crate) born: Vec<(InodeId, InodeId)>,
    /// Deleted inodes, the rights to which end: `gone` of [`shoal_wire::Commit`].
    pub(crate) gone: Vec<InodeId>,
}

/// The operations of the open batch on an inode.
#[derive(Debug, Default)]
struct Track {
    /// Indexes of the operations on it.
    ops: Vec<u32>,
    /// Operations that change names in it.
    as_parent: u32,
    /// Made in this batch.
    created: bool,
    /// Entangled with other inodes (renamed, linked, cloned): its operations cannot simply be left out.
    entangled: bool,
    /// The latest operation on it, into which a next one may be merged. `None` once a name in it was changed.
    last: Option<u32>,
    /// The last unlink, rmdir or rename of it.
    unlinked: Option<u32>,
}

#[derive(Debug, Default)]
struct Open {
    ops: Vec<Option<Op>>,
    tracks: FxHashMap<InodeId, Track>,
    /// Directories of files that were created and deleted in this batch: their times have changed.
    touched: BTreeSet<InodeId>,
    /// Inodes that were created in this batch, or moved to another cover: the cover, and whether they were
    /// created.
    born: BTreeMap<InodeId, (InodeId, bool)>,
    /// Deleted inodes to which there was a right.
    gone: Vec<InodeId>,
    bytes: usize,
    room: u64,
    /// Number of operations before merging.
    recorded: u64,
    /// Time of the first of them.
    since: Option<Timestamp>,
}

/// Totals of a batch that is not committed.
#[derive(Debug)]
struct Uncommitted {
    seq: BatchSeq,
    bytes: u64,
    room: u64,
    recorded: u64,
    since: Option<Timestamp>,
}

/// The journal of a session.
pub(crate) struct Journal {
    open: Open,
    open_seq: BatchSeq,
    /// Sealed and not yet taken by the session.
    sealed: VecDeque<Sealed>,
    /// Sealed and not yet committed, taken or not.
    uncommitted: VecDeque<Uncommitted>,
    uncommitted_bytes: u64,
    uncommitted_room: u64,
    /// Operations recorded, merged into others, and dropped because they cancelled out.
    pub(crate) recorded: u64,
    pub(crate) merged: u64,
    pub(crate) cancelled: u64,
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal {
            open: Open::default(),
            open_seq: BatchSeq(1),
            sealed: VecDeque::new(),
            uncommitted: VecDeque::new(),
            uncommitted_bytes: 0,
            uncommitted_room: 0,
            recorded: 0,
            merged: 0,
            cancelled: 0,
        }
    }

    /// Bytes of operations in the open batch.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.bytes
    }

    /// Whether there is something to seal.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.ops.is_empty()
    }

    /// Whether there is something to send.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Blocks that must be durable before the next batch is sent.
    pub(crate) fn next_blocks(&self) -> &[BlockId] {
        self.sealed.front().map_or(&[], |sealed| &sealed.blocks)
    }

    /// The next batch to send.
    pub(crate) fn take_sealed(&mut self) -> Option<Sealed> {
        self.sealed.pop_front()
    }

    /// The newest sealed batch.
    pub(crate) fn last_sealed(&self) -> BatchSeq {
        BatchSeq(self.open_seq.0 - 1)
    }

    /// Bytes of operations that are not committed, the open batch included.
    pub(crate) fn uncommitted_bytes(&self) -> u64 {
        self.uncommitted_bytes + self.open.bytes as u64
    }

    /// Room that uncommitted operations were charged.
    pub(crate) fn uncommitted_room(&self) -> u64 {
        self.uncommitted_room + self.open.room
    }

    /// The number of uncommitted operations, before merging, and the time of the first.
    pub(crate) fn uncommitted_operations(&self) -> (u64, Option<Timestamp>) {
        let sealed = self.uncommitted.iter().map(|batch| (batch.recorded, batch.since));
        let open = self.has_open().then_some((self.open.recorded, self.open.since));
        sealed.chain(open).fold((0, None), |(count, first), (more, since)| (count + more, first.or(since)))
    }

    /// Batches sealed and not committed.
    pub(crate) fn uncommitted_batches(&self) -> usize {
        self.uncommitted.len()
    }

    pub(super) fn committed(&mut self, seq: BatchSeq) {
        while let Some(first) = self.uncommitted.front()
            && first.seq <= seq
        {
            self.uncommitted_bytes -= first.bytes;
            self.uncommitted_room -= first.room;
            self.uncommitted.pop_front();
        }
    }

    /// A new inode is known to this client alone.
    pub(super) fn born(&mut self, ino: InodeId, cover: InodeId) {
        self.open.born.insert(ino, (cover, true));
    }

    /// An inode has another cover from now on.
    pub(super) fn moved(&mut self, ino: InodeId, cover: InodeId) {
        self.open.born.entry(ino).or_insert((cover, false)).0 = cover;
    }

    /// An inode is deleted. Returns whether it may have been sent to the servers.
    pub(super) fn gone(&mut self, ino: InodeId) -> bool {
        let known = !self.open.born.remove(&ino).is_some_and(|(_, made)| made);
        if known {
            self.open.gone.push(ino);
        }
        known
    }

    /// Records an operation that the cache has carried out.
    pub(super) fn record(
        &mut self,
        op: Op,
        subjects: &[InodeId],
        parents: &[InodeId],
        room: u64,
        cache: &mut Cache,
        blocks: &mut Blocks,
    ) {
        self.recorded += 1;
        self.open.count(&op);
        self.open.room += room;
        if let [ino] = subjects
            && parents.is_empty()
            && self.open.merge(*ino, &op, cache, blocks)
        {
            self.merged += 1;
            return;
        }
        // If this deletes an inode whose whole history is in this batch, the history is dropped.
        let (parent, removes) = match &op {
            Op::Unlink { parent, keep: false, .. } | Op::Rmdir { parent, keep: false, .. } => (*parent, true),
            _ => (InodeId::ROOT, false),
        };
        let index = self.open.push(op, subjects, parents, blocks);
        if let ([ino], true) = (subjects, removes)
            && !cache.contains(*ino)
        {
            self.cancel(*ino, index, parent, blocks);
        }
    }

    /// Records that an inode is not held any more. `died`: it was an orphan, and is deleted.
    pub(super) fn record_forget(&mut self, op: Op, ino: InodeId, died: bool, blocks: &mut Blocks) {
        self.recorded += 1;
        self.open.count(&op);
        if died && self.cancel_unnamed(ino, blocks) {
            return;
        }
        // An operation after the loss of the last name needs the inode, so the removal must keep it.
        let unlinked = self
            .open
            .tracks
            .get(&ino)
            .and_then(|track| track.unlinked.filter(|index| track.ops.last() == Some(index)));
        // An inode that lives on may have been moved by that operation, not replaced.
        let Some(index) = unlinked.filter(|_| died) else {
            self.open.push(op, &[ino], &[], blocks);
            return;
        };
        // The operation that removed the last name is in the open batch: it need not keep the inode.
        self.merged += 1;
        let mut parent = None;
        if let Some(Some(
            Op::Unlink { keep, parent: p, .. }
            | Op::Rmdir { keep, parent: p, .. }
            | Op::Rename { keep, to: p, .. },
        )) = self.open.ops.get_mut(index as usize)
        {
            *keep = false;
            parent = Some(*p);
        }
        if let Some(parent) = parent {
            self.cancel(ino, index, parent, blocks);
        }
    }

    /// Drops all operations on an inode that was made and deleted in the open batch. Only the new times of
    /// its directory remain.
    fn cancel(&mut self, ino: InodeId, removal: u32, parent: InodeId, blocks: &mut Blocks) {
        let open = &mut self.open;
        let cancels = open
            .tracks
            .get(&ino)
            .is_some_and(|track| track.created && !track.entangled && track.as_parent == 0);
        if !cancels {
            return;
        }
        // A rename that replaced the inode must be sent.
        if !matches!(open.ops.get(removal as usize), Some(Some(Op::Unlink { .. } | Op::Rmdir { .. }))) {
            return;
        }
        self.drop_operations(ino, blocks);
        self.open.touched.insert(parent);
    }

    /// Drops all operations on a file without a name, if they are all in the open batch. Returns whether it
    /// did.
    fn cancel_unnamed(&mut self, ino: InodeId, blocks: &mut Blocks) -> bool {
        let Some(track) = self.open.tracks.get(&ino) else { return false };
        let first = track.ops.first().and_then(|index| self.open.ops.get(*index as usize));
        let cancels = matches!(first, Some(Some(Op::CreateUnnamed { .. }))) && !track.entangled;
        if cancels {
            self.drop_operations(ino, blocks);
        }
        cancels
    }

    fn drop_operations(&mut self, ino: InodeId, blocks: &mut Blocks) {
        let open = &mut self.open;
        let track = open.tracks.remove(&ino).unwrap_or_default();
        for index in track.ops {
            let Some(op) = open.ops[index as usize].take() else { continue };
            self.cancelled += 1;
            open.bytes -= op_bytes(&op);
            match op {
                Op::Create { parent, .. } | Op::Unlink { parent, .. } | Op::Rmdir { parent, .. } => {
                    if let Some(track) = open.tracks.get_mut(&parent) {
                        track.as_parent -= 1;
                        if track.last == Some(index) {
                            track.last = None;
                        }
                    }
                }
                Op::Write { declare: Some((id, _)), .. } => blocks.abandon(id),
                _ => {}
            }
        }
    }

    /// Seals the open batch, if there is anything in it.
    pub(super) fn seal(&mut self, cache: &mut Cache, blocks: &mut Blocks, inline_bytes: u64) {
        if self.open.ops.is_empty() {
            return;
        }
        let mut open = std::mem::take(&mut self.open);
        open.finish_touched(cache, blocks);
        let begun = open.finish_blocks(cache, blocks, inline_bytes);
        let ops: Vec<Op> = open.ops.into_iter().flatten().collect();
        if ops.is_empty() {
            // Everything cancelled out: what is stamped with this number equals the server's state.
            (self.open.room, self.open.born, self.open.gone) = (open.room, open.born, open.gone);
            return;
        }
        let seq = self.open_seq;
        self.open_seq = seq.next();
        cache.set_stamp(self.open_seq);
        let Open { bytes, room, recorded, since, .. } = open;
        self.uncommitted.push_back(Uncommitted { seq, bytes: bytes as u64, room, recorded, since });
        self.uncommitted_bytes += open.bytes as u64;
        self.uncommitted_room += open.room;
        let born = open.born.into_iter().map(|(ino, (cover, _))| (ino, cover)).collect();
        self.sealed.push_back(Sealed { seq, ops, blocks: begun, born, gone: open.gone });
    }
}

/// Bytes that an operation is charged for in the journal.
fn op_bytes(op: &Op) -> usize {
    OP_OVERHEAD_BYTES
        + match op {
            Op::Write { content: Some(Extent::Inline(bytes)), .. } => bytes.len(),
            Op::SetXattr { value, .. } => value.len(),
            Op::Create { new, .. } | Op::CreateUnnamed { new, .. } => {
                new.target.len() + new.xattrs.iter().map(|(_, value)| value.len() + 64).sum::<usize>()
            }
            _ => 0,
        }
}

impl Open {
    fn count(&mut self, op: &Op) {
        self.recorded += 1;
        self.since = self.since.or_else(|| op.time());
    }

    fn push(&mut self, op: Op, subjects: &[InodeId], parents: &[InodeId], blocks: &mut Blocks) -> u32 {
        let index = self.ops.len() as u32;
        self.bytes += op_bytes(&op);
        let created = matches!(op, Op::Create { .. } | Op::CreateUnnamed { .. });
        let entangled =
            matches!(op, Op::Link { .. } | Op::Rename { .. } | Op::CloneRange { .. } | Op::Compact { .. });
        let removes = matches!(op, Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. });
        if let Op::Write { content: Some(Extent::Block(block)), .. } = &op {
            blocks.name(block.id);
        }
        self.ops.push(Some(op));
        for ino in subjects {
            let track = self.tracks.entry(*ino).or_default();
            track.ops.push(index);
            track.created |= created;
            track.entangled |= entangled;
            track.last = Some(index);
            if removes {
                track.unlinked = Some(index);
            }
        }
        for dir in parents {
            let track = self.tracks.entry(*dir).or_default();
            track.as_parent += 1;
            track.last = None;
        }
        index
    }

    /// Tries to make the operation part of the latest one on its inode.
    fn merge(&mut self, ino: InodeId, op: &Op, cache: &Cache, blocks: &mut Blocks) -> bool {
        let Some(index) = self.tracks.get(&ino).and_then(|track| track.last) else { return false };
        let Some(Some(earlier)) = self.ops.get_mut(index as usize) else { return false };
        let before = op_bytes(earlier);
        let merged = match (&mut *earlier, op) {
            (Op::SetAttr { set, .. }, Op::SetAttr { set: later, .. }) => merge_attrs(set, later),
            (Op::Write { .. }, Op::Write { .. }) => merge_writes(ino, earlier, op, cache, blocks),
            _ => false,
        };
        let after = op_bytes(earlier);
        self.bytes = self.bytes + after - before;
        merged
    }

    /// Sets the times of directories whose files were made and deleted in this batch.
    fn finish_touched(&mut self, cache: &mut Cache, blocks: &mut Blocks) {
        for dir in std::mem::take(&mut self.touched) {
            if let Some(node) = cache.node(dir) {
                let (mtime, ctime) = (Some(node.inode.mtime), Some(node.inode.ctime));
                let set = SetAttr { mtime, ctime, ..SetAttr::default() };
                self.push(Op::SetAttr { ino: dir, set }, &[dir], &[], blocks);
            }
        }
    }

    /// Closes the batch's blocks: small ones become inline bytes, the others get their final length. Returns
    /// those that must be durable before the batch may be sent.
    fn finish_blocks(&mut self, cache: &mut Cache, blocks: &mut Blocks, inline_bytes: u64) -> Vec<BlockId> {
        let begun = blocks.take_batch();
        if begun.is_empty() {
            return Vec::new();
        }
        let mut inlined = 0;
        for op in self.ops.iter_mut().flatten() {
            let Op::Write { ino, offset, len, content, declare, .. } = op else { continue };
            let Some((id, info)) = declare else { continue };
            let id = *id;
            let block_len = *begun.get(&id).expect("a batch declares none but the blocks begun in it");
            *info = BlockInfo { len: block_len, group: info.group };
            let whole = Extent::Block(BlockRef { id, offset: 0, len: block_len });
            if *len == u64::from(block_len)
                && content.as_ref() == Some(&whole)
                && inlined + block_len as usize <= BATCH_INLINED_BYTES_MAX
                && blocks.may_inline(id, inline_bytes)
                && let Some(bytes) = blocks.concat(id)
                && cache.replace_same(*ino, *offset, &whole, Extent::Inline(bytes.clone()))
            {
                self.bytes += bytes.len();
                inlined += bytes.len();
                *content = Some(Extent::Inline(bytes));
                *declare = None;
                blocks.abandon(id);
            }
        }
        for id in begun.keys() {
            blocks.close(*id);
        }
        begun.into_keys().filter(|id| blocks.pending_len(*id).is_some()).collect()
    }
}

/// Merges a later change of attributes into an earlier one, unless order matters.
fn merge_attrs(earlier: &mut SetAttr, later: &SetAttr) -> bool {
    if earlier.size.is_some() || later.size.is_some() || earlier.clear_setid || later.clear_setid {
        return false;
    }
    earlier.perm = later.perm.or(earlier.perm);
    earlier.uid = later.uid.or(earlier.uid);
    earlier.gid = later.gid.or(earlier.gid);
    earlier.atime = later.atime.or(earlier.atime);
    earlier.mtime = later.mtime.or(earlier.mtime);
    earlier.ctime = later.ctime.or(earlier.ctime);
    true
}

/// Merges a later write into an earlier one if together they are one run of inline bytes or of one block, or
/// if the later covers all of an earlier inline write. The cache has carried out both and holds the outcome,
/// so no bytes are copied.
fn merge_writes(ino: InodeId, earlier: &mut Op, later: &Op, cache: &Cache, blocks: &mut Blocks) -> bool {
    let (
        Op::Write { offset, len, content, size_min, time, clear_setid, declare, .. },
        Op::Write {
            offset: offset2,
            len: len2,
            content: content2,
            size_min: size2,
            time: time2,
            clear_setid: clear2,
            declare: declare2,
            ..
        },
    ) = (earlier, later)
    else {
        return false;
    };
    let (Some(before), Some(after)) = (content.as_ref(), content2.as_ref()) else { return false };
    let (end, end2) = (*offset + *len, *offset2 + *len2);
    let (start, stop) = ((*offset).min(*offset2), end.max(end2));
    let merged = match (before, after) {
        (Extent::Inline(_), Extent::Inline(_)) if *offset2 <= *offset && end2 >= end => Some(after.clone()),
        // A file that outgrew its inline bytes.
        (Extent::Inline(_), Extent::Block(block))
            if *offset2 <= *offset && end2 >= end && declare2.is_some() =>
        {
            blocks.name(block.id);
            *declare = *declare2;
            Some(after.clone())
        }
        (Extent::Inline(_), Extent::Inline(_))
            if *offset2 <= end && *offset <= end2 && stop - start <= u64::from(limits::INLINE_BYTES_MAX) =>
        {
            cache.covering_extent(ino, start, stop).filter(|extent| matches!(extent, Extent::Inline(_)))
        }
        (Extent::Block(one), Extent::Block(two))
            if one.id == two.id
                && declare2.is_none()
                && *offset2 == end
                && one.offset + one.len == two.offset =>
        {
            debug_assert!(blocks.pending_len(one.id).is_some());
            Some(Extent::Block(BlockRef { id: one.id, offset: one.offset, len: one.len + two.len }))
        }
        _ => None,
    };
    let Some(merged) = merged else { return false };
    *offset = start;
    *len = merged.len();
    *content = Some(merged);
    *size_min = (*size_min).max(*size2);
    *time = *time2;
    *clear_setid |= *clear2;
    true
}
