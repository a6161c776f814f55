//! How many further losses of bricks the blocks of a volume survive.

use crate::limits::UNREADABLE_NAMED_MAX;
use serde::{Deserialize, Serialize};
use shoal_namespace::records::BlockRecord;
use shoal_types::{BlockGroup, BlockId, Tier};
use shoal_wire::VolumeBlocks;
use std::collections::BTreeMap;

/// Blocks that are stored in one way and survive the same number of further losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LossClass {
    /// Whether they are on the hot tier.
    pub hot: bool,
    /// Shards that give a block back; 0: they are in copies.
    pub data: u8,
    /// All shards of a block, or all its copies.
    pub all: u8,
    /// How many further losses of bricks they survive; `None`: they cannot be read now.
    pub survives: Option<u8>,
    /// Whether they have all copies or shards, on bricks that stay.
    pub whole: bool,
    /// The number of blocks.
    pub blocks: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

/// The blocks in use of a volume, by what they survive.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Losses {
    /// The classes, those that survive the least first within each scheme.
    pub classes: Vec<LossClass>,
    /// Some of the blocks that cannot be read now.
    pub unreadable: Vec<BlockId>,
}

/// The numbers of a group's scheme: data shards and all shards, or 0 and the copies that it should have.
pub(crate) fn numbers(group: &BlockGroup, original: u8) -> (u8, u8) {
    let scheme = group.scheme(original);
    (scheme.shards().map_or(0, |shards| shards.data), scheme.width() as u8)
}

type Class = (bool, u8, u8, Option<u8>, bool);

/// Counts blocks.
pub(crate) struct Counter {
    /// Copies of a block when the volume was created.
    original_copies: u8,
    classes: BTreeMap<Class, (u64, u64)>,
    unreadable: Vec<BlockId>,
}

impl Counter {
    pub(crate) fn new(original_copies: u8) -> Counter {
        Counter { original_copies, classes: BTreeMap::new(), unreadable: Vec::new() }
    }

    /// Takes in a block, unless it is garbage.
    pub(crate) fn add(&mut self, bricks: &dyn VolumeBlocks, id: BlockId, block: &BlockRecord) {
        if block.refs == 0 {
            return;
        }
        let group = block.info.group;
        let survives = bricks.losses_survived(group).map(|losses| losses as u8);
        if survives.is_none() && self.unreadable.len() < UNREADABLE_NAMED_MAX {
            self.unreadable.push(id);
        }
        let (data, all) = numbers(&group, self.original_copies);
        let is_whole = survives.is_some() && bricks.is_whole(group);
        let class = (group.tier() == Tier::Hot, data, all, survives, is_whole);
        let (blocks, bytes) = self.classes.entry(class).or_default();
        (*blocks, *bytes) = (*blocks + 1, *bytes + u64::from(block.info.len));
    }

    pub(crate) fn finish(self) -> Losses {
        let class = |((hot, data, all, survives, whole), (blocks, bytes))| LossClass {
            hot,
            data,
            all,
            survives,
            whole,
            blocks,
            bytes,
        };
        Losses { classes: self.classes.into_iter().map(class).collect(), unreadable: self.unreadable }
    }
}
