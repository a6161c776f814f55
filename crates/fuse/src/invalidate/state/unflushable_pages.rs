//! Finds invalidations that are blocked by pages that cannot be written back: see
//! [`unflushable_pages`](super::super::unflushable_pages).

use super::super::pages::Pages;
use super::{Notice, Running, State, is_blocked};
use crate::limits::{BLOCKED_AFTER, STUCK_AFTER, STUCK_UNKNOWN_AFTER};
use shoal_types::InodeId;
use std::time::Duration;

impl State {
    /// Whether local changes of a file wait.
    pub fn is_being_changed(&self, ino: InodeId) -> bool {
        self.under_way.dirs.contains_key(&ino) || self.under_way.writes.contains_key(&ino)
    }

    /// Files with a waiting local change and an awaited invalidation that takes so long that its pages may be
    /// impossible to write back.
    pub fn stuck(&self) -> Vec<InodeId> {
        let patience = |ino| if self.mapped.is_mapped(ino) { STUCK_AFTER } else { STUCK_UNKNOWN_AFTER };
        let stuck = self.blocked(|ino, waited| waited >= patience(ino) && self.is_being_changed(ino));
        stuck.map(|(_, ino, _)| ino).collect()
    }

    /// Blocked invalidations of a file that a round waits for, by their numbers.
    pub fn stuck_drops(&self, ino: InodeId) -> Vec<(u64, Pages)> {
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
                    && is_blocked(running.tid) =>
            {
                Some((running.id, ino, pages))
            }
            _ => None,
        })
    }

    fn has_waiter(&self, running: &Running) -> bool {
        !running.not_waited_for && running.task.round.is_some_and(|round| self.rounds.contains_key(&round))
    }

    /// Whether a round waits for the invalidation with this number.
    pub fn is_awaited(&self, id: u64) -> bool {
        self.running.iter().any(|running| running.id == id && self.has_waiter(running))
    }

    /// Stops waiting for some pages of an invalidation, given in order; the remaining pages get notifications
    /// of their own.
    pub fn spare(&mut self, id: u64, spared: &[Pages]) {
        let Some(running) = self.running.iter_mut().find(|running| running.id == id) else { return };
        let (Notice::Node { ino, pages }, round) = (&running.task.notice, running.task.round) else { return };
        let (ino, parts) = (*ino, pages.without(spared));
        (running.not_waited_for, running.apart) = (true, true);
        match parts.is_empty() {
            true => self.count_done(round, 1),
            false => self.replace(round, ino, parts),
        }
    }
}
