//! The leases of a leader: the table of `shoal_lease`, the requests that wait for other clients, the open
//! long-polls, and the locks of programs. `rights` carries out the requests of clients on them.

mod locks;
mod parked;

pub use locks::ClearLocks;
pub(crate) use locks::Locks;
pub(crate) use parked::{Acquiring, Parked, Waiter};

use crate::limits::LEASE_TICK;
use parked::Place;
use shoal_lease::{Item, RequestId, Table};
use shoal_runtime::channel::{Receiver, Sender};
use shoal_runtime::planted::mistake;
use shoal_runtime::random;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::SessionId;
use shoal_wire::{Done, MetaError, Recall, Recalls};
use std::collections::BTreeMap;

/// The job of a dedicated thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A long-poll that is kept open until there are recalls.
struct OpenPoll {
    done: Done<Recalls>,
    seen: u64,
    due: Instant,
}

/// The leases of one term of leadership.
pub(crate) struct TermLeases {
    pub(crate) table: Table,
    /// `None`: this replica does not lead.
    term: Option<u64>,
    /// Begin of the term.
    pub(crate) since: Instant,
    parked: BTreeMap<RequestId, Place>,
    polls: BTreeMap<SessionId, OpenPoll>,
    /// Locks of programs.
    pub(crate) locks: Locks,
}

