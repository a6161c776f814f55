//! Deletes and lists blocks.

use super::call::Calls;
use super::{Inner, names};
use crate::limits::SURVEY_WAIT_MAX;
use crate::placement;
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, BrickId, GROUP_BRICKS_MAX, SessionId};
use shoal_wire::{BlockError, BlockPage, BlockService, Moments};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inner {
    pub(super) fn discard(
        self: &Arc<Inner>,
        blocks: &[(BlockId, BlockGroup)],
    ) -> Result<Vec<BlockId>, BlockError> {
        self.delete(blocks, |_| {
            Some(|brick: &dyn BlockService, ids: &[BlockId]| brick.delete(ids).map(|()| Vec::new()))
        })
    }

    /// Nothing is deleted on a brick whose moment is not known.
    pub(super) fn discard_older(
        self: &Arc<Inner>,
        blocks: &[(BlockId, BlockGroup)],
        than: &Moments,
    ) -> Result<Vec<BlockId>, BlockError> {
        self.delete(blocks, |brick| {
            let than = *than.get(&brick)?;
            Some(move |brick: &dyn BlockService, ids: &[BlockId]| brick.delete_older(ids, than))
        })
    }

    pub(super) fn moments(self: &Arc<Inner>) -> Result<Moments, BlockError> {
        let mut moments = Moments::new();
        self.survey(|brick| brick.moment(), |brick, moment| _ = moments.insert(brick, moment))?;
        Ok(moments)
    }

    /// Deletes blocks on bricks, if `way` gives a method. Answers the blocks that may still be on one of
    /// them.
    fn delete<D>(
        self: &Arc<Inner>,
        blocks: &[(BlockId, BlockGroup)],
        way: impl Fn(BrickId) -> Option<D>,
    ) -> Result<Vec<BlockId>, BlockError>
    where
        D: FnOnce(&dyn BlockService, &[BlockId]) -> Result<Vec<BlockId>, BlockError> + Send + 'static,
    {
        let map = self.bricks.map();
        let mut by_brick = BTreeMap::<BrickId, Vec<BlockId>>::new();
        for (id, group) in blocks {
            let everywhere = map.bricks_of(self.volume).map(|(brick, _)| brick).filter(|_| group.is_empty());
            let there = group.bricks().filter(|brick| !placement::is_gone(&map, *brick));
            for brick in everywhere.chain(there) {
                let names = by_brick.entry(brick).or_default();
                names.push(names::on_brick(*id, group, brick));
                if group.is_empty() {
                    names.extend((0..GROUP_BRICKS_MAX).map(|index| names::of_shard(*id, index)));
                }
            }
        }
        let mut kept = BTreeSet::new();
        let mut calls = Calls::new();
        for (brick, ids) in &by_brick {
            match way(*brick).filter(|_| self.is_good(*brick)) {
                Some(delete) => {
                    let ids = ids.clone();
                    calls.start(self, *brick, move |it| delete(it, &ids));
                }
                None => kept.extend(ids),
            }
        }
        let mut still_there = Vec::new();
        let failed = self.collect(calls, |_, kept: Vec<BlockId>| still_there.extend(kept));
        kept.extend(&still_there);
        kept.extend(failed.iter().filter_map(|brick| by_brick.get(brick)).flatten());
        let blocks: BTreeSet<BlockId> = kept.into_iter().map(|name| names::parse(name).0).collect();
        Ok(blocks.into_iter().collect())
    }

    /// A page ends where the first of the bricks' pages does: beyond it, some bricks have not listed their
    /// blocks yet.
    pub(super) fn copies(
        self: &Arc<Inner>,
        from: BlockId,
    ) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError> {
        let has_shards =
            self.bricks.map().has_shards(self.volume) || self.has_found_shards.load(Ordering::Relaxed);
        let mut found = BTreeMap::<(BlockId, Option<usize>), BlockGroup>::new();
        let mut next: Option<BlockId> = None;
        self.survey(
            move |brick| list(brick, from, has_shards),
            |brick, page| {
                next = next.into_iter().chain(page.next).min();
                for name in page.blocks {
                    let group = found.entry(names::parse(name)).or_default();
                    *group = group.with(brick).unwrap_or(*group);
                }
            },
        )?;
        found.retain(|(id, _), _| next.is_none_or(|next| *id < next));
        Ok(BlockPage { blocks: as_groups(found), next })
    }

    pub(super) fn stored_sessions(self: &Arc<Inner>) -> Result<Vec<SessionId>, BlockError> {
        let (mut found, mut has_shards) = (BTreeSet::new(), false);
        let mut see = |session| {
            let (block, index) = names::parse(BlockId::first_of(session));
            found.insert(block.session);
            has_shards |= index.is_some();
        };
        self.survey(|brick| brick.sessions(), |_, sessions| sessions.into_iter().for_each(&mut see))?;
        self.has_found_shards.store(has_shards, Ordering::Relaxed);
        Ok(found.into_iter().collect())
    }

    pub(super) fn verify(self: &Arc<Inner>, id: BlockId, group: BlockGroup) -> BlockGroup {
        let mut calls = Calls::new();
        for brick in group.bricks().filter(|brick| self.is_good(*brick)) {
            let name = names::on_brick(id, &group, brick);
            calls.start(self, brick, move |it| match it.get(name, 0, 1) {
                Err(BlockError::Missing(_) | BlockError::Corrupt { .. }) => Ok(false),
                other => other.map(|_| true),
            });
        }
        let mut there = group;
        self.collect(calls, |brick, has_it| {
            if !has_it {
                tracing::error!(%brick, block = %id, "a copy is not as it should be");
                there = there.without(brick);
            }
        });
        there
    }

    /// Sends the same request to all bricks that are up. An error only if none answers.
    pub(super) fn survey<T: Send + 'static>(
        self: &Arc<Inner>,
        question: impl Fn(&dyn BlockService) -> Result<T, BlockError> + Clone + Send + 'static,
        each: impl FnMut(BrickId, T),
    ) -> Result<(), BlockError> {
        let map = self.bricks.map();
        let bricks: Vec<BrickId> =
            map.bricks_of(self.volume).map(|(brick, _)| brick).filter(|brick| self.is_good(*brick)).collect();
        let mut calls = Calls::new();
        for brick in &bricks {
            let question = question.clone();
            calls.start(self, *brick, move |it| question(it));
        }
        let failed = self.collect(calls, each);
        if failed.len() < bricks.len() {
            return Ok(());
        }
        Err(BlockError::Unreachable("no brick of the volume answers".into()))
    }

    /// Waits for all answers; returns the bricks that failed or did not answer.
    fn collect<T: Send + 'static>(
        &self,
        mut calls: Calls<T>,
        mut each: impl FnMut(BrickId, T),
    ) -> Vec<BrickId> {
        let until = Instant::now() + SURVEY_WAIT_MAX;
        let mut failed = Vec::new();
        while let Some((brick, answer)) = calls.next(until) {
            match answer {
                Ok(answer) => each(brick, answer),
                Err(error) => {
                    tracing::debug!(%brick, %error, "a brick does not answer");
                    failed.push(brick);
                }
            }
        }
        calls.pending.iter().for_each(|brick| self.health.failed(*brick));
        failed.extend(&calls.pending);
        failed
    }
}

