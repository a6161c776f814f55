//! Restores missing copies of a block.

use super::Inner;
use super::call::Calls;
use crate::limits::FETCH_WAIT_MAX;
use crate::map::ClusterMap;
use crate::placement::{self, Candidate, Load, Rules};
use bytes::Bytes;
use shoal_runtime::planted::mistake;
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId, Tier};
use shoal_wire::BlockError;
use std::sync::Arc;

impl Inner {
    /// A brick that is away for a while is not gone, and its copy counts. A brick that is being drained stays
    /// in the group until enough copies are elsewhere.
    pub(super) fn heal(self: &Arc<Inner>, id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        let map = self.bricks.map();
        let rules = self.rules(&map, &info.group)?;
        if placement::is_whole(&map, self.volume, info.group) {
            return Ok(info.group);
        }
        if info.group.is_sharded() {
            return self.heal_shards(&map, id, info.group);
        }
        let (ranked, good) = self.ranked(&map, info.group.tier(), id);
        let plan = Plan::new(rules, info.group, (ranked, good), &[]);
        if plan.good == 0 || plan.kept.len() >= rules.replica {
            // There is nothing to copy, or no brick to copy it to: it need not be read.
            return Ok(self.with_what_is_left(&map, rules, info.group, &[], plan.kept));
        }
        let (content, bad) = self.source(&map, id, info)?;
        let plan = Plan::new(rules, info.group, self.ranked(&map, info.group.tier(), id), &bad);
        let healed = self.carry_out(plan, rules, id, &content)?;
        Ok(self.with_what_is_left(&map, rules, info.group, &bad, healed))
    }

    /// Copies that cannot be replaced yet stay in the group.
    fn with_what_is_left(
        &self,
        map: &ClusterMap,
        rules: Rules,
        group: BlockGroup,
        bad: &[BrickId],
        mut healed: BlockGroup,
    ) -> BlockGroup {
        if mistake(GIVES_UP_COPIES) && !healed.is_empty() {
            return healed;
        }
        for brick in group.bricks().filter(|it| !bad.contains(it) && !placement::is_gone(map, *it)) {
            if healed.len() < rules.replica {
                healed = healed.with(brick).unwrap_or(healed);
            }
        }
        if healed.is_empty() { group } else { healed }
    }

    fn carry_out(
        self: &Arc<Inner>,
        plan: Plan,
        rules: Rules,
        id: BlockId,
        content: &Bytes,
    ) -> Result<BlockGroup, BlockError> {
        let count = rules.replica.saturating_sub(plan.kept.len());
        let added = self.copy((id, content), rules, (&plan.left, plan.good), plan.load, count)?;
        Ok(added.bricks().try_fold(plan.kept, BlockGroup::with).unwrap_or(plan.kept))
    }

    /// The bricks that placement would choose today, if all answered.
    pub(super) fn ideal(&self, map: &ClusterMap, tier: Tier, rules: Rules, id: BlockId) -> Vec<Candidate> {
        let candidates = self.candidates(map, tier, id);
        let chosen = placement::choose(&candidates, rules);
        candidates.into_iter().filter(|it| chosen.contains(&it.brick)).collect()
    }

    pub(super) fn is_balanced(&self, id: BlockId, group: BlockGroup) -> bool {
        let map = self.bricks.map();
        let Some(rules) = Rules::of_group(&map, self.volume, &group) else { return true };
        let ideal = self.ideal(&map, group.tier(), rules, id);
        ideal.len() == group.len() && ideal.iter().all(|it| group.contains(it.brick))
    }

