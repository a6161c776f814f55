//! Replies about names that the kernel may not have handled yet (`docs/KERNEL_CACHE.md`, hazards 2 and 3).
//!
//! The dcache changes when the calling thread runs again after the reply (`d_move`, `d_delete`,
//! `d_instantiate`), which may take a while on a busy machine. Until then other programs of the mount find
//! the old name. Other clients find the new one as soon as the right to it is given back. So that waits until
//! the threads have run.
//!
//! `fuse_direntplus_link` stamps a name with the epoch at which it handles the reply to READDIRPLUS, not with
//! that of the request. So after an `INC_EPOCH` the threads with such a reply are waited for, and a second
//! `INC_EPOCH` is sent.

use super::Invalidator;
use super::getattr_inflight::ReplyConsumer;
use crate::context::Holds;
use crate::host::HostRef;
use crate::limits::{ATTRIBUTES_LOOK_EVERY, LATE_NAMES_MAX, NAMED_KEPT_MAX, NAMED_WAIT_MAX};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::Mutex;
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;

#[derive(Clone, Copy, Debug)]
struct Change {
    number: u64,
    dirs: [InodeId; 2],
    /// The thread that changes them.
    by: u32,
    at: Instant,
    is_answered: bool,
}

/// The last call of each thread that changed or listed names, oldest first.
#[derive(Default, Debug)]
pub(super) struct DentryUpdates {
    host: HostRef,
    changes: Mutex<Changes>,
}

#[derive(Default, Debug)]
struct Changes {
    lately: VecDeque<Change>,
    last_number: u64,
}

impl Changes {
    /// A thread makes one call at a time, so its earlier change is removed. Threads of other containers all
    /// have the id 0.
    fn is_about_to_be_answered(&mut self, dirs: [InodeId; 2], by: u32) {
        self.lately.retain(|change| change.by != by || by == 0);
        if self.lately.len() >= NAMED_KEPT_MAX {
            self.lately.pop_front();
        }
        self.last_number += 1;
        let number = self.last_number;
        self.lately.push_back(Change { number, dirs, by, at: Instant::now(), is_answered: false });
    }

    fn is_answered(&mut self, dirs: [InodeId; 2], by: u32) {
        let is_it = |change: &&mut Change| change.by == by && change.dirs == dirs;
        self.lately.iter_mut().filter(is_it).for_each(|change| change.is_answered = true);
    }
}

impl DentryUpdates {
    /// Of a mount on this host.
    pub(super) fn new(host: &HostRef) -> DentryUpdates {
        DentryUpdates { host: host.clone(), changes: Mutex::default() }
    }

    /// A thread has changed names in these directories or has listed one, and is about to be answered.
    pub(super) fn is_about_to_be_answered(&self, dirs: [InodeId; 2], by: u32) {
        self.changes.lock().is_about_to_be_answered(dirs, by);
    }

    /// The change was answered.
    pub(super) fn is_answered(&self, dirs: [InodeId; 2], by: u32) {
        self.changes.lock().is_answered(dirs, by);
    }

    /// Whether a thread may be about to handle a reply about these directories.
    fn is_any(&self, concerns: impl Fn(InodeId) -> bool) -> bool {
        self.all().iter().flat_map(|change| change.dirs).any(concerns)
    }

    fn all(&self) -> Vec<Change> {
        let changes = self.changes.lock();
        let lately = changes.lately.iter().rev().take_while(|change| change.at.elapsed() < LATE_NAMES_MAX);
        lately.copied().collect()
    }

    /// Waits until all changes in these directories have reached the dcache. Returns false if that took too
    /// long.
    fn wait(&self, concerns: impl Fn(InodeId) -> bool) -> bool {
        let begun = Instant::now();
        let concerned = |change: &Change| change.dirs.iter().any(|dir| concerns(*dir));
        let mut left: Vec<(Change, Option<ReplyConsumer>)> =
            self.all().into_iter().filter(concerned).map(|change| (change, None)).collect();
        loop {
            let now = if left.is_empty() { Vec::new() } else { self.all() };
            left.retain_mut(|(change, consumer)| {
                // If the change is not in the list, the thread has made another call since.
                let Some(known) = now.iter().find(|known| known.number == change.number) else {
                    return false;
                };
                !known.is_answered
                    || !consumer
                        .get_or_insert_with(|| ReplyConsumer::now(&self.host, change.by))
                        .has_consumed()
            });
            if left.is_empty() {
                return true;
            }
            if begun.elapsed() >= NAMED_WAIT_MAX {
                return false;
            }
            shoal_runtime::thread::sleep(ATTRIBUTES_LOOK_EVERY);
        }
    }
}

