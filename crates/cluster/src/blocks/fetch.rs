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
        let holders = self.holders(&self.bricks.map(), id, group);
        let mut reading = Reading { damaged: Vec::new(), failure: None };
        let content = reading.run(self, id, holders, offset, len)?;
        for brick in reading.damaged {
            self.repair(id, group, brick);
        }
        Ok(content)
    }
}

/// One block being read.
struct Reading {
    damaged: Vec<BrickId>,
    /// The worst of what was heard that is not "there is no such block".
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
                calls.start(inner, brick, move |it| it.get(id, offset, len));
                true
            }
            None => false,
        };
        let mut waited_for = Vec::new();
        ask(&mut calls);
        while !calls.pending.is_empty() {
            match calls.next((Instant::now() + FETCH_HEDGE).min(give_up)) {
                Some((_, Ok(content))) if content.len() == len as usize => {
                    // Another one was faster than those: others should not wait for them, too.
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
                    let what = format!("no brick answers with block {id}");
                    return Err(self.failure.take().unwrap_or(BlockError::Unreachable(what)));
                }
                None => {
                    waited_for.clone_from(&calls.pending);
                    ask(&mut calls);
                }
            }
        }
        Err(self.failure.take().unwrap_or(BlockError::Missing(id)))
    }

    fn note(&mut self, id: BlockId, brick: BrickId, answer: Result<Bytes, BlockError>) {
        let error = match answer {
            Ok(content) => BlockError::Io {
                what: format!("{brick}, block {id}"),
                cause: format!("it answered with {} bytes", content.len()),
            },
            Err(error) => error,
        };
        match &error {
            BlockError::Missing(_) => return,
            BlockError::Corrupt { .. } => {
                tracing::error!(%brick, %error, "a copy is damaged");
                self.damaged.push(brick);
            }
            _ => {}
        }
        // A copy that may still be good outweighs one that is not.
        if matches!(self.failure, None | Some(BlockError::Corrupt { .. })) {
            self.failure = Some(error);
        }
    }
}
