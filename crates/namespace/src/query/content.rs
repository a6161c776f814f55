//! Content maps.

use super::ExtentsReply;
use super::file::living;
use crate::kv::{Flow, KvRead};
use crate::kv_tree::{TreeError, decode_extent};
use crate::kv_tree::{read, scan};
use crate::records::BlockRecord;
use crate::{Fault, keys};
use shoal_types::{BlockId, BlockInfo, Errno, Extent, InodeId};
use std::collections::BTreeSet;

/// The extents that overlap `[start, end)`, whole and in order, at most `count_max` of them, and the blocks they name.
/// `ENOENT` if there is no such inode.
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
    if start < end {
        scan(store, &keys::extents_range(ino, start), |key, value| {
            let (offset, extent) = decode_extent(key, value)?;
            if offset >= end {
                return Ok(Flow::Break(()));
            }
            if reply.extents.len() >= count_max.max(1) {
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
