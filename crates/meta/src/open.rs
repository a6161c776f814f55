//! Opening a server: a new volume is formatted, an old one recovered.

use crate::applier::{self, applied_index};
use crate::background;
use crate::driver::{Driver, DriverStats, Input};
use crate::limits::*;
use crate::room::{self, Room};
use crate::serve::{Server, Shared};
use crate::storage::{LogStorage, first_state};
use crossbeam_channel::{bounded, unbounded};
use shoal_namespace::kv::{KvStore, StoreError};
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Command, Outcome, TreeError, query};
use shoal_store::{LogError, LogOptions, RaftLog, RocksOptions, RocksStore};
use shoal_types::Timestamp;
use shoal_wire::{BlockService, MetaError};
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// How a server is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Makes a volume of this identity if there is none. Without it, a directory without a volume is an error.
    pub create: Option<u128>,
    /// Room to keep free on each disk, in bytes; by default a part of the disk, see
    /// [`limits::RESERVE_PART`](crate::limits::RESERVE_PART).
    pub reserve_bytes: Option<u64>,
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
    pub(crate) log_bytes_max: u64,
}

/// Opens log and store, or makes them.
pub(crate) fn disk(dir: &Path, create: bool) -> Result<Disk, OpenError> {
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |error| OpenError::Io { path, error }
    };
    let (log_dir, store_dir) = (dir.join("log"), dir.join("store"));
    let exists = RaftLog::exists(&log_dir)?;
    if !exists && !create {
        return Err(OpenError::Missing(dir.display().to_string()));
    }
    std::fs::create_dir_all(&log_dir).map_err(io(&log_dir))?;
    std::fs::create_dir_all(&store_dir).map_err(io(&store_dir))?;
    let (total, _) = room::disk(dir)?;
    let log_bytes_max = (total / LOG_DISK_PART).min(LOG_BYTES_MAX);
    let segment_bytes = (log_bytes_max / LOG_SEGMENTS).max(shoal_store::limits::SEGMENT_BYTES_MIN);
    let options = LogOptions { segment_bytes, ..LogOptions::default() };
    // The store first: a log without a store is recovered by replaying it, which needs all of it to be there.
    let store = RocksStore::open(&store_dir, &RocksOptions { create: true, ..RocksOptions::default() })?;
    let log = match exists {
        true => RaftLog::open(&log_dir, options)?,
        false => RaftLog::create(&log_dir, options, 0, 0, &first_state(vec![1]))?,
    };
    Ok(Disk { log, store, log_bytes_max })
}

impl Server {
    /// Opens the server of the volume in a directory, and replays what the store has not seen. The caller makes sure
    /// that no other process does the same.
    pub fn open(
        dir: &Path,
        bricks: Arc<dyn BlockService>,
        options: Options,
    ) -> Result<Arc<Server>, OpenError> {
        let Disk { log, store, log_bytes_max } = disk(dir, options.create.is_some())?;
        let applied = applied_index(&store)?;
        let replay_to = log.last_index() + 1;
        let storage = LogStorage::new(log, applied).map_err(OpenError::Mismatch)?;
        let (inputs, taken) = unbounded();
        let (apply, groups) = bounded(APPLY_GROUPS_MAX);
        let (flush, flushes) = bounded(1);
        let stats = Arc::new(DriverStats::default());
        let driver = Driver::new(storage, applied, log_bytes_max, taken, apply, flush, stats.clone())
            .map_err(OpenError::Mismatch)?;
        let room = Room::new(dir, options.reserve_bytes);
        let shared = Arc::new(Shared::new(store, bricks, room, inputs.clone(), applied));
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
            let (shared, inputs) = (shared.clone(), inputs.clone());
            threads.push(spawn("shoal-apply", move || {
                if let Err(why) = applier::run(&shared, &groups, &inputs) {
                    shared.fail(&why);
                }
            }));
        }
        {
            let shared = shared.clone();
            threads.push(spawn("shoal-flush", move || {
                for () in flushes {
                    // Everything up to here is in the store already, so the flush covers it.
                    let index = shared.applied();
                    match shared.store.flush() {
                        Ok(()) => drop(inputs.send(Input::Durable(index))),
                        Err(error) => return shared.fail(&error.to_string()),
                    }
                }
            }));
        }
        let server = Arc::new(Server { shared, stats, threads: parking_lot::Mutex::new(threads) });
        server.begin(options, replay_to)?;
        Ok(server)
    }

    /// From a replayed store to a serving one.
    fn begin(&self, options: Options, replay_to: u64) -> Result<(), OpenError> {
        let shared = &self.shared;
        // The entry that the new term begins with comes after everything that was in the log.
        shared.wait_applied(replay_to, REPLAY_MAX)?;
        if query::volume(&shared.store)?.is_none() {
            let Some(volume) = options.create else {
                return Err(OpenError::Mismatch("the store holds no volume".into()));
            };
            let format = Command::Format {
                volume,
                uid: 0,
                gid: 0,
                perm: 0o755,
                time: Timestamp::now(),
                options: VolumeOptions::default(),
            };
            match shared.propose(&format)? {
                Outcome::Done => {}
                other => return Err(OpenError::Mismatch(format!("the volume was not made: {other:?}"))),
            }
        }
        // Sessions of an earlier process: their client died with it.
        for (session, record) in query::sessions(&shared.store)? {
            if !record.ended {
                shared.end_session(session)?;
            }
        }
        let worker = shared.clone();
        shared.background.collect_blocks_of_ended_sessions();
        self.threads.lock().push(spawn("shoal-background", move || background::run(&worker)));
        Ok(())
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(run).expect("the system has room for a thread")
}
