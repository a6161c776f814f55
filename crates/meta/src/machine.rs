//! The interfaces of a replicated state machine, and of the network to other replicas.

use bytes::Bytes;
use shoal_namespace::kv::WriteBatch;
use shoal_store::RocksStore;
use shoal_types::{NodeId, ReplicaId};

/// A deterministic state machine over a store: the namespace of a volume, or the cluster map.
pub trait Machine: Send + Sync + 'static {
    /// The result of a command.
    type Outcome: Send + 'static;
    /// Computes the changes of a command: a pure function of the store and the command. An error means that
    /// the replica is broken.
    fn apply(&self, store: &RocksStore, data: &[u8]) -> Result<(WriteBatch, Self::Outcome), String>;
    /// The changes have been written to the store.
    fn applied(&self, _changes: &WriteBatch) {}
    /// The replica has lost leadership of its group. Must not block.
    fn deposed(&self) {}
}

/// The other replicas of a group.
pub trait Peers: Send + Sync + 'static {
    /// Sends a message, which may get lost. Must not block.
    fn send(&self, to: ReplicaId, message: Bytes);
    /// Sends a request, which [`Replica::answer`](crate::Replica::answer) handles there, and waits for the
    /// reply.
    fn request(&self, to: ReplicaId, request: Bytes) -> Result<Bytes, String>;
    /// The node of a replica, as far as known.
    fn node_of(&self, replica: ReplicaId) -> Option<NodeId>;
    /// Replicas that the group should have besides this one.
    fn others(&self) -> Vec<ReplicaId>;
}
