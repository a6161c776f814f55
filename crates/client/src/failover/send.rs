//! Sends batches to the leader, from a thread of its own, so that `submit` never waits, and nothing is
//! submitted from within a server's callback.

use super::outbox::{BatchOutcome, Effect};
use super::{FailoverState, Inner, Leader};
use crate::limits::{LEADER_PAUSE_MIN, LEADER_SILENCE_MAX};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::MutexGuard;
use shoal_runtime::thread::Builder;
use shoal_runtime::time::Instant;
use shoal_types::BatchSeq;
use shoal_wire::{CommitReply, MetaError};
use std::sync::{Arc, Weak};

/// Starts the thread. It ends by itself when the service is stopped.
pub(super) fn start(inner: &Arc<Inner>) {
    let inner = inner.clone();
    Builder::new()
        .name("shoal-send".into())
        .spawn(move || while inner.send().is_some() {})
        .expect("the system has room for a thread");
}

impl Inner {
    /// One step: sends a batch, or waits until one can be sent. `None`: the service has stopped.
    fn send(self: &Arc<Self>) -> Option<()> {
        let mut state = self.state.lock();
        if state.stopping {
            return None;
        }
        if state.outbox.is_empty() {
            self.work.wait(&mut state);
            return Some(());
        }
        let Some(leader) = state.leader.clone() else {
            drop(state);
            return self.leader(None, false).map(drop).ok();
        };
        if state.sending != leader.term {
            state.sending = leader.term;
            if !mistake("do not resend batches to a new leader") {
                state.outbox.restart();
            }
        }
        if state.hold > Instant::now() {
            let hold = state.hold;
            self.work.wait_until(&mut state, hold);
            return Some(());
        }
        if let Some((attempt, commit)) = state.outbox.next() {
            drop(state);
            let (inner, from, seq) = (Arc::downgrade(self), leader.clone(), commit.seq);
            let done = move |outcome| Inner::outcome(&inner, &from, attempt, seq, outcome);
            leader.service.submit(commit, Box::new(done));
            return Some(());
        }
        // The window is full, or all batches have been sent.
        let first = state.outbox.first();
        let silent = self.work.wait_for(&mut state, LEADER_SILENCE_MAX).timed_out();
        let stuck = silent && state.outbox.first() == first && state.leader.is_some();
        drop(state);
        if stuck {
            // The disk may just be slow. But if another replica leads by now, this one will never answer.
            self.query_all();
        }
        Some(())
    }

    /// A batch has an outcome. Called on a thread of the service.
    fn outcome(
        inner: &Weak<Inner>,
        from: &Leader,
        attempt: u64,
        seq: BatchSeq,
        outcome: Result<CommitReply, MetaError>,
    ) {
        let Some(inner) = inner.upgrade() else { return };
        let outcome = inner.map_denial(outcome);
        let error = outcome.as_ref().err().cloned();
        let mut state = inner.state.lock();
        match (state.outbox.outcome(attempt, seq, outcome), error) {
            (Effect::Report(outcomes), _) => {
                inner.work.notify_all();
                inner.report(state, outcomes);
            }
            (Effect::Again { elsewhere, pause }, Some(error)) => {
                if pause {
                    state.hold = Instant::now() + LEADER_PAUSE_MIN;
                }
                drop(state);
                if elsewhere {
                    inner.lost(from, &error);
                }
                inner.work.notify_all();
            }
            _ => {}
        }
    }

    /// Reports outcomes, in order and under no lock. Only one thread at a time does this; any other leaves it
    /// to that one.
    pub(super) fn report<'a>(
        &'a self,
        mut state: MutexGuard<'a, FailoverState>,
        outcomes: impl IntoIterator<Item = BatchOutcome>,
    ) {
        state.outcomes.extend(outcomes);
        if std::mem::replace(&mut state.reporting, true) {
            return;
        }
        while let Some((done, outcome)) = state.outcomes.pop_front() {
            drop(state);
            done(outcome);
            state = self.state.lock();
        }
        state.reporting = false;
    }
}
