//! Giving a block the copies that it lacks.

use super::Inner;
use super::call::Calls;
use crate::limits::FETCH_WAIT_MAX;
use crate::map::ClusterMap;
use crate::placement::{self, Load, Rules};
use bytes::Bytes;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId};
use shoal_wire::BlockError;
use std::sync::Arc;
use std::time::Instant;

impl Inner {
    /// A brick that is away for a while is not gone, and what it has counts. What is on a brick that is being drained stays in
    /// the group until enough copies are elsewhere.
    pub(super) fn mend(self: &Arc<Inner>, id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        let map = self.bricks.map();
        let rules = self.rules(&map)?;
        if placement::is_whole(&map, self.volume, info.group) {
            return Ok(info.group);
        }
        let (content, bad) = self.source(&map, id, info)?;
        self.spread(&map, rules, id, (info.group, bad), &content)
    }

    /// The whole content, and those of the group that turned out not to have it.
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
            call.start(self, brick, move |it| it.get(id, 0, info.len));
            match call.next(give_up) {
                Some((_, Ok(content))) if content.len() == info.len as usize => return Ok((content, bad)),
                Some((_, Err(error @ (BlockError::Missing(_) | BlockError::Corrupt { .. })))) => {
                    tracing::error!(%brick, %error, "a copy is not as it should be");
                    bad.push(brick);
                    failure = failure.or(Some(error));
                }
                Some((_, Err(error))) => failure = Some(error),
                _ => failure = Some(BlockError::Unreachable(format!("{brick} does not answer"))),
            }
        }
        Err(failure.unwrap_or(BlockError::Missing(id)))
    }

    fn spread(
        self: &Arc<Inner>,
        map: &ClusterMap,
        rules: Rules,
        id: BlockId,
        (group, bad): (BlockGroup, Vec<BrickId>),
        content: &Bytes,
    ) -> Result<BlockGroup, BlockError> {
        let (ranked, good) = self.ranked(map, id);
        let mut load = Load::default();
        let mut kept = BlockGroup::default();
        // Where a node has too many copies, those stay that placement would choose, too.
        for candidate in &ranked {
            let has_it = group.contains(candidate.brick) && !bad.contains(&candidate.brick);
            if has_it && kept.len() < rules.replica && load.admits(candidate.node, rules) {
                load.add(candidate.node);
                kept = kept.with(candidate.brick).unwrap_or(kept);
            }
        }
        let elsewhere = |brick: BrickId| !kept.contains(brick);
        let good = ranked.iter().take(good).filter(|it| elsewhere(it.brick)).count();
        let left: Vec<_> = ranked.into_iter().filter(|it| elsewhere(it.brick)).collect();
        let count = rules.replica - kept.len();
        let added = self.copy((id, content), rules, (&left, good), load, count)?;
        let mut mended = added.bricks().try_fold(kept, BlockGroup::with).unwrap_or(kept);
        // What cannot be replaced yet is better than nothing.
        let spare = group.bricks().filter(|it| !bad.contains(it) && !placement::is_gone(map, *it));
        for brick in spare {
            if mended.len() < rules.replica {
                mended = mended.with(brick).unwrap_or(mended);
            }
        }
        Ok(mended)
    }
}
