//! Rights of clients: executes what the table of `shoal_lease` decides.
//!
//! **Requests that wait** for other clients hold no thread: they are parked, and a few dedicated threads
//! resume them.
//!
//! **Order.** A session is registered for what it looks up before the store is read, so a later change of it
//! waits for that session. A change is prepared while no other session can read what it is about: covers and
//! names are looked up again until they are stable.
//!
//! **Fencing.** A session that blocks another is ended when it has been silent for [`SESSION_DEAD_AFTER`], or
//! has not acknowledged a recall within [`RECALL_MAX`]. Silence is measured from the last request of any
//! kind.

mod acquire;
mod ask;
mod locks;
mod walk;
mod watch;

pub(crate) use watch::run as watch;

use crate::limits::*;
use crate::shared::Shared;
use acquire::Acquiring;
use locks::Locks;
use shoal_lease::{Item, Refusal, RequestId, Table};
use shoal_namespace::kv::KvStore;
use shoal_namespace::{Command, Outcome, query};
use shoal_runtime::channel::{Receiver, Sender};
use shoal_runtime::planted::mistake;
use shoal_runtime::random;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BatchSeq, InodeId, SessionId};
use shoal_wire::{
    Ack, Acquire, AcquireReply, Ask, AskReply, Done, MetaError, Poll, Recall, Recalls, Reclaim,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Job = Box<dyn FnOnce() + Send>;

/// A request that waits for other clients.
enum Parked {
    Ask(Ask, Done<AskReply>),
    Acquire(Box<Acquiring>, Done<AcquireReply>),
}

/// A parked request, and since when it is parked.
struct Place {
    parked: Parked,
    since: Instant,
    /// It has been logged that it waits for long.
    is_logged: bool,
}

/// A parked request, for people to read.
pub(crate) struct Waiter {
    /// What it is: session, number and subject.
    what: String,
    waited: Duration,
    /// The sessions that it waits for.
    pub(crate) waits_for: Vec<SessionId>,
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {:.1} s", self.what, self.waited.as_secs_f64())
    }
}

/// A long-poll that is kept open until there are recalls.
struct Asking {
    done: Done<Recalls>,
    seen: u64,
    due: Instant,
}

struct Inner {
    table: Table,
    /// The term that the table is of.
    term: Option<u64>,
    since: Instant,
    parked: BTreeMap<RequestId, Place>,
    polls: BTreeMap<SessionId, Asking>,
    /// Locks of programs.
    locks: Locks,
}

