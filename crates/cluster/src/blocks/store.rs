//! Storing a block.

use super::Inner;
use super::call::{Calls, blames_brick};
use super::content::Content;
use crate::limits::{STORE_HEDGE, STORE_WAIT_MAX};
use crate::map::ClusterMap;
use crate::placement::{Candidate, Load, Rules};
use bytes::Bytes;
use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BlockGroup, BlockId, BlockScheme, BrickId, NodeId, Policy, Tier};
use shoal_wire::{BlockError, BlockService};
use std::sync::Arc;

impl Inner {
    /// Stores a new block as the policy of its file says.
    pub(super) fn store(
        self: &Arc<Inner>,
        id: BlockId,
        parts: &[Bytes],
        policy: Policy,
    ) -> Result<BlockGroup, BlockError> {
        let map = self.bricks.map();
        let hot = if policy.tier == Some(Tier::Cold) { None } else { self.store_hot(&map, id, parts) };
        match hot {
            Some(group) => Ok(group),
            None => {
                let scheme = self.scheme_on(&map, Tier::Cold, policy.scheme)?;
                self.store_on(&map, Target::cold(scheme), id, parts)
            }
        }
    }

    /// Stores a block on one tier.
    pub(super) fn store_on(
        self: &Arc<Inner>,
        map: &ClusterMap,
        target: Target,
        id: BlockId,
        parts: &[Bytes],
    ) -> Result<BlockGroup, BlockError> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        if let Some(scheme) = self.shards_for(target.scheme, len) {
            return self.store_shards((map, target), (id, scheme), parts);
        }
        let copies = target.scheme.copies();
        let rules = Rules::of_copies(map, (self.volume, target.tier), copies);
        let (ranked, good) = self.ranked(map, target.tier, id);
        let mut copying = Copying::new(self, id, Content::copies(parts), rules, &ranked, good);
        copying.wait_max = target.wait_max;
        let least = if target.whole { rules.replica } else { rules.quorum() };
        let group = match mistake("accept one copy of a block") {
            true => copying.run(1, 1)?,
            false => copying.run(rules.replica, least)?,
        };
        if group.len() < rules.replica {
            tracing::debug!(block = %id, ?group, "stored with fewer copies than wanted");
        }
        Ok(group.wanting_copies(copies, map.original_copies(self.volume)))
    }

    /// Writes copies of a block to bricks that lack it, as many as possible up to `count`.
    pub(super) fn copy(
        self: &Arc<Inner>,
        (id, content): (BlockId, &Bytes),
        rules: Rules,
        (ranked, good): (&[Candidate], usize),
        load: Load,
        count: usize,
    ) -> Result<BlockGroup, BlockError> {
        let parts = [content.clone()];
        // No caller waits for these copies, so bricks that do not answer are left for a later attempt.
        let content = Content::copies(&parts);
        let mut copying = Copying::new(self, id, content, rules, ranked.get(..good).unwrap_or(ranked), good);
        copying.load = load;
        copying.run(count, 0)
    }
}

/// Where a block is to be stored.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) tier: Tier,
    pub(super) scheme: BlockScheme,
    /// Only all copies or shards are enough.
    pub(super) whole: bool,
    /// The attempt fails after this long.
    pub(super) wait_max: Duration,
}

impl Target {
    /// Where a new block goes if there is no hot tier for it.
    pub(super) fn cold(scheme: BlockScheme) -> Target {
        Target { tier: Tier::Cold, scheme, whole: false, wait_max: STORE_WAIT_MAX }
    }
}

/// A write of one block to several bricks.
pub(super) struct Copying<'a> {
    inner: &'a Arc<Inner>,
    id: BlockId,
    content: Content,
    rules: Rules,
    /// Candidates that it has not been sent to, the best last, and how many of them are doubtful.
    left: Vec<Candidate>,
    doubtful: usize,
    pub(super) load: Load,
    pub(super) wait_max: Duration,
    nodes: Vec<(BrickId, NodeId)>,
    calls: Calls<()>,
    stored: BlockGroup,
    /// Bricks that are not waited for if enough other bricks have the block.
    slow: Vec<BrickId>,
    failures: Vec<BlockError>,
}

