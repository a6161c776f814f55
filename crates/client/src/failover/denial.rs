//! Denials: waits end when denials have continued for long enough and no replica leads.

use super::{FailoverState, Inner, NoLeader};
use crate::limits::DENIAL_GRACE;
use shoal_runtime::time::Instant;
use shoal_wire::{Denial, MetaError};
use std::sync::Arc;

/// Denials since the last leader was found.
#[derive(Default)]
pub(super) struct Denials {
    /// Times of the first one of an unbroken series, and of the last.
    row: Option<(Instant, Instant)>,
    /// The denial that decided: no replica is asked any more.
    verdict: Option<Denial>,
}

impl Denials {
    pub(super) fn verdict(&self) -> Option<&Denial> {
        self.verdict.as_ref()
    }

    /// A replica leads.
    pub(super) fn clear(&mut self) {
        self.row = None;
    }

    /// Records a denial. Returns whether it decides. `at_once`: the first one does.
    fn note(&mut self, denial: &Denial, now: Instant, at_once: bool) -> bool {
        let unbroken = self.row.filter(|(_, last)| now.saturating_duration_since(*last) < DENIAL_GRACE);
        let first = unbroken.map_or(now, |(first, _)| first);
        self.row = Some((first, now));
        let decides =
            self.verdict.is_none() && (at_once || now.saturating_duration_since(first) >= DENIAL_GRACE);
        if decides {
            self.verdict = Some(denial.clone());
        }
        decides
    }
}

impl FailoverState {
    /// The denial for which every call has to fail, if there is one.
    pub(super) fn call_error(&self, interruptible: bool) -> Option<MetaError> {
        match self.denials.verdict() {
            Some(denial) => Some(NoLeader::Denied(denial.clone()).into()),
            None if self.stopping => Some(NoLeader::Stopping.into()),
            None if interruptible && self.interrupted => Some(NoLeader::Interrupted.into()),
            None => None,
        }
    }
}

impl Inner {
    /// Handles the reply of a leader. A denial means that it does not lead: another replica may.
    pub(super) fn map_denial<T>(self: &Arc<Self>, outcome: Result<T, MetaError>) -> Result<T, MetaError> {
        match outcome {
            // The denials were decided while this call waited.
            Err(MetaError::Denied(denial)) if self.state.lock().denials.verdict().is_some() => {
                Err(MetaError::Denied(denial))
            }
            Err(MetaError::Denied(denial)) => Err(MetaError::Unavailable(denial.to_string())),
            outcome => outcome,
        }
    }

    /// A replica, or the newest map, denies the client the volume, and no replica is known to lead.
    pub(super) fn denied(&self, denial: &Denial) {
        if denial.epoch < self.replicas.epoch() {
            return;
        }
        let mut state = self.state.lock();
        if state.leader.is_some() || state.stopping {
            return;
        }
        // Before there is a session there is nothing to lose.
        let at_once = state.session.is_none();
        if !state.denials.note(denial, Instant::now(), at_once) {
            return;
        }
        let error = MetaError::Denied(denial.clone());
        let outcomes = state.outbox.end(error.clone());
        state.in_flight.fail(false, &error);
        self.found.notify_all();
        self.work.notify_all();
        self.report(state, outcomes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::time::Duration;
    use shoal_wire::Reason;

    #[test]
    fn denials_decide_after_an_unbroken_series_only() {
        let denial = Denial { reason: Reason::VolumeStopped, epoch: 1, detail: "stopped".into() };
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let grace = DENIAL_GRACE.as_millis() as u64;
        let mut denials = Denials::default();
        assert!(!denials.note(&denial, at(0), false));
        assert!(!denials.note(&denial, at(grace - 1), false));
        denials.clear();
        assert!(!denials.note(&denial, at(grace + 1), false), "a leader was found in between");
        assert!(!denials.note(&denial, at(3 * grace), false), "nothing was heard for long");
        assert!(!denials.note(&denial, at(4 * grace - 1), false));
        assert!(denials.note(&denial, at(4 * grace), false));
        assert_eq!(denials.verdict(), Some(&denial));
        assert!(!denials.note(&denial, at(4 * grace), false), "it is decided once");
        assert!(Denials::default().note(&denial, begun, true));
    }
}
