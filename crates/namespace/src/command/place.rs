//! Blocks have come to lie on other bricks.

use super::Outcome;
use super::volume::{Applied, refuse};
use crate::heat::{self, HotRecord};
use crate::keys;
use crate::kv::{KvRead, WriteBatch};
use crate::limits::PLACE_BLOCKS_MAX;
use crate::query::replica;
use crate::records::{self, BlockRecord};
use crate::stored::read;
use serde::{Deserialize, Serialize};
use shoal_types::{BlockGroup, BlockId, BlockInfo, Errno, Tier, Timestamp};

/// A block lies on other bricks than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placed {
    /// The block.
    pub id: BlockId,
    /// The group that the mover saw.
    pub from: BlockGroup,
    /// The group that holds the block now.
    pub to: BlockGroup,
}

/// A block that was moved by someone else meanwhile, or became garbage, stays as it is. On the hot tier a
/// block counts as used when it comes there, at `time`.
pub(super) fn place(store: &(impl KvRead + ?Sized), blocks: &[Placed], time: Timestamp) -> Applied {
    if blocks.len() > PLACE_BLOCKS_MAX {
        return refuse(Errno::E2BIG);
    }
    if blocks.iter().any(|block| block.to.is_empty()) {
        return refuse(Errno::EINVAL);
    }
    let wanted = replica(store)?;
    let mut batch = WriteBatch::default();
    let mut count = 0;
    for Placed { id, from, to } in blocks {
        let key = keys::block(*id);
        // The first of several for one block counts.
        if batch.changes.contains_key(&key) {
            continue;
        }
        let found = read::<BlockRecord>(store, &key)?;
        let Some(before) = found.filter(|block| block.refs > 0 && block.info.group == *from) else {
            continue;
        };
        let after = BlockRecord { info: BlockInfo { group: *to, ..before.info }, ..before };
        batch.changes.insert(key, Some(records::encode(&after)));
        let mark = after.is_degraded(wanted).then(records::present);
        if before.is_degraded(wanted) != mark.is_some() {
            batch.changes.insert(keys::degraded(*id), mark);
        }
        match (from.tier(), to.tier()) {
            (Tier::Cold, Tier::Hot) => {
                let hot = HotRecord { since: heat::seconds(time), owner: heat::UNKNOWN };
                heat::insert(&mut batch, *id, hot);
            }
            (Tier::Hot, Tier::Cold) => heat::remove(store, &mut batch, *id)?,
            _ => {}
        }
        count += 1;
    }
    Ok((batch, Outcome::Placed { count }))
}

/// Blocks on the hot tier were used.
pub(super) fn touch(store: &(impl KvRead + ?Sized), blocks: &[BlockId], time: Timestamp) -> Applied {
    if blocks.len() > PLACE_BLOCKS_MAX {
        return refuse(Errno::E2BIG);
    }
    Ok((heat::touch(store, blocks, time)?, Outcome::Done))
}
