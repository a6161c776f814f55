use crate::support::*;
use shoal_cluster::Command;
use shoal_cluster::limits::FETCH_HEDGE;
use shoal_types::{BlockGroup, BlockId, BrickId, NodeId, SessionId};
use shoal_wire::{BlockError, BlockService, VolumeBlocks};
use std::time::Instant;

#[test]
fn the_copy_on_this_node_is_read() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    *world.here.lock() = Some(NodeId(2));
    for seq in 0..20 {
        let group = blocks.store(id(seq), &[content(seq, 100)]).unwrap();
        assert_eq!(blocks.fetch(id(seq), group, 10, 50).unwrap(), content(seq, 100).slice(10..60));
    }
    assert_eq!([1, 2, 3].map(|brick| world.mem(BrickId(brick)).gets()), [0, 20, 0]);
}

#[test]
fn any_copy_serves_when_the_others_are_down_or_do_not_have_it() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    let group = blocks.store(id(1), &[content(1, 100)]).unwrap();
    world.mem(BrickId(1)).set_down(true);
    world.mem(BrickId(3)).remove(id(1));
    assert_eq!(blocks.fetch(id(1), group, 0, 100).unwrap(), content(1, 100));
    assert_eq!(
        blocks.fetch(id(1), BlockGroup::default(), 0, 100).unwrap(),
        content(1, 100),
        "wherever it is"
    );
    world.mem(BrickId(2)).remove(id(1));
    let missing_or_not = blocks.fetch(id(1), group, 0, 100);
    assert!(matches!(missing_or_not, Err(BlockError::Unreachable(_))), "{missing_or_not:?}");
    world.mem(BrickId(1)).set_down(false);
    world.mem(BrickId(1)).remove(id(1));
    assert_eq!(blocks.fetch(id(1), group, 0, 100), Err(BlockError::Missing(id(1))));
}

#[test]
fn bricks_that_are_gone_are_not_asked() {
    let (world, blocks) = World::new(4, 3, &[1, 2, 3, 4]);
    let group = blocks.store(id(1), &[content(1, 100)]).unwrap();
    let gone = group.bricks().next().unwrap();
    world.change(Command::Lose { volume: VOLUME, bricks: vec![gone] });
    let asked = world.mem(gone).gets();
    assert_eq!(blocks.fetch(id(1), group, 0, 100).unwrap(), content(1, 100));
    for brick in group.bricks() {
        world.mem(brick).wipe();
    }
    assert_eq!(blocks.fetch(id(1), group, 0, 100), Err(BlockError::Missing(id(1))));
    assert_eq!(world.mem(gone).gets(), asked);
}

#[test]
fn a_damaged_copy_is_answered_from_another_and_repaired() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    *world.here.lock() = Some(NodeId(1));
    let group = blocks.store(id(1), &[content(1, 100)]).unwrap();
    let here = world.mem(BrickId(1));
    here.damage(id(1));
    assert_eq!(blocks.fetch(id(1), group, 20, 30).unwrap(), content(1, 100).slice(20..50));
    eventually("the copy is repaired", || !here.is_damaged(id(1)));
    assert_eq!(here.content(id(1)).unwrap(), content(1, 100));
}

#[test]
fn damage_everywhere_is_an_error_and_never_data() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    let group = blocks.store(id(1), &[content(1, 100)]).unwrap();
    group.bricks().for_each(|brick| world.mem(brick).damage(id(1)));
    assert!(matches!(blocks.fetch(id(1), group, 0, 100), Err(BlockError::Corrupt { .. })));
}

/// Copies are deleted one by one. A reader of the block meanwhile has to look its group up again, if the
/// block still exists.
#[test]
fn a_damaged_copy_is_no_reason_to_take_a_block_that_is_being_deleted_for_damaged() {
    let (world, blocks) = World::new(2, 2, &[1, 2]);
    for (deleted, left) in [(1, 2), (2, 1)] {
        let id = id(deleted);
        let group = blocks.store(id, &[content(1, 100)]).unwrap();
        world.mem(BrickId(left as u16)).damage(id);
        world.mem(BrickId(deleted as u16)).remove(id);
        assert_eq!(blocks.fetch(id, group, 0, 100), Err(BlockError::Missing(id)));
    }
}

#[test]
fn a_brick_that_hangs_delays_a_read_once() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    *world.here.lock() = Some(NodeId(1));
    let group = blocks.store(id(1), &[content(1, 100)]).unwrap();
    world.mem(BrickId(1)).set_stuck(true);
    let begun = Instant::now();
    assert_eq!(blocks.fetch(id(1), group, 0, 100).unwrap(), content(1, 100));
    assert!(begun.elapsed() >= FETCH_HEDGE);
    let begun = Instant::now();
    for _ in 0..50 {
        assert_eq!(blocks.fetch(id(1), group, 0, 100).unwrap(), content(1, 100));
    }
    assert!(begun.elapsed() < FETCH_HEDGE, "{:?}", begun.elapsed());
    world.mem(BrickId(1)).set_stuck(false);
}

#[test]
fn what_could_not_be_deleted_everywhere_is_said() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    let group = blocks.store(id(1), &[content(1, 10)]).unwrap();
    blocks.store(id(2), &[content(2, 10)]).unwrap();
    world.mem(BrickId(2)).set_down(true);
    assert_eq!(blocks.discard(&[(id(1), group), (id(2), BlockGroup::default())]).unwrap(), [id(1), id(2)]);
    assert_eq!(world.holders(id(1)), self::group(&[2]));
    assert_eq!(all_copies(&blocks, |_| {}), []);
    world.mem(BrickId(2)).set_down(false);
    eventually("it answers again", || blocks.discard(&[(id(1), group), (id(2), group)]).unwrap().is_empty());
    assert!(world.holders(id(1)).is_empty() && world.holders(id(2)).is_empty());
}

