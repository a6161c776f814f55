//! The lease: renewed by the recall long-poll; and what happens when it runs out.
//!
//! **Recalls** are carried out by several threads, because each may wait for servers or for the kernel. A
//! recall stops changes of what is recalled, commits what was changed, drops it here and in the kernel, and
//! is acknowledged.
//!
//! **Expiry.** Without a renewal the client stops answering from its caches and invalidates the whole kernel
//! cache. This happens before the servers let other clients change what it caches. Calls wait until the
//! servers answer again, or have ended the session.

use crate::kernel::Stale;
use crate::limits::{
    ANSWER_WAIT_MAX, CLOCK_LOOK_EVERY, POLL_PAUSE, POLL_WAIT, RECALL_THREAD_IDLE_MAX, RECALL_THREADS_MAX,
    RECLAIM_PART,
};
use crate::session::{Session, State};
use crate::trace::{Hop, waits};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::MutexGuard;
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::{Duration, Instant, since_boot};
use shoal_types::{BatchSeq, Errno};
use shoal_wire::{Ack, Item, MetaError, Poll, Recall, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Queue of recalls to be carried out, each with its term: both ends.
pub(crate) type RecallQueue =
    (shoal_runtime::channel::Sender<(u64, Recall)>, shoal_runtime::channel::Receiver<(u64, Recall)>);

/// The pool of threads that carry out recalls.
#[derive(Default)]
pub(crate) struct Recallers {
    threads: usize,
    idle: usize,
    /// Recalls that no thread has taken yet.
    queued: usize,
}

impl Recallers {
    /// A recall is queued. Returns whether a thread has to be started, which counts from now on: each recall
    /// may wait for another one, so none may wait for a thread.
    fn hands_over(&mut self) -> bool {
        self.queued += 1;
        let starts = self.queued > self.idle && self.threads < RECALL_THREADS_MAX;
        (self.threads, self.idle) = (self.threads + usize::from(starts), self.idle + usize::from(starts));
        starts
    }

    /// A thread has taken a recall.
    fn takes(&mut self) {
        (self.queued, self.idle) = (self.queued - 1, self.idle - 1);
    }

    /// An idle thread wants to end. Returns false if it is needed after all.
    fn ends(&mut self) -> bool {
        let ends = self.queued < self.idle;
        (self.threads, self.idle) = (self.threads - usize::from(ends), self.idle - usize::from(ends));
        ends
    }
}

/// Until when caches may be used. The clock includes suspend, as the servers' clocks continue meanwhile.
pub(crate) struct Lease {
    length: Duration,
    until_ms: AtomicU64,
}

/// A moment of the lease's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment(since_boot())
    }
}

impl Lease {
    /// The lease of a session whose opening was requested at this moment.
    pub(crate) fn new(asked: Moment, length: Duration) -> Lease {
        let lease = Lease { length, until_ms: AtomicU64::new(0) };
        lease.renew(asked);
        lease
    }

    /// The servers have replied to a request that was sent at this moment. Returns until when the lease
    /// lasts.
    fn renew(&self, asked: Moment) -> Duration {
        let until = asked.0 + self.length;
        self.until_ms.fetch_max(until.as_millis() as u64, Ordering::AcqRel);
        until
    }

    /// Whether caches may be used.
    pub(crate) fn holds(&self) -> bool {
        self.left() > Duration::ZERO || mistake("answer from caches without a lease")
    }

    /// For how long it lasts unless it is renewed.
    pub(crate) fn left(&self) -> Duration {
        let until = Duration::from_millis(self.until_ms.load(Ordering::Acquire));
        until.saturating_sub(Moment::now().0)
    }
}

/// Starts the thread that polls for recalls, and the one that watches the lease.
pub(crate) fn start(session: &Arc<Session>) -> Vec<JoinHandle<()>> {
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        Builder::new().name(name.into()).spawn(run).expect("the system has room for a thread")
    };
    let (recalls, clock) = (session.clone(), session.clone());
    vec![
        spawn("shoal-recalls", Box::new(move || recalls.run_recalls())),
        spawn("shoal-lease", Box::new(move || clock.run_clock())),
    ]
}

impl Session {
    fn run_recalls(self: Arc<Session>) {
        self.hear_recalls();
        let (stopping, ended) = {
            let state = self.state.lock();
            (state.stopping, state.ended)
        };
        if !stopping && !ended {
            // The session is lost for a reason of our own: what it held should be free at once. If this
            // fails, the servers find out by themselves.
            let _ = self.meta.close_session(self.id);
        }
    }

