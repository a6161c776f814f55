//! What a replicated state machine has to say for itself, and what it needs from others.

use bytes::Bytes;
use shoal_namespace::kv::WriteBatch;
use shoal_store::RocksStore;
use shoal_types::{NodeId, ReplicaId};

/// A deterministic state machine over a store: the namespace of a volume, or the cluster map.
pub trait Machine: Send + Sync + 'static {
    /// What is said of a command that was carried out.
    type Outcome: Send + 'static;
    /// What a command changes; a pure function of the store and the command. An error means that the replica
    /// is broken.
    fn apply(&self, store: &RocksStore, data: &[u8]) -> Result<(WriteBatch, Self::Outcome), String>;
    /// These changes are in the store.
    fn applied(&self, _changes: &WriteBatch) {}
    /// The replica has lost its group's lead. Must not wait for anything.
    fn deposed(&self) {}
}

/// The other replicas of a group.
pub trait Peers: Send + Sync + 'static {
    /// Sends a message, which may get lost. Must not wait.
    fn send(&self, to: ReplicaId, message: Bytes);
    /// Asks a replica, for [`Replica::answer`](crate::Replica::answer), and waits.
    fn ask(&self, to: ReplicaId, request: Bytes) -> Result<Bytes, String>;
    /// Where a replica is, as far as known.
    fn node_of(&self, replica: ReplicaId) -> Option<NodeId>;
    /// Replicas that there should be besides this one.
    fn others(&self) -> Vec<ReplicaId>;
}
