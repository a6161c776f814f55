//! Two tiers: new blocks on the hot one, and moves between them.

use crate::support::*;
use shoal_cluster::map::Shards;
use shoal_cluster::{Command, ReplicatedBlocks};
use shoal_types::{BlockGroup, BlockInfo, BrickId, NodeId, Policy, Tier};
use shoal_wire::{BlockError, VolumeBlocks};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bricks of the hot tier in [`tiered`].
const HOT: [BrickId; 2] = [BrickId(4), BrickId(5)];

fn attach(world: &World, replica: u8, shards: Option<Shards>, nodes: &[u32]) {
    let place = |node: &u32| (NodeId(*node), format!("/hot/{node}").into());
    let bricks = nodes.iter().map(place).collect();
    world.change(Command::AttachTier { volume: VOLUME, replica, shards, bricks, force: false });
}

/// Three copies on bricks 1 to 3, under a hot tier of two copies on bricks 4 and 5.
fn tiered() -> (Arc<World>, Arc<ReplicatedBlocks>) {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    attach(&world, 2, None, &[1, 2]);
    (world, blocks)
}

fn info(len: u32, group: BlockGroup) -> BlockInfo {
    BlockInfo { len, group }
}

fn hot() -> BlockGroup {
    BlockGroup::new(HOT).unwrap().on_hot_tier(2)
}

#[test]
fn new_block_is_stored_on_the_hot_tier_with_its_number_of_copies() {
    let (world, blocks) = tiered();
    let stored = blocks.store(id(1), &[content(1, 100)]).unwrap();
    assert_eq!((stored, world.holders(id(1))), (hot(), group(&[4, 5])));
    assert!(blocks.is_whole(stored) && blocks.is_balanced(id(1), stored));
    assert_eq!(blocks.heal(id(1), info(100, stored)).unwrap(), stored);
    assert_eq!(blocks.fetch(id(1), stored, 0, 100).unwrap(), content(1, 100));
    let shards = BlockGroup::new([BrickId(1), BrickId(4)]).unwrap().on_hot_tier(2);
    assert!(!blocks.is_whole(shards), "a brick of the other tier");
}

#[test]
fn hot_tier_that_is_full_or_lacks_a_brick_leaves_new_blocks_to_the_cold_one() {
    let (world, blocks) = tiered();
    for seq in 0..20 {
        world.mem(HOT[0]).set_full(seq >= 10);
        world.mem(HOT[1]).set_down(seq < 10);
        let stored = blocks.store(id(seq), &[content(seq, 100)]).unwrap();
        assert_eq!(stored, group(&[1, 2, 3]));
        assert_eq!(blocks.fetch(id(seq), stored, 0, 100).unwrap(), content(seq, 100));
    }
}

fn pinned(tier: Option<Tier>) -> Policy {
    Policy { tier, ..Policy::default() }
}

#[test]
fn content_that_is_pinned_cold_is_stored_on_the_cold_tier() {
    let (world, blocks) = tiered();
    for (seq, pin, expected) in
        [(1, Some(Tier::Cold), group(&[1, 2, 3])), (2, Some(Tier::Hot), hot()), (3, None, hot())]
    {
        assert_eq!(blocks.store_with_policy(id(seq), &[content(seq, 100)], pinned(pin)), Ok(expected));
    }
    world.mem(HOT[0]).set_full(true);
    let stored = blocks.store_with_policy(id(4), &[content(4, 100)], pinned(Some(Tier::Hot))).unwrap();
    assert_eq!(stored, group(&[1, 2, 3]), "a full hot tier is no error");
}

#[test]
fn hot_tier_that_is_being_detached_gets_no_new_blocks() {
    let (world, blocks) = tiered();
    world.change(Command::DetachTier { volume: VOLUME, start: true });
    assert_eq!(blocks.store(id(1), &[content(1, 100)]).unwrap(), group(&[1, 2, 3]));
    world.change(Command::DetachTier { volume: VOLUME, start: false });
    assert_eq!(blocks.store(id(2), &[content(2, 100)]).unwrap(), hot());
}

#[test]
fn lost_copy_on_the_hot_tier_is_restored_there() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    attach(&world, 2, None, &[1, 2, 3]);
    let stored = blocks.store(id(1), &[content(1, 100)]).unwrap();
    let lost = stored.bricks().next().unwrap();
    world.mem(lost).wipe();
    world.change(Command::Lose { volume: VOLUME, bricks: vec![lost] });
    assert!(!blocks.is_whole(stored));
    let healed = blocks.heal(id(1), info(100, stored)).unwrap();
    assert_eq!((healed.tier(), healed.len()), (Tier::Hot, 2));
    assert!(healed.bricks().all(|brick| brick.0 > 3) && blocks.is_whole(healed), "{healed:?}");
}

