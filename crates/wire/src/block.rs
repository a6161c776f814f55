//! The service of a brick: immutable blocks.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_namespace::codec::OPS_VERSION;
use shoal_types::{
    BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, Policies, Policy, SessionId, Statfs, Tier,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a brick did not do what it was asked to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum BlockError {
    /// No such block here.
    #[error("block {0} is not on this brick")]
    Missing(BlockId),
    /// The stored bytes fail their checksum. They are never returned as data.
    #[error("block {id} is damaged: {what}")]
    Corrupt {
        /// The block.
        id: BlockId,
        /// What was found.
        what: String,
    },
    /// There is a block of this name already.
    #[error("block {0} exists already")]
    Exists(BlockId),
    /// The request is invalid: an empty or oversized block, or a range outside of it.
    #[error("block {id}: {what}")]
    Invalid {
        /// The block.
        id: BlockId,
        /// What is wrong with the request.
        what: String,
    },
    /// The disk has no room.
    #[error("the brick is full")]
    Full,
    /// The disk failed.
    #[error("brick I/O on {what}: {cause}")]
    Io {
        /// File or directory.
        what: String,
        /// The system's message.
        cause: String,
    },
    /// The brick, or too many of a volume's bricks, do not answer: try again later.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
}

/// A page of a session's blocks, in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockPage<T> {
    /// The blocks of this page. An empty page may be followed by more.
    pub blocks: Vec<T>,
    /// Where the next page begins; `None` after the last page.
    pub next: Option<BlockId>,
}

impl BlockPage<BlockId> {
    /// The first `count_max` of some blocks, given in order, as a page without a successor.
    pub fn cut(mut blocks: Vec<BlockId>, count_max: usize) -> BlockPage<BlockId> {
        let next = blocks.get(count_max).copied();
        blocks.truncate(count_max);
        BlockPage { blocks, next }
    }
}

/// A point in time of a brick's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moment {
    /// Identifies one opening of the brick.
    pub life: u128,
    /// How many puts had begun.
    pub puts: u64,
}

/// One point in time for each brick of a volume.
pub type Moments = BTreeMap<BrickId, Moment>;

/// Called with what a brick answered to a read.
pub type GetDone = Box<dyn FnOnce(Result<Bytes, BlockError>) + Send>;

/// One brick. All calls may block the calling thread; all may be made from many threads at once.
pub trait BlockService: Send + Sync + 'static {
    /// Stores a new block; durable when this returns. The content is the concatenation of `parts`, which
    /// saves the caller a copy. It is 1 byte to [`BLOCK_BYTES_MAX`](shoal_types::limits::BLOCK_BYTES_MAX)
    /// long.
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError>;
    /// Reads `len` bytes from `offset` on, checked against the block's checksums.
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError>;
    /// Removes blocks. Missing blocks are no error.
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError>;
    /// Starts a [`get`](Self::get) and returns at once; `done` is called with the outcome on a thread that
    /// must not be blocked. A service that can only block gives `done` back.
    fn get_then(&self, id: BlockId, offset: u32, len: u32, done: GetDone) -> Result<(), GetDone> {
        let _ = (id, offset, len);
        Err(done)
    }
    /// The present. All puts that begin after the call are later.
    fn moment(&self) -> Result<Moment, BlockError> {
        Ok(Moment::default())
    }
    /// Removes copies that were in excess at the moment `than`, and returns those that it has kept. It keeps
    /// a copy that was put since then, or that a put has found to be there. However long the call takes, it
    /// removes no copy that a later put relies on.
    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        let _ = than;
        Ok(ids.to_vec())
    }
    /// Length of a block's content in bytes.
    fn length(&self, id: BlockId) -> Result<u32, BlockError>;
    /// A page of the blocks of `from`'s session, beginning with `from`, which need not exist.
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError>;
    /// Sessions that have blocks here, in no order.
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError>;
    /// Room on the brick's disk (`total_bytes`, `free_bytes`; the rest is 0).
    fn statfs(&self) -> Result<Statfs, BlockError>;
    /// Reads all of a block from the disk, checks every byte, and answers its length. It does not count as a
    /// read.
    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        self.length(id)
    }
    /// How often blocks were read since the last call. A brick remembers a bounded number of blocks.
    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        Ok(Vec::new())
    }
    /// Blocks were read from the brick's own files, so often: returns at once.
    fn note_reads(&self, reads: Vec<(BlockId, u32)>) {
        let _ = reads;
    }
}

