//! Locks of programs: requests in, replies out, around the table of `shoal_lease::locks`.
//!
//! **A new leader** knows no locks. Requests to it are deferred until every session has reclaimed its locks,
//! or has ended.
//!
//! **Retried requests** are idempotent: a holder is granted its lock once more, a waiter keeps its place. A
//! late duplicate is refused, once the session has reported all requests up to it as answered.

use crate::limits::{LOCK_CANCELS_MAX, LOCKS_PUT_OFF_MAX};
use serde::{Deserialize, Serialize};
use shoal_lease::locks::{LockRange, LockTable, Outcome, RequestKey};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{InodeId, SessionId};
use shoal_wire::{
    Done, LockOp, LockOutcome, LockOwner, LockRecord, LockReply, LockRequest, LockSpace, MetaError,
};
use std::collections::{BTreeMap, BTreeSet};

/// Which locks are to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClearLocks {
    /// Requests that wait: they are refused with `ENOLCK`.
    pub blocked: bool,
    /// Locks that are held.
    pub granted: bool,
    /// Only these bytes of fcntl locks. flock locks are of whole files: they are removed if this is the whole
    /// file.
    pub range: LockRange,
}

impl ClearLocks {
    /// Whether this lock is to be removed.
    fn covers(&self, lock: &LockRecord) -> bool {
        match lock.space.is_of_whole_files() {
            true => self.range == LockRange::ALL,
            false => self.range.overlaps(lock.range),
        }
    }
}

/// A reply, and the callback that takes it.
pub(crate) type Answer = (Done<LockReply>, Result<LockReply, MetaError>);

/// The subject of a reply: the locks of one kind that this owner holds in a file.
type Key = (InodeId, LockSpace, LockOwner);

/// The locks and lock requests of a term.
#[derive(Default)]
pub(crate) struct Locks {
    pub(crate) table: LockTable,
    term: u64,
    /// Numbers the requests carried out.
    at: u64,
    waiting: BTreeMap<RequestKey, (Key, Done<LockReply>)>,
    /// Deferred until all sessions have reclaimed their locks.
    put_off: Vec<(LockRequest, Done<LockReply>)>,
    /// All requests of a session below this number have been answered.
    below: BTreeMap<SessionId, u64>,
    /// Requests that were cancelled before they arrived.
    cancelled: BTreeSet<RequestKey>,
    /// When a lock was last refused because of one that this session holds.
    refused_for: BTreeMap<SessionId, Instant>,
}

impl Locks {
    pub(crate) fn of_term(term: u64) -> Locks {
        Locks { term, ..Locks::default() }
    }

    /// Refuses all requests that wait or are deferred.
    pub(crate) fn end(self, why: &MetaError) -> Vec<Answer> {
        let waiting = self.waiting.into_values().map(|(_, done)| done);
        let all = waiting.chain(self.put_off.into_iter().map(|(_, done)| done));
        all.map(|done| (done, Err(why.clone()))).collect()
    }

    /// Defers a request until all sessions have reclaimed their locks.
    pub(crate) fn put_off(&mut self, request: LockRequest, done: Done<LockReply>) -> Vec<Answer> {
        let session = request.session;
        let LockOp::Cancel { id } = request.op else {
            if self.put_off.len() >= LOCKS_PUT_OFF_MAX {
                return vec![(
                    done,
                    Err(MetaError::Unavailable("too many requests wait for sessions to declare".into())),
                )];
            }
            self.put_off.push((request, done));
            return Vec::new();
        };
        let is_it = |(other, _): &(LockRequest, _)| other.session == session && other.id == id;
        let mut answers = vec![(done, Ok(self.reply(LockOutcome::Done)))];
        match self.put_off.iter().position(is_it) {
            Some(at) => {
                // The locks of its owner are unknown before its session has reclaimed them.
                let cancelled = LockReply { at: 0, ..self.reply(LockOutcome::Cancelled) };
                answers.push((self.put_off.remove(at).1, Ok(cancelled)));
            }
            None => self.remember_cancelled(RequestKey { session, request: id }),
        }
        answers
    }

