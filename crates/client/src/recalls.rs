//! Receives recalls by a long-poll, which also renews the lease, and carries them out.
//!
//! Several threads carry them out, because each recall may wait for servers or for the kernel. Changes of
//! what is recalled stop, those that were made are committed, it is invalidated here and in the kernel, and
//! the recall is acknowledged.

use crate::context::{Context, SessionState};
use crate::kernel::Stale;
use crate::lease::Moment;
use crate::limits::{
    ANSWER_WAIT_MAX, POLL_PAUSE, POLL_WAIT, RECALL_THREAD_IDLE_MAX, RECALL_THREADS_MAX, RECLAIM_PART,
};
use crate::locks::LockClient;
use crate::mapping_locks::MappingLocks;
use crate::ship::Shipper;
use shoal_runtime::channel;
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::{Mutex, MutexGuard};
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::Instant;
use shoal_types::BatchSeq;
use shoal_wire::{Ack, Item, MetaError, Poll, Recall, wait_for};
use std::sync::Arc;

/// Queue of recalls to be carried out, each with its term: both ends.
type RecallQueue = (channel::Sender<(u64, Recall)>, channel::Receiver<(u64, Recall)>);

/// The pool of threads that carry out recalls.
#[derive(Default)]
struct Recallers {
    threads: usize,
    idle: usize,
    /// Recalls that no thread has taken yet.
    queued: usize,
}

impl Recallers {
    /// A recall is queued. Returns whether the caller has to start a thread, which is counted already. One
    /// recall may wait for another one, so none may wait for a thread.
    fn recall_queued(&mut self) -> bool {
        self.queued += 1;
        let starts = self.queued > self.idle && self.threads < RECALL_THREADS_MAX;
        (self.threads, self.idle) = (self.threads + usize::from(starts), self.idle + usize::from(starts));
        starts
    }

    /// A thread has taken a recall.
    fn recall_taken(&mut self) {
        (self.queued, self.idle) = (self.queued - 1, self.idle - 1);
    }

    /// Whether an idle thread may end: no queued recall needs it.
    fn ends(&mut self) -> bool {
        let ends = self.queued < self.idle;
        (self.threads, self.idle) = (self.threads - usize::from(ends), self.idle - usize::from(ends));
        ends
    }
}

/// Receives the recalls of a session, and carries them out.
pub(crate) struct RecallWorker {
    context: Arc<Context>,
    shipper: Arc<Shipper>,
    locks: Arc<LockClient>,
    mapping_locks: Arc<MappingLocks>,
    /// Recalls to be carried out, each with its term. Bounded by how many the servers send at once.
    queue: RecallQueue,
    pool: Mutex<Recallers>,
}

impl RecallWorker {
    pub(crate) fn new(
        context: &Arc<Context>,
        shipper: &Arc<Shipper>,
        locks: &Arc<LockClient>,
        mapping_locks: &Arc<MappingLocks>,
    ) -> RecallWorker {
        RecallWorker {
            context: context.clone(),
            shipper: shipper.clone(),
            locks: locks.clone(),
            mapping_locks: mapping_locks.clone(),
            queue: channel::unbounded(),
            pool: Mutex::default(),
        }
    }

    /// Starts the thread that polls for recalls.
    pub(crate) fn start(self: &Arc<RecallWorker>) -> JoinHandle<()> {
        let worker = Arc::clone(self);
        let run = move || worker.run();
        Builder::new().name("shoal-recalls".into()).spawn(run).expect("the system has room for a thread")
    }

    fn run(self: &Arc<RecallWorker>) {
        self.poll_recalls();
        let (stopping, ended) = {
            let state = self.context.state.lock();
            (state.stopping, state.ended)
        };
        if !stopping && !ended {
            // The client ended the session, so its rights should be free at once. If this fails, the servers
            // end the session when its lease has run out.
            let _ = self.context.transport.meta.close_session(self.context.id);
        }
    }

