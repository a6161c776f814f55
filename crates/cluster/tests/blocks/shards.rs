//! Blocks in shards: every operation that copies know, with bricks that fail.

use crate::support::{MemBrick, VOLUME, World, all_copies, content, eventually, id, shard};
use bytes::Bytes;
use shoal_cluster::{Command, ReplicatedBlocks};
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId, NodeId};
use shoal_wire::{BlockError, VolumeBlocks};
use std::sync::Arc;

const LEN: usize = 300_000;

fn name(seq: u64, index: usize) -> BlockId {
    shard(id(seq), index)
}

fn store(blocks: &ReplicatedBlocks, seq: u64) -> (Bytes, BlockGroup) {
    let block = content(seq, LEN);
    let group = blocks.store(id(seq), &[block.slice(..1000), block.slice(1000..)]).expect("bricks are up");
    (block, group)
}

fn info(group: BlockGroup) -> BlockInfo {
    BlockInfo { len: LEN as u32, group }
}

/// Reads of all of a block, of small parts and across the borders of shards.
fn assert_reads(blocks: &ReplicatedBlocks, seq: u64, group: BlockGroup, block: &Bytes) {
    let shard = LEN / 4;
    for (offset, len) in
        [(0, LEN), (0, 1), (LEN - 1, 1), (shard - 10, 20), (5, shard * 2), (LEN - 70, 70), (9, 0)]
    {
        let found = blocks.fetch(id(seq), group, offset as u32, len as u32);
        assert!(
            found.as_ref() == Ok(&block.slice(offset..offset + len)),
            "{offset}+{len}: {:?}",
            found.err()
        );
    }
}

/// Whether each shard of a group is on its brick, as it should be.
fn assert_stored(world: &World, seq: u64, group: BlockGroup) {
    for (index, brick) in group.shards() {
        assert!(world.mem(brick).has(name(seq, index)), "shard {index} is on {brick}");
        assert!(!world.mem(brick).is_damaged(name(seq, index)));
    }
}

#[test]
fn block_is_stored_as_one_shard_on_each_brick_and_read_back() {
    let (world, blocks) = World::sharded(4, 2, 6);
    let (block, group) = store(&blocks, 1);
    assert_eq!((group.data_shards(), group.all_shards(), group.len()), (4, 6, 6));
    assert_stored(&world, 1, group);
    assert!(blocks.is_whole(group) && blocks.is_balanced(id(1), group));
    assert_reads(&blocks, 1, group, &block);
    let stored: usize = group
        .shards()
        .map(|(index, brick)| world.mem(brick).content(name(1, index)).expect("there").len())
        .sum();
    assert!(stored < LEN * 6 / 4 + 6 * 64, "{stored} bytes are stored");
    assert_eq!(blocks.store(id(1), &[block]), Ok(group), "storing it again finds the shards");
}

#[test]
fn small_read_asks_one_brick_and_a_whole_one_asks_the_data_shards() {
    let (world, blocks) = World::sharded(4, 2, 6);
    let (block, group) = store(&blocks, 1);
    let gets = || world.ids().iter().map(|brick| world.mem(*brick).gets()).sum::<u64>();
    let before = gets();
    assert_eq!(blocks.fetch(id(1), group, 1000, 4096).expect("bricks are up"), block.slice(1000..5096));
    assert_eq!(gets() - before, 1);
    assert_eq!(blocks.fetch(id(1), group, 0, LEN as u32).expect("bricks are up"), block);
    assert_eq!(gets() - before, 5);
}

#[test]
fn short_block_is_kept_in_one_more_copy_than_there_are_parity_shards() {
    let (_, blocks) = World::sharded(4, 2, 6);
    let block = content(1, 70_000);
    let group = blocks.store(id(1), std::slice::from_ref(&block)).expect("bricks are up");
    assert!(!group.is_sharded() && group.len() == 3, "{group:?}");
    assert_eq!(blocks.fetch(id(1), group, 0, 70_000).expect("bricks are up"), block);
}

