//! The state shared by all parts of a server, and its periodic work.

use super::access::Access;
use super::bricks::LocalBricks;
use super::cluster_view::ClusterView;
use super::events::Events;
use super::groups::Groups;
use super::node_dir::NodeDir;
use super::opening::LocalOpener;
use super::retired::Retiring;
use super::rounds::Rounds;
use super::sessions::SessionAddresses;
use crate::limits::{MANAGE_EVERY, REPLICA_GRACE, TIDY_EVERY};
use parking_lot::Mutex;
use shoal_cluster::{Bricks, ReplicatedBlocks};
use shoal_net::Fence;
use shoal_types::{GroupId, Incarnation, NodeId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

/// The state shared by all parts of a server.
pub struct ServerContext {
    pub(super) node: NodeId,
    pub(super) cluster: u128,
    pub(super) dir: Arc<NodeDir>,
    /// The run of the node's server that this process is.
    pub(super) run: Incarnation,
    /// Why it has stopped serving.
    pub(super) fenced: OnceLock<Fence>,
    pub(super) view: Arc<ClusterView>,
    pub(super) opener: Arc<LocalOpener>,
    pub(super) groups: Arc<Groups>,
    pub(super) bricks: Arc<LocalBricks>,
    /// The blocks of volumes, to make the copies that leaders delegate.
    blocks_of_volumes: Mutex<BTreeMap<GroupId, Arc<ReplicatedBlocks>>>,
    pub(super) retiring: Retiring,
    pub(super) access: Access,
    pub(super) session_addresses: SessionAddresses,
    pub(super) rounds: Rounds,
    pub(super) events: Arc<Events>,
    pub(super) started: Instant,
    pub(super) stop: AtomicBool,
}

impl ServerContext {
    /// Creates the context. Starts nothing.
    pub(super) fn new(
        dir: Arc<NodeDir>,
        view: Arc<ClusterView>,
        run: Incarnation,
    ) -> anyhow::Result<Arc<ServerContext>> {
        let identity = dir.identity();
        let events = Arc::new(Events::new(identity.name.clone()));
        let opener = Arc::new(LocalOpener::new(dir.clone(), view.clone()));
        Ok(Arc::new(ServerContext {
            node: identity.node,
            cluster: identity.cluster()?,
            dir: dir.clone(),
            run,
            fenced: OnceLock::new(),
            groups: Groups::new(dir.clone(), view.clone(), opener.clone()),
            bricks: LocalBricks::new(dir.clone(), view.clone()),
            blocks_of_volumes: Mutex::default(),
            retiring: Retiring::default(),
            access: Access::new(view.clone(), events.clone()),
            session_addresses: SessionAddresses::default(),
            rounds: Rounds::default(),
            events,
            started: Instant::now(),
            stop: AtomicBool::new(false),
            view,
            opener,
        }))
    }

    /// The blocks of a volume, to make the copies that its leader delegates.
    pub(super) fn blocks_to_copy(&self, volume: GroupId) -> Arc<ReplicatedBlocks> {
        let map = self.view.map();
        let mut blocks_of_volumes = self.blocks_of_volumes.lock();
        blocks_of_volumes.retain(|known, _| map.volumes.contains_key(known));
        let bricks: Arc<dyn Bricks> = self.view.clone();
        blocks_of_volumes.entry(volume).or_insert_with(|| ReplicatedBlocks::new(volume, bricks)).clone()
    }

    /// Starts the thread that opens and closes replicas and bricks as the map requires.
    pub(super) fn manage(self: &Arc<ServerContext>) -> std::io::Result<JoinHandle<()>> {
        let context = self.clone();
        std::thread::Builder::new().name("shoal-manager".into()).spawn(move || {
            let (mut seen, mut swept) = (0, false);
            context.groups.reopen_orphans(&context.view.map());
            while !context.stop.load(Ordering::Acquire) {
                if let Some(fence) = context.view.fence() {
                    return context.withdraw(fence);
                }
                if !swept && context.started.elapsed() > REPLICA_GRACE {
                    context.groups.sweep(&context.view.map());
                    swept = true;
                }
                let map = context.view.map();
                context.bricks.reconcile(&map);
                context.groups.reconcile(&map);
                context.record_rebalances(&map);
                seen = context.view.wait(seen, MANAGE_EVERY);
            }
        })
    }

    /// Starts the thread that removes drained bricks from the map, as long as this node leads the map's
    /// group, closes replicas that their groups have removed, and learns which rebalances have completed.
    pub(super) fn tidy(self: &Arc<ServerContext>) -> std::io::Result<JoinHandle<()>> {
        let context = self.clone();
        std::thread::Builder::new().name("shoal-tidy".into()).spawn(move || {
            let mut next = Instant::now() + TIDY_EVERY;
            let mut seen = 0;
            while !context.stop.load(Ordering::Acquire) {
                seen = context.view.wait(seen, next.saturating_duration_since(Instant::now()));
                if Instant::now() < next {
                    continue;
                }
                if context.view.fence().is_some() {
                    return;
                }
                context.tidy_up();
                context.learn_who_left();
                context.learn_completed_rebalances();
                next = Instant::now() + TIDY_EVERY;
            }
        })
    }
}
