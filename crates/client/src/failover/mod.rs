//! A volume's metadata service over several replicas, of which one leads at a time and any may die.
//!
//! **Model.** All calls of a session go to the leader. The leader is found by asking all replicas at once
//! (`search`): the one that answers a read leads, since a replica serves reads only while it holds the leader
//! lease. Calls wait until a replica leads. Batches are kept until their outcome is final, and sent again in
//! order to a new leader ([`outbox`]).
//!
//! **Assumes.** A replica that does not lead refuses a request before any other check. A stub to a node that
//! does not answer fails with [`MetaError::Unavailable`] within bounded time, and its `submit` does not wait
//! for the node. Requests are idempotent: sessions are opened by instance, batches are numbered, and a grant
//! whose reply was lost is corrected by the report in the next request.
//!
//! **Promises.** When a leader dies, calls wait for the next one and do not fail. Each `done` is called once,
//! in order, and under no lock. When the mount ends, or is interrupted, every wait ends at once.
//!
//! **Denials.** A replica or the cluster map may [deny](Denial) the volume to the client. If no replica leads
//! and denials continue for [`DENIAL_GRACE`], every wait and every later call fails with
//! [`MetaError::Denied`]. Before there is a session, one denial is enough. A denial by an older map than the
//! client's is ignored.
//!
//! **Refuses** more than one session: each has a `Failover` of its own.

mod denial;
mod outbox;
mod reply;
mod search;
mod send;

use crate::backoff::Backoff;
use crate::limits::{CLOSE_SESSION_WAIT, OPEN_WAIT_DEFAULT};
use crate::stats::Stat;
use denial::Denials;
pub(crate) use outbox::is_transient;
use outbox::{BatchOutcome, Outbox};
use reply::InFlight;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BlockId, BlockInfo, Errno, NodeId, SessionId, Statfs};
use shoal_wire::{
    Acquire, AcquireReply, Commit, CommitDone, Denial, Done, Grant, GrantReply, LockReply, LockRequest,
    MetaError, MetaService, OpenReply, Poll, ReadReply, ReadRequest, Recalls, Reclaim, SessionRequest,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The replicas of a metadata group, as the cluster map has them.
pub trait Replicas: Send + Sync + 'static {
    /// All known replicas. Returns at once.
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)>;
    /// No replica leads, so the list may be outdated: has a newer one fetched, without waiting for it.
    fn refresh(&self);
    /// Epoch of the newest cluster map that is known. Denials by older ones are ignored.
    fn epoch(&self) -> u64 {
        0
    }
    /// The denial that the client's own copy of the cluster map states, if it does.
    fn denial(&self) -> Option<Denial> {
        None
    }
}

/// How long calls wait for a leader.
#[derive(Clone, Copy, Debug)]
pub struct FailoverOptions {
    /// Opening a session gives up after this.
    pub open_wait: Duration,
    /// All other calls fail with `EIO` after this; `None`: they wait without a limit.
    pub fail_after: Option<Duration>,
}

impl Default for FailoverOptions {
    fn default() -> FailoverOptions {
        FailoverOptions { open_wait: OPEN_WAIT_DEFAULT, fail_after: None }
    }
}

/// A metadata service over several replicas.
pub struct Failover {
    inner: Arc<Inner>,
}

/// The state shared by the threads.
struct Inner {
    replicas: Arc<dyn Replicas>,
    options: FailoverOptions,
    state: Mutex<FailoverState>,
    /// A leader was found, or waits for one have to end.
    found: Condvar,
    /// There may be something to send.
    work: Condvar,
}

/// The leader, as last known.
#[derive(Clone)]
struct Leader {
    /// Number of this leader in the order in which leaders were found; not Raft's term. It marks outdated
    /// replies.
    term: u64,
    node: NodeId,
    service: Arc<dyn MetaService>,
}

