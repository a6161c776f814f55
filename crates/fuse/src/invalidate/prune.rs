//! Bounds how many inodes the kernel refers to.
//!
//! **Model.** The kernel keeps an inode, and with it a reference that the client counts, until memory is
//! short; with millions of files that is hundreds of megabytes in this process and more in the kernel's
//! slabs. When the count exceeds the bound of the mount, the kernel is told to prune the inodes that it has
//! referred to for longest (`FUSE_NOTIFY_PRUNE`, `fuse_try_prune_one_inode`). It drops their dentries if they
//! are unused (`d_prune_aliases`) and sends FORGET.
//!
//! The same happens with the inodes of a directory in which only another client has worked lately. When the
//! kernel refers to none of them any more, the client gives up its watch, and the other client needs no
//! recall for each of its changes.
//!
//! **Promises.** Nothing in use is disturbed: open and mapped files, working directories, mount points and
//! directories with cached names have dentries in use, and stay. Pruning takes no directory lock and waits
//! for no request but reads in flight, so it cannot deadlock with a local change. What is cached is no less
//! coherent: an inode that is looked up again is an ordinary miss.
//!
//! **Assumes** Linux 6.18. An older kernel refuses the notification; then the bound is not kept, and the log
//! says so once.

use super::Invalidator;
use crate::affinity;
use crate::host::NotifyOutcome;
use crate::limits::{
    PRUNE_LOOK_EVERY, PRUNE_MESSAGE_INODES, PRUNE_PAUSE_MAX, PRUNE_SLACK_PART, PRUNED_AT_ONCE_MAX,
};
use shoal_client::Referred;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::Builder;
use shoal_types::InodeId;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Invalidator {
    /// Bounds the number of inodes that the kernel refers to, as far as they are not in use.
    pub(crate) fn bound_references(&self, inodes_max: usize) -> io::Result<()> {
        let Some(me) = self.me.upgrade() else { return Ok(()) };
        Builder::new().name("fuse-prune".into()).spawn(move || me.prune_from_now_on(inodes_max)).map(drop)
    }

    fn prune_from_now_on(self: Arc<Invalidator>, inodes_max: usize) {
        let Some(kernel) = self.kernel() else { return };
        kernel.keep_nothing_else(true);
        affinity::everywhere();
        let mut pacer = Pacer::new(inodes_max);
        while !self.state.lock().ended {
            let mut inodes = self.evictions.wait(pacer.pause);
            let Some(client) = self.client.upgrade() else { return };
            if inodes.is_empty() {
                let count = pacer.next(client.referred());
                inodes = if count > 0 { client.oldest_referred(count) } else { Vec::new() };
            }
            for inodes in inodes.chunks(PRUNE_MESSAGE_INODES) {
                let nodes: Vec<InodeId> = inodes.iter().flat_map(|ino| self.nodes.of(*ino)).collect();
                self.counts.pruned.fetch_add(nodes.len() as u64, Relaxed);
                match kernel.prune(&nodes) {
                    Ok(NotifyOutcome::Ended) => return,
                    Ok(_) => {}
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                        tracing::warn!(
                            inodes_max,
                            "this kernel is older than Linux 6.18 and cannot be told to forget inodes: the mount option \
                             'inodes' has no effect, and memory grows with the number of files in use"
                        );
                        return;
                    }
                    Err(error) => tracing::error!(%error, "the kernel refuses to forget inodes"),
                }
            }
        }
    }
}

/// Inodes that are to be pruned because no program uses their directory, and another client works there.
#[derive(Default)]
pub(super) struct Evictions {
    queue: Mutex<Vec<InodeId>>,
    news: Condvar,
}

impl Evictions {
    /// Queues inodes; those that do not fit stay.
    pub(super) fn request(&self, mut inodes: Vec<InodeId>) {
        if inodes.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        inodes.truncate(PRUNED_AT_ONCE_MAX.saturating_sub(queue.len()));
        queue.append(&mut inodes);
        drop(queue);
        self.news.notify_one();
    }

    /// Takes what is queued; waits for it, for a bounded time.
    fn wait(&self, longest: Duration) -> Vec<InodeId> {
        let mut queue = self.queue.lock();
        if queue.is_empty() {
            self.news.wait_for(&mut queue, longest);
        }
        std::mem::take(&mut queue)
    }
}

/// How many inodes are pruned, and how often.
#[derive(Debug)]
struct Pacer {
    inodes_max: usize,
    /// Inodes of the last round, and how many had been forgotten before it.
    asked: usize,
    forgotten: u64,
    pause: Duration,
}

impl Pacer {
    fn new(inodes_max: usize) -> Pacer {
        Pacer { inodes_max, asked: 0, forgotten: 0, pause: PRUNE_LOOK_EVERY }
    }

    /// Inodes of the next round. A round in which most inodes turned out to be in use is followed by a longer
    /// pause.
    fn next(&mut self, Referred { inodes, forgotten }: Referred) -> usize {
        let in_vain = forgotten.saturating_sub(self.forgotten) < (self.asked as u64).div_ceil(2);
        self.pause = if in_vain { (2 * self.pause).min(PRUNE_PAUSE_MAX) } else { PRUNE_LOOK_EVERY };
        let target = self.inodes_max - self.inodes_max / PRUNE_SLACK_PART;
        self.asked = match inodes > self.inodes_max {
            true => (inodes - target).min(PRUNED_AT_ONCE_MAX),
            false => 0,
        };
        self.forgotten = forgotten;
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pruning_starts_above_the_bound_and_ends_below_it() {
        let mut pacer = Pacer::new(1600);
        assert_eq!(pacer.next(Referred { inodes: 1600, forgotten: 0 }), 0);
        assert_eq!(pacer.next(Referred { inodes: 1601, forgotten: 0 }), 101);
        assert_eq!(pacer.next(Referred { inodes: 1500, forgotten: 101 }), 0);
        assert_eq!(pacer.next(Referred { inodes: usize::MAX, forgotten: 101 }), PRUNED_AT_ONCE_MAX);
    }

    #[test]
    fn pauses_grow_while_everything_is_in_use() {
        let mut pacer = Pacer::new(100);
        let all = Referred { inodes: 200, forgotten: 7 };
        pacer.next(all);
        assert_eq!(pacer.pause, PRUNE_LOOK_EVERY);
        for _ in 0..20 {
            assert!(pacer.next(all) > 0);
        }
        assert_eq!(pacer.pause, PRUNE_PAUSE_MAX);
        assert_eq!(pacer.next(Referred { inodes: 90, forgotten: 117 }), 0);
        assert_eq!(pacer.pause, PRUNE_LOOK_EVERY);
    }
}
