//! Locks of programs, which exclude each other across mounts: requested from the leader, and reclaimed from a
//! new one.
//!
//! **Waiting.** A request that waits is answered when the lock is granted. [`LockWait`] cancels it: the
//! leader then says whether the grant or the cancellation came first.
//!
//! **Held locks** are those in the latest reply by the leader's count: replies may overtake each other. A
//! reply of a leader is ignored once the locks were reclaimed from its successor, and the request is made
//! again. Locks that an unanswered request gives up are not reclaimed: another client may have been granted
//! them already, and reclaims them too.
//!
//! **Cancelled requests.** A request whose caller was killed is not repeated. It may have been carried out,
//! or may still arrive at the leader. A later request tells the leader to refuse it then. What it was granted
//! ends with its open file.
//!
//! A process that ends, or is killed, may not wait until its locks are released. So a request that meets a
//! conflict is repeated when the releases of that file that were in flight have been answered.
//!
//! **Lost locks** of a session that the servers have ended are remembered, because their owner still counts
//! on them. Until the owner has given up a lost lock, it gets no further lock in that file. It can neither
//! read nor write through the descriptor with which it took the lock.

use crate::context::Context;
use crate::limits::LOCK_RETRY_PAUSE;
use crate::trace::{self, Trace};
use shoal_runtime::sync::Mutex;
use shoal_types::{Errno, InodeId, SessionId};
use shoal_wire::{
    LockKind, LockOp, LockOutcome, LockOwner, LockRange, LockRecord, LockReply, LockRequest, LockSpace,
    MetaError, Reclaim, wait_for,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A lock that a program wants or has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The file.
    pub ino: InodeId,
    /// The kind of lock: `fcntl`, `flock` or mapping.
    pub space: LockSpace,
    /// The kernel's number for the process or the open file.
    pub owner: u64,
    /// The process, for administrators.
    pub pid: u32,
    /// The bytes.
    pub range: LockRange,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// The wait of one request for a lock, which can be cancelled.
#[derive(Default)]
pub struct LockWait {
    cancelled: AtomicBool,
    /// The request in flight, and its session.
    request: Mutex<Option<(SessionId, u64)>>,
}

impl LockWait {
    /// The request does not begin to wait after this. [`cancel_lock`](crate::Client::cancel_lock) ends a wait
    /// that has begun.
    pub fn give_up(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether [`give_up`](Self::give_up) was called.
    pub fn is_given_up(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
}

/// Locks that are held, and requests in flight.
struct Locks(Mutex<LockTable>);

struct LockTable {
    /// The leader's term in which the locks were last reclaimed.
    term: u64,
    last: u64,
    /// The requests in flight.
    out: BTreeMap<u64, InFlight>,
    held: BTreeMap<Key, Held>,
    /// Locks lost with earlier sessions, by owner.
    lost: BTreeMap<Key, Vec<LockRange>>,
}

/// An owner's locks of one kind in a file.
pub(crate) type Key = (InodeId, LockSpace, u64);

/// The effect of a reply on held locks.
pub(crate) enum ReplyEffect {
    Nothing,
    /// All locks of an owner.
    Held(Key),
    /// These owners have no locks any more.
    Released(Vec<Key>),
}

/// The locks of an owner that has requested some and not closed the file since, or of which a request is
/// still in flight.
#[derive(Default)]
struct Held {
    /// The leader's count in the reply that `locks` is from.
    at: u64,
    locks: Vec<LockRecord>,
    /// The number of its requests in flight.
    asking: usize,
    /// The owner has closed the file and was granted nothing since, as far as is known. The entry stays while
    /// replies to earlier requests may arrive.
    closed: bool,
}

/// What is known of a request in flight.
struct InFlight {
    op: LockOp,
    /// The call of its caller, if that can be cancelled.
    trace: Option<Arc<Trace>>,
}

impl InFlight {
    fn is_cancelled(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.is_cancelled())
    }
}

/// A request in flight.
struct Request<'a> {
    locks: &'a Locks,
    id: u64,
    below: u64,
    effect: ReplyEffect,
    /// If false, it is unknown whether the request was carried out.
    answered: bool,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.0.lock();
        // A later request has removed it if it was cancelled.
        if let Some(InFlight { op, .. }) = state.out.remove(&self.id)
            && !self.answered
        {
            state.end_unanswered(&op);
        }
        // The entry is gone if the session has ended.
        if let ReplyEffect::Held(key) = self.effect
            && let Some(held) = state.held.get_mut(&key)
        {
            held.asking -= 1;
            state.forget_closed(&key);
        }
    }
}

