//! The directory of a replica: its log and its store.

use crate::sizes::{Sizes, disk_bytes};
use crate::storage::first_state;
use shoal_namespace::TreeError;
use shoal_namespace::kv::StoreError;
use shoal_runtime::durable;
use shoal_store::{LogError, RaftLog, RocksStore};
use shoal_wire::MetaError;
use std::path::Path;

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

impl Disk {
    /// Opens log and store, or creates them for a group that begins with these founders.
    pub(crate) fn open(
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
        // Their names, and those of the directories above, must be as durable as their content.
        for made in [dir, &log_dir, &store_dir] {
            durable::create_dir_all(made).map_err(io(made))?;
        }
        let mut sizes = Sizes::for_disk(disk_bytes(dir)?.0);
        sizes.log_bytes = log_bytes.unwrap_or(sizes.log_bytes);
        sizes.reserve_bytes = reserve_bytes.unwrap_or(sizes.reserve_bytes);
        // A log without a store is recovered by a full replay, which needs the log from its beginning. That
        // is checked where both are known.
        let store = RocksStore::open(&store_dir, &sizes.store_options())?;
        let options = sizes.log_options();
        let log = match exists {
            true => RaftLog::open(&log_dir, options)?,
            false => RaftLog::create(&log_dir, options, 0, 0, &first_state(founders.unwrap_or_default()))?,
        };
        Ok(Disk { log, store, sizes, fresh: !exists })
    }
}
