//! The decision to remove a replica that is no longer in the cluster map.
//!
//! **Models.** The map contains the intended members of a group. The group itself changes its membership step
//! by step, and keeps a replica for as long as its majority depends on it. So a replica may be needed for
//! long after the map has ceased to name it: until its group has removed it.
//!
//! **Promises.** A replica is removed only on one of two proofs. By its own state it was a member before, and
//! is not any more. Or the group's leader reports that it is no member, since a replica that was down does
//! not learn of its removal. Without a proof it stays, for any time: a group without a leader has removed no
//! replica. Only replicas of deleted volumes, and those that were never opened, need no proof.

use super::calls::{NodeReply, NodeRequest};
use super::context::ServerContext;
use crate::limits::{NODE_REPLY_WAIT_MAX, REPLICA_GRACE};
use shoal_types::ReplicaId;
use std::time::Duration;

/// The facts about a replica that the map does not name.
pub struct Unnamed<'a> {
    /// Its id.
    pub id: ReplicaId,
    /// Time since the map ceased to name it.
    pub since: Duration,
    /// Its volume has not been deleted.
    pub has_group: bool,
    /// It has been open here. Otherwise it has never cast a vote.
    pub was_open: bool,
    /// It has been among the members, by its own state.
    pub was_member: bool,
    /// The voters and learners by its own state; empty if it does not run, or has only just begun to.
    pub own: &'a [ReplicaId],
    /// The members by the group's leader, if that has just been asked.
    pub led: Option<&'a [ReplicaId]>,
}

impl Unnamed<'_> {
    /// Whether it may be removed.
    pub fn may_go(&self) -> bool {
        let without = |members: &[ReplicaId]| !members.is_empty() && !members.contains(&self.id);
        // A new replica may not have applied its own admission yet, so absence counts only after membership
        // was seen.
        let left = self.was_member && without(self.own);
        self.since > REPLICA_GRACE
            && (!self.has_group || !self.was_open || left || self.led.is_some_and(without))
    }
}

impl ServerContext {
    /// Asks the leaders of groups for their members, if former replicas of these groups are here.
    pub(super) fn learn_who_left(&self) {
        for (group, id) in self.groups.removal_candidates() {
            match self.request_from_leader(group, &NodeRequest::Members { group }, NODE_REPLY_WAIT_MAX) {
                Ok((_, NodeReply::Members(members))) => self.groups.members_are((group, id), &members),
                Ok((node, other)) => tracing::warn!(%node, ?other, "unexpected answer"),
                Err(why) => tracing::debug!(%group, replica = %id, why, "the group's members are unknown"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ReplicaId = ReplicaId(4);
    const WITH: &[ReplicaId] = &[ReplicaId(1), ReplicaId(2), ID];
    const WITHOUT: &[ReplicaId] = &[ReplicaId(1), ReplicaId(2)];
    const LONG: Duration = Duration::from_secs(1_000_000);

    fn needed() -> Unnamed<'static> {
        let (has_group, was_open, was_member) = (true, true, true);
        Unnamed { id: ID, since: LONG, has_group, was_open, was_member, own: WITH, led: None }
    }

    #[test]
    fn replica_is_removed_when_its_group_has_removed_it_and_not_after_a_time() {
        assert!(!needed().may_go());
        assert!(Unnamed { own: WITHOUT, ..needed() }.may_go());
        assert!(!Unnamed { led: Some(WITH), ..needed() }.may_go());
        // It was down when it was removed.
        assert!(Unnamed { led: Some(WITHOUT), ..needed() }.may_go());
        assert!(Unnamed { led: Some(WITHOUT), was_member: false, own: &[], ..needed() }.may_go());
    }

    #[test]
    fn replica_that_does_not_know_its_members_yet_is_kept() {
        assert!(!Unnamed { was_member: false, own: WITHOUT, ..needed() }.may_go());
        assert!(!Unnamed { own: &[], ..needed() }.may_go());
        assert!(!Unnamed { led: Some(&[]), ..needed() }.may_go());
    }

    #[test]
    fn replica_is_removed_with_its_volume_after_a_grace_period() {
        assert!(Unnamed { has_group: false, ..needed() }.may_go());
        assert!(Unnamed { was_open: false, was_member: false, own: &[], ..needed() }.may_go());
        for since in [Duration::ZERO, REPLICA_GRACE] {
            assert!(
                !Unnamed { since, has_group: false, own: WITHOUT, led: Some(WITHOUT), ..needed() }.may_go()
            );
        }
    }
}
