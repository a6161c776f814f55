//! Finding the leader.
//!
//! All replicas are asked at the same time, so that one that hangs delays nothing. Each is asked by a thread
//! of its own, at most once at a time. The hint of a replica about the leader is not needed: that replica is
//! being asked, too.

use super::{FailoverState, Inner, Leader, NoLeader};
use crate::backoff::Backoff;
use crate::limits::{LEADER_PAUSE_MAX, LEADER_PAUSE_MIN};
use crate::trace::{Hop, waits};
use shoal_runtime::thread::Builder;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{NodeId, SessionId};
use shoal_wire::{MetaError, MetaService};
use std::sync::Arc;

/// The session named in the question whether a replica leads, before there is one. Only a leader says that it
/// does not exist.
const NO_SESSION: SessionId = SessionId(u64::MAX);

impl Inner {
    /// The leader; waits until there is one. `calls`: a call waits for it, which may be interrupted.
    pub(super) fn leader(self: &Arc<Self>, until: Option<Instant>, calls: bool) -> Result<Leader, NoLeader> {
        let mut waits_for_it = None;
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return Err(NoLeader::Stopping);
            }
            if let Some(denial) = state.denials.verdict() {
                return Err(NoLeader::Denied(denial.clone()));
            }
            if let Some(leader) = &state.leader {
                return Ok(leader.clone());
            }
            if calls && state.interrupted {
                return Err(NoLeader::Interrupted);
            }
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Err(NoLeader::TimedOut);
            }
            if calls && waits_for_it.is_none() {
                waits_for_it = Some(waits(Hop::Leader, || "a metadata server that leads".into()));
            }
            let waiting = state.waiting.get_or_insert_with(Backoff::new);
            if waiting.complains() {
                let seconds = waiting.waited().as_secs();
                tracing::warn!(seconds, "no metadata leader answers: waiting");
            }
            if state.next_round <= now {
                let first = state.pause.is_zero();
                state.pause = (state.pause * 2).clamp(LEADER_PAUSE_MIN, LEADER_PAUSE_MAX);
                state.next_round = now + state.pause;
                drop(state);
                if !first {
                    self.replicas.refresh();
                }
                if let Some(denial) = self.replicas.denial() {
                    self.denied(&denial);
                }
                self.query_all();
                state = self.state.lock();
                continue;
            }
            let wake = until.map_or(state.next_round, |until| until.min(state.next_round));
            self.found.wait_until(&mut state, wake);
        }
    }

    /// Asks every replica whether it leads.
    pub(super) fn query_all(self: &Arc<Self>) {
        for (node, service) in self.replicas.all() {
            let (session, term) = {
                let mut state = self.state.lock();
                if !state.asked.insert(node) {
                    continue;
                }
                (state.session.unwrap_or(NO_SESSION), state.terms)
            };
            let inner = self.clone();
            let query = move || inner.query(node, service, session, term);
            if let Err(error) = Builder::new().name("shoal-leader".into()).spawn(query) {
                // The next round tries again.
                tracing::warn!(%error, "no thread to look for a metadata leader");
                self.state.lock().asked.remove(&node);
            }
        }
    }

    fn query(&self, node: NodeId, service: Arc<dyn MetaService>, session: SessionId, term: u64) {
        let answer = service.blocks(session, &[]);
        let leads = matches!(answer, Ok(_) | Err(MetaError::Fenced(_) | MetaError::Errno(_)));
        let mut state = self.state.lock();
        state.asked.remove(&node);
        if let Err(MetaError::Denied(denial)) = answer {
            drop(state);
            return self.denied(&denial);
        }
        // A leader that was found meanwhile is newer than this answer.
        if leads && state.terms == term && state.leader.as_ref().is_none_or(|leader| leader.node != node) {
            state.install(node, service);
            drop(state);
            self.found.notify_all();
            self.work.notify_all();
        }
    }

    /// A request to the leader failed: it does not lead any more, or does not answer.
    pub(super) fn lost(&self, leader: &Leader, error: &MetaError) {
        let mut state = self.state.lock();
        if state.leader.as_ref().is_none_or(|now| now.term != leader.term) {
            return;
        }
        tracing::debug!(node = %leader.node, %error, "this metadata server does not lead any more");
        state.leader = None;
        // If a leader is found and lost over and over, the backoff continues.
        if state.next_round + LEADER_PAUSE_MAX * 4 < Instant::now() {
            state.pause = Duration::ZERO;
        }
        state.waiting = Some(Backoff::new());
        drop(state);
        self.work.notify_all();
    }
}

impl FailoverState {
    fn install(&mut self, node: NodeId, service: Arc<dyn MetaService>) {
        self.terms += 1;
        self.denials.clear();
        self.leader = Some(Leader { term: self.terms, node, service });
        if let Some(waiting) = self.waiting.take() {
            self.stall_max = self.stall_max.max(waiting.waited());
            if waiting.complained() {
                let seconds = waiting.waited().as_secs();
                tracing::info!(%node, seconds, "a metadata leader answers again");
            }
        }
        if self.last_node.replace(node).is_some_and(|last| last != node) {
            self.failovers += 1;
            tracing::info!(%node, "another metadata server leads");
        }
    }
}