#[test]
fn copies_in_excess_are_not_discarded_where_they_have_been_put_since() {
    let (world, blocks) = World::new(3, 2, &[1, 2, 3]);
    let all = group(&[1, 2, 3]);
    for brick in all.bricks() {
        for seq in 1..=2 {
            world.mem(brick).put(id(seq), &[content(seq, 10)]).unwrap();
        }
    }
    let than = blocks.moments().unwrap();
    // A new leader wants a copy there once more; the brick finds that it has it.
    let again = world.mem(BrickId(1)).put(id(1), &[content(1, 10)]);
    assert_eq!(again, Err(BlockError::Exists(id(1))));
    let excess = [(id(1), group(&[1, 2])), (id(2), group(&[1, 2]))];
    assert_eq!(blocks.discard_older(&excess, &than).unwrap(), [id(1)]);
    assert_eq!((world.holders(id(1)), world.holders(id(2))), (group(&[1, 3]), group(&[3])));
    // Nothing is deleted on a brick that did not report its moment.
    let than = blocks.moments().unwrap().into_iter().filter(|(brick, _)| *brick == BrickId(1)).collect();
    assert_eq!(blocks.discard_older(&[(id(1), all)], &than).unwrap(), [id(1)]);
    assert_eq!(world.holders(id(1)), group(&[3]));
}

#[test]
fn blocks_of_a_session_are_found_wherever_they_are() {
    let (world, blocks) = World::new(3, 2, &[1, 2, 3]);
    for seq in 0..10 {
        blocks.store(id(seq), &[content(seq, 7)]).unwrap();
    }
    let found = all_copies(&blocks, |_| {});
    assert!(found.into_iter().eq((0..10).map(|seq| (id(seq), world.holders(id(seq))))));
    assert_eq!(blocks.stored_sessions().unwrap(), [SessionId(3)]);
}

/// Three bricks with different blocks: one has few, one many, one only some of the last.
fn spread(world: &World) -> Vec<(BlockId, BlockGroup)> {
    let few = (0..200).step_by(40);
    let many = 0..(5 * LIST_BLOCKS_MAX as u64);
    let last = (60..1000).step_by(7);
    for (brick, blocks) in [(1, few.collect()), (2, many.collect()), (3, last.collect::<Vec<u64>>())] {
        for seq in blocks {
            world.mem(BrickId(brick)).put(id(seq), &[content(seq, 7)]).unwrap();
        }
    }
    // A block of another session.
    let other = BlockId { session: SessionId(4), seq: 0 };
    world.mem(BrickId(1)).put(other, &[content(0, 7)]).unwrap();
    let all = (0..1000).map(|seq| (id(seq), world.holders(id(seq))));
    all.filter(|(_, holders)| !holders.is_empty()).collect()
}

#[test]
fn pages_of_bricks_that_hold_different_blocks_become_pages_of_all() {
    let (world, blocks) = World::new(3, 2, &[1, 2, 3]);
    let all = spread(&world);
    let mut pages = 0;
    assert_eq!(all_copies(&blocks, |_| pages += 1), all);
    assert!(pages > 5, "{pages}");
}

#[test]
fn what_is_deleted_between_two_pages_is_not_in_the_next_and_all_else_is() {
    let (world, blocks) = World::new(3, 2, &[1, 2, 3]);
    let all = spread(&world);
    // The start of the page, and more blocks than it can hold.
    let is_deleted = |seq: u64| (LIST_BLOCKS_MAX as u64..3 * LIST_BLOCKS_MAX as u64).contains(&seq);
    let found = all_copies(&blocks, |from| {
        if from > id(0) {
            let gone: Vec<BlockId> = (0..1000).filter(|seq| is_deleted(*seq)).map(id).collect();
            world.ids().into_iter().for_each(|brick| world.mem(brick).delete(&gone).unwrap());
        }
    });
    let left = all.into_iter().filter(|(id, _)| !is_deleted(id.seq));
    assert_eq!(found, left.collect::<Vec<_>>());
}

#[test]
fn a_brick_that_fails_between_two_pages_is_passed_over() {
    let (world, blocks) = World::new(3, 2, &[1, 2, 3]);
    let all = spread(&world);
    let mut failed_at = None;
    let found = all_copies(&blocks, |from| {
        if from > id(30) && failed_at.is_none() {
            failed_at = Some(from);
            world.mem(BrickId(2)).set_down(true);
        }
    });
    let failed_at = failed_at.expect("there are several pages");
    let without = |(id, holders): (BlockId, BlockGroup)| match id < failed_at {
        true => (id, holders),
        false => (id, holders.without(BrickId(2))),
    };
    let left = all.into_iter().map(without).filter(|(_, holders)| !holders.is_empty());
    assert_eq!(found, left.collect::<Vec<_>>());
    world.ids().into_iter().for_each(|brick| world.mem(brick).set_down(true));
    assert!(matches!(blocks.copies(id(0)), Err(BlockError::Unreachable(_))), "no brick is left to ask");
}

#[test]
fn a_damaged_copy_is_replaced_whatever_its_length() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    for (seq, len) in [(1, 1), (2, 100_000)] {
        blocks.store(id(seq), &[content(seq, len)]).unwrap();
        world.mem(BrickId(2)).damage(id(seq));
        blocks.repair_copy(id(seq), BrickId(2)).unwrap();
        assert!(!world.mem(BrickId(2)).is_damaged(id(seq)));
        assert_eq!(world.mem(BrickId(2)).content(id(seq)).unwrap(), content(seq, len));
    }
}
