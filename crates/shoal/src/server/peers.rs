//! Transport between the replicas of a metadata group.
//!
//! A message begins with the ids of its sender and receiver: a node may have had another replica of the same
//! group before.

use super::cluster_view::ClusterView;
use crate::limits::STATE_PATIENCE;
use bytes::Bytes;
use shoal_meta::Peers;
use shoal_net::{Lane, Service};
use shoal_types::{GroupId, NodeId, ReplicaId};
use std::sync::Arc;

/// Length of a message's head, in bytes.
const HEAD_BYTES: usize = 16;

/// The connections of one replica to the other replicas of its group.
pub struct GroupPeers {
    /// The view of the cluster.
    pub view: Arc<ClusterView>,
    /// The group.
    pub group: GroupId,
    /// The sender.
    pub me: ReplicaId,
}

impl GroupPeers {
    fn head(&self, to: ReplicaId) -> Bytes {
        [self.me.0.to_le_bytes(), to.0.to_le_bytes()].concat().into()
    }
}

/// The sender, the receiver and the payload of a message.
pub fn addressed(message: &Bytes) -> Option<(ReplicaId, ReplicaId, Bytes)> {
    let (from, rest) = message.split_first_chunk::<8>()?;
    let (to, _) = rest.split_first_chunk::<8>()?;
    let id = |bytes: &[u8; 8]| ReplicaId(u64::from_le_bytes(*bytes));
    Some((id(from), id(to), message.slice(HEAD_BYTES..)))
}

impl Peers for GroupPeers {
    fn send(&self, to: ReplicaId, message: Bytes) {
        // A message to an unknown or unreachable replica is dropped; Raft sends it again.
        if let Some(node) = self.node_of(to)
            && let Some(link) = self.view.link(node, Lane::Replicas)
        {
            link.post(Service::Replica(self.group), vec![self.head(to), message]);
        }
    }

    fn request(&self, to: ReplicaId, request: Bytes) -> Result<Bytes, String> {
        let node = self.node_of(to).ok_or_else(|| format!("no node is known to have {to}"))?;
        let link = self.view.link(node, Lane::Blocks).ok_or_else(|| format!("{node} is gone"))?;
        let parts = vec![self.head(to), request];
        link.call(Service::Replica(self.group), false, parts, STATE_PATIENCE)
            .map_err(|error| error.to_string())
    }

    fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        self.view.node_of(self.group, replica)
    }

    fn others(&self) -> Vec<ReplicaId> {
        let map = self.view.map();
        map.replicas(self.group).iter().map(|place| place.id).filter(|id| *id != self.me).collect()
    }
}

/// No peers: for the first replica of a cluster while it is created.
pub struct NoPeers;

impl Peers for NoPeers {
    fn send(&self, _: ReplicaId, _: Bytes) {}
    fn request(&self, to: ReplicaId, _: Bytes) -> Result<Bytes, String> {
        Err(format!("{to} is not there yet"))
    }
    fn node_of(&self, _: ReplicaId) -> Option<NodeId> {
        None
    }
    fn others(&self) -> Vec<ReplicaId> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_a_truncated_head_has_no_receiver() {
        let message: Bytes = [&3u64.to_le_bytes()[..], &4u64.to_le_bytes(), b"hello"].concat().into();
        assert_eq!(addressed(&message), Some((ReplicaId(3), ReplicaId(4), Bytes::from_static(b"hello"))));
        for cut in 0..HEAD_BYTES {
            assert_eq!(addressed(&message.slice(..cut)), None);
        }
        assert_eq!(addressed(&message.slice(..HEAD_BYTES)), Some((ReplicaId(3), ReplicaId(4), Bytes::new())));
    }
}
