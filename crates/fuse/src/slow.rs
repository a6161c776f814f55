//! Threads for requests that have to wait.
//!
//! The reading threads answer from memory. What they cannot answer is repeated here, where waiting holds up nobody else.
//! The queue is bounded: when it is full the reading thread waits, and with it the kernel's callers: that is the
//! back-pressure. Whoever waits here for long has a look now and then whether there is still a kernel to answer.

use crate::limits::{DRAIN_WAIT, LOOK_EVERY};
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use std::io;
use std::thread::{Builder, JoinHandle};

/// A request with everything that is needed to answer it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct SlowPool {
    /// `None` once drained.
    queue: Option<Sender<Job>>,
    jobs: Receiver<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Hears that the last of the threads has ended.
    ended: Receiver<()>,
}

/// See [`SlowPool::gauge`].
pub(crate) struct Gauge(Receiver<Job>);

impl Gauge {
    pub(crate) fn waiting(&self) -> usize {
        self.0.len()
    }
}

impl SlowPool {
    pub(crate) fn start(threads: usize, queue_len_max: usize) -> io::Result<SlowPool> {
        let (queue, jobs): (Sender<Job>, Receiver<Job>) = bounded(queue_len_max);
        let (ends, ended) = bounded::<()>(0);
        let mut pool = SlowPool { queue: Some(queue), jobs, threads: Vec::with_capacity(threads), ended };
        for n in 0..threads {
            let (jobs, ends) = (pool.jobs.clone(), ends.clone());
            let work = move || {
                jobs.iter().for_each(|job| job());
                drop(ends);
            };
            pool.threads.push(Builder::new().name(format!("fuse-slow-{n}")).spawn(work)?);
        }
        Ok(pool)
    }

    /// Hands over a job; waits while the queue is full, and calls `look` now and then. Once drained, a job is dropped, and
    /// its request fails.
    pub(crate) fn submit(&self, mut job: Job, look: impl Fn()) {
        let Some(queue) = &self.queue else { return };
        // It cannot be disconnected: the threads that receive live until the queue is gone.
        while let Err(SendTimeoutError::Timeout(waits)) = queue.send_timeout(job, LOOK_EVERY) {
            job = waits;
            look();
        }
    }

    /// Shows how many jobs wait, for as long as anybody cares.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(self.jobs.clone())
    }

    /// Finishes all jobs and stops. Calls `hurry` if that takes long.
    pub(crate) fn drain(&mut self, hurry: impl FnOnce()) {
        self.queue = None;
        if self.ended.recv_timeout(DRAIN_WAIT) == Err(RecvTimeoutError::Timeout) {
            hurry();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that answers slow requests has panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    #[test]
    fn draining_finishes_what_was_submitted() {
        let mut pool = SlowPool::start(2, 4).expect("threads");
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let done = done.clone();
            pool.submit(
                Box::new(move || {
                    done.fetch_add(1, SeqCst);
                }),
                || (),
            );
        }
        pool.drain(|| ());
        assert_eq!(done.load(SeqCst), 100);
    }

    #[test]
    fn what_holds_up_the_end_is_hurried() {
        let mut pool = SlowPool::start(1, 4).expect("threads");
        let (open, gate) = mpsc::channel::<()>();
        pool.submit(Box::new(move || gate.recv().expect("opened")), || ());
        pool.drain(|| open.send(()).expect("received"));
    }

    #[test]
    fn a_full_queue_holds_up_whoever_submits() {
        let mut pool = SlowPool::start(1, 1).expect("threads");
        let gauge = pool.gauge();
        let (open, gate) = mpsc::channel::<()>();
        pool.submit(Box::new(move || gate.recv().expect("opened")), || ());
        let (tell, third) = mpsc::channel();
        std::thread::scope(|scope| {
            let pool = &pool;
            scope.spawn(move || {
                pool.submit(Box::new(|| ()), || ());
                pool.submit(Box::new(|| ()), || ());
                tell.send(()).expect("heard");
            });
            assert!(third.recv_timeout(Duration::from_millis(100)).is_err());
            assert_eq!(gauge.waiting(), 1);
            open.send(()).expect("received");
            third.recv_timeout(Duration::from_secs(10)).expect("the queue moves on");
        });
        pool.drain(|| ());
        assert_eq!(gauge.waiting(), 0);
    }
}
