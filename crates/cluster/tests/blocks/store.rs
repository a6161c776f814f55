use crate::support::*;
use shoal_cluster::limits::STORE_HEDGE;
use shoal_types::BrickId;
use shoal_wire::{BlockError, VolumeBlocks};
use std::collections::BTreeSet;
use std::time::Instant;

#[test]
fn a_block_is_on_as_many_nodes_as_the_volume_wants_copies() {
    let (world, blocks) = World::new(3, 3, &[1, 1, 2, 2, 3, 3]);
    for seq in 0..50 {
        let group = blocks.store(id(seq), &[content(seq, 10), content(seq, 5)]).unwrap();
        assert_eq!(group, world.holders(id(seq)));
        assert!(blocks.is_whole(group));
        let nodes: BTreeSet<_> = group.bricks().map(|brick| world.node_of(brick)).collect();
        assert_eq!((group.len(), nodes.len()), (3, 3), "{group:?}");
    }
    assert!(world.ids().iter().all(|brick| world.mem(*brick).len() > 10), "no brick is left out");
}

#[test]
fn bricks_that_are_down_are_replaced_by_others_and_left_alone() {
    let (world, blocks) = World::new(4, 3, &[1, 2, 3, 4]);
    world.mem(BrickId(2)).set_down(true);
    for seq in 0..20 {
        assert_eq!(blocks.store(id(seq), &[content(seq, 9)]).unwrap(), group(&[1, 3, 4]));
    }
    world.mem(BrickId(2)).set_down(false);
    let mut seq = 100;
    eventually("the brick is used again", || {
        seq += 1;
        blocks.store(id(seq), &[content(seq, 9)]).unwrap().contains(BrickId(2))
    });
}

#[test]
fn with_a_node_down_a_majority_of_copies_counts_and_less_does_not() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    world.mem(BrickId(3)).set_down(true);
    let two = blocks.store(id(1), &[content(1, 9)]).unwrap();
    assert_eq!(two, group(&[1, 2]));
    assert!(!blocks.is_whole(two));
    world.mem(BrickId(2)).set_down(true);
    assert!(matches!(blocks.store(id(2), &[content(2, 9)]), Err(BlockError::Unreachable(_))));
    world.mem(BrickId(2)).set_down(false);
    // A retry at once: doubtful bricks are tried if no other is left.
    assert_eq!(blocks.store(id(2), &[content(2, 9)]).unwrap(), group(&[1, 2]));
}

#[test]
fn brick_that_fails_while_it_is_read_back_is_not_said_to_have_other_bytes() {
    let (world, blocks) = World::new(2, 2, &[1, 2]);
    let block = [content(1, 9)];
    blocks.store(id(1), &block).unwrap();
    for gets in 0..2 {
        world.mem(BrickId(2)).set_gets_left(gets);
        let error = blocks.store(id(1), &block).unwrap_err().to_string();
        assert!(error.contains("it has failed"), "after {gets} reads: {error}");
    }
}

#[test]
fn one_copy_counts_where_an_arbiter_is_and_the_other_brick_is_down() {
    let (world, blocks) = World::arbitrated(&[1, 2]);
    let both = blocks.store(id(1), &[content(1, 9)]).unwrap();
    assert_eq!(both, group(&[1, 2]), "both have it while both answer");
    world.mem(BrickId(2)).set_down(true);
    let begun = Instant::now();
    let one = blocks.store(id(2), &[content(2, 9)]).unwrap();
    assert_eq!(one, group(&[1]));
    assert!(begun.elapsed() < STORE_HEDGE, "nothing is waited for: {:?}", begun.elapsed());
    assert!(!blocks.is_whole(one), "it is to be healed");
    assert!(blocks.room().is_ok());
    world.mem(BrickId(1)).set_down(true);
    assert!(matches!(blocks.store(id(3), &[content(3, 9)]), Err(BlockError::Unreachable(_))));
}

#[test]
fn full_bricks_are_passed_over_and_only_full_ones_make_a_volume_full() {
    let (world, blocks) = World::new(4, 2, &[1, 2, 3, 4]);
    world.mem(BrickId(1)).set_full(true);
    world.mem(BrickId(2)).set_full(true);
    assert_eq!(blocks.store(id(1), &[content(1, 9)]).unwrap(), group(&[3, 4]));
    world.mem(BrickId(3)).set_full(true);
    assert_eq!(blocks.store(id(2), &[content(2, 9)]), Err(BlockError::Full));
}

#[test]
fn a_brick_that_hangs_holds_a_write_up_for_the_hedge_once() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    world.mem(BrickId(1)).set_stuck(true);
    let begun = Instant::now();
    assert_eq!(blocks.store(id(1), &[content(1, 9)]).unwrap(), group(&[2, 3]));
    assert!(begun.elapsed() < STORE_HEDGE * 2, "{:?}", begun.elapsed());
    let begun = Instant::now();
    for seq in 2..30 {
        assert_eq!(blocks.store(id(seq), &[content(seq, 9)]).unwrap(), group(&[2, 3]));
    }
    assert!(begun.elapsed() < STORE_HEDGE, "the others did not wait for it: {:?}", begun.elapsed());
    world.mem(BrickId(1)).set_stuck(false);
    let mut seq = 100;
    eventually("the brick is used again", || {
        seq += 1;
        blocks.store(id(seq), &[content(seq, 9)]).unwrap().len() == 3
    });
}

#[test]
fn a_brick_that_hangs_is_replaced_where_there_is_another() {
    let (world, blocks) = World::new(4, 3, &[1, 2, 3, 4]);
    world.mem(BrickId(1)).set_stuck(true);
    for seq in 0..10 {
        assert_eq!(blocks.store(id(seq), &[content(seq, 9)]).unwrap(), group(&[2, 3, 4]));
    }
    world.mem(BrickId(1)).set_stuck(false);
}

#[test]
fn storing_the_same_block_again_is_fine_and_another_under_its_name_is_not() {
    let (_world, blocks) = World::new(3, 3, &[1, 2, 3]);
    let group = blocks.store(id(1), &[content(1, 9)]).unwrap();
    assert_eq!(blocks.store(id(1), &[content(1, 4), content(1, 9).slice(4..)]).unwrap(), group);
    assert!(blocks.store(id(1), &[content(2, 9)]).is_err());
    assert!(blocks.store(id(1), &[content(1, 8)]).is_err());
    assert_eq!(blocks.fetch(id(1), group, 0, 9).unwrap(), content(1, 9));
}

#[test]
fn room_counts_copies_and_the_bricks_that_answer() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    assert_eq!(blocks.room().unwrap().free_bytes, 1 << 39);
    world.mem(BrickId(1)).set_down(true);
    world.mem(BrickId(2)).set_down(true);
    eventually("a majority is gone", || blocks.room().is_err());
}