impl LockTable {
    /// Removes the entry of an owner that has closed the file and has no request in flight.
    fn forget_closed(&mut self, key: &Key) {
        if self.held.get(key).is_some_and(|held| held.closed && held.asking == 0) {
            self.held.remove(key);
        }
    }

    /// Removes requests that were cancelled. The leader refuses those that it has not carried out.
    fn drop_cancelled(&mut self) {
        if self.out.values().any(InFlight::is_cancelled) {
            let all = std::mem::take(&mut self.out).into_iter();
            let (cancelled, out): (BTreeMap<_, _>, _) = all.partition(|(_, request)| request.is_cancelled());
            self.out = out;
            cancelled.values().for_each(|request| self.end_unanswered(&request.op));
        }
    }

    /// A request has ended, and it is unknown whether it was carried out.
    fn end_unanswered(&mut self, op: &LockOp) {
        if let LockOp::Set { lock: LockRecord { ino, space, owner, .. }, .. }
        | LockOp::Unset { ino, space, owner, .. } = op
            && let Some(held) = self.held.get_mut(&(*ino, *space, owner.owner))
        {
            held.closed = false;
        }
        self.drop_unanswered(op);
    }

    /// Removes the locks that a request certainly gives up if it is carried out.
    fn drop_unanswered(&mut self, op: &LockOp) {
        match op {
            LockOp::Unset { ino, space, owner, range } => {
                if let Some(held) = self.held.get_mut(&(*ino, *space, owner.owner)) {
                    held.locks = without(&held.locks, *range);
                }
            }
            LockOp::Release { ino, owners } => {
                for owner in owners {
                    for space in LockSpace::ALL {
                        if let Some(held) = self.held.get_mut(&(*ino, space, owner.owner)) {
                            held.locks.clear();
                        }
                    }
                }
            }
            LockOp::Set { lock, .. } => {
                let Some(held) = self.held.get_mut(&(lock.ino, lock.space, lock.owner.owner)) else { return };
                let weakens = |has: &LockRecord| {
                    let range =
                        has.range.start() <= lock.range.start() && lock.range.end() <= has.range.end();
                    range && has.kind == LockKind::Write && lock.kind == LockKind::Read
                };
                match lock.space {
                    // Converting an flock(2) lock gives the old one up first, whether the new one is granted
                    // or not.
                    LockSpace::Flock => held.locks.retain(|has| has.kind == lock.kind),
                    // A request for a read lock that weakens a write lock of all its bytes cannot meet a
                    // conflict. Any other request may not be carried out, and then gives up nothing.
                    LockSpace::Posix if held.locks.iter().any(weakens) => {
                        held.locks = without(&held.locks, lock.range);
                        held.locks.push(*lock);
                    }
                    // A mapping lock has one owner and one kind.
                    LockSpace::Posix | LockSpace::Mapping => {}
                }
            }
            LockOp::Test(_) | LockOp::Cancel { .. } => {}
        }
    }
}

/// Whether a request may be cancelled, because its caller was killed. What it has taken ends with the open
/// file, except for a mapping lock. A release is needed in any case.
fn may_be_cancelled(op: &LockOp) -> bool {
    match op {
        LockOp::Set { lock, .. } => lock.space != LockSpace::Mapping,
        LockOp::Unset { .. } | LockOp::Test(_) => true,
        LockOp::Release { .. } | LockOp::Cancel { .. } => false,
    }
}

/// The locks without the part that lies in a range.
fn without(locks: &[LockRecord], range: LockRange) -> Vec<LockRecord> {
    let left = |lock: &LockRecord| {
        let lock = *lock;
        let pieces = match lock.range.overlaps(range) {
            true => lock.range.around(range),
            false => [Some(lock.range), None],
        };
        pieces.into_iter().flatten().map(move |range| LockRecord { range, ..lock })
    };
    locks.iter().flat_map(left).collect()
}

impl Locks {
    fn new(term: u64) -> Locks {
        let (held, lost) = (BTreeMap::new(), BTreeMap::new());
        Locks(Mutex::new(LockTable { term, last: 0, out: BTreeMap::new(), held, lost }))
    }

