//! The names under which bricks store shards.
//!
//! A shard is a block of its own on its brick: it has the block's number, in a session that is the block's
//! with the shard's index in its highest byte. So bricks, their listings and their scrubbing know nothing of
//! shards, and a volume may have copies of some blocks and shards of others.

use shoal_types::{BlockGroup, BlockId, BrickId, SessionId};

/// The bits of a session's number above this are the shard's index plus one; 0 for a copy. Sessions are
/// numbered from 1 on, and never reach it.
const INDEX_SHIFT: u32 = 56;

/// The name of a shard on its brick.
pub fn of_shard(id: BlockId, index: usize) -> BlockId {
    let mark = (index as u64 + 1) << INDEX_SHIFT;
    BlockId { session: SessionId(id.session.0 | mark), ..id }
}

/// The block that a name on a brick stands for, and the index of the shard, if it is one.
pub fn parse(name: BlockId) -> (BlockId, Option<usize>) {
    let session = SessionId(name.session.0 & ((1 << INDEX_SHIFT) - 1));
    let index = (name.session.0 >> INDEX_SHIFT).checked_sub(1);
    (BlockId { session, ..name }, index.map(|index| index as usize))
}

/// The name of a block on a brick of its group: of its copy, or of its shard there.
pub fn on_brick(id: BlockId, group: &BlockGroup, brick: BrickId) -> BlockId {
    group.shard_on(brick).map_or(id, |index| of_shard(id, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_shard_tells_the_block_and_the_index() {
        let id = BlockId { session: SessionId(7), seq: 9 };
        assert_eq!(parse(id), (id, None));
        for index in 0..16 {
            let name = of_shard(id, index);
            assert_eq!((parse(name), name.seq), ((id, Some(index)), 9));
            assert_ne!(name.session, id.session);
        }
    }
}
