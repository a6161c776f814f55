//! The context of a session: what its parts share. The connection to the servers, the state under the
//! session's one lock, the lease, requests in flight, and where blocks are.
//!
//! It depends on none of the parts. They depend on it, and [`session`](crate::session) composes them.

use crate::core::Core;
use crate::groups::Groups;
use crate::lease::Lease;
use crate::memory::CoreMemory;
use crate::shared::MountShared;
use crate::stats::Counters;
use crate::tokens::Tokens;
use crate::transport::Transport;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_types::{BatchSeq, Errno, SessionId};
use shoal_wire::{Denial, MetaError};
use std::sync::Arc;

/// The state that the session's lock protects.
pub(crate) struct SessionState {
    pub(crate) core: Core,
    memory: CoreMemory,
    /// The shipping thread waits for work.
    pub(crate) shipper_idle: bool,
    pub(crate) stopping: bool,
    /// Calls that wait are to fail: the mount has been interrupted.
    pub(crate) interrupted: bool,
    /// The servers have ended the session: a new one replaces it.
    pub(crate) ended: bool,
    /// The denial because of which they ended it.
    pub(crate) denied: Option<Denial>,
    /// The mount was unmounted by force: long waits are cut short.
    pub(crate) abandoned: bool,
}

/// The state shared by the parts of one session.
pub(crate) struct Context {
    pub(crate) shared: Arc<MountShared>,
    pub(crate) id: SessionId,
    pub(crate) transport: Transport,
    pub(crate) state: Mutex<SessionState>,
    /// Signalled when something was committed, stored, granted, or lost.
    pub(crate) changed: Condvar,
    /// The session comes to an end. Threads that wait for nothing else are not woken by `changed`.
    pub(crate) ending: Condvar,
    pub(crate) lease: Lease,
    pub(crate) tokens: Tokens,
    pub(crate) groups: Groups,
    pub(crate) counters: Counters,
}

impl SessionState {
    /// A batch and all before it are durable and applied.
    pub(crate) fn committed(&mut self, seq: BatchSeq) {
        self.core.committed(seq);
        self.count_memory();
    }

    /// Tells the core what it may have of the process's budget. Before a call.
    pub(crate) fn limit_memory(&mut self) {
        self.memory.limit(&mut self.core);
    }

    /// Counts in the budget what the core has. After a call, or when something was stored or committed.
    pub(crate) fn count_memory(&mut self) {
        self.memory.count(&self.core);
    }
}

impl Context {
    pub(crate) fn new(
        shared: &Arc<MountShared>,
        transport: Transport,
        core: Core,
        lease: Lease,
    ) -> Arc<Context> {
        let options = &shared.options;
        let memory = CoreMemory::new(&options.memory, options.cache_bytes);
        Arc::new(Context {
            shared: shared.clone(),
            id: core.session(),
            transport,
            state: Mutex::new(SessionState {
                core,
                memory,
                shipper_idle: false,
                stopping: false,
                interrupted: false,
                ended: false,
                denied: None,
                abandoned: false,
            }),
            changed: Condvar::new(),
            ending: Condvar::new(),
            lease,
            tokens: Tokens::default(),
            groups: Groups::default(),
            counters: Counters::default(),
        })
    }

    /// Turns an error of a server into the caller's. Only [`MetaError::Errno`] is about the call itself;
    /// every other one ends the session.
    pub(crate) fn refused(&self, error: MetaError) -> Errno {
        match error {
            MetaError::Errno(errno) => errno,
            other => {
                let errno = match &other {
                    MetaError::Denied(denial) => denial.reason.errno(),
                    _ => Errno::EIO,
                };
                let mut state = self.state.lock();
                match &other {
                    _ if state.stopping || state.core.alive().is_err() => {}
                    MetaError::Fenced(_) | MetaError::Denied(_) => {
                        state.ended = true;
                        if let MetaError::Denied(denial) = &other {
                            state.denied = Some(denial.clone());
                        }
                        // The receiver lives as long as the mount.
                        let _ = self.shared.ended.send(self.id);
                    }
                    other => tracing::error!(session = self.id.0, error = %other, "the session is lost"),
                }
                state.core.kill(errno);
                self.changed.notify_all();
                self.ending.notify_all();
                errno
            }
        }
    }

    /// A server sent a reply of another type than requested.
    pub(crate) fn unexpected_answer(&self) -> Errno {
        self.refused(MetaError::other_answer())
    }

    /// Invalidates the whole kernel cache, because recalls do not reach this session any more.
    pub(crate) fn invalidate_kernel(&self) {
        let inodes = self.state.lock().core.referred_inodes();
        if let Some(kernel) = self.shared.kernel.get() {
            kernel.invalidate_all(&inodes);
        }
    }
}
