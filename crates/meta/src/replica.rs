//! A replica of a metadata group: a state machine over a store, kept equal to others by Raft.
//!
//! **Model.** Commands are proposed to the group's leader, decided by a majority, and applied on every replica in the same order.
//! Whoever proposed hears of the outcome from this replica's own state machine, once it is applied here.
//!
//! **Promises.** What was answered survives the death of any minority, at any moment. All replicas that have applied the log up to
//! the same entry hold the same bytes ([`digest`](Replica::digest)). [`leads`](Replica::leads) is true on one replica at a time.
//!
//! **Catching up.** A replica that lacks what is no longer in the leader's log, and one that is new, fetches the whole state from
//! another ([`fetch_state`](crate::fetch_state)) and is then to be opened again: [`needs_reopening`](Replica::needs_reopening).

use crate::applier::{self, applied_index, applied_term, members};
use crate::digest;
use crate::driver::{Driver, DriverStats, Input};
use crate::lead::{Lead, Status};
use crate::limits::*;
use crate::machine::{Machine, Peers};
use crate::open::{Disk, OpenError};
use crate::proposals::{Proposals, Waiter};
use crate::sizes::Sizes;
use crate::snapshot::{self, Checkpoints, Said};
use crate::storage::LogStorage;
use crate::upkeep::{self, Upkeep};
use bytes::Bytes;
use crossbeam_channel::{Sender, bounded, unbounded};
use parking_lot::{Condvar, Mutex};
use raft::prelude::ConfState;
use shoal_namespace::TreeError;
use shoal_namespace::kv::KvStore;
use shoal_store::RocksStore;
use shoal_types::{GroupId, ReplicaId};
use shoal_wire::MetaError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Which replica of which group, and how it begins.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// The group.
    pub group: GroupId,
    /// The replica.
    pub id: ReplicaId,
    /// Where there is nothing yet: the group begins with these members, of which this is one. `None`: the replica must
    /// exist, or have [fetched](crate::fetch_state) its state.
    pub founders: Option<Vec<ReplicaId>>,
    /// The log behind the last flush of the store may grow to this, in bytes; by default it depends on the disk.
    pub log_bytes: Option<u64>,
}

#[derive(Default)]
struct State {
    applied: u64,
    failed: Option<String>,
    stopping: bool,
}

/// What the threads of a replica share.
pub(crate) struct Core<M: Machine> {
    pub(crate) machine: Arc<M>,
    pub(crate) dir: PathBuf,
    pub(crate) group: GroupId,
    pub(crate) id: ReplicaId,
    /// `None`: there are no others and never will be.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    /// Written by the applying thread alone.
    pub(crate) store: Arc<RocksStore>,
    pub(crate) sizes: Sizes,
    pub(crate) proposals: Proposals<M::Outcome>,
    pub(crate) upkeep: Upkeep,
    pub(crate) driver: DriverStats,
    pub(crate) lead: Lead,
    pub(crate) apply_micros: AtomicU64,
    /// Records removed from the store: what could be given back when room is short.
    pub(crate) removed: AtomicU64,
    pub(crate) messages_waiting: AtomicUsize,
    pub(crate) checkpoints: Checkpoints,
    /// Who is in the group, unless the store says otherwise.
    founders: ConfState,
    fetching: AtomicBool,
    installed: AtomicBool,
    inputs: Sender<Input>,
    state: Mutex<State>,
    moved: Condvar,
}

/// See the module. Dropping it stops it as a crash would; [`shutdown`](Self::shutdown) is the orderly way.
pub struct Replica<M: Machine> {
    pub(crate) core: Arc<Core<M>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) fn stopping() -> MetaError {
    MetaError::Unavailable("it is stopping".into())
}

impl<M: Machine> Core<M> {
    /// Index up to which the store is.
    pub(crate) fn applied(&self) -> u64 {
        self.state.lock().applied
    }

    pub(crate) fn set_applied(&self, index: u64) {
        self.state.lock().applied = index;
        self.moved.notify_all();
    }

    /// Something has changed that others may wait for.
    pub(crate) fn progress_moved(&self) {
        // Whoever looks holds the lock from looking until waiting.
        drop(self.state.lock());
        self.moved.notify_all();
    }

    /// The log or the store cannot be trusted any more: everybody who waits or asks is told so.
    pub(crate) fn fail(&self, why: &str) {
        tracing::error!(group = %self.group, why, "the metadata server stops");
        self.state.lock().failed.get_or_insert(why.to_owned());
        self.moved.notify_all();
        self.proposals.give_up(&MetaError::Failed(why.to_owned()));
    }