/// A page of what a brick has of a session's blocks, copies and shards, by their names there.
fn list(brick: &dyn BlockService, from: BlockId, has_shards: bool) -> Result<BlockPage<BlockId>, BlockError> {
    let mut page = brick.list(from)?;
    let sessions = if has_shards { brick.sessions()? } else { Vec::new() };
    let shards = (0..GROUP_BRICKS_MAX).map(|index| names::of_shard(from, index));
    for from in shards.filter(|name| sessions.contains(&name.session)) {
        let more = brick.list(from)?;
        page.blocks.extend(more.blocks);
        let next = more.next.map(|name| names::parse(name).0);
        page.next = page.next.into_iter().chain(next).min();
    }
    Ok(page)
}

/// What was found of each block: its copies as one group, and its shards in as few groups as have each shard
/// on one brick, and each brick once. How many of the shards are data is not known here, nor asked.
fn as_groups(found: BTreeMap<(BlockId, Option<usize>), BlockGroup>) -> Vec<(BlockId, BlockGroup)> {
    let mut groups: Vec<(BlockId, BlockGroup)> = Vec::new();
    for ((id, index), bricks) in found {
        let Some(index) = index else {
            groups.push((id, bricks));
            continue;
        };
        for brick in bricks.bricks() {
            let own = groups.iter_mut().rev().take_while(|(one, _)| *one == id);
            let added = own.filter_map(|(_, group)| Some((group.with_shard(index, brick)?, group))).next();
            match added {
                Some((with, group)) => *group = with,
                None => {
                    let one = BlockGroup::of_shards(1, GROUP_BRICKS_MAX - 1, 1);
                    groups.extend(one.and_then(|it| it.with_shard(index, brick)).map(|group| (id, group)));
                }
            }
        }
    }
    groups
}