    fn hear_recalls(self: &Arc<Session>) {
        let mut seen = 0;
        loop {
            let term = {
                let state = self.state.lock();
                if state.stopping || state.core.alive().is_err() {
                    return;
                }
                state.core.rights.term
            };
            let asked = Moment::now();
            let wait_ms = POLL_WAIT.as_millis() as u64;
            let (session, below) = (self.id, self.tokens.below());
            let poll = Poll { session, term, seen, acks: Vec::new(), below, wait_ms };
            match wait_for(|done| self.meta.recalls(poll, done)) {
                Ok(told) if told.reclaim => {
                    seen = 0;
                    self.reclaim(told.term);
                }
                Ok(told) => {
                    let until = self.lease.renew(asked);
                    if let Some(kernel) = self.shared.kernel.get() {
                        kernel.may_answer_until(until);
                    }
                    self.changed.notify_all();
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
                    self.refused(error);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "asking for recalls");
                    // Ends early only if the session does.
                    let _ = self.pause(POLL_PAUSE);
                }
            }
        }
    }

    /// Queues a recall for the pool.
    fn dispatch(self: &Arc<Session>, term: u64, recall: Recall) {
        let (give, take) = &self.recalls;
        let mut pool = self.recallers.lock();
        // The receiver lives as long as the client.
        let _ = give.send((term, recall));
        if !pool.hands_over() {
            return;
        }
        let (session, take) = (Arc::downgrade(self), take.clone());
        let run = move || {
            loop {
                let next = take.recv_timeout(RECALL_THREAD_IDLE_MAX);
                let Some(session) = session.upgrade() else { return };
                let mut pool = session.recallers.lock();
                let Ok((term, recall)) = next else {
                    if pool.ends() {
                        return;
                    }
                    continue;
                };
                pool.takes();
                drop(pool);
                session.carry_out(term, &recall);
                session.recallers.lock().idle += 1;
            }
        };
        if let Err(error) = Builder::new().name("shoal-recall".into()).spawn(run) {
            (pool.threads, pool.idle) = (pool.threads - 1, pool.idle - 1);
            tracing::error!(%error, "no thread to carry out recalls");
        }
    }

    /// Tells a new leader what this session holds.
    fn reclaim(&self, term: u64) {
        let mut said = self.locks.reclaim(self.id, term, RECLAIM_PART);
        said.extend(self.state.lock().core.reclaim(term, RECLAIM_PART));
        if mistake("tell a new leader nothing") {
            said.drain(..said.len() - 1);
        }
        let parts = said.len();
        for declaration in said {
            if let Err(error) = self.meta.reclaim(declaration) {
                match error {
                    MetaError::Fenced(_) => drop(self.refused(error)),
                    // The next long-poll tells whether, and to which leader, it has to be repeated.
                    error => tracing::debug!(%error, "declaring rights"),
                }
                return;
            }
        }
        tracing::info!(session = self.id.0, term, parts, "declared to a new metadata leader what is cached");
    }

    /// Carries out a recall of a term and acknowledges it, unless the session ends.
    fn carry_out(&self, term: u64, recall: &Recall) {
        let overtakes = mistake("let a recall overtake the answer that it takes back");
        if !overtakes && !self.tokens.wait(&recall.after, Instant::now() + ANSWER_WAIT_MAX) {
            tracing::warn!(
                recall = recall.id,
                "an answer that came before a recall has not arrived, and will not count"
            );
        }
        if mistake("acknowledge a recall without carrying it out") {
            return self.acknowledge(term, Ack { id: recall.id, ..Ack::default() });
        }
        let mut stale: Vec<Stale> = Vec::new();
        let mut ack = loop {
            let needed = self.begin_recall(recall);
            let drops = recall.items.iter().any(|item| matches!(item, Item::Drop { .. }));
            let hasty = !drops && mistake("give back what is not committed");
            if !hasty && self.wait_for_commit(needed).is_err() {
                return;
            }
            if let Some(ack) = self.let_come_back(recall).core.finish_recall(recall, &mut stale) {
                break ack;
            }
        };
        if let Some(kernel) = self.shared.kernel.get() {
            kernel.settle_names(&|dir| self.state.lock().core.is_about(recall, dir));
            if !stale.is_empty() {
                kernel.forget(&stale);
            }
        }
        if mistake("do not say what is open") {
            ack.refers.clear();
        }
        if self.request_locks_of_created().is_err() {
            return;
        }
        self.acknowledge(term, ack);
    }

    /// From now on nothing that is recalled is changed here. Returns the batch up to which the journal must
    /// be committed.
    fn begin_recall(&self, recall: &Recall) -> BatchSeq {
        let mut state = self.let_come_back(recall);
        if let Some(kernel) = self.shared.kernel.get() {
            let files = state.core.close_to_writers(recall, self.shared.clock.now());
            if !files.is_empty() {
                drop(state);
                kernel.hold_writes(&files);
                state = self.let_come_back(recall);
            }
        }
        let needed = state.core.begin_recall(recall);
        drop(state);
        self.changed.notify_all();
        needed
    }

    /// Waits until each thread that was refused with `ESTALE` and needs what is recalled has retried, or its
    /// time is over.
    fn let_come_back(&self, recall: &Recall) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while let Some(left) = state.core.retries.keep(recall, self.shared.clock.now()) {
            if state.stopping || state.core.alive().is_err() {
                break;
            }
            let late = self.changed.wait_for(&mut state, left).timed_out();
            if late {
                tracing::debug!(recall = recall.id, retries = ?state.core.retries, "a refused thread has not retried");
            }
        }
        state
    }

    fn acknowledge(&self, term: u64, ack: Ack) {
        let (session, below) = (self.id, self.tokens.below());
        loop {
            let poll = Poll { session, term, seen: 0, acks: vec![ack.clone()], below, wait_ms: 0 };
            match wait_for(|done| self.meta.recalls(poll, done)) {
                // Even if the leader of that term is gone: the references in it have been recorded.
                Ok(_) => return self.state.lock().core.acknowledged(&ack),
                Err(MetaError::Fenced(_)) => return,
                Err(error) => {
                    tracing::debug!(%error, recall = ack.id, "acknowledging a recall");
                    if self.pause(POLL_PAUSE).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn run_clock(self: Arc<Session>) {
        let mut state = self.state.lock();
        loop {
            if state.stopping || state.core.alive().is_err() {
                break;
            }
            let left = self.lease.left();
            if left > Duration::ZERO {
                // The machine may be suspended meanwhile, which this wait does not count.
                self.ending.wait_for(&mut state, left.min(CLOCK_LOOK_EVERY));
                continue;
            }
            tracing::warn!(
                session = self.id.0,
                "the servers have not answered for {} seconds: nothing is answered from caches until they do",
                self.lease.length.as_secs()
            );
            drop(state);
            self.empty_kernel();
            state = self.state.lock();
            while !self.lease.holds() && !state.stopping && state.core.alive().is_ok() {
                self.changed.wait(&mut state);
            }
            if self.lease.holds() {
                tracing::info!(session = self.id.0, "the servers answer again");
            }
        }
        // Recalls do not reach this session any more, so the kernel must not answer from its cache. If the
        // servers have ended the session, `Mount` does this before it opens the next one.
        let lost = !state.stopping && !state.ended;
        drop(state);
        if lost {
            self.empty_kernel();
        }
    }

    /// Waits until caches may be used again.
    pub(crate) fn wait_for_lease(&self) -> Result<(), Errno> {
        let until = self.until();
        let _waits = waits(Hop::Lease, || "servers to renew the lease, which has run out".into());
        let mut state = self.state.lock();
        while !self.lease.holds() {
            self.wait_for_change(&mut state, until)?;
        }
        state.core.alive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recall_does_not_wait_for_another_one() {
        let mut pool = Recallers::default();
        assert!(pool.hands_over(), "there is no thread yet");
        pool.takes();
        pool.idle += 1;
        assert!(!pool.hands_over(), "there is one with nothing to do");
        // That thread may have received the recall without having counted it yet.
        assert!(pool.hands_over());
        assert!(!pool.ends(), "both are needed");
        pool.takes();
        pool.takes();
        assert_eq!((pool.threads, pool.idle, pool.queued), (2, 0, 0));
        (pool.idle, pool.threads) = (1, RECALL_THREADS_MAX);
        assert!(!pool.hands_over() && !pool.hands_over(), "more are not started");
        pool.takes();
        pool.idle += 1;
        assert!(!pool.ends(), "one more is left to be taken");
        pool.takes();
        pool.idle += 1;
        assert!(pool.ends());
        assert_eq!((pool.threads, pool.idle, pool.queued), (RECALL_THREADS_MAX - 1, 0, 0));
    }
}
