//! The state shared by the threads of a replica: progress, failure or end, and the path of a proposal.
//!
//! The driver, the applier, the flush thread and the replica itself use this module. They communicate only
//! through it: by messages, tasks, and the state in [`Core`].

mod flush_tasks;
mod messages;

pub(crate) use flush_tasks::FlushTasks;
pub(crate) use messages::{Committed, Input, applying_bytes};

use crate::lead::Lead;
use crate::limits::*;
use crate::machine::{Machine, Peers};
use crate::proposals::{Proposals, Waiter};
use crate::sizes::Sizes;
use crate::snapshot::Checkpoints;
use raft::prelude::ConfState;
use shoal_runtime::channel::Sender;
use shoal_runtime::histogram::Histogram;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_store::RocksStore;
use shoal_types::{GroupId, ReplicaId};
use shoal_wire::MetaError;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The driver's counters.
#[derive(Default)]
pub(crate) struct DriverStats {
    pub(crate) proposals: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) log_disk_bytes: AtomicU64,
    pub(crate) elections: AtomicU64,
    /// Time that proposals wait for the driver.
    pub(crate) queue: Histogram,
    /// Time to append to the log and flush it.
    pub(crate) flush: Histogram,
}

/// The applied index, and whether the replica still runs.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) applied: u64,
    pub(crate) failed: Option<String>,
    pub(crate) stopping: bool,
}

impl Progress {
    /// Refuses requests to a replica that has failed or is stopping.
    fn running(&self) -> Result<(), MetaError> {
        match &self.failed {
            Some(why) => Err(MetaError::Failed(why.clone())),
            None if self.stopping => Err(stopping()),
            None => Ok(()),
        }
    }
}

/// The shared state of a replica.
pub(crate) struct Core<M: Machine> {
    pub(crate) machine: Arc<M>,
    pub(crate) dir: PathBuf,
    pub(crate) group: GroupId,
    pub(crate) id: ReplicaId,
    /// `None`: the group never has other members.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    /// Written by the applier alone.
    pub(crate) store: Arc<RocksStore>,
    pub(crate) sizes: Sizes,
    pub(crate) proposals: Proposals<M::Outcome>,
    pub(crate) flush_tasks: FlushTasks,
    pub(crate) driver: DriverStats,
    pub(crate) lead: Lead,
    /// Time to apply an entry.
    pub(crate) apply: Histogram,
    /// Records removed from the store: what could be reclaimed when room is short.
    pub(crate) removed: AtomicU64,
    pub(crate) messages_waiting: AtomicUsize,
    /// Bytes of committed entries that wait to be applied, about.
    pub(crate) applying_bytes: AtomicUsize,
    pub(crate) checkpoints: Checkpoints,
    /// The members of the group, unless the store has newer ones.
    pub(crate) founders: ConfState,
    pub(crate) fetching: AtomicBool,
    pub(crate) installed: AtomicBool,
    pub(crate) inputs: Sender<Input>,
    pub(crate) state: Mutex<Progress>,
    pub(crate) moved: Condvar,
}

pub(crate) fn stopping() -> MetaError {
    MetaError::Unavailable("it is stopping".into())
}

impl<M: Machine> Core<M> {
    /// Index of the last entry that the store has applied.
    pub(crate) fn applied(&self) -> u64 {
        self.state.lock().applied
    }

    pub(crate) fn set_applied(&self, index: u64) {
        self.state.lock().applied = index;
        self.moved.notify_all();
    }

    /// Wakes all waiters: progress, leadership or failure has changed.
    pub(crate) fn progress_moved(&self) {
        // A waiter holds this lock from its check until it sleeps.
        drop(self.state.lock());
        self.moved.notify_all();
    }

    /// The log or the store cannot be trusted any more: all waiters and later requests get an error.
    pub(crate) fn fail(&self, why: &str) {
        tracing::error!(group = %self.group, why, "the metadata server stops");
        self.state.lock().failed.get_or_insert(why.to_owned());
        self.moved.notify_all();
        self.proposals.give_up(&MetaError::Failed(why.to_owned()));
    }

    /// Fails if the replica has failed or is stopping.
    pub(crate) fn running(&self) -> Result<(), MetaError> {
        self.state.lock().running()
    }

