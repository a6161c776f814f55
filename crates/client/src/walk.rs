//! Prefetches for programs that walk through trees.
//!
//! What is prefetched is watched, and recalled, like anything else. A call that needs a directory that is
//! being prefetched waits for it, for a bounded time: the servers may be waiting for another client.

use crate::context::Context;
use crate::core::WalkPrefetch;
use crate::limits::{LIST_PAGE_BYTES, WALK_REPLY_BYTES_TARGET, WALK_THREADS, WALK_WAIT_MAX};
use shoal_runtime::sync::Condvar;
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use shoal_wire::{Found, Prefetch, Query, ReadRequest, WalkReply, wait_for};
use std::sync::Arc;

/// Prefetches for a session.
pub(crate) struct Walker {
    context: Arc<Context>,
    /// There may be something to prefetch.
    walking: Condvar,
    /// A prefetch has been answered, or has failed.
    walked: Condvar,
}

impl Walker {
    pub(crate) fn new(context: &Arc<Context>) -> Walker {
        Walker { context: context.clone(), walking: Condvar::new(), walked: Condvar::new() }
    }

    /// Starts the prefetching threads.
    pub(crate) fn start(self: &Arc<Walker>) -> impl Iterator<Item = JoinHandle<()>> {
        (0..WALK_THREADS).map(|n| {
            let walker = Arc::clone(self);
            let thread = Builder::new().name(format!("shoal-walk-{n}"));
            thread.spawn(move || walker.run()).expect("the system has room for a thread")
        })
    }

    /// There may be something to prefetch.
    pub(crate) fn wake(&self) {
        self.walking.notify_one();
    }

    /// The session is stopping: wakes the prefetching threads.
    pub(crate) fn stop(&self) {
        self.walking.notify_all();
    }

    fn run(&self) {
        let mut state = self.context.state.lock();
        while !state.stopping && state.core.alive().is_ok() {
            match state.core.next_prefetch() {
                None => self.walking.wait(&mut state),
                Some(ahead) => {
                    drop(state);
                    // More than one thread may find work at the beginning of a walk.
                    self.walking.notify_one();
                    self.fetch_ahead(&ahead);
                    state = self.context.state.lock();
                }
            }
        }
    }

    /// Reads some directories ahead and installs those that arrive. A failure is left to the call that needs
    /// them.
    fn fetch_ahead(&self, ahead: &WalkPrefetch) {
        self.context.counters.walks.add(1);
        let request = self.context.tokens.begin();
        let query = Query::Walk {
            dirs: ahead.dirs.clone(),
            prefetch: if ahead.contents { Prefetch::Contents } else { Prefetch::Attributes },
            bytes_target: WALK_REPLY_BYTES_TARGET as u64,
            bytes_max: LIST_PAGE_BYTES as u64,
        };
        let (session, token, below) = (self.context.id, request.token, request.below);
        let walk = ReadRequest { session, token, below, query };
        let reply = match wait_for(|done| self.context.transport.meta.read(walk, done)) {
            Ok(reply) => reply,
            Err(error) => {
                tracing::debug!(%error, "a prefetch failed");
                return self.answered_ahead(ahead, None);
            }
        };
        let Found::Walk(mut found) = reply.found else { return self.answered_ahead(ahead, None) };
        let entries = found.dirs.iter().flat_map(|(_, entries)| entries.iter().flatten());
        self.context.groups.learn_records(entries.filter_map(|entry| entry.record.as_ref()));
        for (dir, entries) in &mut found.dirs {
            // The lock is released between directories: calls wait for it.
            let mut state = self.context.state.lock();
            let core = &mut state.core;
            if core.rights.term != reply.term || !request.counts() {
                drop((state, request));
                return self.answered_ahead(ahead, None);
            }
            if reply.exclusive.contains(dir) {
                core.install_prefetched_right(ahead, *dir);
            }
            if let Some(entries) = entries.take() {
                core.install_prefetched_dir(ahead, *dir, entries);
            }
        }
        drop(request);
        self.answered_ahead(ahead, Some(&found));
    }

    fn answered_ahead(&self, ahead: &WalkPrefetch, reply: Option<&WalkReply>) {
        self.context.state.lock().core.prefetch_answered(ahead, reply);
        self.walked.notify_all();
    }

    /// If a directory is being prefetched, waits until it has arrived. Returns whether it was.
    pub(crate) fn wait(&self, dir: InodeId) -> bool {
        let mut state = self.context.state.lock();
        if !state.core.join_prefetch(dir) {
            return false;
        }
        self.walking.notify_one();
        let due = Instant::now() + WALK_WAIT_MAX;
        while state.core.walks.is_asked(dir) {
            if self.walked.wait_until(&mut state, due).timed_out() {
                state.core.walks.drop_expected(dir);
            }
        }
        true
    }
}