impl<'a> Copying<'a> {
    pub(super) fn new(
        inner: &'a Arc<Inner>,
        id: BlockId,
        content: Content,
        rules: Rules,
        ranked: &[Candidate],
        good: usize,
    ) -> Copying<'a> {
        let stored = content.before();
        Copying {
            inner,
            id,
            content,
            rules,
            left: ranked.iter().rev().copied().collect(),
            doubtful: ranked.len() - good,
            load: Load::default(),
            wait_max: STORE_WAIT_MAX,
            nodes: Vec::new(),
            calls: Calls::new(),
            stored,
            slow: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Runs until `wanted` bricks have the block, or until `least` have it and no other brick is left to try.
    pub(super) fn run(&mut self, wanted: usize, least: usize) -> Result<BlockGroup, BlockError> {
        let give_up = Instant::now() + self.wait_max;
        let mut patience = Instant::now() + STORE_HEDGE;
        let (wanted, least) = match self.stored.is_sharded() && mistake("count a shard twice") {
            true => (wanted - 1, least.saturating_sub(1)),
            false => (wanted, least),
        };
        loop {
            let under_way = |it: &Self| it.stored.len() + it.calls.pending.len() - it.slow.len();
            while under_way(self) < wanted && self.start_next(under_way(self) < least) {}
            let enough = self.stored.len() >= wanted.min(least.max(1));
            let waits_for_slow_only = self.calls.pending.len() == self.slow.len();
            if self.stored.len() >= wanted || (waits_for_slow_only && enough) || self.calls.pending.is_empty()
            {
                break;
            }
            match self.calls.next(patience.min(give_up)) {
                Some((brick, answer)) => self.answered(brick, answer)?,
                None if Instant::now() >= give_up => break,
                None => {
                    self.replace_slow_bricks();
                    patience = Instant::now() + STORE_HEDGE;
                }
            }
        }
        if self.stored.len() >= least { Ok(self.stored) } else { Err(self.failure(least)) }
    }

    /// Sends the block to the best candidate that is left; to a doubtful one only if it must be.
    fn start_next(&mut self, must: bool) -> bool {
        if !self.content.has_more(&self.stored) {
            return false;
        }
        let tried = if must { 0 } else { self.doubtful };
        let Some(at) = self
            .left
            .iter()
            .rposition(|candidate| self.load.admits(candidate.node, self.rules))
            .filter(|at| *at >= tried)
        else {
            return false;
        };
        let next = self.left.remove(at);
        if at < self.doubtful {
            self.doubtful -= 1;
        }
        self.load.add(next.node);
        self.nodes.push((next.brick, next.node));
        let Some((id, parts)) = self.content.next(self.id, next.brick) else { return false };
        self.calls.start(self.inner, next.brick, move |brick| put(brick, id, &parts));
        true
    }

    fn answered(&mut self, brick: BrickId, answer: Result<(), BlockError>) -> Result<(), BlockError> {
        let was_slow = self.slow.contains(&brick);
        self.slow.retain(|it| *it != brick);
        match answer {
            Ok(()) => {
                self.stored = self.content.stored(self.stored, brick);
                Ok(())
            }
            // Every brick would return this error.
            Err(error @ BlockError::Invalid { .. }) => Err(error),
            Err(error) => {
                if !blames_brick(&error) {
                    tracing::warn!(%brick, block = %self.id, %error, "a brick did not take a block");
                }
                if !was_slow {
                    self.mark_failed(brick);
                }
                self.failures.push(error);
                Ok(())
            }
        }
    }

    /// The bricks that have not answered are slow: other bricks take their place.
    fn replace_slow_bricks(&mut self) {
        for brick in self.calls.pending.clone() {
            if !self.slow.contains(&brick) {
                tracing::debug!(%brick, block = %self.id, "a brick is slow to take a block");
                self.inner.health.failed(brick);
                self.slow.push(brick);
                self.mark_failed(brick);
            }
        }
    }

    fn mark_failed(&mut self, brick: BrickId) {
        self.content.failed(brick);
        if let Some((_, node)) = self.nodes.iter().find(|(it, _)| *it == brick) {
            self.load.remove(*node);
        }
    }

    fn failure(&self, least: usize) -> BlockError {
        if !self.failures.is_empty() && self.failures.iter().all(|error| *error == BlockError::Full) {
            return BlockError::Full;
        }
        let (stored, cause) = (self.stored.len(), self.failures.last());
        let cause = cause.map_or("the bricks do not answer".to_owned(), ToString::to_string);
        BlockError::Unreachable(format!("{stored} bricks have the block, and {least} must: {cause}"))
    }
}

/// Writes a block to a brick. A copy from an earlier attempt counts if it is equal.
fn put(brick: &dyn BlockService, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
    match brick.put(id, parts) {
        Err(BlockError::Exists(_)) if is_same(brick, id, parts)? => Ok(()),
        other => other,
    }
}

fn is_same(brick: &dyn BlockService, id: BlockId, parts: &[Bytes]) -> Result<bool, BlockError> {
    let len = u32::try_from(parts.iter().map(Bytes::len).sum::<usize>()).unwrap_or(u32::MAX);
    let found = match brick.get(id, 0, len) {
        Err(BlockError::Invalid { .. }) => return Ok(false),
        other => other?,
    };
    let mut rest = &found[..];
    for part in parts {
        match rest.strip_prefix(&part[..]) {
            Some(behind) => rest = behind,
            None => return Ok(false),
        }
    }
    if !rest.is_empty() {
        return Ok(false);
    }
    // And the copy on the brick is not longer.
    match brick.get(id, len, 1) {
        Ok(_) => Ok(false),
        Err(BlockError::Invalid { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
