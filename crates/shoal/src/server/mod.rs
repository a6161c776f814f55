//! The server of a node, and mounting volumes of a cluster: where the parts of Shoal come together.
//!
//! **Models.** A node has a data directory ([`dir`]), credentials, and a copy of the cluster map ([`directory`]). The map says which replicas
//! of metadata groups ([`groups`], [`opening`]) and which bricks ([`bricks`]) it runs, and a manager ([`core`]) sees to
//! it that they do. Requests of others come in through [`handler`], by the rights that [`access`] grants; those of
//! administrators through the control socket ([`admin`]). Changes of the map go to the leader of its group ([`execute`]).
//!
//! ```text
//!  other nodes, clients ──> handler ──> access ──> metadata replicas, bricks, the map
//!  administrator ─────────> admin ───> execute ──> leader of the map's group ──> map ──> manager ──> replicas, bricks
//! ```
//!
//! **Assumes** that the data directory is this process's own, and nothing about the others being there.
//!
//! **Promises.** What is decided takes effect on every node that runs within seconds. A node that comes back does what it did before;
//! one that has lost what it kept says so and does not make it up. One that was detached, or whose identity
//! another process uses, stops serving ([`fencing`]). Told to stop, it hands over what it leads first.
//!
//! **Refuses** whoever cannot show that the cluster's authority knows them.

mod access;
mod admin;
mod bricks;
mod calls;
mod core;
pub mod dir;
mod directory;
mod disks;
mod execute;
mod fencing;
mod groups;
mod handler;
mod healing;
mod join;
mod leaving;
mod machine;
pub mod mount;
mod opening;
mod peers;
mod polling;
mod reports;
mod retired;
mod sessions;
mod setup;
#[cfg(test)]
mod tests;

pub use admin::CLUSTER_SCRUB;
pub use setup::{init, join};

use self::core::Core;
use crate::admin::ServeSpec;
use crate::control::Control;
use anyhow::Context;
use dir::NodeDir;
use directory::Directory;
use parking_lot::Mutex;
use polling::Poller;
use shoal_cluster::ClusterMap;
use shoal_net::{Credentials, Listener, Network};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// A running server.
pub struct Server {
    core: Arc<Core>,
    running: Mutex<Option<Running>>,
}

/// What ends with the server.
struct Running {
    control: Control,
    poller: Poller,
    listener: Listener,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve.
    pub fn start(dir: NodeDir, spec: &ServeSpec) -> anyhow::Result<Arc<Server>> {
        if let Some(listen) = &spec.listen {
            dir.set_listen(listen)?;
        }
        if let Some(bytes) = spec.cache_bytes {
            shoal_store::cache::set_shared_bytes(bytes);
        }
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
            // It is fetched anew after the next start; only whom to ask then may be old.
            if let Err(error) = keeper.save_map(&map.encode()) {
                tracing::warn!("keeping the cluster map: {error:#}");
            }
        });
        let directory = Directory::new(network.clone(), Some(identity.node), map, on_map);
        let core = Core::new(dir.clone(), directory.clone(), run)?;
        let listen: SocketAddr = identity.listen.parse().with_context(|| {
            format!("'{}' is no address to listen at; say another with --listen", identity.listen)
        })?;
        let listener =
            network.listen(listen, core.clone()).with_context(|| format!("listening at {listen}"))?;
        let running = Running {
            listener,
            poller: Poller::start(directory, seeds)?,
            threads: vec![core.manage()?, core.tidy()?, core.announce()?, core.retire()?],
            control: Control::open(dir.path(), Arc::new(admin::Controlled(core.clone())))
                .context("control socket")?,
        };
        tracing::info!(node = %identity.node, name = identity.name, start = run.starts, %listen, "serving");
        Ok(Arc::new(Server { core, running: Mutex::new(Some(running)) }))
    }

    /// Hands over what it leads, and stops.
    pub fn stop(&self) -> anyhow::Result<()> {
        let Some(Running { control, poller, listener, threads }) = self.running.lock().take() else {
            return Ok(());
        };
        drop(control);
        self.core.stop.store(true, Ordering::Release);
        self.core.directory.poke();
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        // The others must still be able to talk to those replicas that hand over the lead.
        self.core.groups.shutdown();
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
