//! Opening a server: a new volume is formatted, an old one recovered.

use crate::background;
use crate::background::heal;
use crate::leadership;
use crate::leases;
use crate::limits::*;
use crate::machine::Peers;
use crate::replica::{Replica, ReplicaOptions, spawn};
use crate::serve::Server;
use crate::sessions::Sessions;
use crate::shared::{Namespace, Shared};
use crate::sizes::Sizes;
use crate::space::{self, Room};
use crate::storage::first_state;
use shoal_namespace::kv::StoreError;
use shoal_namespace::{TreeError, query};
use shoal_runtime::log_limit::LogLimit;
use shoal_store::{LogError, RaftLog, RocksStore};
use shoal_types::{GroupId, ReplicaId};
use shoal_wire::{MetaError, VolumeBlocks};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How a server is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Creates a volume of this identity if there is none. Without it, a directory without a volume is an
    /// error.
    pub create: Option<u128>,
    /// Copies of every block that such a volume is to have; 0: it has one brick and no cluster around it.
    pub replica: u8,
    /// Space to keep free on each disk, in bytes; by default a part of the disk, see
    /// [`limits::RESERVE_PART`](crate::limits::RESERVE_PART).
    pub reserve_bytes: Option<u64>,
    /// The log after the last flush of the store may grow to this, in bytes; by default it depends on the
    /// disk.
    pub log_bytes: Option<u64>,
    /// A session that has been silent for this long may be fenced if it blocks another; by default
    /// [`limits::SESSION_DEAD_AFTER`](crate::limits::SESSION_DEAD_AFTER).
    pub session_dead_after: Option<Duration>,
    /// A file of many small extents is left alone for this long before it is compacted; by default
    /// [`limits::COMPACT_AFTER`](crate::limits::COMPACT_AFTER).
    pub compact_after: Option<Duration>,
    /// Interval at which all bricks are searched for unknown copies; by default
    /// [`limits::SWEEP_EVERY`](crate::limits::SWEEP_EVERY).
    pub sweep_every: Option<Duration>,
}

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no volume, and none was to be created.
    #[error("there is no volume in {0}")]
    Missing(String),
    /// A directory could not be created or read.
    #[error("{path}: {error}")]
    Io {
        /// The directory.
        path: String,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The log is damaged, or its disk failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store is damaged, or its disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store is corrupt: it holds what no version of Shoal writes.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The log and the store do not belong together.
    #[error("{0}")]
    Mismatch(String),
    /// The server did not start.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// The two halves of a replica on disk.
pub(crate) struct Disk {
    pub(crate) log: RaftLog,
    pub(crate) store: RocksStore,
    pub(crate) sizes: Sizes,
    /// The directory was empty before.
    pub(crate) fresh: bool,
}

/// Opens log and store, or creates them for a group that begins with these founders.
pub(crate) fn disk(
    dir: &Path,
    founders: Option<Vec<u64>>,
    log_bytes: Option<u64>,
    reserve_bytes: Option<u64>,
) -> Result<Disk, OpenError> {
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |error| OpenError::Io { path, error }
    };
    let (log_dir, store_dir) = (dir.join("log"), dir.join("store"));
    let exists = RaftLog::exists(&log_dir)?;
    if !exists && founders.is_none() {
        return Err(OpenError::Missing(dir.display().to_string()));
    }
    for made in [&log_dir, &store_dir] {
        std::fs::create_dir_all(made).map_err(io(made))?;
    }
    // The directory entries of both, and of the directory itself, must be as durable as their content.
    for changed in [Some(dir), dir.parent()].into_iter().flatten() {
        let changed = if changed.as_os_str().is_empty() { Path::new(".") } else { changed };
        std::fs::File::open(changed).and_then(|dir| dir.sync_all()).map_err(io(changed))?;
    }
    let mut sizes = Sizes::for_disk(space::disk(dir)?.0);
    sizes.log_bytes = log_bytes.unwrap_or(sizes.log_bytes);
    sizes.reserve_bytes = reserve_bytes.unwrap_or(sizes.reserve_bytes);
    // A log without a store is recovered by a full replay, which needs the log from its beginning. That is
    // checked where both are known.
    let store = RocksStore::open(&store_dir, &sizes.store_options())?;
    let options = sizes.log_options();
    let log = match exists {
        true => RaftLog::open(&log_dir, options)?,
        false => RaftLog::create(&log_dir, options, 0, 0, &first_state(founders.unwrap_or_default()))?,
    };
    Ok(Disk { log, store, sizes, fresh: !exists })
}