    fn poll_recalls(self: &Arc<RecallWorker>) {
        let mut seen = 0;
        loop {
            let term = {
                let state = self.context.state.lock();
                if state.stopping || state.core.alive().is_err() {
                    return;
                }
                state.core.rights.term
            };
            let asked = Moment::now();
            let wait_ms = POLL_WAIT.as_millis() as u64;
            let (session, below) = (self.context.id, self.context.tokens.below());
            let poll = Poll { session, term, seen, acks: Vec::new(), below, wait_ms };
            match wait_for(|done| self.context.transport.meta.recalls(poll, done)) {
                Ok(told) if told.reclaim => {
                    seen = 0;
                    self.reclaim(told.term);
                }
                Ok(told) => {
                    let until = self.context.lease.renew(asked);
                    if let Some(kernel) = self.context.shared.kernel.get() {
                        kernel.may_answer_until(until);
                    }
                    self.context.changed.notify_all();
                    for recall in told.recalls {
                        if recall.id > seen {
                            seen = recall.id;
                            self.dispatch(term, recall);
                        }
                    }
                }
                Err(
                    error @ (MetaError::Fenced(_)
                    | MetaError::Denied(_)
                    | MetaError::Malformed(_)
                    | MetaError::Version { .. }),
                ) => {
                    self.context.refused(error);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "the long-poll for recalls failed; trying again");
                    // The pause fails only if the session ends, which the loop checks.
                    let _ = self.context.pause(POLL_PAUSE);
                }
            }
        }
    }

    /// Queues a recall for the pool.
    fn dispatch(self: &Arc<RecallWorker>, term: u64, recall: Recall) {
        let (give, take) = &self.queue;
        let mut pool = self.pool.lock();
        // The receiver lives as long as the client.
        let _ = give.send((term, recall));
        if !pool.recall_queued() {
            return;
        }
        let (worker, take) = (Arc::downgrade(self), take.clone());
        let run = move || {
            loop {
                let next = take.recv_timeout(RECALL_THREAD_IDLE_MAX);
                let Some(worker) = worker.upgrade() else { return };
                let mut pool = worker.pool.lock();
                let Ok((term, recall)) = next else {
                    if pool.ends() {
                        return;
                    }
                    continue;
                };
                pool.recall_taken();
                drop(pool);
                worker.carry_out(term, &recall);
                worker.pool.lock().idle += 1;
            }
        };
        if let Err(error) = Builder::new().name("shoal-recall".into()).spawn(run) {
            (pool.threads, pool.idle) = (pool.threads - 1, pool.idle - 1);
            tracing::error!(%error, "cannot start a thread to carry out recalls");
        }
    }

    /// Reclaims from a new leader what this session holds.
    fn reclaim(&self, term: u64) {
        let mut said = self.locks.reclaim(term, RECLAIM_PART);
        said.extend(self.context.state.lock().core.reclaim(term, RECLAIM_PART));
        if mistake("reclaim no rights") {
            said.drain(..said.len() - 1);
        }
        let parts = said.len();
        for part in said {
            if let Err(error) = self.context.transport.meta.reclaim(part) {
                match error {
                    MetaError::Fenced(_) => drop(self.context.refused(error)),
                    // The reply to the next long-poll says whether it has to be repeated, for which term.
                    error => tracing::debug!(%error, "reclaiming rights failed"),
                }
                return;
            }
        }
        tracing::info!(
            session = self.context.id.0,
            term,
            parts,
            "reclaimed from a new metadata leader what is cached"
        );
    }

    /// Carries out a recall of a term and acknowledges it, unless the session ends.
    fn carry_out(&self, term: u64, recall: &Recall) {
        let overtakes = mistake("let a recall overtake the reply that it invalidates");
        if !overtakes && !self.context.tokens.wait(&recall.after, Instant::now() + ANSWER_WAIT_MAX) {
            tracing::warn!(
                recall = recall.id,
                "a reply that was sent before a recall has not arrived; it will be ignored"
            );
        }
        if mistake("acknowledge a recall without invalidating") {
            return self.acknowledge(term, Ack { id: recall.id, ..Ack::default() });
        }
        let mut stale: Vec<Stale> = Vec::new();
        let mut ack = loop {
            let needed = self.begin_recall(recall);
            let drops = recall.items.iter().any(|item| matches!(item, Item::Drop { .. }));
            let hasty = !drops && mistake("release rights before the commit");
            if !hasty && self.shipper.wait_for_commit(needed).is_err() {
                return;
            }
            if let Some(ack) = self.wait_for_retries(recall).core.finish_recall(recall, &mut stale) {
                break ack;
            }
        };
        if let Some(kernel) = self.context.shared.kernel.get() {
            kernel.wait_consumed(&|ino| self.context.state.lock().core.is_about(recall, ino));
            if !stale.is_empty() {
                kernel.invalidate(&stale);
            }
        }
        if mistake("do not report open files to a recall") {
            ack.refers.clear();
        }
        if self.mapping_locks.request_of_created(&self.locks).is_err() {
            return;
        }
        self.acknowledge(term, ack);
    }

    /// Revokes write permits, then stops changes of what is recalled. Returns the batch up to which the
    /// journal must be committed.
    fn begin_recall(&self, recall: &Recall) -> BatchSeq {
        let mut state = self.wait_for_retries(recall);
        if let Some(kernel) = self.context.shared.kernel.get() {
            let files = state.core.close_to_writers(recall, self.context.shared.clock.now());
            if !files.is_empty() {
                drop(state);
                kernel.hold_writes(&files);
                state = self.wait_for_retries(recall);
            }
        }
        let needed = state.core.begin_recall(recall);
        drop(state);
        self.context.changed.notify_all();
        needed
    }

    /// Waits until each thread that was refused with `ESTALE` and needs what is recalled has retried, for a
    /// bounded time.
    fn wait_for_retries(&self, recall: &Recall) -> MutexGuard<'_, SessionState> {
        let mut state = self.context.state.lock();
        while let Some(left) = state.core.retries.keep(recall, self.context.shared.clock.now()) {
            if state.stopping || state.core.alive().is_err() {
                break;
            }
            let late = self.context.changed.wait_for(&mut state, left).timed_out();
            if late {
                tracing::debug!(recall = recall.id, retries = ?state.core.retries, "a refused thread has not retried");
            }
        }
        state
    }

    fn acknowledge(&self, term: u64, ack: Ack) {
        let (session, below) = (self.context.id, self.context.tokens.below());
        loop {
            let poll = Poll { session, term, seen: 0, acks: vec![ack.clone()], below, wait_ms: 0 };
            match wait_for(|done| self.context.transport.meta.recalls(poll, done)) {
                // Also from a later leader: the references in the acknowledgement have been recorded.
                Ok(_) => return self.context.state.lock().core.acknowledged(&ack),
                Err(MetaError::Fenced(_)) => return,
                Err(error) => {
                    tracing::debug!(%error, recall = ack.id, "acknowledging a recall failed; trying again");
                    if self.context.pause(POLL_PAUSE).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recall_does_not_wait_for_a_thread_busy_with_another_recall() {
        let mut pool = Recallers::default();
        assert!(pool.recall_queued(), "there is no thread yet");
        pool.recall_taken();
        pool.idle += 1;
        assert!(!pool.recall_queued(), "one is idle");
        // That thread may have received the recall without having counted it yet.
        assert!(pool.recall_queued());
        assert!(!pool.ends(), "both are needed");
        pool.recall_taken();
        pool.recall_taken();
        assert_eq!((pool.threads, pool.idle, pool.queued), (2, 0, 0));
        (pool.idle, pool.threads) = (1, RECALL_THREADS_MAX);
        assert!(!pool.recall_queued() && !pool.recall_queued(), "the pool is at its limit");
        pool.recall_taken();
        pool.idle += 1;
        assert!(!pool.ends(), "another recall is queued");
        pool.recall_taken();
        pool.idle += 1;
        assert!(pool.ends());
        assert_eq!((pool.threads, pool.idle, pool.queued), (RECALL_THREADS_MAX - 1, 0, 0));
    }
}
