//! Inode numbers and room, granted ahead of need.

use crate::context::Context;
use crate::core::Core;
use crate::limits::{INODE_GRANT, INODE_LOW, ROOM_GRANT_BYTES, ROOM_LOW_BYTES};
use crate::trace::{Hop, waits};
use shoal_runtime::sync::Mutex;
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{Errno, Timestamp};
use shoal_wire::{Grant, GrantReply, Space};
use std::sync::Arc;

/// Requests grants for a session, and renews the session with them.
pub(crate) struct Grants {
    context: Arc<Context>,
    /// The session is renewed this often.
    every: Duration,
    /// Held while grants are requested, so that a burst of needs makes one request.
    granting: Mutex<()>,
}

impl Grants {
    /// `renew`: the servers expect a renewal within this time.
    pub(crate) fn new(context: &Arc<Context>, renew: Duration) -> Grants {
        // Three tries fit into the time that the server allows.
        Grants { context: context.clone(), every: renew / 3, granting: Mutex::new(()) }
    }

    /// Starts the thread that renews the session.
    pub(crate) fn start(self: &Arc<Grants>) -> JoinHandle<()> {
        let grants = Arc::clone(self);
        let run = move || grants.run();
        Builder::new().name("shoal-renew".into()).spawn(run).expect("the system has room for a thread")
    }

    fn run(&self) {
        let mut state = self.context.state.lock();
        while !state.stopping {
            let due = Instant::now() + self.every;
            while !state.stopping && !self.context.ending.wait_until(&mut state, due).timed_out() {}
            if !state.stopping {
                drop(state);
                self.renew();
                state = self.context.state.lock();
            }
        }
    }

    /// Requests more inode numbers or room, unless another thread has just done so. `flush` commits the
    /// journal.
    pub(crate) fn fetch(
        &self,
        bytes: u64,
        inodes: bool,
        flush: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let _waits = waits(Hop::Metadata, || "room on the volume, or inode numbers".into());
        let _one = self.granting.lock();
        let (room, none_left) = {
            let core = &self.context.state.lock().core;
            (core.room, core.inodes.is_empty())
        };
        if if inodes { !none_left } else { room >= bytes } {
            return Ok(());
        }
        let ask = |want: u64| self.grant(if inodes { INODE_GRANT } else { 0 }, want);
        if inodes {
            return ask(0);
        }
        ask(bytes.max(ROOM_GRANT_BYTES))?;
        if self.context.state.lock().core.room >= bytes {
            return Ok(());
        }
        // Uncommitted operations may free room, or be charged twice at present.
        flush()?;
        let lacking = bytes.saturating_sub(self.context.state.lock().core.room);
        ask(lacking)?;
        if self.context.state.lock().core.room >= bytes { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    /// Requests a grant and takes it. This also renews the session, and checks the servers' clock.
    fn grant(&self, inodes: u64, want_bytes: u64) -> Result<(), Errno> {
        let outstanding_bytes = {
            let core = &self.context.state.lock().core;
            core.room + core.journal.uncommitted_room()
        };
        let grant =
            Grant { session: self.context.id, inodes, space: Space { outstanding_bytes, want_bytes } };
        let asked = Timestamp::now();
        let granted =
            self.context.transport.meta.grant(grant).map_err(|error| self.context.refused(error))?;
        self.context.shared.clock.observe(asked, granted.now);
        take_grant(&mut self.context.state.lock().core, granted);
        Ok(())
    }

    /// Renews the session, and tops up grants before a call has to wait for them.
    fn renew(&self) {
        let _one = self.granting.lock();
        self.renew_now();
    }

    /// Tops up grants, unless another thread is requesting a grant: that thread may wait for a commit, and so
    /// for the caller of this function.
    pub(crate) fn top_up(&self) {
        if let Some(_one) = self.granting.try_lock() {
            self.renew_now();
        }
    }

    fn renew_now(&self) {
        let (inodes, room) = {
            let core = &self.context.state.lock().core;
            (core.inodes.end - core.inodes.start, core.room)
        };
        let inodes = if inodes < INODE_LOW { INODE_GRANT } else { 0 };
        let want = if room < ROOM_LOW_BYTES { ROOM_GRANT_BYTES } else { 0 };
        // No call needs the grant yet: one that does will request it again and get the error.
        if let Err(errno) = self.grant(inodes, want) {
            tracing::debug!(%errno, "renewing the session failed");
        }
    }
}

/// Whether grants run low.
pub(crate) fn runs_low(core: &Core) -> bool {
    core.room < ROOM_LOW_BYTES || core.inodes.end - core.inodes.start < INODE_LOW
}

/// Records what was granted in the core.
pub(crate) fn take_grant(core: &mut Core, grant: GrantReply) {
    core.room += grant.bytes;
    if grant.inodes > 0 {
        // The rest of the old range is given up: there are enough numbers, and one range is simpler than two.
        core.inodes = grant.first_inode..grant.first_inode + grant.inodes;
    }
}
