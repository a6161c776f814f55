//! What the threads of a replica share: how far it has come, whether it goes on, and the way of a proposal.

use crate::driver::{DriverStats, Input};
use crate::lead::Lead;
use crate::limits::*;
use crate::machine::{Machine, Peers};
use crate::proposals::{Proposals, Waiter};
use crate::sizes::Sizes;
use crate::snapshot::Checkpoints;
use crate::upkeep::Upkeep;
use raft::prelude::ConfState;
use shoal_runtime::channel::Sender;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_store::RocksStore;
use shoal_types::{GroupId, ReplicaId};
use shoal_wire::MetaError;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct State {
    pub(crate) applied: u64,
    pub(crate) failed: Option<String>,
    pub(crate) stopping: bool,
}

impl State {
    /// Refuses what a replica cannot do that has failed or is stopping.
    fn running(&self) -> Result<(), MetaError> {
        match &self.failed {
            Some(why) => Err(MetaError::Failed(why.clone())),
            None if self.stopping => Err(stopping()),
            None => Ok(()),
        }
    }
}

/// See the module.
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
    /// Of entries that are decided and wait to be applied, about.
    pub(crate) applying_bytes: AtomicUsize,
    pub(crate) checkpoints: Checkpoints,
    /// Who is in the group, unless the store says otherwise.
    pub(crate) founders: ConfState,
    pub(crate) fetching: AtomicBool,
    pub(crate) installed: AtomicBool,
    pub(crate) inputs: Sender<Input>,
    pub(crate) state: Mutex<State>,
    pub(crate) moved: Condvar,
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

    /// See [`State::running`].
    pub(crate) fn running(&self) -> Result<(), MetaError> {
        self.state.lock().running()
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

    /// The term in which this replica leads, right now. A leader that has just come to lead, or waits for its
    /// followers, is waited for; others refuse at once.
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

    /// Waits while too much waits to be applied. A leader whose store is slow goes on being one for a while.
    pub(crate) fn wait_to_apply(&self) {
        let mut state = self.state.lock();
        while self.applying_bytes.load(Ordering::Relaxed) > APPLYING_BYTES_MAX
            && state.failed.is_none()
            && !state.stopping
        {
            self.moved.wait(&mut state);
        }
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
        if data.len() > PROPOSAL_BYTES_MAX {
            let why = format!("{} bytes at once are too many, the most are {PROPOSAL_BYTES_MAX}", data.len());
            return waiter(Err(MetaError::Malformed(why)));
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
        let (done, outcome) = shoal_runtime::channel::bounded(1);
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

    pub(crate) fn stopped(&self) -> bool {
        self.state.lock().stopping
    }
}
