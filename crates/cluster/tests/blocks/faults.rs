//! Random stores, reads, heals and failures: what was acknowledged can be read as long as one copy survives.

use crate::support::*;
use bytes::Bytes;
use proptest::prelude::*;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId};
use shoal_wire::{BlockError, VolumeBlocks};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Store { len: usize },
    Down(u16),
    Up(u16),
    Full(u16, bool),
    Damage { brick: u16, block: usize },
    HealAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1usize..300).prop_map(|len| Step::Store { len }),
        2 => (1u16..=5).prop_map(Step::Down),
        3 => (1u16..=5).prop_map(Step::Up),
        1 => (1u16..=5, any::<bool>()).prop_map(|(brick, full)| Step::Full(brick, full)),
        1 => (1u16..=5, 0usize..40).prop_map(|(brick, block)| Step::Damage { brick, block }),
        1 => Just(Step::HealAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn what_was_stored_is_read_back_while_a_good_copy_answers(steps in prop::collection::vec(step(), 1..40)) {
        let (world, blocks) = World::new(5, 3, &[1, 2, 3, 4, 5]);
        let mut stored: BTreeMap<BlockId, (Bytes, BlockGroup)> = BTreeMap::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Store { len } => {
                    next += 1;
                    match blocks.store(id(next), &[content(next, len)]) {
                        Ok(group) => {
                            prop_assert!(group.len() >= 2);
                            for brick in group.bricks() {
                                prop_assert_eq!(world.mem(brick).content(id(next)), Some(content(next, len)));
                            }
                            stored.insert(id(next), (content(next, len), group));
                        }
                        Err(BlockError::Unreachable(_) | BlockError::Full) => {}
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Down(brick) => world.mem(BrickId(brick)).set_down(true),
                Step::Up(brick) => world.mem(BrickId(brick)).set_down(false),
                Step::Full(brick, full) => world.mem(BrickId(brick)).set_full(full),
                Step::Damage { brick, block } => {
                    // One damaged copy of a block at a time: the code cannot restore a block without a good
                    // copy.
                    if let Some((id, (_, group))) = stored.iter().nth(block) {
                        let spoiled = group.bricks().any(|it| world.mem(it).is_damaged(*id));
                        if !spoiled && group.contains(BrickId(brick)) {
                            world.mem(BrickId(brick)).damage(*id);
                        }
                    }
                }
                Step::HealAll => {
                    for (id, (content, group)) in &mut stored {
                        let info = BlockInfo { len: content.len() as u32, group: *group };
                        if let Ok(healed) = blocks.heal(*id, info) {
                            *group = healed;
                        }
                    }
                }
            }
        }
        world.ids().into_iter().for_each(|brick| world.mem(brick).set_down(false));
        world.ids().into_iter().for_each(|brick| world.mem(brick).set_full(false));
        for (id, (content, group)) in &stored {
            let len = content.len() as u32;
            prop_assert_eq!(&blocks.fetch(*id, *group, 0, len).unwrap(), content);
            let info = BlockInfo { len, group: *group };
            eventually("every block is whole when all bricks are back", || {
                blocks.heal(*id, info).is_ok_and(|group| blocks.is_whole(group))
            });
        }
    }
}
