//! How much of the log is kept: what a restart replays, and, within bounds, what others lack.

use super::Driver;
use crate::limits::{FOLLOWER_SILENT_MAX, LOG_KEPT_FACTOR};
use crate::machine::Machine;

impl<M: Machine> Driver<M> {
    /// Up to where the log may go.
    ///
    /// Whether a follower is there is not what Raft says of it (`recent_active`): that is forgotten at every
    /// look for a quorum, and until the next answer the log would be cut under whoever is behind.
    pub(super) fn needless(&mut self) -> u64 {
        if !self.leads || self.alone {
            return self.durable;
        }
        self.heard.retain(|_, when| when.elapsed() <= FOLLOWER_SILENT_MAX);
        let log = &self.node.store().log;
        let cut = log.first_index() - 1;
        // Whoever lacks more than the log has needs none of it.
        let fits = |index: u64, most: u64| index >= cut && log.bytes_since(index + 1) <= most;
        let there = self.node.raft.prs().iter().filter(|(id, _)| self.heard.contains_key(id));
        // What a follower has that a new leader did not ask yet may be anything.
        let followers = there.map(|(_, one)| if one.matched == 0 { cut } else { one.matched });
        let followers = followers.filter(|index| fits(*index, LOG_KEPT_FACTOR * self.log_bytes_max));
        // Whoever fetches a state must find in the log what comes after it, or it would fetch for ever. While
        // it is opened with that state it is silent.
        let most = self.core.sizes.log_fetched_bytes();
        let given = self.core.checkpoints.given_from().into_iter().filter(|index| fits(*index, most));
        followers.chain(given).fold(self.durable, u64::min)
    }

    /// Whether a member lacks what is not in the log any more.
    pub(super) fn lacks_log(&self, id: u64) -> bool {
        let first = self.node.store().log.first_index();
        self.node.raft.prs().get(id).is_some_and(|one| one.next_idx < first)
    }
}
