//! When a replica that the map does not name any more may go.
//!
//! **Models.** The map says who should be in a group. Who is, the group decides itself, a step at a time, and nobody goes whom the others need
//! for a majority. So a replica may be needed for long after the map has ceased to name it: until its group has taken it out.
//!
//! **Promises.** That a group has taken a replica out is known from the replica itself, which has seen itself among the members before and does not
//! any more, or from the group's leader, who is asked: whoever was away meanwhile does not hear of it. However long it takes, there is no other
//! way; a group that nobody leads has taken nobody out. Only those go by themselves whose volume was deleted, and those that never were open.

use super::calls::{Answer, Ask};
use super::core::Core;
use crate::limits::{ASK_PATIENCE, REPLICA_GRACE};
use shoal_types::ReplicaId;
use std::time::Duration;

/// What is known of a replica that the map does not name.
pub struct Unnamed<'a> {
    /// Which.
    pub id: ReplicaId,
    /// For how long the map has not been naming it.
    pub since: Duration,
    /// Its volume has not been deleted.
    pub has_group: bool,
    /// It has been open here. Otherwise it has promised nothing to anybody.
    pub was_open: bool,
    /// It has been seen among the members, by its own state.
    pub was_member: bool,
    /// The members by its own state, with a vote and without; none: it does not run, or has only begun to.
    pub own: &'a [ReplicaId],
    /// The members by the group's leader, if it has just been asked.
    pub led: Option<&'a [ReplicaId]>,
}

impl Unnamed<'_> {
    /// See the module.
    pub fn may_go(&self) -> bool {
        let without = |members: &[ReplicaId]| !members.is_empty() && !members.contains(&self.id);
        // One that has only come may not have heard of its own admission: what it has not seen does not count.
        let left = self.was_member && without(self.own);
        self.since > REPLICA_GRACE
            && (!self.has_group || !self.was_open || left || self.led.is_some_and(without))
    }
}

impl Core {
    /// Who is in groups whose former replicas are here, is asked of their leaders.
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
        // It was away when it happened.
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