impl Invalidator {
    /// A change was answered.
    pub(crate) fn is_answered(&self, holds: Holds) {
        if let Holds::Names { dirs, by } = holds {
            self.name_changes.is_answered(dirs, by);
        }
    }

    /// Number of `INC_EPOCH` notifications.
    pub(crate) fn epochs(&self) -> u64 {
        self.counts.epochs.load(SeqCst)
    }

    /// A reply to READDIRPLUS is about to be sent to a thread.
    pub(crate) fn is_about_to_list(&self, dir: InodeId, tid: u32) {
        self.listings.is_about_to_be_answered([dir; 2], tid);
    }

    /// The reply to READDIRPLUS was sent.
    pub(crate) fn is_listed(&self, dir: InodeId, tid: u32) {
        self.listings.is_answered([dir; 2], tid);
    }

    /// All names were outdated because of some in these directories. Waits for listings in flight of these
    /// directories, and outdates all names again.
    pub(super) fn outdate_listed(&self, concerns: impl Fn(InodeId) -> bool) {
        if !self.listings.is_any(&concerns) || mistake("outdate no names after a late listing") {
            return;
        }
        if !self.listings.wait(concerns) {
            tracing::debug!("a listing was not consumed in time: names in it may be outdated");
        }
        self.outdate();
    }

    /// Waits until local changes of these names have reached the dcache, for
    /// [`KernelCache::wait_consumed`](shoal_client::KernelCache::wait_consumed).
    pub(super) fn wait_for_names(&self, concerns: &dyn Fn(InodeId) -> bool) {
        if mistake("give names back before the dcache has them") {
            return;
        }
        if !self.name_changes.wait(concerns) {
            tracing::debug!("a change of names was not consumed in time: the dcache may be outdated");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ATTRIBUTES_LOOK_TIME;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    const DIR: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);
    /// No thread has this id.
    const NO_THREAD: u32 = u32::MAX;

    #[test]
    fn what_others_will_find_is_waited_for_until_it_is_answered_and_taken_in() {
        let updates = DentryUpdates::default();
        assert!(updates.wait(|_| true));
        updates.is_about_to_be_answered([DIR, DIR], NO_THREAD);
        assert!(updates.wait(|dir| dir == OTHER), "somewhere else");
        assert!(!updates.wait(|dir| dir == DIR), "it is not answered");
        updates.is_answered([DIR, DIR], NO_THREAD);
        assert!(updates.wait(|dir| dir == DIR), "the thread is gone");
        let is_over = AtomicBool::new(false);
        let (tell, tid) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(nix::unistd::gettid().as_raw() as u32).expect("heard");
                while !is_over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            let tid = tid.recv().expect("told");
            updates.is_about_to_be_answered([OTHER, DIR], tid);
            updates.is_answered([OTHER, DIR], tid);
            let begun = Instant::now();
            updates.wait(|dir| dir == DIR);
            assert!(begun.elapsed() > ATTRIBUTES_LOOK_TIME, "it has run");
            is_over.store(true, SeqCst);
        });
    }

    #[test]
    fn a_thread_that_calls_again_has_taken_in_what_it_was_answered() {
        let updates = DentryUpdates::default();
        updates.is_about_to_be_answered([DIR, DIR], 1);
        updates.is_about_to_be_answered([OTHER, OTHER], 1);
        assert!(updates.wait(|dir| dir == DIR) && !updates.wait(|dir| dir == OTHER));
        for tid in 0..=NAMED_KEPT_MAX as u32 {
            updates.is_about_to_be_answered([DIR, DIR], tid + 2);
        }
        assert_eq!(updates.all().len(), NAMED_KEPT_MAX);
    }
}
