//! Leadership: renew its lease, lose it, transfer it, and publish it.

use super::Driver;
use crate::lead::{Role, Status};
use crate::limits::{LEASE, LEASE_TICKS, QUORUM_CHECKS_MAX};
use crate::machine::Machine;
use raft::StateRole;
use raft::prelude::*;
use shoal_runtime::time::Instant;
use shoal_types::ReplicaId;
use std::sync::atomic::Ordering;

impl<M: Machine> Driver<M> {
    /// Starts a quorum check, at every tick that is due for one.
    pub(super) fn check_quorum(&mut self) {
        if self.transferring && self.leads && self.node.raft.lead_transferee.is_none() {
            // The transfer has failed, but its message may still be in flight, and its receiver would not
            // wait for this leader's lease to run out. A message of an earlier term is ignored, so this
            // replica steps down.
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
        if self.leads && self.ticks.is_multiple_of(LEASE_TICKS) && self.node.raft.lead_transferee.is_none() {
            self.last_quorum_check += 1;
            self.quorum_checks.push_back((self.last_quorum_check, Instant::now()));
            if self.quorum_checks.len() > QUORUM_CHECKS_MAX {
                self.quorum_checks.pop_front();
            }
            self.node.read_index(self.last_quorum_check.to_be_bytes().to_vec());
        }
    }

    /// Leadership was gained or lost, or another replica has it now.
    pub(super) fn leadership_changed(&mut self, leads: bool) {
        if self.leads && !leads {
            self.quorum_checks.clear();
            self.transferring = false;
            if !self.alone {
                self.core.lead.end();
                self.core.deposed();
            }
        }
        if leads && !self.leads {
            self.core.driver.elections.fetch_add(1, Ordering::Relaxed);
        }
        self.leads = leads;
        self.publish();
        self.core.progress_moved();
    }

    /// A quorum check has succeeded.
    pub(super) fn confirmed(&mut self, state: &ReadState) {
        let Ok(number) = state.request_ctx.as_slice().try_into().map(u64::from_be_bytes) else { return };
        while let Some((asked, when)) = self.quorum_checks.pop_front() {
            if asked == number {
                if self.leads && self.node.raft.lead_transferee.is_none() {
                    self.core.lead.renew(self.node.raft.term, when, LEASE, state.index);
                    self.core.progress_moved();
                }
                return;
            }
        }
    }

    /// Transfers leadership to the voter with the longest log, to an active one if possible.
    pub(super) fn transfer(&mut self) {
        let me = self.core.id.0;
        let raft = &self.node.raft;
        if raft.lead_transferee.is_some() {
            return;
        }
        let is_other_voter = |id: u64| id != me && raft.prs().conf().voters().contains(id);
        let voters = raft.prs().iter().filter(|(id, _)| is_other_voter(**id));
        let best = voters.max_by_key(|(_, one)| (one.recent_active, one.matched)).map(|(id, _)| *id);
        if let (true, Some(to)) = (self.leads && !self.alone, best) {
            self.transfer_to(to);
        }
    }

    /// Transfers this replica's leadership to another.
    pub(super) fn transfer_to(&mut self, to: u64) {
        self.core.lead.end();
        self.node.transfer_leader(to);
        self.transferring = self.node.raft.lead_transferee.is_some();
    }

    /// Publishes this replica's status.
    pub(super) fn publish(&self) {
        let raft = &self.node.raft;
        let conf = raft.prs().conf().to_conf_state();
        let ids = |ids: &[u64]| {
            let mut ids: Vec<ReplicaId> = ids.iter().map(|id| ReplicaId(*id)).collect();
            ids.sort_unstable();
            ids
        };
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            // A new replica has not applied its own admission at first.
            StateRole::Follower if !conf.voters.contains(&raft.id) => Role::Learner,
            StateRole::Follower => Role::Follower,
        };
        let matched = match role {
            Role::Leader => raft.prs().iter().map(|(id, one)| (ReplicaId(*id), one.matched)).collect(),
            _ => Vec::new(),
        };
        self.core.lead.set_status(Status {
            id: raft.id,
            term: raft.term,
            role,
            leader: (raft.leader_id != 0).then_some(ReplicaId(raft.leader_id)),
            voters: ids(&conf.voters),
            learners: ids(&conf.learners),
            last: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            matched,
        });
    }
}
