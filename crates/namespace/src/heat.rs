//! The index of the hot tier: which blocks are there, and in which order they were last used.
//!
//! **Model.** Each block in use on the hot tier has two records. One is found by the block and says when it
//! was last used and which file wrote it; the other lies in the order of that time. So the longest unused
//! blocks are the first of a range, however many blocks there are.
//!
//! **Promises.** Exactly the blocks in use on the hot tier are in the index, and both records agree. It is
//! part of the replicated state, so a new leader continues where the last one was.

use crate::keys::{self, Key};
use crate::kv::{Flow, KvRead, WriteBatch};
use crate::records::{self, BlockRecord};
use crate::stored::{TreeError, read, scan};
use serde::{Deserialize, Serialize};
use shoal_types::{BlockId, InodeId, Tier, Timestamp};

/// What is known of a block on the hot tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HotRecord {
    /// When it was last written, read or moved here, in seconds since 1970. Reads are noted coarsely.
    pub since: u64,
    /// The file whose write it was; [`UNKNOWN`] for a block that was moved here.
    pub owner: InodeId,
}

/// The owner of a block that was moved to the hot tier: other files may share the block by now.
pub const UNKNOWN: InodeId = InodeId(0);

/// Whether a block is to be in the index.
pub(crate) fn is_indexed(block: &BlockRecord) -> bool {
    block.refs > 0 && block.info.group.tier() == Tier::Hot
}

/// A time as the index keeps it.
pub fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.secs).unwrap_or(0)
}

/// Takes a block into the index.
pub(crate) fn insert(batch: &mut WriteBatch, id: BlockId, hot: HotRecord) {
    batch.changes.insert(keys::hot(id), Some(records::encode(&hot)));
    batch.changes.insert(keys::heat(hot.since, id), Some(records::present()));
}

/// Takes a block out of the index, if it is there.
pub(crate) fn remove(
    store: &(impl KvRead + ?Sized),
    batch: &mut WriteBatch,
    id: BlockId,
) -> Result<(), TreeError> {
    if let Some(hot) = hot(store, id)? {
        batch.changes.insert(keys::hot(id), None);
        batch.changes.insert(keys::heat(hot.since, id), None);
    }
    Ok(())
}

/// Notes that blocks were used at this time. Those that are not on the hot tier are ignored, and so is a time
/// before the one that is known.
pub(crate) fn touch(
    store: &(impl KvRead + ?Sized),
    blocks: &[BlockId],
    time: Timestamp,
) -> Result<WriteBatch, TreeError> {
    let mut batch = WriteBatch::default();
    let since = seconds(time);
    for id in blocks {
        if let Some(known) = hot(store, *id)?.filter(|known| known.since < since) {
            batch.changes.insert(keys::heat(known.since, *id), None);
            insert(&mut batch, *id, HotRecord { since, ..known });
        }
    }
    Ok(batch)
}

/// What is known of a block on the hot tier; `None` if it is not there.
pub fn hot(store: &(impl KvRead + ?Sized), id: BlockId) -> Result<Option<HotRecord>, TreeError> {
    read(store, &keys::hot(id))
}

/// The blocks on the hot tier with the time of their last use, the longest unused first: behind one, or from
/// the start. Costs as much as it returns.
pub fn longest_unused(
    store: &(impl KvRead + ?Sized),
    after: Option<(u64, BlockId)>,
    count_max: usize,
) -> Result<Vec<(u64, BlockId)>, TreeError> {
    let mut found = Vec::new();
    if count_max == 0 {
        return Ok(found);
    }
    scan(store, &keys::heat_range(after), |key, _| match Key::decode(key) {
        Some(Key::Heat(since, id)) => {
            found.push((since, id));
            Ok(if found.len() < count_max { Flow::Continue(()) } else { Flow::Break(()) })
        }
        _ => Err(TreeError::damaged(key, "not the key of a block on the hot tier")),
    })?;
    Ok(found)
}
