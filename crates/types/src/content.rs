//! A file's content: a map from offset to extent; what no extent covers reads as zeros.

use crate::{BlockGroup, BlockId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A run of a file's bytes. Its offset in the file is the key it is kept under.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Extent {
    /// The bytes themselves.
    Inline(Bytes),
    /// Bytes of an immutable block.
    Block(BlockRef),
    /// Zeros that are allocated (fallocate(2)): reserved room without bytes.
    Zero {
        /// Length in bytes.
        len: u64,
    },
}

/// Part of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BlockRef {
    /// The block.
    pub id: BlockId,
    /// Offset in the block, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// What a volume records of a block besides the references to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockInfo {
    /// Length of the whole block in bytes.
    pub len: u32,
    /// The bricks that hold it.
    pub group: BlockGroup,
}

impl BlockInfo {
    /// Bytes that each brick of the group stores: the whole block, or one shard.
    pub fn stored_bytes(&self) -> u32 {
        if self.group.is_sharded() { self.group.shard_bytes() } else { self.len }
    }
}

impl Extent {
    /// Length in bytes, never 0.
    pub fn len(&self) -> u64 {
        match self {
            Extent::Inline(bytes) => bytes.len() as u64,
            Extent::Block(block) => u64::from(block.len),
            Extent::Zero { len } => *len,
        }
    }

    /// Whether it is empty, which no stored extent is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part of the extent that begins `start` bytes after the extent's own start and is `len` bytes long.
    ///
    /// # Panics
    /// If the part does not lie inside the extent.
    pub fn slice(&self, start: u64, len: u64) -> Extent {
        let end = start.checked_add(len).expect("an extent's end fits 64 bits");
        assert!(end <= self.len(), "slice {start}+{len} of an extent of {} bytes", self.len());
        match self {
            Extent::Inline(bytes) => Extent::Inline(bytes.slice(start as usize..end as usize)),
            Extent::Block(block) => {
                Extent::Block(BlockRef { id: block.id, offset: block.offset + start as u32, len: len as u32 })
            }
            Extent::Zero { .. } => Extent::Zero { len },
        }
    }
}