    /// Refuses what a replica cannot do that has failed or is stopping.
    pub(crate) fn running(&self) -> Result<(), MetaError> {
        let state = self.state.lock();
        match &state.failed {
            Some(why) => Err(MetaError::Failed(why.clone())),
            None if state.stopping => Err(stopping()),
            None => Ok(()),
        }
    }

    /// What is said to those who ask a replica that does not lead.
    pub(crate) fn not_leader(&self) -> MetaError {
        let leader = self.lead.status().leader.filter(|leader| *leader != self.id);
        let peers = self.peers.as_ref();
        MetaError::NotLeader {
            leader: leader.and_then(|leader| peers.and_then(|peers| peers.node_of(leader))),
        }
    }

    /// Waits a moment, if need be, until something is so of a replica that may lead, and answers it.
    pub(crate) fn wait_for<T>(
        &self,
        longest: Duration,
        mut is_so: impl FnMut(u64) -> Option<T>,
    ) -> Result<T, MetaError> {
        let due = Instant::now() + longest;
        let mut state = self.state.lock();
        loop {
            if let Some(why) = &state.failed {
                return Err(MetaError::Failed(why.clone()));
            }
            if state.stopping {
                return Err(stopping());
            }
            if let Some(found) = is_so(state.applied) {
                return Ok(found);
            }
            if self.moved.wait_until(&mut state, due).timed_out() {
                drop(state);
                return Err(self.not_leader());
            }
        }
    }

    /// The term in which this replica leads, right now. A leader that has just come to lead, or waits for its followers, is
    /// waited for; others refuse at once.
    pub(crate) fn leading(&self) -> Result<u64, MetaError> {
        self.running()?;
        if let Some(term) = self.lead.holds(self.applied()) {
            return Ok(term);
        }
        if self.lead.status().role != crate::lead::Role::Leader {
            return Err(self.not_leader());
        }
        self.wait_for(LEASE_PATIENCE, |applied| self.lead.holds(applied))
    }

    /// Waits until the store is as far as `index`.
    pub(crate) fn wait_applied(&self, index: u64, longest: Duration) -> Result<(), MetaError> {
        self.wait_for(longest, |applied| (applied >= index).then_some(())).map_err(|error| match error {
            MetaError::NotLeader { .. } => {
                MetaError::Unavailable(format!("replaying the log took longer than {longest:?}"))
            }
            other => other,
        })
    }

    /// Nobody decides about this proposal here.
    pub(crate) fn drop_proposal(&self, id: u64) {
        if let Some(waiter) = self.proposals.take(id) {
            waiter(Err(self.not_leader()));
        }
    }

    /// The lead is lost: what was proposed may be decided or not, and whoever waits must ask the next leader.
    pub(crate) fn deposed(&self) {
        self.machine.deposed();
        self.proposals.give_up(&self.not_leader());
    }

    /// Proposes a command; the waiter hears of its outcome on another thread.
    pub(crate) fn propose_then(&self, data: Vec<u8>, waiter: Waiter<M::Outcome>) {
        if let Err(error) = self.running() {
            return waiter(Err(error));
        }
        let (id, context) = self.proposals.begin(data.len(), waiter);
        let sent = self.inputs.send(Input::Propose { id, context, data });
        if sent.is_err() || self.running().is_err() {
            // Whoever gave up meanwhile may have missed this one.
            let error = self.running().err().unwrap_or_else(stopping);
            if let Some(waiter) = self.proposals.take(id) {
                waiter(Err(error));
            }
        }
    }

    /// Proposes a command and waits for its outcome.
    pub(crate) fn propose(&self, data: Vec<u8>) -> Result<M::Outcome, MetaError> {
        let (done, outcome) = crossbeam_channel::bounded(1);
        self.propose_then(
            data,
            Box::new(move |result| {
                // Whoever asked is still waiting below.
                let _ = done.send(result);
            }),
        );
        outcome.recv().unwrap_or_else(|_| Err(stopping()))
    }

    /// The store is durable up to here: the log before it may go.
    pub(crate) fn flushed(&self, index: u64) {
        // A driver that has ended has no use for it.
        let _ = self.inputs.send(Input::Durable(index));
    }

