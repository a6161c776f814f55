//! Threads that wait for bricks, so that callers do not block in a request.
//!
//! Each brick has a lane of its own: a brick that has stopped answering blocks only the threads of its lane.
//! A lane has at most [`LANE_CALLS_MAX`] threads, which start on demand and end when they are idle.

use crate::limits::{LANE_CALLS_MAX, LANE_IDLE, LANE_QUEUE_MAX};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
    /// Requests in flight for which no thread waits.
    unattended: usize,
}

/// The queue and the threads of one brick.
#[derive(Default)]
pub(super) struct Lane {
    state: Mutex<State>,
    wake: Condvar,
}

impl Lane {
    /// Queues a job. `false`: there are too many already, or the lane is closed.
    pub(super) fn submit(self: &Arc<Lane>, name: &str, job: Job) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.queue.len() >= LANE_QUEUE_MAX {
            return false;
        }
        state.queue.push_back(job);
        if state.idle >= state.queue.len() || state.threads >= LANE_CALLS_MAX {
            drop(state);
            self.wake.notify_one();
            return true;
        }
        let lane = self.clone();
        let thread = shoal_runtime::thread::Builder::new().name(name.to_owned()).spawn(move || lane.serve());
        match thread {
            Ok(_) => state.threads += 1,
            Err(error) => {
                tracing::warn!(%error, "no thread to wait for a brick");
                // The existing threads will take it.
                if state.threads == 0 {
                    state.queue.pop_back();
                    return false;
                }
            }
        }
        true
    }

    /// Admits a request for which no thread of the lane will wait; [`Lane::leave`] ends it. `false`: there
    /// are too many already, or the lane is closed.
    pub(super) fn admit(&self) -> bool {
        let mut state = self.state.lock();
        let admitted = !state.closed && state.unattended < LANE_CALLS_MAX;
        state.unattended += usize::from(admitted);
        admitted
    }

    /// A request that was admitted has ended.
    pub(super) fn leave(&self) {
        self.state.lock().unattended -= 1;
    }

    /// Takes no more jobs; those in progress are completed.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        self.wake.notify_all();
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.wake.wait_until(&mut state, Instant::now() + LANE_IDLE).timed_out();
            state.idle -= 1;
            if state.closed || (timed_out && state.queue.is_empty()) {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::channel;

    #[test]
    fn a_lane_does_everything_with_few_threads() {
        let lane = Arc::new(Lane::default());
        let (done, results) = channel::unbounded();
        let (open, gate) = channel::unbounded::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for job in 0..100 {
            let (done, gate) = (done.clone(), gate.clone());
            let work = move || {
                gate.lock().recv().expect("opened below");
                done.send(job).expect("collected below");
            };
            assert!(lane.submit("test", Box::new(work)));
        }
        assert!(lane.state.lock().threads <= LANE_CALLS_MAX);
        for _ in 0..100 {
            open.send(()).expect("the jobs wait for it");
        }
        let mut all: Vec<i32> = (0..100).map(|_| results.recv().expect("each job reports")).collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        lane.close();
        assert!(!lane.submit("test", Box::new(|| ())));
    }
}
