//! Threads for requests that have to wait.
//!
//! The reading threads answer from memory. A request that they cannot answer is repeated here, where waiting
//! delays no other request. Each lane has threads and a queue of its own. A change may wait for another
//! client, which may wait for a read of this one, so changes must never take the threads or queue entries
//! that reads need.
//!
//! A full queue must not block a reading thread. A change may wait for another client, and that one for a
//! read of this one. Over io_uring the reading thread of a processor also sends the replies of the other
//! threads, so those that have finished a job would wait for it. So the bound of each queue is large, and
//! requests beyond it are refused.

use crate::context::{Context, Holds, Op};
use crate::limits::{DRAIN_WAIT, SIZE_THREADS, SLOW_QUEUE_LEN_MAX, SYNC_THREADS};
use shoal_runtime::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use shoal_runtime::thread::{Builder, JoinHandle};
use std::io;

/// The closure that answers a request.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The lanes, by what a request may have to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Servers, but never for other clients' invalidations.
    Read,
    /// Servers and bricks, for content of files, but never for other clients' invalidations. A brick may be
    /// away for any time, so these requests must not take the threads of the others.
    Content,
    /// Servers, bricks and other clients.
    Change,
    /// All earlier changes.
    Sync,
    /// Servers, about locks of programs.
    Lock,
    /// Reads, and local changes of the same file.
    Size,
}

impl Lane {
    /// The lane of a request. A request that holds the locks of names waits for other clients even if it only
    /// looks names up.
    pub(crate) fn of(context: &Context) -> Lane {
        match context.holds {
            Holds::Names { .. } => Lane::Change,
            Holds::Nothing | Holds::Dir(_) | Holds::Pages(_) => Lane::of_kind(context.op),
        }
    }

    fn of_kind(op: Op) -> Lane {
        match op {
            Op::Setattr
            | Op::Mknod
            | Op::Mkdir
            | Op::Create
            | Op::Tmpfile
            | Op::Symlink
            | Op::Link
            | Op::Unlink => Lane::Change,
            Op::Rmdir | Op::Rename | Op::Write | Op::Fallocate | Op::CopyFileRange => Lane::Change,
            Op::Setxattr | Op::Removexattr | Op::Ioctl => Lane::Change,
            // Waits for dirty pages to be written back, which are changes.
            Op::Lseek => Lane::Change,
            Op::Read => Lane::Content,
            Op::Fsync | Op::Fsyncdir | Op::Statfs => Lane::Sync,
            Op::Getlk | Op::Setlk | Op::Setlkw | Op::Flush | Op::Release => Lane::Lock,
            _ => Lane::Read,
        }
    }
}

/// The threads of all lanes.
pub(crate) struct Lanes {
    reads: SlowPool,
    contents: SlowPool,
    changes: SlowPool,
    syncs: SlowPool,
    locks: SlowPool,
    sizes: SlowPool,
}

impl Lanes {
    /// Starts `threads` threads for reads of metadata, as many for content and as many for changes, and
    /// `lock_threads` for locks.
    pub(crate) fn start(threads: usize, lock_threads: usize) -> io::Result<Lanes> {
        Ok(Lanes {
            reads: SlowPool::start("read", threads)?,
            contents: SlowPool::start("content", threads)?,
            changes: SlowPool::start("change", threads)?,
            syncs: SlowPool::start("sync", SYNC_THREADS.min(threads))?,
            locks: SlowPool::start("lock", lock_threads)?,
            sizes: SlowPool::start("size", SIZE_THREADS.min(threads))?,
        })
    }

    fn of(&self, lane: Lane) -> &SlowPool {
        match lane {
            Lane::Read => &self.reads,
            Lane::Content => &self.contents,
            Lane::Change => &self.changes,
            Lane::Sync => &self.syncs,
            Lane::Lock => &self.locks,
            Lane::Size => &self.sizes,
        }
    }

