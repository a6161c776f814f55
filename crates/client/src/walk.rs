//! Prefetches for programs that walk through trees.
//!
//! What is prefetched is watched, and recalled, like anything else. A call that needs something that is being
//! prefetched waits for it, for a bounded time: the servers may be waiting for another client.

use crate::core::Ahead;
use crate::limits::{LIST_PAGE_BYTES, WALK_REPLY_BYTES_TARGET, WALK_THREADS, WALK_WAIT_MAX};
use crate::session::Session;
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use shoal_wire::{Ask, Found, Prefetch, Question, WalkReply, wait_for};
use std::sync::Arc;

/// Starts the prefetching threads.
pub(crate) fn start(session: &Arc<Session>) -> Vec<JoinHandle<()>> {
    (0..WALK_THREADS)
        .map(|n| {
            let session = Arc::clone(session);
            Builder::new()
                .name(format!("shoal-walk-{n}"))
                .spawn(move || session.run_walks())
                .expect("the system has room for a thread")
        })
        .collect()
}

impl Session {
    fn run_walks(&self) {
        let mut state = self.state.lock();
        while !state.stopping && state.core.alive().is_ok() {
            match state.core.walk_ahead() {
                None => self.walking.wait(&mut state),
                Some(ahead) => {
                    drop(state);
                    // More than one thread may find work at the beginning of a walk.
                    self.walking.notify_one();
                    self.fetch_ahead(&ahead);
                    state = self.state.lock();
                }
            }
        }
    }

    /// Requests some directories and takes in what arrives. A failure is left to the call that needs them.
    fn fetch_ahead(&self, ahead: &Ahead) {
        self.counters.walks.add(1);
        let request = self.tokens.begin();
        let question = Question::Walk {
            dirs: ahead.dirs.clone(),
            prefetch: if ahead.contents { Prefetch::Contents } else { Prefetch::Attributes },
            bytes_target: WALK_REPLY_BYTES_TARGET as u64,
            bytes_max: LIST_PAGE_BYTES as u64,
        };
        let ask = Ask { session: self.id, token: request.token, below: request.below, question };
        let reply = match wait_for(|done| self.meta.ask(ask, done)) {
            Ok(reply) => reply,
            Err(error) => {
                tracing::debug!(%error, "asking ahead");
                return self.answered_ahead(ahead, None);
            }
        };
        let Found::Walk(mut found) = reply.found else { return self.answered_ahead(ahead, None) };
        let entries = found.dirs.iter().flat_map(|(_, entries)| entries.iter().flatten());
        self.learn(entries.filter_map(|entry| entry.record.as_ref()));
        for (dir, entries) in &mut found.dirs {
            // Each under a lock of its own: programs are waiting for it.
            let mut state = self.state.lock();
            let core = &mut state.core;
            if core.rights.term != reply.term || !request.counts() {
                drop((state, request));
                return self.answered_ahead(ahead, None);
            }
            if reply.exclusive.contains(dir) {
                core.walk_gives(ahead, *dir);
            }
            if let Some(entries) = entries.take() {
                core.walk_came(ahead, *dir, entries);
            }
        }
        drop(request);
        self.answered_ahead(ahead, Some(&found));
    }

    fn answered_ahead(&self, ahead: &Ahead, reply: Option<&WalkReply>) {
        self.state.lock().core.walk_answered(ahead, reply);
        self.walked.notify_all();
    }

    /// If a directory is being prefetched, waits until it has arrived. Returns whether it was.
    pub(crate) fn await_walk(&self, dir: InodeId) -> bool {
        let mut state = self.state.lock();
        if !state.core.walk_needs(dir) {
            return false;
        }
        self.walking.notify_one();
        let due = Instant::now() + WALK_WAIT_MAX;
        while state.core.walks.is_asked(dir) {
            if self.walked.wait_until(&mut state, due).timed_out() {
                state.core.walks.unexpect(dir);
            }
        }
        true
    }
}
