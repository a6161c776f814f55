//! Logs slow requests, with the same request number as in the mount's log.

use crate::limits::{ENDED_KEPT_MAX, SLOW_REQUEST};
use crate::shared::Shared;
use shoal_runtime::time::Instant;
use shoal_types::SessionId;
use shoal_wire::Done;
use std::sync::Arc;

impl Shared {
    /// A completion that logs the request if it took long.
    pub(crate) fn timed<T: 'static>(
        self: &Arc<Self>,
        name: impl FnOnce() -> String + Send + 'static,
        done: Done<T>,
    ) -> Done<T> {
        let (shared, begun) = (self.clone(), Instant::now());
        Box::new(move |outcome| {
            let took = begun.elapsed();
            if took > SLOW_REQUEST && shared.may_log_slow() {
                let is_ok = outcome.is_ok();
                tracing::warn!(is_ok, "slow request: {} took {:.1} s", name(), took.as_secs_f64());
            }
            done(outcome);
        })
    }

    /// Logs requests that have waited for other clients for long, with these clients.
    pub(crate) fn log_slow_waiters(&self) {
        for waiter in self.leases.take_slow(SLOW_REQUEST) {
            if self.may_log_slow() {
                tracing::warn!("slow request: {waiter} so far, for {}", self.clients(&waiter.waits_for));
            }
        }
    }

    /// Sessions with the names of their clients, as text.
    pub(crate) fn clients(&self, sessions: &[SessionId]) -> String {
        let client =
            |session: &SessionId| format!("session {} ({})", session.0, self.sessions.client(*session));
        match sessions {
            [] => "nothing any more".into(),
            sessions => sessions.iter().map(client).collect::<Vec<_>>().join(", "),
        }
    }

    /// A session was ended by this server.
    pub(crate) fn note_ended(&self, text: String) {
        let mut ended = self.ended.lock();
        if ended.len() < ENDED_KEPT_MAX {
            ended.push(text);
        }
    }

    fn may_log_slow(&self) -> bool {
        let admitted = self.slow_log.admits();
        if let Some(left_out) = admitted.filter(|left_out| *left_out > 0) {
            tracing::warn!(left_out, "more slow requests were not logged");
        }
        admitted.is_some()
    }
}
