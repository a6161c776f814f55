//! The tiers of a volume: new blocks on the hot one, and moving a block from one to the other.

use super::call::Calls;
use super::store::Target;
use super::{Inner, names};
use crate::limits::{HOT_FREE_PART, HOT_STORE_WAIT_MAX, ROOM_LOW_BYTES, STORE_WAIT_MAX, SURVEY_WAIT_MAX};
use crate::map::ClusterMap;
use crate::placement::{self, Candidate, Rules};
use bytes::Bytes;
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId, Tier};
use shoal_wire::BlockError;
use std::collections::BTreeMap;
use std::sync::Arc;

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
        let target = Target { tier: Tier::Hot, whole: true, wait_max: HOT_STORE_WAIT_MAX };
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
                    let kept = ROOM_LOW_BYTES.min(room.total_bytes / HOT_FREE_PART);
                    room.free_bytes >= kept.saturating_add(len)
                })
        };
        let fit: Vec<Candidate> = self.candidates(map, Tier::Hot, id).into_iter().filter(takes).collect();
        placement::choose(&fit, rules).len() >= rules.replica
    }

    /// Stores a whole block on the other tier, and has each of its bricks read it back. The answer is the
    /// group there, or the old one if the block is on that tier already.
    pub(super) fn move_to(
        self: &Arc<Inner>,
        id: BlockId,
        info: BlockInfo,
        tier: Tier,
    ) -> Result<BlockGroup, BlockError> {
        if info.group.tier() == tier {
            return Ok(info.group);
        }
        let map = self.bricks.map();
        let content = self.fetch(id, info.group, 0, info.len)?;
        let target = Target { tier, whole: true, wait_max: STORE_WAIT_MAX };
        let stored = self.store_on(&map, target, id, &[content])?;
        let stored = match map.tiers.get(&self.volume) {
            Some(hot) if tier == Tier::Hot => stored.on_hot_tier(hot.replica),
            _ => stored,
        };
        self.prove(id, &stored, info.len)?;
        Ok(stored)
    }

    /// Checks that each brick of a group has all of what it should have: it reads that from its disk and
    /// checks every byte.
    fn prove(self: &Arc<Inner>, id: BlockId, group: &BlockGroup, len: u32) -> Result<(), BlockError> {
        let wanted = if group.is_sharded() { group.shard_bytes() } else { len };
        let mut calls = Calls::new();
        for brick in group.bricks() {
            let name = names::on_brick(id, group, brick);
            calls.start(self, brick, move |it| it.check(name));
        }
        let (mut proven, until) = (0, Instant::now() + SURVEY_WAIT_MAX);
        while let Some((brick, answer)) = calls.next(until) {
            match answer {
                Ok(found) if found == wanted => proven += 1,
                Ok(found) => {
                    let what = format!("{brick} has {found} bytes of it instead of {wanted}");
                    return Err(BlockError::Corrupt { id, what });
                }
                Err(error) => return Err(error),
            }
        }
        if proven == group.len() && !group.is_short_of(1) {
            return Ok(());
        }
        Err(BlockError::Unreachable(format!("{proven} of {} bricks have shown block {id}", group.len())))
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
