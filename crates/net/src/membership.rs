//! Which run of each node's server may connect, so that a node's identity is never used by two processes.
//!
//! **Model.** A node's identity is a certificate and a data directory; both can be copied. Every start of a
//! server is an [`Incarnation`] with a count that only grows. This table holds, for each node, the
//! incarnation that this process talks to, and its number of connections. The cluster map adds what was
//! committed: the nodes of the cluster, and the highest incarnation of each.
//!
//! **Promises.** A detached node is refused. An incarnation that is older than a known one is refused for
//! good, as is another one of the same count. A newer one is refused while connections with the older one are
//! alive: two processes run at once, and the first one stays. After a normal restart the connections of the
//! old process are closed by its kernel, or time out within [`SILENCE_MAX`](crate::limits::SILENCE_MAX). When
//! the map names a newer incarnation, connections with an older one are closed.
//!
//! **Assumes** no quorum: after a power failure of all nodes each accepts the first run that connects.

use crate::frame;
use crate::limits::DUPLICATE_PATIENCE;
use parking_lot::Mutex;
use shoal_types::{Incarnation, NodeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// Why a node's server is refused by its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fence {
    /// It was detached from the cluster.
    #[error("the node was detached from the cluster")]
    Detached,
    /// A later run of the node's server, or another one of the same count, is known.
    #[error("a later run of this node's server is known to the cluster: this data directory is an old copy")]
    Superseded,
    /// Another process with the node's identity is connected.
    #[error("another process with this node's identity is connected to the cluster")]
    Duplicate,
}

impl Fence {
    pub(crate) fn verdict(self) -> u8 {
        match self {
            Fence::Detached => frame::DETACHED,
            Fence::Superseded => frame::SUPERSEDED,
            Fence::Duplicate => frame::DUPLICATE,
        }
    }

    pub(crate) fn of_verdict(verdict: u8) -> Option<Fence> {
        match verdict {
            frame::DETACHED => Some(Fence::Detached),
            frame::SUPERSEDED => Some(Fence::Superseded),
            frame::DUPLICATE => Some(Fence::Duplicate),
            _ => None,
        }
    }
}

struct KnownRun {
    current: Incarnation,
    connections: usize,
    /// Dropped when the incarnation is superseded, which ends its connections.
    alive: watch::Sender<()>,
}

impl KnownRun {
    fn new(current: Incarnation) -> KnownRun {
        KnownRun { current, connections: 0, alive: watch::channel(()).0 }
    }
}

/// The nodes of the cluster map.
#[derive(Default)]
struct Listed {
    nodes: HashMap<NodeId, Option<Incarnation>>,
    /// Nodes with this number or a higher one have joined after this map.
    next: u32,
}

impl Listed {
    fn is_detached(&self, node: NodeId) -> bool {
        node.0 < self.next && !self.nodes.contains_key(&node)
    }
}

#[derive(Default)]
struct State {
    known: HashMap<NodeId, KnownRun>,
    listed: Listed,
    /// Why this process itself is refused.
    fence: Option<Fence>,
    /// Since when each peer has been reporting that another process uses this node's identity.
    duplicate_since: HashMap<String, Instant>,
}

/// The table of incarnations.
pub struct Membership {
    own: Option<(NodeId, Incarnation)>,
    state: Mutex<State>,
}

/// A connection with an admitted incarnation.
pub(crate) struct Admission {
    membership: Arc<Membership>,
    node: NodeId,
    run: Incarnation,
    alive: watch::Receiver<()>,
}

impl Admission {
    /// Returns when the incarnation is superseded.
    pub(crate) async fn ended(&mut self) {
        while self.alive.changed().await.is_ok() {}
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(known) = self.membership.state.lock().known.get_mut(&self.node)
            && known.current == self.run
        {
            known.connections = known.connections.saturating_sub(1);
        }
    }
}

/// Whether a run is refused for good if another one is known: it is older, or different with the same count.
fn is_superseded(run: Incarnation, known: Incarnation) -> bool {
    run != known && run.starts <= known.starts
}

impl Membership {
    /// `own`: the node whose server this process is, and its run.
    pub(crate) fn new(own: Option<(NodeId, Incarnation)>) -> Arc<Membership> {
        Arc::new(Membership { own, state: Mutex::default() })
    }

    /// This process's own run; zero if it is no server.
    pub(crate) fn own_run(&self) -> Incarnation {
        self.own.map_or(Incarnation::default(), |(_, run)| run)
    }

    /// Why this process may not serve, once peers or the map have reported it.
    pub fn fence(&self) -> Option<Fence> {
        self.state.lock().fence
    }

