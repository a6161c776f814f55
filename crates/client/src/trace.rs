//! Records what a call waits for, and for how long: for the log of slow operations and for state dumps.
//!
//! **Models.** The FUSE front end makes a [`Trace`] for a call that may wait, and [follows](Trace::follow) it
//! on the thread that makes the call. Each wait of that thread is recorded ([`waits`]). Waits may be nested:
//! time counts for the innermost wait only. On a thread that follows no trace this costs one read of a
//! thread-local variable.
//!
//! A call that waits can be [cancelled](Trace::cancel): it will have no effect. That does not end its wait.
//!
//! **Assumes** that the calling thread itself waits. Work of other threads shows as the wait for it.

use crate::limits::TRACE_STEPS_MAX;
use shoal_runtime::sync::Mutex;
use shoal_runtime::time::{Duration, Instant};
use std::cell::RefCell;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// The cause of a wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hop {
    /// No thread of the mount was free.
    Thread,
    /// The session's lease has run out, because no metadata server answered in time.
    Lease,
    /// No leader of the metadata group is known.
    Leader,
    /// The reply of the metadata leader, which may have to recall rights of other clients first.
    Metadata,
    /// The commit of journal batches.
    Commit,
    /// A recall: this client releases a right for another client.
    Recall,
    /// Replies of bricks.
    Brick,
    /// The local kernel.
    Kernel,
}

impl Hop {
    /// The word for it in logs.
    pub fn name(self) -> &'static str {
        match self {
            Hop::Thread => "thread",
            Hop::Lease => "lease",
            Hop::Leader => "leader",
            Hop::Metadata => "metadata",
            Hop::Commit => "commit",
            Hop::Recall => "recall",
            Hop::Brick => "brick",
            Hop::Kernel => "kernel",
        }
    }
}

/// A wait that has ended.
#[derive(Clone, Debug)]
struct Step {
    hop: Hop,
    what: String,
    took: Duration,
}

/// A wait in progress.
#[derive(Clone, Debug)]
struct Open {
    hop: Hop,
    what: String,
    begun: Instant,
    /// Time that nested waits took.
    nested: Duration,
}

#[derive(Debug, Default)]
struct Waits {
    open: Vec<Open>,
    /// Waits that have ended: the [`TRACE_STEPS_MAX`] longest.
    steps: Vec<Step>,
    /// Total time by cause.
    by_hop: Vec<(Hop, Duration)>,
}

/// The call waits, or is about to be attempted.
const WAITS: u8 = 0;
/// The call is being attempted: some microseconds.
const RUNS: u8 = 1;
/// The call was carried out, or has failed.
const DONE: u8 = 2;
/// The call is not attempted any more.
const CANCELLED: u8 = 3;

/// The waits of one call.
#[derive(Debug, Default)]
pub struct Trace {
    waits: Mutex<Waits>,
    progress: AtomicU8,
}

thread_local! {
    static FOLLOWED: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
}

/// A wait of the current thread; it lasts until this is dropped.
#[must_use]
pub struct Waiting(Option<Arc<Trace>>);

/// Begins a wait of the current thread. `what` describes it for logs.
pub fn waits(hop: Hop, what: impl FnOnce() -> String) -> Waiting {
    let trace = followed();
    if let Some(trace) = &trace {
        trace.begin(hop, what());
    }
    Waiting(trace)
}

/// The trace of the current thread's call.
pub(crate) fn followed() -> Option<Arc<Trace>> {
    FOLLOWED.with_borrow(Clone::clone)
}

/// The call of the current thread is about to be attempted. False if it was cancelled.
pub(crate) fn begin_attempt() -> bool {
    FOLLOWED.with_borrow(|trace| {
        let attempt = |trace: &Arc<Trace>| trace.progress.compare_exchange(WAITS, RUNS, SeqCst, SeqCst);
        !matches!(trace.as_ref().map(attempt), Some(Err(CANCELLED)))
    })
}

/// The attempt is over. `waits`: the call was not carried out, and is attempted again after a wait, or it had
/// no effect, and the request may wait in another call.
pub(crate) fn end_attempt(waits: bool) {
    FOLLOWED.with_borrow(|trace| {
        if let Some(trace) = trace {
            let next = if waits { WAITS } else { DONE };
            // An earlier call of the same request may have been carried out.
            let _ = trace.progress.compare_exchange(RUNS, next, SeqCst, SeqCst);
        }
    });
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(trace) = &self.0 {
            trace.end();
        }
    }
}

impl Trace {
    /// Makes a call on this thread, and records its waits. Not in a simulation, where all threads are one.
    pub fn follow<T>(self: &Arc<Trace>, call: impl FnOnce() -> T) -> T {
        struct Back(Option<Arc<Trace>>);
        impl Drop for Back {
            fn drop(&mut self) {
                FOLLOWED.set(self.0.take());
            }
        }
        if shoal_runtime::simulator::is_entered() {
            return call();
        }
        let _back = Back(FOLLOWED.replace(Some(self.clone())));
        call()
    }

    /// Cancels the call while it waits. True if it has had no effect and will have none; it fails with
    /// `EINTR` when its wait is over.
    pub fn cancel(&self) -> bool {
        let cancelled = self.progress.compare_exchange(WAITS, CANCELLED, SeqCst, SeqCst);
        matches!(cancelled, Ok(_) | Err(CANCELLED))
    }