    /// From here on, what is asked is refused.
    pub(crate) fn stop_serving(&self) {
        self.state.lock().stopping = true;
        self.moved.notify_all();
    }

    fn stopped(&self) -> bool {
        self.state.lock().stopping
    }
}

impl<M: Machine> Replica<M> {
    /// Opens the replica in a directory. The caller makes sure that no other process does the same.
    pub fn open(
        dir: &Path,
        options: ReplicaOptions,
        peers: Arc<dyn Peers>,
        machine: Arc<M>,
    ) -> Result<Replica<M>, OpenError> {
        snapshot::finish_install(dir, options.log_bytes)?;
        let founders = options.founders.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
        let disk = crate::open::disk(dir, founders, options.log_bytes, None)?;
        Replica::start(dir, disk, (options.group, options.id), Some(peers), machine)
            .map(|(replica, _)| replica)
    }

    /// Starts what was opened. Answers also the end of the log, up to where it will be replayed.
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
        let (apply, groups) = bounded(APPLY_GROUPS_MAX);
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
            upkeep: Upkeep::default(),
            driver: DriverStats::default(),
            apply_micros: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            messages_waiting: AtomicUsize::new(0),
            checkpoints: Checkpoints::new(dir),
            founders,
            fetching: AtomicBool::new(false),
            installed: AtomicBool::new(false),
            inputs: inputs.clone(),
            state: Mutex::new(State { applied, ..State::default() }),
            moved: Condvar::new(),
        });
        let driver = Driver::new(core.clone(), storage, applied, taken, apply, fresh);
        let driver = driver.map_err(OpenError::Mismatch)?;
        let mut threads = Vec::new();
        let shared = core.clone();
        threads.push(spawn("shoal-raft", move || {
            if let Err(why) = driver.run() {
                shared.fail(&why);
            }
        }));
        let shared = core.clone();
        threads.push(spawn("shoal-apply", move || {
            if let Err(why) = applier::run(&shared, &groups, &inputs) {
                shared.fail(&why);
            }
        }));
        let shared = core.clone();
        threads.push(spawn("shoal-upkeep", move || upkeep::run(&shared)));
        Ok((Replica { core, threads: Mutex::new(threads) }, last))
    }

    /// Proposes a command and waits for its outcome. An error of kind `NotLeader` or `Unavailable` leaves open whether it
    /// is going to be carried out.
    pub fn propose(&self, command: Vec<u8>) -> Result<M::Outcome, MetaError> {
        self.core.propose(command)
    }

    /// Takes a message that another replica has [sent](Peers::send).
    pub fn receive(&self, from: ReplicaId, message: &[u8]) {
        match snapshot::understand(message) {
            Said::Raft(message) => {
                let mine = message.to == self.core.id.0 && message.from == from.0;
                let full = self.core.messages_waiting.load(Ordering::Relaxed) >= MESSAGES_WAITING_MAX;
                if mine && !full {
                    self.core.messages_waiting.fetch_add(1, Ordering::Relaxed);
                    // A driver that has ended hears nothing.
                    let _ = self.core.inputs.send(Input::Message(message));
                }
            }
            Said::FetchState => self.fetch(from),
            Said::Nothing => tracing::debug!(%from, "a message was not understood"),
        }
    }

    /// Gets the whole state from another replica, on a thread of its own.
    fn fetch(&self, from: ReplicaId) {
        let Some(peers) = self.core.peers.clone() else { return };
        let core = self.core.clone();
        if core.installed.load(Ordering::Acquire) || core.fetching.swap(true, Ordering::AcqRel) {
            return;
        }
        spawn("shoal-fetch", move || {
            match snapshot::fetch(&core.dir, &*peers, from, &|| core.stopped()) {
                Ok(()) => core.installed.store(true, Ordering::Release),
                Err(why) => {
                    tracing::warn!(group = %core.group, why, "fetching the state from another replica")
                }
            }
            core.fetching.store(false, Ordering::Release);
        });
    }

    /// Answers what another replica has [asked](Peers::ask).
    pub fn answer(&self, request: &[u8]) -> Result<Bytes, String> {
        self.core.running().map_err(|error| error.to_string())?;
        self.core.checkpoints.answer(&self.core.store, &self.core.founders, request)
    }

    /// Whether a newer state was fetched, which takes effect when the replica is shut down and opened again.
    pub fn needs_reopening(&self) -> bool {
        self.core.installed.load(Ordering::Acquire)
    }

    /// Why it does not run any more, if it does not.
    pub fn failure(&self) -> Option<String> {
        self.core.state.lock().failed.clone()
    }

    /// Whether it may answer for its group right now.
    pub fn leads(&self) -> bool {
        self.core.running().is_ok() && self.core.lead.holds(self.core.applied()).is_some()
    }

    /// Waits a moment until it leads, if it is about to.
    pub fn ensure_leading(&self) -> Result<(), MetaError> {
        self.core.leading().map(drop)
    }

    /// How it stands in its group.
    pub fn status(&self) -> Status {
        self.core.lead.status()
    }

    /// Up to which entry of the log the store has come.
    pub fn applied(&self) -> u64 {
        self.core.applied()
    }

    /// The store. Only the state machine writes to it.
    pub fn store(&self) -> &Arc<RocksStore> {
        &self.core.store
    }

    /// Says who should be in the group; the leader sees to it, a step with every call.
    pub fn steer(&self, wanted: &[ReplicaId]) {
        let _ = self.core.inputs.send(Input::Steer(wanted.to_vec()));
    }

    /// Hands the lead over, if it is this replica's and somebody can take it.
    pub fn transfer_leadership(&self) {
        let _ = self.core.inputs.send(Input::Transfer);
    }

    /// A digest of the whole state, and the log index it belongs to. Replicas at the same index have the same digest.
    pub fn digest(&self) -> Result<(u64, u128), MetaError> {
        let snapshot = self.core.store.snapshot();
        let failed = |error: TreeError| MetaError::Failed(error.to_string());
        let index = applied_index(&snapshot).map_err(failed)?;
        let digest = digest::digest(&snapshot).map_err(|error| failed(error.into()))?;
        Ok((index, digest))
    }

    /// Term of the last entry that was applied.
    pub fn applied_term(&self) -> Result<Option<u64>, MetaError> {
        applied_term(&*self.core.store).map_err(|error| MetaError::Failed(error.to_string()))
    }

    /// Counters, for people and for monitoring. Names of things that only grow end in `_total`.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let (core, driver) = (&self.core, &self.core.driver);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = vec![
            ("raft_proposals_total", get(&driver.proposals)),
            ("raft_proposed_bytes_total", get(&driver.bytes)),
            ("raft_log_flushes_total", get(&driver.flushes)),
            ("raft_log_bytes", get(&driver.log_bytes)),
            ("raft_log_disk_bytes", get(&driver.log_disk_bytes)),
            ("raft_leads_total", get(&driver.elections)),
            ("raft_applied_index", core.applied()),
            ("apply_microseconds_total", get(&core.apply_micros)),
            ("proposals_under_way", core.proposals.count().0 as u64),
            ("proposed_bytes_under_way", core.proposals.count().1 as u64),
        ];
        stats.extend(core.upkeep.stats());
        stats.extend(core.store.stats());
        stats
    }

    /// Makes everything applied durable in the store and has the log cut, as happens by itself from time to time.
    pub fn flush(&self) -> Result<(), MetaError> {
        self.core.running()?;
        upkeep::flush(&self.core).map_err(|error| MetaError::Failed(error.to_string()))
    }

    /// Stops: a leader hands the lead over if it can, what is under way is refused, and the store is flushed so that the next
    /// start replays nothing.
    pub fn shutdown(&self) {
        if self.leads() && self.core.peers.is_some() && self.core.lead.status().voters.len() > 1 {
            self.transfer_leadership();
            let handed_over = |_| (self.core.lead.status().role != crate::lead::Role::Leader).then_some(());
            if self.core.wait_for(TRANSFER_PATIENCE, handed_over).is_err() {
                tracing::info!(group = %self.core.group, "nobody took the lead over");
            }
        }
        self.stop();
        if let Err(error) = self.core.store.flush() {
            tracing::error!(%error, "flushing the store at the end");
        }
    }

    /// Stops as a crash would.
    pub(crate) fn stop(&self) {
        self.core.stop_serving();
        self.core.upkeep.stop();
        // The driver may be gone already, if it failed.
        let _ = self.core.inputs.send(Input::Stop);
        let threads = std::mem::take(&mut *self.threads.lock());
        // A waiter may hold the last reference to the server: the thread that calls it cannot wait for itself.
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.core.proposals.give_up(&stopping());
    }
}

impl<M: Machine> Drop for Replica<M> {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(run).expect("the system has room for a thread")
}
