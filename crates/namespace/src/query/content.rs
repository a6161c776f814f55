//! Content maps.

use super::ExtentsReply;
use super::file::{inline_bytes, living};
use crate::Fault;
use crate::keys::{self, Key};
use crate::kv::{Flow, KvRead};
use crate::limits::EXTENTS_BYTES_MAX;
use crate::records::BlockRecord;
use crate::stored::{TreeError, decode_extent, read, scan};
use shoal_types::{BlockId, BlockInfo, Errno, Extent, InodeId};
use std::collections::BTreeSet;

/// What an extent takes of a reply beside what is inline of it, in bytes: about what it and the place of its
/// block are encoded as.
pub(super) const EXTENT_BYTES: u64 = 40;

/// The extents that overlap `[start, end)`, whole and in order, and the blocks they name: the first of them
/// at least, and no more than `count_max` or about [`EXTENTS_BYTES_MAX`]. `ENOENT` if there is no such inode.
pub fn extents(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
    start: u64,
    end: u64,
    count_max: usize,
) -> Result<ExtentsReply, Fault<TreeError>> {
    if living(store, ino)?.is_none() {
        return Err(Errno::ENOENT.into());
    }
    let mut reply = ExtentsReply::default();
    let mut ids = BTreeSet::<BlockId>::new();
    let mut bytes = 0;
    if start < end {
        scan(store, &keys::extents_range(ino, start), |key, value| {
            let (offset, extent) = decode_extent(key, value)?;
            if offset >= end {
                return Ok(Flow::Break(()));
            }
            bytes += EXTENT_BYTES + inline_bytes(&extent);
            let is_full = reply.extents.len() >= count_max || bytes > EXTENTS_BYTES_MAX;
            if is_full && !reply.extents.is_empty() {
                reply.more = true;
                return Ok(Flow::Break(()));
            }
            if let Extent::Block(block) = &extent {
                ids.insert(block.id);
            }
            reply.extents.push((offset, extent));
            Ok(Flow::Continue(()))
        })?;
    }
    reply.blocks = blocks(store, ids)?;
    Ok(reply)
}

/// Blocks that files refer to.
#[derive(Default)]
pub struct References {
    /// In the order of the files' numbers. A block occurs once for each run of extents that refer to it.
    pub blocks: Vec<(InodeId, BlockId)>,
    /// Where to continue; `None`: that was all.
    pub next: Option<Vec<u8>>,
}

/// The references of all files to blocks, from where an earlier page ended, in at most so many records.
pub fn references(
    store: &(impl KvRead + ?Sized),
    from: Option<Vec<u8>>,
    records_max: usize,
) -> Result<References, TreeError> {
    let (first, end) = keys::inodes_range();
    let (mut found, mut left) = (References::default(), records_max);
    scan(store, &(from.unwrap_or(first), end), |key, value| {
        if left == 0 {
            found.next = Some(key.to_vec());
            return Ok(Flow::Break(()));
        }
        left -= 1;
        if let Some(Key::Extent(ino, _)) = Key::decode(key)
            && let (_, Extent::Block(block)) = decode_extent(key, value)?
            && found.blocks.last() != Some(&(ino, block.id))
        {
            found.blocks.push((ino, block.id));
        }
        Ok(Flow::Continue(()))
    })?;
    Ok(found)
}

/// Blocks that some content names.
pub(super) fn blocks(
    store: &(impl KvRead + ?Sized),
    ids: BTreeSet<BlockId>,
) -> Result<Vec<(BlockId, BlockInfo)>, TreeError> {
    let find = |id| {
        let key = keys::block(id);
        match read::<BlockRecord>(store, &key)? {
            Some(record) => Ok((id, record.info)),
            None => Err(TreeError::damaged(&key, "content refers to it, but it is not there")),
        }
    };
    ids.into_iter().map(find).collect()
}
