//! Calls that wait for the leader's reply: they fail early when the session or the mount ends.
//!
//! A leader answers some calls only when another client has given back a right or a lock. It may be alive and
//! never answer: a program holds the lock, or the volume was stopped. So the end of the session, or of the
//! mount, does not wait for replies.

use super::Inner;
use shoal_runtime::channel;
use shoal_wire::{Done, MetaError};
use std::collections::BTreeMap;

/// Makes a waiting call fail.
type Fail = Box<dyn FnOnce(MetaError) + Send>;

/// Calls that wait for the leader's answer.
#[derive(Default)]
pub(super) struct InFlight {
    last: u64,
    /// By number, with whether an interrupt ends the call.
    calls: BTreeMap<u64, (bool, Fail)>,
}

impl InFlight {
    fn begin(&mut self, interruptible: bool, fail: Fail) -> u64 {
        self.last += 1;
        self.calls.insert(self.last, (interruptible, fail));
        self.last
    }

    fn end(&mut self, call: u64) {
        self.calls.remove(&call);
    }

    /// Makes all of them fail, or only those that an interrupt ends.
    pub(super) fn fail(&mut self, interruptible_only: bool, error: &MetaError) {
        for (call, (interruptible, fail)) in std::mem::take(&mut self.calls) {
            match interruptible_only && !interruptible {
                true => _ = self.calls.insert(call, (interruptible, fail)),
                false => fail(error.clone()),
            }
        }
    }
}

impl Inner {
    /// Makes a call that is answered by callback, and waits for the reply, or until the call is made to fail.
    pub(super) fn wait_for<T: Send + 'static>(
        &self,
        interruptible: bool,
        call: impl FnOnce(Done<T>),
    ) -> Result<T, MetaError> {
        // Room for both outcomes: neither sender waits for the other.
        let (tell, told) = channel::bounded(2);
        let failed = tell.clone();
        let number = {
            let mut state = self.state.lock();
            // The caller may have given up, or have its answer.
            let fail = Box::new(move |error| _ = failed.send(Err(error)));
            let number = state.in_flight.begin(interruptible, fail);
            if let Some(error) = state.call_error(interruptible) {
                state.in_flight.end(number);
                return Err(error);
            }
            number
        };
        call(Box::new(move |answer| _ = tell.send(answer)));
        let answer = told.recv();
        self.state.lock().in_flight.end(number);
        answer.unwrap_or_else(|_| Err(MetaError::Unavailable("the request was dropped".into())))
    }
}