    /// Learns from a newer cluster map: its nodes with their committed incarnations, and the first free
    /// number.
    pub fn learn(&self, nodes: impl IntoIterator<Item = (NodeId, Option<Incarnation>)>, next: u32) {
        let mut state = self.state.lock();
        let State { known, listed, fence, .. } = &mut *state;
        *listed = Listed { nodes: nodes.into_iter().collect(), next };
        known.retain(|node, _| !listed.is_detached(*node));
        for (node, run) in &listed.nodes {
            let Some(run) = *run else { continue };
            let outdated = known.get(node).is_none_or(|one| is_superseded(one.current, run));
            if outdated {
                known.insert(*node, KnownRun::new(run));
            }
        }
        let Some((node, run)) = self.own else { return };
        if listed.is_detached(node) {
            fence.get_or_insert(Fence::Detached);
        } else if listed.nodes.get(&node).copied().flatten().is_some_and(|it| is_superseded(run, it)) {
            fence.get_or_insert(Fence::Superseded);
        }
    }

    /// Whether a node's server may connect.
    pub(crate) fn admit(self: &Arc<Self>, node: NodeId, run: Incarnation) -> Result<Admission, Fence> {
        let mut state = self.state.lock();
        let State { known, listed, .. } = &mut *state;
        if listed.is_detached(node) {
            return Err(Fence::Detached);
        }
        if self.own.is_some_and(|(own, ours)| own == node && ours != run) {
            return Err(Fence::Duplicate);
        }
        let one = known.entry(node).or_insert_with(|| KnownRun::new(run));
        if is_superseded(run, one.current) {
            return Err(Fence::Superseded);
        }
        if run != one.current {
            if one.connections > 0 {
                return Err(Fence::Duplicate);
            }
            *one = KnownRun::new(run);
        }
        one.connections += 1;
        Ok(Admission { membership: self.clone(), node, run, alive: one.alive.subscribe() })
    }

    /// A peer has refused this process. That another process has its identity is believed when the peer keeps
    /// reporting it: after a restart the peer may not have noticed yet that the old process is gone.
    pub(crate) fn refused(&self, peer: &str, why: Fence) {
        let mut state = self.state.lock();
        if why == Fence::Duplicate {
            let since = *state.duplicate_since.entry(peer.to_owned()).or_insert_with(Instant::now);
            if since.elapsed() < DUPLICATE_PATIENCE {
                return;
            }
        }
        state.fence.get_or_insert(why);
    }

    /// A peer has admitted this process.
    pub(crate) fn welcomed(&self, peer: &str) {
        self.state.lock().duplicate_since.remove(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn run(starts: u64, instance: u64) -> Incarnation {
        Incarnation { starts, instance }
    }

    #[test]
    fn newer_run_is_refused_while_the_older_one_is_connected() {
        let table = Membership::new(None);
        let first = table.admit(NODE, run(1, 7)).unwrap();
        let second = table.admit(NODE, run(1, 7)).unwrap();
        assert_eq!(table.admit(NODE, run(2, 8)).err(), Some(Fence::Duplicate));
        drop(first);
        assert_eq!(table.admit(NODE, run(2, 8)).err(), Some(Fence::Duplicate));
        drop(second);
        let restarted = table.admit(NODE, run(2, 8)).unwrap();
        drop(restarted);
        for old in [run(1, 7), run(2, 9)] {
            assert_eq!(table.admit(NODE, old).err(), Some(Fence::Superseded), "{old:?}");
        }
        assert!(table.admit(NODE, run(2, 8)).is_ok());
    }

    #[test]
    fn map_ends_connections_of_an_older_run_and_of_a_detached_node() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let table = Membership::new(None);
        let mut old = table.admit(NODE, run(1, 7)).unwrap();
        table.learn([(NODE, Some(run(3, 9)))], 4);
        runtime.block_on(old.ended());
        assert_eq!(table.admit(NODE, run(2, 8)).err(), Some(Fence::Superseded));
        let mut current = table.admit(NODE, run(3, 9)).unwrap();
        drop(old);
        assert_eq!(table.admit(NODE, run(4, 1)).err(), Some(Fence::Duplicate));
        table.learn([], 4);
        runtime.block_on(current.ended());
        assert_eq!(table.admit(NODE, run(3, 9)).err(), Some(Fence::Detached));
        assert!(table.admit(NodeId(4), run(1, 1)).is_ok(), "it has joined after this map");
    }

    #[test]
    fn server_learns_from_the_map_that_it_is_detached_or_an_old_copy() {
        let own = |run| Membership::new(Some((NODE, run)));
        let table = own(run(3, 9));
        table.learn([(NODE, Some(run(2, 1)))], 4);
        table.learn([(NODE, Some(run(3, 9)))], 4);
        assert_eq!(table.fence(), None);
        assert_eq!(table.admit(NODE, run(4, 1)).err(), Some(Fence::Duplicate), "this process is alive");
        table.learn([], 4);
        assert_eq!(table.fence(), Some(Fence::Detached));
        let table = own(run(3, 9));
        table.learn([(NODE, Some(run(3, 8)))], 4);
        assert_eq!(table.fence(), Some(Fence::Superseded));
    }

    #[test]
    fn one_refusal_as_a_duplicate_may_be_a_restart_and_does_not_fence() {
        let table = Membership::new(Some((NODE, run(3, 9))));
        table.refused("a", Fence::Duplicate);
        assert_eq!(table.fence(), None);
        table.welcomed("a");
        table.refused("b", Fence::Superseded);
        assert_eq!(table.fence(), Some(Fence::Superseded));
    }
}
