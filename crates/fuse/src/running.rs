//! Requests that wait: what is in flight, for state dumps and for the log of slow operations, and calls of
//! programs that were killed.
//!
//! **Model.** A request that could not be answered from memory is registered from then until its reply. A
//! thread periodically looks for those that have taken longer than the mount's threshold. Each is logged once
//! while it waits, with the time per hop and with what it waits for, and once more when it has its reply.
//!
//! A program that was killed does not die before its request has a reply: the kernel waits for it without end
//! (`request_wait_answer` in `fs/fuse/dev.c`). So the same thread looks whether those who wait were killed,
//! and replies `EINTR` to them, unless the call has been carried out. A process that closes its files because
//! it ends gets this reply, too: no signal reaches it any more. Other signals end no call, except waits for
//! locks: programs do not expect `EINTR` from files.
//!
//! **Bounds.** The number of lines per minute is limited; the number of omitted ones is logged.

use crate::context::{Context, Op};
use crate::host::HostRef;
use crate::limits::{KILLED_LOOK_EVERY, SLOW_LOGGED_MAX, SLOW_LOGGED_PERIOD, SLOW_LOOK_EVERY_MIN};
use shoal_channel::Canceller;
use shoal_client::{Hop, Trace};
use shoal_runtime::log_limit::LogLimit;
use shoal_runtime::sync::{Condvar, Mutex, unlocked};
use shoal_runtime::thread::{Builder, JoinHandle};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The requests that wait.
pub(crate) struct Running {
    /// Requests that take longer are logged; `None`: none is.
    threshold: Option<Duration>,
    state: Mutex<State>,
    /// Signalled at the end of the mount.
    ended: Condvar,
    log: LogLimit,
    host: HostRef,
}

#[derive(Default)]
struct State {
    last: u64,
    requests: BTreeMap<u64, Request>,
    over: bool,
}

struct Request {
    context: Context,
    trace: Arc<Trace>,
    logging: Logging,
    canceller: Option<Canceller>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Logging {
    /// It is not slow so far.
    NotYet,
    Logged,
    /// It was slow when enough had been logged.
    LeftOut,
}

/// A request that waits, until this is dropped.
pub(crate) struct InFlight {
    running: Arc<Running>,
    number: u64,
    context: Context,
    trace: Arc<Trace>,
}

impl Running {
    pub(crate) fn new(threshold: Option<Duration>, host: &HostRef) -> Arc<Running> {
        let log = LogLimit::new(SLOW_LOGGED_MAX, SLOW_LOGGED_PERIOD);
        Arc::new(Running {
            threshold,
            state: Mutex::default(),
            ended: Condvar::new(),
            log,
            host: host.clone(),
        })
    }

    /// Starts the thread that logs, and cancels.
    pub(crate) fn start(self: &Arc<Running>) -> std::io::Result<JoinHandle<()>> {
        let running = self.clone();
        let logs = |threshold: Duration| (threshold / 4).clamp(SLOW_LOOK_EVERY_MIN, KILLED_LOOK_EVERY);
        let pause = self.threshold.map_or(KILLED_LOOK_EVERY, logs);
        let run = move || {
            let mut state = running.state.lock();
            while !state.over {
                running.ended.wait_for(&mut state, pause);
                if let Some(threshold) = running.threshold {
                    state.log_slow(threshold, &running.log);
                }
                let cancelled = state.cancel_killed(&running.host);
                // A reply may wait for a thread that begins a request.
                unlocked(&mut state, || {
                    cancelled.iter().for_each(|canceller| canceller.error(libc::EINTR));
                });
            }
        };
        Builder::new().name("fuse-slow".into()).spawn(run)
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.state.lock().over = true;
        self.ended.notify_all();
    }

    /// A request begins to wait, for a thread at first. With a canceller it is cancelled when its caller is
    /// killed.
    pub(crate) fn begin(self: &Arc<Running>, context: Context, canceller: Option<Canceller>) -> InFlight {
        let trace = Arc::new(Trace::default());
        trace.begin(Hop::Thread, "a thread of the mount".into());
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        let request = Request { context, trace: trace.clone(), logging: Logging::NotYet, canceller };
        state.requests.insert(number, request);
        InFlight { running: self.clone(), number, context, trace }
    }

