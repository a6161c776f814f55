//! One process for each node identity, and none for a node that was detached.
//!
//! **Models.** Each start of a server is an [`Incarnation`](shoal_types::Incarnation). It is part of every
//! greeting, and peers talk to one incarnation of a node at a time ([`shoal_net::Membership`]). It is also
//! committed to the cluster map ([`Command::NodeStarted`]), so that an older one is refused after its peers
//! have been restarted, too. A peer's refusal, or a map that says so, fences this process.
//!
//! **Promises.** A fenced process closes its replicas and bricks, and records this in its data directory, so
//! that it does not start again. It keeps running only to tell administrators why.
//!
//! **Assumes nothing** about a quorum at the start: replicas run before the incarnation is committed, since
//! the map's own group has to elect a leader first. Until then only the memory of peers refuses an older one.

use super::context::ServerContext;
use super::node_dir::advice;
use crate::limits::ANNOUNCE_EVERY;
use shoal_cluster::{ClusterMap, Command};
use shoal_net::Fence;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

impl ServerContext {
    /// Has this run committed to the cluster map, as soon as the map's group can decide.
    pub(super) fn announce(self: &Arc<ServerContext>) -> std::io::Result<JoinHandle<()>> {
        let context = self.clone();
        std::thread::Builder::new().name("shoal-announce".into()).spawn(move || {
            let mut seen = 0;
            while !context.stop.load(Ordering::Acquire) && context.view.fence().is_none() {
                let map = context.view.map();
                let is_due = map.nodes.contains_key(&context.node)
                    && map.runs.get(&context.node) != Some(&context.run);
                if is_due
                    && let Err(why) =
                        context.decide(&Command::NodeStarted { node: context.node, run: context.run })
                {
                    tracing::debug!(why, "recording this start in the cluster map failed");
                }
                seen = context.view.wait(seen, ANNOUNCE_EVERY);
            }
        })
    }

    /// Stops serving for good.
    pub(super) fn withdraw(self: &Arc<ServerContext>, fence: Fence) {
        tracing::error!(start = self.run.starts, "this server stops serving: {fence}. {}", advice(fence));
        // Requests are refused first: closing replicas takes a moment.
        let _ = self.fenced.set(fence);
        if let Err(error) = self.dir.set_fenced(fence) {
            tracing::error!("recording the fence in the data directory failed: {error:#}");
        }
        self.bricks.reconcile(&ClusterMap::default());
        self.groups.shutdown();
    }

    /// Whether this process serves; otherwise why not.
    pub(super) fn serves(&self) -> Result<(), String> {
        let Some(fence) = self.fenced.get() else { return Ok(()) };
        let name = self.dir.identity().name;
        Err(format!("this server ({name}) does not serve any more: {fence}. {}", advice(*fence)))
    }
}