    /// Only copies that placement wants elsewhere move; what cannot move now stays.
    pub(super) fn rebalance(
        self: &Arc<Inner>,
        id: BlockId,
        info: BlockInfo,
    ) -> Result<BlockGroup, BlockError> {
        let map = self.bricks.map();
        if info.group.is_sharded() {
            return self.rebalance_shards(&map, id, info.group);
        }
        let rules = self.rules(&map, &info.group)?;
        let mut ideal = self.ideal(&map, info.group.tier(), rules, id);
        ideal
            .retain(|it| info.group.contains(it.brick) || (self.is_good(it.brick) && !self.is_low(it.brick)));
        let good = ideal.len();
        let plan = Plan::new(rules, info.group, (ideal, good), &[]);
        let mut moved = plan.kept;
        if plan.good > 0 {
            let (content, bad) = self.source(&map, id, info)?;
            if !bad.is_empty() {
                return self.heal_bad(&map, rules, id, (info, bad), &content);
            }
            moved = self.carry_out(plan, rules, id, &content)?;
        }
        Ok(self.with_what_is_left(&map, rules, info.group, &[], moved))
    }

    /// A copy that turned out to be missing is restored first.
    fn heal_bad(
        self: &Arc<Inner>,
        map: &ClusterMap,
        rules: Rules,
        id: BlockId,
        (info, bad): (BlockInfo, Vec<BrickId>),
        content: &Bytes,
    ) -> Result<BlockGroup, BlockError> {
        let plan = Plan::new(rules, info.group, self.ranked(map, info.group.tier(), id), &bad);
        let healed = self.carry_out(plan, rules, id, content)?;
        Ok(self.with_what_is_left(map, rules, info.group, &bad, healed))
    }

    /// The whole content, and the bricks of the group that turned out not to have it.
    fn source(
        self: &Arc<Inner>,
        map: &ClusterMap,
        id: BlockId,
        info: BlockInfo,
    ) -> Result<(Bytes, Vec<BrickId>), BlockError> {
        let give_up = Instant::now() + FETCH_WAIT_MAX;
        let (mut bad, mut failure) = (Vec::new(), None);
        for brick in self.holders(map, id, info.group) {
            let mut call = Calls::new();
            call.start_get(self, brick, id, 0, info.len);
            match call.next(give_up) {
                Some((_, Ok(content))) if content.len() == info.len as usize => return Ok((content, bad)),
                Some((_, Err(error @ (BlockError::Missing(_) | BlockError::Corrupt { .. })))) => {
                    match &error {
                        // The block may have been deleted meanwhile.
                        BlockError::Missing(_) => tracing::warn!(%brick, %error, "a copy is missing"),
                        _ => tracing::error!(%brick, %error, "a copy is not as it should be"),
                    }
                    bad.push(brick);
                    failure = failure.or(Some(error));
                }
                Some((_, Err(error))) => failure = Some(error),
                _ => failure = Some(BlockError::Unreachable(format!("{brick} does not answer"))),
            }
        }
        Err(failure.unwrap_or(BlockError::Missing(id)))
    }
}

/// A planted defect: what cannot be copied to another brick is left out of the group all the same.
pub(super) const GIVES_UP_COPIES: &str = "drop a copy that was not replaced";

/// Which copies of a block stay, and where new ones may go.
struct Plan {
    kept: BlockGroup,
    load: Load,
    /// The best candidates first; the number of those that answer follows.
    left: Vec<Candidate>,
    good: usize,
}

impl Plan {
    /// If a node has too many copies, those stay that placement would choose, too.
    fn new(
        rules: Rules,
        group: BlockGroup,
        (ranked, good): (Vec<Candidate>, usize),
        bad: &[BrickId],
    ) -> Plan {
        let mut load = Load::default();
        let mut kept = group.no_copies();
        for candidate in &ranked {
            let has_it = group.contains(candidate.brick) && !bad.contains(&candidate.brick);
            if has_it && kept.len() < rules.replica && load.admits(candidate.node, rules) {
                load.add(candidate.node);
                kept = kept.with(candidate.brick).unwrap_or(kept);
            }
        }
        let may_take = |it: &&Candidate| !kept.contains(it.brick) && load.admits(it.node, rules);
        let good = ranked.iter().take(good).filter(may_take).count();
        let left = ranked.iter().filter(may_take).copied().collect();
        Plan { kept, load, left, good }
    }
}