#[test]
fn block_is_moved_whole_between_tiers_of_different_schemes() {
    for (hot_shards, cold_shards) in [(None, None), (Some((2, 1)), None), (None, Some((2, 1)))] {
        let scheme = |shards: Option<(u8, u8)>| shards.map(|(data, parity)| Shards { data, parity });
        let (world, blocks) = match cold_shards {
            Some((data, parity)) => World::sharded(data, parity, 3),
            None => World::new(3, 3, &[1, 2, 3]),
        };
        attach(&world, 2, scheme(hot_shards), &[1, 2, 3]);
        let bytes = content(7, 300_000);
        let stored = blocks.store(id(7), std::slice::from_ref(&bytes)).unwrap();
        assert_eq!((stored.tier(), stored.is_sharded()), (Tier::Hot, hot_shards.is_some()));
        let len = bytes.len() as u32;
        let cold = blocks.move_to(id(7), info(len, stored), Tier::Cold, None).unwrap();
        assert_eq!((cold.tier(), cold.is_sharded()), (Tier::Cold, cold_shards.is_some()));
        assert!(blocks.is_whole(cold) && blocks.is_whole(stored), "{stored:?} {cold:?}");
        assert_eq!(blocks.fetch(id(7), cold, 0, len).unwrap(), bytes);
        assert_eq!(blocks.move_to(id(7), info(len, cold), Tier::Cold, None).unwrap(), cold, "it is there");
        let than = blocks.moments().unwrap();
        assert_eq!(blocks.discard_older(&[(id(7), stored)], &than).unwrap(), []);
        let again = blocks.move_to(id(7), info(len, cold), Tier::Hot, None).unwrap();
        assert_eq!((again.tier(), blocks.fetch(id(7), again, 0, len).unwrap()), (Tier::Hot, bytes));
    }
}

#[test]
fn move_fails_while_a_brick_cannot_show_what_it_stored() {
    let (world, blocks) = tiered();
    let stored = blocks.store(id(1), &[content(1, 100)]).unwrap();
    world.mem(BrickId(2)).set_spoils(true);
    let outcome = blocks.move_to(id(1), info(100, stored), Tier::Cold, None);
    // The block itself is not damaged, and is not reported to be.
    assert!(matches!(outcome, Err(BlockError::Io { .. })), "{outcome:?}");
    world.mem(BrickId(2)).set_spoils(false);
    world.mem(BrickId(2)).wipe();
    assert_eq!(blocks.move_to(id(1), info(100, stored), Tier::Cold, None).unwrap(), group(&[1, 2, 3]));
    world.mem(BrickId(3)).set_down(true);
    assert!(blocks.move_to(id(1), info(100, stored), Tier::Cold, None).is_err(), "a copy too few");
}

#[test]
fn reads_are_told_once_and_those_of_shards_count_as_one() {
    let (world, blocks) = World::sharded(2, 1, 3);
    let cold = blocks.store(id(2), &[content(2, 300_000)]).unwrap();
    attach(&world, 2, None, &[1, 2]);
    let hot = blocks.store(id(1), &[content(1, 100)]).unwrap();
    for _ in 0..3 {
        blocks.fetch(id(1), hot, 0, 100).unwrap();
        blocks.fetch(id(2), cold, 0, 300_000).unwrap();
    }
    assert_eq!(blocks.reads().unwrap(), BTreeMap::from([(id(1), 3), (id(2), 3)]));
    assert_eq!(blocks.reads().unwrap(), BTreeMap::new());
}

#[test]
fn room_is_that_of_both_tiers_while_new_blocks_go_to_both() {
    let (world, blocks) = tiered();
    let total = |blocks: &ReplicatedBlocks| blocks.room().unwrap().total_bytes;
    let (cold, hot) =
        (blocks.room_in(Tier::Cold).unwrap().total_bytes, blocks.room_in(Tier::Hot).unwrap().total_bytes);
    assert_eq!(total(&blocks), cold + hot);
    world.change(Command::DetachTier { volume: VOLUME, start: true });
    assert_eq!(total(&blocks), cold);
}
