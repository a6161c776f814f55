//! The machines of a world: replicas of one volume's metadata group, and clients.

use crate::brick::BrickSet;
use crate::disk::Disks;
use crate::focus::Focus;
use crate::kernel::Kernel;
pub use crate::layout::FIRST_CLIENT;
use crate::layout::{Layout, VOLUME};
use crate::network::Network;
use crate::remote::{Group, NetworkPeers, Servers};
use crate::scheduler::{Machine, Scheduler};
use shoal_client::{Client, KernelCache, Stale};
use shoal_meta::{Options, ReplicaOptions, Role, Server, Status, TierState};
use shoal_runtime::random::number;
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_types::{GroupId, InodeId, ReplicaId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Machines with replicas at the beginning: `1..=NODES`.
pub const NODES: Machine = 3;
/// The machine that replaces one of them.
pub const SPARE: Machine = NODES + 1;
/// A new machine has replaced a replica within this.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);
/// How often all bricks are swept. It is short, as the worlds are.
pub const SWEEP_EVERY: Duration = Duration::from_secs(300);
/// How often a condition is polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The machines and what runs on them.
pub struct Cluster {
    /// Its scheduler.
    pub world: Rc<Scheduler>,
    /// Its network.
    pub network: Rc<Network>,
    /// The servers that run.
    pub servers: Servers,
    /// The bricks.
    pub bricks: Arc<BrickSet>,
    /// The disks of the logs.
    pub disks: Disks,
    dir: PathBuf,
    settings: Settings,
    troubles: RefCell<Vec<String>>,
    /// Nodes that are being started.
    starting: RefCell<BTreeSet<Machine>>,
}

/// The settings of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Bytes of log after the last flush of a store.
    pub log_bytes: u64,
    /// Content up to this size is inline, in bytes.
    pub inline_bytes: u32,
    /// Bytes that a mount caches.
    pub cache_bytes: usize,
    /// How blocks are on the bricks.
    pub layout: Layout,
    /// Programs run on model kernels, above the real front end.
    pub has_kernel: bool,
    /// Programs work on few objects, and replies are handled later, to show the hazards of a kernel's cache.
    pub focus: Option<Focus>,
}

fn replica_on(node: Machine) -> ReplicaId {
    ReplicaId(u64::from(node))
}

impl Cluster {
    /// A cluster before its start, with its files below a directory.
    pub fn new(world: &Rc<Scheduler>, disks: &Disks, dir: &Path, settings: Settings) -> Rc<Cluster> {
        let servers = Servers::default();
        servers.set_members((1..=NODES).collect());
        Rc::new(Cluster {
            world: world.clone(),
            network: Network::new(world),
            servers,
            bricks: Arc::new(BrickSet::new(world, GroupId(VOLUME), settings.layout, dir)),
            disks: disks.clone(),
            dir: dir.to_owned(),
            settings,
            troubles: RefCell::default(),
            starting: RefCell::default(),
        })
    }

    /// The directory of a machine.
    pub fn home(&self, node: Machine) -> PathBuf {
        self.dir.join(format!("node-{node}"))
    }

    /// All machines with replicas.
    pub fn nodes(&self) -> Vec<Machine> {
        self.servers.members()
    }

