//! Copies that the leader delegates to other nodes.

use crate::support::*;
use parking_lot::Mutex;
use shoal_cluster::{Bricks, ClusterMap, CopyRequest, CopyTask, ReplicatedBlocks};
use shoal_types::{BlockGroup, BlockInfo, BrickId, GroupId, NodeId};
use shoal_wire::{BlockError, BlockService, VolumeBlocks};
use std::sync::Arc;

/// The view of node 1, whose requests to other nodes are recorded and served.
struct Leader {
    world: Arc<World>,
    requests: Mutex<Vec<NodeId>>,
    /// Replies arrive.
    replies: bool,
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
    fn request_copy(&self, node: NodeId, volume: GroupId, request: &CopyRequest) -> Option<BlockGroup> {
        self.requests.lock().push(node);
        let copied = ReplicatedBlocks::new(volume, self.world.clone()).serve_copy(request).unwrap();
        self.replies.then_some(copied)
    }
}

/// Heals twelve blocks that lack the copy on brick 3. Returns the nodes that were to copy some.
fn heal_all(replies: bool) -> Vec<NodeId> {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    for seq in 0..12 {
        assert_eq!(blocks.store(id(seq), &[content(seq, 100)]).unwrap(), group(&[1, 2, 3]));
    }
    world.mem(BrickId(3)).wipe();
    let leader = Arc::new(Leader { world: world.clone(), requests: Mutex::default(), replies });
    let blocks = ReplicatedBlocks::new(VOLUME, leader.clone());
    assert_eq!(blocks.copying_nodes(), 3);
    for seq in 0..12 {
        let info = BlockInfo { len: 100, group: group(&[1, 2]) };
        assert_eq!(blocks.heal(id(seq), info).unwrap(), group(&[1, 2, 3]));
        assert_eq!(world.mem(BrickId(3)).content(id(seq)), Some(content(seq, 100)));
    }
    leader.requests.lock().clone()
}

#[test]
fn copies_are_delegated_to_holders_round_robin() {
    assert_eq!(heal_all(true), [NodeId(2); 6], "node 1 copies the others itself");
}

#[test]
fn leader_copies_a_block_itself_if_no_reply_arrives() {
    assert_eq!(heal_all(false), [NodeId(2); 6]);
}

#[test]
fn node_with_an_older_map_copies_nothing() {
    let (world, blocks) = World::new(3, 3, &[1, 2, 3]);
    blocks.store(id(1), &[content(1, 100)]).unwrap();
    world.mem(BrickId(3)).wipe();
    let info = BlockInfo { len: 100, group: group(&[1, 2]) };
    let mut request = CopyRequest { id: id(1), info, task: CopyTask::Heal, epoch: world.map().epoch + 1 };
    assert!(matches!(blocks.serve_copy(&request), Err(BlockError::Unreachable(_))));
    assert_eq!(world.mem(BrickId(3)).content(id(1)), None);
    request.epoch -= 1;
    assert_eq!(blocks.serve_copy(&request), Ok(group(&[1, 2, 3])));
}
