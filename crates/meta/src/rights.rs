//! Rights of clients: carries out requests and recalls as the table of `shoal_lease` decides.
//!
//! **Requests that wait** for other clients hold no thread: they are parked, and a few dedicated threads
//! resume them.
//!
//! **Order.** A read registers its session as a watcher before it reads the store, so a later change waits
//! for that session. A change is prepared while no other session can read its targets; covers and names are
//! looked up again until they are stable.
//!
//! **Fencing.** A session that blocks another is ended when it has been silent for [`SESSION_DEAD_AFTER`], or
//! has not acknowledged a recall within [`RECALL_MAX`]. Silence is measured from the last request of any
//! kind.

mod acquire;
mod locks;
mod read;
mod walk;
mod watch;

pub(crate) use watch::run as watch;

use crate::leases::{Acquiring, Job, Parked, TermLeases};
use crate::limits::*;
use crate::shared::Shared;
use crate::tasks::Work;
use shoal_lease::{Refusal, RequestId};
use shoal_namespace::kv::KvStore;
use shoal_namespace::{Command, Outcome, query};
use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BatchSeq, InodeId, SessionId};
use shoal_wire::{
    Ack, Acquire, AcquireReply, Done, MetaError, Poll, ReadReply, ReadRequest, Recalls, Reclaim,
};
use std::sync::Arc;

impl Shared {
    /// Changes the leases of a term, and answers the requests that can go on after it. Refused if this is
    /// another term by now.
    fn with_table<T>(
        self: &Arc<Self>,
        term: u64,
        change: impl FnOnce(&mut TermLeases) -> T,
    ) -> Result<T, MetaError> {
        let resume = |id: RequestId, parked: Parked| -> Job {
            let shared = self.clone();
            Box::new(move || match parked {
                Parked::Read(request, done) => shared.continue_read(term, Some(id), request, done),
                Parked::Acquire(acquiring, done) => shared.continue_acquire(term, acquiring, done),
            })
        };
        self.leases.change(term, resume, change).ok_or_else(|| self.replica.core.not_leader())
    }

    /// A session has begun in this term.
    pub(crate) fn lease_begins(self: &Arc<Self>, term: u64, session: SessionId) -> Result<(), MetaError> {
        self.with_table(term, |leases| leases.table.begin(session))
    }

    /// A session has ended: its parked requests are refused, its rights and locks are released.
    fn lease_ends(self: &Arc<Self>, session: SessionId) {
        let Some(term) = self.leases.term() else { return };
        // The table of another term is built without this session.
        let _ = self.with_table(term, |leases| {
            leases.session_ended(session).into_iter().for_each(|job| self.leases.run(job));
        });
    }

    /// Fences a session: its requests are refused from now on, its orphans are reaped, and blocks that it
    /// stored without committing are deleted.
    pub(crate) fn end_session(self: &Arc<Self>, session: SessionId) -> Result<(), MetaError> {
        self.sessions.remove(session);
        if !mistake("accept requests of an ended session") {
            while let Outcome::Closed { more: true } = self.propose(&Command::CloseSession { session })? {}
        }
        // After the fence, because nothing that the session has in flight can be committed then.
        self.lease_ends(session);
        self.background.add(Work { sweep: vec![session], ..Work::default() });
        Ok(())
    }

    /// A batch is about to be proposed: its session gets the right to inodes created in it before any other
    /// session can see them.
    pub(crate) fn lease_born(
        self: &Arc<Self>,
        term: u64,
        (session, seq): (SessionId, BatchSeq),
        born: &[(InodeId, InodeId)],
    ) -> Result<(), MetaError> {
        if born.is_empty() || mistake("grant no rights to new inodes") {
            return Ok(());
        }
        let known = self.tree(query::session(&self.store, session))?;
        if known.is_some_and(|known| seq <= known.last) {
            // The batch was applied before, and is retried: other sessions may watch by now what it has
            // created, and may not have reclaimed that from a new leader.
            return Ok(());
        }
        self.with_table(term, |leases| leases.table.born(session, born))
    }

    /// A batch has been applied: the inodes in `born` are found in their directories, those in `gone` no
    /// longer exist.
    pub(crate) fn lease_applied(
        self: &Arc<Self>,
        term: u64,
        session: SessionId,
        born: &[(InodeId, InodeId)],
        gone: &[InodeId],
    ) {
        if !born.is_empty() || !gone.is_empty() {
            // The table of another term has no such rights.
            let _ = self.with_table(term, |leases| {
                leases.table.settled(session, born);
                leases.table.gone(session, gone);
            });
        }
    }

    pub(crate) fn serve_read(self: &Arc<Self>, request: ReadRequest, done: Done<ReadReply>) {
        match self.admit(request.session) {
            Ok(term) if request.token.0 == 0 => done(self.read_unleased(term, &request)),
            Ok(term) => self.continue_read(term, None, request, done),
            Err(error) => done(Err(error)),
        }
    }