    /// Runs something on a machine, and waits for it; `None` if the machine dies meanwhile.
    pub fn on<T: 'static>(
        &self,
        machine: Machine,
        name: &str,
        run: impl FnOnce() -> T + 'static,
    ) -> Option<T> {
        let done = Rc::new(RefCell::new(None));
        let given = done.clone();
        let task = self.world.start(
            machine,
            Duration::ZERO,
            name,
            Box::new(move || {
                let outcome = run();
                *given.borrow_mut() = Some(outcome);
            }),
        );
        self.wait_for_task(task);
        done.take()
    }

    /// Waits until a task has ended.
    pub fn wait_for_task(&self, task: u64) {
        use shoal_runtime::simulator::{Event, Simulator};
        while !self.world.is_finished(task) {
            self.world.wait(Some(Event::End(task)), None);
        }
    }

    /// Starts the server of a machine. `first`: it founds the group.
    pub fn start(self: &Rc<Cluster>, node: Machine, first: bool) {
        let home = self.home(node);
        std::fs::create_dir_all(&home).expect("the directory of a world can be written to");
        self.network.returned(node);
        let cluster = self.clone();
        self.starting.borrow_mut().insert(node);
        self.on(node, "start", move || {
            let founders = first.then(|| cluster.nodes().into_iter().map(replica_on).collect());
            let Settings { log_bytes, layout, .. } = cluster.settings;
            let replica = layout.replica;
            let log_bytes = Some(log_bytes);
            let sweep_every = Some(SWEEP_EVERY);
            let options =
                Options { create: Some(VOLUME), replica, log_bytes, sweep_every, ..Options::default() };
            let replica =
                ReplicaOptions { group: GroupId(VOLUME), id: replica_on(node), founders, log_bytes };
            let blocks = cluster.bricks.seen_from(node);
            let returns = blocks.clone();
            match Server::open_replica(&home, blocks, options, replica, cluster.peers(node)) {
                Ok(server) => {
                    server.set_tiers(cluster.bricks.tier_settings());
                    let told = Arc::downgrade(&server);
                    returns.when_a_brick_returns(move || {
                        if let Some(server) = told.upgrade() {
                            server.placement_changed();
                        }
                    });
                    cluster.servers.put(node, server);
                }
                Err(error) => {
                    cluster.troubles.borrow_mut().push(format!("node {node} does not start: {error}"))
                }
            }
        });
        self.starting.borrow_mut().remove(&node);
    }

    fn peers(&self, node: Machine) -> Arc<NetworkPeers> {
        Arc::new(NetworkPeers::seen_from(node, &self.network, &self.servers))
    }

    /// Replaces a node by a machine that never had a replica: the new one fetches the state, then becomes a
    /// member.
    pub fn replace(self: &Rc<Cluster>, old: Machine, new: Machine) {
        let members: Vec<Machine> =
            self.nodes().into_iter().filter(|node| *node != old).chain([new]).collect();
        let home = self.home(new);
        std::fs::create_dir_all(&home).expect("the directory of a world can be written to");
        let fetched = || {
            let (home, peers) = (home.clone(), self.peers(new));
            self.on(new, "fetch", move || shoal_meta::fetch_state(&home, &*peers, &|| false).is_ok())
        };
        if !self.wait_until(REPLACED_WITHIN, || fetched() == Some(true)) {
            return self.troubles.borrow_mut().push(format!("node {new} gets no state from the others"));
        }
        self.start(new, false);
        let all: Vec<Machine> = self.nodes().into_iter().chain([new]).collect();
        self.servers.set_members(all.clone());
        let wanted: Vec<ReplicaId> = members.iter().copied().map(replica_on).collect();
        let is_done = || {
            self.reopen_where_needed();
            for server in all.iter().filter_map(|node| self.servers.get(*node)) {
                server.replica().set_wanted_members(&wanted);
            }
            let is_so = |server: Arc<Server>| {
                let status = server.replica().status();
                let voters: BTreeSet<ReplicaId> = status.voters.iter().copied().collect();
                status.role == Role::Leader && voters == wanted.iter().copied().collect()
            };
            members.iter().filter_map(|node| self.servers.get(*node)).any(is_so)
        };
        if !self.wait_until(REPLACED_WITHIN, is_done) {
            return self.troubles.borrow_mut().push(format!("node {new} does not take the place of {old}"));
        }
        if let Some(server) = self.servers.remove(old) {
            self.on(old, "leave", move || server.shutdown());
        }
        self.servers.set_members(members);
    }

    /// Starts a dead node again, unless that is already in progress after an earlier death.
    pub fn start_again(self: &Rc<Cluster>, node: Machine) {
        while self.starting.borrow().contains(&node) {
            sleep(LOOK_EVERY);
        }
        if self.servers.get(node).is_none() {
            self.start(node, false);
        }
    }

    /// Kills a node: its tasks end, and what was not flushed may be lost.
    pub fn crash(&self, node: Machine) {
        self.world.kill(node);
        self.network.died(node);
        let home = self.home(node);
        // RocksDB writes its memory out when it is closed, which a crash does not. So its files are copied
        // before.
        let aside = home.join("aside");
        while let Err(error) = copy_store(&home.join("store"), &aside) {
            // A table that was merged into another has just been removed, or a new one has just been added.
            let moved = [std::io::ErrorKind::NotFound, std::io::ErrorKind::Interrupted];
            assert!(moved.contains(&error.kind()), "the files of a store can be copied: {error}");
        }
        let server = self.servers.remove(node);
        self.world.as_dying(|| drop(server));
        std::fs::remove_dir_all(home.join("store")).expect("a store can be removed");
        std::fs::rename(&aside, home.join("store")).expect("a store can be put in place");
        self.disks.crash(&home, &self.world);
    }

    /// Kills a client's machine, with what was on it.
    pub fn crash_client<T>(&self, machine: Machine, had: T) {
        self.network.died(machine);
        self.world.as_dying(|| drop(had));
        self.network.returned(machine);
    }

    /// Bytes that a mount caches.
    pub fn cache_bytes(&self) -> usize {
        self.settings.cache_bytes
    }

    /// How blocks are on the bricks.
    pub fn layout(&self) -> &Layout {
        &self.settings.layout
    }

    /// What the programs of the world work on, if that is limited.
    pub fn focus(&self) -> Option<Focus> {
        self.settings.focus
    }

    /// Mounts the volume on a machine, with a model kernel in the worlds that have one.
    pub fn mount(&self, machine: Machine) -> Result<(Arc<Client>, Option<Arc<Kernel>>), String> {
        let inline_bytes = self.settings.inline_bytes;
        let group = Arc::new(Group::seen_from(machine, &self.network, &self.servers, inline_bytes));
        let bricks = self.bricks.clone();
        let options = shoal_client::Options {
            name: format!("client {machine}"),
            cache_bytes: self.settings.cache_bytes,
            ..shoal_client::Options::default()
        };
        let (world, Settings { has_kernel, focus, .. }) = (self.world.clone(), self.settings);
        let mounted = self.on(machine, "mount", move || {
            let client = Client::open_replicated(group, bricks.seen_from(machine), options)
                .map_err(|error| error.to_string())?;
            if !has_kernel {
                client.set_kernel(Arc::new(NoCaches));
                return Ok((client, None));
            }
            let kernel = Kernel::mount(&world, &client, focus).map_err(|error| error.to_string())?;
            Ok((client, Some(kernel)))
        });
        mounted.unwrap_or_else(|| Err("the machine has died".into()))
    }

    /// The node that believes to lead.
    pub fn leader(&self) -> Option<Machine> {
        let status = |node: Machine| Some((self.servers.get(node)?.replica().status(), node));
        let leads = |(status, _): &(Status, Machine)| status.role == Role::Leader;
        let leaders = self.nodes().into_iter().filter_map(status).filter(leads);
        leaders.max_by_key(|(status, _)| status.term).map(|(_, node)| node)
    }

    /// The server of [`leader`](Self::leader).
    pub fn leading_server(&self) -> Option<Arc<Server>> {
        self.servers.get(self.leader()?)
    }

    /// Waits until a condition holds; false when the time is over.
    pub fn wait_until(&self, longest: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let end = self.world.time_ns() + longest.as_nanos() as u64;
        while !is_so() {
            if self.world.time_ns() > end {
                return false;
            }
            sleep(LOOK_EVERY);
        }
        true
    }

    /// What has gone wrong with servers.
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles = self.troubles.borrow().clone();
        for node in self.nodes() {
            if let Some(why) = self.servers.get(node).and_then(|server| server.replica().failure()) {
                troubles.push(format!("node {node} has failed: {why}"));
            }
        }
        troubles
    }

    /// Opens the replicas again that have fetched a newer state.
    pub fn reopen_where_needed(self: &Rc<Cluster>) {
        for node in self.nodes() {
            let Some(server) = self.servers.get(node) else { continue };
            if server.replica().needs_reopening() {
                drop(server);
                let server = self.servers.remove(node);
                self.on(node, "reopen", move || {
                    if let Some(server) = server {
                        server.shutdown();
                    }
                });
                self.start(node, false);
            }
        }
    }

    /// Index and digest of each replica that runs.
    pub fn digests(&self) -> Vec<(Machine, u64, u128)> {
        self.nodes()
            .into_iter()
            .filter_map(|node| {
                let (index, digest) = self.servers.get(node)?.digest().ok()?;
                Some((node, index, digest))
            })
            .collect()
    }
}