struct FailoverState {
    leader: Option<Leader>,
    terms: u64,
    session: Option<SessionId>,
    /// Replicas that have not answered yet whether they lead.
    asked: BTreeSet<NodeId>,
    /// When all replicas are asked again, and the pause after that round.
    next_round: Instant,
    pause: Duration,
    /// The backoff since the last leader was lost.
    waiting: Option<Backoff>,
    denials: Denials,
    outbox: Outbox,
    /// Calls in flight to the leader.
    in_flight: InFlight,
    /// The term in which the outbox sends.
    sending: u64,
    /// No batch is sent before this (backoff).
    hold: Instant,
    /// Outcomes to be reported, in order.
    outcomes: VecDeque<BatchOutcome>,
    reporting: bool,
    interrupted: bool,
    stopping: bool,
    last_node: Option<NodeId>,
    failovers: u64,
    stall_max: Duration,
}

/// Why a wait for a leader ended without one.
enum NoLeader {
    Denied(Denial),
    Stopping,
    Interrupted,
    TimedOut,
}

impl From<NoLeader> for MetaError {
    fn from(why: NoLeader) -> MetaError {
        match why {
            NoLeader::Denied(denial) => MetaError::Denied(denial),
            NoLeader::Stopping => MetaError::Unavailable("the mount is ending".into()),
            // Only the call fails: the session continues.
            NoLeader::Interrupted | NoLeader::TimedOut => MetaError::Errno(Errno::EIO),
        }
    }
}

impl Failover {
    /// A service over these replicas.
    pub fn new(replicas: Arc<dyn Replicas>, options: FailoverOptions) -> Failover {
        let now = Instant::now();
        let state = FailoverState {
            leader: None,
            terms: 0,
            session: None,
            asked: BTreeSet::new(),
            next_round: now,
            pause: Duration::ZERO,
            waiting: None,
            denials: Denials::default(),
            outbox: Outbox::default(),
            in_flight: InFlight::default(),
            sending: 0,
            hold: now,
            outcomes: VecDeque::new(),
            reporting: false,
            interrupted: false,
            stopping: false,
            last_node: None,
            failovers: 0,
            stall_max: Duration::ZERO,
        };
        let inner = Arc::new(Inner {
            replicas,
            options,
            state: Mutex::new(state),
            found: Condvar::new(),
            work: Condvar::new(),
        });
        send::start(&inner);
        Failover { inner }
    }

    /// Calls that wait for a leader or for its answer, now and from now on, fail with `EIO`. Batches are
    /// still being sent.
    pub fn interrupt(&self) {
        let mut state = self.inner.state.lock();
        state.interrupted = true;
        state.in_flight.fail(true, &NoLeader::Interrupted.into());
        drop(state);
        self.inner.found.notify_all();
    }

    /// Ends the service: calls that wait and batches without outcome fail.
    pub fn stop(&self) {
        let mut state = self.inner.state.lock();
        state.stopping = true;
        let outcomes = state.outbox.end(NoLeader::Stopping.into());
        state.in_flight.fail(false, &NoLeader::Stopping.into());
        self.inner.found.notify_all();
        self.inner.work.notify_all();
        self.inner.report(state, outcomes);
    }

    /// The leader, or for how long there has been none, as lines of text.
    pub(crate) fn dump(&self) -> Vec<String> {
        let state = self.inner.state.lock();
        let leader = match (&state.leader, &state.waiting) {
            (Some(leader), _) => format!("metadata leader: {}", leader.node),
            (None, Some(waiting)) => {
                format!("metadata leader: none answers, for {:.1} s", waiting.waited().as_secs_f64())
            }
            (None, None) => "metadata leader: none is known yet".into(),
        };
        let asked: Vec<String> = state.asked.iter().map(NodeId::to_string).collect();
        let mut lines = vec![leader, format!("batches that no leader has answered: {}", state.outbox.len())];
        if !asked.is_empty() {
            lines.push(format!("asked whether they lead: {}", asked.join(", ")));
        }
        lines
    }

    /// Counters, for administrators and monitoring.
    pub fn stats(&self) -> Vec<Stat> {
        let state = self.inner.state.lock();
        [
            ("meta_failovers_total", state.failovers),
            ("meta_batches_resent_total", state.outbox.resent()),
            ("meta_batches_unanswered", state.outbox.len() as u64),
            ("meta_stall_ms_max", state.stall_max.as_millis() as u64),
        ]
        .map(|(name, value)| Stat { name, value })
        .to_vec()
    }
}