    pub(crate) fn acquire(self: &Arc<Self>, acquire: Acquire, done: Done<AcquireReply>) {
        match self.admit(acquire.session) {
            Ok(term) => self.continue_acquire(term, Box::new(Acquiring::new(acquire)), done),
            Err(error) => done(Err(error)),
        }
    }

    pub(crate) fn poll(self: &Arc<Self>, poll: Poll, done: Done<Recalls>) {
        let refers: Vec<InodeId> = poll.acks.iter().flat_map(|ack| &ack.refers).copied().collect();
        if refers.is_empty() {
            return self.answer_poll(poll, done);
        }
        // The hold is logged even if the change that caused the recall fails: the client does not report
        // these inodes again.
        let shared = self.clone();
        self.leases.run(Box::new(move || match shared.hold(poll.session, refers) {
            Ok(()) => shared.answer_poll(poll, done),
            Err(error) => done(Err(error)),
        }));
    }

    /// Records in the log that a session refers to inodes, which may lose their last names soon.
    fn hold(self: &Arc<Self>, session: SessionId, inodes: Vec<InodeId>) -> Result<(), MetaError> {
        self.admit(session)?;
        match self.propose(&Command::Hold { session, inodes })? {
            // A session that has ended holds nothing.
            Outcome::Done | Outcome::Fenced { .. } => Ok(()),
            other => Err(MetaError::Failed(format!("a hold was answered with {other:?}"))),
        }
    }

    fn answer_poll(self: &Arc<Self>, poll: Poll, done: Done<Recalls>) {
        let session = poll.session;
        let term = match self.admit(session) {
            Ok(term) => term,
            Err(error) => return done(Err(error)),
        };
        let due = Instant::now() + Duration::from_millis(poll.wait_ms).min(POLL_WAIT_MAX);
        let mut done = Some(done);
        let answered = self.with_table(term, |leases| {
            if poll.term != term || leases.table.is_reclaiming(session) {
                return Some(Ok(Recalls { term, reclaim: true, recalls: Vec::new() }));
            }
            if !leases.table.knows(session) {
                return Some(Err(MetaError::Fenced(session)));
            }
            leases.table.arrived(session, poll.below.0);
            for Ack { id, refers, unwatched } in &poll.acks {
                tracing::trace!(%session, id, ?refers, ?unwatched, "acknowledged");
                leases.table.acknowledge(session, *id, unwatched);
            }
            if poll.wait_ms == 0 {
                return Some(Ok(Recalls { term, reclaim: false, recalls: Vec::new() }));
            }
            let recalls = leases.recalls_for(session, poll.seen);
            if !recalls.is_empty() {
                return Some(Ok(Recalls { term, reclaim: false, recalls }));
            }
            if let Some(done) = done.take()
                && let Some(answer_older) = leases.keep_poll(session, (done, poll.seen, due))
            {
                self.leases.run(answer_older);
            }
            None
        });
        let answer = match answered {
            Ok(None) => return,
            Ok(Some(answer)) => answer,
            Err(error) => Err(error),
        };
        if let Some(done) = done {
            done(answer);
        }
    }

    pub(crate) fn reclaim(self: &Arc<Self>, said: &Reclaim) -> Result<(), MetaError> {
        let term = self.admit(said.session)?;
        if said.term != term {
            return Err(MetaError::Unavailable("another replica leads by now".into()));
        }
        if !said.refers.is_empty() {
            self.hold(said.session, said.refers.clone())?;
        }
        // An inode that was moved by a batch that is going to be retried is still found in its old directory.
        let state = self.store.snapshot();
        let (mut nodes, mut moved) = (said.nodes.clone(), Vec::new());
        for (ino, cover, _) in &mut nodes {
            if let Some(inode) = self.tree(query::record(&state, *ino))?
                && inode.cover(*ino) != *cover
            {
                moved.push((*ino, *cover));
                *cover = inode.cover(*ino);
            }
        }
        drop(state);
        tracing::trace!(session = %said.session, covers = ?said.covers, ?nodes, last = said.last, "declared");
        let taken = self.with_table(term, |leases| {
            let is_new = leases.table.is_reclaiming(said.session);
            leases.table.reclaim(said.session, &said.covers, &nodes, said.last)?;
            leases.table.born(said.session, &moved);
            // A delayed duplicate must not restore locks that were released since.
            let locks = if is_new { said.locks.clone() } else { Vec::new() };
            Ok::<_, Refusal>(leases.locks.table.reclaim(said.session, locks).refused)
        })?;
        // Logged as an error: one of two clients counts on a right that it does not have.
        match taken {
            Ok(refused) if refused.is_empty() => Ok(()),
            contradiction => {
                tracing::error!(session = %said.session, ?contradiction, "a session reclaims rights or locks that conflict with others");
                Err(MetaError::Fenced(said.session))
            }
        }
    }
}