/// How a brick loses a shard.
type Way = fn(&MemBrick, BlockId);

const WAYS: [Way; 3] =
    [|brick, _| brick.set_down(true), |brick, name| brick.damage(name), |brick, _| brick.wipe()];

/// All sets of at least one of so many shards, as bits.
fn losses(shards: u8) -> impl Iterator<Item = u32> {
    1..1u32 << shards
}

/// A block in shards, some of which are lost then.
fn with_losses(
    (data, parity): (u8, u8),
    lost: u32,
    way: Way,
) -> (Arc<World>, Arc<ReplicatedBlocks>, BlockGroup, Bytes) {
    let (world, blocks) = World::sharded(data, parity, u32::from(data + parity));
    let (block, group) = store(&blocks, 1);
    for (index, brick) in group.shards().filter(|(index, _)| lost & (1 << index) != 0) {
        way(&world.mem(brick), name(1, index));
    }
    (world, blocks, group, block)
}

#[test]
fn every_pattern_of_up_to_m_dead_or_damaged_or_wiped_bricks_is_read_through() {
    for (data, parity) in [(2, 1), (2, 2), (4, 2), (3, 3)] {
        for lost in losses(data + parity).filter(|lost| lost.count_ones() <= u32::from(parity)) {
            for way in WAYS {
                let (_world, blocks, group, block) = with_losses((data, parity), lost, way);
                assert_reads(&blocks, 1, group, &block);
            }
        }
    }
}

#[test]
fn every_pattern_of_up_to_m_slow_bricks_is_read_through() {
    std::thread::scope(|scope| {
        for (data, parity) in [(2, 1), (2, 2), (4, 2)] {
            for lost in losses(data + parity).filter(|lost| lost.count_ones() <= u32::from(parity)) {
                scope.spawn(move || {
                    let slow: Way = |brick, _| brick.set_stuck(true);
                    let (world, blocks, group, block) = with_losses((data, parity), lost, slow);
                    assert_reads(&blocks, 1, group, &block);
                    world.ids().into_iter().for_each(|brick| world.mem(brick).set_stuck(false));
                });
            }
        }
    });
}

#[test]
fn every_pattern_of_m_and_one_more_loss_is_an_error_and_never_other_bytes() {
    for (data, parity) in [(2, 1), (2, 2), (4, 2)] {
        for lost in losses(data + parity).filter(|lost| lost.count_ones() == u32::from(parity) + 1) {
            for way in WAYS {
                let (_world, blocks, group, _) = with_losses((data, parity), lost, way);
                let whole = blocks.fetch(id(1), group, 0, LEN as u32);
                assert!(whole.is_err(), "{data}+{parity} without {lost:b}: {group:?}");
            }
        }
    }
}

#[test]
fn more_than_m_losses_are_an_error_that_says_whether_to_wait() {
    let (world, blocks) = World::sharded(4, 2, 6);
    let (_, group) = store(&blocks, 1);
    let bricks: Vec<BrickId> = group.bricks().collect();
    bricks[..3].iter().for_each(|brick| world.mem(*brick).set_down(true));
    let found = blocks.fetch(id(1), group, 0, 100);
    assert!(matches!(found, Err(BlockError::Unreachable(_))), "they may come back: {found:?}");
    bricks[..3].iter().for_each(|brick| {
        world.mem(*brick).set_down(false);
        world.mem(*brick).wipe();
    });
    eventually("the bricks answer again", || {
        blocks.fetch(id(1), group, 0, 100) == Err(BlockError::Missing(id(1)))
    });
}

#[test]
fn write_counts_with_one_shard_more_than_give_it_back_and_no_fewer() {
    let (world, blocks) = World::sharded(4, 2, 6);
    world.mem(BrickId(6)).set_down(true);
    let (block, group) = store(&blocks, 1);
    assert_eq!((group.len(), group.contains(BrickId(6))), (5, false));
    assert!(!blocks.is_whole(group) && group.is_short(3));
    assert_reads(&blocks, 1, group, &block);
    world.mem(BrickId(5)).set_full(true);
    assert!(matches!(blocks.store(id(2), &[block]), Err(BlockError::Unreachable(_) | BlockError::Full)));
}

