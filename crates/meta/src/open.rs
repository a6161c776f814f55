//! Opening a server: a new volume is formatted, an old one recovered.

use crate::applier::{self, applied_index};
use crate::background::heal::{self, Heal};
use crate::background::{self, Background, Work};
use crate::driver::{Driver, DriverStats};
use crate::limits::*;
use crate::proposals::Proposals;
use crate::room::{self, Room};
use crate::serve::Server;
use crate::sessions::Sessions;
use crate::shared::{Progress, Shared};
use crate::sizes::Sizes;
use crate::storage::{LogStorage, first_state};
use crate::upkeep::{self, Upkeep};
use crossbeam_channel::{bounded, unbounded};
use shoal_namespace::kv::StoreError;
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Command, Outcome, TreeError, query};
use shoal_store::{LogError, RaftLog, RocksStore};
use shoal_types::Timestamp;
use shoal_wire::{MetaError, VolumeBlocks};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How a server is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Makes a volume of this identity if there is none. Without it, a directory without a volume is an error.
    pub create: Option<u128>,
    /// Room to keep free on each disk, in bytes; by default a part of the disk, see
    /// [`limits::RESERVE_PART`](crate::limits::RESERVE_PART).
    pub reserve_bytes: Option<u64>,
    /// The log behind the last flush of the store may grow to this, in bytes; by default it depends on the disk.
    pub log_bytes: Option<u64>,
    /// A session that has not been heard of for this long may be ended for another's sake; by default
    /// [`limits::SESSION_DEAD_AFTER`](crate::limits::SESSION_DEAD_AFTER).
    pub session_dead_after: Option<Duration>,
    /// A file of many small extents is left alone for this long before it is compacted; by default
    /// [`limits::COMPACT_AFTER`](crate::limits::COMPACT_AFTER).
    pub compact_after: Option<Duration>,
    /// Copies of each block that a new volume wants; 0 for one whose blocks are on its one brick.
    pub replica: u8,
}

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing there, and nothing was to be made.
    #[error("there is no volume in {0}")]
    Missing(String),
    /// A directory could not be made or looked at.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: String,
        /// The system's words.
        error: std::io::Error,
    },
    /// The log is damaged, or its disk failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store is damaged, or its disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store holds what no Shoal has written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The log and the store do not go together.
    #[error("{0}")]
    Mismatch(String),
    /// The server did not come up.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// The two halves of a replica on disk.
pub(crate) struct Disk {
    pub(crate) log: RaftLog,
    pub(crate) store: RocksStore,
    pub(crate) sizes: Sizes,
}

/// Opens log and store, or makes them.
pub(crate) fn disk(dir: &Path, options: Options) -> Result<Disk, OpenError> {
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |error| OpenError::Io { path, error }
    };
    let (log_dir, store_dir) = (dir.join("log"), dir.join("store"));
    let exists = RaftLog::exists(&log_dir)?;
    if !exists && options.create.is_none() {
        return Err(OpenError::Missing(dir.display().to_string()));
    }
    for made in [&log_dir, &store_dir] {
        std::fs::create_dir_all(made).map_err(io(made))?;
    }
    // The names of the two, and of the directory itself, must not be lost under what is durable inside them.
    for changed in [Some(dir), dir.parent()].into_iter().flatten() {
        let changed = if changed.as_os_str().is_empty() { Path::new(".") } else { changed };
        std::fs::File::open(changed).and_then(|dir| dir.sync_all()).map_err(io(changed))?;
    }
    let mut sizes = Sizes::for_disk(room::disk(dir)?.0);
    sizes.log_bytes = options.log_bytes.unwrap_or(sizes.log_bytes);
    sizes.reserve_bytes = options.reserve_bytes.unwrap_or(sizes.reserve_bytes);
    // A log without a store is recovered by replaying it, which needs all of it to be there; that is checked where both are known.
    let store = RocksStore::open(&store_dir, &sizes.store_options())?;
    let options = sizes.log_options();
    let log = match exists {
        true => RaftLog::open(&log_dir, options)?,
        false => RaftLog::create(&log_dir, options, 0, 0, &first_state(vec![1]))?,
    };
    Ok(Disk { log, store, sizes })
}