    /// Carries out the deferred requests.
    pub(crate) fn go_on(&mut self) -> Vec<Answer> {
        let put_off = std::mem::take(&mut self.put_off);
        put_off.into_iter().flat_map(|(request, done)| self.take(request, done)).collect()
    }

    pub(crate) fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Carries a request out.
    pub(crate) fn take(&mut self, request: LockRequest, done: Done<LockReply>) -> Vec<Answer> {
        let LockRequest { session, id, below, op } = request;
        let answered = self.below.entry(session).or_default();
        if id < *answered {
            // Its sender does not wait for it any more.
            return vec![(done, Err(MetaError::Malformed("this request has been answered".into())))];
        }
        if below > *answered {
            *answered = below;
            let old = RequestKey { session, request: 0 }..RequestKey { session, request: below };
            let old: Vec<_> = self.cancelled.range(old).copied().collect();
            for key in old {
                self.cancelled.remove(&key);
            }
        }
        if op.owners().any(|owner| owner.session != session) {
            return vec![(done, Err(MetaError::Malformed("a lock of another session".into())))];
        }
        self.at += 1;
        let key = RequestKey { session, request: id };
        match op {
            LockOp::Set { lock, wait } => self.set(key, lock, wait, done),
            LockOp::Unset { ino, space, owner, range } => {
                let settled = self.table.unlock(ino, space, owner, range);
                let mut answers = self.granted(&settled.granted);
                answers.push((done, Ok(self.reply_of((ino, space, owner), outcome(&settled.outcome)))));
                answers
            }
            LockOp::Test(lock) => {
                let found = self.table.get(&lock).map_or(LockOutcome::Done, LockOutcome::Conflict);
                vec![(done, Ok(self.reply(found)))]
            }
            LockOp::Release { ino, owners } => {
                let mut granted = Vec::new();
                for owner in owners {
                    granted.extend(self.table.release_owner(ino, owner));
                }
                let mut answers = self.granted(&granted);
                answers.push((done, Ok(self.reply(LockOutcome::Done))));
                answers
            }
            LockOp::Cancel { id } => {
                let key = RequestKey { session, request: id };
                let mut answers = vec![(done, Ok(self.reply(LockOutcome::Done)))];
                match self.stop_waiting(key, LockOutcome::Cancelled) {
                    Some(answer) => answers.push(answer),
                    None => self.remember_cancelled(key),
                }
                answers
            }
        }
    }

    fn set(&mut self, key: RequestKey, lock: LockRecord, wait: bool, done: Done<LockReply>) -> Vec<Answer> {
        let cancelled = self.cancelled.remove(&key);
        let waits = wait && !cancelled;
        let mut answers = Vec::new();
        // An earlier copy of the request may wait: this one replaces it, and the earlier callback gets an
        // error or a cancellation.
        if waits {
            answers.extend(self.waiting.remove(&key).map(|(_, done)| (done, Err(superseded()))));
        } else {
            answers.extend(self.stop_waiting(key, LockOutcome::Cancelled));
        }
        let of = (lock.ino, lock.space, lock.owner);
        let settled = self.table.set(lock, waits.then_some(key));
        answers.extend(self.granted(&settled.granted));
        let outcome = match settled.outcome {
            Outcome::Waiting => {
                self.waiting.insert(key, (of, done));
                return answers;
            }
            Outcome::Conflict(_) if cancelled => LockOutcome::Cancelled,
            Outcome::Conflict(other) => {
                self.refused_for.insert(other.owner.session, Instant::now());
                LockOutcome::Conflict(other)
            }
            other => outcome(&other),
        };
        answers.push((done, Ok(self.reply_of(of, outcome))));
        answers
    }

