//! The service of a brick: immutable blocks.

use bytes::Bytes;
use shoal_types::{BlockId, SessionId, Statfs};

/// Why a brick did not do what it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BlockError {
    /// No such block here.
    #[error("block {0} is not on this brick")]
    Missing(BlockId),
    /// The stored bytes fail their checksum. They are never returned as data.
    #[error("block {id} is damaged: {what}")]
    Corrupt {
        /// Which block.
        id: BlockId,
        /// What was found.
        what: String,
    },
    /// There is a block of this name already.
    #[error("block {0} exists already")]
    Exists(BlockId),
    /// The request makes no sense: an empty or oversized block, a range outside it.
    #[error("block {id}: {what}")]
    Invalid {
        /// Which block.
        id: BlockId,
        /// What is wrong with the request.
        what: String,
    },
    /// No room.
    #[error("the brick is full")]
    Full,
    /// The disk failed.
    #[error("brick I/O on {what}: {cause}")]
    Io {
        /// File or directory.
        what: String,
        /// The system's words.
        cause: String,
    },
}

/// A block as a brick lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockStat {
    /// Which block.
    pub id: BlockId,
    /// Length of its content in bytes.
    pub len: u32,
}

/// Stores blocks. All calls may block the calling thread; all may be made from many threads at once.
pub trait BlockService: Send + Sync + 'static {
    /// Stores a new block; durable when this returns. The content is the concatenation of `parts`, which saves
    /// its owner a copy, 1 byte to [`BLOCK_BYTES_MAX`](shoal_types::limits::BLOCK_BYTES_MAX) long.
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError>;
    /// Reads `len` bytes from `offset` on, checked against the block's checksums.
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError>;
    /// Removes blocks; those that are not there are no error.
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError>;
    /// Blocks that a session wrote, in no order.
    fn list(&self, session: SessionId) -> Result<Vec<BlockStat>, BlockError>;
    /// Sessions of which there are blocks, in no order.
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError>;
    /// Room on the brick's disk (`total_bytes`, `free_bytes`; the rest is 0).
    fn statfs(&self) -> Result<Statfs, BlockError>;
}
