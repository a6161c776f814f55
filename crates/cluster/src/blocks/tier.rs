//! The tiers of a volume: new blocks on the hot one, and moving a block from one to the other.

use super::store::Target;
use super::{Inner, names};
use crate::limits::{HOT_FREE_PART, HOT_STORE_WAIT_MAX, ROOM_LOW_BYTES};
use crate::map::ClusterMap;
use crate::placement::{self, Candidate, Rules};
use bytes::Bytes;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, Tier};
use shoal_wire::BlockError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The free space, in bytes, that new blocks leave on a disk of this size: on the hot tier always, on other
/// bricks as long as some have more.
pub fn kept_free(total_bytes: u64) -> u64 {
    ROOM_LOW_BYTES.min(total_bytes / HOT_FREE_PART)
}

impl Inner {
    /// Stores a new block on the hot tier. `None` if there is none, or if it cannot take the block whole now:
    /// a full or failing hot tier fails no write.
    pub(super) fn store_hot(
        self: &Arc<Inner>,
        map: &ClusterMap,
        id: BlockId,
        parts: &[Bytes],
    ) -> Option<BlockGroup> {
        let tier = map.tiers.get(&self.volume).filter(|tier| !tier.detaching)?;
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if !self.has_room_on_hot(map, id, len) {
            return None;
        }
        let scheme = map.scheme_in(self.volume, Tier::Hot)?;
        let target = Target { tier: Tier::Hot, scheme, whole: true, wait_max: HOT_STORE_WAIT_MAX };
        match self.store_on(map, target, id, parts) {
            Ok(group) => Some(group.on_hot_tier(tier.replica)),
            Err(error) => {
                tracing::debug!(block = %id, %error, "the hot tier did not take a block");
                None
            }
        }
    }

    /// Whether enough bricks of the hot tier answer and have room, as far as that is known.
    fn has_room_on_hot(self: &Arc<Inner>, map: &ClusterMap, id: BlockId, len: u64) -> bool {
        let Some(rules) = Rules::of_long_blocks(map, self.volume, Tier::Hot) else { return false };
        let takes = |candidate: &Candidate| {
            self.is_good(candidate.brick)
                && self.health.room(candidate.brick).is_none_or(|(room, _)| {
                    room.free_bytes >= kept_free(room.total_bytes).saturating_add(len)
                })
        };
        let fit: Vec<Candidate> = self.candidates(map, Tier::Hot, id).into_iter().filter(takes).collect();
        placement::choose(&fit, rules).len() >= rules.replica
    }

    /// Moves a block to a tier, unless it is there already. The answer is its group then.
    pub(super) fn move_to(
        self: &Arc<Inner>,
        id: BlockId,
        info: BlockInfo,
        (tier, scheme): (Tier, Option<BlockScheme>),
    ) -> Result<BlockGroup, BlockError> {
        if info.group.tier() == tier {
            return Ok(info.group);
        }
        self.store_anew(&self.bricks.map(), id, info, (tier, scheme))
    }

    /// How often blocks were read from the bricks since the last call: of copies all reads, of shards those
    /// of the most read one.
    pub(super) fn reads(self: &Arc<Inner>) -> Result<BTreeMap<BlockId, u32>, BlockError> {
        let mut reads = BTreeMap::<BlockId, u32>::new();
        let each = |_: BrickId, counts: Vec<(BlockId, u32)>| {
            for (name, count) in counts {
                let (id, index) = names::parse(name);
                let sum = reads.entry(id).or_default();
                *sum = match index {
                    Some(_) => (*sum).max(count),
                    None => sum.saturating_add(count),
                };
            }
        };
        self.survey(|brick| brick.take_reads(), each)?;
        Ok(reads)
    }
}