/// The leader's leases, locks and parked requests.
pub(crate) struct Leases {
    inner: Mutex<TermLeases>,
    begun: Instant,
    jobs: Mutex<Option<Sender<Job>>>,
    pub(crate) work: Receiver<Job>,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl Leases {
    pub(crate) fn new() -> Leases {
        let (jobs, work) = shoal_runtime::channel::unbounded();
        let inner = TermLeases {
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
        let table = match mistake("do not wait for reclaims") {
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
        let fresh = TermLeases { table, term, since, parked: BTreeMap::new(), polls: BTreeMap::new(), locks };
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

    /// Queues a job for the dedicated threads.
    pub(crate) fn run(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock() {
            // The receiver lives as long as this.
            let _ = jobs.send(job);
        }
    }

    /// The term of the table; `None` if this replica does not lead.
    pub(crate) fn term(&self) -> Option<u64> {
        self.inner.lock().term
    }

    /// Changes the leases of a term, and answers the requests that can go on after it; `resume` makes the job
    /// that continues a parked one. `None`: this is another term by now, and nothing is changed.
    pub(crate) fn change<T>(
        &self,
        term: u64,
        resume: impl Fn(RequestId, Parked) -> Job,
        change: impl FnOnce(&mut TermLeases) -> T,
    ) -> Option<T> {
        let mut inner = self.inner.lock();
        if inner.term != Some(term) {
            return None;
        }
        inner.table.set_now(self.begun.elapsed().as_millis() as u64);
        let outcome = change(&mut inner);
        for id in inner.table.ready() {
            if let Some(Place { parked, .. }) = inner.parked.remove(&id) {
                self.run(resume(id, parked));
            }
        }
        for session in inner.table.news() {
            if let Some(poll) = inner.polls.remove(&session) {
                let recalls = inner.recalls_for(session, poll.seen);
                self.run(Box::new(move || {
                    (poll.done)(Ok(Recalls { term, reclaim: false, recalls }));
                }));
            }
        }
        let answers = inner.locks_go_on();
        if !answers.is_empty() {
            self.run(Box::new(move || answers.into_iter().for_each(|(done, answer)| done(answer))));
        }
        Some(outcome)
    }

    /// Waits until waiters are to be checked for timeouts; false once the server stops.
    pub(crate) fn wait_tick(&self) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, LEASE_TICK);
        }
        !*stopping
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

    /// The recalls that a session has not acknowledged.
    pub(crate) fn unacknowledged(&self, session: SessionId) -> Vec<(u64, Vec<Item>)> {
        self.inner.lock().table.unacknowledged(session)
    }

    /// The parked requests that have waited for longer than this and were not returned before.
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

    /// Counters, for administrators and monitoring.
    pub(crate) fn stats(&self) -> [(&'static str, u64); 6] {
        let inner = self.inner.lock();
        [
            ("lease_rights", inner.table.len() as u64),
            ("lease_waiting", inner.table.waiting() as u64),
            ("lease_recalls_total", inner.table.recalls()),
            ("lease_undeclared", inner.table.reclaiming().len() as u64),
            ("locks", inner.locks.table.len() as u64),
            ("locks_waiting", inner.locks.table.waiting_count() as u64),
        ]
    }
}

impl TermLeases {
    fn waiter(&self, id: RequestId, place: &Place) -> Waiter {
        let waits_for = self.table.waited_for(id).into_iter().collect();
        Waiter { what: place.parked.name(), waited: place.since.elapsed(), waits_for }
    }

    /// Keeps a request until the table lets it go on.
    pub(crate) fn park(&mut self, id: RequestId, parked: Parked) {
        self.parked.insert(id, Place { parked, since: Instant::now(), is_logged: false });
    }

    /// Keeps a long-poll open until there are recalls, or until `due`. The returned job answers the session's
    /// older long-poll, for which its client does not wait any more.
    pub(crate) fn keep_poll(
        &mut self,
        session: SessionId,
        (done, seen, due): (Done<Recalls>, u64, Instant),
    ) -> Option<Job> {
        let old = self.polls.insert(session, OpenPoll { done, seen, due });
        old.map(|old| self.answer_without_recalls(old))
    }

    /// Jobs that answer the long-polls which have been open for long enough.
    pub(crate) fn expire_polls(&mut self, now: Instant) -> Vec<Job> {
        let due: Vec<SessionId> =
            self.polls.iter().filter(|(_, poll)| poll.due <= now).map(|(session, _)| *session).collect();
        let polls: Vec<OpenPoll> = due.iter().filter_map(|session| self.polls.remove(session)).collect();
        polls.into_iter().map(|poll| self.answer_without_recalls(poll)).collect()
    }

    fn answer_without_recalls(&self, poll: OpenPoll) -> Job {
        let term = self.term.unwrap_or_default();
        Box::new(move || (poll.done)(Ok(Recalls { term, reclaim: false, recalls: Vec::new() })))
    }

    /// A session has ended: its rights and locks are released. The returned jobs refuse its requests.
    pub(crate) fn session_ended(&mut self, session: SessionId) -> Vec<Job> {
        let its_own = |(id, place): (&RequestId, &Place)| (place.parked.session() == session).then_some(*id);
        let ids: Vec<RequestId> = self.parked.iter().filter_map(its_own).collect();
        let mut jobs: Vec<Job> = Vec::new();
        for place in ids.into_iter().filter_map(|id| self.parked.remove(&id)) {
            jobs.push(Box::new(move || place.parked.fail(MetaError::Fenced(session))));
        }
        if let Some(poll) = self.polls.remove(&session) {
            jobs.push(Box::new(move || (poll.done)(Err(MetaError::Fenced(session)))));
        }
        if !mistake("keep the rights of an ended session") {
            self.table.end(session);
        }
        let answers = self.locks.session_ended(session);
        jobs.push(Box::new(move || answers.into_iter().for_each(|(done, answer)| done(answer))));
        jobs
    }

    /// Replies to lock requests after a change of the table. No lock is granted before all sessions have
    /// reclaimed theirs.
    fn locks_go_on(&mut self) -> Vec<locks::Answer> {
        match self.locks.has_put_off() && self.table.reclaiming().is_empty() {
            true => self.locks.go_on(),
            false => Vec::new(),
        }
    }

    /// The recalls that a session is sent.
    pub(crate) fn recalls_for(&mut self, session: SessionId, seen: u64) -> Vec<Recall> {
        let table = &mut self.table;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn jobs_left_after_the_threads_ended_are_dropped() {
        let (leases, server) = (Leases::new(), Arc::new(()));
        let refers = server.clone();
        leases.run(Box::new(move || drop(refers)));
        leases.stop();
        leases.drop_work();
        assert_eq!(Arc::strong_count(&server), 1);
    }
}