    /// Begins a request, which is cancelled with the call of `trace`.
    fn begin(&self, effect: ReplyEffect, op: LockOp, trace: Option<Arc<Trace>>) -> Request<'_> {
        let mut state = self.0.lock();
        state.drop_cancelled();
        state.last += 1;
        let id = state.last;
        state.out.insert(id, InFlight { op, trace });
        if let ReplyEffect::Held(key) = effect {
            state.held.entry(key).or_default().asking += 1;
        }
        let below = state.out.first_key_value().map_or(id, |(first, _)| *first);
        Request { locks: self, id, below, effect, answered: false }
    }

    /// Records the reply to a request. Returns false if it is from a leader of another term.
    fn record_reply(&self, request: &mut Request<'_>, reply: &LockReply) -> bool {
        let mut state = self.0.lock();
        if state.term != reply.term {
            return false;
        }
        request.answered = true;
        match &request.effect {
            ReplyEffect::Nothing => {}
            ReplyEffect::Held(key) => {
                let says = |held: &&mut Held| reply.at > 0 && held.at <= reply.at;
                if let Some(held) = state.held.get_mut(key).filter(says) {
                    held.at = reply.at;
                    held.closed &= reply.held.is_empty();
                    held.locks.clone_from(&reply.held);
                }
            }
            ReplyEffect::Released(keys) => {
                for key in keys {
                    // A lock with the same count was granted by the release itself, after it.
                    if let Some(held) = state.held.get_mut(key).filter(|held| held.at < reply.at) {
                        held.at = reply.at;
                        held.closed = true;
                        held.locks.clear();
                    }
                    state.forget_closed(key);
                }
            }
        }
        true
    }

    /// All held locks, in messages of at most `part` locks to a new leader.
    fn reclaim(&self, session: SessionId, term: u64, part: usize) -> Vec<Reclaim> {
        let mut state = self.0.lock();
        state.term = term;
        for op in state.out.values().map(|request| request.op.clone()).collect::<Vec<_>>() {
            state.drop_unanswered(&op);
        }
        // Each leader has a count of its own.
        state.held.values_mut().for_each(|held| held.at = 0);
        let all: Vec<LockRecord> = state.held.values().flat_map(|held| held.locks.iter().copied()).collect();
        let part_of =
            |locks: &[LockRecord]| Reclaim { locks: locks.to_vec(), ..Reclaim::part(session, term) };
        all.chunks(part).map(part_of).collect()
    }

    /// Whether a request has met a conflict that a release may have ended. `releases`: those of the file
    /// that were in flight at the first conflict, and have not been answered since.
    fn conflict_may_end(&self, op: &LockOp, outcome: LockOutcome, releases: &mut Option<Vec<u64>>) -> bool {
        let (LockOp::Set { lock, wait: false }, LockOutcome::Conflict(_)) = (op, outcome) else {
            return false;
        };
        let state = self.0.lock();
        let is_release = |op: &LockOp| matches!(op, LockOp::Release { ino, .. } if *ino == lock.ino);
        let in_flight = || state.out.iter().filter(|(_, request)| is_release(&request.op));
        let releases = releases.get_or_insert_with(|| in_flight().map(|(id, _)| *id).collect());
        let may_end = !releases.is_empty();
        releases.retain(|id| state.out.contains_key(id));
        may_end
    }

    /// Takes over from a session that has ended.
    fn inherit(&self, ended: &Locks) {
        let mut ended = ended.0.lock();
        let mut lost = std::mem::take(&mut ended.lost);
        for (key, held) in std::mem::take(&mut ended.held) {
            // Mapping locks are requested again.
            if !held.locks.is_empty() && key.1 != LockSpace::Mapping {
                lost.entry(key).or_default().extend(held.locks.iter().map(|lock| lock.range));
            }
        }
        self.0.lock().lost = lost;
    }

    fn has_lost(&self, key: &Key) -> bool {
        self.0.lock().lost.contains_key(key)
    }

    /// An owner gives up a range, and with it the lost locks in it.
    fn give_up_lost(&self, key: &Key, range: LockRange) {
        let mut state = self.0.lock();
        if let Some(lost) = state.lost.get_mut(key) {
            lost.retain(|one| one.start() < range.start() || one.end() > range.end());
            if lost.is_empty() {
                state.lost.remove(key);
            }
        }
    }

    /// How many locks are held.
    fn count(&self) -> usize {
        self.0.lock().held.values().map(|held| held.locks.len()).sum()
    }
}