#[test]
fn brick_that_fails_at_a_write_is_replaced_if_there_is_another() {
    let (world, blocks) = World::sharded(4, 2, 8);
    world.mem(BrickId(1)).set_down(true);
    world.mem(BrickId(2)).set_full(true);
    for seq in 0..8 {
        let (block, group) = store(&blocks, seq);
        assert!(blocks.is_whole(group), "{group:?}");
        assert_stored(&world, seq, group);
        assert_reads(&blocks, seq, group, &block);
    }
}

#[test]
fn wiped_bricks_are_healed_together_from_k_shards() {
    let (world, blocks) = World::sharded(4, 2, 6);
    let (block, group) = store(&blocks, 1);
    let lost: Vec<BrickId> = group.bricks().skip(1).take(2).collect();
    lost.iter().for_each(|brick| world.mem(*brick).wipe());
    let left = blocks.verify(id(1), group);
    assert_eq!(left, lost.iter().fold(group, |group, brick| group.without(*brick)));
    let gets = || world.ids().iter().map(|brick| world.mem(*brick).gets()).sum::<u64>();
    let before = gets();
    let healed = blocks.heal(id(1), info(left)).expect("enough shards are left");
    assert_eq!(gets() - before, 4, "both are restored from one reading of k shards");
    assert!(blocks.is_whole(healed), "{healed:?}");
    assert_stored(&world, 1, healed);
    assert_reads(&blocks, 1, healed, &block);
}

#[test]
fn shard_of_a_lost_brick_is_restored_on_a_spare_one() {
    let (world, blocks) = World::sharded(4, 2, 7);
    let (block, group) = store(&blocks, 1);
    let lost = group.shard(2).expect("it is stored");
    world.mem(lost).set_down(true);
    world.change(Command::Lose { volume: VOLUME, bricks: vec![lost] });
    assert!(!blocks.is_whole(group));
    let healed = blocks.heal(id(1), info(group)).expect("enough shards are left");
    assert!(blocks.is_whole(healed) && !healed.contains(lost), "{healed:?}");
    let kept: Vec<_> = group.shards().filter(|(_, brick)| *brick != lost).collect();
    assert!(kept.iter().all(|(index, brick)| healed.shard(*index) == Some(*brick)), "the others stay");
    assert_stored(&world, 1, healed);
    assert_reads(&blocks, 1, healed, &block);
}

#[test]
fn drained_brick_gives_its_shard_away_and_keeps_it_while_no_other_takes_it() {
    let (world, blocks) = World::sharded(4, 2, 7);
    let (block, group) = store(&blocks, 1);
    let spare = world.ids().into_iter().find(|brick| !group.contains(*brick)).expect("one is spare");
    let drained = group.shard(5).expect("it is stored");
    world.mem(spare).set_down(true);
    world.change(Command::Drain { volume: VOLUME, bricks: vec![drained] });
    assert!(!blocks.is_whole(group));
    eventually("the spare brick is known to be down", || blocks.heal(id(1), info(group)) == Ok(group));
    world.mem(spare).set_down(false);
    let mut healed = group;
    let gets = || world.ids().iter().map(|brick| world.mem(*brick).gets()).sum::<u64>();
    let before = gets();
    eventually("the spare brick takes the shard", || {
        healed = blocks.heal(id(1), info(group)).expect("all shards are there");
        healed.shard(5) == Some(spare)
    });
    assert_eq!(gets() - before, 1, "the shard is copied as it is");
    assert!(blocks.is_whole(healed) && !healed.contains(drained));
    assert_reads(&blocks, 1, healed, &block);
    assert_eq!(blocks.discard(&[(id(1), group.without_all(&healed))]), Ok(vec![]));
    assert!(!world.mem(drained).has(name(1, 5)), "what it has is in excess then");
    assert_stored(&world, 1, healed);
}

