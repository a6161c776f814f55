//! Starting a replica's threads.

use super::Replica;
use crate::applied::{applied_index, members};
use crate::applier;
use crate::core::{Core, DriverStats, FlushTasks, Progress};
use crate::disk::{Disk, OpenError};
use crate::driver::Driver;
use crate::flush;
use crate::lead::Lead;
use crate::machine::{Machine, Peers};
use crate::proposals::Proposals;
use crate::snapshot::Checkpoints;
use crate::storage::LogStorage;
use shoal_runtime::channel::unbounded;
use shoal_runtime::histogram::Histogram;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_types::{GroupId, ReplicaId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

impl<M: Machine> Replica<M> {
    /// Starts a replica's threads. Answers also the end of the log, up to which it will be replayed.
    pub(crate) fn start(
        dir: &Path,
        disk: Disk,
        (group, id): (GroupId, ReplicaId),
        peers: Option<Arc<dyn Peers>>,
        machine: Arc<M>,
    ) -> Result<(Replica<M>, u64), OpenError> {
        let Disk { log, store, sizes, fresh } = disk;
        let applied = applied_index(&store)?;
        let last = log.last_index();
        let storage = LogStorage::new(log, applied, members(&store)?).map_err(OpenError::Mismatch)?;
        let founders = storage.members();
        let (inputs, taken) = unbounded();
        let (apply, groups) = unbounded();
        let core = Arc::new(Core {
            machine,
            dir: dir.to_owned(),
            group,
            id,
            lead: if peers.is_none() { Lead::alone() } else { Lead::new() },
            peers,
            store: Arc::new(store),
            sizes,
            proposals: Proposals::new(),
            flush_tasks: FlushTasks::default(),
            driver: DriverStats::default(),
            apply: Histogram::default(),
            removed: AtomicU64::new(0),
            messages_waiting: AtomicUsize::new(0),
            applying_bytes: AtomicUsize::new(0),
            checkpoints: Checkpoints::new(dir),
            founders,
            fetching: AtomicBool::new(false),
            installed: AtomicBool::new(false),
            inputs: inputs.clone(),
            state: Mutex::new(Progress { applied, ..Progress::default() }),
            moved: Condvar::new(),
        });
        let driver = Driver::new(core.clone(), storage, applied, taken, apply, fresh);
        let driver = driver.map_err(OpenError::Mismatch)?;
        let mut threads = Vec::new();
        let shared = core.clone();
        threads.push(spawn("shoal-raft", move || {
            watch(&shared, || driver.run());
        }));
        let shared = core.clone();
        threads.push(spawn("shoal-apply", move || {
            watch(&shared, || applier::run(&shared, &groups, &inputs));
        }));
        let shared = core.clone();
        threads.push(spawn("shoal-flush", move || {
            watch(&shared, || {
                flush::run(&shared);
                Ok(())
            });
        }));
        Ok((Replica { core, threads: Mutex::new(threads) }, last))
    }
}

/// Runs a thread of a replica. If it fails, so does the replica; Raft panics when it meets a state that
/// cannot occur.
fn watch<M: Machine>(core: &Core<M>, run: impl FnOnce() -> Result<(), String>) {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => core.fail(&why),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            core.fail(
                words
                    .or(panic.downcast_ref::<&str>().copied())
                    .unwrap_or("it met a state that there cannot be"),
            );
        }
    }
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(run).expect("the system has room for a thread")
}