/// Requests locks of programs from the leader, and records which are held.
pub(crate) struct LockClient {
    context: Arc<Context>,
    locks: Locks,
}

impl LockClient {
    /// `term`: of the leader that opened the session.
    pub(crate) fn new(context: &Arc<Context>, term: u64) -> LockClient {
        LockClient { context: context.clone(), locks: Locks::new(term) }
    }

    /// The session that holds the locks.
    pub(crate) fn session(&self) -> SessionId {
        self.context.id
    }

    /// How many locks are held.
    pub(crate) fn count(&self) -> usize {
        self.locks.count()
    }

    /// All held locks, in messages of at most `part` locks to a new leader.
    pub(crate) fn reclaim(&self, term: u64, part: usize) -> Vec<Reclaim> {
        self.locks.reclaim(self.context.id, term, part)
    }

    /// Takes over from a session that has ended.
    pub(crate) fn inherit(&self, ended: &LockClient) {
        self.locks.inherit(&ended.locks);
    }

    fn owner(&self, owner: u64) -> LockOwner {
        LockOwner { session: self.context.id, owner }
    }

    fn record(&self, lock: &Lock) -> LockRecord {
        let Lock { ino, space, owner, pid, range, kind } = *lock;
        LockRecord { ino, space, owner: self.owner(owner), pid, range, kind }
    }

    /// Repeats a request until it is answered or [cancelled](may_be_cancelled).
    pub(crate) fn request(
        &self,
        effect: ReplyEffect,
        wait: Option<&LockWait>,
        op: impl Fn(bool) -> LockOp,
    ) -> Result<LockOutcome, Errno> {
        let trace = may_be_cancelled(&op(false)).then(trace::followed).flatten();
        let is_cancelled = || trace.as_ref().is_some_and(|trace| trace.is_cancelled());
        if is_cancelled() {
            return Err(Errno::EINTR);
        }
        let mut request = self.locks.begin(effect, op(false), trace.clone());
        if let Some(wait) = wait {
            *wait.request.lock() = Some((self.context.id, request.id));
        }
        let (mut until, mut releases) = (None, None::<Vec<u64>>);
        let outcome = loop {
            let waits = wait.is_some_and(|wait| !wait.is_given_up());
            let (session, id, below) = (self.context.id, request.id, request.below);
            let asked = LockRequest { session, id, below, op: op(waits) };
            match wait_for(|done| self.context.transport.meta.lock(asked, done)) {
                Ok(reply) if self.locks.record_reply(&mut request, &reply) => {
                    let outcome = reply.outcome;
                    if outcome == LockOutcome::Done && trace.as_ref().is_some_and(|trace| !trace.carry_out())
                    {
                        break Err(Errno::EINTR);
                    }
                    if !self.locks.conflict_may_end(&op(waits), outcome, &mut releases) {
                        break Ok(outcome);
                    }
                }
                Ok(_) => tracing::debug!(request = id, "ignoring an earlier leader's reply about a lock"),
                Err(
                    error @ (MetaError::NotLeader { .. } | MetaError::Unavailable(_) | MetaError::Failed(_)),
                ) => tracing::debug!(request = id, %error, "a lock request failed; trying again"),
                // A later request may have told the leader to refuse it.
                Err(_) if is_cancelled() => break Err(Errno::EINTR),
                Err(error) => break Err(self.context.refused(error)),
            }
            if is_cancelled() {
                break Err(Errno::EINTR);
            }
            until = until.or_else(|| self.context.until());
            if let Err(errno) = self.context.pause_call(LOCK_RETRY_PAUSE, until) {
                break Err(errno);
            }
        };
        if let Some(wait) = wait {
            *wait.request.lock() = None;
        }
        outcome
    }

    /// Takes a lock: see [`Client::lock`](crate::Client::lock).
    pub(crate) fn lock(&self, lock: &Lock, wait: Option<&LockWait>) -> Result<(), Errno> {
        let record = self.record(lock);
        let key = (lock.ino, lock.space, lock.owner);
        if self.locks.has_lost(&key) {
            return Err(Errno::EIO);
        }
        match self.request(ReplyEffect::Held(key), wait, |wait| LockOp::Set { lock: record, wait })? {
            LockOutcome::Done => Ok(()),
            LockOutcome::Conflict(_) if wait.is_some() => Err(Errno::EINTR),
            LockOutcome::Conflict(_) => Err(Errno::EAGAIN),
            LockOutcome::Deadlock => Err(Errno::EDEADLK),
            LockOutcome::NoRoom => Err(Errno::ENOLCK),
            LockOutcome::Cancelled => Err(Errno::EINTR),
        }
    }

