//! What the metadata group has to do in the background, and for whom.

use crate::keys::{self, Key};
use crate::kv::{Flow, KvRead};
use crate::records::{self, BlockRecord, SessionRecord};
use crate::stored::{TreeError, read, scan};
use shoal_types::{BlockId, BlockInfo, InodeId, SessionId};

/// All sessions, those that have ended but hold something still included.
pub fn sessions(store: &(impl KvRead + ?Sized)) -> Result<Vec<(SessionId, SessionRecord)>, TreeError> {
    page(store, &keys::all_sessions(), usize::MAX, |key, value| match Key::decode(key) {
        Some(Key::Session(id)) => {
            Ok((id, records::decode(value).map_err(|error| TreeError::damaged(key, error))?))
        }
        _ => Err(TreeError::damaged(key, "not the key of a session")),
    })
}

/// A session, if it has not ended.
pub fn session(store: &(impl KvRead + ?Sized), id: SessionId) -> Result<Option<SessionRecord>, TreeError> {
    Ok(read::<SessionRecord>(store, &keys::session(id))?.filter(|record| !record.has_ended()))
}

/// What is known of a block; `None`: it was never declared, or has been collected.
pub fn block(store: &(impl KvRead + ?Sized), id: BlockId) -> Result<Option<BlockRecord>, TreeError> {
    read(store, &keys::block(id))
}

/// Whether a block is known that its session began after this one. Then this one was named before, or is
/// never going to be: batches name blocks in the order of their numbers.
pub fn is_later_block_known(store: &(impl KvRead + ?Sized), id: BlockId) -> Result<bool, TreeError> {
    Ok(blocks(store, Some(id), 1)?.iter().any(|(next, _)| next.session == id.session))
}

/// Whether any content refers to a block.
pub fn is_block_referenced(store: &(impl KvRead + ?Sized), id: BlockId) -> Result<bool, TreeError> {
    Ok(block(store, id)?.is_some_and(|record| record.refs > 0))
}

/// Blocks to delete, behind one.
pub fn garbage(
    store: &(impl KvRead + ?Sized),
    after: Option<BlockId>,
    count_max: usize,
) -> Result<Vec<(BlockId, BlockInfo)>, TreeError> {
    page(store, &keys::garbage_range(after), count_max, |key, value| match Key::decode(key) {
        Some(Key::Garbage(id)) => {
            Ok((id, records::decode(value).map_err(|error| TreeError::damaged(key, error))?))
        }
        _ => Err(TreeError::damaged(key, "not the key of garbage")),
    })
}

/// Blocks that are in use and have fewer copies than they should, behind one, and where they are.
pub fn degraded(
    store: &(impl KvRead + ?Sized),
    after: Option<BlockId>,
    count_max: usize,
) -> Result<Vec<(BlockId, BlockInfo)>, TreeError> {
    let ids = page(store, &keys::degraded_range(after), count_max, |key, _| match Key::decode(key) {
        Some(Key::Degraded(id)) => Ok(id),
        _ => Err(TreeError::damaged(key, "not the key of a block with too few copies")),
    })?;
    let known = |id: BlockId| match block(store, id)? {
        Some(record) => Ok((id, record.info)),
        None => Err(TreeError::damaged(&keys::degraded(id), "nothing is known of the block")),
    };
    ids.into_iter().map(known).collect()
}

/// Blocks behind one, or from the first, garbage included.
pub fn blocks(
    store: &(impl KvRead + ?Sized),
    after: Option<BlockId>,
    count_max: usize,
) -> Result<Vec<(BlockId, BlockRecord)>, TreeError> {
    page(store, &keys::blocks_range(after), count_max, |key, value| match Key::decode(key) {
        Some(Key::Block(id)) => {
            Ok((id, records::decode(value).map_err(|error| TreeError::damaged(key, error))?))
        }
        _ => Err(TreeError::damaged(key, "not the key of a block")),
    })
}

/// What a session holds, in the order of the numbers.
pub fn holds(
    store: &(impl KvRead + ?Sized),
    session: SessionId,
    count_max: usize,
) -> Result<Vec<InodeId>, TreeError> {
    page(store, &keys::holds_range(session), count_max, |key, _| match Key::decode(key) {
        Some(Key::Hold(_, ino)) => Ok(ino),
        _ => Err(TreeError::damaged(key, "not the key of a hold")),
    })
}

/// Dead inodes to take apart.
pub fn reap_queue(store: &(impl KvRead + ?Sized), count_max: usize) -> Result<Vec<InodeId>, TreeError> {
    page(store, &keys::all_reap(), count_max, |key, _| match Key::decode(key) {
        Some(Key::Reap(ino)) => Ok(ino),
        _ => Err(TreeError::damaged(key, "not the key of a dead inode")),
    })
}

/// Files of many small extents, behind one.
pub fn compaction_candidates(
    store: &(impl KvRead + ?Sized),
    after: Option<InodeId>,
    count_max: usize,
) -> Result<Vec<InodeId>, TreeError> {
    page(store, &keys::compact_range(after), count_max, |key, _| match Key::decode(key) {
        Some(Key::Compact(ino)) => Ok(ino),
        _ => Err(TreeError::damaged(key, "not the key of a file to compact")),
    })
}

/// Up to `count_max` records of a range, each decoded.
fn page<T>(
    store: &(impl KvRead + ?Sized),
    range: &keys::KeyRange,
    count_max: usize,
    decode: impl Fn(&[u8], &[u8]) -> Result<T, TreeError>,
) -> Result<Vec<T>, TreeError> {
    let mut found = Vec::new();
    scan(store, range, |key, value| {
        if found.len() >= count_max {
            return Ok(Flow::Break(()));
        }
        found.push(decode(key, value)?);
        Ok(Flow::Continue(()))
    })?;
    Ok(found)
}
