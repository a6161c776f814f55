//! A replica of a metadata group: a state machine over a store, replicated by Raft.
//!
//! **Model.** Commands are proposed on the group's leader, committed by a majority, and applied on every
//! replica in the same order. The proposer gets the outcome from the leader's state machine.
//!
//! **Promises.** What was acknowledged survives the loss of any minority, at any moment. All replicas that
//! have applied the log up to the same entry hold the same bytes ([`digest`](Replica::digest)).
//! [`leads`](Replica::leads) is true on one replica at a time.
//!
//! **Catching up.** A new replica, or one that is behind the leader's log, fetches the whole state from
//! another ([`fetch_state`](crate::fetch_state)). It then has to be opened again:
//! [`needs_reopening`](Replica::needs_reopening).

mod start;

pub(crate) use start::spawn;

use crate::applied::applied_index;
use crate::core::{Core, Input, stopping};
use crate::digest;
use crate::disk::{Disk, OpenError};
use crate::flush;
use crate::lead::Status;
use crate::limits::*;
use crate::machine::{Machine, Peers};
use crate::snapshot::{self, PeerMessage};
use bytes::Bytes;
use shoal_namespace::TreeError;
use shoal_namespace::kv::KvStore;
use shoal_runtime::histogram::Snapshot;
use shoal_runtime::sync::Mutex;
use shoal_runtime::thread::JoinHandle;
use shoal_store::RocksStore;
use shoal_types::{GroupId, ReplicaId};
use shoal_wire::MetaError;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which replica of which group, and how it starts.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// The group.
    pub group: GroupId,
    /// The replica.
    pub id: ReplicaId,
    /// For an empty directory: the group begins with these members, of which this is one. `None`: the replica
    /// must exist, or have [fetched](crate::fetch_state) its state.
    pub founders: Option<Vec<ReplicaId>>,
    /// The log after the last flush of the store may grow to this, in bytes; by default it depends on the
    /// disk.
    pub log_bytes: Option<u64>,
}