    /// Ends a wait that was given up, unless the lock has just been granted.
    pub(crate) fn cancel(&self, wait: &LockWait) {
        loop {
            let Some((of, id)) = *wait.request.lock() else { return };
            // The wait has ended with its session.
            if of != self.context.id {
                return;
            }
            let op = LockOp::Cancel { id };
            let request = self.locks.begin(ReplyEffect::Nothing, op.clone(), None);
            let asked = LockRequest { session: of, id: request.id, below: request.below, op };
            if wait_for(|done| self.context.transport.meta.lock(asked, done)).is_ok() {
                return;
            }
            // Without an answer here, the request itself gets none either. It is repeated without waiting.
            if self.context.pause_call(LOCK_RETRY_PAUSE, None).is_err() {
                return;
            }
        }
    }

    /// Gives up a range, held or not.
    pub(crate) fn unlock(&self, lock: &Lock) -> Result<(), Errno> {
        let Lock { ino, space, owner, range, .. } = *lock;
        let its = self.owner(owner);
        self.locks.give_up_lost(&(ino, space, owner), range);
        let op = |_| LockOp::Unset { ino, space, owner: its, range };
        match self.request(ReplyEffect::Held((ino, space, owner)), None, op)? {
            LockOutcome::Done => Ok(()),
            // Unlocking the middle of a lock leaves two.
            _ => Err(Errno::ENOLCK),
        }
    }

    /// A lock of another owner that conflicts with this one, if there is one.
    pub(crate) fn test(&self, lock: &Lock) -> Result<Option<LockRecord>, Errno> {
        let record = self.record(lock);
        Ok(match self.request(ReplyEffect::Nothing, None, |_| LockOp::Test(record))? {
            LockOutcome::Conflict(other) => Some(other),
            _ => None,
        })
    }

    /// Whether an owner may have locks in a file: it has requested some and not released them since.
    pub(crate) fn may_have(&self, ino: InodeId, owner: u64) -> bool {
        let state = self.locks.0.lock();
        let keys = LockSpace::BOTH.map(|space| (ino, space, owner));
        keys.iter().any(|key| state.held.contains_key(key) || state.lost.contains_key(key))
    }

    /// Whether any owner may have locks in a file.
    pub(crate) fn may_be_in(&self, ino: InodeId) -> bool {
        let state = self.locks.0.lock();
        let all = (ino, LockSpace::BOTH[0], 0)..=(ino, LockSpace::BOTH[1], u64::MAX);
        state.held.range(all.clone()).next().is_some() || state.lost.range(all).next().is_some()
    }

    /// Whether any of these owners has a lock in a file that was lost with a session and not given up since.
    pub(crate) fn have_lost(&self, ino: InodeId, owners: impl IntoIterator<Item = u64>) -> bool {
        let state = self.locks.0.lock();
        let lost = |owner, space| state.lost.contains_key(&(ino, space, owner));
        !state.lost.is_empty()
            && owners.into_iter().any(|its| lost(its, LockSpace::Posix) || lost(its, LockSpace::Flock))
    }

