//! Deadlock detection: whether a request would wait for itself.

use super::LockTable;
use super::record::{LockOwner, LockRecord, LockSpace};
use std::collections::BTreeSet;

impl LockTable {
    /// Whether an owner with a conflicting lock waits, directly or through other owners, for the owner of
    /// this request. As in Linux, an owner counts as waiting when one of its threads does.
    pub(super) fn would_deadlock(&self, wanted: &LockRecord) -> bool {
        if wanted.space.is_of_whole_files() {
            return false;
        }
        let mut seen = BTreeSet::new();
        let mut open: Vec<LockOwner> = self.conflicting_owners(wanted).map(|(owner, _)| owner).collect();
        while let Some(owner) = open.pop() {
            if owner == wanted.owner {
                return true;
            }
            if seen.insert(owner) {
                for lock in self.waiters.of(owner).filter(|lock| lock.space == LockSpace::Posix) {
                    open.extend(self.conflicting_owners(&lock).map(|(owner, _)| owner));
                }
            }
        }
        false
    }
}
