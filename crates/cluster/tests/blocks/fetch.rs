use crate::support::*;
use shoal_cluster::Command;
use shoal_cluster::limits::FETCH_HEDGE;
use shoal_types::{BlockGroup, BrickId, NodeId, SessionId};
use shoal_wire::{BlockError, VolumeBlocks};
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

/// Copies are deleted one after the other, and whoever reads the block meanwhile has to look again where it is, if it still is.
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
    assert_eq!(blocks.session_blocks(SessionId(3)).unwrap(), []);
    world.mem(BrickId(2)).set_down(false);
    eventually("it answers again", || blocks.discard(&[(id(1), group), (id(2), group)]).unwrap().is_empty());
    assert!(world.holders(id(1)).is_empty() && world.holders(id(2)).is_empty());
}

#[test]
fn blocks_of_a_session_are_found_wherever_they_are() {
    let (_world, blocks) = World::new(3, 2, &[1, 2, 3]);
    for seq in 0..10 {
        blocks.store(id(seq), &[content(seq, 7)]).unwrap();
    }
    let mut found = blocks.session_blocks(SessionId(3)).unwrap();
    found.sort_unstable_by_key(|block| block.id);
    assert!(found.iter().map(|block| (block.id, block.len)).eq((0..10).map(|seq| (id(seq), 7))));
    assert_eq!(blocks.stored_sessions().unwrap(), [SessionId(3)]);
}