/// A running replica. Dropping it stops it as a crash would; [`shutdown`](Self::shutdown) is the orderly way.
pub struct Replica<M: Machine> {
    pub(crate) core: Arc<Core<M>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
        let disk = Disk::open(dir, founders, options.log_bytes, None)?;
        Replica::start(dir, disk, (options.group, options.id), Some(peers), machine)
            .map(|(replica, _)| replica)
    }

    /// Proposes a command and waits for its outcome. After an error of kind `NotLeader` or `Unavailable` the
    /// command may still be applied.
    pub fn propose(&self, command: Vec<u8>) -> Result<M::Outcome, MetaError> {
        self.core.propose(None, command)
    }

    /// Takes a message that another replica has [sent](Peers::send).
    pub fn receive(&self, from: ReplicaId, message: &[u8]) {
        match snapshot::decode_peer_message(message) {
            PeerMessage::Raft(message) => {
                let mine = message.to == self.core.id.0 && message.from == from.0;
                let full = self.core.messages_waiting.load(Ordering::Relaxed) >= MESSAGES_WAITING_MAX;
                if mine && !full {
                    self.core.messages_waiting.fetch_add(1, Ordering::Relaxed);
                    // A driver that has ended receives nothing.
                    let _ = self.core.inputs.send(Input::Message(message));
                }
            }
            PeerMessage::FetchState => self.fetch(from),
            PeerMessage::Unknown => tracing::debug!(%from, "a message could not be decoded"),
        }
    }

    /// Fetches the whole state from another replica, on a thread of its own.
    fn fetch(&self, from: ReplicaId) {
        let Some(peers) = self.core.peers.clone() else { return };
        let core = self.core.clone();
        if core.lead.status().leader != Some(from) {
            // Only a leader knows what its followers lack.
            return;
        }
        if core.installed.load(Ordering::Acquire) || core.fetching.swap(true, Ordering::AcqRel) {
            return;
        }
        let fetching = spawn("shoal-fetch", move || {
            let kept = core.sizes.log_fetched_bytes();
            match snapshot::fetch(&core.dir, (&*peers, from), kept, &|| core.stopped()) {
                Ok(()) => core.installed.store(true, Ordering::Release),
                Err(why) => {
                    tracing::warn!(group = %core.group, why, "fetching the state from another replica failed")
                }
            }
            core.fetching.store(false, Ordering::Release);
        });
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(fetching);
    }

    /// Answers a request of another replica ([`Peers::request`]).
    pub fn answer(&self, request: &[u8]) -> Result<Bytes, String> {
        self.core.running().map_err(|error| error.to_string())?;
        self.core.checkpoints.answer(&self.core.store, &self.core.founders, request)
    }

    /// Whether a newer state was fetched, which takes effect when the replica is shut down and opened again.
    pub fn needs_reopening(&self) -> bool {
        self.core.installed.load(Ordering::Acquire)
    }

    /// Why it has failed, if it has.
    pub fn failure(&self) -> Option<String> {
        self.core.state.lock().failed.clone()
    }

    /// Whether it may answer for its group right now.
    pub fn leads(&self) -> bool {
        self.core.running().is_ok() && self.core.lead.holds(self.core.applied()).is_some()
    }

    /// Fails unless it leads. A leader that has to renew its lease first is waited for.
    pub fn ensure_leading(&self) -> Result<(), MetaError> {
        self.core.leading().map(drop)
    }

    /// Its role and progress in the group.
    pub fn status(&self) -> Status {
        self.core.lead.status()
    }

    /// Index of the last log entry that the store has applied.
    pub fn applied(&self) -> u64 {
        self.core.applied()
    }

    /// The store. Only the state machine writes to it.
    pub fn store(&self) -> &Arc<RocksStore> {
        &self.core.store
    }

    /// Sets the wanted members of the group; the leader takes one step towards them with each call.
    pub fn set_wanted_members(&self, wanted: &[ReplicaId]) {
        let _ = self.core.inputs.send(Input::SetWantedMembers(wanted.to_vec()));
    }

    /// Hands leadership over, if this replica has it and another can take it.
    pub fn transfer_leadership(&self) {
        let _ = self.core.inputs.send(Input::Transfer);
    }

    /// A digest of the whole state, and the log index it belongs to. Replicas at the same index have the same
    /// digest.
    pub fn digest(&self) -> Result<(u64, u128), MetaError> {
        let snapshot = self.core.store.snapshot();
        let failed = |error: TreeError| MetaError::Failed(error.to_string());
        let index = applied_index(&snapshot).map_err(failed)?;
        let digest = digest::digest(&snapshot).map_err(|error| failed(error.into()))?;
        Ok((index, digest))
    }

    /// Counters, for administrators and monitoring. Names of counters that only grow end in `_total`.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let (core, driver, status) = (&self.core, &self.core.driver, self.status());
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = vec![
            ("raft_proposals_total", get(&driver.proposals)),
            ("raft_proposed_bytes_total", get(&driver.bytes)),
            ("raft_log_flushes_total", get(&driver.flushes)),
            ("raft_log_bytes", get(&driver.log_bytes)),
            ("raft_log_disk_bytes", get(&driver.log_disk_bytes)),
            ("raft_leads_total", get(&driver.elections)),
            ("raft_applied_index", core.applied()),
            ("raft_committed_index", status.committed),
            ("raft_term", status.term),
            ("raft_voters", status.voters.len() as u64),
            ("apply_microseconds_total", core.apply.snapshot().total / 1000),
            ("proposals_under_way", core.proposals.count().0 as u64),
            ("proposed_bytes_under_way", core.proposals.count().1 as u64),
        ];
        stats.extend(core.flush_tasks.stats());
        stats.extend(core.store.stats());
        stats
    }

    /// Latencies of the steps of a proposal: waiting for the Raft thread, appending to the log and flushing
    /// it, applying; and from the proposal to its outcome, with replication.
    pub fn latencies(&self) -> [(&'static str, Snapshot); 4] {
        let core = &self.core;
        [
            ("queue", core.driver.queue.snapshot()),
            ("flush", core.driver.flush.snapshot()),
            ("apply", core.apply.snapshot()),
            ("commit", core.proposals.commit.snapshot()),
        ]
    }

    /// Makes everything applied durable in the store and has the log truncated, as happens periodically
    /// anyway.
    pub fn flush(&self) -> Result<(), MetaError> {
        self.core.running()?;
        flush::flush(&self.core).map_err(|error| MetaError::Failed(error.to_string()))
    }

    /// Stops: a leader hands leadership over if it can, requests in flight are refused, and the store is
    /// flushed so that the next start replays nothing.
    pub fn shutdown(&self) {
        if self.leads() && self.core.peers.is_some() && self.core.lead.status().voters.len() > 1 {
            self.transfer_leadership();
            let handed_over = |_| (self.core.lead.status().role != crate::lead::Role::Leader).then_some(());
            if self.core.wait_for(TRANSFER_PATIENCE, handed_over).is_err() {
                tracing::info!(group = %self.core.group, "no other replica became leader in time");
            }
        }
        self.stop();
        if let Err(error) = self.core.store.flush() {
            tracing::error!(%error, "flushing the store at shutdown failed");
        }
    }

    /// Stops as a crash would.
    pub(crate) fn stop(&self) {
        self.core.stop_serving();
        self.core.flush_tasks.stop();
        // The driver may have ended already, if it failed.
        let _ = self.core.inputs.send(Input::Stop);
        let threads = std::mem::take(&mut *self.threads.lock());
        // A waiter may hold the last reference to the server: the thread that calls it cannot wait for
        // itself.
        for thread in threads.into_iter().filter(|thread| !thread.is_current()) {
            // A thread that panicked has logged it.
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
