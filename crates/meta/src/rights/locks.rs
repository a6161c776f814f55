//! Requests for locks of programs, carried out on the locks of [`crate::leases`].

use crate::leases::ClearLocks;
use crate::shared::Shared;
use shoal_lease::Rights;
use shoal_types::{InodeId, SessionId};
use shoal_wire::{Done, LockRecord, LockReply, LockRequest, LockSpace, MetaError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts of what a session holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) rights: Rights,
    /// Locks of its programs.
    pub(crate) locks: u64,
    /// Requests for locks that wait.
    pub(crate) waiting: u64,
}

impl Shared {
    /// The locks of each session.
    pub(crate) fn held_by_sessions(
        self: &Arc<Self>,
        term: u64,
    ) -> Result<BTreeMap<SessionId, Held>, MetaError> {
        self.with_table(term, |leases| {
            let locks = &leases.locks.table;
            let held = |(session, rights): (SessionId, Rights)| {
                let of_program = |lock: &LockRecord| LockSpace::BOTH.contains(&lock.space);
                let held = locks.held_by(session).into_iter().filter(of_program).count();
                let waiting = locks.waiting_count_of(session);
                (session, Held { rights, locks: held as u64, waiting: waiting as u64 })
            };
            leases.table.rights().into_iter().map(held).collect()
        })
    }

    /// Removes locks and waiting requests of a file. Refused until all sessions have reclaimed their locks.
    pub(crate) fn take_locks_away(
        self: &Arc<Self>,
        term: u64,
        ino: InodeId,
        what: ClearLocks,
    ) -> Result<(Vec<LockRecord>, Vec<LockRecord>), MetaError> {
        let cleared = self.with_table(term, |leases| match leases.table.reclaiming().len() {
            0 => Ok(leases.locks.clear(ino, what)),
            left => Err(left),
        })?;
        let (granted, blocked, answers) = cleared.map_err(|left| {
            MetaError::Unavailable(format!(
                "{left} sessions have not told the new leader yet what they hold; try again"
            ))
        })?;
        answers.into_iter().for_each(|(done, answer)| done(answer));
        Ok((granted, blocked))
    }

    pub(crate) fn lock(self: &Arc<Self>, request: LockRequest, done: Done<LockReply>) {
        let session = request.session;
        let term = match self.admit(session) {
            Ok(term) => term,
            Err(error) => return done(Err(error)),
        };
        let mut kept = Some((request, done));
        let answers = self.with_table(term, |leases| {
            let Some((request, done)) = kept.take() else { return Vec::new() };
            if !leases.table.knows(session) {
                return vec![(done, Err(MetaError::Fenced(session)))];
            }
            match leases.table.reclaiming().is_empty() {
                true => leases.locks.take(request, done),
                false => leases.locks.put_off(request, done),
            }
        });
        match (answers, kept) {
            (Ok(answers), _) => answers.into_iter().for_each(|(done, answer)| done(answer)),
            (Err(error), Some((_, done))) => done(Err(error)),
            (Err(_), None) => {}
        }
    }
}