impl Server {
    /// Opens the server of the volume in a directory, and replays what the store has not seen. The caller makes sure
    /// that no other process does the same.
    pub fn open(
        dir: &Path,
        bricks: Arc<dyn VolumeBlocks>,
        options: Options,
    ) -> Result<Arc<Server>, OpenError> {
        let Disk { log, store, sizes } = disk(dir, options)?;
        let applied = applied_index(&store)?;
        let replay_to = log.last_index() + 1;
        let storage = LogStorage::new(log, applied).map_err(OpenError::Mismatch)?;
        let (inputs, taken) = unbounded();
        let (apply, groups) = bounded(APPLY_GROUPS_MAX);
        let stats = Arc::new(DriverStats::default());
        let room = Room::new(dir, bricks.clone(), sizes.reserve_bytes);
        let sessions = Sessions::new(options.session_dead_after.unwrap_or(SESSION_DEAD_AFTER));
        let shared = Arc::new(Shared {
            store,
            bricks,
            room,
            sizes,
            sessions,
            proposals: Proposals::new(),
            background: Background::default(),
            heal: Heal::default(),
            upkeep: Upkeep::default(),
            driver: stats.clone(),
            apply_micros: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            inputs: inputs.clone(),
            progress: Progress::at(applied),
        });
        let flush = {
            let shared = shared.clone();
            Box::new(move || shared.upkeep.ask_flush())
        };
        let driver = Driver::new(storage, applied, sizes.log_bytes, taken, apply, flush, stats)
            .map_err(OpenError::Mismatch)?;
        let mut threads = Vec::new();
        {
            let shared = shared.clone();
            threads.push(spawn("shoal-raft", move || {
                if let Err(why) = driver.run() {
                    shared.fail(&why);
                }
            }));
        }
        {
            let shared = shared.clone();
            threads.push(spawn("shoal-apply", move || {
                if let Err(why) = applier::run(&shared, &groups, &inputs) {
                    shared.fail(&why);
                }
            }));
        }
        {
            let shared = shared.clone();
            threads.push(spawn("shoal-upkeep", move || upkeep::run(&shared)));
        }
        let server = Arc::new(Server { shared, threads: parking_lot::Mutex::new(threads) });
        server.begin(options, replay_to)?;
        Ok(server)
    }

    /// From a replayed store to a serving one.
    fn begin(&self, options: Options, replay_to: u64) -> Result<(), OpenError> {
        let shared = &self.shared;
        // The entry that the new term begins with comes after everything that was in the log.
        shared.wait_applied(replay_to, REPLAY_MAX)?;
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
            let format = Command::Format {
                volume,
                uid: 0,
                gid: 0,
                perm: 0o755,
                time: Timestamp::now(),
                options: VolumeOptions { replica: options.replica, ..VolumeOptions::default() },
            };
            match shared.propose(&format)? {
                Outcome::Done => {}
                other => return Err(OpenError::Mismatch(format!("the volume was not made: {other:?}"))),
            }
        }
        // Sessions of an earlier process: their client died with it. Also those whose end was cut off.
        for (session, _) in query::sessions(&shared.store)? {
            shared.end_session(session)?;
        }
        let worker = shared.clone();
        let compact_after = options.compact_after.unwrap_or(COMPACT_AFTER);
        // What was left when the last process ended.
        shared.background.add(Work { reap: true, collect: true, sweep_all: true, ..Work::default() });
        let background = spawn("shoal-background", move || background::run(&worker, compact_after));
        let worker = shared.clone();
        let heal = spawn("shoal-heal", move || heal::run(&worker));
        shared.heal.lead(true);
        self.threads.lock().extend([background, heal]);
        Ok(())
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(run).expect("the system has room for a thread")
}
