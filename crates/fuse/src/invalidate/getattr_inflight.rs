//! GETATTR requests, until their replies have been consumed (`docs/KERNEL_CACHE.md`, hazard 7).
//!
//! `fuse_change_attributes` ignores a reply if the inode was invalidated after the request, and a read(2)
//! that wanted the size continues with the old one. So `INVAL_INODE` is deferred until no GETATTR is in
//! flight and each reply has been consumed. The kernel does not report consumption. But a thread that was
//! answered does not sleep before it has consumed the reply, and consumes it as soon as it runs. On a busy
//! machine that may take milliseconds.
//!
//! A GETATTR that arrives after the invalidation has begun is waited for as well, because the attributes in
//! the kernel may be older than its reply. There are few: once a reply is consumed, the kernel sends no more.

use crate::host::{HostRef, Thread};
use crate::limits::{
    ANSWERS_KEPT_MAX, ATTRIBUTES_GRACE, ATTRIBUTES_LOOK_TIME, ATTRIBUTES_WAIT_MAX, LOOK_WAIT_MAX, TICK_MAX,
};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::InodeId;
use std::collections::{HashMap, VecDeque};

/// A reply that was sent.
#[derive(Clone, Copy, Debug)]
struct Answered {
    number: u64,
    ino: InodeId,
    /// The calling thread; 0 for threads of other containers, whose state cannot be read.
    tid: u32,
    /// The state of the thread just before the reply, if it was read.
    before: Option<Thread>,
    at: Instant,
}

/// GETATTR requests in flight, and the last replies.
#[derive(Default, Debug)]
pub(super) struct GetattrsInFlight {
    host: HostRef,
    in_flight: HashMap<InodeId, u32>,
    /// The last replies, oldest first.
    answered: VecDeque<Answered>,
    last_number: u64,
}

impl GetattrsInFlight {
    /// Of a mount on this host.
    pub(super) fn new(host: &HostRef) -> GetattrsInFlight {
        GetattrsInFlight { host: host.clone(), ..GetattrsInFlight::default() }
    }

    /// A GETATTR of the inode has arrived.
    pub(super) fn begin(&mut self, ino: InodeId) {
        *self.in_flight.entry(ino).or_insert(0) += 1;
    }

    /// A GETATTR is not in flight any more, and no thread has a reply to consume.
    pub(super) fn is_over(&mut self, ino: InodeId) {
        if let Some(count) = self.in_flight.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&ino);
            }
        }
    }

    /// Threads that were answered recently, once per reply.
    pub(super) fn threads(&self, ino: InodeId) -> impl Iterator<Item = u32> {
        let lately = self.answered.iter().rev().take_while(|answered| answered.at.elapsed() < LOOK_WAIT_MAX);
        lately.filter(move |answered| answered.ino == ino).map(|answered| answered.tid)
    }

    /// A GETATTR of this thread was answered; `before` is its state just before that, if it was read.
    pub(super) fn answered(&mut self, ino: InodeId, tid: u32, before: Option<Thread>) {
        self.is_over(ino);
        if self.answered.len() >= ANSWERS_KEPT_MAX {
            self.answered.pop_front();
        }
        self.last_number += 1;
        let (number, at) = (self.last_number, Instant::now());
        self.answered.push_back(Answered { number, ino, tid, before, at });
    }
}

/// An invalidation that waits for GETATTRs of the inode.
pub(super) struct Waiting {
    ino: InodeId,
    begun: Instant,
    /// Replies up to this number are known.
    known: u64,
    are_in_flight: bool,
    consumers: Vec<ReplyConsumer>,
}

impl Waiting {
    pub(super) fn of(ino: InodeId) -> Waiting {
        Waiting { ino, begun: Instant::now(), known: 0, are_in_flight: false, consumers: Vec::new() }
    }

