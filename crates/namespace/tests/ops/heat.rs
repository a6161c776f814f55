//! The index of the hot tier: what is on it, in the order of the last use.

use crate::common::*;
use proptest::prelude::*;
use shoal_namespace::command::Placed;
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Command, Outcome, heat, query};
use shoal_types::{BlockGroup, BlockId, BrickId};

fn cold() -> BlockGroup {
    BlockGroup::new([BrickId(1), BrickId(2), BrickId(3)]).unwrap()
}

fn hot() -> BlockGroup {
    BlockGroup::new([BrickId(8), BrickId(9)]).unwrap().on_hot_tier(2)
}

/// A volume of three copies, whose new blocks are stored in two on the hot tier.
fn tiered() -> Volume {
    let mut v = Volume::with(VolumeOptions { replica: 3, ..VolumeOptions::default() });
    v.group = hot();
    v
}

fn index(v: &Volume) -> Vec<BlockId> {
    heat::longest_unused(&v.store, None, usize::MAX).unwrap().into_iter().map(|(_, id)| id).collect()
}

fn move_to(v: &mut Volume, id: BlockId, from: BlockGroup, to: BlockGroup, seconds: i64) -> Outcome {
    v.command(Command::MoveTier { blocks: vec![Placed { id, from, to }], time: at(seconds) })
}

#[test]
fn new_block_on_the_hot_tier_is_indexed_by_the_time_and_the_file_of_its_write() {
    let mut v = tiered();
    let file = v.file(ROOT, "a");
    let first = v.write_block(file, 0, 4000);
    v.group = cold();
    v.write_block(file, 4000, 4000);
    v.group = hot();
    let other = v.file(ROOT, "b");
    let second = v.write_block(other, 0, 4000);
    assert_eq!(index(&v), [first, second]);
    let known = heat::hot(&v.store, second).unwrap().expect("indexed");
    let changed = query::record(&v.store, other).unwrap().expect("the file").ctime;
    assert_eq!((known.owner, known.since), (other, heat::seconds(changed)));
    assert!(query::degraded(&v.store, None, 9).unwrap().is_empty(), "two copies are enough there");
    v.assert_clean();
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!(index(&v), [second], "garbage is not moved");
    v.assert_clean();
    v.clean_up();
    v.assert_clean();
}

#[test]
fn block_that_is_read_or_moved_to_the_hot_tier_is_behind_those_that_are_not() {
    let mut v = tiered();
    let file = v.file(ROOT, "a");
    let [first, second, third] = [0, 4000, 8000].map(|offset| v.write_block(file, offset, 4000));
    assert_eq!(v.command(Command::Touch { blocks: vec![first], time: at(500) }), Outcome::Done);
    assert_eq!(index(&v), [second, third, first]);
    v.command(Command::Touch { blocks: vec![first], time: at(400) });
    assert_eq!(index(&v), [second, third, first], "an older use changes nothing");
    assert_eq!(move_to(&mut v, second, hot(), cold(), 600), Outcome::Placed { count: 1 });
    assert_eq!(index(&v), [third, first]);
    v.command(Command::Touch { blocks: vec![second], time: at(700) });
    assert_eq!(index(&v), [third, first], "it is cold");
    v.assert_clean();
    assert_eq!(move_to(&mut v, second, cold(), hot(), 800), Outcome::Placed { count: 1 });
    assert_eq!(index(&v), [third, first, second]);
    assert_eq!(heat::hot(&v.store, second).unwrap().map(|hot| hot.owner), Some(heat::UNKNOWN));
    v.assert_clean();
}

#[test]
fn block_that_was_placed_elsewhere_meanwhile_is_not_moved() {
    let mut v = tiered();
    let file = v.file(ROOT, "a");
    let block = v.write_block(file, 0, 4000);
    let healed = hot().without(BrickId(9)).with(BrickId(10)).unwrap();
    v.command(Command::Place { blocks: vec![Placed { id: block, from: hot(), to: healed }] });
    assert_eq!(move_to(&mut v, block, hot(), cold(), 9), Outcome::Placed { count: 0 });
    assert_eq!(query::block(&v.store, block).unwrap().expect("there").info.group, healed);
    assert_eq!(index(&v), [block], "healing keeps it on its tier");
    v.assert_clean();
}

#[test]
fn longest_unused_blocks_come_in_pages() {
    let mut v = tiered();
    let file = v.file(ROOT, "a");
    let blocks: Vec<BlockId> = (0..7).map(|n| v.write_block(file, n * 4000, 4000)).collect();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = heat::longest_unused(&v.store, after, 3).unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(*last);
        found.extend(page.into_iter().map(|(_, id)| id));
    }
    assert_eq!(found, blocks);
    assert!(heat::longest_unused(&v.store, None, 0).unwrap().is_empty());
}

proptest! {
    #[test]
    fn index_has_the_blocks_in_use_on_the_hot_tier_whatever_is_done(
        steps in proptest::collection::vec((0..6u8, 0..4u64, 0..50i64), 1..60)
    ) {
        let mut v = tiered();
        let mut files: Vec<_> = (0..4).map(|n| v.file(ROOT, &format!("f{n}"))).collect();
        let mut blocks = vec![];
        for (step, which, seconds) in steps {
            let id = blocks.get(which as usize * blocks.len() / 4).copied();
            match (step, id) {
                (0, _) => blocks.push(v.write_block(files[which as usize], 4000 * seconds as u64, 4000)),
                (1, _) => v.group = if v.group == hot() { cold() } else { hot() },
                (2, _) => {
                    let name = format!("f{which}");
                    v.unlink(ROOT, &name, false).unwrap();
                    files[which as usize] = v.file(ROOT, &name);
                }
                (3, Some(id)) => drop(v.command(Command::Touch { blocks: vec![id], time: at(seconds) })),
                (4, Some(id)) => drop(move_to(&mut v, id, hot(), cold(), seconds)),
                (5, Some(id)) => drop(move_to(&mut v, id, cold(), hot(), seconds)),
                _ => {}
            }
            v.assert_clean();
        }
    }
}