    /// A session has ended.
    pub(crate) fn session_ended(&mut self, session: SessionId) -> Vec<Answer> {
        let fenced = || Err(MetaError::Fenced(session));
        let all = RequestKey { session, request: 0 }..=RequestKey { session, request: u64::MAX };
        let its: Vec<RequestKey> = self.waiting.range(all).map(|(key, _)| *key).collect();
        let waiting = its.iter().filter_map(|key| self.waiting.remove(key));
        let mut answers: Vec<Answer> = waiting.map(|(_, done)| (done, fenced())).collect();
        let (its, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.put_off)
            .into_iter()
            .partition(|(request, _)| request.session == session);
        self.put_off = others;
        answers.extend(its.into_iter().map(|(_, done)| (done, fenced())));
        self.below.remove(&session);
        self.refused_for.remove(&session);
        self.cancelled.retain(|key| key.session != session);
        self.at += 1;
        let granted = self.table.release_session(session);
        answers.extend(self.granted(&granted));
        answers
    }

    /// Removes locks of a file for an administrator. Returns the removed locks, the refused requests, and the
    /// replies to send.
    pub(crate) fn clear(
        &mut self,
        ino: InodeId,
        what: ClearLocks,
    ) -> (Vec<LockRecord>, Vec<LockRecord>, Vec<Answer>) {
        let (mut granted, mut blocked, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        self.at += 1;
        // Requests first: none of them may be granted by the removal of the locks.
        if what.blocked {
            for (key, lock) in self.table.waiting_in(ino).into_iter().filter(|(_, lock)| what.covers(lock)) {
                answers.extend(self.stop_waiting(key, LockOutcome::NoRoom));
                blocked.push(lock);
            }
        }
        if what.granted {
            for space in LockSpace::BOTH {
                for lock in self.table.held_in(ino, space).into_iter().filter(|lock| what.covers(lock)) {
                    let settled = self.table.unlock(ino, space, lock.owner, what.range);
                    answers.extend(self.granted(&settled.granted));
                    if settled.outcome == Outcome::Granted {
                        granted.push(lock);
                    }
                }
            }
        }
        (granted, blocked, answers)
    }

    /// Whether another owner waits for a lock of this session, or was refused one because of it within
    /// `silence`.
    pub(crate) fn blocks_others(&self, session: SessionId, silence: Duration) -> bool {
        let refused = self.refused_for.get(&session).is_some_and(|when| when.elapsed() < silence);
        self.table.held_count(session) > 0 && (refused || self.table.is_waited_for(session))
    }

    /// Replies to requests that have been granted.
    fn granted(&mut self, keys: &[RequestKey]) -> Vec<Answer> {
        let waiting: Vec<_> = keys.iter().filter_map(|key| self.waiting.remove(key)).collect();
        waiting.into_iter().map(|(of, done)| (done, Ok(self.reply_of(of, LockOutcome::Done)))).collect()
    }

    fn stop_waiting(&mut self, key: RequestKey, outcome: LockOutcome) -> Option<Answer> {
        let (of, done) = self.waiting.remove(&key)?;
        self.table.cancel(key);
        Some((done, Ok(self.reply_of(of, outcome))))
    }

    fn remember_cancelled(&mut self, key: RequestKey) {
        let answered = self.below.get(&key.session).is_some_and(|below| key.request < *below);
        if !answered && self.cancelled.len() < LOCK_CANCELS_MAX {
            self.cancelled.insert(key);
        }
    }

    fn reply(&self, outcome: LockOutcome) -> LockReply {
        LockReply { term: self.term, at: self.at, outcome, held: Vec::new() }
    }

    fn reply_of(&self, (ino, space, owner): Key, outcome: LockOutcome) -> LockReply {
        LockReply { held: self.table.held_of(ino, space, owner), ..self.reply(outcome) }
    }
}

fn outcome(outcome: &Outcome) -> LockOutcome {
    match outcome {
        Outcome::Granted | Outcome::Waiting => LockOutcome::Done,
        Outcome::Conflict(other) => LockOutcome::Conflict(*other),
        Outcome::Deadlock => LockOutcome::Deadlock,
        Outcome::NoRoom => LockOutcome::NoRoom,
    }
}

fn superseded() -> MetaError {
    MetaError::Unavailable("the same request has come once more".into())
}