    /// Updates the threads to wait for.
    pub(super) fn update(&mut self, getattrs: &GetattrsInFlight) {
        self.are_in_flight = getattrs.in_flight.contains_key(&self.ino);
        let fresh = getattrs.answered.iter().rev().take_while(|answered| answered.number > self.known);
        let mut consumers: Vec<ReplyConsumer> = Vec::new();
        for answered in fresh.filter(|answered| answered.ino == self.ino) {
            // A thread that has sent another GETATTR has consumed its earlier reply.
            if answered.tid == 0 || consumers.iter().all(|consumer| consumer.tid != answered.tid) {
                consumers.push(ReplyConsumer::new(&getattrs.host, answered));
            }
        }
        self.consumers.retain(|old| old.tid == 0 || consumers.iter().all(|consumer| consumer.tid != old.tid));
        self.consumers.append(&mut consumers);
        self.known = getattrs.last_number;
    }

    /// Whether all replies have been consumed, or are waited for no longer.
    pub(super) fn is_over(&mut self) -> bool {
        self.consumers.retain_mut(|consumer| !consumer.has_consumed());
        let waited = self.begun.elapsed();
        waited >= LOOK_WAIT_MAX
            || (self.consumers.is_empty() && (!self.are_in_flight || waited >= ATTRIBUTES_WAIT_MAX))
    }
}

/// A thread that was answered, and may not have consumed the reply.
pub(super) struct ReplyConsumer {
    pub(super) host: HostRef,
    pub(super) tid: u32,
    at: Instant,
    observation: Observation,
}

impl ReplyConsumer {
    fn new(host: &HostRef, answered: &Answered) -> ReplyConsumer {
        let observation = Observation { first: answered.before, again: None };
        ReplyConsumer { host: host.clone(), tid: answered.tid, at: answered.at, observation }
    }

    /// For a thread that may be about to consume a reply of another kind.
    pub(super) fn now(host: &HostRef, tid: u32) -> ReplyConsumer {
        ReplyConsumer { host: host.clone(), tid, at: Instant::now(), observation: Observation::default() }
    }

    pub(super) fn has_consumed(&mut self) -> bool {
        match self.tid {
            0 => self.at.elapsed() >= ATTRIBUTES_GRACE,
            tid => {
                self.at.elapsed() >= LOOK_WAIT_MAX || self.observation.shows_run(self.host.thread_state(tid))
            }
        }
    }
}

/// The observed states of a thread, from just before it was answered on.
#[derive(Default, Debug)]
struct Observation {
    first: Option<Thread>,
    /// Its run time when it was first seen to have been scheduled again.
    again: Option<Duration>,
}

