//! Membership: moves a group towards the wanted members, one safe step at a time.
//!
//! A new replica starts as a learner, and gets a vote when it has caught up. Only then does an unwanted
//! member lose its vote, and only if the remaining members have a quorum without it. So the group never has
//! fewer replicas than it can have. An unwanted leader hands leadership over as soon as a wanted member can
//! take it, because clients send requests to wanted members only.
//!
//! Raft counts a member as alive if it has heard from it since its last quorum check. So a dead one counts as
//! alive for up to an election timeout. Leadership that is transferred to a dead member in that time is given
//! up after another election timeout. The leader elected then has to hear from the members first, so this
//! pause does not repeat. If other members die just when one loses its vote, the group may lack a quorum
//! until one of them is back. In both cases no acknowledged write is lost.

use super::Driver;
use crate::limits::CAUGHT_UP_ENTRIES;
use crate::machine::Machine;
use raft::prelude::*;
use shoal_types::ReplicaId;

impl<M: Machine> Driver<M> {
    /// Takes the next step towards the wanted members, if this replica leads and no step is in progress.
    pub(super) fn step_towards(&mut self, wanted: &[ReplicaId]) -> Result<(), String> {
        let raft = &self.node.raft;
        if !self.leads || wanted.is_empty() || raft.has_pending_conf() || raft.lead_transferee.is_some() {
            return Ok(());
        }
        if let Some(transferee) = self.transferee(wanted) {
            self.transfer_to(transferee);
            return Ok(());
        }
        let Some((kind, id)) = self.next_step(wanted) else { return Ok(()) };
        if id == self.core.id.0 {
            self.transfer();
            return Ok(());
        }
        let mut change = ConfChange { node_id: id, ..ConfChange::default() };
        change.set_change_type(kind);
        tracing::info!(group = %self.core.group, replica = id, ?kind, "changing the members of the group");
        match self.node.propose_conf_change(Vec::new(), change) {
            Ok(()) | Err(raft::Error::ProposalDropped) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether a replica answers and has almost all of the log.
    fn is_close(&self, id: u64) -> bool {
        let raft = &self.node.raft;
        let close = raft.raft_log.last_index().saturating_sub(CAUGHT_UP_ENTRIES);
        raft.prs().get(id).is_some_and(|one| one.recent_active && one.matched >= close && one.matched > 0)
    }

    /// The member to transfer leadership to, if this replica is not wanted.
    fn transferee(&self, wanted: &[ReplicaId]) -> Option<u64> {
        if wanted.contains(&self.core.id) {
            return None;
        }
        let known = self.node.raft.prs();
        let can = |id: &u64| known.conf().voters().contains(*id) && self.is_close(*id);
        let transferees = wanted.iter().map(|id| id.0).filter(can);
        transferees.max_by_key(|id| known.get(*id).map(|one| one.matched))
    }

    fn next_step(&self, wanted: &[ReplicaId]) -> Option<(ConfChangeType, u64)> {
        let raft = &self.node.raft;
        let conf = raft.prs().conf().to_conf_state();
        let wanted: Vec<u64> = wanted.iter().map(|id| id.0).collect();
        let is_member = |id: &u64| conf.voters.contains(id) || conf.learners.contains(id);
        if let Some(new) = wanted.iter().find(|id| !is_member(id)) {
            return Some((ConfChangeType::AddLearnerNode, *new));
        }
        let ready = |id: &&u64| self.is_close(**id);
        if let Some(caught_up) = conf.learners.iter().filter(|id| wanted.contains(id)).find(ready) {
            return Some((ConfChangeType::AddNode, *caught_up));
        }
        // Unwanted members keep their votes until all wanted members have one.
        if wanted.iter().any(|id| !conf.voters.contains(id)) {
            return None;
        }
        let me = self.core.id.0;
        let lives = |id: u64| id == me || raft.prs().get(id).is_some_and(|one| one.recent_active);
        let decides_without = |gone: u64| {
            let rest: Vec<u64> = conf.voters.iter().copied().filter(|id| *id != gone).collect();
            rest.iter().filter(|id| lives(**id)).count() * 2 > rest.len()
        };
        let gone = conf.learners.iter().chain(&conf.voters);
        let gone = gone.filter(|id| !wanted.contains(id) && decides_without(**id));
        // The leader, which is this replica, is removed last.
        gone.clone().find(|id| **id != me).or(gone.clone().next()).map(|id| (ConfChangeType::RemoveNode, *id))
    }
}
