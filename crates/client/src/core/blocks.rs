//! Content in flight to bricks: blocks that are being filled or not yet durable.
//!
//! A block is *open* while a sequential writer appends to it, at most until the batch that names it is
//! sealed. Then it is closed and handed to the session, which stores it. It stays readable here until it is
//! durable. A block that is still small when its batch is sealed is never stored: its bytes travel inline.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use shoal_types::{BlockId, InodeId, SessionId};
use std::collections::BTreeMap;

/// A task of the session for a block.
#[derive(Debug)]
pub(crate) enum BlockTask {
    /// Store it for this file; these are the parts of its content.
    Store(BlockId, InodeId, Vec<Bytes>),
    /// Delete it: it was stored, and no operation will name it.
    Discard(BlockId),
}

/// A block that is not durable yet.
#[derive(Debug)]
struct Pending {
    /// The file that it is written for.
    ino: InodeId,
    parts: Vec<Bytes>,
    len: u32,
    open: bool,
    /// Given to the session to be stored.
    taken: bool,
    /// Operations of the open batch that name it.
    named: u32,
    /// Named in a way that rules out replacing it by inline bytes.
    shared: bool,
    /// No operation needs it any more.
    abandoned: bool,
}

/// Blocks of a session that are not durable.
#[derive(Debug)]
pub(crate) struct Blocks {
    session: SessionId,
    next: u64,
    pending: FxHashMap<BlockId, Pending>,
    /// Closed blocks that the session has not taken yet.
    ready: Vec<BlockId>,
    /// Durable blocks that are not needed after all.
    unwanted: Vec<BlockId>,
    /// Blocks begun in the open batch, with their lengths so far. A full one may become durable, and leave
    /// `pending`, before its batch is sealed.
    batch: BTreeMap<BlockId, u32>,
    bytes: u64,
    batch_bytes: u64,
}

impl Blocks {
    pub(crate) fn new(session: SessionId) -> Blocks {
        Blocks {
            session,
            next: 0,
            pending: FxHashMap::default(),
            ready: Vec::new(),
            unwanted: Vec::new(),
            batch: BTreeMap::new(),
            bytes: 0,
            batch_bytes: 0,
        }
    }

    /// The session that the blocks belong to.
    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    /// Bytes that are not durable.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in blocks begun in the open batch.
    pub(crate) fn batch_bytes(&self) -> u64 {
        self.batch_bytes
    }

    /// The number that [`begin`](Self::begin) will give.
    pub(super) fn next_id(&self) -> BlockId {
        BlockId { session: self.session, seq: self.next }
    }

    /// Begins a block. Numbers ascend, and the open batch names the block first. So all blocks of a batch
    /// have higher numbers than those of earlier batches, and the servers treat skipped numbers as garbage.
    pub(super) fn begin(&mut self, ino: InodeId) -> BlockId {
        let id = self.next_id();
        self.next += 1;
        self.pending.insert(
            id,
            Pending {
                ino,
                parts: Vec::new(),
                len: 0,
                open: true,
                taken: false,
                named: 0,
                shared: false,
                abandoned: false,
            },
        );
        self.batch.insert(id, 0);
        id
    }

    /// Length of an open block; `None` if it is closed or gone.
    pub(super) fn open_len(&self, id: BlockId) -> Option<u32> {
        self.pending.get(&id).filter(|block| block.open && !block.abandoned).map(|block| block.len)
    }

    /// Appends to an open block.
    pub(super) fn append(&mut self, id: BlockId, part: Bytes) {
        let block = self.pending.get_mut(&id).expect("an open block is pending");
        assert!(block.open, "{id} is closed");
        block.len += part.len() as u32;
        self.batch.insert(id, block.len);
        self.bytes += part.len() as u64;
        self.batch_bytes += part.len() as u64;
        block.parts.push(part);
    }

    /// Nothing more will be appended: the session may store it.
    pub(super) fn close(&mut self, id: BlockId) {
        if let Some(block) = self.pending.get_mut(&id)
            && std::mem::take(&mut block.open)
        {
            self.ready.push(id);
        }
    }