impl Observation {
    /// Whether the thread has certainly run since. `now` is `None` if the thread has ended.
    fn shows_run(&mut self, now: Option<Thread>) -> bool {
        let Some(now) = now.filter(|now| !now.sleeps) else { return true };
        let first = *self.first.get_or_insert(now);
        let ran = now.ran.saturating_sub(first.ran);
        if now.is_exact || first.sleeps {
            return ran >= ATTRIBUTES_LOOK_TIME;
        }
        // The run time since the thread was scheduled is counted at the next tick, and so may be run time
        // from before the reply.
        if ran >= TICK_MAX + ATTRIBUTES_LOOK_TIME {
            return true;
        }
        let again = match self.again {
            None if now.turns == first.turns => return false,
            again => *self.again.insert(again.unwrap_or(now.ran)),
        };
        now.ran.saturating_sub(again) >= ATTRIBUTES_LOOK_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const FILE: InodeId = InodeId(8);
    const OTHER: InodeId = InodeId(9);
    /// No thread has this id.
    const NO_THREAD: u32 = u32::MAX;

    fn runs(turns: u64, ran: Duration) -> Option<Thread> {
        Some(Thread { sleeps: false, ran, turns, is_exact: false })
    }

    fn is_over(getattrs: &GetattrsInFlight, waiting: &mut Waiting) -> bool {
        waiting.update(getattrs);
        waiting.is_over()
    }

    #[test]
    fn a_question_is_waited_for_and_then_the_thread_that_asked_it() {
        let mut getattrs = GetattrsInFlight::default();
        let mut waiting = Waiting::of(FILE);
        assert!(is_over(&getattrs, &mut waiting));
        getattrs.begin(FILE);
        getattrs.begin(FILE);
        getattrs.begin(OTHER);
        assert!(!is_over(&getattrs, &mut waiting));
        getattrs.answered(FILE, NO_THREAD, None);
        assert!(!is_over(&getattrs, &mut waiting));
        // This thread runs, and nothing shows that it has run since the reply.
        getattrs.answered(FILE, nix::unistd::gettid().as_raw() as u32, None);
        waiting.update(&getattrs);
        assert_eq!(waiting.consumers.len(), 1, "the other has ended");
        assert!(!waiting.is_over(), "this is its first observed state");
        while !is_over(&getattrs, &mut waiting) {
            std::hint::spin_loop();
        }
        assert!(getattrs.in_flight.contains_key(&OTHER) && getattrs.in_flight.len() == 1);
    }

    #[test]
    fn a_thread_that_sleeps_again_has_looked() {
        let (tell_tid, tid) = channel();
        let (wake, sleep) = channel::<()>();
        let thread = std::thread::spawn(move || {
            tell_tid.send(nix::unistd::gettid().as_raw() as u32).expect("heard");
            let _ = sleep.recv();
        });
        let tid = tid.recv().expect("told");
        while !Thread::state_of(tid).expect("it is there").sleeps {
            std::thread::yield_now();
        }
        let mut getattrs = GetattrsInFlight::default();
        getattrs.begin(FILE);
        getattrs.answered(FILE, tid, None);
        assert!(is_over(&getattrs, &mut Waiting::of(FILE)));
        drop(wake);
        thread.join().expect("ends");
    }

    #[test]
    fn a_thread_that_was_not_given_a_processor_has_not_looked() {
        let mut observation = Observation::default();
        assert!(!observation.shows_run(runs(3, TICK_MAX)));
        assert!(!observation.shows_run(runs(3, TICK_MAX)));
        // Run time from before the reply is counted only now.
        assert!(!observation.shows_run(runs(3, TICK_MAX * 2)));
        assert!(!observation.shows_run(runs(4, TICK_MAX * 2)));
        assert!(observation.shows_run(runs(4, TICK_MAX * 2 + ATTRIBUTES_LOOK_TIME)));
    }

    #[test]
    fn thread_that_was_never_preempted_has_consumed_its_reply_after_a_tick() {
        let mut observation = Observation::default();
        assert!(!observation.shows_run(runs(3, Duration::ZERO)));
        assert!(observation.shows_run(runs(3, TICK_MAX + ATTRIBUTES_LOOK_TIME)));
        assert!(Observation::default().shows_run(None), "it has ended");
    }

    #[test]
    fn thread_that_slept_before_the_reply_has_consumed_it_after_running() {
        let first = Some(Thread { sleeps: true, ran: TICK_MAX, turns: 3, is_exact: false });
        let mut observation = Observation { first, again: None };
        assert!(!observation.shows_run(runs(4, TICK_MAX)));
        assert!(observation.shows_run(runs(4, TICK_MAX + ATTRIBUTES_LOOK_TIME)));
    }

    #[test]
    fn thread_with_several_getattrs_is_waited_for_once() {
        let mut getattrs = GetattrsInFlight::default();
        let mut waiting = Waiting::of(FILE);
        for _ in 0..3 {
            for tid in [NO_THREAD, NO_THREAD - 1] {
                getattrs.begin(FILE);
                getattrs.answered(FILE, tid, None);
            }
            waiting.update(&getattrs);
        }
        assert_eq!(waiting.consumers.len(), 2);
    }

    #[test]
    fn oldest_replies_are_forgotten() {
        let mut getattrs = GetattrsInFlight::default();
        for _ in 0..ANSWERS_KEPT_MAX + 1 {
            getattrs.begin(FILE);
            getattrs.answered(FILE, NO_THREAD, None);
        }
        assert_eq!(getattrs.answered.len(), ANSWERS_KEPT_MAX);
        assert!(getattrs.in_flight.is_empty());
    }
}