    /// Gives up all locks of these owners in a file.
    pub(crate) fn release(&self, ino: InodeId, owners: &[u64]) -> Result<(), Errno> {
        let its: Vec<LockOwner> = owners.iter().map(|owner| self.owner(*owner)).collect();
        let keys: Vec<Key> =
            owners.iter().flat_map(|owner| LockSpace::BOTH.map(|space| (ino, space, *owner))).collect();
        let effect = ReplyEffect::Released(keys.clone());
        let released = self.request(effect, None, |_| LockOp::Release { ino, owners: its.clone() });
        let mut state = self.locks.0.lock();
        for key in &keys {
            state.lost.remove(key);
        }
        released.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(3);
    const TERM: u64 = 5;
    const KEY: Key = (InodeId(9), LockSpace::Posix, 100);

    fn lock() -> LockRecord {
        let (owner, kind) = (LockOwner { session: SESSION, owner: KEY.2 }, LockKind::Write);
        LockRecord { ino: KEY.0, space: KEY.1, owner, pid: 1, range: LockRange::ALL, kind }
    }

    fn reply(at: u64, held: &[LockRecord]) -> LockReply {
        LockReply { term: TERM, at, outcome: LockOutcome::Done, held: held.to_vec() }
    }

    const OWNER: LockOwner = LockOwner { session: SESSION, owner: KEY.2 };

    fn of(space: LockSpace, start: u64, end: u64, kind: LockKind) -> LockRecord {
        let range = LockRange::new(start, end).expect("a range");
        LockRecord { ino: KEY.0, space, owner: OWNER, pid: 1, range, kind }
    }

    fn release() -> LockOp {
        LockOp::Release { ino: KEY.0, owners: vec![OWNER] }
    }

    fn reclaimed(locks: &Locks) -> Vec<LockRecord> {
        locks.reclaim(SESSION, TERM, 10).into_iter().flat_map(|part| part.locks).collect()
    }

    impl Locks {
        /// The owner requests a lock.
        fn asks(&self) -> Request<'_> {
            self.begin(ReplyEffect::Held(KEY), LockOp::Set { lock: lock(), wait: true }, None)
        }

        /// The owner closes the file, which the servers answer with this count.
        fn closes(&self, at: u64) {
            let mut release = self.begin(ReplyEffect::Released(vec![KEY]), release(), None);
            assert!(self.record_reply(&mut release, &reply(at, &[])));
        }

        fn is_known(&self) -> bool {
            self.0.lock().held.contains_key(&KEY)
        }
    }

    #[test]
    fn a_lock_that_is_granted_after_its_owner_has_closed_the_file_is_held_until_the_next_close() {
        let locks = Locks::new(TERM);
        let mut waits = locks.asks();
        locks.closes(7);
        assert!(locks.record_reply(&mut waits, &reply(8, &[lock()])));
        drop(waits);
        assert_eq!(reclaimed(&locks), [lock()]);
        assert!(locks.is_known());
        locks.closes(9);
        assert!(reclaimed(&locks).is_empty() && !locks.is_known());
    }

    #[test]
    fn answers_that_overtake_each_other_come_to_what_was_done_last() {
        for at in [4, 6] {
            let locks = Locks::new(TERM);
            let (mut takes, mut releases) =
                (locks.asks(), locks.begin(ReplyEffect::Released(vec![KEY]), release(), None));
            assert!(locks.record_reply(&mut takes, &reply(at, &[lock()])));
            assert!(locks.record_reply(&mut releases, &reply(5, &[])));
            drop((takes, releases));
            assert_eq!(locks.count(), usize::from(at > 5), "granted at {at}, told first");
        }
        // A lock may be granted by the release itself, right after it.
        for at in [4, 5, 6] {
            let locks = Locks::new(TERM);
            let mut takes = locks.asks();
            locks.closes(5);
            assert!(locks.record_reply(&mut takes, &reply(at, &[lock()])));
            drop(takes);
            assert_eq!(locks.count(), usize::from(at >= 5), "granted at {at}, told last");
            assert_eq!(locks.is_known(), at >= 5);
        }
    }

    #[test]
    fn owner_that_closed_the_file_is_forgotten_unless_a_reply_is_missing() {
        let locks = Locks::new(TERM);
        let (mut refused, unanswered) = (locks.asks(), locks.asks());
        locks.closes(5);
        assert!(locks.record_reply(&mut refused, &reply(6, &[])));
        drop(refused);
        assert!(locks.is_known());
        drop(unanswered);
        assert!(locks.is_known(), "it may have been granted after the release");
        locks.closes(7);
        assert!(!locks.is_known());
    }

    #[test]
    fn conflict_is_final_when_the_releases_in_flight_have_been_answered() {
        let locks = Locks::new(TERM);
        let op = LockOp::Set { lock: lock(), wait: false };
        let conflict = LockOutcome::Conflict(lock());
        assert!(!locks.conflict_may_end(&op, conflict, &mut None), "nothing is being released");
        let mut releases = None;
        let earlier = locks.begin(ReplyEffect::Released(vec![KEY]), release(), None);
        assert!(locks.conflict_may_end(&op, conflict, &mut releases));
        let _later = locks.begin(ReplyEffect::Released(vec![KEY]), release(), None);
        assert!(locks.conflict_may_end(&op, conflict, &mut releases));
        drop(earlier);
        assert!(
            locks.conflict_may_end(&op, conflict, &mut releases),
            "the conflict is from before the release"
        );
        assert!(!locks.conflict_may_end(&op, conflict, &mut releases));
    }

