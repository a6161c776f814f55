//! Waits: for other threads of the session, and for servers and bricks that do not answer.
//!
//! Besides success, three things end a wait: the session ends, the mount's time limit (`fail_after`) is over,
//! or the mount is interrupted (`interrupt`). In the latter two cases the call fails and the session
//! continues.

use crate::context::{Context, SessionState};
use crate::limits::RETRY_WAIT_MAX;
use crate::trace::{Hop, waits};
use shoal_runtime::sync::MutexGuard;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{Errno, InodeId};

impl Context {
    /// Waits until caches may be used again.
    pub(crate) fn wait_for_lease(&self) -> Result<(), Errno> {
        let until = self.until();
        let _waits = waits(Hop::Lease, || "servers to renew the lease, which has run out".into());
        let mut state = self.state.lock();
        while !self.lease.holds() {
            self.wait_for_change(&mut state, until)?;
        }
        state.core.alive()
    }

    /// Waits until no thread of this mount waits for the right to change names in these directories, for a
    /// bounded time.
    pub(crate) fn wait_for_turn(&self, dirs: &[InodeId]) -> Result<(), Errno> {
        let until = Instant::now() + RETRY_WAIT_MAX;
        let _waits = waits(Hop::Metadata, || format!("another thread of this mount that asks for {dirs:?}"));
        let mut state = self.state.lock();
        while state.core.retries.are_waited_for(dirs) {
            state.core.alive()?;
            if state.interrupted || self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the right to change a file, which is being recalled, has been given back.
    pub(crate) fn wait_for_recall(&self, ino: InodeId) -> Result<(), Errno> {
        let until = self.until();
        let _waits = waits(Hop::Recall, || format!("inode {}, which another client gets", ino.0));
        let mut state = self.state.lock();
        while state.core.is_closed_to_writers(ino) {
            self.wait_for_change(&mut state, until)?;
        }
        Ok(())
    }

    /// The deadline of a call that begins to wait now.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.shared.options.fail_after.map(|wait| Instant::now() + wait)
    }

    /// Waits until the state has changed. Fails if the session has ended, the time is over, or the mount was
    /// interrupted.
    pub(crate) fn wait_for_change(
        &self,
        state: &mut MutexGuard<'_, SessionState>,
        until: Option<Instant>,
    ) -> Result<(), Errno> {
        state.core.alive()?;
        if state.interrupted || until.is_some_and(|until| until <= Instant::now()) {
            return Err(Errno::EIO);
        }
        match until {
            Some(until) => drop(self.changed.wait_until(state, until)),
            None => self.changed.wait(state),
        }
        Ok(())
    }

    /// Waits before a retry; fails at once when the session comes to an end.
    pub(crate) fn pause(&self, pause: Duration) -> Result<(), Errno> {
        let due = Instant::now() + pause;
        let mut state = self.state.lock();
        loop {
            state.core.alive()?;
            if self.changed.wait_until(&mut state, due).timed_out() {
                return Ok(());
            }
        }
    }

    /// Waits before a retry of a call, which also fails when the mount is interrupted or its time is over.
    pub(crate) fn pause_call(&self, pause: Duration, until: Option<Instant>) -> Result<(), Errno> {
        if self.state.lock().interrupted || until.is_some_and(|until| until <= Instant::now()) {
            return Err(Errno::EIO);
        }
        self.pause(pause)
    }

    /// Calls that wait for servers or bricks fail from now on.
    pub(crate) fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_all();
        if let Some(failover) = &self.transport.failover {
            failover.interrupt();
        }
    }

    /// Ends the connection: nothing is sent any more, and no call waits for servers.
    pub(crate) fn give_up(&self) {
        if let Some(failover) = &self.transport.failover {
            failover.stop();
        }
    }
}