    /// Another operation of the open batch names the block.
    pub(super) fn name(&mut self, id: BlockId) {
        if let Some(block) = self.pending.get_mut(&id) {
            block.named += 1;
        }
    }

    /// Another inode refers to the block too, so its bytes cannot travel inline.
    pub(super) fn share(&mut self, id: BlockId) {
        if let Some(block) = self.pending.get_mut(&id) {
            block.shared = true;
        }
    }

    /// Nothing names the block any more. If it was stored or is being stored, the session deletes it.
    pub(super) fn abandon(&mut self, id: BlockId) {
        let Some(block) = self.pending.get_mut(&id) else {
            self.unwanted.push(id);
            return;
        };
        block.open = false;
        if block.taken {
            block.abandoned = true;
        } else {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: BlockId) {
        if let Some(block) = self.pending.remove(&id) {
            self.bytes -= u64::from(block.len);
            self.ready.retain(|other| *other != id);
        }
    }

    /// Blocks begun in the batch that is being sealed.
    pub(super) fn take_batch(&mut self) -> BTreeMap<BlockId, u32> {
        self.batch_bytes = 0;
        std::mem::take(&mut self.batch)
    }

    /// Whether the block's bytes may travel inline instead: small, named once, and not handed out.
    pub(super) fn may_inline(&self, id: BlockId, inline_bytes: u64) -> bool {
        self.pending.get(&id).is_some_and(|block| {
            u64::from(block.len) <= inline_bytes && block.named == 1 && !block.shared && !block.taken
        })
    }

    /// All bytes of a pending block.
    pub(super) fn concat(&self, id: BlockId) -> Option<Bytes> {
        let block = self.pending.get(&id)?;
        Some(match &block.parts[..] {
            [one] => one.clone(),
            parts => parts.concat().into(),
        })
    }

    /// Length of a pending block that is needed.
    pub(super) fn pending_len(&self, id: BlockId) -> Option<u32> {
        self.pending.get(&id).filter(|block| !block.abandoned).map(|block| block.len)
    }

    /// Reads part of a block that is not durable yet. Returns false if the block is not pending.
    pub(super) fn read(&self, id: BlockId, offset: u32, len: u32, out: &mut Vec<Bytes>) -> bool {
        let Some(block) = self.pending.get(&id) else { return false };
        let (mut at, end) = (0u64, u64::from(offset) + u64::from(len));
        for part in &block.parts {
            let (start, stop) = (at, at + part.len() as u64);
            let (from, to) = (start.max(u64::from(offset)), stop.min(end));
            if from < to {
                out.push(part.slice((from - start) as usize..(to - start) as usize));
            }
            at = stop;
        }
        true
    }

    /// Whether the session has blocks to store or to delete.
    pub(crate) fn has_block_tasks(&self) -> bool {
        !self.ready.is_empty() || !self.unwanted.is_empty()
    }

    /// Closed blocks, with their bytes, to be stored now, and stored ones that are to be deleted.
    pub(crate) fn take_block_tasks(&mut self) -> Vec<BlockTask> {
        let Blocks { ready, pending, unwanted, .. } = self;
        let stores = ready.drain(..).filter_map(|id| {
            let block = pending.get_mut(&id)?;
            block.taken = true;
            Some(BlockTask::Store(id, block.ino, block.parts.clone()))
        });
        stores.chain(unwanted.drain(..).map(BlockTask::Discard)).collect()
    }

    /// The block is durable. Returns whether it is needed; otherwise it is to be deleted.
    pub(crate) fn stored(&mut self, id: BlockId) -> bool {
        match self.pending.get(&id) {
            Some(block) => {
                let wanted = !block.abandoned;
                self.remove(id);
                wanted
            }
            None => false,
        }
    }

    /// Whether the block is durable (or will never be needed).
    pub(crate) fn is_stored(&self, id: BlockId) -> bool {
        !self.pending.contains_key(&id)
    }
}
