//! Blocks that another node copies.

use crate::support::*;
use parking_lot::Mutex;
use shoal_cluster::{Bricks, ClusterMap, CopyOrder, CopyTask, ReplicatedBlocks};
use shoal_types::{BlockGroup, BlockInfo, BrickId, GroupId, NodeId};
use shoal_wire::{BlockError, BlockService, VolumeBlocks};
use std::sync::Arc;

/// The view of node 1, whose orders to other nodes are recorded and carried out.
struct Leader {
    world: Arc<World>,
    orders: Mutex<Vec<(NodeId, CopyOrder)>>,
    /// Answers arrive.
    answers: bool,
}

impl Bricks for Leader {
    fn brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        self.world.brick(id)
    }
    fn map(&self) -> Arc<ClusterMap> {
        self.world.map()
    }
    fn here(&self) -> Option<NodeId> {
        Some(NodeId(1))
    }
    fn copy_on(&self, node: NodeId, volume: GroupId, order: &CopyOrder) -> Option<BlockGroup> {
        self.orders.lock().push((node, *order));
        let copied = ReplicatedBlocks::new(volume, self.world.clone()).copy_for(order).unwrap();
        self.answers.then_some(copied)
    }
}

/// Heals twelve blocks that lack the copy on brick 3. Answers the nodes that were to copy some.
fn heal_all(answers: bool) -> Vec<NodeId> {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    for seq in 0..12 {
        assert_eq!(blocks.store(id(seq), &[content(seq, 100)]).unwrap(), group(&[1, 2, 3]));
    }
    world.mem(BrickId(3)).wipe();
    let leader = Arc::new(Leader { world: world.clone(), orders: Mutex::default(), answers });
    let blocks = ReplicatedBlocks::new(VOLUME, leader.clone());
    assert_eq!(blocks.copying_nodes(), 3);
    for seq in 0..12 {
        let info = BlockInfo { len: 100, group: group(&[1, 2]) };
        assert_eq!(blocks.heal(id(seq), info).unwrap(), group(&[1, 2, 3]));
        assert_eq!(world.mem(BrickId(3)).content(id(seq)), Some(content(seq, 100)));
    }
    leader.orders.lock().iter().map(|(node, _)| *node).collect()
}

#[test]
fn nodes_that_have_a_block_take_turns_to_copy() {
    assert_eq!(heal_all(true), [NodeId(2); 6], "node 1 copies the others itself");
}

#[test]
fn block_is_copied_here_if_no_answer_arrives() {
    assert_eq!(heal_all(false), [NodeId(2); 6]);
}

#[test]
fn node_with_an_older_map_copies_nothing() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    blocks.store(id(1), &[content(1, 100)]).unwrap();
    world.mem(BrickId(3)).wipe();
    let info = BlockInfo { len: 100, group: group(&[1, 2]) };
    let mut order = CopyOrder { id: id(1), info, task: CopyTask::Heal, epoch: world.map().epoch + 1 };
    assert!(matches!(blocks.copy_for(&order), Err(BlockError::Unreachable(_))));
    assert_eq!(world.mem(BrickId(3)).content(id(1)), None);
    order.epoch -= 1;
    assert_eq!(blocks.copy_for(&order), Ok(group(&[1, 2, 3])));
}
