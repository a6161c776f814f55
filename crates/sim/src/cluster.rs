//! The machines of a world: replicas of one volume's metadata group, and clients.

use crate::brick::SimBrick;
use crate::disk::Disks;
use crate::network::{Network, OneThread};
use crate::remote::{Group, Others, Servers};
use crate::scheduler::{Machine, Scheduler};
use shoal_client::Client;
use shoal_meta::{Options, ReplicaOptions, Server};
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_types::{GroupId, ReplicaId};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Machines with replicas: `1..=NODES`.
pub const NODES: Machine = 3;
/// The first machine with a client.
pub const FIRST_CLIENT: Machine = 11;
/// The world's volume.
const VOLUME: u128 = 0x51;
/// How often it is looked whether something has come about.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// See the module.
pub struct Cluster {
    /// Its scheduler.
    pub world: Rc<Scheduler>,
    /// Its network.
    pub network: Rc<Network>,
    /// The servers that run.
    pub servers: Servers,
    /// The one brick.
    pub brick: Arc<SimBrick>,
    disks: Disks,
    dir: PathBuf,
    /// Bytes of log behind the last flush of a store.
    log_bytes: u64,
    troubles: RefCell<Vec<String>>,
}

/// All machines with replicas.
pub fn nodes() -> Vec<Machine> {
    (1..=NODES).collect()
}

impl Cluster {
    /// A cluster that has not begun, with its files below a directory.
    pub fn new(world: &Rc<Scheduler>, disks: &Disks, dir: &Path, log_bytes: u64) -> Rc<Cluster> {
        Rc::new(Cluster {
            world: world.clone(),
            network: Network::new(world),
            servers: Servers::default(),
            brick: Arc::new(SimBrick::new(world)),
            disks: disks.clone(),
            dir: dir.to_owned(),
            log_bytes,
            troubles: RefCell::default(),
        })
    }

    fn home(&self, node: Machine) -> PathBuf {
        self.dir.join(format!("node-{node}"))
    }

    /// Does something on a machine, and waits for it; `None` if the machine dies meanwhile.
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

    /// Waits for a task's end.
    pub fn wait_for_task(&self, task: u64) {
        use shoal_runtime::simulator::{Event, Simulator};
        while !self.world.is_finished(task) {
            self.world.wait(Some(Event::End(task)), None);
        }
    }

    /// Starts the server of a machine. `first`: the group begins.
    pub fn start(self: &Rc<Cluster>, node: Machine, first: bool) {
        let home = self.home(node);
        std::fs::create_dir_all(&home).expect("the directory of a world can be written to");
        self.network.returned(node);
        let cluster = self.clone();
        self.on(node, "start", move || {
            let founders = first.then(|| nodes().iter().map(|node| ReplicaId(u64::from(*node))).collect());
            let replica = ReplicaOptions {
                group: GroupId(VOLUME),
                id: ReplicaId(u64::from(node)),
                founders,
                log_bytes: Some(cluster.log_bytes),
            };
            let options =
                Options { create: Some(VOLUME), log_bytes: Some(cluster.log_bytes), ..Options::default() };
            let peers = Arc::new(Others::seen_from(node, &nodes(), &cluster.network, &cluster.servers));
            match Server::open_replica(&home, cluster.brick.clone(), options, replica, peers) {
                Ok(server) => cluster.servers.put(node, server),
                Err(error) => {
                    cluster.troubles.borrow_mut().push(format!("node {node} does not start: {error}"))
                }
            }
        });
    }

    /// A node dies: its tasks are gone, and what was not flushed may be.
    pub fn crash(&self, node: Machine) {
        self.world.kill(node);
        self.network.died(node);
        let home = self.home(node);
        // RocksDB brings what it has in memory to disk when it is closed: so its files are put aside before.
        let aside = home.join("aside");
        while let Err(error) = copy_store(&home.join("store"), &aside) {
            // A table that was merged into others has just been removed.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "the files of a store can be copied");
        }
        let server = self.servers.remove(node);
        self.world.as_dying(|| drop(server));
        std::fs::remove_dir_all(home.join("store")).expect("a store can be removed");
        std::fs::rename(&aside, home.join("store")).expect("a store can be put in place");
        self.disks.crash(&home, &self.world);
    }

    /// A client's machine dies.
    pub fn crash_client(&self, machine: Machine, client: Arc<Client>) {
        self.world.kill(machine);
        self.network.died(machine);
        self.world.as_dying(|| drop(client));
        self.network.returned(machine);
    }

    /// Mounts the volume on a machine.
    pub fn mount(&self, machine: Machine) -> Result<Arc<Client>, String> {
        let group = Group::seen_from(machine, &nodes(), &self.network, &self.servers);
        let group = Arc::new(group);
        let brick = self.brick.clone();
        let options = shoal_client::Options {
            name: format!("client {machine}"),
            cache_bytes: 4 << 20,
            ..shoal_client::Options::default()
        };
        let mounted = self.on(machine, "mount", move || {
            Client::open_replicated(group, brick, options).map_err(|error| error.to_string())
        });
        mounted.unwrap_or_else(|| Err("the machine has died".into()))
    }

    /// The node that leads, if any does.
    pub fn leader(&self) -> Option<Machine> {
        nodes().into_iter().find(|node| {
            let server = self.servers.get(*node);
            server.is_some_and(|server| {
                let leads = OneThread(server);
                self.on(*node, "leads?", move || leads.take().replica().leads()).unwrap_or(false)
            })
        })
    }

    /// Waits until something is so.
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
        for node in nodes() {
            if let Some(why) = self.servers.get(node).and_then(|server| server.replica().failure()) {
                troubles.push(format!("node {node} has failed: {why}"));
            }
        }
        troubles
    }

    /// Opens those again that have fetched a newer state.
    pub fn reopen_where_needed(self: &Rc<Cluster>) {
        for node in nodes() {
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
        nodes()
            .into_iter()
            .filter_map(|node| {
                let (index, digest) = self.servers.get(node)?.digest().ok()?;
                Some((node, index, digest))
            })
            .collect()
    }
}

/// Copies the files of a store as they are: tables never change, and are shared.
fn copy_store(from: &Path, to: &Path) -> std::io::Result<()> {
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
    Ok(())
}
