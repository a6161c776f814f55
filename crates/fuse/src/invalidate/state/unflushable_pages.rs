//! Finds invalidations that are blocked by pages that cannot be written back: see
//! [`unflushable_pages`](super::super::unflushable_pages).

use super::super::pages::Pages;
use super::{Notice, Running, State};
use crate::limits::{BLOCKED_AFTER, UNFLUSHABLE_AFTER, UNFLUSHABLE_UNKNOWN_AFTER};
use shoal_types::InodeId;
use std::time::Duration;

impl State {
    /// Whether local changes of a file wait.
    pub fn is_being_changed(&self, ino: InodeId) -> bool {
        self.waiting_changes.dirs.contains_key(&ino) || self.waiting_changes.writes.contains_key(&ino)
    }

    /// Files with a waiting local change and an awaited invalidation that takes so long that its pages may be
    /// impossible to write back.
    pub fn unflushable(&self) -> Vec<InodeId> {
        let patience = |ino| {
            if self.page_baselines.is_mapped(ino) { UNFLUSHABLE_AFTER } else { UNFLUSHABLE_UNKNOWN_AFTER }
        };
        let found = self.blocked(|ino, waited| waited >= patience(ino) && self.is_being_changed(ino));
        found.map(|(_, ino, _)| ino).collect()
    }

    /// Blocked invalidations of a file that a batch waits for, by their numbers.
    pub fn blocked_invalidations(&self, ino: InodeId) -> Vec<(u64, Pages)> {
        self.blocked(|of, waited| of == ino && waited >= BLOCKED_AFTER)
            .map(|(id, _, pages)| (id, pages))
            .collect()
    }

    fn blocked(
        &self,
        concerns: impl Fn(InodeId, Duration) -> bool,
    ) -> impl Iterator<Item = (u64, InodeId, Pages)> {
        self.running.iter().filter_map(move |running| match running.task.notice {
            Notice::Node { ino, pages }
                if concerns(ino, running.since.elapsed())
                    && self.has_waiter(running)
                    && self.host.is_blocked(running.tid) =>
            {
                Some((running.id, ino, pages))
            }
            _ => None,
        })
    }

    fn has_waiter(&self, running: &Running) -> bool {
        !running.not_waited_for && running.task.batch.is_some_and(|batch| self.batches.contains_key(&batch))
    }

    /// Whether a batch waits for the invalidation with this number.
    pub fn is_awaited(&self, id: u64) -> bool {
        self.running.iter().any(|running| running.id == id && self.has_waiter(running))
    }

    /// Stops waiting for some pages of an invalidation, given in order; the remaining pages get notifications
    /// of their own.
    pub fn stop_waiting_for_pages(&mut self, id: u64, spared: &[Pages]) {
        let Some(running) = self.running.iter_mut().find(|running| running.id == id) else { return };
        let (Notice::Node { ino, pages }, batch) = (&running.task.notice, running.task.batch) else { return };
        let (ino, parts) = (*ino, pages.without(spared));
        (running.not_waited_for, running.apart) = (true, true);
        match parts.is_empty() {
            true => self.count_done(batch, 1),
            false => self.replace(batch, ino, parts),
        }
    }
}
