//! What the parts of a server share, and what it does again and again.

use super::access::Access;
use super::bricks::LocalBricks;
use super::dir::NodeDir;
use super::directory::Directory;
use super::groups::Groups;
use super::opening::LocalOpener;
use super::retired::Retiring;
use super::sessions::Heard;
use crate::limits::{MANAGE_EVERY, REPLICA_GRACE, TIDY_EVERY};
use shoal_net::Fence;
use shoal_types::{Incarnation, NodeId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

/// See the module.
pub struct Core {
    pub(super) node: NodeId,
    pub(super) cluster: u128,
    pub(super) dir: Arc<NodeDir>,
    /// Which run of the node's server this process is.
    pub(super) run: Incarnation,
    /// Why it does not serve any more.
    pub(super) fenced: OnceLock<Fence>,
    pub(super) directory: Arc<Directory>,
    pub(super) opener: Arc<LocalOpener>,
    pub(super) groups: Arc<Groups>,
    pub(super) bricks: Arc<LocalBricks>,
    pub(super) retiring: Retiring,
    pub(super) access: Access,
    pub(super) heard: Heard,
    pub(super) started: Instant,
    pub(super) stop: AtomicBool,
}

impl Core {
    /// Nothing runs yet.
    pub(super) fn new(
        dir: Arc<NodeDir>,
        directory: Arc<Directory>,
        run: Incarnation,
    ) -> anyhow::Result<Arc<Core>> {
        let identity = dir.identity();
        let opener = Arc::new(LocalOpener::new(dir.clone(), directory.clone()));
        Ok(Arc::new(Core {
            node: identity.node,
            cluster: identity.cluster()?,
            dir: dir.clone(),
            run,
            fenced: OnceLock::new(),
            groups: Groups::new(dir.clone(), directory.clone(), opener.clone()),
            bricks: LocalBricks::new(dir.clone(), directory.clone()),
            retiring: Retiring::default(),
            access: Access::new(directory.clone()),
            heard: Heard::default(),
            started: Instant::now(),
            stop: AtomicBool::new(false),
            directory,
            opener,
        }))
    }

    /// Keeps replicas and bricks as the map wants them.
    pub(super) fn manage(self: &Arc<Core>) -> std::io::Result<JoinHandle<()>> {
        let core = self.clone();
        std::thread::Builder::new().name("shoal-manager".into()).spawn(move || {
            let (mut seen, mut swept) = (0, false);
            core.groups.take_up(&core.directory.map());
            while !core.stop.load(Ordering::Acquire) {
                if let Some(fence) = core.directory.fence() {
                    return core.withdraw(fence);
                }
                if !swept && core.started.elapsed() > REPLICA_GRACE {
                    core.groups.sweep(&core.directory.map());
                    swept = true;
                }
                let map = core.directory.map();
                core.bricks.reconcile(&map);
                core.groups.reconcile(&map);
                seen = core.directory.wait(seen, MANAGE_EVERY);
            }
        })
    }

    /// Takes bricks out of the map that are empty and not wanted, as long as this node leads the map's group, and replicas away that
    /// their groups do not need.
    pub(super) fn tidy(self: &Arc<Core>) -> std::io::Result<JoinHandle<()>> {
        let core = self.clone();
        std::thread::Builder::new().name("shoal-tidy".into()).spawn(move || {
            let mut next = Instant::now() + TIDY_EVERY;
            let mut seen = 0;
            while !core.stop.load(Ordering::Acquire) {
                seen = core.directory.wait(seen, next.saturating_duration_since(Instant::now()));
                if Instant::now() < next {
                    continue;
                }
                if core.directory.fence().is_some() {
                    return;
                }
                core.tidy_up();
                core.ask_who_left();
                next = Instant::now() + TIDY_EVERY;
            }
        })
    }
}
