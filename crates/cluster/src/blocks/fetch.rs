//! Reading a block.

use super::Inner;
use super::call::Calls;
use crate::limits::{FETCH_HEDGE, FETCH_WAIT_MAX};
use bytes::Bytes;
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, BrickId};
use shoal_wire::BlockError;
use std::sync::Arc;

impl Inner {
    pub(super) fn fetch(
        self: &Arc<Inner>,
        id: BlockId,
        group: BlockGroup,
        offset: u32,
        len: u32,
    ) -> Result<Bytes, BlockError> {
        let (content, reading) = match group.is_sharded() {
            true => self.fetch_shards(id, group, offset, len)?,
            false => {
                let holders = self.holders(&self.bricks.map(), id, group);
                let mut reading = Reading::default();
                (reading.run(self, id, holders, offset, len)?, reading)
            }
        };
        for brick in reading.damaged {
            self.repair(id, group, brick);
        }
        Ok(content)
    }
}

/// A read in progress.
#[derive(Default)]
pub(super) struct Reading {
    /// Bricks whose copy or shard is damaged.
    pub(super) damaged: Vec<BrickId>,
    /// Bricks that do not have the block.
    pub(super) absent: Vec<BrickId>,
    /// Bricks that have taken too long.
    pub(super) is_late: Vec<BrickId>,
    /// The most significant other failure.
    failure: Option<BlockError>,
}

impl Reading {
    fn run(
        &mut self,
        inner: &Arc<Inner>,
        id: BlockId,
        holders: Vec<BrickId>,
        offset: u32,
        len: u32,
    ) -> Result<Bytes, BlockError> {
        let give_up = Instant::now() + FETCH_WAIT_MAX;
        let mut calls = Calls::new();
        let mut left = holders.into_iter();
        let mut ask = |calls: &mut Calls<Bytes>| match left.next() {
            Some(brick) => {
                calls.start_get(inner, brick, id, offset, len);
                true
            }
            None => false,
        };
        let mut waited_for = Vec::new();
        ask(&mut calls);
        while !calls.pending.is_empty() {
            match calls.next((Instant::now() + FETCH_HEDGE).min(give_up)) {
                Some((_, Ok(content))) if content.len() == len as usize => {
                    // Another brick was faster than those: later reads should not wait for them, too.
                    waited_for
                        .iter()
                        .filter(|it| calls.pending.contains(it))
                        .for_each(|it| inner.health.failed(*it));
                    return Ok(content);
                }
                Some((brick, answer)) => {
                    self.note(id, brick, answer);
                    ask(&mut calls);
                }
                None if Instant::now() >= give_up => {
                    calls.pending.iter().for_each(|it| inner.health.failed(*it));
                    return Err(self.verdict(id, true));
                }
                None => {
                    waited_for.clone_from(&calls.pending);
                    ask(&mut calls);
                }
            }
        }
        Err(self.verdict(id, false))
    }

    /// The error if no brick had a good copy. `silent`: some have not answered.
    pub(super) fn verdict(&mut self, id: BlockId, silent: bool) -> BlockError {
        match self.failure.take() {
            None | Some(BlockError::Corrupt { .. }) if silent => {
                BlockError::Unreachable(format!("no brick answers with block {id}"))
            }
            // Copies are deleted one by one: the damaged one may be the last copy of a deleted block.
            None | Some(BlockError::Corrupt { .. }) if !self.absent.is_empty() => BlockError::Missing(id),
            failure => failure.unwrap_or(BlockError::Missing(id)),
        }
    }

    pub(super) fn note(&mut self, id: BlockId, brick: BrickId, answer: Result<Bytes, BlockError>) {
        let error = match answer {
            Ok(content) => BlockError::Io {
                what: format!("{brick}, block {id}"),
                cause: format!("it answered with {} bytes", content.len()),
            },
            Err(error) => error,
        };
        match &error {
            BlockError::Missing(_) => {
                return self.absent.push(brick);
            }
            BlockError::Corrupt { .. } => {
                tracing::error!(%brick, %error, "a copy is damaged");
                self.damaged.push(brick);
            }
            _ => {}
        }
        // A copy that may still be good outweighs a damaged one.
        if matches!(self.failure, None | Some(BlockError::Corrupt { .. })) {
            self.failure = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    #[test]
    fn only_where_every_copy_is_damaged_a_block_is_said_to_be_damaged() {
        let id = BlockId { session: SessionId(1), seq: 1 };
        let damaged = || Some(BlockError::Corrupt { id, what: "its checksum".into() });
        let verdict = |failure, missing: bool, silent| {
            let absent = Vec::from_iter(missing.then_some(BrickId(1)));
            Reading { absent, failure, ..Reading::default() }.verdict(id, silent)
        };
        assert_eq!(verdict(damaged(), false, false), damaged().expect("given above"));
        assert_eq!(verdict(damaged(), true, false), BlockError::Missing(id));
        assert_eq!(verdict(None, true, false), BlockError::Missing(id));
        assert_eq!(verdict(None, false, false), BlockError::Missing(id), "no brick is left to ask");
        assert!(matches!(verdict(damaged(), true, true), BlockError::Unreachable(_)));
        let away = BlockError::Unreachable("it is away".into());
        assert_eq!(verdict(Some(away.clone()), true, false), away);
    }
}
