//! When a replica that the map does not name any more may be removed.
//!
//! **Models.** The map says who should be a member of a group. The group itself changes its membership step
//! by step, and keeps a replica for as long as its majority depends on it. So a replica may be needed for
//! long after the map has ceased to name it: until its group has removed it.
//!
//! **Promises.** There are two proofs that a group has removed a replica. The replica's own state shows it:
//! it has seen itself among the members before, and is not among them any more. Or the group's leader says so
//! when it is asked, because a replica that was down meanwhile does not learn of its removal. There is no
//! other proof, however long it takes; a group without a leader has removed no replica. Only replicas of
//! deleted volumes, and those that were never opened, are removed without a proof.

use super::calls::{Answer, Ask};
use super::context::ServerContext;
use crate::limits::{ASK_PATIENCE, REPLICA_GRACE};
use shoal_types::ReplicaId;
use std::time::Duration;

/// What is known of a replica that the map does not name.
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
    pub(super) fn ask_who_left(&self) {
        for (group, id) in self.groups.unsure() {
            match self.ask_leader(group, &Ask::Members { group }, ASK_PATIENCE) {
                Ok((_, Answer::Members(members))) => self.groups.told((group, id), &members),
                Ok((node, other)) => tracing::warn!(%node, ?other, "a strange answer"),
                Err(why) => tracing::debug!(%group, replica = %id, why, "whether it is still needed"),
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
    fn a_replica_goes_when_its_group_has_taken_it_out_and_not_when_time_has_passed() {
        assert!(!needed().may_go());
        assert!(Unnamed { own: WITHOUT, ..needed() }.may_go());
        assert!(!Unnamed { led: Some(WITH), ..needed() }.may_go());
        // It was down when it was removed.
        assert!(Unnamed { led: Some(WITHOUT), ..needed() }.may_go());
        assert!(Unnamed { led: Some(WITHOUT), was_member: false, own: &[], ..needed() }.may_go());
    }

    #[test]
    fn what_a_replica_does_not_know_yet_does_not_count() {
        assert!(!Unnamed { was_member: false, own: WITHOUT, ..needed() }.may_go());
        assert!(!Unnamed { own: &[], ..needed() }.may_go());
        assert!(!Unnamed { led: Some(&[]), ..needed() }.may_go());
    }

    #[test]
    fn a_replica_goes_with_its_volume_and_stays_for_a_moment_in_any_case() {
        assert!(Unnamed { has_group: false, ..needed() }.may_go());
        assert!(Unnamed { was_open: false, was_member: false, own: &[], ..needed() }.may_go());
        for since in [Duration::ZERO, REPLICA_GRACE] {
            assert!(
                !Unnamed { since, has_group: false, own: WITHOUT, led: Some(WITHOUT), ..needed() }.may_go()
            );
        }
    }
}
