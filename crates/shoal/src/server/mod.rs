//! The server of a node, and mounting volumes of a cluster: where the parts of Shoal come together.
//!
//! **Models.** A node has a data directory ([`node_dir`]), credentials, and a copy of the cluster map
//! ([`cluster_view`]). The map says which replicas of metadata groups ([`groups`], [`opening`]) and which
//! bricks ([`bricks`]) it runs, and a manager thread ([`context`]) opens and closes them accordingly.
//! Requests of other machines come in through [`handler`], subject to [`access`]; those of administrators
//! through the control socket ([`admin`]). Changes of the map go to the leader of its group ([`execute`]).
//!
//! ```text
//!  other nodes, clients ──> handler ──> access ──> metadata replicas, bricks, the map
//!  administrator ─────────> admin ───> execute ──> leader of the map's group ──> map ──> manager ──> replicas, bricks
//! ```
//!
//! **Assumes** that no other process uses the data directory. Other nodes need not be reachable.
//!
//! **Promises.** A change of the map takes effect on every running node within seconds. A restarted node
//! serves what it served before. A node that has lost a replica or brick reports that, and does not
//! recreate it. One that was detached, or whose identity another process uses, stops serving ([`fencing`]).
//! A server that is stopped transfers its leaderships first.
//!
//! **Refuses** peers without a certificate of the cluster's authority.

mod access;
mod admin;
mod bricks;
mod calls;
mod cluster_view;
mod context;
mod disks;
mod dump;
mod events;
mod execute;
mod fencing;
mod groups;
mod handler;
mod healing;
mod join;
mod leaving;
mod machine;
pub mod mount;
mod near_bricks;
pub mod node_dir;
mod opening;
mod page;
mod peers;
mod polling;
mod reporter;
mod reports;
mod retired;
mod room;
mod rounds;
mod sessions;
mod setup;
mod statistics;
#[cfg(test)]
mod tests;
mod waiting;
mod watching;

pub use admin::CLUSTER_SCRUB;
pub use setup::{init, join};

use self::context::ServerContext;
use crate::admin::ServeSpec;
use crate::control::Control;
use crate::memory;
use crate::web::{self, Web};
use anyhow::Context;
use cluster_view::ClusterView;
use node_dir::NodeDir;
use parking_lot::Mutex;
use polling::Poller;
use shoal_cluster::ClusterMap;
use shoal_net::{Credentials, Listener, Network};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// A running server.
pub struct Server {
    context: Arc<ServerContext>,
    running: Mutex<Option<Running>>,
}

/// The threads and services that end with the server.
struct Running {
    control: Control,
    poller: Poller,
    listener: Listener,
    threads: Vec<JoinHandle<()>>,
    web: Option<Web>,
}

impl Server {
    /// Starts to serve.
    pub fn start(dir: NodeDir, spec: &ServeSpec) -> anyhow::Result<Arc<Server>> {
        if let Some(listen) = &spec.listen {
            dir.set_listen(listen)?;
        }
        memory::begin_server(spec.memory_bytes, spec.cache_bytes).map_err(anyhow::Error::msg)?;
        memory::keep(None)?;
        let page = web::bind(&spec.web)?;
        let dir = Arc::new(dir);
        let identity = dir.identity();
        let credentials = Credentials::load(&dir.tls())?;
        let map = saved_map(&dir)?;
        let known = map.runs.get(&identity.node).map_or(0, |run| run.starts);
        let run = dir.begin_run(spec.moved, known)?;
        let network = Network::server(identity.cluster()?, credentials, run)?;
        let seeds = map.nodes.values().map(|node| node.address.clone()).collect();
        let keeper = dir.clone();
        let on_map = Box::new(move |map: &ClusterMap| {
            // Not fatal: the map is fetched again after the next start, from addresses that may be old
            // then.
            if let Err(error) = keeper.save_map(&map.encode()) {
                tracing::warn!("saving the cluster map failed: {error:#}");
            }
        });
        let view = ClusterView::new(network.clone(), Some(identity.node), map, on_map);
        let context = ServerContext::new(dir.clone(), view.clone(), run)?;
        let listen: SocketAddr = identity.listen.parse().with_context(|| {
            format!("'{}' is no address to listen at; say another with --listen", identity.listen)
        })?;
        let listener =
            network.listen(listen, context.clone()).with_context(|| format!("listening at {listen}"))?;
        let running = Running {
            listener,
            poller: Poller::start(view, seeds)?,
            threads: vec![
                context.manage()?,
                context.tidy()?,
                context.announce()?,
                context.retire()?,
                context.watch()?,
            ],
            control: Control::open(dir.path(), Arc::new(admin::Controlled(context.clone())))
                .context("control socket")?,
            web: page.map(|listener| context.show_page(listener)).transpose()?,
        };
        tracing::info!(node = %identity.node, name = identity.name, start = run.starts, %listen, "serving");
        Ok(Arc::new(Server { context, running: Mutex::new(Some(running)) }))
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        self.context.dir.path()
    }

    /// Its state, as text for administrators.
    pub fn dump(&self) -> String {
        self.context.dump()
    }

    /// Transfers its leaderships, and stops.
    pub fn stop(&self) -> anyhow::Result<()> {
        let Some(Running { control, poller, listener, threads, web }) = self.running.lock().take() else {
            return Ok(());
        };
        drop(control);
        drop(web);
        self.context.stop.store(true, Ordering::Release);
        self.context.view.notify_waiters();
        for thread in threads {
            // A thread that panicked has logged that.
            let _ = thread.join();
        }
        // Peers must still reach the replicas while these transfer their leaderships.
        self.context.groups.shutdown();
        drop(poller);
        drop(listener);
        Ok(())
    }
}

/// The map as it was when the server stopped.
fn saved_map(dir: &NodeDir) -> anyhow::Result<ClusterMap> {
    let bytes = dir.read_map().with_context(|| format!("there is no map in {}", dir.path().display()))?;
    ClusterMap::decode(&bytes).with_context(|| format!("the map in {}", dir.path().display()))
}