/// The leader's leases, locks and parked requests.
pub(crate) struct Leases {
    inner: Mutex<Inner>,
    begun: Instant,
    jobs: Mutex<Option<Sender<Job>>>,
    pub(crate) work: Receiver<Job>,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl Leases {
    pub(crate) fn new() -> Leases {
        let (jobs, work) = shoal_runtime::channel::unbounded();
        let inner = Inner {
            table: Table::new(),
            term: None,
            since: Instant::now(),
            parked: BTreeMap::new(),
            polls: BTreeMap::new(),
            locks: Locks::default(),
        };
        Leases {
            inner: Mutex::new(inner),
            begun: Instant::now(),
            jobs: Mutex::new(Some(jobs)),
            work,
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        }
    }

    /// This replica leads in a new term, with these sessions, which have to reclaim their rights.
    pub(crate) fn adopt(&self, term: u64, sessions: impl Iterator<Item = SessionId>) {
        let table = match mistake("do not wait for what sessions held") {
            true => sessions.fold(Table::new(), |mut table, session| {
                table.begin(session);
                table
            }),
            false => Table::recover(sessions),
        };
        self.replace(table, Some(term));
    }

    /// Leadership is lost.
    pub(crate) fn deposed(&self) {
        self.replace(Table::new(), None);
    }

    fn replace(&self, table: Table, term: Option<u64>) {
        let mut inner = self.inner.lock();
        let since = Instant::now();
        let locks = Locks::of_term(term.unwrap_or_default());
        let fresh = Inner { table, term, since, parked: BTreeMap::new(), polls: BTreeMap::new(), locks };
        let old = std::mem::replace(&mut *inner, fresh);
        drop(inner);
        let away = || MetaError::NotLeader { leader: None };
        self.run(Box::new(move || {
            for place in old.parked.into_values() {
                place.parked.fail(away());
            }
            for poll in old.polls.into_values() {
                (poll.done)(Err(away()));
            }
            for (done, answer) in old.locks.end(&away()) {
                done(answer);
            }
        }));
    }

    /// Ends the threads; parked requests are refused.
    pub(crate) fn stop(&self) {
        self.deposed();
        self.jobs.lock().take();
        *self.stopping.lock() = true;
        self.stopped.notify_all();
    }

    /// Discards jobs that no thread is left for: they refer to the server, which refers to them.
    pub(crate) fn drop_work(&self) {
        while self.work.try_recv().is_ok() {}
    }

    fn run(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock() {
            // The receiver is kept here.
            let _ = jobs.send(job);
        }
    }

    /// The parked requests, those that wait for longest first.
    pub(crate) fn waiters(&self) -> Vec<Waiter> {
        let inner = self.inner.lock();
        let mut waiters: Vec<Waiter> =
            inner.parked.iter().map(|(id, place)| inner.waiter(*id, place)).collect();
        waiters.sort_by_key(|waiter| std::cmp::Reverse(waiter.waited));
        waiters
    }

    /// The recalls that are not acknowledged: session, number, for how many milliseconds, and of how many
    /// items.
    pub(crate) fn recalled(&self) -> Vec<(SessionId, u64, u64, usize)> {
        let mut inner = self.inner.lock();
        inner.table.set_now(self.begun.elapsed().as_millis() as u64);
        inner.table.all_unacknowledged()
    }

    /// The parked requests that have waited for longer than this and were not named before.
    pub(crate) fn take_slow(&self, longer: Duration) -> Vec<Waiter> {
        let mut inner = self.inner.lock();
        let is_due = |place: &Place| !place.is_logged && place.since.elapsed() > longer;
        let due: Vec<RequestId> =
            inner.parked.iter().filter(|(_, place)| is_due(place)).map(|(id, _)| *id).collect();
        let mut slow = Vec::new();
        for id in due {
            slow.extend(inner.parked.get(&id).map(|place| inner.waiter(id, place)));
            if let Some(place) = inner.parked.get_mut(&id) {
                place.is_logged = true;
            }
        }
        slow
    }

    /// Counters, for people and for monitoring.
    pub(crate) fn stats(&self) -> [(&'static str, u64); 6] {
        let inner = self.inner.lock();
        [
            ("lease_rights", inner.table.len() as u64),
            ("lease_waiting", inner.table.waiting() as u64),
            ("lease_recalls_total", inner.table.recalls()),
            ("lease_undeclared", inner.table.undeclared().len() as u64),
            ("locks", inner.locks.table.len() as u64),
            ("locks_waiting", inner.locks.table.waiting_count() as u64),
        ]
    }
}

impl Inner {
    fn waiter(&self, id: RequestId, place: &Place) -> Waiter {
        let what = match &place.parked {
            Parked::Ask(ask, _) => ask.token.request_name(ask.session, &format!("{:?}", ask.question)),
            Parked::Acquire(acquiring, _) => {
                let Acquire { session, token, wants, .. } = &acquiring.acquire;
                let inodes: Vec<InodeId> = wants.iter().map(|want| want.ino).collect();
                token.request_name(*session, &format!("rights to {inodes:?}"))
            }
        };
        let waits_for = self.table.waited_for(id).into_iter().collect();
        Waiter { what, waited: place.since.elapsed(), waits_for }
    }

    fn park(&mut self, id: RequestId, parked: Parked) {
        self.parked.insert(id, Place { parked, since: Instant::now(), is_logged: false });
    }
}

impl Parked {
    fn session(&self) -> SessionId {
        match self {
            Parked::Ask(ask, _) => ask.session,
            Parked::Acquire(acquiring, _) => acquiring.acquire.session,
        }
    }

    fn fail(self, error: MetaError) {
        match self {
            Parked::Ask(_, done) => done(Err(error)),
            Parked::Acquire(_, done) => done(Err(error)),
        }
    }
}

impl Shared {
    /// Changes the table of a term, and answers the requests that can go on after it. Refused if the table is
    /// another term's by now.
    fn with_table<T>(
        self: &Arc<Self>,
        term: u64,
        change: impl FnOnce(&mut Inner) -> T,
    ) -> Result<T, MetaError> {
        let leases = &self.leases;
        let mut inner = leases.inner.lock();
        if inner.term != Some(term) {
            return Err(self.replica.core.not_leader());
        }
        inner.table.set_now(leases.begun.elapsed().as_millis() as u64);
        let outcome = change(&mut inner);
        for id in inner.table.ready() {
            if let Some(Place { parked, .. }) = inner.parked.remove(&id) {
                let shared = self.clone();
                leases.run(Box::new(move || match parked {
                    Parked::Ask(ask, done) => shared.go_on_asking(term, Some(id), ask, done),
                    Parked::Acquire(acquiring, done) => shared.go_on_acquiring(term, acquiring, done),
                }));
            }
        }
        for session in inner.table.news() {
            if let Some(poll) = inner.polls.remove(&session) {
                let recalls = told(&mut inner.table, session, poll.seen);
                leases.run(Box::new(move || {
                    (poll.done)(Ok(Recalls { term, reclaim: false, recalls }));
                }));
            }
        }
        let answers = inner.locks_go_on();
        if !answers.is_empty() {
            leases.run(Box::new(move || answers.into_iter().for_each(|(done, answer)| done(answer))));
        }
        Ok(outcome)
    }

    /// A session has begun in this term.
    pub(crate) fn lease_begins(self: &Arc<Self>, term: u64, session: SessionId) -> Result<(), MetaError> {
        self.with_table(term, |inner| inner.table.begin(session))
    }

    /// A session has ended: its parked requests are refused, its rights and locks are released.
    pub(crate) fn lease_ends(self: &Arc<Self>, session: SessionId) {
        let Some(term) = self.leases.inner.lock().term else { return };
        // A table of another term learns of it when it is built.
        let _ = self.with_table(term, |inner| {
            let its_own =
                |(id, place): (&RequestId, &Place)| (place.parked.session() == session).then_some(*id);
            let ids: Vec<RequestId> = inner.parked.iter().filter_map(its_own).collect();
            for place in ids.into_iter().filter_map(|id| inner.parked.remove(&id)) {
                self.leases.run(Box::new(move || place.parked.fail(MetaError::Fenced(session))));
            }
            if let Some(poll) = inner.polls.remove(&session) {
                self.leases.run(Box::new(move || (poll.done)(Err(MetaError::Fenced(session)))));
            }
            if !mistake("keep what a session held") {
                inner.table.end(session);
            }
            let answers = inner.locks.session_ended(session);
            self.leases.run(Box::new(move || answers.into_iter().for_each(|(done, answer)| done(answer))));
        });
    }

    /// A batch is about to be proposed: its session gets the right to inodes created in it before any other
    /// session can see them.
    pub(crate) fn lease_born(
        self: &Arc<Self>,
        term: u64,
        (session, seq): (SessionId, BatchSeq),
        born: &[(InodeId, InodeId)],
    ) -> Result<(), MetaError> {
        if born.is_empty() || mistake("do not say what is born") {
            return Ok(());
        }
        let known = self.tree(query::session(&self.store, session))?;
        if known.is_some_and(|known| seq <= known.last) {
            // The batch is retried: other sessions may know by now what it has created, including those that
            // have not reclaimed from a new leader what they watch.
            return Ok(());
        }
        self.with_table(term, |inner| inner.table.born(session, born))
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
            // A table of another term does not know them.
            let _ = self.with_table(term, |inner| {
                inner.table.settled(session, born);
                inner.table.gone(session, gone);
            });
        }
    }

    pub(crate) fn ask(self: &Arc<Self>, ask: Ask, done: Done<AskReply>) {
        match self.admit(ask.session) {
            Ok(term) if ask.token.0 == 0 => done(self.answer_plainly(term, &ask)),
            Ok(term) => self.go_on_asking(term, None, ask, done),
            Err(error) => done(Err(error)),
        }
    }

    pub(crate) fn acquire(self: &Arc<Self>, acquire: Acquire, done: Done<AcquireReply>) {
        match self.admit(acquire.session) {
            Ok(term) => self.go_on_acquiring(term, Box::new(Acquiring::new(acquire)), done),
            Err(error) => done(Err(error)),
        }
    }

    pub(crate) fn poll(self: &Arc<Self>, poll: Poll, done: Done<Recalls>) {
        let refers: Vec<InodeId> = poll.acks.iter().flat_map(|ack| &ack.refers).copied().collect();
        if refers.is_empty() {
            return self.answer_poll(poll, done);
        }
        // The hold stays, whatever becomes of the change that caused the recall: the client is not asked
        // about these inodes again.
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
            // The session has ended, and holds nothing.
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
        let answered = self.with_table(term, |inner| {
            if poll.term != term || inner.table.is_undeclared(session) {
                return Some(Ok(Recalls { term, reclaim: true, recalls: Vec::new() }));
            }
            if !inner.table.knows(session) {
                return Some(Err(MetaError::Fenced(session)));
            }
            inner.table.arrived(session, poll.below.0);
            for Ack { id, refers, unwatched } in &poll.acks {
                tracing::trace!(%session, id, ?refers, ?unwatched, "acknowledged");
                inner.table.acknowledge(session, *id, unwatched);
            }
            if poll.wait_ms == 0 {
                return Some(Ok(Recalls { term, reclaim: false, recalls: Vec::new() }));
            }
            let recalls = told(&mut inner.table, session, poll.seen);
            if !recalls.is_empty() {
                return Some(Ok(Recalls { term, reclaim: false, recalls }));
            }
            if let Some(done) = done.take() {
                let old = inner.polls.insert(session, Asking { done, seen: poll.seen, due });
                // The client has given up waiting for the older long-poll.
                if let Some(old) = old {
                    self.leases.run(Box::new(move || {
                        (old.done)(Ok(Recalls { term, reclaim: false, recalls: Vec::new() }));
                    }));
                }
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
        let taken = self.with_table(term, |inner| {
            let is_new = inner.table.is_undeclared(said.session);
            inner.table.reclaim(said.session, &said.covers, &nodes, said.last)?;
            inner.table.born(said.session, &moved);
            // A delayed duplicate must not restore locks that were released since. No request waits yet for
            // what is declared.
            let locks = if is_new { said.locks.clone() } else { Vec::new() };
            Ok::<_, Refusal>(inner.locks.table.reclaim(said.session, locks).refused)
        })?;
        // Always logged: one of two clients believes it has a right that it has not.
        match taken {
            Ok(refused) if refused.is_empty() => Ok(()),
            contradiction => {
                tracing::error!(session = %said.session, ?contradiction, "what a session says it holds contradicts what others do");
                Err(MetaError::Fenced(said.session))
            }
        }
    }
}

/// The recalls that a session is sent.
fn told(table: &mut Table, session: SessionId, seen: u64) -> Vec<Recall> {
    let recalls = table.recalls_after(session, seen);
    if mistake("forget one watcher") && random::number().is_multiple_of(30) {
        recalls.iter().for_each(|recall| table.acknowledge(session, recall.id, &[]));
        return Vec::new();
    }
    let item = |item: Item| match item {
        Item::Downgrade(cover) => shoal_wire::Item::Downgrade(cover),
        Item::Release(ino) => shoal_wire::Item::Release(ino),
        Item::Drop(target) => shoal_wire::Item::Drop {
            ino: target.ino,
            cover: target.cover,
            names: target.names.into_iter().collect(),
            hold: target.hold,
        },
    };
    for recall in &recalls {
        tracing::trace!(%session, ?recall, "recalled");
    }
    recalls
        .into_iter()
        .map(|recall| Recall {
            id: recall.id,
            after: recall.after.into_iter().map(shoal_wire::Token).collect(),
            items: recall.items.into_iter().map(item).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_no_thread_is_left_for_keeps_nothing_alive() {
        let (leases, server) = (Leases::new(), Arc::new(()));
        let refers = server.clone();
        leases.run(Box::new(move || drop(refers)));
        leases.stop();
        leases.drop_work();
        assert_eq!(Arc::strong_count(&server), 1);
    }
}