    #[test]
    fn leader_refuses_a_cancelled_request_once_its_owner_has_closed_the_file() {
        let locks = Locks::new(TERM);
        let caller = Arc::new(Trace::default());
        let op = LockOp::Set { lock: lock(), wait: true };
        let killed = locks.begin(ReplyEffect::Held(KEY), op, Some(caller.clone()));
        assert_eq!(locks.asks().below, killed.id, "it is repeated so far");
        assert!(caller.cancel());
        let mut release = locks.begin(ReplyEffect::Released(vec![KEY]), release(), None);
        assert!(release.below > killed.id, "no copy of it is carried out after the release");
        assert!(locks.record_reply(&mut release, &reply(6, &[])));
        drop((release, killed));
        assert!(!locks.is_known());
    }

    #[test]
    fn a_request_that_was_not_carried_out_says_nothing_of_what_is_held() {
        let locks = Locks::new(TERM);
        assert!(locks.record_reply(&mut locks.asks(), &reply(4, &[lock()])));
        assert_eq!(reclaimed(&locks), [lock()]);
        assert!(locks.record_reply(&mut locks.asks(), &reply(0, &[])));
        assert_eq!(reclaimed(&locks), [lock()]);
    }

    #[test]
    fn reply_of_a_leader_is_ignored_once_the_locks_were_reclaimed_from_the_next() {
        let locks = Locks::new(TERM);
        let (mut takes, mut again) = (locks.asks(), locks.asks());
        assert!(locks.record_reply(&mut takes, &reply(4, &[lock()])));
        drop(takes);
        assert_eq!(locks.reclaim(SESSION, TERM + 1, 10).len(), 1);
        assert!(!locks.record_reply(&mut again, &reply(5, &[])));
        assert_eq!(locks.count(), 1, "the lock was reclaimed from the new leader");
    }

    #[test]
    fn what_a_request_without_an_answer_gives_up_is_not_reclaimed() {
        use {LockKind::*, LockSpace::*};
        let unset = |start, end| {
            let LockRecord { ino, space, owner, range, .. } = of(Posix, start, end, Write);
            LockOp::Unset { ino, space, owner, range }
        };
        let set = |lock| LockOp::Set { lock, wait: true };
        let all = |space, kind| of(space, 0, LockRange::EOF, kind);
        let tens = |kind| vec![of(Posix, 0, 9, kind), of(Posix, 20, 29, kind)];
        let mixed = [of(Posix, 0, 4, Write), of(Posix, 10, 14, Write), of(Posix, 5, 9, Read)];
        for (held, op, left) in [
            (tens(Write), unset(0, 100), vec![]),
            (tens(Write), unset(5, 24), vec![of(Posix, 0, 4, Write), of(Posix, 25, 29, Write)]),
            (tens(Write), unset(10, 19), tens(Write)),
            (tens(Write), LockOp::Test(all(Posix, Write)), tens(Write)),
            (tens(Write), release(), vec![]),
            (vec![of(Posix, 0, 14, Write)], set(of(Posix, 5, 9, Read)), mixed.to_vec()),
            // The request may still wait, so it gives up nothing.
            (tens(Write), set(of(Posix, 0, 29, Read)), tens(Write)),
            (tens(Read), set(of(Posix, 0, 29, Write)), tens(Read)),
            (vec![all(Flock, Read)], set(all(Flock, Write)), vec![]),
            (vec![all(Flock, Write)], set(all(Flock, Read)), vec![]),
            (vec![all(Flock, Write)], set(all(Flock, Write)), vec![all(Flock, Write)]),
            (vec![all(Flock, Write)], release(), vec![]),
        ] {
            let key = (KEY.0, held[0].space, KEY.2);
            for gave_up_asking in [false, true] {
                let locks = Locks::new(TERM);
                let mut had = locks.begin(ReplyEffect::Held(key), set(held[0]), None);
                assert!(locks.record_reply(&mut had, &reply(4, &held)));
                drop(had);
                let request = locks.begin(ReplyEffect::Nothing, op.clone(), None);
                assert_eq!(locks.count(), held.len(), "it is held until the request is answered");
                let request = (!gave_up_asking).then_some(request);
                assert_eq!(reclaimed(&locks), left, "{op:?}, {gave_up_asking}");
                assert_eq!(locks.count(), left.len(), "no more was reclaimed");
                drop(request);
            }
        }
    }
}
