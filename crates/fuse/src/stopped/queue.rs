//! The inodes that the guard process invalidates, each once, by a bounded number of threads.

use parking_lot::{Condvar, Mutex};
use shoal_types::InodeId;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Inodes {
    known: BTreeSet<InodeId>,
    waiting: VecDeque<InodeId>,
    in_flight: usize,
    searchers: usize,
    /// Counts inodes found and done, so that a waiter notices if there is no progress.
    steps: u64,
    closed: bool,
}

/// A queue of inodes, filled by the search while threads invalidate inodes from it.
#[derive(Default)]
pub(super) struct Queue {
    inodes: Mutex<Inodes>,
    changed: Condvar,
}

/// The result of [`Queue::wait`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The search is complete, and all that it found is invalidated.
    Done,
    /// There was no progress for the whole time.
    Standstill,
    /// There was progress.
    Step,
}

impl Queue {
    /// Adds an inode, unless it was there before.
    pub(super) fn add(&self, ino: InodeId) {
        let mut inodes = self.inodes.lock();
        inodes.steps += 1;
        if inodes.known.insert(ino) {
            inodes.waiting.push_back(ino);
            self.changed.notify_all();
        }
    }

    /// The next inode; waits for one. `None` once the queue is closed and the last searcher has ended.
    pub(super) fn take(&self) -> Option<InodeId> {
        let mut inodes = self.inodes.lock();
        loop {
            if let Some(ino) = inodes.waiting.pop_front() {
                inodes.in_flight += 1;
                return Some(ino);
            }
            // A searcher that hung may still find something.
            if inodes.closed && inodes.searchers == 0 {
                return None;
            }
            self.changed.wait(&mut inodes);
        }
    }

    /// An inode that was taken has been invalidated.
    pub(super) fn done(&self) {
        let mut inodes = self.inodes.lock();
        inodes.in_flight -= 1;
        inodes.steps += 1;
        self.changed.notify_all();
    }

    pub(super) fn searcher_begins(&self) {
        self.inodes.lock().searchers += 1;
    }

    pub(super) fn searcher_ends(&self) {
        let mut inodes = self.inodes.lock();
        inodes.searchers -= 1;
        inodes.steps += 1;
        self.changed.notify_all();
    }

    /// Waits for a step, at most `time`.
    pub(super) fn wait(&self, time: Duration) -> Progress {
        let mut inodes = self.inodes.lock();
        let (before, until) = (inodes.steps, Instant::now() + time);
        loop {
            if inodes.searchers + inodes.in_flight + inodes.waiting.len() == 0 {
                return Progress::Done;
            }
            if inodes.steps != before {
                return Progress::Step;
            }
            if self.changed.wait_until(&mut inodes, until).timed_out() {
                return Progress::Standstill;
            }
        }
    }

    /// Inodes that are not invalidated yet.
    pub(super) fn left(&self) -> usize {
        let inodes = self.inodes.lock();
        inodes.in_flight + inodes.waiting.len()
    }

    /// No searcher begins from now on.
    pub(super) fn close(&self) {
        self.inodes.lock().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn each_inode_is_taken_once_until_the_queue_is_closed() {
        let queue = Queue::default();
        queue.searcher_begins();
        for ino in [3, 4, 3] {
            queue.add(InodeId(ino));
        }
        assert_eq!((queue.take(), queue.take()), (Some(InodeId(3)), Some(InodeId(4))));
        queue.add(InodeId(4));
        assert_eq!(queue.left(), 2);
        queue.close();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| (queue.take(), queue.take()));
            // A searcher that hung for long continues.
            queue.add(InodeId(5));
            queue.searcher_ends();
            assert_eq!(taker.join().expect("no panic"), (Some(InodeId(5)), None));
        });
    }

    #[test]
    fn wait_tells_the_end_from_a_standstill() {
        let queue = Queue::default();
        queue.searcher_begins();
        queue.add(InodeId(3));
        assert_eq!(queue.wait(SHORT), Progress::Standstill);
        queue.take();
        queue.searcher_ends();
        assert_eq!(queue.wait(SHORT), Progress::Standstill);
        std::thread::scope(|scope| {
            scope.spawn(|| queue.done());
            while queue.wait(SHORT) != Progress::Done {}
        });
        assert_eq!(queue.left(), 0);
    }
}