    /// The refusal of a replica that does not lead.
    pub(crate) fn not_leader(&self) -> MetaError {
        let leader = self.lead.status().leader.filter(|leader| *leader != self.id);
        let peers = self.peers.as_ref();
        MetaError::NotLeader {
            leader: leader.and_then(|leader| peers.and_then(|peers| peers.node_of(leader))),
        }
    }

    /// Waits for a bounded time until a condition holds on a replica that may lead, and returns its value.
    pub(crate) fn wait_for<T>(
        &self,
        longest: Duration,
        mut is_so: impl FnMut(u64) -> Option<T>,
    ) -> Result<T, MetaError> {
        let due = Instant::now() + longest;
        let mut state = self.state.lock();
        loop {
            state.running()?;
            if let Some(found) = is_so(state.applied) {
                return Ok(found);
            }
            if self.moved.wait_until(&mut state, due).timed_out() {
                drop(state);
                return Err(self.not_leader());
            }
        }
    }

    /// The term in which this replica leads. Waits for a bounded time if it is a new leader that is not
    /// ready, or has to renew its lease. Fails at once on a follower.
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

    /// Blocks while too many committed entries are not applied. A leader with a slow store keeps its
    /// leadership for a while.
    pub(crate) fn wait_to_apply(&self) {
        let mut state = self.state.lock();
        while self.applying_bytes.load(Ordering::Relaxed) > APPLYING_BYTES_MAX
            && state.failed.is_none()
            && !state.stopping
        {
            self.moved.wait(&mut state);
        }
    }

    /// Waits until the store has applied `index`.
    pub(crate) fn wait_applied(&self, index: u64, longest: Duration) -> Result<(), MetaError> {
        self.wait_for(longest, |applied| (applied >= index).then_some(())).map_err(|error| match error {
            MetaError::NotLeader { .. } => {
                MetaError::Unavailable(format!("replaying the log took longer than {longest:?}"))
            }
            other => other,
        })
    }

    /// This proposal is not going to be committed by this replica.
    pub(crate) fn drop_proposal(&self, id: u64) {
        if let Some(waiter) = self.proposals.take(id) {
            waiter(Err(self.not_leader()));
        }
    }

    /// Leadership is lost: proposals in flight may or may not be committed, and their waiters must retry at
    /// the next leader.
    pub(crate) fn deposed(&self) {
        self.machine.deposed();
        self.proposals.give_up(&self.not_leader());
    }

    /// Proposes a command; the waiter is called with its outcome on another thread.
    pub(crate) fn propose_then(&self, data: Vec<u8>, waiter: Waiter<M::Outcome>) {
        self.submit(None, data, waiter);
    }

    fn submit(&self, term: Option<u64>, data: Vec<u8>, waiter: Waiter<M::Outcome>) {
        if let Err(error) = self.running() {
            return waiter(Err(error));
        }
        if data.len() > PROPOSAL_BYTES_MAX {
            let why = format!("{} bytes at once are too many, the most are {PROPOSAL_BYTES_MAX}", data.len());
            return waiter(Err(MetaError::Malformed(why)));
        }
        let (id, context) = self.proposals.begin(data.len(), waiter);
        let sent = self.inputs.send(Input::Propose { id, context, data, term, since: Instant::now() });
        if sent.is_err() || self.running().is_err() {
            // All waiters may have been failed before this one was registered.
            let error = self.running().err().unwrap_or_else(stopping);
            if let Some(waiter) = self.proposals.take(id) {
                waiter(Err(error));
            }
        }
    }

    /// Proposes a command and waits for its outcome. With a term: only as the leader of that term.
    pub(crate) fn propose(&self, term: Option<u64>, data: Vec<u8>) -> Result<M::Outcome, MetaError> {
        let (done, outcome) = shoal_runtime::channel::bounded(1);
        self.submit(
            term,
            data,
            Box::new(move |result| {
                // The caller is still waiting below.
                let _ = done.send(result);
            }),
        );
        outcome.recv().unwrap_or_else(|_| Err(stopping()))
    }

    /// The store is durable up to `index`: the log before it may be truncated.
    pub(crate) fn flushed(&self, index: u64) {
        // Fails only if the driver has ended.
        let _ = self.inputs.send(Input::Durable(index));
    }

    /// Refuses requests from now on.
    pub(crate) fn stop_serving(&self) {
        self.state.lock().stopping = true;
        self.moved.notify_all();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.state.lock().stopping
    }
}