impl Server {
    /// Opens the server of a volume that has no other replicas, and replays what the store lacks. The caller
    /// makes sure that no other process has the directory open.
    pub fn open(
        dir: &Path,
        bricks: Arc<dyn VolumeBlocks>,
        options: Options,
    ) -> Result<Arc<Server>, OpenError> {
        let founders = options.create.map(|_| vec![ALONE.0]);
        let disk = disk(dir, founders, options.log_bytes, options.reserve_bytes)?;
        let machine = Namespace::new();
        let (replica, last) = Replica::start(dir, disk, (GroupId::CLUSTER, ALONE), None, machine.clone())?;
        let server = Server::around(dir, replica, machine, bricks, &options);
        // The first entry of the new term comes after everything that was in the log.
        server.begin_alone(&options, last + 1)?;
        Ok(server)
    }

    /// Opens one of several replicas of a volume's server; see [`ReplicaOptions`]. The first leader of a
    /// group without a volume creates the one that the options name.
    pub fn open_replica(
        dir: &Path,
        bricks: Arc<dyn VolumeBlocks>,
        options: Options,
        replica: ReplicaOptions,
        peers: Arc<dyn Peers>,
    ) -> Result<Arc<Server>, OpenError> {
        let machine = Namespace::new();
        let replica = ReplicaOptions { log_bytes: replica.log_bytes.or(options.log_bytes), ..replica };
        let replica = Replica::open(dir, replica, peers, machine.clone())?;
        let server = Server::around(dir, replica, machine, bricks, &options);
        let shared = server.shared.clone();
        let lead = spawn("shoal-background", move || leadership::run(&shared, &options));
        let shared = server.shared.clone();
        let heal = spawn("shoal-heal", move || heal::run(&shared));
        server.threads.lock().extend([lead, heal]);
        Ok(server)
    }

    fn around(
        dir: &Path,
        replica: Replica<Namespace>,
        machine: Arc<Namespace>,
        bricks: Arc<dyn VolumeBlocks>,
        options: &Options,
    ) -> Arc<Server> {
        let reserve = replica.core.sizes.reserve_bytes;
        let shared = Arc::new(Shared {
            store: replica.core.store.clone(),
            background: machine.background.clone(),
            heal: machine.heal.clone(),
            leases: machine.leases.clone(),
            room: Room::new(dir, bricks.clone(), reserve, options.reserve_bytes),
            bricks,
            sessions: Sessions::new(options.session_dead_after.unwrap_or(SESSION_DEAD_AFTER)),
            adopted: AtomicU64::new(if replica.core.peers.is_none() { 0 } else { u64::MAX }),
            slow_log: LogLimit::new(SLOW_LOGGED_MAX, SLOW_LOGGED_PERIOD),
            ended: shoal_runtime::sync::Mutex::default(),
            replica,
        });
        let server =
            Arc::new(Server { shared: shared.clone(), threads: shoal_runtime::sync::Mutex::default() });
        let mut threads = vec![spawn("shoal-lease-time", move || leases::watch(&shared))];
        for n in 0..LEASE_THREADS {
            let work = server.shared.leases.work.clone();
            threads.push(spawn(&format!("shoal-lease-{n}"), move || work.iter().for_each(|job| job())));
        }
        server.threads.lock().extend(threads);
        server
    }

    /// From a replayed store to a serving one.
    fn begin_alone(&self, options: &Options, replay_to: u64) -> Result<(), OpenError> {
        let shared = &self.shared;
        shared.replica.core.wait_applied(replay_to, REPLAY_MAX)?;
        let found = query::volume(&shared.store)?;
        if let (Some(found), Some(asked)) = (&found, options.create)
            && found.id != asked
        {
            let what = format!("the store holds volume {:032x}, not {asked:032x}", found.id);
            return Err(OpenError::Mismatch(what));
        }
        if found.is_none() {
            let Some(volume) = options.create else {
                return Err(OpenError::Mismatch("the store holds no volume".into()));
            };
            leadership::format(shared, volume, options)?;
        }
        shared.leases.adopt(shared.serving()?, std::iter::empty());
        // Sessions of an earlier process: their client died with it. This includes those whose end was
        // interrupted.
        for (session, _) in query::sessions(&shared.store)? {
            shared.end_session(session)?;
        }
        let (worker, how) = (shared.clone(), *options);
        shared.background.begin();
        let background = spawn("shoal-background", move || background::run(&worker, &how));
        let worker = shared.clone();
        let heal = spawn("shoal-heal", move || heal::run(&worker));
        shared.heal.lead(true);
        self.threads.lock().extend([background, heal]);
        Ok(())
    }
}

/// The only replica of a volume that has no others.
const ALONE: ReplicaId = ReplicaId(1);