    /// The requests in flight, a line each, those that wait for longest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut requests: Vec<&Request> = state.requests.values().collect();
        requests.sort_by_key(|request| request.context.begun);
        let line = |request: &&Request| {
            let took = request.context.begun.elapsed();
            let mut text = format!("{} for {:.1} s", request.context, took.as_secs_f64());
            if let Some(now) = request.trace.now() {
                let _ = write!(text, ", waits for {now}");
            }
            text
        };
        requests.iter().map(line).collect()
    }
}

impl State {
    /// Cancels the requests of those who were killed while they waited. They are to be replied to.
    fn cancel_killed(&mut self, host: &HostRef) -> Vec<Canceller> {
        let mut cancelled = Vec::new();
        for request in self.requests.values_mut() {
            let Request { context, trace, canceller, .. } = request;
            let Context { thread, op, begun, .. } = *context;
            let waits_long = thread != 0 && begun.elapsed() >= KILLED_LOOK_EVERY;
            if !waits_long || canceller.is_none() {
                continue;
            }
            let goes_on = op.goes_on_without_its_caller();
            if goes_on && host.is_exiting(thread) || host.is_killed(thread) && (goes_on || trace.cancel()) {
                tracing::info!("replied EINTR, because the caller was killed or has ended: {context}");
                cancelled.extend(canceller.take());
            }
        }
        cancelled
    }

    fn log_slow(&mut self, threshold: Duration, log: &LogLimit) {
        let is_due = |request: &&mut Request| {
            // Waits for locks are not logged: a program may hold a lock for any time.
            request.logging == Logging::NotYet
                && request.context.op != Op::Setlkw
                && request.context.begun.elapsed() >= threshold
        };
        for request in self.requests.values_mut().filter(is_due) {
            let admitted = log.admits();
            if let Some(left_out) = admitted.filter(|left_out| *left_out > 0) {
                tracing::warn!(left_out, "more slow operations were not logged");
            }
            request.logging = if admitted.is_some() { Logging::Logged } else { Logging::LeftOut };
            if admitted.is_some() {
                let took = request.context.begun.elapsed();
                tracing::warn!(
                    hops = request.trace.hops(took),
                    waits_for = request.trace.now().unwrap_or_default(),
                    "slow operation: {} has taken {:.1} s so far",
                    request.context,
                    took.as_secs_f64()
                );
            }
        }
    }
}

impl InFlight {
    /// Makes the call on this thread.
    pub(crate) fn run<T>(&self, call: impl FnOnce() -> T) -> T {
        // It has its thread.
        self.trace.end();
        self.trace.follow(call)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let request = self.running.state.lock().requests.remove(&self.number);
        if request.is_some_and(|request| request.logging == Logging::Logged) {
            let took = self.context.begun.elapsed();
            tracing::warn!(
                hops = self.trace.hops(took),
                waited_for = self.trace.longest().unwrap_or_default(),
                "slow operation: {} took {:.1} s",
                self.context,
                took.as_secs_f64()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::InodeId;

    #[test]
    fn request_is_listed_while_it_waits_and_logged_once_it_is_slow() {
        let running = Running::new(Some(Duration::ZERO), &HostRef::default());
        let request = running.begin(Context { thread: 42, ..Context::new(Op::Read, InodeId(7)) }, None);
        let lines = running.lines();
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("READ of inode 7 by process 42 for 0.0 s, waits for thread ("),
            "{lines:?}"
        );
        request.run(|| assert!(!running.lines()[0].contains("waits for"), "{:?}", running.lines()));
        let lock = running.begin(Context::new(Op::Setlkw, InodeId(7)), None);
        let logging = || running.state.lock().requests.values().map(|one| one.logging).collect::<Vec<_>>();
        assert_eq!(logging(), [Logging::NotYet, Logging::NotYet]);
        running.state.lock().log_slow(Duration::ZERO, &running.log);
        assert_eq!(logging(), [Logging::Logged, Logging::NotYet]);
        drop((request, lock));
        assert!(running.lines().is_empty());
    }
}