impl<T: BlockService + ?Sized> BlockService for Arc<T> {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        (**self).put(id, parts)
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        (**self).get(id, offset, len)
    }
    fn get_then(&self, id: BlockId, offset: u32, len: u32, done: GetDone) -> Result<(), GetDone> {
        (**self).get_then(id, offset, len, done)
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        (**self).delete(ids)
    }
    fn moment(&self) -> Result<Moment, BlockError> {
        (**self).moment()
    }
    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        (**self).delete_older(ids, than)
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        (**self).length(id)
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        (**self).list(from)
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        (**self).sessions()
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        (**self).statfs()
    }
    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        (**self).check(id)
    }
    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        (**self).take_reads()
    }
    fn note_reads(&self, reads: Vec<(BlockId, u32)>) {
        (**self).note_reads(reads);
    }
}

/// The blocks of a volume, on all its bricks. All calls may block the calling thread; all may be made from
/// many threads at once.
///
/// Every [`BlockService`] implements this: a single brick serves as a volume, and its blocks are in the empty
/// group.
pub trait VolumeBlocks: Send + Sync + 'static {
    /// Stores a new block on as many bricks as the volume wants copies. Where bricks do not answer it is
    /// fewer, but never too few to survive the next failure. Returns the bricks that have the block durably.
    /// Storing the same block again is allowed.
    fn store(&self, id: BlockId, parts: &[Bytes]) -> Result<BlockGroup, BlockError>;
    /// [`store`](Self::store) as the policy of the block's file says. What is pinned cold is stored there,
    /// anything else on the hot tier if there is one that has room. On the cold tier the file's scheme
    /// decides.
    fn store_with_policy(
        &self,
        id: BlockId,
        parts: &[Bytes],
        policy: Policy,
    ) -> Result<BlockGroup, BlockError> {
        let _ = policy;
        self.store(id, parts)
    }
    /// The policies of directories and files of the volume, as far as they are known here.
    fn policies(&self) -> Policies {
        Policies::default()
    }
    /// The version of operations that all servers and mounts of the volume know ([`OPS_VERSION`]), as far as
    /// that is known here.
    fn ops_version(&self) -> u8 {
        OPS_VERSION
    }
    /// Reads from any brick of the block's group, checked against the block's checksums. The result is
    /// [`BlockError::Missing`] only if each brick of the group lacks the block or has a damaged copy. Then
    /// the block was collected, or moved to another group.
    fn fetch(&self, id: BlockId, group: BlockGroup, offset: u32, len: u32) -> Result<Bytes, BlockError>;
    /// Removes blocks from the bricks of their groups, from all bricks where a group is empty. Returns those
    /// that may still be on a brick that does not answer.
    fn discard(&self, blocks: &[(BlockId, BlockGroup)]) -> Result<Vec<BlockId>, BlockError>;
    /// The moment of each brick that answers.
    fn moments(&self) -> Result<Moments, BlockError> {
        Ok(Moments::new())
    }
    /// Removes copies from bricks on which they were in excess at these moments, but not copies that were put
    /// there since. Returns those that may still be there. Unlike [`discard`](Self::discard) this is for
    /// blocks of which another copy to the same brick may be in progress.
    fn discard_older(
        &self,
        blocks: &[(BlockId, BlockGroup)],
        than: &Moments,
    ) -> Result<Vec<BlockId>, BlockError> {
        let _ = than;
        Ok(blocks.iter().map(|(id, _)| *id).collect())
    }
    /// A page of the blocks of `from`'s session, beginning with `from`, each once, with the bricks that have
    /// it among those that answer. The group is empty where that is not known.
    fn copies(&self, from: BlockId) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError>;
    /// Sessions of which there are blocks on any brick that answers, each once, in no order.
    fn stored_sessions(&self) -> Result<Vec<SessionId>, BlockError>;
    /// Room for blocks (`total_bytes`, `free_bytes`; the rest is 0): what can be stored with all its copies.
    fn room(&self) -> Result<Statfs, BlockError>;
    /// Whether a group has enough bricks, none of which is gone or being drained.
    fn is_whole(&self, group: BlockGroup) -> bool;
    /// Whether a block of this group has fewer copies or shards than it should. One on a brick that is being
    /// drained, or does not answer, counts as one that it has.
    fn lacks_copies(&self, group: BlockGroup) -> bool {
        !self.is_whole(group)
    }
    /// How many further losses of bricks a block of this group survives; `None`: it cannot be read now.
    /// Bricks that are gone or do not answer count as lost.
    fn losses_survived(&self, group: BlockGroup) -> Option<usize> {
        let _ = group;
        Some(0)
    }
    /// Copies a block to where it is missing, and returns the group that has it now. That group avoids bricks
    /// that are gone or being drained, if possible; it is the old one if nothing could be done. The caller
    /// records the group, and then discards the copies outside of it.
    fn heal(&self, id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError>;
    /// How many nodes copy blocks when these are healed, converted or moved.
    fn copying_nodes(&self) -> usize {
        1
    }
    /// The bricks of a block's group that have it, by asking them. A brick that does not answer counts as
    /// having it.
    fn verify(&self, id: BlockId, group: BlockGroup) -> BlockGroup {
        let _ = id;
        group
    }
    /// Whether a block is in copies or in shards as a new block of its length would be. `scheme`: that of its
    /// file on the cold tier; `None`: the volume's.
    fn has_wanted_scheme(&self, info: BlockInfo, scheme: Option<BlockScheme>) -> bool {
        let _ = (info, scheme);
        true
    }
    /// Stores a whole block anew on its tier, in another scheme, and has its bricks check what they stored.
    /// `scheme` is that of [`has_wanted_scheme`](Self::has_wanted_scheme). Returns the group that has it
    /// then. The caller continues as after [`heal`](Self::heal).
    fn convert(
        &self,
        id: BlockId,
        info: BlockInfo,
        scheme: Option<BlockScheme>,
    ) -> Result<BlockGroup, BlockError> {
        let _ = (id, scheme);
        Ok(info.group)
    }
    /// Whether a block is where placement would put it today.
    fn is_balanced(&self, id: BlockId, group: BlockGroup) -> bool {
        let _ = (id, group);
        true
    }
    /// Copies a whole block to where placement would put it today, in the scheme that it has. Returns the
    /// group that has it then, or the old one if that cannot be done now. The caller continues as after
    /// [`heal`](Self::heal).
    fn rebalance(&self, id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        let _ = id;
        Ok(info.group)
    }
    /// Copies a block to the other tier, whole, and has its bricks check what they stored. Returns the group
    /// that has it there. The caller continues as after [`heal`](Self::heal). `scheme` is that of
    /// [`has_wanted_scheme`](Self::has_wanted_scheme).
    fn move_to(
        &self,
        id: BlockId,
        info: BlockInfo,
        tier: Tier,
        scheme: Option<BlockScheme>,
    ) -> Result<BlockGroup, BlockError> {
        let _ = (id, tier, scheme);
        Ok(info.group)
    }
    /// [`room`](Self::room) on one tier.
    fn room_in(&self, tier: Tier) -> Result<Statfs, BlockError> {
        let _ = tier;
        self.room()
    }
    /// How often blocks were read since the last call, as far as bricks remember.
    fn reads(&self) -> Result<BTreeMap<BlockId, u32>, BlockError> {
        Ok(BTreeMap::new())
    }
}

impl<T: BlockService> VolumeBlocks for T {
    fn store(&self, id: BlockId, parts: &[Bytes]) -> Result<BlockGroup, BlockError> {
        self.put(id, parts).map(|()| BlockGroup::default())
    }
    fn fetch(&self, id: BlockId, _group: BlockGroup, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.get(id, offset, len)
    }
    fn discard(&self, blocks: &[(BlockId, BlockGroup)]) -> Result<Vec<BlockId>, BlockError> {
        let ids: Vec<BlockId> = blocks.iter().map(|(id, _)| *id).collect();
        self.delete(&ids).map(|()| Vec::new())
    }
    fn copies(&self, from: BlockId) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError> {
        let BlockPage { blocks, next } = self.list(from)?;
        let blocks = blocks.into_iter().map(|id| (id, BlockGroup::default())).collect();
        Ok(BlockPage { blocks, next })
    }
    fn stored_sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.sessions()
    }
    fn room(&self) -> Result<Statfs, BlockError> {
        self.statfs()
    }
    fn is_whole(&self, _group: BlockGroup) -> bool {
        true
    }
    fn heal(&self, _id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        Ok(info.group)
    }
}
