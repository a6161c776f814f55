//! What is written to bricks: the same to each of them, or a shard to each.

use super::names;
use bytes::Bytes;
use shoal_types::{BlockGroup, BlockId, BrickId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The content of a block that is being written.
pub(super) enum Content {
    /// Copies.
    Copies(Arc<[Bytes]>),
    /// Shards.
    Shards {
        /// What is stored already: other shards of the block.
        group: BlockGroup,
        /// The shards to store.
        shards: BTreeMap<usize, Bytes>,
        /// Shards that no brick is being sent, the next one last.
        free: Vec<usize>,
        /// Which brick was sent which shard.
        sent: Vec<(BrickId, usize)>,
    },
}

impl Content {
    /// Copies: each brick is sent all of these bytes.
    pub(super) fn copies(parts: &[Bytes]) -> Content {
        Content::Copies(parts.into())
    }

    /// One of these shards for each brick, beside what is in the group.
    pub(super) fn shards(group: BlockGroup, shards: BTreeMap<usize, Bytes>) -> Content {
        let free = shards.keys().rev().copied().collect();
        Content::Shards { group, shards, free, sent: Vec::new() }
    }

    /// What is stored before anything is written.
    pub(super) fn before(&self) -> BlockGroup {
        match self {
            Content::Copies(_) => BlockGroup::default(),
            Content::Shards { group, .. } => *group,
        }
    }

    /// Whether there is something to send to one more brick.
    pub(super) fn has_more(&mut self, stored: &BlockGroup) -> bool {
        match self {
            Content::Copies(_) => true,
            Content::Shards { free, .. } => {
                free.retain(|index| stored.shard(*index).is_none());
                !free.is_empty()
            }
        }
    }

    /// What one more brick is sent, and the name under which it stores that.
    pub(super) fn next(&mut self, id: BlockId, brick: BrickId) -> Option<(BlockId, Arc<[Bytes]>)> {
        match self {
            Content::Copies(parts) => Some((id, parts.clone())),
            Content::Shards { shards, free, sent, .. } => {
                let index = free.pop()?;
                sent.push((brick, index));
                Some((names::of_shard(id, index), [shards.get(&index)?.clone()].into()))
            }
        }
    }

    /// A brick failed or is slow: another one may take its place.
    pub(super) fn failed(&mut self, brick: BrickId) {
        if let Content::Shards { free, sent, .. } = self
            && let Some((_, index)) = sent.iter().find(|(one, _)| *one == brick)
            && !free.contains(index)
        {
            free.push(*index);
        }
    }

    /// The group when a brick has stored what it was sent. Of a shard that two bricks have stored, because
    /// one was slow, the first counts.
    pub(super) fn stored(&self, group: BlockGroup, brick: BrickId) -> BlockGroup {
        match self {
            Content::Copies(_) => group.with(brick).unwrap_or(group),
            Content::Shards { sent, .. } => {
                let index = sent.iter().find(|(one, _)| *one == brick).map(|(_, index)| *index);
                index.and_then(|index| group.with_shard(index, brick)).unwrap_or(group)
            }
        }
    }
}
