//! Requests to the metadata leader that are in flight. A recall waits for the replies that were sent before
//! it.

use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::Instant;
use shoal_wire::Token;
use std::collections::BTreeSet;

/// Requests in flight.
#[derive(Default)]
pub(crate) struct Tokens {
    state: Mutex<UnderWay>,
    arrived: Condvar,
}

#[derive(Default)]
struct UnderWay {
    last: u64,
    out: BTreeSet<u64>,
    /// Waited for too long: their replies will be discarded.
    void: BTreeSet<u64>,
}

impl UnderWay {
    fn below(&self) -> Token {
        Token(self.out.first().copied().unwrap_or(self.last + 1))
    }
}

/// A request in flight, until its reply has been installed.
pub(crate) struct Request<'a> {
    tokens: &'a Tokens,
    pub(crate) token: Token,
    pub(crate) below: Token,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut state = self.tokens.state.lock();
        state.out.remove(&self.token.0);
        state.void.remove(&self.token.0);
        drop(state);
        self.tokens.arrived.notify_all();
    }
}

impl Request<'_> {
    /// Whether its reply may be installed.
    pub(crate) fn counts(&self) -> bool {
        !self.tokens.state.lock().void.contains(&self.token.0)
    }
}

impl Tokens {
    pub(crate) fn begin(&self) -> Request<'_> {
        let mut state = self.state.lock();
        state.last += 1;
        let token = state.last;
        state.out.insert(token);
        Request { tokens: self, token: Token(token), below: state.below() }
    }

    /// The oldest request in flight: all before it have been answered.
    pub(crate) fn below(&self) -> Token {
        self.state.lock().below()
    }

    /// Waits until the replies to these requests have been installed, or are lost. Returns false at `due`:
    /// replies that are still missing will be discarded.
    pub(crate) fn wait(&self, tokens: &[Token], due: Instant) -> bool {
        let mut state = self.state.lock();
        while tokens.iter().any(|token| state.out.contains(&token.0)) {
            if self.arrived.wait_until(&mut state, due).timed_out() {
                let late: Vec<u64> =
                    tokens.iter().map(|token| token.0).filter(|token| state.out.contains(token)).collect();
                state.void.extend(late);
                return false;
            }
        }
        true
    }
}
