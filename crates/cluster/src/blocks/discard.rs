//! Deletes and lists blocks.

use super::Inner;
use super::call::Calls;
use crate::limits::SURVEY_WAIT_MAX;
use crate::placement;
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, BrickId, SessionId};
use shoal_wire::{BlockError, BlockPage, BlockService, Moments};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
                by_brick.entry(brick).or_default().push(*id);
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
        Ok(kept.into_iter().collect())
    }

    /// A page ends where the first of the bricks' pages does: beyond it, some bricks have not listed their
    /// blocks yet.
    pub(super) fn copies(
        self: &Arc<Inner>,
        from: BlockId,
    ) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError> {
        let mut found = BTreeMap::<BlockId, BlockGroup>::new();
        let mut next: Option<BlockId> = None;
        self.survey(
            move |brick| brick.list(from),
            |brick, page| {
                next = next.into_iter().chain(page.next).min();
                for id in page.blocks {
                    let group = found.entry(id).or_default();
                    *group = group.with(brick).unwrap_or(*group);
                }
            },
        )?;
        found.retain(|id, _| next.is_none_or(|next| *id < next));
        Ok(BlockPage { blocks: found.into_iter().collect(), next })
    }

    pub(super) fn stored_sessions(self: &Arc<Inner>) -> Result<Vec<SessionId>, BlockError> {
        let mut found = BTreeSet::new();
        self.survey(|brick| brick.sessions(), |_, sessions| found.extend(sessions))?;
        Ok(found.into_iter().collect())
    }

    pub(super) fn verify(self: &Arc<Inner>, id: BlockId, group: BlockGroup) -> BlockGroup {
        let mut calls = Calls::new();
        for brick in group.bricks().filter(|brick| self.is_good(*brick)) {
            calls.start(self, brick, move |it| match it.get(id, 0, 1) {
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
    fn survey<T: Send + 'static>(
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