    /// The waiting call was carried out. False if it was cancelled before.
    pub(crate) fn carry_out(&self) -> bool {
        self.progress.compare_exchange(WAITS, DONE, SeqCst, SeqCst) != Err(CANCELLED)
    }

    /// Whether the call was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.progress.load(SeqCst) == CANCELLED
    }

    /// Begins a wait. The thread need not follow the trace.
    pub fn begin(&self, hop: Hop, what: String) {
        let open = Open { hop, what, begun: Instant::now(), nested: Duration::ZERO };
        self.waits.lock().open.push(open);
    }

    /// Ends the innermost wait.
    pub fn end(&self) {
        let mut state = self.waits.lock();
        let Some(Open { hop, what, begun, nested }) = state.open.pop() else { return };
        let whole = begun.elapsed();
        if let Some(outer) = state.open.last_mut() {
            outer.nested += whole;
        }
        state.record(hop, what, whole.saturating_sub(nested));
    }

    /// The innermost wait in progress, and its duration.
    pub fn now(&self) -> Option<String> {
        let state = self.waits.lock();
        let open = state.open.last()?;
        Some(format!("{} ({:.1} s): {}", open.hop.name(), open.begun.elapsed().as_secs_f64(), open.what))
    }

    /// Time by cause, as text: `metadata 5.2 s, brick 0.1 s, here 0.0 s`. `here` is the rest of `took`.
    pub fn hops(&self, took: Duration) -> String {
        let state = self.waits.lock();
        let mut by_hop = state.by_hop.clone();
        if let Some(open) = state.open.last() {
            add(&mut by_hop, open.hop, open.begun.elapsed());
        }
        let mut text = String::new();
        let mut here = took;
        for (hop, took) in by_hop {
            here = here.saturating_sub(took);
            let _ = write!(text, "{} {:.1} s, ", hop.name(), took.as_secs_f64());
        }
        let _ = write!(text, "here {:.1} s", here.as_secs_f64());
        text
    }

    /// The longest wait that has ended.
    pub fn longest(&self) -> Option<String> {
        let state = self.waits.lock();
        let step = state.steps.iter().max_by_key(|step| step.took)?;
        Some(format!("{} ({:.1} s): {}", step.hop.name(), step.took.as_secs_f64(), step.what))
    }
}

fn add(by_hop: &mut Vec<(Hop, Duration)>, hop: Hop, took: Duration) {
    match by_hop.iter_mut().find(|(known, _)| *known == hop) {
        Some((_, all)) => *all += took,
        None => by_hop.push((hop, took)),
    }
}

impl Waits {
    fn record(&mut self, hop: Hop, what: String, took: Duration) {
        add(&mut self.by_hop, hop, took);
        if self.steps.len() >= TRACE_STEPS_MAX
            && let Some(shortest) =
                (0..self.steps.len()).min_by_key(|at| self.steps.get(*at).map(|step| step.took))
        {
            self.steps.swap_remove(shortest);
        }
        self.steps.push(Step { hop, what, took });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_cancelled_while_it_waits_and_not_once_it_was_carried_out() {
        let [waits, done] = [(); 2].map(|()| Arc::new(Trace::default()));
        waits.follow(|| {
            assert!(begin_attempt());
            assert!(!waits.cancel(), "it is being attempted");
            end_attempt(true);
            assert!(waits.cancel());
            assert!(!begin_attempt(), "it is not attempted any more");
        });
        done.follow(|| {
            assert!(begin_attempt());
            end_attempt(false);
            assert!(!done.cancel());
            assert!(begin_attempt(), "the rest of the request goes on");
        });
    }

    #[test]
    fn time_counts_for_the_innermost_wait_of_a_traced_thread() {
        let trace = Arc::new(Trace::default());
        let pause = Duration::from_millis(20);
        drop(waits(Hop::Brick, || panic!("no trace is followed")));
        trace.follow(|| {
            let outer = waits(Hop::Metadata, || "request 7".into());
            let inner = waits(Hop::Leader, || "an election".into());
            shoal_runtime::thread::sleep(pause * 2);
            assert!(trace.now().is_some_and(|now| now.starts_with("leader (")), "{trace:?}");
            drop(inner);
            shoal_runtime::thread::sleep(pause);
            drop(outer);
        });
        drop(waits(Hop::Brick, || panic!("no trace is followed any more")));
        assert_eq!(trace.now(), None);
        let state = trace.waits.lock();
        let times: Vec<(Hop, Duration)> = state.by_hop.clone();
        drop(state);
        assert_eq!(times.iter().map(|(hop, _)| *hop).collect::<Vec<_>>(), [Hop::Leader, Hop::Metadata]);
        assert!(times[0].1 >= pause * 2 && times[1].1 >= pause, "{times:?}");
        assert!(trace.longest().is_some_and(|longest| longest.ends_with("an election")));
        let hops = trace.hops(times[0].1 + times[1].1 + Duration::from_secs(3));
        assert!(hops.starts_with("leader ") && hops.ends_with(", here 3.0 s"), "{hops}");
    }

    #[test]
    fn recorded_waits_are_bounded_and_the_longest_stay() {
        let mut state = Waits::default();
        for n in 0..10 * TRACE_STEPS_MAX as u64 {
            let took = if n == 5 { Duration::from_secs(9) } else { Duration::from_millis(n) };
            state.record(Hop::Brick, n.to_string(), took);
        }
        assert_eq!(state.steps.len(), TRACE_STEPS_MAX);
        assert!(state.steps.iter().any(|step| step.what == "5"));
    }
}
