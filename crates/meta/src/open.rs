//! Opening a server: a new volume is formatted, an old one recovered.

use crate::background;
use crate::background::{heal, tier};
use crate::disk::{Disk, OpenError};
use crate::leadership;
use crate::limits::*;
use crate::machine::Peers;
use crate::options::Options;
use crate::replica::{Replica, ReplicaOptions, spawn};
use crate::rights;
use crate::serve::Server;
use crate::sessions::Sessions;
use crate::shared::{Namespace, Shared};
use crate::space::Room;
use crate::tasks::Tiering;
use shoal_namespace::query;
use shoal_runtime::log_limit::LogLimit;
use shoal_types::{GroupId, ReplicaId};
use shoal_wire::VolumeBlocks;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Server {
    /// Opens the server of a volume that has no other replicas, and replays what the store lacks. The caller
    /// makes sure that no other process has the directory open.
    pub fn open(
        dir: &Path,
        bricks: Arc<dyn VolumeBlocks>,
        options: Options,
    ) -> Result<Arc<Server>, OpenError> {
        let founders = options.create.map(|_| vec![ALONE.0]);
        let disk = Disk::open(dir, founders, options.log_bytes, options.reserve_bytes)?;
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
        let shared = server.shared.clone();
        let tier = spawn("shoal-tier", move || tier::run(&shared));
        server.threads.lock().extend([lead, heal, tier]);
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
            tiering: Tiering::default(),
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
        let mut threads = vec![spawn("shoal-lease-time", move || rights::watch(&shared))];
        for n in 0..LEASE_THREADS {
            let work = server.shared.leases.work.clone();
            threads.push(spawn(&format!("shoal-lease-{n}"), move || work.iter().for_each(|job| job())));
        }
        server.threads.lock().extend(threads);
        server
    }

    /// Starts to serve once the log is replayed up to `replay_to`.
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
        let worker = shared.clone();
        let tier = spawn("shoal-tier", move || tier::run(&worker));
        self.threads.lock().extend([background, heal, tier]);
        Ok(())
    }
}

/// The id of the replica of a volume that is not replicated.
const ALONE: ReplicaId = ReplicaId(1);
