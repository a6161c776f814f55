//! Threads that carry out jobs which may block.
//!
//! **Model.** A pool has a queue of jobs, and a bounded number of threads, which start on demand and end when
//! they are idle. Whatever may hang has a pool of its own: a brick whose disk hangs blocks the threads of its
//! pool, and no others.

use crate::sync::{Condvar, Mutex};
use crate::thread::Builder;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;
use std::sync::Arc;

/// Work for a thread of a pool.
pub type Job = Box<dyn FnOnce() + Send>;

/// The bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Threads at a time.
    pub threads_max: usize,
    /// Jobs that wait for a thread; more are refused.
    pub jobs_max: usize,
    /// A thread ends when it has been idle for this long.
    pub idle_max: Duration,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// A queue of jobs and its threads.
pub struct Pool {
    name: String,
    limits: PoolLimits,
    state: Mutex<State>,
    wake: Condvar,
}

impl Pool {
    /// A pool without threads yet, all of which will have this name.
    pub fn new(name: impl Into<String>, limits: PoolLimits) -> Arc<Pool> {
        let (state, wake) = (Mutex::default(), Condvar::new());
        Arc::new(Pool { name: name.into(), limits, state, wake })
    }

    /// Queues a job. Gives it back if too many wait already, if the pool is closed, or if the system has no
    /// thread for it.
    pub fn submit(self: &Arc<Pool>, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.closed || state.queue.len() >= self.limits.jobs_max {
            return Err(job);
        }
        state.queue.push_back(job);
        if state.idle >= state.queue.len() || state.threads >= self.limits.threads_max {
            drop(state);
            self.wake.notify_one();
            return Ok(());
        }
        let pool = self.clone();
        match Builder::new().name(self.name.clone()).spawn(move || pool.serve()) {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads == 0 => return state.queue.pop_back().map_or(Ok(()), Err),
            // The existing threads will take it.
            Err(_) => {}
        }
        Ok(())
    }

    /// Takes no more jobs, and drops those that wait; those in progress are completed.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.queue);
        self.wake.notify_all();
        // A job's drop may submit another one.
        drop(state);
        drop(waiting);
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
            if state.closed {
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            let until = Instant::now() + self.limits.idle_max;
            let timed_out = self.wake.wait_until(&mut state, until).timed_out();
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
    use crate::channel;

    const LIMITS: PoolLimits =
        PoolLimits { threads_max: 4, jobs_max: 200, idle_max: Duration::from_millis(10) };

    #[test]
    fn pool_carries_out_all_jobs_with_a_bounded_number_of_threads() {
        let pool = Pool::new("test", LIMITS);
        let (done, results) = channel::unbounded();
        let (open, gate) = channel::unbounded::<()>();
        for job in 0..100 {
            let (done, gate) = (done.clone(), gate.clone());
            let work = move || {
                gate.recv().expect("opened below");
                done.send(job).expect("collected below");
            };
            assert!(pool.submit(Box::new(work)).is_ok());
        }
        assert_eq!(pool.state.lock().threads, LIMITS.threads_max);
        for _ in 0..100 {
            open.send(()).expect("the jobs wait for it");
        }
        let mut all: Vec<i32> = (0..100).map(|_| results.recv().expect("each job reports")).collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        pool.close();
        assert!(pool.submit(Box::new(|| ())).is_err());
    }

    #[test]
    fn idle_threads_end_and_start_again_for_the_next_job() {
        let pool = Pool::new("test", LIMITS);
        for _ in 0..2 {
            let (done, result) = channel::bounded(1);
            let job = move || done.send(()).expect("received below");
            assert!(pool.submit(Box::new(job)).is_ok());
            assert_eq!(result.recv(), Ok(()));
            let until = Instant::now() + Duration::from_secs(10);
            while pool.state.lock().threads > 0 {
                assert!(Instant::now() < until, "the thread does not end");
                std::thread::sleep(LIMITS.idle_max);
            }
        }
    }

    #[test]
    fn job_beyond_the_bound_of_the_queue_is_given_back() {
        let pool = Pool::new("test", PoolLimits { threads_max: 1, jobs_max: 2, ..LIMITS });
        let (open, gate) = channel::unbounded::<()>();
        let job = || {
            let gate = gate.clone();
            move || _ = gate.recv()
        };
        let mut accepted = 0;
        while pool.submit(Box::new(job())).is_ok() {
            accepted += 1;
            assert!(accepted <= 3, "one in progress, and two that wait");
        }
        drop(open);
        pool.close();
    }
}