impl Drop for Failover {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    /// Calls the leader, and the next one if that fails, until there is an answer.
    fn call<T>(
        self: &Arc<Self>,
        wait: Option<Duration>,
        interruptible: bool,
        call: impl Fn(&dyn MetaService) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let until = wait.map(|wait| Instant::now() + wait);
        loop {
            let leader = self.leader(until, interruptible)?;
            match self.map_denial(call(&*leader.service)) {
                Err(error) if is_transient(&error) => self.lost(&leader, &error),
                outcome => return outcome,
            }
        }
    }

    fn read<T>(
        self: &Arc<Self>,
        call: impl Fn(&dyn MetaService) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.call(self.options.fail_after, true, call)
    }

    /// Calls the leader once. If it has ceased to lead, the call fails.
    fn once<T>(
        self: &Arc<Self>,
        wait: Option<Duration>,
        interruptible: bool,
        call: impl Fn(&dyn MetaService) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let leader = self.leader(wait.map(|wait| Instant::now() + wait), interruptible)?;
        let outcome = self.map_denial(call(&*leader.service));
        if let Err(error) = &outcome
            && is_transient(error)
        {
            self.lost(&leader, error);
        }
        outcome
    }
}

impl MetaService for Failover {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        let wait = self.inner.options.open_wait;
        let last = Mutex::new(None);
        let opened = self.inner.call(Some(wait), true, |meta| {
            meta.open_session(request.clone()).inspect_err(|error| *last.lock() = Some(error.clone()))
        });
        match (opened, last.into_inner()) {
            (Ok(reply), _) => {
                self.inner.state.lock().session = Some(reply.session);
                Ok(reply)
            }
            // A leader has given the reason.
            (Err(MetaError::Errno(Errno::EIO)), Some(error)) => Err(error),
            (Err(MetaError::Errno(Errno::EIO)), None) => Err(MetaError::Unavailable(format!(
                "no metadata server of this volume has led for {} seconds: are most of its nodes up?",
                wait.as_secs()
            ))),
            (refused, _) => refused,
        }
    }

    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        let tries = std::cell::Cell::new(0);
        self.inner.call(Some(CLOSE_SESSION_WAIT), true, |meta| {
            tries.set(tries.get() + 1);
            match meta.close_session(session) {
                // The answer to an earlier try was lost.
                Err(MetaError::Fenced(_)) if tries.get() > 1 => Ok(()),
                outcome => outcome,
            }
        })
    }

    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.inner.read(|meta| meta.grant(grant))
    }

    fn submit(&self, commit: Commit, done: CommitDone) {
        let mut state = self.inner.state.lock();
        match state.outbox.push(commit, done) {
            None => self.inner.work.notify_all(),
            outcomes => self.inner.report(state, outcomes),
        }
    }

    // The following calls block the calling thread although they take a callback, since a leader may have to
    // be found. So they are made only on threads that may block.

    /// One attempt, if the reply grants a right: a retry has a new token, see `Fetcher::attempts`.
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let asked =
            |meta: &dyn MetaService| self.inner.wait_for(true, |done| meta.read(request.clone(), done));
        done(match request.token.0 {
            0 => self.inner.read(asked),
            _ => self.inner.once(self.inner.options.fail_after, true, asked),
        });
    }

    /// One attempt: a retry has a new token, see `Fetcher::attempts`.
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        let wait = self.inner.options.fail_after;
        done(
            self.inner.once(wait, true, |meta| {
                self.inner.wait_for(true, |done| meta.acquire(acquire.clone(), done))
            }),
        );
    }

    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        done(
            self.inner.call(None, false, |meta| {
                self.inner.wait_for(false, |done| meta.recalls(poll.clone(), done))
            }),
        );
    }

    /// One attempt: before a retry the caller checks whether it still waits, and changes the request if not.
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        let wait = self.inner.options.fail_after;
        done(
            self.inner
                .once(wait, true, |meta| self.inner.wait_for(true, |done| meta.lock(request.clone(), done))),
        );
    }

    fn reclaim(&self, reclaim: Reclaim) -> Result<(), MetaError> {
        self.inner.once(None, false, |meta| meta.reclaim(reclaim.clone()))
    }

    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.inner.read(|meta| meta.blocks(session, ids))
    }

    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.inner.read(|meta| meta.statfs(session))
    }
}
