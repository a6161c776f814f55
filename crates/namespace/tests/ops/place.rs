//! Where blocks are, and the list of those with too few copies.

use crate::common::*;
use proptest::prelude::*;
use shoal_namespace::command::Placed;
use shoal_namespace::limits::PLACE_BLOCKS_MAX;
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Command, Outcome, query};
use shoal_types::{BlockGroup, BlockId, BrickId, Errno, SessionId};

fn replicated(replica: u8) -> Volume {
    Volume::with(VolumeOptions { replica, ..VolumeOptions::default() })
}

fn group(bricks: &[u16]) -> BlockGroup {
    BlockGroup::new(bricks.iter().map(|brick| BrickId(*brick))).unwrap()
}

fn degraded(v: &Volume) -> Vec<BlockId> {
    query::degraded(&v.store, None, usize::MAX).unwrap().into_iter().map(|(id, _)| id).collect()
}

fn group_of(v: &Volume, id: BlockId) -> BlockGroup {
    query::block(&v.store, id).unwrap().expect("the block").info.group
}

fn place(v: &mut Volume, id: BlockId, from: &[u16], to: &[u16]) -> Outcome {
    v.command(Command::Place { blocks: vec![Placed { id, from: group(from), to: group(to) }] })
}

#[test]
fn a_block_with_too_few_copies_is_listed_until_it_has_enough() {
    let mut v = replicated(3);
    let file = v.file(ROOT, "a");
    v.group = group(&[1, 2]);
    let short = v.write_block(file, 0, 4000);
    v.group = group(&[1, 2, 3]);
    let whole = v.write_block(file, 4000, 4000);
    assert_eq!(degraded(&v), [short]);
    v.assert_clean();
    assert_eq!(place(&mut v, short, &[1, 2], &[1, 2, 4]), Outcome::Placed { count: 1 });
    assert_eq!((group_of(&v, short), degraded(&v)), (group(&[1, 2, 4]), vec![]));
    assert_eq!(place(&mut v, whole, &[1, 2, 3], &[3]), Outcome::Placed { count: 1 });
    assert_eq!(degraded(&v), [whole]);
    v.assert_clean();
}

#[test]
fn a_block_that_is_elsewhere_already_or_garbage_is_left_alone() {
    let mut v = replicated(2);
    let file = v.file(ROOT, "a");
    v.group = group(&[1]);
    let block = v.write_block(file, 0, 4000);
    assert_eq!(place(&mut v, block, &[2], &[2, 3]), Outcome::Placed { count: 0 });
    assert_eq!(group_of(&v, block), group(&[1]));
    let unknown = BlockId { session: SessionId(99), seq: 1 };
    assert_eq!(place(&mut v, unknown, &[], &[1]), Outcome::Placed { count: 0 });
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!((v.garbage(), degraded(&v)), (vec![block], vec![]), "what is to be deleted needs no copies");
    assert_eq!(place(&mut v, block, &[1], &[1, 2]), Outcome::Placed { count: 0 });
    assert_eq!(query::garbage(&v.store, None, 9).unwrap()[0].1.group, group(&[1]));
    v.assert_clean();
    v.clean_up();
    v.assert_clean();
}

#[test]
fn of_two_moves_of_one_block_the_first_counts() {
    let mut v = replicated(2);
    let file = v.file(ROOT, "a");
    v.group = group(&[1, 2]);
    let id = v.write_block(file, 0, 4000);
    let to = |bricks: &[u16]| Placed { id, from: group(&[1, 2]), to: group(bricks) };
    let outcome = v.command(Command::Place { blocks: vec![to(&[1]), to(&[3, 4])] });
    assert_eq!((outcome, group_of(&v, id)), (Outcome::Placed { count: 1 }, group(&[1])));
    v.assert_clean();
}

#[test]
fn placing_on_no_brick_or_too_many_blocks_is_refused() {
    let mut v = replicated(2);
    let refused = |errno| Outcome::Refused { index: 0, errno };
    let placed = Placed { id: BlockId { session: SessionId(1), seq: 1 }, from: group(&[1]), to: group(&[]) };
    assert_eq!(v.command(Command::Place { blocks: vec![placed] }), refused(Errno::EINVAL));
    let blocks = vec![placed; PLACE_BLOCKS_MAX + 1];
    assert_eq!(v.command(Command::Place { blocks }), refused(Errno::E2BIG));
}