/// The state of the tiers, by the leader.
pub fn leading_tiers(cluster: &Rc<Cluster>) -> Option<TierState> {
    let leader = cluster.leader()?;
    let server = cluster.servers.get(leader)?;
    cluster.on(leader, "tiers", move || server.tier_state().ok()).flatten()
}

/// Copies the files of a store in their present state: tables never change, and are linked. RocksDB's own
/// threads may work meanwhile. The copy is interrupted if they have changed which tables there are.
fn copy_store(from: &Path, to: &Path) -> std::io::Result<()> {
    let tables = known_tables(from)?;
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if text.ends_with(".sst") || text.ends_with(".blob") {
            std::fs::hard_link(entry.path(), to.join(&name))?;
        } else if text != "LOCK" && !text.starts_with("LOG") && entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(&name))?;
        }
    }
    match known_tables(from)? == tables {
        true => Ok(()),
        false => Err(std::io::ErrorKind::Interrupted.into()),
    }
}

/// The manifests of a store, which only grow, with their lengths.
fn known_tables(store: &Path) -> std::io::Result<BTreeMap<std::ffi::OsString, u64>> {
    let mut lists = BTreeMap::new();
    for entry in std::fs::read_dir(store)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("MANIFEST") {
            lists.insert(entry.file_name(), entry.metadata()?.len());
        }
    }
    Ok(lists)
}

/// Longest time that a kernel takes to invalidate.
const FORGETS_MAX: Duration = Duration::from_millis(20);
/// Longest time until a kernel asks again before it writes.
const HOLDS_MAX: Duration = Duration::from_millis(100);
/// One in this many of these calls takes time at all.
const TAKES_TIME_EVERY: u64 = 4;

/// A kernel without caches.
struct NoCaches;

impl NoCaches {
    fn take_time(longest: Duration) {
        if number().is_multiple_of(TAKES_TIME_EVERY) {
            sleep(Duration::from_micros(number() % longest.as_micros() as u64));
        }
    }
}

impl KernelCache for NoCaches {
    fn invalidate(&self, _: &[Stale]) {
        NoCaches::take_time(FORGETS_MAX);
    }

    fn invalidate_all(&self, _: &[InodeId]) {
        NoCaches::take_time(FORGETS_MAX);
    }

    fn hold_writes(&self, _: &[InodeId]) {
        NoCaches::take_time(HOLDS_MAX);
    }
}
