//! Log retention: the log is kept for the replay at a restart, and, within bounds, for followers that are
//! behind.

use super::Driver;
use crate::limits::{FOLLOWER_SILENT_MAX, LOG_KEPT_FACTOR};
use crate::machine::Machine;

impl<M: Machine> Driver<M> {
    /// The index up to which the log may be truncated.
    ///
    /// Raft's `recent_active` does not tell which followers are alive: it is reset at every quorum check.
    /// Until the next reply the log would be truncated before a follower that is behind.
    pub(super) fn truncatable(&mut self) -> u64 {
        if !self.leads || self.alone {
            return self.durable;
        }
        self.heard.retain(|_, when| when.elapsed() <= FOLLOWER_SILENT_MAX);
        let log = &self.node.store().log;
        let cut = log.first_index() - 1;
        // A follower that is behind the start of the log fetches the state, and needs none of the log.
        let fits = |index: u64, most: u64| index >= cut && log.bytes_since(index + 1) <= most;
        let there = self.node.raft.prs().iter().filter(|(id, _)| self.heard.contains_key(id));
        // The progress of a follower that a new leader has not probed yet is unknown.
        let followers = there.map(|(_, one)| if one.matched == 0 { cut } else { one.matched });
        let followers = followers.filter(|index| fits(*index, LOG_KEPT_FACTOR * self.log_bytes_max));
        // A replica that fetches a state must find in the log what comes after it, or it would fetch for
        // ever. While it opens that state it is silent.
        let most = self.core.sizes.log_fetched_bytes();
        let given =
            self.core.checkpoints.retained_log_starts().into_iter().filter(|index| fits(*index, most));
        followers.chain(given).fold(self.durable, u64::min)
    }

    /// Whether a member lacks entries that are not in the log any more.
    pub(super) fn lacks_log(&self, id: u64) -> bool {
        let first = self.node.store().log.first_index();
        self.node.raft.prs().get(id).is_some_and(|one| one.next_idx < first)
    }
}