#[test]
fn how_many_copies_there_should_be_is_fixed_once_there_are_blocks() {
    let mut v = replicated(0);
    let set = |v: &mut Volume, replica| {
        v.command(Command::SetOptions { options: VolumeOptions { replica, ..VolumeOptions::default() } })
    };
    assert_eq!(set(&mut v, 2), Outcome::Done);
    assert_eq!(set(&mut v, 17), Outcome::Refused { index: 0, errno: Errno::EINVAL });
    let file = v.file(ROOT, "a");
    v.group = group(&[1, 2]);
    v.write_block(file, 0, 4000);
    assert_eq!(set(&mut v, 3), Outcome::Refused { index: 0, errno: Errno::EBUSY });
    assert_eq!(set(&mut v, 2), Outcome::Done);
    v.assert_clean();
}

#[test]
fn blocks_and_what_is_degraded_are_read_page_by_page() {
    let mut v = replicated(2);
    let file = v.file(ROOT, "a");
    v.group = group(&[5]);
    let all: Vec<BlockId> = (0..10).map(|n| v.write_block(file, n * 4000, 4000)).collect();
    let (mut blocks, mut short, mut after) = (Vec::new(), Vec::new(), None);
    while blocks.len() < 10 {
        let page = query::blocks(&v.store, after, 3).unwrap();
        blocks.extend(page.iter().map(|(id, _)| *id));
        short.extend(query::degraded(&v.store, after, 3).unwrap().iter().map(|(id, _)| *id));
        after = blocks.last().copied();
    }
    assert_eq!((blocks, short), (all.clone(), all));
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, copies: u16 },
    Punch { at: u64 },
    Clone { from: u64, to: u64 },
    Place { block: usize, copies: u16 },
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..6, 1u16..5).prop_map(|(at, copies)| Step::Write { at, copies }),
        2 => (0u64..6).prop_map(|at| Step::Punch { at }),
        2 => (0u64..6, 0u64..6).prop_map(|(from, to)| Step::Clone { from, to }),
        4 => (0usize..20, 1u16..5).prop_map(|(block, copies)| Step::Place { block, copies }),
        1 => Just(Step::Collect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn the_list_is_exact_whatever_happens(steps in prop::collection::vec(step(), 1..60)) {
        let mut v = replicated(3);
        let file = v.file(ROOT, "a");
        let mut all = Vec::new();
        for step in steps {
            match step {
                Step::Write { at, copies } => {
                    v.group = group(&(1..=copies).collect::<Vec<_>>());
                    all.push(v.write_block(file, at * 5000, 5000));
                }
                Step::Punch { at } => v.punch(file, at * 5000 + 100, 4950).unwrap(),
                // Ranges that overlap are refused.
                Step::Clone { from, to } => drop(v.clone_range((file, from * 5000), (file, to * 5000), 5000)),
                Step::Place { block, copies } => {
                    let Some(id) = all.get(block) else { continue };
                    let Some(known) = query::block(&v.store, *id).unwrap() else { continue };
                    let to = group(&(11..11 + copies).collect::<Vec<_>>());
                    v.command(Command::Place { blocks: vec![Placed { id: *id, from: known.info.group, to }] });
                }
                Step::Collect => v.clean_up(),
            }
            v.assert_clean();
        }
    }
}

#[test]
fn group_of_shards_is_kept_in_order_and_records_of_copies_are_as_before() {
    let one = |number: u16| BrickId(number);
    let copies = BlockGroup::new([one(7), one(3)]).unwrap();
    assert_eq!(
        shoal_namespace::codec::encode(1, &copies),
        [1, 2, 3, 7],
        "as it was before there were shards"
    );
    let empty = BlockGroup::of_shards(2, 1, 300).unwrap();
    let shards = empty.with_shard(0, one(7)).and_then(|it| it.with_shard(2, one(3))).unwrap();
    for group in [copies, empty, shards, copies.on_hot_tier(2), shards.on_hot_tier(9), BlockGroup::default()]
    {
        let bytes = shoal_namespace::codec::encode(1, &group);
        assert_eq!(shoal_namespace::codec::decode::<BlockGroup>(1, &bytes), Ok(group));
    }
    let mut twice = shoal_namespace::codec::encode(1, &shards);
    let last = twice.len() - 1;
    assert_eq!(twice[last], 3);
    twice[last] = 7;
    assert!(shoal_namespace::codec::decode::<BlockGroup>(1, &twice).is_err(), "two shards on one brick");
}

#[test]
fn block_that_lacks_a_shard_is_on_the_list_until_it_has_all() {
    let all = BlockGroup::of_shards(2, 1, 300).unwrap();
    let all = (0..3).fold(all, |group, index| group.with_shard(index, BrickId(index as u16 + 1)).unwrap());
    let record = |group| shoal_namespace::records::BlockRecord {
        refs: 1,
        info: shoal_types::BlockInfo { len: 30_000, group },
    };
    assert!(!record(all).is_degraded(2) && !record(all).is_degraded(9));
    assert!(
        record(all.without(BrickId(2))).is_degraded(2),
        "though it is on as many bricks as copies are wanted"
    );
}
