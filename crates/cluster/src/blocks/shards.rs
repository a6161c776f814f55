//! Blocks that are stored as shards: storing, restoring and moving them.
//!
//! Which shard a brick has is recorded in the block's group. A shard that is lost is restored onto a brick
//! that has none of the block; one that is on a brick being drained is copied as it is. A brick that keeps a
//! shard keeps the same one.

use super::content::Content;
use super::gather::Wanted;
use super::heal::GIVES_UP_COPIES;
use super::store::{Copying, Target};
use super::{Inner, names};
use crate::map::ClusterMap;
use crate::placement::{self, Candidate, Load, Rules};
use bytes::{Bytes, BytesMut};
use shoal_coding::{Layout, Scheme};
use shoal_runtime::planted::mistake;
use shoal_types::{BlockGroup, BlockId, BlockScheme, BrickId, SHARD_COLUMN_BYTES};
use shoal_wire::BlockError;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Inner {
    /// The shards of a block of this length; `None`: it is stored as copies.
    pub(super) fn shards_for(&self, scheme: BlockScheme, len: u64) -> Option<Scheme> {
        let shards = scheme.shards().filter(|_| len >= self.bricks.sharded_bytes_min())?;
        Scheme::new(usize::from(shards.data), usize::from(shards.parity))
    }

    pub(super) fn store_shards(
        self: &Arc<Inner>,
        (map, target): (&ClusterMap, Target),
        (id, scheme): (BlockId, Scheme),
        parts: &[Bytes],
    ) -> Result<BlockGroup, BlockError> {
        let block = match parts {
            [one] => one.clone(),
            parts => {
                let mut block = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
                parts.iter().for_each(|part| block.extend_from_slice(part));
                block.freeze()
            }
        };
        let len = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let columns = u16::try_from(Layout { scheme, len }.shard_bytes() / SHARD_COLUMN_BYTES);
        let group = columns.ok().and_then(|it| BlockGroup::of_shards(scheme.data(), scheme.parity(), it));
        let group =
            group.ok_or_else(|| BlockError::Invalid { id, what: format!("{len} bytes are too long") })?;
        let shards = self.with_coder(id, |coder| coder.encode(scheme, &block))?;
        let shards = shards.into_iter().map(|shard| (shard.index, shard.bytes)).collect();
        let place = (self.volume, target.tier);
        let rules = Rules::of_shards(map, place, scheme.data(), scheme.shards());
        let (ranked, good) = self.ranked(map, target.tier, id);
        let content = Content::shards(group, shards);
        let mut copying = Copying::new(self, id, content, rules, &ranked, good);
        copying.wait_max = target.wait_max;
        let least = if target.whole { rules.replica } else { rules.quorum() };
        let stored = copying.run(rules.replica, least)?;
        if stored.len() < rules.replica {
            tracing::debug!(block = %id, group = ?stored, "stored with fewer shards than wanted");
        }
        Ok(stored)
    }

    /// Restores the missing shards of a block, and moves those that may not stay where they are.
    pub(super) fn heal_shards(
        self: &Arc<Inner>,
        map: &ClusterMap,
        id: BlockId,
        group: BlockGroup,
    ) -> Result<BlockGroup, BlockError> {
        let (ranked, good) = self.ranked(map, group.tier(), id);
        self.place_shards(map, id, group, &ranked, ranked.get(..good).unwrap_or(&ranked))
    }

    /// Moves the shards that are not where placement would put them today, as far as their new bricks answer.
    pub(super) fn rebalance_shards(
        self: &Arc<Inner>,
        map: &ClusterMap,
        id: BlockId,
        group: BlockGroup,
    ) -> Result<BlockGroup, BlockError> {
        let rules = self.rules(map, &group)?;
        let ideal = self.ideal(map, group.tier(), rules, id);
        let good: Vec<Candidate> =
            ideal.iter().filter(|it| self.is_good(it.brick) && !self.is_low(it.brick)).copied().collect();
        self.place_shards(map, id, group, &ideal, &good)
    }

    /// Keeps the shards on the bricks of `stays`, the best first, and puts the others on those of `takes`.
    /// What finds no new brick stays where it is.
    fn place_shards(
        self: &Arc<Inner>,
        map: &ClusterMap,
        id: BlockId,
        group: BlockGroup,
        stays: &[Candidate],
        takes: &[Candidate],
    ) -> Result<BlockGroup, BlockError> {
        let rules =
            Rules::of_shards(map, (self.volume, group.tier()), group.data_shards(), group.all_shards());
        let mut load = Load::default();
        let mut kept = group;
        let keep = |load: &mut Load, candidate: &Candidate| {
            let stays = group.contains(candidate.brick) && load.admits(candidate.node, rules);
            if stays {
                load.add(candidate.node);
            }
            stays
        };
        let keepers: Vec<BrickId> =
            stays.iter().filter(|it| keep(&mut load, it)).map(|it| it.brick).collect();
        for brick in group.bricks().filter(|brick| !keepers.contains(brick)) {
            kept = kept.without(brick);
        }
        let may_take = |it: &&Candidate| !group.contains(it.brick) && load.admits(it.node, rules);
        let left: Vec<Candidate> = takes.iter().filter(may_take).copied().collect();
        let moves: Vec<usize> = kept.missing_shards().take(left.len()).collect();
        if moves.is_empty() {
            return Ok(with_what_is_left(map, group, kept, &[]));
        }
        let whole = |index: &usize| Wanted { index: *index, columns: 0..group.shard_bytes() };
        let wanted: Vec<Wanted> = moves.iter().map(whole).collect();
        let (shards, reading) = self.read_shards(id, group, &wanted)?;
        let shards = shards.into_iter().map(|shard| (shard.index, shard.bytes)).collect();
        let bad: Vec<BrickId> = reading.absent.iter().chain(&reading.damaged).copied().collect();
        let kept = bad.iter().fold(kept, |kept, brick| kept.without(*brick));
        // No caller waits for these shards: bricks that do not answer are left for a later attempt.
        let mut copying = Copying::new(self, id, Content::shards(kept, shards), rules, &left, left.len());
        copying.load = load;
        let placed = copying.run(kept.len() + moves.len(), 0)?;
        Ok(with_what_is_left(map, group, placed, &bad))
    }

    /// A whole shard of a block. Its group may not be known, if a brick has found its own shard to be
    /// damaged.
    pub(super) fn restored_shard(
        self: &Arc<Inner>,
        (id, index): (BlockId, usize),
        group: BlockGroup,
        damaged: BrickId,
    ) -> Result<Bytes, BlockError> {
        let group = if group.is_sharded() { group } else { self.survey_shards(id, index, damaged)? };
        let wanted = [Wanted { index, columns: 0..group.shard_bytes() }];
        let others = group.without(damaged);
        let (shards, _) = self.read_shards(id, others, &wanted)?;
        let restored = shards.into_iter().next().ok_or(BlockError::Missing(id))?;
        Ok(restored.bytes)
    }

    /// The group of a block as far as the bricks know it: those that answer are asked for each of its shards.
    fn survey_shards(
        self: &Arc<Inner>,
        id: BlockId,
        index: usize,
        damaged: BrickId,
    ) -> Result<BlockGroup, BlockError> {
        let map = self.bricks.map();
        let tier = map.tier_of(self.volume, damaged);
        let scheme = map.shards_in(self.volume, tier).ok_or(BlockError::Missing(id))?;
        let mut found = BTreeMap::<usize, (BrickId, u32)>::new();
        for one in (0..scheme.width()).filter(|one| *one != index) {
            let name = names::of_shard(id, one);
            for (brick, _) in map.bricks_in(self.volume, tier).filter(|(brick, _)| *brick != damaged) {
                let Some(service) = self.bricks.brick(brick).filter(|_| self.is_good(brick)) else {
                    continue;
                };
                if let Ok(len) = service.length(name) {
                    found.insert(one, (brick, len));
                    break;
                }
            }
        }
        let len = found.values().map(|(_, len)| *len).next().ok_or(BlockError::Missing(id))?;
        let columns = u16::try_from(len / SHARD_COLUMN_BYTES).ok();
        let group = columns
            .and_then(|columns| BlockGroup::of_shards(scheme.data.into(), scheme.parity.into(), columns));
        let mut group = group.ok_or(BlockError::Missing(id))?;
        for (one, (brick, _)) in found {
            group = group.with_shard(one, brick).unwrap_or(group);
        }
        Ok(group)
    }
}

/// Shards that cannot be moved yet stay where they are.
fn with_what_is_left(
    map: &ClusterMap,
    group: BlockGroup,
    mut placed: BlockGroup,
    bad: &[BrickId],
) -> BlockGroup {
    if mistake(GIVES_UP_COPIES) && !placed.is_empty() {
        return placed;
    }
    for (index, brick) in group.shards() {
        if !bad.contains(&brick) && !placement::is_gone(map, brick) {
            placed = placed.with_shard(index, brick).unwrap_or(placed);
        }
    }
    if placed.is_empty() { group } else { placed }
}