#[test]
fn damaged_shard_is_repaired_by_a_reader_and_by_the_scrubber() {
    let (world, blocks) = World::sharded(4, 2, 6);
    let (block, group) = store(&blocks, 1);
    for index in [1, 5] {
        let brick = group.shard(index).expect("it is stored");
        let good = world.mem(brick).content(name(1, index));
        world.mem(brick).damage(name(1, index));
        if index == 1 {
            assert_reads(&blocks, 1, group, &block);
        } else {
            blocks.repair_copy(name(1, index), brick).expect("the others are good");
        }
        eventually("it is repaired", || !world.mem(brick).is_damaged(name(1, index)));
        assert_eq!(world.mem(brick).content(name(1, index)), good);
    }
}

#[test]
fn new_bricks_get_their_share_of_the_shards() {
    let (world, blocks) = World::sharded(2, 1, 4);
    let stored: Vec<_> = (0..20).map(|seq| store(&blocks, seq)).collect();
    let bricks = vec![(NodeId(1), "/more".into())];
    world.change(Command::AddBricks { volume: VOLUME, bricks });
    let mut moved = 0;
    for (seq, (block, group)) in stored.iter().enumerate() {
        let seq = seq as u64;
        let mut now = *group;
        eventually("it is balanced", || {
            now = blocks.rebalance(id(seq), info(now)).expect("all bricks are up");
            blocks.is_balanced(id(seq), now)
        });
        moved += usize::from(now != *group);
        assert!(blocks.is_whole(now));
        assert_reads(&blocks, seq, now, block);
    }
    assert!(moved > 0);
}

#[test]
fn listing_names_each_brick_of_each_shard_and_deleting_leaves_nothing() {
    let (world, blocks) = World::sharded(4, 2, 6);
    let mut stored: Vec<_> = (0..40).map(|seq| (id(seq), store(&blocks, seq).1)).collect();
    let short = content(40, 5000);
    stored.push((id(40), blocks.store(id(40), &[short]).expect("bricks are up")));
    assert_eq!(blocks.stored_sessions(), Ok(vec![id(0).session]));
    let listed = all_copies(&blocks, |_| {});
    assert_eq!(listed.len(), stored.len());
    for ((one, listed), (other, group)) in listed.iter().zip(&stored) {
        assert_eq!((one, listed.without_all(group).is_empty()), (other, true), "nothing is in excess");
        assert_eq!(listed.len(), group.len());
    }
    // A shard that is on a brick beside another one of the same block is listed, too.
    let (brick, index) = (stored[7].1.shard(3).expect("it is stored"), 4);
    let there = world.mem(stored[7].1.shard(index).expect("it is stored")).content(name(7, index));
    shoal_wire::BlockService::put(&*world.mem(brick), name(7, index), &[there.expect("it is stored")])
        .expect("new");
    let page = blocks.copies(id(7)).expect("bricks are up");
    let own = page.blocks.iter().filter(|(one, _)| *one == id(7));
    let excess: Vec<_> =
        own.map(|(_, group)| group.without_all(&stored[7].1)).filter(|it| !it.is_empty()).collect();
    assert_eq!(
        excess.iter().map(|it| it.shards().collect::<Vec<_>>()).collect::<Vec<_>>(),
        [[(index, brick)]]
    );
    assert_eq!(blocks.discard(&[(id(7), excess[0])]), Ok(vec![]));
    assert_stored(&world, 7, stored[7].1);
    assert_eq!(blocks.discard(&stored[..20]), Ok(vec![]));
    let everywhere: Vec<_> = stored[20..].iter().map(|(id, _)| (*id, BlockGroup::default())).collect();
    assert_eq!(blocks.discard(&everywhere), Ok(vec![]));
    assert!(world.ids().iter().all(|brick| world.mem(*brick).len() == 0));
}