    /// Whether a request is to be refused because the queue is full.
    pub(crate) fn refuses(&self, lane: Lane) -> bool {
        self.of(lane).jobs.len() >= SLOW_QUEUE_LEN_MAX
    }

    /// Queues a job: see [`SlowPool::submit`].
    pub(crate) fn submit(&self, lane: Lane, job: Job) {
        self.of(lane).submit(job);
    }

    /// Lets a read of content continue as a change.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.changes.queue.clone())
    }

    /// Reports how many jobs wait.
    pub(crate) fn gauge(&self) -> Gauge {
        let Lanes { reads, contents, changes, syncs, locks, sizes } = self;
        Gauge([reads, contents, changes, syncs, locks, sizes].map(|pool| pool.jobs.clone()))
    }

    /// Finishes all jobs and stops. Calls `hurry` if that takes long.
    pub(crate) fn drain(&mut self, hurry: impl Fn()) {
        let Lanes { reads, contents, changes, syncs, locks, sizes } = self;
        for pool in [sizes, reads, contents, changes, syncs, locks] {
            pool.drain(&hurry);
        }
    }
}

/// The queue of changes, for reads of content that continue there: see [`Lanes::changes`]. Jobs of these
/// reads own it, so their queue is drained first.
pub(crate) struct Changes(Option<Sender<Job>>);

impl Changes {
    /// Queues a job. Never waits: the queue is bounded by refusing requests before.
    pub(crate) fn submit(self, job: Job) {
        if let Some(queue) = self.0 {
            // The queue cannot be disconnected: the receiving threads live until it is gone.
            let _ = queue.send(job);
        }
    }
}

struct SlowPool {
    /// `None` once drained.
    queue: Option<Sender<Job>>,
    jobs: Receiver<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Disconnected when the last of the threads has ended.
    ended: Receiver<()>,
}

/// The number of waiting jobs: see [`Lanes::gauge`].
pub(crate) struct Gauge([Receiver<Job>; 6]);

impl Gauge {
    pub(crate) fn waiting(&self) -> usize {
        self.0.iter().map(Receiver::len).sum()
    }
}

impl SlowPool {
    /// The submitter has to bound the queue.
    fn start(lane: &str, threads: usize) -> io::Result<SlowPool> {
        let (queue, jobs) = unbounded::<Job>();
        let (ends, ended) = bounded::<()>(1);
        let mut pool = SlowPool { queue: Some(queue), jobs, threads: Vec::with_capacity(threads), ended };
        for n in 0..threads {
            let (jobs, ends) = (pool.jobs.clone(), ends.clone());
            let work = move || {
                jobs.iter().for_each(|job| job());
                drop(ends);
            };
            pool.threads.push(Builder::new().name(format!("fuse-{lane}-{n}")).spawn(work)?);
        }
        Ok(pool)
    }

    /// Queues a job, and never waits. Once drained, a job is dropped, and its request fails.
    fn submit(&self, job: Job) {
        if let Some(queue) = &self.queue {
            // The queue cannot be disconnected: the receiving threads live until it is gone.
            let _ = queue.send(job);
        }
    }

    /// Finishes all jobs and stops. Calls `hurry` if that takes long.
    fn drain(&mut self, hurry: impl FnOnce()) {
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

    #[test]
    fn drain_finishes_all_submitted_jobs() {
        let mut pool = SlowPool::start("test", 2).expect("threads");
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let done = done.clone();
            pool.submit(Box::new(move || {
                done.fetch_add(1, SeqCst);
            }));
        }
        pool.drain(|| ());
        assert_eq!(done.load(SeqCst), 100);
    }

    #[test]
    fn drain_hurries_jobs_that_take_long() {
        let mut pool = SlowPool::start("test", 1).expect("threads");
        let (open, gate) = mpsc::channel::<()>();
        pool.submit(Box::new(move || gate.recv().expect("opened")));
        pool.drain(|| open.send(()).expect("received"));
    }
}
