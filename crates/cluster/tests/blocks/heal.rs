use crate::support::*;
use shoal_cluster::Command;
use shoal_types::{BlockGroup, BlockInfo, BrickId};
use shoal_wire::{BlockError, VolumeBlocks};

fn info(len: u32, group: BlockGroup) -> BlockInfo {
    BlockInfo { len, group }
}

#[test]
fn a_missing_copy_is_made_when_the_brick_is_back() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    world.mem(BrickId(3)).set_down(true);
    let two = blocks.store(id(1), &[content(1, 100)]).unwrap();
    assert_eq!(blocks.heal(id(1), info(100, two)).unwrap(), two, "nowhere to put it");
    world.mem(BrickId(3)).set_down(false);
    eventually("it is whole", || blocks.heal(id(1), info(100, two)).unwrap() == group(&[1, 2, 3]));
    assert_eq!(world.mem(BrickId(3)).content(id(1)).unwrap(), content(1, 100));
}

#[test]
fn a_brick_that_is_away_for_a_while_keeps_what_it_has() {
    let (world, blocks) = World::new(4, 3, &[1, 2, 3, 4]);
    let three = blocks.store(id(1), &[content(1, 100)]).unwrap();
    world.mem(three.bricks().next().unwrap()).set_down(true);
    assert!(blocks.is_whole(three));
    assert_eq!(blocks.heal(id(1), info(100, three)).unwrap(), three);
}

#[test]
fn what_was_on_a_lost_brick_goes_elsewhere() {
    let (world, blocks) = World::new(4, 3, &[1, 2, 3, 4]);
    for seq in 0..20 {
        blocks.store(id(seq), &[content(seq, 100)]).unwrap();
    }
    world.mem(BrickId(2)).wipe();
    world.change(Command::Lose { volume: VOLUME, bricks: vec![BrickId(2)] });
    for seq in 0..20 {
        let before = world.holders(id(seq));
        let before = if before.len() == 2 { before.with(BrickId(2)).unwrap() } else { before };
        let after = blocks.heal(id(seq), info(100, before)).unwrap();
        assert_eq!(after, group(&[1, 3, 4]));
        assert_eq!(world.holders(id(seq)), after);
    }
}

#[test]
fn a_draining_brick_holds_a_block_until_it_is_elsewhere() {
    let (world, blocks) = World::new(4, 3, &[1, 2, 3, 4]);
    let three = blocks.store(id(1), &[content(1, 100)]).unwrap();
    let drained = three.bricks().next().unwrap();
    let other = world.ids().into_iter().find(|brick| !three.contains(*brick)).unwrap();
    world.change(Command::Drain { volume: VOLUME, bricks: vec![drained] });
    world.mem(other).set_down(true);
    assert!(!blocks.is_whole(three));
    assert_eq!(blocks.heal(id(1), info(100, three)).unwrap(), three, "it stays where it is");
    world.mem(other).set_down(false);
    let wanted = three.without(drained).with(other).unwrap();
    eventually("it moves", || blocks.heal(id(1), info(100, three)).unwrap() == wanted);
    assert_eq!(
        world.holders(id(1)),
        wanted.with(drained).unwrap(),
        "the old copy is the caller's to discard"
    );
}

#[test]
fn a_block_that_no_brick_has_is_missing_and_a_damaged_one_damaged() {
    let (world, blocks) = World::new(4, 2, &[1, 2, 3, 4]);
    let pair = blocks.store(id(1), &[content(1, 100)]).unwrap();
    let lost = pair.bricks().next().unwrap();
    let last = pair.without(lost).bricks().next().unwrap();
    world.change(Command::Lose { volume: VOLUME, bricks: vec![lost] });
    world.mem(last).damage(id(1));
    assert!(matches!(blocks.heal(id(1), info(100, pair)), Err(BlockError::Corrupt { .. })));
    world.mem(last).wipe();
    assert_eq!(blocks.heal(id(1), info(100, pair)), Err(BlockError::Missing(id(1))));
}
